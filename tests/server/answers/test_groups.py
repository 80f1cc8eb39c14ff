"""Answers by value of an open group: their reports, their ε, and values that are not shown."""

import datetime
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from open_groups import CRASHED, DAYS, EXPERIMENT, REPORTS, VALUES, fill_groups

from hushmote.server.answers import second_epsilon
from hushmote.server.answers.ask import ask
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question, Selection
from hushmote.server.answers.rows import TrendRow
from hushmote.server.answers.store_reader import ExperimentReader, StoreReader
from hushmote.server.errors import UsageError
from hushmote.server.estimate.estimate import estimate
from hushmote.server.estimate.shuffled import histogram_epsilon
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.store.store import Store

AT = datetime.datetime(2026, 11, 8, 12, tzinfo=datetime.UTC)
QUESTION = Question(experiment="crashed", fleet="home")
FEW = "boards with firmware 2.5.0 sent fewer than 50 reports in this period; 50 are needed"
NEXT = "boards with another firmware cannot be shown in this period: subtracting them from all boards would"
LONGER = "ask for a longer period"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StoreReader, dict]]:
    """Provide a week of reports from two versions of firmware, and a few from two more."""
    url = f"sqlite:///{tmp_path_factory.mktemp('groups') / 'hushmote.sqlite'}"
    with Store(url) as store:
        counts = fill_groups(store, "home")
        fill_groups(store, "lab", CRASHED, {"2.3.1": dict.fromkeys(DAYS, 200)})
        ungrouped = experiment_json(name="crashed")
        fill_groups(store, "plain", ungrouped, {"other": dict.fromkeys(DAYS, 200)})
    with StoreReader(url) as reader:
        yield reader, counts


@pytest.fixture
def facts(counted: tuple[StoreReader, dict]) -> Facts:
    return Facts(counted[0].store, AT)


@pytest.fixture
def experiment(counted: tuple[StoreReader, dict]) -> ExperimentReader:
    return counted[0].fleet("home").experiment("crashed")


def _expected(counts: Mapping[tuple[str, int], int], *days: str) -> np.ndarray:
    total = np.zeros(2, np.int64)
    for (day, code), n in counts.items():
        total[code] += n if not days or day in days else 0
    return total


class TestNumbers:
    @pytest.mark.parametrize("value", ["2.3.1", "2.4.0"])
    def test_equal_those_of_the_histogram(self, value: str, counted: tuple, facts: Facts):
        reply = ask(facts, QUESTION.replace(group=value))
        histogram = _expected(counted[1][value])
        assert reply.estimate.reports == histogram.sum()
        assert reply.estimate.frequencies == pytest.approx(estimate(EXPERIMENT, histogram).frequencies)
        assert reply.estimate.which == f"fleet home, {_days(value)}, boards with firmware {value}"

    def test_pooled_equals_the_sum(self, counted: tuple, facts: Facts):
        reply = ask(facts, QUESTION)
        histogram = sum(map(_expected, counted[1].values()))
        assert reply.estimate.frequencies == pytest.approx(estimate(EXPERIMENT, histogram).frequencies)

    def test_comparison_of_values(self, counted: tuple, facts: Facts):
        reply = ask(facts, QUESTION.replace(group="2.4.0", against=("group=2.3.1",)))
        (row,) = reply.answers[0].rows
        after, before = (estimate(EXPERIMENT, _expected(counted[1][v])) for v in ("2.4.0", "2.3.1"))
        difference = after.range(1, 2).value - before.range(1, 2).value
        assert row.value == pytest.approx(difference)
        assert "boards with firmware 2.4.0" in reply.headline
        assert "compared with" in reply.headline
        assert "boards with firmware 2.3.1" in reply.headline

    def test_comparison_with_the_period_before(self, facts: Facts):
        before = QUESTION.replace(group="2.4.0", windows=(f"{DAYS[4]}..{DAYS[5]}",), against=("before",))
        resolved = before.resolve(facts)
        assert resolved.against is not None
        assert (resolved.against.windows, resolved.against.group) == (DAYS[2:4], "2.4.0")
        assert ask(facts, before).answers[0].reports == 1_200

    def test_trend_has_days_with_enough_reports(self, counted: tuple, facts: Facts):
        """On the last day, 2.4.0 hides the few reports of 2.5.0."""
        table = ask(facts, QUESTION.replace(group="2.4.0", trend=True)).answers[0]
        assert [getattr(row, "window", "") for row in table.rows] == list(DAYS[2:6])
        for row in table.rows:
            assert isinstance(row, TrendRow)
            histogram = _expected(counted[1]["2.4.0"], row.window)
            assert row.value == pytest.approx(estimate(EXPERIMENT, histogram).frequencies[1])
        assert "boards with firmware 2.4.0" in table.about

    def test_other_fleet_has_the_same_value(self, facts: Facts):
        resolved = QUESTION.replace(group="2.3.1", against=("fleet=lab",)).resolve(facts)
        assert resolved.against is not None
        assert (resolved.against.fleet, resolved.against.group) == ("lab", "2.3.1")

    def test_python_has_them(self, experiment: ExperimentReader, counted: tuple):
        assert experiment.groups == VALUES
        histogram = _expected(counted[1]["2.4.0"])
        expected = estimate(EXPERIMENT, histogram).frequencies
        assert experiment.estimate(DAYS, group="2.4.0").frequencies == pytest.approx(expected)
        assert len(experiment.trend(windows=DAYS, group="2.4.0")[0].rows) == 4
        assert experiment.ask(windows=DAYS, group="2.4.0").estimate.reports == histogram.sum()


