"""Changes and trends: rates of false alarms, power, intervals and halves.

Each statistical test states its number of independent draws and the probability that correct code fails with
a fresh seed.
"""

from dataclasses import replace

import numpy as np
import pytest
from designs import bell, choice, draw, number
from scipy import stats

from hushmote.server import estimate as estimates
from hushmote.server.answers import change, moments, plot
from hushmote.server.answers.answer import Frame
from hushmote.server.answers.rows import ChangeRow, TrendRow
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import DoesNotFit, EstimateError, Statistic, mean
from hushmote.server.experiments.units import IndexRange, histogram_ranges, parse_range

NUMBER = number(32, 2, high=32_000)
F = bell(32, 14, 4)
RANGES = [IndexRange(0, 12, "below 12"), IndexRange(12, 18, "12 to 18"), IndexRange(30, 32, "30 and above")]


class TestHolm:
    def test_adjusts_as_published(self):
        # Worked by hand: 0.01*4, max(0.04, 0.02*3), max(0.06, 0.03*2), 0.5.
        assert change.holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
        assert change.holm([0.9, 0.9]) == [1, 1]
        assert change.holm([]) == []


def changes(answer) -> list[ChangeRow]:
    return list(answer.rows)


MEDIANS = number(64, 2)


def medians(moved: float, reports: int, rng: np.random.Generator) -> list[Estimates]:
    """Return two fleets whose medians are `moved` bins apart."""
    centre = 31.5 + rng.random()  # uniform between two edges
    return [draw(MEDIANS, bell(64, centre + by, 8), reports, rng) for by in (0, moved)]


class TestDetection:
    def test_finds_only_real_changes(self):
        rng = np.random.default_rng(2)
        before = draw(NUMBER, F, 200_000, rng)
        after = draw(NUMBER, bell(32, 17, 4), 200_000, rng)
        rows = {row.name: row for row in changes(change.changed_shares(before, after, RANGES))}
        assert rows["below 12"].p_adjusted < 1e-9
        assert rows["below 12"].high < -0.1
        assert rows["below 12"].value == pytest.approx(rows["below 12"].after - rows["below 12"].before)
        assert rows["30 and above"].p_adjusted > 1e-6
        by_name = {row.name: row for row in changes(change.changed_readings(before, after, [0.5, 0.9]))}
        assert list(by_name) == ["mean", "standard deviation", "median", "90% quantile"]
        assert by_name["mean"].low < 3 < by_name["mean"].high
        assert by_name["mean"].p_adjusted < 1e-9
        assert by_name["median"].low <= 3 <= by_name["median"].high
        assert by_name["median"].p_adjusted < 1e-6
        assert by_name["standard deviation"].p_adjusted > 1e-6

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("moved", "reports"), [pytest.param(1, 20_000, marks=pytest.mark.long), (2, 5_000)]
    )
    def test_finds_median_changes_with_expected_power(self, moved: float, reports: int):
        """Draw 100 pairs: with a power of 0.74, fewer are detected with probability 1e-10 (44 of 100).

        Requiring disjoint intervals would detect only 10 and 36 of 100.
        """
        rng = np.random.default_rng(11)
        fleets = (medians(moved, reports, rng) for _ in range(100))
        rows = [changes(change.changed_readings(before, after, [0.5]))[2] for before, after in fleets]
        assert sum(row.p < 0.05 for row in rows) >= stats.binom.ppf(1e-10, 100, 0.74)
        assert not any(row.low < 0 < row.high for row in rows if row.p < 0.05)


class TestHalves:
    def test_each_half_is_tested_at_the_others_edge(self):
        """A half's own edge was chosen partly because of its noise."""
        rng = np.random.default_rng(13)
        low, high = (draw(NUMBER, bell(32, centre, 2), 50_000, rng) for centre in (10, 20))
        (below, same) = change.shares_below([(low, high), (low, high)], 0.5)
        assert below == same == mean(low.range(0, 20), high.range(0, 10))
        assert below.value == pytest.approx(0.5, abs=0.05)  # all reports of one fleet, and none of the other

    def test_are_reproducible_and_add_up(self):
        """For one version and for a pool, each half is within 7 standard deviations (probability 8e-12)."""
        rng = np.random.default_rng(14)
        first, second = draw(NUMBER, F, 4_000, rng), draw(number(32, 1, high=32_000), F, 1_000, rng)
        for whole in (first, pool([first, second])):
            first_half, other = whole.halves() or pytest.fail("too few")
            other_half, _ = whole.halves() or pytest.fail("too few")
            assert (first_half.frequencies == other_half.frequencies).all()
            assert first_half.reports + other.reports == whole.reports
            assert abs(first_half.reports - whole.reports / 2) < 3.5 * whole.reports**0.5
            assert (first_half.frequencies != other.frequencies).any()

    def test_too_few_reports_show_no_change(self):
        small = estimates.estimate(
            NUMBER,
            np.eye(1, NUMBER.code_count, 0, dtype=int)[0] * 2
            + np.eye(1, NUMBER.code_count, NUMBER.code_count - 1, dtype=int)[0],
        )
        large = draw(NUMBER, F, 4_000, np.random.default_rng(15))
        assert small.halves() is None
        row = changes(change.changed_readings(small, large, [0.5]))[2]
        assert row.p == 1
        assert row.low <= 0 <= row.high
        assert change.quantile_trend({"a": small, "b": large}, [0.5]).p_values == (("median", 1.0),)


