"""The change detector: boundary, false alarms, weekdays, power, replayed looks, skew."""

import math
from dataclasses import dataclass
from math import comb

import numpy as np
import pytest

from hushmote.server.arrays import Floats, Ints
from hushmote.server.estimate.detector import (
    MIN_DAYS,
    DailyView,
    Scan,
    boundary,
    false_alarm_chance,
    scan,
)

SEED = 20261128


@dataclass(frozen=True)
class KnownDays:
    """A series with given variances and third cumulants."""

    value: Floats
    variance: Floats
    third: Floats

    @property
    def weekdays(self) -> Ints:
        return np.arange(len(self.value))

    def view(self, start: int, stop: int) -> DailyView:
        days = slice(start, stop)
        return DailyView(self.value[days], self.variance[days], self.third[days])


def scanned(
    value: np.ndarray, variance: float | Floats = 1.0, third: float | Floats = 0.0, **how: int
) -> Scan:
    arrays = (np.broadcast_to(np.asarray(one, float), value.shape) for one in (variance, third))
    days = KnownDays(value.astype(np.float64), *arrays)
    return scan(lambda _: days, len(value), **how)


def tail(count: int, most: int, chance: float) -> float:
    """Return the probability that more than `most` of `count` events happen."""
    return 1 - sum(comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(most + 1))


class TestBoundary:
    def test_grows_with_days_and_questions(self):
        assert boundary(1) == pytest.approx(math.sqrt(9.04))
        assert boundary(30, 3) == pytest.approx(math.sqrt(9.04 + 2 * math.log(30) + 2 * math.log(3)))

    def test_chance_at_the_boundary_is_below_five_percent(self):
        for days, questions in ((8, 1), (365, 1), (365, 12)):
            assert 0.035 < false_alarm_chance(boundary(days, questions), days, questions) < 0.05
        assert false_alarm_chance(0.0, 30) == 1.0
        assert false_alarm_chance(9.0, 30) < 1e-12


class TestSteps:
    @pytest.mark.parametrize("sign", [1, -1])
    def test_reports_a_large_step_with_its_day_and_size(self, sign: int):
        value = 0.4 + sign * 0.1 * (np.arange(30) >= 17)
        result = scanned(value, 0.01**2)
        (change,) = result.changes
        assert (change.first, change.last, result.start) == (17, 17, 17)
        assert change.low <= sign * 0.1 <= change.high
        assert change.low * sign >= 0
        assert change.high * sign > 0
        assert abs(change.size) == pytest.approx(0.1, rel=0.1)
        assert change.chance < 1e-6

    @pytest.mark.parametrize("days", [8, 9, 10])
    @pytest.mark.parametrize("first", [2, 4, 6])
    def test_equally_good_days_form_a_range(self, days: int, first: int):
        """With weekday effects, a few days cannot determine when a step occurred."""
        (change,) = scanned(0.2 + 0.2 * (np.arange(days) >= first), 0.01**2).changes
        assert change.first <= first <= change.last

    def test_reports_two_steps_as_two_changes(self):
        day = np.arange(60)
        result = scanned(0.4 + 0.1 * (day >= 20) - 0.1 * (day >= 40), 0.01**2)
        assert [change.first for change in result.changes] == [20, 40]
        assert [change.size > 0 for change in result.changes] == [True, False]

    def test_reports_no_change_before_day_eight(self):
        value = np.append(np.zeros(3), np.ones(MIN_DAYS - 4))
        assert scanned(value, 1e-6) == Scan((), 0, MIN_DAYS - 1, None)

    def test_reported_change_stays_reported(self):
        """In a growing series, each later look reports the earlier looks' changes on the same day."""
        rng = np.random.default_rng(SEED)
        value = rng.standard_normal(80) + 3 * (np.arange(80) >= 30) - 3 * (np.arange(80) >= 55)
        reported: list[int] = []
        for days in range(1, 81):
            found = [change.report_day for change in scanned(value[:days]).changes]
            assert found[: len(reported)] == reported
            reported = found
        assert len(reported) == 2

    def test_day_without_estimate_is_skipped(self):
        day = np.arange(40)
        variance = np.where(day % 5 == 2, np.inf, 1e-4)
        value = np.where(day % 5 == 2, np.nan, 0.1 * (day >= 20))
        (change,) = scanned(value, variance).changes
        assert change.first == 20

    def test_detectable_step_is_found_in_four_of_five_cases(self):
        """Draw 500 series: at 0.8, a count outside 346 to 450 has probability 1e-9; accept 0.74 to 0.89."""
        rng = np.random.default_rng(SEED)
        size = scanned(np.zeros(30)).detectable
        assert size is not None
        late = size * (np.arange(30) >= 15)
        found = sum(bool(scanned(rng.standard_normal(30) + late).changes) for _ in range(500))
        assert 346 <= found <= 450


class TestFalseAlarms:
    def test_few_constant_series_are_reported_within_a_year(self):
        """Draw 150 series: at a rate of 0.05, more than 30 have probability 1e-10."""
        assert tail(150, 30, 0.05) < 1e-9
        rng = np.random.default_rng(SEED)
        assert sum(bool(scanned(rng.standard_normal(365)).changes) for _ in range(150)) <= 30

    @pytest.mark.parametrize("questions", [3, 20])
    def test_questions_share_one_allowance(self, questions: int):
        """Draw 60 fleets of several series for 60 days: at 0.05, more than 18 have probability 3e-10."""
        assert tail(60, 18, 0.05) < 1e-9
        rng = np.random.default_rng(SEED)
        fleets = [
            any(scanned(rng.standard_normal(60), questions=questions).changes for _ in range(questions))
            for _ in range(60)
        ]
        assert sum(fleets) <= 18

    @pytest.mark.parametrize("days", range(8, 43))
    def test_weekends_are_not_a_change(self, days: int):
        """Without noise, weekends differ by 200 standard errors; check each of the first 42 days."""
        value = np.where(np.arange(days) % 7 < 5, 0.4, 0.2)
        assert scanned(value, 0.001**2).changes == ()

    def test_rare_events_are_not_a_change(self):
        """Draw 200 fleets with 0.3 events a day for 60 days: at 0.05, more than 37 have probability 1e-10.

        Without the skew correction, Poisson jumps are reported in most of them.
        """
        assert tail(200, 37, 0.05) < 1e-9
        rng = np.random.default_rng(SEED)
        rate = 0.3
        series = rng.poisson(rate, (200, 60)).astype(float)
        assert sum(bool(scanned(one, rate, rate).changes) for one in series) <= 37
        assert sum(bool(scanned(one, rate).changes) for one in series) > 37

    def test_looks_before_erased_days_count(self):
        value = np.append(np.zeros(20), np.full(10, 0.19))
        assert scanned(value, 0.1**2).changes
        assert not scanned(value, 0.1**2, elapsed=3000).changes


class TestReportedSize:
    @pytest.mark.parametrize("first", [5, 15, 25])
    def test_interval_contains_the_true_step(self, first: int):
        """Draw 300 series with steps of two errors: at 0.93, over 51 misses have probability 1e-9."""
        assert tail(300, 51, 0.07) < 1e-8
        rng = np.random.default_rng(SEED)
        series = rng.standard_normal((300, 30)) + 2.0 * (np.arange(30) >= first)
        changes = [result.changes[0] for one in series if (result := scanned(one)).changes]
        misses = sum(not change.low <= 2.0 <= change.high for change in changes)
        assert len(changes) >= 100
        assert misses <= 0.17 * len(changes)
