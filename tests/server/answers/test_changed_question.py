"""Answers after a question has changed: a label added, renamed or reordered, a range widened, another ε.

Each statistical test uses a fixed seed and allows 5 standard errors, so correct code fails less than once in
a million draws.
"""

import csv
import datetime
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_kinds import FOUND, put
from experiments import experiment_json
from filled_store import fill, write
from matplotlib.container import ErrorbarContainer
from refusals import fails
from sqlalchemy import update

from hushmote.fleet.results.result import result_of
from hushmote.server.answers.answer import Answer
from hushmote.server.answers.ask import Reply, ask
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts, NotShown
from hushmote.server.answers.question import Question, Selection
from hushmote.server.answers.rows import TrendRow
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.answers.tables import trend_table
from hushmote.server.errors import UsageError
from hushmote.server.estimate.statistic import DoesNotFit, TooFewReports
from hushmote.server.experiments.answerable import UnanswerableError
from hushmote.server.mechanisms.common_values import common_views, same_values
from hushmote.server.store import Store, schema
from hushmote.server.wire.experiments import parse_experiment

OLD, NEW = ("2026-11-20", "2026-11-21"), ("2026-11-22", "2026-11-23")
NOON = datetime.datetime(2026, 11, 24, 12, tzinfo=datetime.UTC)
SHARES = {"heat": 0.5, "cool": 0.3, "dry": 0.15, "other": 0.05}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        yield opened


def modes(labels: str, **fields: Any) -> bytes:
    design = {"mechanism": "grr", "epsilon": 2_000_000} | fields
    return experiment_json(name="mode", type="choice", labels=labels.split(), **design)


def fill_modes(store: Store, labels: str, windows: dict[str, int], seed: int = 1, **fields: Any) -> str:
    """Fill windows with the population SHARES as these labels count it; return the version's digest."""
    named = [SHARES.get(name, 0.0) for name in labels.split()]
    shares = [*named, 1 - sum(named)]
    return fill(store, "home", modes(labels, **fields), windows, shares, seed=seed).digest.hex()


def temps(low: int, high: int, bins: int, **fields: Any) -> bytes:
    design = {"mechanism": "grr", "epsilon": 3_000_000} | fields
    return experiment_json(name="temp", type="number", low=low * 1000, high=high * 1000, bins=bins, **design)


def fill_temps(
    store: Store, windows: dict[str, int], low: int, high: int, bins: int, seed: int = 1, **fields: Any
) -> str:
    """Fill windows with readings that are normal around 16 ± 8; return the version's digest."""
    edges = [-math.inf, *np.linspace(low, high, bins + 1)[1:-1], math.inf]
    below = [0.5 * (1 + math.erf((edge - 16) / 8 / math.sqrt(2))) for edge in edges]
    payload = temps(low, high, bins, **fields)
    return fill(store, "home", payload, windows, np.diff(below), "°C", seed).digest.hex()


def answer(store: Store, name: str = "mode", **options: Any) -> Reply:
    fields: dict[str, Any] = {"windows": (*OLD, *NEW)} | options
    return ask(Facts(store, NOON), Question(experiment=name, fleet="home", **fields))


def points(table: Answer) -> list[tuple[str, str]]:
    """Return the names and windows of a trend's rows."""
    return [(row.name, row.window) for row in table.rows if isinstance(row, TrendRow)]


def rows(reply: Reply, kind: str = "histogram") -> dict[str, Any]:
    (table,) = (table for table in reply.answers if table.kind == kind)
    return {row.name: row for row in table.rows}


def check_shares(reply: Reply, shares: dict[str, float]) -> None:
    estimates = rows(reply)
    assert list(estimates) == list(shares)
    for name, share in shares.items():
        assert abs(estimates[name].value - share) < 5 * estimates[name].statistic.stderr


