"""Findings: the sentence for each kind of question, its dates, its change, and missing reports."""

import contextlib
import datetime
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boards import ask_fleet
from command_line import hushmote as run_hushmote
from experiment_kinds import TEXT, WORDS, fill_kinds
from experiments import experiment_json, number_json
from filled_store import fill
from refusals import Refusal, refusals

import hushmote
from hushmote.fleet.results.result import result_of
from hushmote.server import special
from hushmote.server.answers.ask import ask
from hushmote.server.answers.finding import Finding, Findings, find
from hushmote.server.answers.periods import last_windows, period_of
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question, Selection
from hushmote.server.answers.report_rate import reports_a_day
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.answers.rows import CandidateRow, DifferenceRow, Row
from hushmote.server.errors import UsageError
from hushmote.server.estimate.detector import boundary, false_alarm_chance
from hushmote.server.estimate.reports_needed import MeanIndex, reports_needed
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.experiments.asks import asks_of
from hushmote.server.experiments.reading import USUAL_SLOTS
from hushmote.server.experiments.units import UnitsError
from hushmote.server.store.store import Description, Store
from hushmote.server.wire.experiments import parse_experiment
from hushmote.server.words.findings import CERTAIN, amount, certainty, dates, size

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
ROOM = number_json(
    16, name="room", low=0, high=16_000, epsilon=2_000_000, mechanism="hh", fanout=4, cells=[4, 16]
)
YES = experiment_json(name="door", epsilon=2_000_000)
HOURLY = experiment_json(name="door", epsilon=2_000_000, window="hour")
MODES = experiment_json(
    name="mode", type="choice", labels=["eco", "boost"], mechanism="grr", epsilon=4_000_000
)


