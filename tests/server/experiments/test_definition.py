"""The analyst's TOML file: defaults, payloads for boards and errors."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from custom_mechanisms import COIN
from refusals import Refusal, fails, refusals

from hushmote.device import ldp_client
from hushmote.server.experiments.asks import asks_of
from hushmote.server.experiments.definition import load, parse
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.experiments.units import bin_edges, index_names

ROOM_FILE = Path(__file__).parents[3] / "examples" / "room_temp.toml"
ROOM = ROOM_FILE.read_text()
PAIR = ROOM_FILE.with_name("heating_by_window.toml").read_text()


def changed(old: str, new: str) -> str:
    assert ROOM.count(old) == 1
    return ROOM.replace(old, new)


def of_another_type(fields: str) -> str:
    """Return the example without the number fields."""
    text = changed('type = "number"', f"{fields} #")
    for old in ("low = -14 ", "high = 50", "bins = 256", "asks ="):
        assert text.count(old) == 1
        text = text.replace(old, "# ")
    return text


def levels_drawn(text: str) -> dict[int, float]:
    """Return each drawn level's width in bins and share of the reports."""
    experiment = parse(text).experiment()
    return {level.width: level.weight / experiment.weight_sum for level in experiment.levels if level.weight}


class TestAsksOfPair:
    @pytest.mark.parametrize(
        ("ask", "text"),
        [
            ("nothing given window", "has no part nothing; it has window, heating"),
            ("heating=yes given window, window", 'a condition must be part=value, such as "version=1.2"'),
            ("window=closed given heating=yes", "name a part, or two conditions that differ, as in a=1, a=2"),
            ("heating=yes given window=closed, window = closed", "two conditions that differ"),
            ("heating=yes given window=closed, window=tilted, window=open", "two conditions that differ"),
            ("window given heating", "say which window, as in window=VALUE"),
            ("heating=yes given heating", "the target and the condition must be different parts"),
            ("heating=yes&window=closed", "must be different parts"),
        ],
    )
    def test_rejects_questions_that_do_not_fit_the_pair(self, ask: str, text: str):
        with fails(f"^asks: .*{re.escape(text)}", DefinitionError):
            parse(f'asks = ["{ask}"]\n{PAIR}').payload()

    def test_name_a_part_or_two_conditions(self):
        asks = ["heating=yes given window=closed, window=tilted", "heating given window", "heating=yes"]
        pair = parse(f"asks = {asks}\n{PAIR}")
        assert pair.payload()
        given = [ask.given for ask in asks_of(pair.experiment(), asks)]
        assert given == [("window=closed", "window=tilted"), ("window",), ()]