def _days(value: str) -> str:
    days = sorted(REPORTS[value])
    return f"{days[0]} to {days[-1]} ({len(days)} days)"


class TestSuppression:
    @pytest.mark.parametrize(("value", "text"), [("2.5.0", FEW), ("other", NEXT)])
    @pytest.mark.parametrize(
        "fields", [{}, {"trend": True}, {"against": ("group=2.3.1",)}, {"ranges": ("yes",)}], ids=str
    )
    def test_refuses_a_suppressed_value(self, fields: dict, value: str, text: str, facts: Facts):
        with pytest.raises(EstimateError) as refused:
            ask(facts, QUESTION.replace(group=value, **fields))
        assert str(refused.value).startswith(text)
        assert LONGER in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not any(str(n) in str(refused.value) for n in (30, 100))

    @pytest.mark.parametrize(("value", "text"), [("2.5.0", FEW), ("other", NEXT)])
    def test_checks_the_other_side(self, value: str, text: str, facts: Facts):
        with pytest.raises(EstimateError, match=text):
            ask(facts, QUESTION.replace(group="2.3.1", against=(f"group={value}",)))

    @pytest.mark.parametrize(("value", "text"), [("2.5.0", FEW), ("other", NEXT)])
    def test_python_refuses_it(self, value: str, text: str, experiment: ExperimentReader):
        calls: dict[str, Any] = {
            "ask": lambda: experiment.ask(windows=DAYS, group=value),
            "estimate": lambda: experiment.estimate(DAYS, group=value),
            "trend": lambda: experiment.trend(windows=DAYS, group=value),
            "two_epsilons": lambda: experiment.two_epsilons(DAYS, group=value),
            "apart": lambda: experiment.two_epsilons(DAYS, group=value, apart=True),
        }
        for call in calls.values():
            with pytest.raises(EstimateError, match=text):
                call()

    def test_comparing_periods_checks_both(self, tmp_path: Path):
        """The day before, 10 reports of 2.4.0 hide 2.3.1 as well."""
        today = datetime.datetime.now(datetime.UTC).date()
        before, yesterday = ((today - datetime.timedelta(ago)).isoformat() for ago in (2, 1))
        url = f"sqlite:///{tmp_path / 'periods.sqlite'}"
        with Store(url) as store:
            old = {"2.3.1": {before: 100, yesterday: 100}}
            fill_groups(store, "few", reports=old | {"2.4.0": {before: 10, yesterday: 60}})
            fill_groups(store, "enough", reports=old | {"2.4.0": {before: 60, yesterday: 60}})
        with StoreReader(url) as reader:
            for value, text in (("2.4.0", "fewer than 50 reports"), ("2.3.1", "cannot be shown")):
                with pytest.raises(EstimateError, match=text):
                    reader.fleet("few").experiment().compare("1d", group=value)
                assert reader.fleet("enough").experiment().compare("1d", group=value)

    def test_pooled_minus_shown_hides_each_value(self, tmp_path: Path):
        """Enumerate the counts of four values: what the answers leave over is no single value's histogram."""
        hours = [f"2026-10-{1 + i // 24:02}T{i % 24:02}" for i in range(4**4)]
        counts = dict(zip(hours, product((0, 49, 50, 60), repeat=4), strict=True))
        payload = CRASHED.replace(b'"window": "day"', b'"window": "hour"')
        with Store(f"sqlite:///{tmp_path / 'all.sqlite'}") as store:
            fill_groups(
                store,
                "home",
                payload,
                {value: {hour: n[i] for hour, n in counts.items()} for i, value in enumerate(VALUES)},
            )
            facts = Facts(store, AT)
            (version,) = store.experiments("home")
            for hour in hours[1:]:
                pooled = facts.selected(Selection("crashed", "home", (hour,)))
                rest = pooled.counts_of(version)
                hidden = list[np.ndarray]()
                for value in VALUES:
                    selected = facts.selected(Selection("crashed", "home", (hour,), group=value))
                    histogram = selected.counts_of(version)
                    try:
                        selected.estimate()
                    except EstimateError:
                        hidden += [histogram] if histogram.sum() else []
                    else:
                        rest = rest - histogram
                assert rest.sum() == sum(map(np.sum, hidden))
                if sum(n > 0 for n in counts[hour]) > 1:
                    assert not any(np.array_equal(rest, histogram) for histogram in hidden), hour

    def test_finding_says_why(self, facts: Facts):
        findings = find(facts, Selection("crashed", "home", group="2.5.0"), series=True)
        assert findings.sentence.startswith(FEW[0].upper() + FEW[1:])
        assert (findings.reports, findings.findings, findings.enough) == (0, (), False)

    def test_depends_on_the_period(self, facts: Facts):
        """On the last day only 2.5.0 is small, so 2.4.0 is hidden with it; before, nothing is."""
        with pytest.raises(EstimateError, match=r"boards with firmware 2\.4\.0 cannot be shown"):
            ask(facts, QUESTION.replace(group="2.4.0", windows=DAYS[-1:]))
        assert ask(facts, QUESTION.replace(group="2.4.0", windows=DAYS[:-1])).estimate.reports == 1_200
        assert ask(facts, QUESTION.replace(group="other", windows=DAYS[:-1])).estimate.reports == 100

    def test_values_without_reports_in_part_of_it(self, facts: Facts):
        """The period counts, rather than the days on which a value has reports."""
        resolved = QUESTION.replace(group="other").resolve(facts)
        assert resolved.selection.windows == DAYS

    def test_trend_needs_two_windows(self, facts: Facts):
        trend = QUESTION.replace(group="2.4.0", trend=True)
        with pytest.raises(EstimateError, match="windows with enough reports from boards with firmware"):
            ask(facts, trend.replace(windows=DAYS[1:3]))

    def test_trend_by_week_considers_whole_weeks(self, tmp_path: Path):
        """In the second week, 10 reports of 2.5.0 hide 2.4.0, although they arrived on another day."""
        reports = {"2.3.1": dict.fromkeys(DAYS, 900), "2.4.0": {DAYS[0]: 300, DAYS[2]: 60}}
        with Store(f"sqlite:///{tmp_path / 'weeks.sqlite'}") as store:
            fill_groups(store, "home", reports=reports | {"2.5.0": {DAYS[0]: 200, DAYS[4]: 10}})
            with pytest.raises(EstimateError, match="at least 2 windows with enough reports"):
                ask(Facts(store, AT), QUESTION.replace(group="2.4.0", by="week"))

    def test_value_without_reports(self, facts: Facts):
        with pytest.raises(EstimateError, match="fewer than 2 reports"):
            ask(facts, QUESTION.replace(group="2.5.0", windows=DAYS[:1]))

    def test_pooled_is_never_suppressed(self, facts: Facts):
        assert ask(facts, QUESTION.replace(windows=DAYS[-1:])).estimate.reports == 1_230