@pytest.fixture
def store(tmp_path: Path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as opened:
        yield opened


def days(count: int, last: str = "2026-11-27") -> list[str]:
    end = datetime.date.fromisoformat(last)
    return [(end - datetime.timedelta(days=n)).isoformat() for n in range(count - 1, -1, -1)]


def hours(count: int, last: str = "2026-11-27") -> list[str]:
    return [f"{day}T{hour:02}" for day in days(count, last) for hour in range(24)]


def findings(store: Store, name: str, *windows: str, at: datetime.datetime = NOW) -> Findings:
    return find(Facts(store, at), Selection(name, "home", windows), series=True)


def only(store: Store, name: str, *windows: str, at: datetime.datetime = NOW) -> Finding:
    (finding,) = findings(store, name, *windows, at=at).findings
    return finding


def room(mean: float) -> np.ndarray:
    shares = np.exp(-0.5 * ((np.arange(16) + 0.5 - mean) / 2) ** 2)
    return shares / shares.sum()


class TestSentence:
    def test_change_names_the_value_before_and_its_day(self, store: Store):
        shares = {day: room(6 if i < 15 else 10) for i, day in enumerate(days(30))}
        fill(store, "home", ROOM, dict.fromkeys(days(30), 4000), shares, "°C", asked="8:\nmedian\nmean")
        result = findings(store, "room")
        share, median, mean = result.findings
        assert re.fullmatch(
            r"8 °C and above: 8\d% of devices \(8\d to 8\d%\), 21 to 27 Nov\. "
            r"Up from 1\d% before 13 Nov \(certain\)\.",
            share.sentence,
        )
        assert re.fullmatch(
            r"Median: 10\.5 °C \(9\.0 to 11\.0\), 21 to 27 Nov\. Up from 5\.5 °C before 13 Nov \(certain\)\.",
            median.sentence,
        )
        assert re.search(r"Up from (5|6)\.\d+ °C before 13 Nov \(certain\)\.$", mean.sentence)
        assert result.sentence == f"{share.sentence} {median.sentence} {mean.sentence}"
        assert share.change is not None
        assert share.change.low < 0.69 < share.change.high
        assert (share.direction, share.quantity, len(share.series)) == ("up", "share", 30)
        assert (share.low or 1) < 0.843 < (share.high or 0)
        assert median.change is not None
        assert 2.5 < median.change.low < 4 < median.change.high < 7

    def test_change_of_a_quantile_is_that_quantile(self, store: Store):
        shares = {day: room(4 if i < 15 else 8) for i, day in enumerate(days(30))}
        fill(store, "home", ROOM, dict.fromkeys(days(30), 4000), shares, "°C", asked="90%\n10%")
        for finding, away in zip(findings(store, "room").findings, (2.6, -2.6), strict=True):
            assert finding.change is not None
            assert finding.change.before == pytest.approx(4 + away, abs=0.8)
            assert finding.change.after == pytest.approx(8 + away, abs=0.8)
        upper = findings(store, "room").findings[0].change
        assert upper is not None
        assert upper.low < 4 < upper.high

    def test_no_change_names_its_start_and_the_detectable_size(self, store: Store):
        fill(store, "home", ROOM, dict.fromkeys(days(30), 4000), room(6), "°C", asked="8:\nmedian")
        share, median = findings(store, "room").findings
        same = r"No change since 30 Oct; a change of \d(\.\d)? points would have been detected\."
        assert re.search(same, share.sentence)
        assert re.search(r"a change of 0\.\d+ °C would have been detected\.$", median.sentence)
        assert (share.direction, share.since) == ("none", datetime.date(2026, 10, 30))
        assert share.detectable is not None
        assert median.detectable is not None
        assert 0.005 < share.detectable < 0.05

    def test_first_week_does_not_mention_change(self, store: Store):
        fill(store, "home", YES, dict.fromkeys(days(8), 2000), [0.9, 0.1])
        finding = only(store, "door")
        assert re.fullmatch(r"Yes: \S+% of devices \(.*%\), 21 to 27 Nov\.", finding.sentence)
        assert (finding.direction, finding.since) == ("", None)

    def test_first_look_for_changes_is_after_eight_complete_days(self, store: Store):
        fill(store, "home", ROOM, dict.fromkeys(days(9), 4000), room(6), "°C", asked="8:\nmedian")
        assert [finding.since for finding in findings(store, "room").findings] == [
            datetime.date(2026, 11, 20)
        ] * 2

    @pytest.mark.parametrize(
        ("shares", "start"), [([1, 0], "Yes: at most "), ([0, 1], "Yes: at least ")], ids=["none", "all"]
    )
    def test_scale_ends_are_bounds(self, store: Store, shares: list[int], start: str):
        fill(store, "home", YES, {days(1)[0]: 3000}, shares)
        assert re.fullmatch(f"{start}.*% of devices, 27 Nov\\.", only(store, "door").sentence)

    def test_old_change_starts_the_unchanged_period(self, store: Store):
        shares = {day: [0.9, 0.1] if i < 20 else [0.6, 0.4] for i, day in enumerate(days(80))}
        fill(store, "home", YES, dict.fromkeys(days(80), 2000), shares)
        finding = only(store, "door")
        assert (finding.change, finding.since) == (None, datetime.date.fromisoformat(days(80)[20]))

    def test_past_year_is_named(self, store: Store):
        fill(store, "home", YES, dict.fromkeys(days(3, "2026-01-02"), 2000), [0.9, 0.1])
        at = datetime.datetime(2027, 3, 1, tzinfo=datetime.UTC)
        assert (
            ", 31 Dec 2025 to 2 Jan 2026. Last report 2 Jan 2026." in findings(store, "door", at=at).sentence
        )

    def test_missing_days_are_counted(self, store: Store):
        some = [day for day in days(7) if not day.endswith("23")]
        fill(store, "home", YES, dict.fromkeys(some, 2000), [0.9, 0.1])
        assert "21 to 27 Nov (6 of 7 days)." in only(store, "door").sentence

    def test_silence_is_dated_after_two_windows(self, store: Store):
        fill(store, "home", YES, dict.fromkeys(days(3), 2000), [0.9, 0.1])
        for hour, silent in ((datetime.timedelta(hours=35), False), (datetime.timedelta(hours=36), True)):
            sentence = findings(store, "door", at=NOW + hour).sentence
            assert sentence.endswith(" Last report 27 Nov.") == silent


class TestAmount:
    @pytest.mark.parametrize(
        ("value", "low", "high", "text"),
        [
            (0.19, 0.18, 0.20, "19% of devices (18 to 20%)"),
            (0.235, 0.17, 0.30, "24% of devices (17 to 30%)"),
            (0.052, 0.031, 0.072, "5% of devices (3 to 7%)"),
            (0.0412, 0.0411, 0.0413, "4.12% of devices (4.11 to 4.13%)"),
            (0.02, -0.03, 0.068, "at most 7% of devices"),
            (0.0, -0.001, 0.0, "at most 0.1% of devices"),
            (-0.2, -0.3, -0.1, "at most 0.1% of devices"),
            (0.98, 0.95, 1.01, "at least 95% of devices"),
            (1.0, 0.99999, 1.00001, "at least 99.9% of devices"),
            (1.2, 1.1, 1.3, "at least 99.9% of devices"),
            (0.5, -0.1, 1.1, "any share of devices"),
        ],
    )
    def test_share_reads_with_its_interval(self, value: float, low: float, high: float, text: str):
        assert amount(Row("", value, low, high), None) == text

    def test_reading_keeps_its_unit(self):
        assert amount(Row("", 21.58, 21.01, 22.14), "°C") == "21.6 °C (21.0 to 22.1)"


class TestTooFew:
    def test_names_the_missing_reports_and_the_date(self, store: Store):
        fill(store, "home", YES, {"2026-11-27": 8, "2026-11-28": 4})
        result = findings(store, "door")
        assert (result.enough, result.findings[0].value) == (False, None)
        says = r"12 reports so far\. About (\d+) are needed for ±10 points; at this rate, by (\d+) Dec\."
        match = re.fullmatch(says, result.sentence)
        assert match is not None
        # 1.96² (e²/(e² - 1)² + 1/4) / 0.1² = 165, plus a small-sample correction; 8 reports a day
        assert 160 <= int(match[1]) <= 240
        assert abs((int(match[1]) - 12) / 8 - 2 - int(match[2])) <= 2

    def test_insufficient_rate_needs_a_longer_period(self, store: Store):
        fill(store, "home", YES, dict.fromkeys(days(20), 2))
        needed = r"14 reports in 7 days\. About \d+ are needed for ±10 points; at this rate, that takes \d\d "
        assert re.match(f"{needed}days, so choose a longer period", only(store, "door").sentence)

    def test_target_is_rounded_before_reports_are_counted(self, store: Store):
        """±10% of 25 °C is announced as ±2 °C, which needs 1.56 times as many reports as ±2.5 °C."""
        payload = number_json(25, name="room", low=0, high=25_000, epsilon=1_000_000)
        fill(store, "home", payload, {"2026-11-27": 40}, unit="°C", asked="mean")
        match = re.search(r"About ([\d,]+) are needed for ±2 °C", only(store, "room").sentence)
        assert match is not None
        needed = reports_needed(parse_experiment(payload), MeanIndex(), 2.0)  # two bins
        assert needed <= int(match[1].replace(",", "")) < needed + 1000

    def test_names_questions_without_an_answer(self, store: Store):
        """Of 28 reports, only the mean is known to better than 60% of the range."""
        fill(store, "home", ROOM, dict.fromkeys(days(7), 4), room(6), "°C", asked="8:\nmean\n10%")
        mean, *others = findings(store, "room").lines
        assert mean.startswith("Mean: ")
        assert others == ["8 °C and above: too few reports to say.", "10% quantile: too few reports to say."]

    def test_needs_two_reports(self, store: Store):
        ask_fleet(store, "home", YES)
        assert findings(store, "door").sentence.startswith("No report has been counted so far.")
        fill(store, "home", MODES, {"2026-11-27": 1})
        assert findings(store, "mode").sentence.startswith("1 report has been counted so far.")

    def test_running_day_counts_for_its_elapsed_part(self):
        assert reports_a_day(["2026-11-28"], 100, NOW) == pytest.approx(200)
        assert reports_a_day(["2026-11-27", "2026-11-28"], 150, NOW) == pytest.approx(100)
        assert reports_a_day(["all"], 150, NOW) == 0


class TestMostCommon:
    def sentence(self, store: Store, shares: list[float], reports: int) -> str:
        fill(store, "home", MODES, dict.fromkeys(days(7), reports), shares, seed=5)
        return only(store, "mode").sentence

    def test_clear_leader_is_named_alone(self, store: Store):
        assert self.sentence(store, [0.1, 0.7, 0.2], 3000).startswith("Boost is most common: ")

    def test_names_both_possible_leaders(self, store: Store):
        text = self.sentence(store, [0.46, 0.44, 0.1], 300)
        says = (
            r"(Eco or boost|Boost or eco) is most common \(\d in 10 that it is (eco|boost), at \d+(\.\d)?%\)"
        )
        assert re.match(says, text)

    def test_change_is_selected_among_all_labels(self, store: Store):
        before, after = [0.6, 0.3, 0.1], [0.68, 0.22, 0.1]
        by_day = {day: after if n >= 14 else before for n, day in enumerate(days(28))}
        fill(store, "home", MODES, dict.fromkeys(by_day, 200), by_day, seed=5)
        chances = []
        for question in ("eco", "eco\nboost\nother", "most common"):
            store.add_experiment("home", MODES, description=Description(asked=question))
            finding = findings(store, "mode").findings[0]
            assert finding.change is not None
            assert certainty(finding.change.chance) in finding.sentence
            chances.append(finding.change.chance)
        alone, among_three, leader = chances
        assert leader == among_three == pytest.approx(3 * alone, rel=0.2)

    def test_equal_shares_have_no_leader(self, store: Store):
        payload = experiment_json(
            name="mode", type="choice", labels=list("abcde"), mechanism="grr", epsilon=4_000_000
        )
        fill(store, "home", payload, dict.fromkeys(days(7), 300), [0.199, 0.199, 0.199, 0.199, 0.199, 0.005])
        assert only(store, "mode").sentence == "No label leads yet, 21 to 27 Nov."


class TestComparisons:
    """The smallest detectable change grows with the number of questions."""

    BINS = tuple(f"{n}:{n + 1}" for n in range(15))

    def filled(self, store: Store, *questions: str) -> None:
        fill(store, "home", ROOM, dict.fromkeys(days(30), 1000), room(6), "°C", asked="\n".join(questions))

    @pytest.mark.parametrize(("question", "tolerance"), [("8:", 1e-9), ("mean", 1e-9), ("median", 0.1)])
    def test_file_questions_share_the_allowance(self, store: Store, question: str, tolerance: float):
        self.filled(store, question)
        cache, sizes = ResultCache(), []
        for asked in ((question,), (question, *self.BINS)):
            store.add_experiment("home", ROOM, description=Description("°C", asked="\n".join(asked)))
            finding = find(Facts(store, NOW, cache), Selection("room", "home")).findings[0]
            assert finding.detectable is not None
            unit = None if finding.quantity == "share" else "°C"
            assert f"a change of {size(finding.detectable, unit)} would" in finding.sentence
            sizes.append(finding.detectable)
        more = 0.84 - 0.2 * math.log(29 / 8)  # four of five such changes are detected
        expected = (boundary(29, 16) + more) / (boundary(29) + more)
        assert sizes[1] / sizes[0] == pytest.approx(expected, rel=tolerance)

    def test_trend_shares_the_allowance_with_the_file(self, store: Store):
        self.filled(store, "8:", *self.BINS)
        question = Question(experiment="room", fleet="home", ranges=("8:",), trend=True)
        reply = ask(Facts(store, NOW), question)
        assert reply.findings is not None
        _, start, rest = reply.findings.findings[0].sentence.partition("No change ")
        assert reply.answers[0].notes[0] == f"8 °C and above: {start.lower()}{rest}"

    def test_tables_of_a_trend_share_the_allowance(self, store: Store):
        self.filled(store, "8:")
        question = Question(experiment="room", fleet="home", ranges=self.BINS, quantiles=(0.5,), trend=True)
        reply = ask(Facts(store, NOW), question)
        _, readings = reply.answers
        _, no_change = readings.notes[0].split("median: n")
        assert reply.headline.endswith(f"N{no_change}")


class TestPair:
    """Version 1.3 crashes more often; of 40 days with reports, the finding covers the last 7."""

    CRASHES = experiment_json(
        name="crash", type="pair", mechanism="grr", epsilon=4_000_000,
        of=[
            {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]},
            {"name": "crashed", "type": "bool"},
        ],
    )  # fmt: skip
    VERSIONS = "version=1.2", "version=1.3"

    @pytest.mark.parametrize(
        ("given", "comparisons"), [(f"{VERSIONS[0]}, {VERSIONS[1]}", 3), ("version", 6)], ids=["two", "all"]
    )
    def test_certainty_counts_cases_differences_and_days(self, store: Store, given: str, comparisons: int):
        shares = [0.49, 0.06, 0.37, 0.08, 0.0, 0.0]
        asked = f"crashed=yes given {given}"
        fill(store, "home", self.CRASHES, dict.fromkeys(days(40), 400), shares, asked=asked, seed=2)
        facts = Facts(store, NOW)
        question = Question(experiment="crash", fleet="home", of="crashed=yes", given=self.VERSIONS)
        (row,) = ask(facts, question).answers[-1].rows
        assert isinstance(row, DifferenceRow)
        (finding,) = find(facts, Selection("crash", "home")).findings
        z = abs(float(special.ndtri(row.p / 2)))
        chance = false_alarm_chance(z, 40, comparisons)
        assert CERTAIN < chance < 0.05
        assert f"They differ ({certainty(chance)})" in finding.sentence