class TestErrors:
    @refusals(
        ("epsilon = 1.0", "epsilon = 0.0000005", "epsilon must be a whole number of millionths"),
        ("epsilon = 1.0", "epsilon = 17", "epsilon must be from 0.001 to 16, not 17"),
        ("epsilon = 1.0", "epsilon = -1", "epsilon must be from 0.001 to 16, not -1"),
        ("epsilon = 1.0", "epsilon = nan", "epsilon must be a number, not NaN"),
        ("bins = 256", "bims = 256", "bims is not a field of an experiment: did you mean bins?"),
        ("cap = 4.0", "capp = 4.0", "budget.capp is not a field of an experiment: did you mean cap?"),
        ("cap = 4.0", 'cap = 4.0\nwindow = "day"', "window belongs above the line [budget]"),
        ("bins = 256", 'bins = 256\nrule = "sum"', "rule belongs under the line [budget]"),
        ("bins = 256", "bins = 256\nxyzzy = 1", "xyzzy is not a field of an experiment"),
        ("bins = 256", "bins = 1", "bins must be from 2 to 16777216, not 1"),
        ("bins = 256", "bins = 90000000", "bins must be from 2 to 16777216, not 90000000"),
        ("bins = 256", "bins = 256\ng = 7", 'g is only for mechanism = "olh"'),
        ("bins = 256", "bins = 256\nreach = 7", 'reach is only for mechanism = "sw"'),
        (
            "bins = 256",
            'bins = 256\nmechanism = "sw"\nstatistics = "quantiles"',
            "sw answers mean, not quantiles: omit the mechanism or the statistics",
        ),
        ("bins = 256", 'bins = 256\nmechanism = "olh"\ng = 6', "cells: 6 must be 256 or a prime below it"),
        ("bins = 256", 'bins = 256\nmechanism = "gr"', "mechanism must be auto, one listed by hushmote"),
        ("cap = 4.0", "cap = 0.5", "cap is below the cost of one report"),
        ("cap = 4.0", "", "cap is needed for sum, squares and count"),
        ('"sum"', '"summ"', "budget.rule must be 'sum', 'squares', 'count' or 'unlimited', not 'summ'"),
        ("low = -14", "low = 60", "low must be less than high"),
        ("low = -14", "low = -14.0001", "low must be a whole number of thousandths of its unit"),
        ('owner = "heating@example.org"', "", "owner is missing"),
        ("bins = 256", "bins = 256\nranges = []", "at least one range is needed"),
        ("bins = 256", 'bins = 256\nranges = ["18-22"]', "ranges: a range must be low:high"),
        ("bins = 256", 'bins = 256\nranges = ["22:18"]', "ranges: a range must go from low to high"),
        ("bins = 256", 'bins = 256\nranges = ["60:70"]', "ranges: the range 60:70 contains no whole bin"),
        ("bins = 256", 'bins = 256\nranges = ["0:5"]\nstatistics = "ranges"', "ranges or statistics"),
        (
            "bins = 256",
            'bins = 256\nranges = ["0:5"]\nmechanism = "grr"',
            "omit mechanism and its parameters",
        ),
        ('["24:", "median"]', '["warm"]', "asks: a range must be low:high"),
        ('["24:", "median"]', '["2.5.0%"]', "asks: a range must be low:high"),
        ('["24:", "median"]', '["75 °F:"]', "asks: 75 °F: is in °F, but the unit is °C"),
        ('["24:", "median"]', '["20:75°F"]', "asks: 20:75°F is in °F, but the unit is °C"),
        ('["24:", "median"]', '["24 °F:"]', "asks: 24 °F: is in °F, but the unit is °C"),
        ('["24:", "median"]', '["1,000 °F:"]', "asks: 1,000 °F: is in °F, but the unit is °C"),
        ('["24:", "median"]', '["below 75 °F"]', "asks: below 75 °F is in °F, but the unit is °C"),
        ('["24:", "median"]', '["20k:"]', "asks: 20000: has the limit 20000, but readings are from"),
        ('["24:", "median"]', '["18 to 75"]', "asks: 18 to 75 has the limit 75, but readings are from"),
        (
            '["24:", "median"]',
            '["20:75"]',
            "asks: 20:75 has the limit 75, but readings are from -14 to 50 °C",
        ),
        ('["24:", "median"]', '["100%"]', "asks: a quantile must be between 0 and 100%, not 100%"),
        ('["24:", "median"]', '"median"', 'asks must be a list of texts such as ["24:", "median"]'),
        ("bins = 256", 'bins = 256\nstatistics = "median"', "statistics must be 'ranges'"),
        ("expires = 2027-12-31", 'expires = "soon"', "expires must be a date such as 2027-12-31, not 'soon'"),
        ('"room_temp"', '"Room Temp"', "name must be 1 to 32 of a-z, 0-9, _ and -, not 'Room Temp'"),
        ('"°C"', '"degrees Celsius of the air"', "unit must have 20 characters or fewer"),
        ('owner = "heating@example.org"', 'owner = "a\\u0000b"', "owner: it contains the character \\u0000"),
        ("every = 90", "every = 0", "every must be an integer from 1 to 16777216"),
        ('name = "room_temp"', "name room_temp", "not TOML: Expected '=' after a key"),
        call=lambda old, new: parse(changed(old, new)).payload(),
        error=DefinitionError,
    )
    def test_invalid_definition_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_all_missing_fields_are_in_one_line(self):
        missing = r"^name, purpose, owner, expires, epsilon and budget are missing$"
        with fails(missing, DefinitionError):
            parse('type = "bool"')

    @refusals(
        ('["a", "other"]', "omit it"),
        ("[]", "labels are needed for a choice"),
        ('[]\nmechanism = "grr"', "labels are needed for a choice"),
        call=lambda labels: parse(of_another_type(f'type = "choice"\nlabels = {labels}')),
        error=DefinitionError,
    )
    def test_choice_needs_labels_other_than_other(self, refusal: Refusal):
        refusal.check()

    def test_missing_file_is_one_line(self, tmp_path: Path):
        with fails(r"cannot read .*No such file", DefinitionError):
            load(tmp_path / "none.toml")
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
        with fails("not UTF-8 text", DefinitionError):
            load(tmp_path / "binary.toml")