class TestFinding:
    def test_names_the_boards(self, facts: Facts):
        findings = find(facts, Selection("crashed", "home", group="2.4.0"), series=True)
        assert ", boards with firmware 2.4.0, 1 to 7 Nov." in findings.sentence
        assert findings.reports == 1_500
        assert [row.window for row in findings.findings[0].series] == list(DAYS[2:6])

    def test_is_pooled_by_default(self, facts: Facts):
        reply = ask(facts, QUESTION)
        assert reply.findings is not None
        assert reply.findings.reports == 7_930
        assert "boards with" not in reply.headline

    def test_rows_name_the_boards(self, facts: Facts):
        reply = ask(facts, QUESTION.replace(group="2.4.0", ranges=("yes",)))
        assert "boards with firmware 2.4.0" in reply.rows_words
        trend = ask(facts, QUESTION.replace(group="2.4.0", ranges=("yes",), trend=True))
        assert "boards with firmware 2.4.0" in trend.rows_words

    def test_too_few_names_the_boards(self, tmp_path: Path):
        with Store(f"sqlite:///{tmp_path / 'few.sqlite'}") as store:
            payload = CRASHED.replace(b'"epsilon": 2000000', b'"epsilon": 100000')
            fill_groups(store, "home", payload, {"2.4.0": {DAYS[6]: 60}})
            sentence = find(Facts(store, AT), Selection("crashed", "home", group="2.4.0")).sentence
        assert sentence.startswith("60 reports so far from boards with firmware 2.4.0. About ")

    @pytest.mark.parametrize("few", [0, 30])
    def test_change_is_of_the_group(self, few: int, tmp_path: Path):
        """Crashes rise on the 20th day, and only 2.4.0's; the change is hidden if the time after it is."""
        days = [(AT.date() - datetime.timedelta(ago)).isoformat() for ago in range(40, 0, -1)]
        reports = {"2.3.1": dict.fromkeys(days, 2_000), "2.4.0": dict.fromkeys(days, 1_000)}
        shares = {day: 0.1 if i < 20 else 0.5 for i, day in enumerate(days)}
        with Store(f"sqlite:///{tmp_path / 'days.sqlite'}") as store:
            fill_groups(store, "home", reports=reports | {"2.5.0": {days[25]: few}}, shares=shares)
            selection = Selection("crashed", "home", tuple(days[30:]), group="2.4.0")
            (finding,) = find(Facts(store, AT), selection).findings
            (pooled,) = find(Facts(store, AT), replace(selection, group="")).findings
        assert pooled.direction == "up"
        assert finding.direction == ("" if few else "up")