class TestCases:
    """The share of crashes given two versions, which change at different times."""

    CASES = "version=1.2", "version=1.3"
    TEMP = experiment_json(
        name="temp", type="pair", mechanism="grr", epsilon=6_000_000,
        of=[
            {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]},
            {"name": "temp", "type": "number", "low": 0, "high": 8_000, "bins": 8},
        ],
    )  # fmt: skip

    def finding(self, store: Store, count: int, last: Mapping[str, int]) -> Finding:
        """Return the finding if the share rises from 10% to 50%, `last` days before the last day."""
        by_day = {}
        for index, day in enumerate(days(count)):
            crashes = [0.5 if count - index <= last[case] else 0.1 for case in self.CASES]
            by_day[day] = [x for share in crashes for x in (0.5 * (1 - share), 0.5 * share)] + [0.0, 0.0]
        asked = f"crashed=yes given {', '.join(self.CASES)}"
        fill(store, "home", TestPair.CRASHES, dict.fromkeys(by_day, 3000), by_day, asked=asked)
        return only(store, "crash")

    @pytest.mark.parametrize("later", CASES)
    def test_newest_change_is_named(self, store: Store, later: str):
        finding = self.finding(store, 30, {case: 8 if case == later else 18 for case in self.CASES})
        text = rf"With {later}: up from (9|10|11)(\.\d)?% before 20 Nov"
        assert re.search(text, finding.sentence)
        assert finding.change is not None
        assert finding.change.since == datetime.date(2026, 11, 20)

    def test_no_change_is_known_since_the_last_one(self, store: Store):
        finding = self.finding(store, 60, {self.CASES[0]: 40, self.CASES[1]: 60})
        assert finding.change is None
        assert finding.since == datetime.date.fromisoformat(days(40)[0])
        assert finding.sentence.endswith("No change since 19 Oct.")

    @pytest.mark.parametrize(
        ("payload", "reports", "text"),
        [
            (TestPair.CRASHES, 30, ". About 620 are needed for ±10 points; at this rate, by 17 Dec."),
            (TestPair.CRASHES, 12, ": too few to say anything yet."),
            (TEMP, 12, ": too few to say anything yet."),
        ],
        ids=["two shares", "one share", "means"],
    )
    def test_needed_reports_are_known_for_two_shares(
        self, store: Store, payload: bytes, reports: int, text: str
    ):
        domain, target = (6, "crashed=yes") if payload == TestPair.CRASHES else (24, "temp")
        shares = np.arange(domain) < (domain if domain == 6 else 16)
        asked = f"{target} given version"
        e = fill(store, "home", payload, {days(1)[0]: reports}, shares / shares.sum(), asked=asked)
        assert only(store, e.name).sentence == f"{reports} reports so far{text}"

    def test_reading_has_its_unit(self, store: Store):
        shares = [0.5 * (index == 2) for index in range(8)] + [0.5 * (index == 5) for index in range(8)]
        asked = f"temp given {', '.join(self.CASES)}"
        fill(store, "home", self.TEMP, {days(1)[0]: 9000}, [*shares, *[0.0] * 8], "°C", asked=asked)
        finding = only(store, "temp")
        assert (finding.quantity, finding.unit) == ("reading", "°C")
        assert re.search(r"2\.\d+ °C \(.*\) with version=1\.2; 5\.\d+ °C", finding.sentence)
        assert finding.to_dict()["from"] == finding.to_dict()["to"] == days(1)[0]