class TestUnitsOfLimits:
    def test_the_experiments_unit_may_be_written(self):
        asks = '["24 °C:", "18°C : 22 °C", ":-5 °C", "20:24", "median", "90%"]'
        definition = parse(changed('["24:", "median"]', asks))
        assert definition.asks == ("24:", "18:22", ":-5", "20:24", "median", "90%")
        assert definition.description().asked.splitlines()[0] == "24:"
        definition.payload()

    def test_numbers_and_ranges_are_read_as_printed(self):
        asks = '["1,000 W:", "20k:30k W", "1e3:", "below 500 W", "1,000 to 20,000 W", "2k W and above"]'
        text = changed('["24:", "median"]', asks).replace('"°C"', '"W"').replace("high = 50", "high = 50000")
        definition = parse(text)
        expected = ("1000:", "20000:30000", "1e3:", "below 500", "1000 to 20000", "2000 and above")
        assert definition.asks == expected
        definition.payload()

    def test_kelvin_is_not_a_thousand(self):
        text = changed('["24:", "median"]', '["30K:", "−3 K:"]').replace('"°C"', '"K"')
        assert parse(text).asks == ("30:", "-3:")

    def test_wrong_number_before_the_unit_is_named(self):
        with fails("asks: a range must be low:high, such as 20:25 or :0, not 2.4.0:", DefinitionError):
            parse(changed('["24:", "median"]', '["2.4.0 °C:"]')).payload()

    def test_margins_may_write_it_too(self):
        group = 'group = "firmware"\ngroups = ["1", "2"]\nworse_by = {"24 °C:" = 0.02}\n'
        text = changed('["24:", "median"]', '["24 °C:"]').replace("[budget]", f"{group}[budget]")
        definition = parse(text)
        (judged,) = definition.judged(definition.experiment())
        assert (judged.ask.text, judged.margin) == ("24:", 0.02)

    def test_changed_unit_finds_limits_in_the_old_one(self):
        text = changed('["24:", "median"]', '["24 °C:"]').replace('unit = "°C"', 'unit = "°F"')
        with fails("asks: 24 °C: is in °C, but the unit is °F", DefinitionError):
            parse(text)
        with fails("asks: 24 °C: is in °C, but the experiment has no unit", DefinitionError):
            parse(text.replace('unit = "°F"', ""))