class TestGroupsThatDoNotExist:
    def test_names_the_values(self, facts: Facts):
        with pytest.raises(UsageError, match=r"2\.4\.0"):
            ask(facts, QUESTION.replace(group="2.4.1"))

    def test_experiment_without_a_group(self, facts: Facts):
        with pytest.raises(UsageError, match="has no open group"):
            ask(facts, QUESTION.replace(fleet="plain", group="2.4.0"))
        assert ask(facts, QUESTION.replace(fleet="plain")).to_dict()["group"] is None

    def test_other_side_may_not_contain_this_side(self, facts: Facts):
        with pytest.raises(UsageError, match="would be on both sides"):
            ask(facts, QUESTION.replace(against=("group=2.3.1",)))

    @pytest.mark.parametrize("against", [("group=2.4.0",), ("group=2.3.1", "group=2.4.0")], ids=len)
    def test_other_side_is_another_value(self, against: tuple, facts: Facts):
        with pytest.raises(UsageError, match=r"both sides are the same|at most one fleet"):
            ask(facts, QUESTION.replace(group="2.4.0", against=against))


class TestEpsilon:
    @pytest.mark.parametrize("value", ["2.3.1", "2.4.0"])
    def test_uses_the_values_own_reports(self, value: str, facts: Facts):
        reports = sum(REPORTS[value].values())
        once = ask(facts, QUESTION.replace(group=value)).once
        assert (once.reports, once.histogram) == (reports, histogram_epsilon(EXPERIMENT, reports, own=1))

    def test_two_values_do_not_share_reports(self, facts: Facts):
        sides = [Selection("crashed", "home", DAYS, group=value) for value in ("2.3.1", "2.4.0")]
        assert second_epsilon.of_selections(facts, *sides).own == 1
        pooled = Selection("crashed", "home", DAYS)
        assert second_epsilon.of_selections(facts, *sides, pooled).own == 2


class TestReportsByValue:
    def test_json_names_suppressed_values(self, facts: Facts):
        group = json.loads(ask(facts, QUESTION.replace(group="2.3.1")).to_json())["group"]
        assert (group["name"], group["value"]) == ("firmware", "2.3.1")
        assert [(row["value"], row["reports"]) for row in group["reports"]] == [
            ("2.3.1", 6_300),
            ("2.4.0", 1_500),
            ("2.5.0", None),
            ("other", None),
        ]
        assert group["reports"][2]["not_shown"] == "fewer than 50 reports"

    def test_pooled_has_them_too(self, facts: Facts):
        group = ask(facts, QUESTION).groups
        assert group is not None
        assert (group.value, len(group.rows)) == ("", 4)