class TestDailyRhythm:
    def shares(self, windows: list[str]) -> Mapping[str, list[float]]:
        """Return shares of 20% by day and 40% by night."""
        return {w: [0.8, 0.2] if 6 <= int(w[-2:]) < 18 else [0.6, 0.4] for w in windows}

    @pytest.mark.parametrize("hour", [0, 3, 9, 15, 21])
    @pytest.mark.parametrize("day", [2, 9, 16])
    def test_is_not_a_change_at_any_hour(self, tmp_path: Path, hour: int, day: int):
        """In this large fleet, day and night differ by 50 standard errors."""
        windows = hours(day) + [f"2026-11-28T{h:02}" for h in range(hour)]
        with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
            fill(store, "home", HOURLY, dict.fromkeys(windows, 3000), self.shares(windows))
            at = datetime.datetime(2026, 11, 28, hour, 3, tzinfo=datetime.UTC)
            finding = only(store, "door", at=at)
        assert finding.change is None
        assert finding.low is not None
        assert finding.high is not None
        assert finding.low < 0.3 < finding.high

    def test_first_day_and_interrupted_days_are_left_out(self, store: Store, monkeypatch: pytest.MonkeyPatch):
        """A first day without daytime hours, or a day without its night, would look like a change."""
        windows = [w for w in hours(20) if not w.startswith(days(20)[0]) or int(w[-2:]) >= 18]
        gap = datetime.date.fromisoformat(days(20)[12])
        windows = [w for w in windows if not w.startswith(f"{gap}") or 6 <= int(w[-2:]) < 18]
        fill(store, "home", HOURLY, dict.fromkeys(windows, 3000), self.shares(windows))
        at = datetime.datetime(2026, 11, 28, 0, 3, tzinfo=datetime.UTC)
        assert only(store, "door", at=at).change is not None
        monkeypatch.setattr(Store, "interrupted_days", lambda self: frozenset({gap}))
        assert only(store, "door", at=at).change is None