class TestDefaults:
    def test_mechanism_depends_on_domain_size(self):
        frequencies = changed('unit = "°C"', 'statistics = "frequencies"')
        assert parse(frequencies).experiment().mechanism == "olh"
        few = frequencies.replace("bins = 256", "bins = 6")
        assert parse(few).experiment().mechanism == "grr"
        assert parse(few.replace("bins = 6", "bins = 2")).experiment().mechanism == "rr"

    def test_a_planned_board_calls_once(self):
        case = '\n[planned]\nof = "mean"\ndevices = 2000\nerror = 0.02\n'
        planned = [parse(ROOM + case + calls).planned for calls in ("", "calls = 24\n")]
        assert [each and each.calls for each in planned] == [1, 24]

    @pytest.mark.slow
    def test_levels_suit_the_requested_statistics(self):
        by_default = levels_drawn(ROOM)
        assert levels_drawn(changed('unit = "°C"', 'statistics = "ranges"')) == by_default
        quantiles = levels_drawn(changed('unit = "°C"', 'statistics = "quantiles"'))
        assert quantiles[1] < by_default[1]
        blocks = levels_drawn(changed('unit = "°C"', 'ranges = [":2", "2:18", "18:"]'))  # 64 bins each
        assert blocks.keys() == {128, 64, 1}
        assert blocks[1] < 0.05
        # A bound between two edges is rounded to the nearest edge, here 18 and 2.
        assert levels_drawn(changed('unit = "°C"', 'ranges = [":1.99", "2.01:18.1", "17.9:"]')) == blocks

    @pytest.mark.slow
    def test_are_valid_on_boards_over_many_domains(self):
        for bins in (2, 3, 17, 100, 1000, 4096):
            for epsilon in ("0.01", "1", "10"):
                text = changed("bins = 256", f"bins = {bins}").replace(
                    "epsilon = 1.0", f"epsilon = {epsilon}"
                )
                text = text.replace("cap = 4.0", "cap = 16")
                assert isinstance(parse(text).experiment(), ldp_client.Experiment)


class TestPayload:
    def test_has_integers_that_a_board_accepts(self):
        fields = json.loads(parse(ROOM).payload())
        experiment = parse(ROOM).experiment()
        assert fields["low"] == -14_000
        assert fields["high"] == 50_000
        assert fields["epsilon"] == 1_000_000
        assert fields["budget"] == {"rule": "sum", "cap": 4_000_000}
        assert experiment.mechanism == "hh"
        assert experiment.domain == 256
        assert set(range(-14, 51)) <= set(bin_edges(experiment).tolist()), "whole degrees are edges of bins"
        assert parse(ROOM).payload() == parse(ROOM).payload()

    def test_keeps_explicit_parameters(self):
        chosen = changed(
            "bins = 256", 'bins = 256\nmechanism = "hh"\nfanout = 16\ncells = [16, 5]\nweights = [1, 3]'
        )
        fields = json.loads(parse(chosen).payload())
        assert fields["fanout"] == 16
        assert fields["cells"] == [16, 5]
        assert fields["weights"] == [1, 3]
        hashed = changed("bins = 256", 'bins = 256\nmechanism = "olh"\ng = 7')
        assert json.loads(parse(hashed).payload())["g"] == 7

    def test_choice_and_bool_have_their_own_domains(self):
        choice = of_another_type('type = "choice"\nlabels = ["ok", "warm", "hot"]')
        assert parse(choice).experiment().domain == 4
        assert parse(of_another_type('type = "bool"')).experiment().mechanism == "rr"

    def test_caps_are_rounded_down(self):
        assert parse(changed("cap = 4.0", "cap = 4.0000009")).experiment().cap == 4_000_000
        squares = changed('rule = "sum"', 'rule = "squares"').replace("cap = 4.0", "cap = 1.8190000000009")
        assert parse(squares).experiment().cap == 1_819_000_000_000

    @pytest.mark.parametrize(
        ("right", "wrong", "text"),
        [
            ("exp.epsilon, 2)", "exp.epsilon, 2)", ""),
            ("exp.epsilon, 2)", "exp.epsilon + 500_000, 2)", "by its law a report has an ε of 1.5, which is"),
            (
                "[np.array([[p, 1 - p]",
                "[np.array([[p, 0 * p]",
                "by its law a report has an ε of inf, which is",
            ),
            (
                "return [np.array(",
                "return [np.nan * np.array(",
                "by its law a report has an ε of nan, which is",
            ),
            ("return [np.array(", "return 1 / 0, [np.array(", "its law raises ZeroDivisionError"),
            ("    def law(", "    def __init__(self, e): 1 / 0\n    def law(", "its constructor raises Zero"),
        ],
    )
    def test_rejects_custom_mechanism_above_its_epsilon(
        self, own_folder: Callable[[str, str], str], right: str, wrong: str, text: str
    ):
        assert COIN.count(right) == 1
        name = "own_" + re.sub(r"\W", "", wrong)
        word = own_folder(name, COIN.replace(right, wrong) + f'\nregister("{name}")\n')
        door = (ROOM_FILE.parent / "door_open.toml").read_text()
        definition = parse(re.sub(r"epsilon = .*", f'epsilon = 1\nmechanism = "{word}"', door, count=1))
        if not text:
            assert json.loads(definition.payload())["mechanism"] == word
            return
        with fails(re.escape(text), DefinitionError):
            definition.payload()