class TestFinding:
    def test_names_a_question_that_the_version_cannot_answer(self, store: Store):
        fill_modes(store, "heat cool", dict.fromkeys(OLD, 2000))
        fill(store, "home", modes("heat cool dry"), {NEW[0]: 1}, asked="dry\nheat")
        lines = find(Facts(store, NOON), Selection("mode", "home")).lines
        assert lines[0].startswith("Heat: ")
        assert lines[1] == "Dry: mode has no label dry; it has heat, cool, other."


class TestAddedLabel:
    @pytest.fixture
    def digests(self, store: Store) -> tuple[str, str]:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        return old, fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)

    def test_newest_version_answers(self, store: Store, digests: tuple[str, str]) -> None:
        reply = answer(store)
        check_shares(reply, SHARES)
        assert reply.estimate.reports == 6_000
        note = (
            "8,000 reports of another version without 'dry' left out "
            f"(version={digests[0][:4]}); version=all pools the values in common."
        )
        assert reply.left_out == note
        assert reply.headline.endswith(note)
        assert reply.to_dict()["left_out"] == note
        assert note in str(reply.estimate._title())

    def test_all_versions_pool_by_name(self, store: Store, digests: tuple[str, str]) -> None:
        reply = answer(store, version="all")
        check_shares(reply, {"heat": 0.5, "cool": 0.3, "other": 0.2})
        assert (reply.estimate.reports, reply.left_out) == (14_000, "")
        alone = [rows(answer(store, windows=(), version=digest)) for digest in digests]
        for name in ("heat", "cool"):
            old, new = (each[name] for each in alone)
            row = rows(reply)[name]
            assert row.value == pytest.approx((8 * old.value + 6 * new.value) / 14)
            stderr = math.hypot(8 * old.statistic.stderr, 6 * new.statistic.stderr) / 14
            assert row.statistic.stderr == pytest.approx(stderr, rel=0.01)

    def test_finding_reports_no_change(self, store: Store, digests: tuple[str, str]) -> None:
        findings = find(Facts(store, NOON), Selection("mode", "home"))
        assert findings.enough
        assert re.match(r"Heat is most common: .*, 22 to 23 Nov( 2026)?\.", findings.lines[0])
        assert "8,000 reports of another version without 'dry' left out" in findings.lines[-1]
        assert all(finding.change is None for finding in findings.findings)

    def test_older_version_answers_until_there_are_reports(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        new = fill_modes(store, "heat cool dry", {NEW[0]: 1})
        assert old != new
        reply = answer(store, windows=(*OLD, NEW[0]))
        check_shares(reply, {"heat": 0.5, "cool": 0.3, "other": 0.2})
        text = f"The newest version has too few reports, so this is version {old[:4]}"
        assert reply.left_out.startswith(text)


class TestChosenVersion:
    def test_may_be_typed_in_either_case(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)
        assert answer(store, windows=(), version=old[:4].upper()).estimate.reports == 8_000
        assert answer(store, version="ALL").estimate.reports == 14_000
        reply = answer(store, windows=NEW, against=(f"version={old.upper()}", *OLD))
        assert [row.name for row in reply.answers[0].rows] == ["heat", "cool"]

    def test_ambiguous_digits_are_refused(self, store: Store) -> None:
        digests = [
            fill_modes(store, "heat cool", {OLD[0]: 10}, epsilon=1_000_000 + step * 1_000)
            for step in range(17)
        ]
        first = [digest[0] for digest in digests]
        digit = next(digit for digit in first if first.count(digit) > 1)
        count = first.count(digit)
        with fails(
            f"mode has {count} versions that start with {digit}: {digit}.*, {digit}.*; write more digits",
            UsageError,
        ):
            answer(store, windows=(), version=digit)


class TestOtherChanges:
    def test_renamed_label_is_not_pooled(self, store: Store) -> None:
        fill_modes(store, "warm cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool", dict.fromkeys(NEW, 3_000), 2)
        check_shares(answer(store), {"heat": 0.5, "cool": 0.3, "other": 0.2})
        assert "another version with 'warm' instead of 'heat' left out" in answer(store).left_out
        check_shares(answer(store, version="all"), {"cool": 0.3, "other": 0.7})

    @pytest.mark.parametrize("design", [{}, {"mechanism": "olh", "g": 3}], ids=["grr", "olh"])
    def test_reordered_labels_are_pooled(self, store: Store, design: dict[str, Any]) -> None:
        fill_modes(store, "cool dry heat", dict.fromkeys(OLD, 9_000), **design)
        fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 9_000), 2, **design)
        reply = answer(store, ranges=("cool",))
        check_shares(reply, SHARES)
        assert (reply.estimate.reports, reply.left_out) == (36_000, "")
        assert rows(reply, "ranges")["cool"].value == pytest.approx(rows(reply)["cool"].value)

    def test_other_epsilon_is_pooled(self, store: Store) -> None:
        fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000), epsilon=1_000_000)
        fill_modes(store, "heat cool", dict.fromkeys(NEW, 3_000), 2)
        by_reports, by_variance = answer(store), answer(store, weigh="variance")
        assert (by_reports.estimate.reports, by_reports.left_out) == (14_000, "")
        errors = [rows(reply)["heat"].statistic.stderr for reply in (by_reports, by_variance)]
        assert errors[1] < errors[0]

    def test_versions_without_common_values_do_not_fit(self, store: Store) -> None:
        fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "eco boost", dict.fromkeys(NEW, 3_000), 2)
        assert "version=all" not in answer(store).left_out
        with fails("the versions of mode have no values in common; choose one with", DoesNotFit):
            answer(store, version="all")

    def test_versions_without_common_answers_do_not_fit(self, store: Store) -> None:
        """Means alone, over bins of different widths, have nothing in common."""
        fill_temps(store, dict.fromkeys(OLD, 4_000), 0, 40, 10, mechanism="sw", reach=3)
        fill_temps(store, dict.fromkeys(NEW, 3_000), 0, 40, 20, 2, mechanism="sw", reach=5)
        left_out = answer(store, "temp").left_out
        assert re.fullmatch(
            r"8,000 reports of another version with 10 bins left out \(version=....\)\.", left_out
        )
        with fails("the versions of temp have no values in common; choose one with", DoesNotFit):
            answer(store, "temp", version="all")

    def test_every_version_left_out_is_named(self, store: Store) -> None:
        digests = [
            fill_modes(store, f"heat {name}", {OLD[0]: 100}) for name in ("a", "b", "c", "d", "e", "cool")
        ]
        left_out = answer(store, windows=()).left_out
        assert all(f"version={digest[:4]}" in left_out for digest in digests[:-1])
        assert "200 reports of 2 other versions left out (version=" in left_out

    def test_too_few_reports_is_another_error(self, store: Store) -> None:
        fill_modes(store, "heat cool", {OLD[0]: 1})
        with fails("mode has fewer than 2 reports so far", TooFewReports):
            answer(store, windows=OLD[:1])