class TestVersions:
    def bins(self, low: int, high: int, bins: int) -> bytes:
        return number_json(bins, name="room", low=1000 * low, high=1000 * high, epsilon=2_000_000)

    def normal(self, low: int, high: int, bins: int) -> np.ndarray:
        """Return the same population, 6 ± 2, on the given bins."""
        edges = (np.linspace(low, high, bins + 1) - 6) / 2
        below = np.array([0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges])
        below[0], below[-1] = 0, 1
        return np.diff(below)

    @pytest.mark.parametrize("statistic", ["median", "90%", "8:", "mean"])
    @pytest.mark.parametrize(
        "grid", [(0, 16, 32), (0, 20, 16), (-4, 12, 16)], ids=["finer", "wider", "moved"]
    )
    def test_other_bins_are_not_a_change(self, store: Store, statistic: str, grid: tuple[int, int, int]):
        for i, (span, shape) in enumerate(((days(40)[:25], (0, 16, 16)), (days(40)[25:], grid))):
            reports = dict.fromkeys(span, 4000)
            fill(store, "home", self.bins(*shape), reports, self.normal(*shape), "°C", i + 5, statistic)
        assert only(store, "room").change is None

    def more_labels(self, store: Store, day: int) -> str:
        payload = experiment_json(
            name="mode", type="choice", labels=["eco", "boost", "night"], mechanism="grr", epsilon=4_000_000
        )
        fill(store, "home", MODES, dict.fromkeys(days(40)[:day], 2000), [0.5, 0.3, 0.2])
        fill(store, "home", payload, dict.fromkeys(days(40)[day:], 2000), [0.2, 0.2, 0.5, 0.1])
        return only(store, "mode").sentence

    def test_newest_version_answers_after_four_days(self, store: Store):
        assert self.more_labels(store, 36).startswith("Night is most common: ")

    def test_answer_is_kept_if_older_versions_lack_it(self, store: Store):
        assert self.more_labels(store, 30).startswith("Night is most common: ")