CRASHED = ROOM_FILE.with_name("board_crash.toml").read_text()


class TestGroup:
    def test_is_published_with_each_values_rate(self):
        exp = parse(CRASHED).experiment()
        assert (exp.group, exp.groups, exp.every) == ("firmware", ("2.3.1", "2.4.0"), 130)
        assert [exp.every_of(i) for i in range(3)] == [130, 1, 130]

    def test_a_number_is_every_values_rate(self):
        text = re.sub(r"every = .*", "every = 7", CRASHED)
        fields = json.loads(parse(text).payload())
        assert (fields["every"], fields["group"], fields["groups"]) == (7, "firmware", ["2.3.1", "2.4.0"])

    def test_is_absent_from_the_payload_by_default(self):
        assert not {"group", "groups"} & set(json.loads(parse(ROOM).payload()))

    @refusals(
        ('group = "firmware"', 'group = "Firmware"', "group must be 1 to 32 of a-z, 0-9, _ and -"),
        ('group = "firmware"', 'group = ["a", "b"]', "group must be a text, not a list"),
        ('group = "firmware"', "", 'groups need the name of their group, such as group = "firmware"'),
        ('groups = ["2.3.1", "2.4.0"]', "", "groups must list 1 to 15 values of the group firmware, not 0"),
        ('["2.3.1", "2.4.0"]', str([str(i) for i in range(16)]), "groups must list 1 to 15 values of the"),
        ('["2.3.1", "2.4.0"]', '"2.4.0"', 'groups must be a list of texts such as ["2.3.1", "2.4.0"]'),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "2.4.0"]', "groups: 2.4.0 is listed twice"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "other"]', "groups: other is always added as the last value: omit"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", ""]', "groups: '' must have 1 to 32 bytes in UTF-8, not 0"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "a\\u0308"]', "is not in the Unicode form NFC"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "a\\u200b"]', "contains U+200B (zero width space), which nobody"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "a\\u00ad"]', "contains U+00AD (soft hyphen), which nobody sees"),
        ('["2.3.1", "2.4.0"]', '["2.4.0", "2\\u202e"]', "contains U+202E (right-to-left override)"),
        ('["2.3.1", "2.4.0"]', f'["2.4.0", "{"ä" * 17}"]', "must have 1 to 32 bytes in UTF-8, not 34"),
        ('"2.4.0" = 1', '"2.5.0" = 1', "every: '2.5.0' is not one of groups: list it there, or omit it"),
        ('"2.4.0" = 1', "2.4.0 = 1", "every: put a group value with points into quotes, as in"),
        ('"2.4.0" = 1', '"2.4.0" = 0', "every.2.4.0 must be 1 or more, not 0"),
        ('"2.4.0" = 1', '"2.4.0" = "x"', "every.2.4.0 must be a whole number, not 'x'"),
        (", other = 130", "", "every needs a number for other, which covers all values without one"),
        ('{"2.4.0" = 1, other = 130}', '"often"', "every must be a whole number, not 'often'"),
        call=lambda old, new: parse(CRASHED.replace(old, new)).payload(),
        error=DefinitionError,
    )
    def test_mistake_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_table_needs_a_group(self):
        text = CRASHED.replace('group = "firmware"', "").replace('groups = ["2.3.1", "2.4.0"]', "")
        with pytest.raises(DefinitionError, match=r"^every must be a whole number: only a group"):
            parse(text)