class TestWidenedRange:
    @pytest.fixture
    def digests(self, store: Store) -> tuple[str, str]:
        old = fill_temps(store, dict.fromkeys(OLD, 20_000), 0, 24, 12)
        return old, fill_temps(store, dict.fromkeys(NEW, 10_000), 0, 40, 10, 2)

    def test_newest_version_answers(self, store: Store, digests: tuple[str, str]) -> None:
        reply = answer(store, "temp", ranges=("24:",))
        assert reply.estimate.reports == 20_000
        assert rows(reply, "ranges")["24 and above"].value == pytest.approx(0.159, abs=0.02)
        assert "of another version from 0 to 24 °C left out" in reply.left_out

    def test_all_versions_pool_at_common_edges(self, store: Store, digests: tuple[str, str]) -> None:
        reply = answer(store, "temp", version="all", ranges=("8:16",))
        names = ["below 4", "4 to 8", "8 to 12", "12 to 16", "16 to 20", "20 and above"]
        assert list(rows(reply)) == names
        assert rows(reply)["20 and above"].value == pytest.approx(0.309, abs=0.02)
        assert rows(reply, "ranges")["8 to 16"].value == pytest.approx(0.341, abs=0.02)
        assert [table.kind for table in reply.answers] == ["histogram", "ranges"]

    def test_all_versions_have_no_mean(self, store: Store, digests: tuple[str, str]) -> None:
        """Common bins have no middle where they are open or merged, so their mean would be off by degrees."""
        with store.engine.begin() as connection:
            connection.execute(update(schema.experiment).values(asked="24:\nmean"))
        reply = answer(store, "temp", version="all")
        assert "Mean: temp answers only shares and quantiles." in reply.headline
        with fails("temp answers only shares and quantiles", UnanswerableError):
            reply.estimate.mean()
        (table,) = answer(store, "temp", version="all", trend=True).answers
        assert {row.name for row in table.rows} == {"median"}
        with StoreReader(f"sqlite:///{store.where}") as reader:
            temp = reader.fleet("home").experiment("temp")
            assert {row.name for row in temp.trend(version="all")[0].rows} == {"median"}
            with fails("temp answers only shares and quantiles", UnanswerableError):
                temp.trend("mean", version="all")

    def test_merged_bins_are_drawn_to_scale(self, store: Store, digests: tuple[str, str]) -> None:
        """A logarithmic axis would begin above 0."""
        reply = answer(store, "temp", version="all")
        assert [table.scale for table in reply.answers] == [None]
        assert reply.answers[0].plot().axes[0].get_xscale() == "linear"

    def test_merged_bins_are_not_equal_bins(self) -> None:
        """Both have 6 bins from 0 to 40."""
        old, new, equal = (parse_experiment(temps(0, *end)) for end in ((24, 12), (40, 10), (40, 6)))
        merged = common_views([old, new])
        assert merged
        assert (merged[1].domain, same_values(*merged), same_values(merged[1], equal)) == (6, True, False)

    def test_moved_range_names_the_widths_of_common_bins(
        self, store: Store, digests: tuple[str, str]
    ) -> None:
        (note,) = (
            table.note
            for table in answer(store, "temp", version="all", ranges=("24:",)).answers
            if table.kind == "ranges"
        )
        assert note == "24: is counted as 20 and above: bins are 4 to 20 °C wide, from 0."

    def test_logarithmic_bins_pool_only_at_common_edges(self, store: Store) -> None:
        log = experiment_json(
            name="temp",
            type="number",
            low=1000,
            high=64_000,
            bins=6,
            mechanism="grr",
            epsilon=3_000_000,
            scale="log",
        )
        fill(store, "home", log, dict.fromkeys(OLD, 4_000))
        fill(store, "home", temps(0, 40, 10), dict.fromkeys(NEW, 4_000))
        assert list(rows(answer(store, "temp", version="all"))) == [
            "below 4",
            "4 to 8",
            "8 to 16",
            "16 to 32",
            "32 and above",
        ]