class TestIntervals:
    @pytest.mark.slow
    def test_quantile_interval_agrees_with_its_p_value(self):
        rng = np.random.default_rng(3)
        for shift in (0, 0.5, 1, 1.5):
            a, b = draw(NUMBER, F, 20_000, rng), draw(NUMBER, bell(32, 14 + shift, 4), 20_000, rng)
            for confidence in (0.8, 0.95, 0.99):
                row = changes(change.changed_readings(a, b, [0.5], Frame(confidence=confidence)))[2]
                assert (row.p < 1 - confidence) == (not row.low < 0 < row.high)
                assert row.low <= row.value <= row.high

    def test_deviation_interval_combines_the_correct_sides(self):
        """Each end combines one side of the later interval with the opposite side of the earlier one."""
        rng = np.random.default_rng(11)
        before, after = draw(NUMBER, F, 2_000, rng), draw(NUMBER, bell(32, 14, 6), 20_000, rng)
        row = changes(change.changed_readings(before, after, []))[1]
        old, new = moments.deviation(before), moments.deviation(after)
        (l0, u0), (l1, u1) = old.interval(0.95), new.interval(0.95)
        assert u0 - old.value != pytest.approx(old.value - l0, rel=0.05)  # the two ends differ
        assert row.value == new.value - old.value
        assert row.low == pytest.approx(row.value - np.hypot(new.value - l1, u0 - old.value))
        assert row.high == pytest.approx(row.value + np.hypot(u1 - new.value, old.value - l0))


class TestSignificance:
    """A row counts as changed only below the level that belongs to the confidence."""

    LEVELS = pytest.mark.parametrize(
        ("p", "confidence", "is_change"),
        [(0.04, 0.95, True), (0.06, 0.95, False), (0.25, 0.75, False), (0.24, 0.75, True)],
    )

    @LEVELS
    @pytest.mark.parametrize("decrease", [0.1, -0.1])
    def test_bounds_a_quantile_interval_by_zero(
        self, p: float, confidence: float, is_change: bool, decrease: float
    ):
        row = ChangeRow("median", 0.5, -1.0, 2.0, p=p)
        bounded = change._by_shares_below(row, decrease, Frame(confidence=confidence))
        ends = (0.0, 2.0) if decrease > 0 else (-1.0, 0.0)
        assert (bounded.low, bounded.high) == (ends if is_change else (-1.0, 2.0))
        narrow = change._by_shares_below(
            replace(row, low=0.5, high=0.7), decrease, Frame(confidence=confidence)
        )
        assert is_change or (narrow.low, narrow.high) == (0.0, 0.7)

    @LEVELS
    def test_is_marked_in_pictures(self, p: float, confidence: float, is_change: bool):
        row = ChangeRow("share", 0.5, -1.0, 2.0, p=p / 2, p_adjusted=p)
        assert row.adjusted_away(confidence) == (not is_change)
        look = plot._CHANGED if is_change else plot._ADJUSTED_AWAY
        assert plot._marker_style(row, confidence) is look
        alone = replace(row, p=p)
        assert not alone.adjusted_away(confidence)
        assert plot._marker_style(alone, confidence) is (plot._CHANGED if is_change else plot._CHANCE)


class TestComparability:
    def test_rejects_different_quantities(self):
        rng = np.random.default_rng(7)
        other = draw(number(32, 2, high=40_000), F, 1000, rng)
        mine = draw(NUMBER, F, 1000, rng)
        with pytest.raises(DoesNotFit, match="high is the same, not 32000 and 40000"):
            change.changed_readings(mine, other)

    def test_compares_only_common_ranges(self):
        rng = np.random.default_rng(7)
        other = draw(number(32, 2, high=40_000), F, 1000, rng)
        mine = draw(NUMBER, F, 1000, rng)
        common, own = parse_range(mine.experiment, ":5"), parse_range(mine.experiment, ":6")
        (row,) = change.changed_shares(other, mine, [common, own]).rows
        assert row.name == "below 5"
        with pytest.raises(DoesNotFit, match="only one of them counts below 6"):
            change.changed_shares(other, mine, [own])

    def test_matches_labels_by_name(self):
        rng = np.random.default_rng(8)
        modes = choice(["idle", "heating", "door"], 2)
        a, b = (
            draw(modes, np.array([0.5, 0.3, 0.2, 0]), 50_000, rng),
            draw(modes, np.array([0.3, 0.5, 0.2, 0]), 50_000, rng),
        )
        rows = changes(change.changed_shares(a, b, histogram_ranges(modes, 16)))
        assert [row.name for row in rows] == ["idle", "heating", "door", "other"]
        assert [row.p_adjusted < 1e-6 for row in rows] == [True, True, False, False]