class TestMissing:
    BOOL = of_another_type('type = "bool"')

    @pytest.mark.parametrize(
        ("fields", "mechanism", "domain"),
        [
            ('type = "bool"', "grr", 3),
            ('type = "choice"\nlabels = ["a", "b"]', "grr", 4),
            ('type = "number"\nlow = 0\nhigh = 63\nbins = 63', "hh", 64),
        ],
    )
    def test_adds_one_index(self, fields: str, mechanism: str, domain: int):
        definition = parse(of_another_type(f"{fields}\nmissing = true"))
        experiment = definition.experiment()
        assert json.loads(definition.payload())["missing"] == 1
        assert (definition.domain, experiment.domain, experiment.missing) == (domain, domain, domain - 1)
        assert experiment.mechanism == mechanism

    def test_is_omitted_from_the_payload_by_default(self):
        assert "missing" not in json.loads(parse(self.BOOL).payload())
        assert (
            parse(of_another_type('type = "bool"\nmissing = false')).payload() == parse(self.BOOL).payload()
        )

    def test_keeps_units(self):
        experiment = parse(of_another_type('type = "number"\nlow = 0\nhigh = 8\nbins = 4\nmissing = true'))
        assert bin_edges(experiment.experiment()).tolist() == [0, 2, 4, 6, 8]
        assert index_names(experiment.experiment())[-1] == "6 and above"

    def test_uses_a_tree_if_a_mean_is_requested(self):
        number = 'type = "number"\nlow = 0\nhigh = 63\nbins = 63\nstatistics = "mean"'
        assert parse(of_another_type(number)).experiment().mechanism == "sw"
        assert parse(of_another_type(f"{number}\nmissing = true")).experiment().mechanism == "hh"

    def test_belongs_to_a_part_of_a_pair(self):
        parts = '[[of]]\nname = "a"\ntype = "bool"\nmissing = true\n[[of]]\nname = "b"\ntype = "bool"\n'
        definition = parse(of_another_type('type = "pair"') + parts)
        assert definition.shape == (3, 2)
        assert [part.get("missing") for part in json.loads(definition.payload())["of"]] == [1, None]

    @refusals(
        ('type = "bool"\nmissing = 1', "missing must be true or false, not 1"),
        ('type = "text"\nmissing = true', "a text does not support missing, as it is hashed"),
        ('type = "bool"\nmissing = true\nmechanism = "rr"', "mechanism rr supports only two values"),
        (
            'type = "number"\nlow = 0\nhigh = 8\nbins = 8\nmissing = true\nmechanism = "sw"\nreach = 2',
            "mechanism sw does not support missing readings",
        ),
        (
            'type = "choice"\nlabels = ["no reading"]\nmissing = true',
            "the label no reading is added by missing",
        ),
        call=lambda fields: parse(of_another_type(fields)).payload(),
        error=DefinitionError,
    )
    def test_is_rejected_with_a_reason(self, refusal: Refusal):
        refusal.check()


class TestTypedNumbers:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("low = -14 ", 'low = "−14" '),
            ("every = 90 ", 'every = "90" '),
            ("bins = 256", 'bins = "256"'),
            ('keep = "400d"', 'keep = "400 days"'),
            ("epsilon = 1.0 ", 'epsilon = "10^0" '),
        ],
    )
    def test_are_read_as_printed(self, old: str, new: str):
        assert parse(changed(old, new)) == parse(ROOM)

    @pytest.mark.parametrize(
        ("old", "new", "hint"),
        [
            ("every = 90 ", "every = 1,000 ", "write a number without commas, such as 100000 or 100_000"),
            ("every = 90 ", "every = 20k ", "write a number in full, such as 20_000"),
            ("every = 90 ", "every = 100.000 ", "not 100.000: write 100 or 100000"),
            ("low = -14 ", "low = −14 ", "write a minus sign as -"),
            ("high = 50", "high = 5%", "write a share as a number, such as 0.05"),
        ],
    )
    def test_get_a_hint_if_they_are_not_toml(self, old: str, new: str, hint: str):
        with fails(re.escape(hint), DefinitionError):
            parse(changed(old, new))