class TestRecentChange:
    def test_both_levels_are_named_within_the_period(self, store: Store):
        shares = {day: [0.8, 0.2] if i < 59 else [0.5, 0.5] for i, day in enumerate(days(60))}
        fill(store, "home", YES, dict.fromkeys(days(60), 5000), shares)
        text = r"Up from (19|20)\.\d% before 27 Nov to (49|50|51)\.\d% since 27 Nov \(certain\)\."
        assert re.search(text, only(store, "door").sentence)

    def test_few_days_name_only_the_certain_level(self, store: Store):
        span = days(9, "2026-10-27")
        shares = {day: [0.8, 0.2] if day < "2026-10-22" else [0.6, 0.4] for day in span}
        fill(store, "home", YES, dict.fromkeys(span, 5000), shares)
        change = only(store, "door", at=datetime.datetime(2026, 10, 28, 12, tzinfo=datetime.UTC)).change
        assert change is not None
        assert change.since <= datetime.date(2026, 10, 22) <= change.settled
        assert change.before == pytest.approx(0.2, abs=0.04)
        assert change.after == pytest.approx(0.4, abs=0.04)

    def test_short_level_before_is_dated(self, store: Store):
        shares = {day: [0.5, 0.5] if day == "2026-11-18" else [0.8, 0.2] for day in days(60)}
        fill(store, "home", YES, dict.fromkeys(days(60), 20_000), shares)
        assert re.search(r"Down from (49|50)\.\d% \(18 Nov; certain\)\.", only(store, "door").sentence)


class TestOneBin:
    @pytest.mark.parametrize("statistic", ["median", "90%", "10%"])
    def test_quantile_is_not_called_unchanged(self, store: Store, statistic: str):
        """All readings move from bin 1 to bin 6, and no edge near the quantile shows it."""
        shares = {day: np.eye(8)[1 if i < 25 else 6] for i, day in enumerate(days(30))}
        payload = number_json(8, name="room", low=0, high=8_000, epsilon=2_000_000, mechanism="grr")
        fill(store, "home", payload, dict.fromkeys(days(30), 4000), shares, asked=statistic)
        assert "No change" not in only(store, "room").sentence


class TestSeries:
    @pytest.mark.parametrize(
        ("payload", "question"), [(YES, "yes"), (ROOM, "median")], ids=["share", "reading"]
    )
    def test_leaves_out_windows_with_too_few_reports(self, store: Store, payload: bytes, question: str):
        first, middle, final = days(3)
        reports = {first: 2000, middle: 4, final: 2000}
        experiment = fill(store, "home", payload, reports, unit="°C", asked=question)
        series = only(store, experiment.name).series
        assert [row.window for row in series] == [first, final]


class TestHours:
    @pytest.mark.parametrize(
        ("first", "final", "text"),
        [
            ("2026-11-27T08", "2026-11-27T19", "27 Nov, 08:00 to 20:00 UTC"),
            ("2026-11-27T20", "2026-11-27T23", "27 Nov, 20:00 to 24:00 UTC"),
            ("2026-11-27T14", "2026-11-28T01", "27 Nov 14:00 to 28 Nov 02:00 UTC"),
            ("2026-11-27T23", "2026-11-28T00", "27 Nov 23:00 to 28 Nov 01:00 UTC"),
            ("2026-11-26T20", "2026-11-27T23", "26 to 27 Nov"),
        ],
    )
    def test_period_ends_when_its_last_hour_ends(self, first: str, final: str, text: str):
        start, end = (datetime.datetime.strptime(item, "%Y-%m-%dT%H") for item in (first, final))
        count = round((end - start).total_seconds() / 3600) + 1
        windows = [f"{start + datetime.timedelta(hours=n):%Y-%m-%dT%H}" for n in range(count)]
        assert dates(period_of(windows), NOW) == text

    def test_silence_is_dated_to_the_hour(self, store: Store):
        fill(store, "home", HOURLY, dict.fromkeys(hours(1), 500), [0.9, 0.1])
        at = datetime.datetime(2026, 11, 28, 2, 30, tzinfo=datetime.UTC)
        assert findings(store, "door", at=at).sentence.endswith(" Last report 27 Nov, 23:00 to 24:00 UTC.")

    def test_daily_reports_have_no_hours(self):
        with pytest.raises(
            UsageError, match="counted by the day; give a length in days, such as 1d, not 12h"
        ):
            last_windows("12h", days(5), NOW)