class TestFalseAlarms:
    @pytest.mark.slow
    def test_are_rare_between_equal_weeks(self):
        """Draw 300 pairs: at a rate of 5%, more have an adjusted row below 0.05 with probability 1e-10."""
        rng, shares, readings = np.random.default_rng(1), 0, 0
        for _ in range(300):
            a, b = (draw(NUMBER, F, 4000, rng) for _ in range(2))
            shares += min(row.p_adjusted for row in changes(change.changed_shares(a, b, RANGES))) < 0.05
            rows = changes(change.changed_readings(a, b))
            readings += min(row.p_adjusted for row in rows) < 0.05
        limit = stats.binom.isf(1e-10, 300, 0.055)
        assert shares <= limit
        assert readings <= limit

    @pytest.mark.slow
    def test_are_rare_for_an_unmoved_median(self):
        """Draw 200 pairs: at a rate of 5.5%, more p values are below 5% with probability 1e-10.

        Choosing the edge with the smallest p of 20 would double the rate.
        """
        rng = np.random.default_rng(12)
        pairs = (medians(0, 2_000, rng) for _ in range(200))
        rows = [changes(change.changed_readings(before, after, [0.5]))[2] for before, after in pairs]
        assert sum(row.p < 0.05 for row in rows) <= stats.binom.isf(1e-10, 200, 0.055)

    def test_homogeneity_test_keeps_its_level(self):
        """Draw 4,000 sets of 5 normal numbers: at 5%, a binomial leaves the bounds with probability 1e-10."""
        rng = np.random.default_rng(6)
        x = rng.normal(size=(4000, 5)) * [1, 2, 3, 0.5, 1]
        low = 0
        for row in x:
            p = change.homogeneity([Statistic(v, s) for v, s in zip(row, [1, 2, 3, 0.5, 1], strict=True)])
            low += p < 0.05
        assert stats.binom.ppf(5e-11, 4000, 0.05) <= low <= stats.binom.isf(5e-11, 4000, 0.05)

    @pytest.mark.slow
    @pytest.mark.long
    def test_are_rare_in_quantile_trends(self):
        """Draw 300 sets of 4 equal windows: at 5.5%, more p values are below 5% with probability 1e-10."""
        rng = np.random.default_rng(9)
        sets = [{str(day): draw(NUMBER, F, 4000, rng) for day in range(4)} for _ in range(300)]
        p = [change.quantile_trend(windows, [0.5]).p_values[0][1] for windows in sets]
        assert sum(x < 0.05 for x in p) <= stats.binom.isf(1e-10, 300, 0.055)


class TestTrend:
    def test_has_a_row_per_window_and_detects_change(self):
        rng = np.random.default_rng(4)

        def share(windows):
            return {"below 12": [e.range(0, 12) for e in windows.values()]}

        steady = {f"2026-11-{d}": draw(NUMBER, F, 20_000, rng) for d in range(10, 17)}
        moving = {f"2026-11-{d}": draw(NUMBER, bell(32, 4 + d, 4), 20_000, rng) for d in range(10, 17)}
        flat, rising = (change.trend(w, share(w)) for w in (steady, moving))
        assert [row.window for row in flat.rows if isinstance(row, TrendRow)] == list(steady)
        assert all(row.reports == 20_000 for row in flat.rows if isinstance(row, TrendRow))
        p = [dict(a.p_values)["below 12"] for a in (flat, rising)]
        assert p[0] > 1e-9  # the probability that this single case fails
        assert p[1] < 1e-12
        means = {"mean": [moments.mean(e) for e in moving.values()]}
        assert change.trend(moving, means, Frame("°C"), "reading").unit == "°C"
        with pytest.raises(EstimateError, match="at least 2 windows"):
            change.trend({"2026-11-10": steady["2026-11-10"]}, {})

    def test_detects_a_moving_quantile(self):
        rng = np.random.default_rng(10)
        moved = {f"2026-11-{d}": draw(NUMBER, bell(32, 4 + d, 4), 20_000, rng) for d in range(10, 14)}
        answer = change.quantile_trend(moved, [0.25, 0.5], Frame("°C"))
        assert [row.name for row in answer.rows] == ["25% quantile"] * 4 + ["median"] * 4
        assert dict(answer.p_values)["median"] < 1e-9
        for row, (window, estimate) in zip(answer.rows[4:], moved.items(), strict=True):
            assert isinstance(row, TrendRow)
            quantile = estimate.quantile(0.5)
            assert (row.window, row.value, row.low) == (window, quantile.index + 0.5, quantile.low)
        for wrong in (0, 1):
            with pytest.raises(EstimateError, match="a quantile must be between 0 and 1"):
                change.quantile_trend(moved, [wrong])
        with pytest.raises(EstimateError, match="at least 2 windows"):
            change.quantile_trend(dict(list(moved.items())[:1]), [0.5])
