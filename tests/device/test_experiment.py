"""Experiment.parse and bucket: invalid experiments are refused with a reason, and no reading is lost.

test_vectors.py runs the same client on vectors.json's refused experiments and its readings and indices.
"""

import hashlib
import json
import math
import os
from fractions import Fraction

import pytest
from enumeration import distribution
from experiments import experiment_json
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused, LDPError

# An experiment's exact bytes as sent to boards.
ROOM_TEMP = (
    b'{"v":1, "name":"room_temp", "type":"number", "low":-20000, "high":50000, "bins":256,\n'
    b' "mechanism":"hh", "fanout":4, "cells":[4,3,3,3], "epsilon":1000000, "every":90,\n'
    b' "budget":{"rule":"sum","cap":4000000}, "window":"day"}'
).replace(b"\n", b"")

MANY = 8 if os.environ.get("LONG") else 1
NOT_PLAIN = "must be UTF-8 without backslashes or control characters"

NUMBER = {"type": "number", "low": -20_000, "high": 50_000, "bins": 256, "mechanism": "grr"}
OLH = {**NUMBER, "mechanism": "olh", "g": 3}
HH = {**NUMBER, "mechanism": "hh", "fanout": 4, "cells": [4, 3, 3, 3]}
CHOICE = {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"}


def parse(**changes):
    return Experiment.parse(experiment_json(**changes))


def refusal(payload):
    with pytest.raises(ExperimentRefused) as caught:
        Experiment.parse(payload.encode() if isinstance(payload, str) else payload)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    assert isinstance(caught.value, LDPError)
    return text


class TestDigest:
    def test_is_the_same_for_any_bytes_type(self):
        assert Experiment.parse(memoryview(ROOM_TEMP)).digest == Experiment.parse(ROOM_TEMP).digest
        assert Experiment.parse(bytearray(ROOM_TEMP)).digest == Experiment.parse(ROOM_TEMP).digest

    def test_changes_with_an_added_space(self):
        assert Experiment.parse(ROOM_TEMP + b" ").digest != Experiment.parse(ROOM_TEMP).digest


INTEGER_FIELDS = [
    # field, the experiment around it, minimum, maximum
    ("v", {}, 1, 1),
    ("epsilon", {}, 1_000, 16_000_000),
    ("every", {}, 1, 2**24),
    ("low", NUMBER, -(2**40), 49_999),
    ("high", NUMBER, -19_999, 2**40),
    ("bins", NUMBER, 2, 2**24),
    ("g", OLH, 2, 251),  # the largest prime below 256
]
NOT_INTEGERS = [1.0, 2.5, True, False, "1", [], {}, [1], 1e300, -0.0]


class TestDerivedNumbers:
    def test_match_the_design_example(self):
        exp = Experiment.parse(ROOM_TEMP)
        assert (exp.name, exp.type, exp.low, exp.high, exp.labels) == (
            "room_temp",
            "number",
            -20_000,
            50_000,
            (),
        )
        assert (exp.domain, exp.mechanism, exp.fanout) == (256, "hh", 4)
        assert (exp.epsilon, exp.every, exp.rule, exp.cap, exp.window) == (
            1_000_000,
            90,
            "sum",
            4_000_000,
            "day",
        )
        assert exp.sha256 == hashlib.sha256(ROOM_TEMP).digest()
        assert exp.digest == exp.sha256[:4]
        columns = ("domain", "g", "t", "width", "seeds", "code_count", "offset", "weight")
        assert [tuple(getattr(level, c) for c in columns) for level in exp.levels] == [
            (4, 4, 0, 64, 1, 4, 0, 1),  # answered directly
            (16, 3, 3, 16, 26, 78, 4, 1),  # 3**3 >= 16
            (64, 3, 4, 4, 80, 240, 82, 1),  # 3**4 >= 64
            (256, 3, 6, 1, 728, 2184, 322, 1),  # 3**6 >= 256 > 3**5
        ]
        assert (exp.weight_sum, exp.code_count, exp.code_bytes) == (4, 2506, 2)
        for level in exp.levels:
            assert level.threshold == int(ONE * math.e / (math.e + level.g - 1))

    @pytest.mark.parametrize(("bins", "code_bytes"), [(2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 3)])
    def test_code_uses_fewest_whole_bytes(self, bins, code_bytes):
        assert parse(**{**NUMBER, "bins": bins, "epsilon": 16_000_000}).code_bytes == code_bytes

    def test_levels_are_drawn_by_weight(self):
        exp = parse(**{**HH, "bins": 27, "fanout": 3, "cells": [3, 2, 2]}, weights=[2, 3, 1])
        chances = distribution(lambda rng: ldp_client.pick(exp, rng).weight)
        assert chances == {2: Fraction(1, 3), 3: Fraction(1, 2), 1: Fraction(1, 6)}

    @pytest.mark.parametrize(
        ("domain", "fanout", "height"),
        [(125, 5, 3), (126, 5, 4), (2097152, 8, 7), (2, 2, 1), (9, 9, 1), (3, 2, 2)],
    )
    def test_level_count_is_minimal_for_domain(self, domain, fanout, height):
        widths = [fanout ** (height - 1 - i) for i in range(height)]
        nodes = [-(-domain // w) for w in widths]
        cells = [n if n < 4 else 3 for n in nodes]
        if domain == 2097152:
            cells[-1] = 131  # 131**3 >= 8**7, and 3 codes of 131 cells stay within 2**24 at no smaller level
            with pytest.raises(ExperimentRefused):
                parse(**{**HH, "bins": domain, "fanout": fanout, "cells": cells})
            cells[-1] = 2  # 2**21 seeds of two cells
        exp = parse(**{**HH, "bins": domain, "fanout": fanout, "cells": cells, "epsilon": 8_000_000})
        assert [(level.domain, level.width) for level in exp.levels] == list(zip(nodes, widths, strict=True))
        for bad_cells in (cells[:-1], [2, *cells]):
            text = refusal(experiment_json(**{**HH, "bins": domain, "fanout": fanout, "cells": bad_cells}))
            assert text == f"cells must be a list of {height} integers from 2 to 16777216"

    def test_cost_of_a_report_follows_its_rule(self):
        caps = {"sum": 2_000_000, "squares": 4 * 10**12, "count": 1}
        for rule, cost in caps.items():
            assert parse(epsilon=2_000_000, budget={"rule": rule, "cap": 2**54 - 1}).cost() == cost
        assert parse(budget={"rule": "unlimited"}).cap == 0


RR = experiment_json()


def strict_loads(text):
    """Parse JSON with the standard library, rejecting constants that are not in RFC 8259."""

    def no_constant(name):
        raise ValueError(name)

    return json.loads(text, parse_constant=no_constant)


class TestJson:
    @pytest.mark.parametrize(
        "payload",
        [
            b" ",
            b"{",
            b"{,}",
            b"[" * 1000,
            b"[" * 500 + b"]" * 500,
            b"truefalse",
            b"[{}]",
            RR[1:],
            RR[:-1],
            RR + b"}",
            RR + b"{}",
            RR + b",",
            RR.replace(b",", b"", 1),
            RR.replace(b",", b" ", 1),
            RR.replace(b",", b",,", 1),
            RR.replace(b":", b"", 1),
            RR.replace(b":", b"::", 1),
            RR.replace(b":", b",", 1),
            RR[:-1] + b",}",
            RR[:-1] + b"]",
            b"[" + RR[1:],
            RR[:-1] + b', "x"}',
            RR[:-1] + b", 5: 6}",
            RR[:-1] + b", null: 6}",
            RR[:-1] + b", []: 6}",
            RR[:-1] + b', "every": -}',
            RR[:-1] + b', "every": }',
            RR.replace(b'"cap"', b"7"),
            RR.replace(b'"e"', b'"e'),
        ],
        ids=[
            "space",
            "brace",
            "comma alone",
            "1000 open brackets",
            "500 nested lists",
            "two literals",
            "list of object",
            "no opening brace",
            "no closing brace",
            "two closing braces",
            "second object",
            "comma at end",
            "missing comma",
            "space for comma",
            "two commas",
            "missing colon",
            "two colons",
            "comma for colon",
            "trailing comma",
            "bracket for closing brace",
            "bracket for opening brace",
            "key without value",
            "integer key",
            "null key",
            "list key",
            "minus alone",
            "no value",
            "integer for nested key",
            "unclosed string",
        ],
    )
    def test_rejects_payload_other_than_a_single_object(self, payload):
        assert refusal(payload) == "not a JSON object"

    @pytest.mark.parametrize("token", ["02", "00", "-01", "+1", "0x1", "1.", ".5", "None", "nan", "1-2"])
    def test_rejects_invalid_numbers(self, token):
        refusal(experiment_json(every=987_654).replace(b"987654", token.encode()))

    def test_rejects_deep_nesting(self):
        for deep in (b"[" * 300 + b"]" * 300, b'{"a":' * 120 + b"1" + b"}" * 120, b"[" * 900):
            refusal(experiment_json(v=987_654).replace(b"987654", deep))
            refusal(experiment_json(x=987_654).replace(b"987654", deep))
            refusal(deep)

    @pytest.mark.slow
    @settings(max_examples=250 * MANY)
    @given(
        st.sampled_from([RR, ROOM_TEMP, experiment_json(**CHOICE), experiment_json(**OLH, every=7)]),
        st.lists(
            st.tuples(
                st.integers(0, 400),
                st.integers(0, 3),
                st.sampled_from(
                    ["", " ", ",", ":", '"', "{", "}", "[", "]", "0", "1", "-", ".", "e", "null", "a"]
                ),
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def test_never_accepts_invalid_text(self, payload, edits):
        text = payload.decode()
        for at, length, new in edits:
            text = text[: at % len(text)] + new + text[at % len(text) + length :]
        try:
            exp = Experiment.parse(text.encode())
        except ExperimentRefused:
            return
        fields = strict_loads(text)
        assert exp.name == fields["name"]
        assert exp.type == fields["type"]
        assert exp.epsilon == fields["epsilon"]
        assert exp.every == fields.get("every", 1)
        assert list(exp.labels) == fields.get("labels", [])
        assert (exp.low, exp.high) == (fields.get("low", 0), fields.get("high", 0))
        assert {"rule": exp.rule, "cap": exp.cap} == fields["budget"]

    @settings(max_examples=50)
    @given(
        st.permutations(list(json.loads(ROOM_TEMP).items())),
        st.sampled_from([(",", ":"), (" ,  ", " : "), (", ", ":")]),
    )
    def test_ignores_order_and_spaces(self, items, separators):
        exp = Experiment.parse(b" " + json.dumps(dict(items), separators=separators).encode() + b"  ")
        assert exp.code_count == 2506

    def test_rejects_payload_cut_at_any_byte(self):
        for cut in range(len(ROOM_TEMP)):
            refusal(ROOM_TEMP[:cut])

    def test_rejects_bytes_that_are_not_text(self):
        for byte in (*range(32), 92, *range(127, 256)):
            payload = ROOM_TEMP.replace(b" ", bytes([byte]), 1)
            assert refusal(payload) == NOT_PLAIN

    def test_accepts_every_character_but_controls(self):
        controls = {*range(32), 0x5C, *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F)}
        controls |= {*range(0x2066, 0x206A), *range(0xD800, 0xE000), 0xFEFF, 0xFFFD}
        for point in (*range(0x3100), *range(0xD700, 0xE100), *range(0xFE00, 0x10100), 0x1F600, 0x10FFFF):
            encoded = chr(point).encode(errors="surrogatepass")
            assert ldp_client.is_plain(b"a" + encoded + b"z") == (point not in controls), hex(point)

    @settings(max_examples=400 * MANY)
    @given(st.binary(max_size=8))
    def test_accepts_only_strict_utf8(self, data):
        try:
            data.decode()
        except UnicodeDecodeError:
            assert not ldp_client.is_plain(data)

    def test_accepts_1024_bytes_but_not_1025(self):
        assert Experiment.parse(ROOM_TEMP + b" " * (1024 - len(ROOM_TEMP))).name == "room_temp"
        assert refusal(ROOM_TEMP + b" " * (1025 - len(ROOM_TEMP))) == "larger than 1024 bytes"

    @settings(max_examples=40 * MANY)
    @given(st.binary(max_size=1100))
    def test_rejects_random_bytes_in_one_line(self, payload):
        refusal(payload)


JSON_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


class TestFields:
    @pytest.mark.parametrize(
        ("field", "around", "minimum", "maximum"), INTEGER_FIELDS, ids=[field for field, *_ in INTEGER_FIELDS]
    )
    def test_accepts_integers_only_in_their_range(self, field, around, minimum, maximum):
        safe = {"epsilon": 8_000_000} if field != "epsilon" else {}
        for value in (minimum, maximum):
            parse(**{**safe, **around, field: value})
        for value in (minimum - 1, maximum + 1, -(10**30), 10**30, *NOT_INTEGERS):
            text = refusal(experiment_json(**{**safe, **around, field: value}))
            assert field in text or "low must be less" in text or f"cells: {value} must be" in text

    @pytest.mark.parametrize(
        ("field", "around", "minimum", "maximum"), INTEGER_FIELDS, ids=[field for field, *_ in INTEGER_FIELDS]
    )
    def test_rejects_nan_infinity_and_floats(self, field, around, minimum, maximum):
        for token in (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"1E0", b"10.0", b"-2e12", b"9" * 300):
            payload = experiment_json(**{**around, field: 987_654}).replace(b"987654", token)
            assert token in payload
            refusal(payload)

    def test_treats_null_as_missing(self):
        assert refusal(experiment_json().replace(b'"e"', b"null")) == "name is missing"

    @pytest.mark.parametrize("name", ["a", "a" * 32, "0_-z", "-", "_"])
    def test_accepts_names_of_1_to_32_characters(self, name):
        assert parse(name=name).name == name

    @pytest.mark.parametrize(
        "labels",
        [[], ["a", "a"], "ab", [1], [""], ["a" * 65], ["a", None], [["a"]], {"a": 1}, ["a", {}], 3, [True]],
        ids=[
            "empty",
            "equal",
            "string",
            "integer",
            "empty label",
            "65 characters",
            "null",
            "nested list",
            "object",
            "object in list",
            "number",
            "boolean",
        ],
    )
    def test_requires_distinct_strings_as_labels(self, labels):
        text = refusal(experiment_json(**{**CHOICE, "labels": labels}))
        assert text == "labels must differ and have 1 to 64 bytes"

    def test_accepts_only_primes_up_to_256_as_g(self):
        # Above 256 every hash has at least two digits and so more than 2**24 codes.
        composite = {i * j for i in range(2, 17) for j in range(i, 256 // i + 1)}
        for g in range(2, 257):
            payload = experiment_json(**{**OLH, "bins": 2000, "g": g, "epsilon": 8_000_000})
            if g in composite:
                assert refusal(payload) == f"cells: {g} must be 2000 or a prime below it"
            else:
                assert Experiment.parse(payload).levels[0].g == g

    def test_accepts_exactly_2_to_the_24_codes(self):
        assert parse(**{**NUMBER, "bins": 2**24, "epsilon": 8_000_000}).code_count == 2**24

    @pytest.mark.slow
    @settings(max_examples=100 * MANY)
    @given(
        st.sampled_from([{}, CHOICE, NUMBER, OLH, HH]),
        st.sampled_from(
            ["v", "name", "type", "labels", "low", "high", "bins", "mechanism", "g", "fanout", "cells"]
        )
        | st.sampled_from(["weights", "epsilon", "every", "budget", "window", "x"]),
        JSON_VALUES,
    )
    def test_any_value_is_accepted_or_refused_with_reason(self, around, field, value):
        payload = json.loads(experiment_json(**around))
        payload[field] = value
        try:
            exp = Experiment.parse(json.dumps(payload).encode())
        except ExperimentRefused:
            refusal(json.dumps(payload))
        else:
            assert 2 <= exp.code_count <= 2**24
            assert all(level.threshold * level.g > ONE for level in exp.levels)


class TestBucket:
    def test_edge_belongs_to_upper_bin(self):
        exp = parse(**{**NUMBER, "low": 0, "high": 8_000, "bins": 8})
        for edge in range(1, 8):
            assert exp.bucket(edge) == exp.bucket(float(edge)) == edge
            assert exp.bucket(edge - 0.001) == edge - 1
            assert exp.bucket(edge - 0.0001) == edge, "rounded to the nearest milli-unit first"

    @pytest.mark.slow
    @settings(max_examples=300)
    @given(
        st.integers(-(2**40), 2**40 - 1),
        st.integers(1, 2**40),
        st.integers(2, 2**24),
        st.floats(allow_nan=False) | st.integers(),
    )
    def test_stays_in_domain_and_is_monotonic(self, low, span, bins, value):
        high = min(low + span, 2**40)
        exp = parse(**{**NUMBER, "low": low, "high": high, "bins": bins, "epsilon": 16_000_000})
        index = exp.bucket(value)
        assert type(index) is int
        assert 0 <= index < bins
        if isinstance(value, int) or abs(value) < 1e9:
            milli = Fraction(value) * 1000
            # Half a milli-unit and double precision.
            slack = Fraction(3, 4) if isinstance(value, float) else 0
            ideal = [min(max((milli - low + s) * bins / (high - low), 0), bins - 1) for s in (-slack, slack)]
            assert math.floor(ideal[0]) <= index <= math.floor(ideal[1])

    @pytest.mark.parametrize(
        ("around", "values", "want"),
        [
            ({}, ["True", b"1", 1.0, 0.0, math.inf, [1], (), {}, object()], "e must be a bool or None"),
            (CHOICE, [b"a", 0, True, 1.5, math.inf, ["a"], object()], "e must be a choice or None"),
            (NUMBER, ["21.4", b"21", True, False, [21], 1j, object()], "e must be a number or None"),
        ],
        ids=["bool", "choice", "number"],
    )
    def test_raises_type_error_for_wrong_type(self, around, values, want):
        exp = parse(**around)
        for value in values:
            with pytest.raises(TypeError) as caught:
                exp.bucket(value)
            assert str(caught.value) == want


class TestErrors:
    def test_have_a_common_base_class(self):
        errors = [e for e in vars(ldp_client).values() if isinstance(e, type) and issubclass(e, Exception)]
        assert len(errors) >= 6
        assert all(issubclass(e, LDPError) for e in errors)


class TestMissing:
    @pytest.mark.parametrize("value", [None, math.nan, -math.nan], ids=["none", "nan", "negative nan"])
    @pytest.mark.parametrize(
        ("around", "domain"),
        [
            ({"mechanism": "grr"}, 3),
            (CHOICE, 4),
            (NUMBER, 257),
            (NUMBER | {"mechanism": "pgr", "q": 17}, 257),
        ],
        ids=["bool", "choice", "number", "pgr"],
    )
    def test_is_last_index(self, around, domain, value):
        exp = parse(**around, missing=1)
        assert (exp.domain, exp.missing) == (domain, domain - 1)
        assert exp.bucket(value) == domain - 1

    def test_leaves_other_indices_unchanged(self):
        with_it, without = parse(**NUMBER, missing=1), parse(**NUMBER)
        for value in (-math.inf, -20, -19.9, 0, 21.4, 49.9, 50, math.inf, 10**30):
            assert with_it.bucket(value) == without.bucket(value)
        choice = parse(**CHOICE, missing=1)
        assert [choice.bucket(label) for label in ("a", "b", "not listed")] == [0, 1, 2]

    def test_is_off_by_default(self):
        exp = parse()
        assert (exp.domain, exp.missing, exp.bucket(None)) == (2, None, None)

    @pytest.mark.parametrize(
        "value",
        [0, 2, -1, True, False, "1", 1.0, [1]],
        ids=["0", "2", "-1", "true", "false", "string", "float", "list"],
    )
    def test_refuses_any_value_but_1(self, value):
        text = refusal(experiment_json(mechanism="grr", missing=value))
        assert text == "missing must be an integer from 1 to 1"

    @pytest.mark.parametrize(
        ("around", "text"),
        [
            ({}, "rr requires two values"),
            (NUMBER | {"mechanism": "sw", "reach": 3}, "sw does not support missing readings"),
            (
                {"type": "text", "salt": "s", "slots": 8, "mechanism": "grr"},
                "a text does not support missing readings",
            ),
        ],
        ids=["rr", "sw", "text"],
    )
    def test_is_refused_where_it_does_not_apply(self, around, text):
        assert refusal(experiment_json(**around, missing=1)) == text

    def test_draws_as_often_as_any_reading(self):
        class Counter:
            draws = 0

            def bernoulli(self, threshold):
                self.draws += 1
                return True

            def below(self, n):
                self.draws += 1
                return 0

        exp = parse(**HH | {"bins": 255}, missing=1)
        counts = set()
        for value in (None, math.nan, -20, 50.0):
            rng = Counter()
            exp.randomize(exp.bucket(value), rng)
            counts.add(rng.draws)
        assert counts == {
            3
        }  # draws: the level, truth or lie, and another cell; the top level is answered directly