class TestKinds:
    def test_every_kind_of_experiment_has_a_finding(self, store: Store):
        fill_kinds(store)
        sentences = {name: findings(store, name) for name in Facts(store).names("home")}
        assert sentences["delay"].sentence.startswith("Mean: ")
        assert sentences["room"].sentence.startswith("Median: ")
        assert sentences["crash"].sentence.startswith("Most common is 1.0.0…: ")
        pair = (
            r"crashed=yes: (49|50|51)% \(.* to .*%\) with version=1\.0; at most .*% with version=.*, "
            r"19 to 21 Nov\. They differ \(certain\)\. Last report 21 Nov\."
        )
        assert re.fullmatch(pair, sentences["crash_by_version"].sentence)
        advice = (
            "Name the texts to look for, either as candidates in the experiment's file or with candidates"
        )
        assert (sentences["firmware"].sentence, sentences["firmware"].enough) == (
            f"{advice}(...). Last report 21 Nov.",
            False,
        )

    def test_listed_text_stands_out_among_all_of_them(self, store: Store):
        listed = "\n".join(f"1.{minor}" for minor in range(20))
        fill(store, "home", TEXT, {"2026-11-27": 20_000}, asked=listed)
        question = Question(experiment="firmware", fleet="home")
        first = ask(Facts(store, NOW), question).answers[0].rows[0]
        assert isinstance(first, CandidateRow)
        assert first.p is not None
        assert first.p < 0.05
        assert only(store, "firmware").sentence == "None of the 20 listed texts stands out yet."

    def test_change_is_found_with_the_usual_number_of_slots(self, store: Store):
        text = {"name": "firmware", "type": "text", "salt": "s1", "slots": USUAL_SLOTS}
        payload = experiment_json(**text, mechanism="grr", epsilon=16_000_000)
        before, after = np.zeros((2, USUAL_SLOTS))
        slots = [parse_experiment(payload).bucket(word) or 0 for word in WORDS[:2]]
        before[slots], after[slots] = (0.8, 0.2), (0.4, 0.6)
        by_day = {day: before if n < 12 else after for n, day in enumerate(days(20))}
        fill(store, "home", payload, dict.fromkeys(by_day, 300), by_day, asked=WORDS[0])
        assert "Down from " in find(Facts(store, NOW), Selection("firmware", "home")).sentence

    @refusals(
        (ROOM, "warm", "a range must be low:high"),
        (ROOM, "120%", "between 0 and 100%, not 120%"),
        (YES, "median", "door has no label median"),
        (MODES, "8:", "mode has no label 8:"),
        call=lambda payload, statistic: asks_of(parse_experiment(payload), [statistic]),
        error=UnitsError,
    )
    def test_rejects_unsuitable_questions(self, refusal: Refusal):
        refusal.check()


class TestPeriod:
    def test_chosen_period_affects_the_value_but_not_the_change(self, store: Store):
        shares = {day: [0.9, 0.1] if i < 20 else [0.6, 0.4] for i, day in enumerate(days(30))}
        fill(store, "home", YES, dict.fromkeys(days(30), 2000), shares)
        earlier = only(store, "door", *days(30)[:7])
        assert earlier.value == pytest.approx(0.1, abs=0.03)
        assert "29 Oct to 4 Nov" in earlier.sentence
        assert earlier.change is not None
        assert earlier.change.since == datetime.date(2026, 11, 18)

    def test_entire_reply_covers_the_same_period(self, store: Store):
        fill(store, "home", YES, dict.fromkeys(days(30), 2000), [0.9, 0.1])
        facts = Facts(store, NOW)
        for windows in ((), tuple(days(30)[:5])):
            reply = ask(facts, Question(experiment="door", fleet="home", windows=windows, ranges=("yes",)))
            (row,) = next(item.rows for item in reply.answers if item.kind == "ranges")
            assert reply.findings is not None
            (finding,) = reply.findings.findings
            assert (row.value, row.low, row.high) == (finding.value, finding.low, finding.high)
            assert reply.once.reports == len(windows or days(7)) * 2000

    def test_epsilon_covers_the_value_before_a_change(self, store: Store):
        shares = {day: [0.9, 0.1] if i < 25 else [0.6, 0.4] for i, day in enumerate(days(30))}
        fill(store, "home", YES, dict.fromkeys(days(30), 2000), shares)
        reply = ask(Facts(store, NOW), Question(experiment="door", fleet="home"))
        assert reply.findings is not None
        before, after = reply.findings.histograms
        assert (before, after) == (tuple(days(30)[1:25]), tuple(days(30)[25:]))
        week = ask(Facts(store, NOW), Question(experiment="door", fleet="home", windows=tuple(days(30)[:3])))
        assert reply.once.reports == 2000 * (7 + 24 + 5)
        assert reply.once.histogram is not None
        assert week.once.histogram is not None
        assert reply.every_day.histogram is not None
        assert reply.every_day == week.every_day


def rendered(store: Store, name: str, at: datetime.datetime) -> dict[str, str]:
    """Return the sentence of a finding as each interface shows it."""
    facts, selection = Facts(store, at), Selection(name, "home")
    question = Question(experiment=name, fleet="home")
    replies = {"estimate": ask(facts, question)}
    with contextlib.suppress(EstimateError):  # a trend needs two windows
        replies["trend"] = ask(facts, question.replace(trend=True))
    sentences = {kind: reply.headline for kind, reply in replies.items()}
    sentences |= {f"{kind}, JSON": reply.to_dict()["finding"] for kind, reply in replies.items()}
    return sentences | {
        "Python": str(find(facts, selection, series=True)),
        "result": result_of(store, "home", name, at, live=True).finding,
    }