class TestTrend:
    def test_continues_by_name_and_marks_the_change(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)
        (table,) = answer(store, trend=True).answers
        windows = {name: [w for row, w in points(table) if row == name] for name in SHARES}
        assert windows == {"heat": [*OLD, *NEW], "cool": [*OLD, *NEW], "dry": [*NEW], "other": [*NEW]}
        note = f"Before 2026-11-22: another version without 'dry' (version={old[:4]})."
        assert note in table.note
        assert dict(table.p_values).keys() == SHARES.keys()

    def test_lines_show_the_same_windows(self, store: Store) -> None:
        fill_modes(store, "heat cool", {OLD[0]: 4_000})
        fill_modes(store, "warm cool", {OLD[1]: 4_000})
        fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)
        (table,) = answer(store, trend=True, ranges=("heat", "cool", "dry")).answers
        lines = [str(cell) for cell in trend_table(table).columns[2].cells]
        assert [re.sub(r"[▁-█]", "x", line) for line in lines] == ["x xx", "xxxx", "  xx"]

    def test_range_continues_only_where_both_have_its_edges(self, store: Store) -> None:
        fill_temps(store, dict.fromkeys(OLD, 20_000), 0, 24, 12)
        fill_temps(store, dict.fromkeys(NEW, 10_000), 0, 40, 10, 2)
        (table,) = answer(store, "temp", trend=True, ranges=(":8", "16:24")).answers
        assert points(table) == [("below 8", w) for w in (*OLD, *NEW)] + [("16 to 24", w) for w in NEW]

    def test_table_json_and_picture_mark_the_change(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        new = fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)
        reply = answer(store, trend=True, ranges=("dry", "cool"))
        (table,) = reply.answers
        assert table.to_dict()["new_versions"] == [
            {"window": NEW[0], "version": new[:4], "text": "with 'dry'"}
        ]
        by_window = {line["window"]: line["version"] for line in csv.DictReader(io.StringIO(table.to_csv()))}
        assert by_window == dict.fromkeys(OLD, old[:4]) | dict.fromkeys(NEW, new[:4])
        axes = table.plot().axes[0]
        assert f"version {new[:4]}: with 'dry'" in [text.get_text().strip() for text in axes.texts]
        assert isinstance(axes.containers[0], ErrorbarContainer)
        gaps = np.isnan(np.asarray(axes.containers[0].lines[0].get_ydata()))
        assert gaps.tolist() == [True, True, False, False]

    def test_note_describes_the_newest_changes(self, store: Store) -> None:
        days = [f"2026-11-{day}" for day in range(10, 18)]
        for count, day in enumerate(days):
            fill_modes(store, " ".join(["heat", *map(str, range(count))]), {day: 100})
        (table,) = answer(store, windows=(), trend=True, ranges=("heat",)).answers
        first, *others = table.note.splitlines()
        assert first == "Not listed: 2 earlier changes of the question before 2026-11-13."
        assert [line[:17] for line in others] == [f"Before {day}" for day in days[3:]]
        assert len(table.to_dict()["new_versions"]) == 7

    def test_versions_of_the_same_values_are_not_marked(self, store: Store) -> None:
        fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000), epsilon=1_000_000)
        fill_modes(store, "cool heat", dict.fromkeys(NEW, 3_000), 2)
        (table,) = answer(store, trend=True).answers
        assert "new_versions" not in table.to_dict()
        assert "version" not in table.to_csv().partition("\n")[0]

    def test_leaves_out_only_what_it_does_not_show(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool dry", {NEW[0]: 3_000}, 2)
        reply = answer(store, windows=(), trend=True)
        assert (reply.left_out, reply.reports) == ("", 11_000)
        assert reply.which == "fleet home, 2026-11-20 to 2026-11-22 (3 days)"
        assert "left out" not in reply.headline
        assert {"reports": 11_000, "left_out": ""}.items() <= reply.to_dict().items()
        assert answer(store, windows=(), trend=True, version=old).left_out == ""

    def test_names_what_its_weeks_leave_out(self, store: Store) -> None:
        days = [f"2026-11-{day}" for day in range(9, 24)]
        old = fill_modes(store, "heat cool", dict.fromkeys(days[:10], 1_000))
        fill_modes(store, "heat cool dry", dict.fromkeys(days[10:], 1_000), 2)
        reply = answer(store, windows=(), trend=True, by="week", ranges=("heat",))
        assert reply.reports == 12_000
        assert reply.left_out.startswith(
            f"3,000 reports of another version without 'dry' left out (version={old[:4]})"
        )
        assert reply.answers[0].note.splitlines()[-1] == reply.left_out
        assert reply.left_out not in reply.headline

    def test_other_type_is_left_out_by_name(self, store: Store) -> None:
        old = fill(store, "home", experiment_json(name="mode"), dict.fromkeys(OLD, 4_000)).digest.hex()
        fill_modes(store, "heat cool", dict.fromkeys(NEW, 3_000), 2)
        reply = answer(store, trend=True)
        assert (
            reply.left_out == f"8,000 reports of another version of type bool left out (version={old[:4]})."
        )

    def test_digits_differ_from_those_of_other_versions(self, store: Store) -> None:
        """Two of 600 versions share their first four digits, and only one of the two is in the trend."""
        by_digits, pair = dict[str, int](), (0, 0)
        for number in range(2_000):
            digits = parse_experiment(modes(f"heat l{number}")).digest.hex()[:4]
            if digits in by_digits:
                pair = by_digits[digits], number
                break
            by_digits[digits] = number
        assert pair[1]
        hidden, old = (f"heat l{number}" for number in pair)
        fill_modes(store, hidden, {"2026-11-10": 100})
        digest = fill_modes(store, old, dict.fromkeys(OLD, 100))
        fill_modes(store, "heat cool", dict.fromkeys(NEW, 100))
        (table,) = answer(store, trend=True, ranges=("heat",)).answers
        digits = re.findall(r"version=(\w+)", table.note)
        assert digest.startswith(digits[0])
        assert answer(store, windows=(), version=digits[0]).estimate.reports == 200

    def test_jump_at_the_change_has_no_p_value(self, store: Store) -> None:
        """The mean moves only because the old range ends at 24."""
        fill_temps(store, dict.fromkeys(OLD, 20_000), 0, 16, 8)
        fill_temps(store, dict.fromkeys(NEW, 10_000), 0, 40, 10, 2)
        (table,) = answer(store, "temp", trend=True).answers
        assert points(table) == [("mean", window) for window in (*OLD, *NEW)]
        assert dict(table.p_values)["mean"] > 1e-6
        assert re.search("Before 2026-11-22: another version from 0 to 16", table.note)

    def test_single_window_of_the_newest_values_has_no_p_value(self, store: Store) -> None:
        fill_temps(store, dict.fromkeys(OLD, 20_000), 0, 16, 8)
        fill_temps(store, {NEW[0]: 10_000}, 0, 40, 10, 2)
        for options in ({}, {"quantiles": (0.5,)}):
            tables = answer(store, "temp", windows=(), trend=True, **options).answers
            assert [dict(table.p_values) for table in tables] == [{}]


class TestOtherMechanism:
    def test_version_that_answers_less_is_left_out(self, store: Store) -> None:
        """Otherwise, the newest version's median could not be answered until the older days are gone."""
        common = {"low": 0, "high": 64, "bins": 64, "epsilon": 2_000_000}
        mean_only = temps(**common, mechanism="sw", reach=16)
        old = fill(store, "home", mean_only, dict.fromkeys(OLD, 2_000))
        fill(
            store,
            "home",
            temps(**common, mechanism="hh", fanout=4, cells=[4, 3, 3]),
            dict.fromkeys(NEW, 2_000),
        )
        reply = answer(store, "temp", quantiles=(0.5,))
        assert reply.estimate.reports == 4_000
        digest = old.digest.hex()[:4]
        assert (
            f"4,000 reports of another version with mechanism sw left out (version={digest})"
            in reply.left_out
        )
        assert find(Facts(store, NOON), Selection("temp", "home")).enough
        together = answer(store, "temp", version="all")
        assert (together.estimate.reports, [table.kind for table in together.answers]) == (8_000, ["moments"])

    def test_newest_version_is_searched_for_texts(self, store: Store) -> None:
        """Versions cannot be searched together, so a changed ε must not end the answers."""
        readings = dict.fromkeys(OLD, ["1.0.0", "1.0.0", "2.0.0"] * 500)
        older = put(store, "home", FOUND, readings).digest.hex()[:4]
        newer = FOUND.replace(b'"epsilon": 4000000', b'"epsilon": 5000000')
        put(store, "home", newer, dict.fromkeys(NEW, ["1.0.0", "1.0.0", "2.0.0"] * 500))
        reply = answer(store, "crash")
        note = f"3,000 reports of another version with ε = 4 left out (version={older})."
        assert (reply.reports, reply.left_out) == (3_000, note)
        assert find(Facts(store, NOON), Selection("crash", "home")).enough
        assert answer(store, "crash", windows=(), version=older).reports == 3_000
        with fails("have no values in common; choose one with", DoesNotFit):
            answer(store, "crash", version="all")

    def test_all_versions_answer_a_question_that_all_can(self, store: Store) -> None:
        common = {"low": 0, "high": 64, "bins": 16}
        fill_temps(store, dict.fromkeys(OLD, 4_000), **common, mechanism="sw", reach=4)
        fill_temps(store, dict.fromkeys(NEW, 4_000), **common)
        findings = find(Facts(store, NOON), Selection("temp", "home", version="all"))
        assert findings.lines[0].startswith("Mean: ")


class TestOtherUnit:
    """Stores older than the check of units may have versions in two units."""

    @pytest.fixture
    def old(self, store: Store) -> str:
        digest = fill_temps(store, dict.fromkeys(OLD, 4_000), 0, 40, 10)
        fill_temps(store, dict.fromkeys(NEW, 3_000), 0, 40, 10, 2, epsilon=2_000_000)
        column = schema.experiment.c
        with store.engine.begin() as connection:
            older = column.digest == bytes.fromhex(digest)
            connection.execute(update(schema.experiment).where(older).values(unit="°F"))
        return digest

    def test_is_left_out(self, store: Store, old: str) -> None:
        reply = answer(store, "temp")
        assert (reply.estimate.reports, reply.estimate.unit) == (6_000, "°C")
        note = f"8,000 reports of another version in °F left out (version={old[:4]})."
        assert reply.left_out == note
        together = answer(store, "temp", version="all")
        assert (together.estimate.reports, together.left_out) == (6_000, note)
        assert find(Facts(store, NOON), Selection("temp", "home")).lines[-1] == note
        assert result_of(store, "home", "temp", NOON).reports == 6_000

    def test_answers_alone_in_its_unit(self, store: Store, old: str) -> None:
        reply = answer(store, "temp", windows=(), version=old)
        assert (reply.estimate.reports, reply.estimate.unit) == (8_000, "°F")

    def test_trend_has_one_unit(self, store: Store, old: str) -> None:
        (table,) = answer(store, "temp", trend=True).answers
        assert [window for _, window in points(table)] == [*NEW]

    def test_is_not_compared(self, store: Store, old: str) -> None:
        with fails("is in °F, and .* in °C: .* cannot be compared; choose versions with", DoesNotFit):
            answer(store, "temp", windows=(), against=(f"version={old}",))


class TestComparison:
    def test_compares_labels_that_both_versions_have(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool dry", dict.fromkeys(NEW, 3_000), 2)
        sides: list[dict[str, Any]] = [
            {"windows": NEW, "against": OLD},
            {"windows": (), "against": (f"version={old}",)},
        ]
        for options in sides:
            reply = answer(store, **options)
            assert list(rows(reply, "change")) == ["heat", "cool"]

    def test_names_what_the_other_side_leaves_out(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", {OLD[0]: 4_000})
        fill_modes(store, "heat cool dry", dict.fromkeys((OLD[1], *NEW), 3_000), 2)
        reply = answer(store, windows=NEW, against=OLD)
        note = (
            f"On the other side, 4,000 reports of another version without 'dry' left out (version={old[:4]})"
        )
        assert reply.left_out.startswith(note)
        assert note in reply.headline

    def test_names_the_version_that_answers_the_other_side(self, store: Store) -> None:
        old = fill_modes(store, "heat cool", dict.fromkeys(OLD, 4_000), epsilon=1_000_000)
        fill_modes(store, "heat cool", {NEW[0]: 3_000}, 2)
        fill_modes(store, "heat cool dry", {NEW[1]: 3_000}, 3)
        text = f"On the other side, the newest version has too few reports, so this is version {old[:4]}."
        assert answer(store, windows=NEW[1:], against=OLD).left_out == text

    def test_rows_are_ranges_that_both_versions_count(self, store: Store) -> None:
        """The rows of the newer histogram are 10 wide, and the older version has no edge at 10."""
        fill_temps(store, dict.fromkeys(OLD, 4_000), 0, 40, 10)
        tree = {"mechanism": "hh", "fanout": 5, "cells": [4, 5]}
        fill_temps(store, dict.fromkeys(NEW, 4_000), 0, 40, 20, 2, **tree)
        names = ["below 8", "8 to 16", "16 to 24", "24 to 32", "32 and above"]
        reply = answer(store, "temp", windows=NEW, against=OLD, rows=5)
        assert list(rows(reply, "change")) == names

    def test_types_are_not_compared(self, store: Store) -> None:
        fill(store, "home", experiment_json(name="mode"), dict.fromkeys(OLD, 4_000))
        fill_modes(store, "heat cool", dict.fromkeys(NEW, 3_000), 2)
        text = r"mode cannot be compared: fleet home, .* is of another version of type bool"
        with fails(text, DoesNotFit):
            answer(store, windows=NEW, against=OLD)


class TestInterfaces:
    def test_agree_after_five_versions(self, store: Store) -> None:
        versions = [
            ("heat cool", {}),
            ("warm cool dry", {}),
            ("heat cool dry", {}),
            ("dry heat cool", {}),
            ("dry heat cool", {"epsilon": 3_000_000}),
        ]
        days = [str(datetime.date(2026, 11, 19) + datetime.timedelta(n)) for n in range(len(versions))]
        for day, (labels, design) in zip(days, versions, strict=True):
            fill_modes(store, labels, {day: 3_000}, **design)
        reply, document = answer(store, windows=()), result_of(store, "home", "mode", NOON).to_dict()
        assert (reply.estimate.reports, document["reports"]) == (9_000, 9_000)
        assert (document["windows"], document["window_count"]) == (days[2:], 3)
        assert reply.which == f"fleet home, {days[2]} to {days[-1]} (3 days)"
        histogram = {name: round(row.value, 6) for name, row in rows(reply).items()}
        assert {row["name"]: row["share"] for row in document["histogram"]} == histogram
        assert list(histogram) == ["dry", "heat", "cool", "other"]
        assert reply.left_out in document["finding"]
        assert "with 'warm' instead of 'heat' left out" in reply.left_out
        assert "without 'dry' left out" in reply.left_out
        (table,) = answer(store, windows=(), trend=True, ranges=("cool", "heat")).answers
        assert len([row for row in table.rows if row.name == "cool"]) == 5
        assert len([row for row in table.rows if row.name == "heat"]) == 4

    def test_small_part_of_an_older_version_hides_values(self, store: Store) -> None:
        """All versions less the newest would reveal the 10 reports from 2.3.1 of the older version."""
        group = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
        for labels, few in (("heat cool", 10), ("heat cool dry", 200)):
            experiment = fill(store, "home", modes(labels, **group), {})
            for index, reports in enumerate((few, 200)):
                write(store, "home", experiment, {(NEW[0], 0): reports}, group=index)
        with fails("some version has fewer than 50 reports from one firmware", NotShown):
            answer(store, windows=NEW[:1], group="2.4.0")
        assert answer(store, windows=NEW[:1]).estimate.reports == 400