def store_shapes() -> dict[str, tuple[bytes, dict[str, int], Any, str]]:
    """Return 30 fleets: payload, reports per window, shares per window, questions."""
    step = {day: room(6 if i < 15 else 8) for i, day in enumerate(days(30))}
    rise = {day: [0.9 - i / 60, 0.1 + i / 60] for i, day in enumerate(days(30))}
    shapes: dict[str, tuple[bytes, dict[str, int], Any, str]] = {}
    for reports in (40, 400, 4_000):
        for question in ("", "median", "mean", "8:\nmedian", "90%"):
            shapes[f"step {question!r} {reports}"] = (ROOM, dict.fromkeys(days(30), reports), step, question)
        for count in (1, 3, 9, 30):
            shares = {day: rise[day] for day in days(count)}
            shapes[f"rise {count} {reports}"] = (YES, dict.fromkeys(days(count), reports), shares, "")
        shapes[f"labels {reports}"] = (MODES, dict.fromkeys(days(20), reports), [0.5, 0.3, 0.2], "")
    return shapes


class TestMissingReadings:
    """Sensors fail in 10% of devices, and in 40% from day 15 onwards; the others do not change."""

    def filled(self, store: Store, payload: bytes, shares: np.ndarray, **how: Any):
        def by_day(day: int) -> np.ndarray:
            missing = 0.1 if day < 15 else 0.4
            return np.append((1 - missing) * shares, missing)

        population = {day: by_day(i) for i, day in enumerate(days(30))}
        fill(store, "home", payload, dict.fromkeys(days(30), 4000), population, **how)

    def test_failing_sensors_are_no_change(self, store: Store):
        payload = number_json(
            15, name="room", low=0, high=15_000, epsilon=2_000_000, mechanism="hh", fanout=4, cells=[4, 16],
            missing=1,
        )  # fmt: skip
        shares = room(8)[:15] / room(8)[:15].sum()
        self.filled(store, payload, shares, unit="°C", asked="9:\nmedian\nmean")
        for finding in findings(store, "room").findings:
            assert finding.direction == "none", finding.sentence
        share, median, mean = findings(store, "room").findings
        assert share.value == pytest.approx(shares[9:].sum(), abs=0.05)
        assert mean.value == pytest.approx(float(shares @ (np.arange(15) + 0.5)), abs=0.5)
        assert median.value == pytest.approx(8.5, abs=1)

    def test_yes_or_no_is_among_those_with_a_reading(self, store: Store):
        payload = experiment_json(name="door", epsilon=2_000_000, mechanism="grr", missing=1)
        self.filled(store, payload, np.array([0.7, 0.3]))
        finding = only(store, "door")
        assert finding.direction == "none"
        assert finding.value == pytest.approx(0.3, abs=0.04)


class TestInterfaces:
    @pytest.mark.parametrize("shape", store_shapes())
    def test_all_show_the_same_sentence(self, store: Store, shape: str):
        payload, reports, shares, questions = store_shapes()[shape]
        experiment = fill(store, "home", payload, reports, shares, "°C", asked=questions)
        sentences = rendered(store, experiment.name, NOW)
        assert len(set(sentences.values())) == 1, sentences

    def test_commands_print_it_first(self, store: Store, tmp_path: Path):
        today = datetime.datetime.now(datetime.UTC).date()
        # Exclude windows that ended too recently for a published result.
        windows = [(today - datetime.timedelta(days=n)).isoformat() for n in range(13, 1, -1)]
        fill(store, "home", YES, dict.fromkeys(windows, 2000), [0.7, 0.3])
        url = f"sqlite:///{tmp_path}/store.sqlite"
        with hushmote.open(url) as reader:
            sentence = str(reader.fleet().experiment("door").finding)
        assert "No change since " in sentence

        def printed(*arguments: str) -> str:
            return " ".join(run_hushmote(*arguments, "--store", url, cwd=tmp_path).split())

        assert printed("estimate", "door").startswith(sentence)
        assert printed("estimate", "door", "--trend").startswith(sentence)
        assert json.loads(printed("estimate", "door", "--json"))["finding"] == sentence
        assert sentence in printed("status")

    def test_trends_note_whether_their_series_changed(self, store: Store):
        shares = {day: room(6 if i < 15 else 10) for i, day in enumerate(days(30))}
        fill(store, "home", ROOM, dict.fromkeys(days(30), 4000), shares, "°C", asked="8:\nmedian")
        question = Question(
            experiment="room", fleet="home", ranges=("8:", ":4"), quantiles=(0.5,), trend=True
        )
        reply = ask(Facts(store, NOW), question)
        share, median = reply.answers
        assert reply.findings is not None
        rises = [item.sentence.partition(" Up ")[2] for item in reply.findings.findings]
        assert f"8 °C and above: up {rises[0]}" in share.notes[0]
        assert re.search(
            r"^below 4 °C: down from 1\d\.\d% before 13 Nov \(certain\)\.", share.notes[0], re.MULTILINE
        )
        assert median.notes[0] == f"median: up {rises[1]}"
        assert reply.headline.startswith(f"{reply.findings.findings[0].sentence} Below 4 °C: at most 0.")
        assert re.search(r"Down from 1\d\.\d% before 13 Nov \(certain\)\. Median: ", reply.headline)
        assert not any("up from" in note for item in reply.to_print for note in item.notes)
