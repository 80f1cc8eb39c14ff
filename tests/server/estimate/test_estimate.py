"""Estimates and their errors compared with dense linear algebra and simulated fleets.

Statistical tests use fixed seeds, so they are deterministic; each states its number of independent draws and
the probability that correct code fails with a fresh seed.
"""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from designs import choice, drawn_counts, level_channel, number_with_mechanism, support_matrix
from refusals import Refusal, refusals
from scipy import stats

from hushmote.device.ldp_client import ONE, Experiment, Level
from hushmote.server.estimate import estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError, Statistic, difference
from hushmote.server.mechanisms import channel, support_mechanisms

RR = number_with_mechanism("rr", 2, 1)
GRR = number_with_mechanism("grr", 10, 1)
OLH = number_with_mechanism("olh", 40, 2, g=7)
HADAMARD = number_with_mechanism("olh", 32, 0.5, g=2)
HH = number_with_mechanism("hh", 64, 1.1, fanout=4, cells=[4, 5, 5])
UNEVEN = number_with_mechanism("hh", 50, 2, fanout=3, cells=[2, 5, 7, 7], weights=[1, 0, 2, 3])
EXPERIMENTS = (RR, GRR, OLH, HADAMARD, HH, UNEVEN)
each_experiment = pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: f"{e.mechanism}{e.domain}")


def population(domain: int) -> np.ndarray:
    """Return a skewed population with a peak."""
    shares = 1 / (1 + np.arange(domain)) ** 1.2
    shares[domain // 2] += 0.5
    return shares / shares.sum()


def fleet(experiment: Experiment, reports: int, rng: np.random.Generator) -> np.ndarray:
    return drawn_counts(experiment, population(experiment.domain), reports, rng)


def code_shares(experiment: Experiment, level: Level) -> np.ndarray:
    """Return each code's probability on a level in the population."""
    return level_channel(level, experiment.domain) @ population(experiment.domain)


def expected_counts(experiment: Experiment, reports: int) -> np.ndarray:
    parts = [
        reports * level.weight / experiment.weight_sum * code_shares(experiment, level)
        for level in experiment.levels
    ]
    return np.rint(np.concatenate(parts)).astype(np.int64)


def dense_weights(experiment: Experiment, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each code's weight in every frequency, shape (code_count, domain), and the constants.

    From matrices alone: unbiased node estimates, then weighted least squares with the sum known. The node
    variance it assumes is the oracle's choice, which test_oracle checks.
    """
    domain = experiment.domain
    used, rows, shifts, inverse = [], [], [], []
    for level in experiment.levels:
        n = counts[level.offset : level.offset + level.code_count].sum()
        if not n:
            continue
        a = support_matrix(level)
        p = Fraction(level.threshold, ONE)
        same = Fraction(level.seeds + 1, level.g) - 1 if level.t else Fraction(0)
        c = same / level.seeds if level.t else Fraction(0)
        q = p * c + (1 - c) * (1 - p) / (level.g - 1)
        to_leaf = (np.arange(domain) // level.width == np.arange(level.domain)[:, None]).astype(float)
        used.append((level, a / float(p - q) / n))
        shifts.append(np.full(level.domain, -float(q / (p - q))))
        rows.append(to_leaf)
        inverse.append(np.full(level.domain, n / channel.level_channel(level).assumed))
    x, w = np.vstack(rows), np.concatenate(inverse)
    gain, constant = np.eye(domain), np.zeros(domain)
    if experiment.mechanism in ("olh", "hh"):
        system = np.zeros((domain + 1, domain + 1))
        system[:domain, :domain] = x.T * w @ x
        system[domain, :domain] = system[:domain, domain] = 1
        solved = np.linalg.inv(system)
        gain, constant = solved[:domain, :domain] @ (x.T * w), solved[:domain, domain]
    weights = np.zeros((experiment.code_count, domain))
    start = 0
    for level, a in used:
        part = gain[:, start : start + level.domain]
        weights[level.offset : level.offset + level.code_count] = a @ part.T
        start += level.domain
    return weights, constant + gain @ np.concatenate(shifts)


def dense_stderr(experiment: Experiment, counts: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the standard errors under the codes' true distribution, for weights from dense_weights()."""
    variance = np.zeros(weights.shape[1])
    for level in experiment.levels:
        part = slice(level.offset, level.offset + level.code_count)
        n = counts[part].sum()
        if n:
            pi, w = code_shares(experiment, level), weights[part] * n
            variance += (pi @ w**2 - (pi @ w) ** 2) / n
    return np.sqrt(np.maximum(variance, 0))  # exactly known values have rounding errors


class TestDenseAlgebra:
    @each_experiment
    def test_has_the_same_estimates(self, experiment: Experiment) -> None:
        counts = fleet(experiment, 3000, np.random.default_rng(1))
        weights, constant = dense_weights(experiment, counts)
        e = estimate(experiment, counts)
        assert e.reports == 3000
        np.testing.assert_allclose(e.frequencies, counts @ weights + constant, atol=1e-9)

    @each_experiment
    def test_has_the_same_errors_for_expected_counts(
        self,
        experiment: Experiment,
    ) -> None:
        counts = expected_counts(experiment, 10**13)
        weights, _ = dense_weights(experiment, counts)
        e = estimate(experiment, counts)
        np.testing.assert_allclose(e.frequencies, population(experiment.domain), atol=1e-8)
        assert e.stderr_method == "exact"
        scale = dense_stderr(experiment, counts, weights).max()
        np.testing.assert_allclose(e.stderr, dense_stderr(experiment, counts, weights), rtol=1e-4)
        cdf = dense_stderr(experiment, counts, np.cumsum(weights, axis=1))
        np.testing.assert_allclose(e.cdf_stderr, cdf, rtol=1e-4, atol=1e-6 * scale)
        r = np.random.default_rng(2).normal(size=experiment.domain)
        actual = e.linear(r)
        assert actual.stderr == pytest.approx(
            dense_stderr(experiment, counts, weights @ r[:, None])[0], rel=1e-4
        )
        assert actual.value == pytest.approx(r @ population(experiment.domain), abs=1e-6)


FLEETS = 400
# The mean of z² over n independent fleets has a chi-squared distribution; the 6% on either side allows for a
# z that is not quite normal or an error bar that is off by 3%. False alarms: 1e-10 per test.
LOWEST, HIGHEST = 0.94 * stats.chi2.ppf(5e-11, FLEETS), 1.06 * stats.chi2.isf(5e-11, FLEETS)


class TestPool:
    def test_by_reports_estimates_the_merged_histogram(self) -> None:
        rng = np.random.default_rng(10)
        a, b = fleet(OLH, 4000, rng), fleet(OLH, 1000, rng)
        merged, pooled = estimate(OLH, a + b), pool([estimate(OLH, a), estimate(OLH, b)])
        assert pooled.reports == 5000
        np.testing.assert_allclose(pooled.frequencies, merged.frequencies, atol=1e-12)
        np.testing.assert_allclose(pooled.stderr, merged.stderr, rtol=0.03)
        np.testing.assert_allclose(pooled.cdf_stderr, merged.cdf_stderr, rtol=0.03)
        assert pooled.range(2, 9).value == pytest.approx(merged.range(2, 9).value)
        assert pooled.range(2, 9).stderr == pytest.approx(merged.range(2, 9).stderr, rel=0.03)
        np.testing.assert_allclose(pooled.spread.skew, merged.spread.skew, rtol=0.05)
        assert pooled.quantile(0.5).index == merged.quantile(0.5).index

    def test_by_variance_has_less_error_and_agrees(self) -> None:
        """Draw two versions of 60,000 reports: the two pools differ by less than 6.5 standard errors.

        Each of three statistics fails with probability 1e-10: the difference's error is below either's.
        """
        rng = np.random.default_rng(11)
        weak, strong = number_with_mechanism("hh", 64, 0.5, fanout=4, cells=[4, 3, 3]), HH
        parts = [estimate(weak, fleet(weak, 60_000, rng)), estimate(strong, fleet(strong, 60_000, rng))]
        plain, best = pool(parts), pool(parts, by="variance")
        f = population(64)
        for lo, hi in ((0, 5), (10, 33), (32, 33)):
            a, b = plain.range(lo, hi), best.range(lo, hi)
            assert b.stderr < 0.8 * a.stderr
            assert abs(a.value - b.value) < 6.5 * a.stderr
            assert abs(b.value - f[lo:hi].sum()) < 6.5 * b.stderr
        np.testing.assert_allclose(best.cdf(), np.cumsum(best.frequencies))
        assert best.rare_variance() < min(p.rare_variance() for p in parts)
        # With equal designs and equal numbers of reports, both pools are the same.
        same = [estimate(HH, fleet(HH, 5000, rng)) for _ in range(2)]
        np.testing.assert_allclose(pool(same).weights, [0.5, 0.5])

    def test_mean_variance_assumes_uniform_population_and_scales(self) -> None:
        for experiment in (GRR, OLH):
            counts = np.full(experiment.code_count, 50)
            one, two = estimate(experiment, counts), estimate(experiment, 2 * counts)
            assert one.mean_variance() == pytest.approx(2 * two.mean_variance())
        even = estimate(GRR, np.full(10, 50))
        assert even.mean_variance() == pytest.approx(even.linear(np.arange(10)).stderr ** 2)

    def test_may_be_nested(self) -> None:
        rng = np.random.default_rng(12)
        a, b, c = (estimate(GRR, fleet(GRR, n, rng)) for n in (100, 200, 300))
        nested, flat = pool([pool([a, b]), c]), pool([a, b, c])
        np.testing.assert_allclose(nested.frequencies, flat.frequencies)
        np.testing.assert_allclose(nested.stderr, flat.stderr)

    def test_rejects_different_quantities(self) -> None:
        e = estimate(GRR, np.full(GRR.code_count, 5))
        other = estimate(number_with_mechanism("grr", 10, 1, high=2000), np.full(10, 5))
        with pytest.raises(EstimateError, match="high is the same, not 1000 and 2000"):
            pool([e, other])
        with pytest.raises(EstimateError, match="number of values"):
            pool([e, estimate(number_with_mechanism("grr", 11, 1), np.full(11, 5))])

        def labels(*names: str) -> Experiment:
            return choice(list(names), 1)

        with pytest.raises(EstimateError, match="labels"):
            pool([estimate(labels("a", "b"), [1, 2, 3]), estimate(labels("a", "c"), [1, 2, 3])])
        with pytest.raises(EstimateError, match="at least one"):
            pool([])
        with pytest.raises(EstimateError, match="reports"):
            pool([e], by="size")  # type: ignore[arg-type]
        # A different mechanism or epsilon is allowed.
        mixed = pool([e, estimate(number_with_mechanism("olh", 10, 2, g=3), np.full(26 * 3, 5))])
        assert mixed.reports == 50 + 390


class TestErrors:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "experiment",
        [
            number_with_mechanism("hh", 1024, 1, fanout=4, cells=[4, 5, 3, 3, 3]),
            number_with_mechanism("hh", 777, 2, fanout=5, cells=[2, 7, 7, 7, 7]),
        ],
        ids=lambda e: f"{e.mechanism}{e.domain}",
    )
    def test_approximate_errors_are_near_exact_ones(
        self, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts = fleet(experiment, 50_000, np.random.default_rng(5))
        exact = estimate(experiment, counts)
        monkeypatch.setattr(support_mechanisms, "_MAX_EXACT_PAIRS", 0)
        rough = estimate(experiment, counts)
        assert (exact.stderr_method, rough.stderr_method) == ("exact", "approximate")
        np.testing.assert_array_equal(rough.frequencies, exact.frequencies)
        np.testing.assert_allclose(rough.stderr, exact.stderr, rtol=0.12)
        np.testing.assert_allclose(rough.cdf_stderr[:-1], exact.cdf_stderr[:-1], rtol=0.12)
        assert rough.range(3, 500) == exact.range(3, 500)
        monkeypatch.setattr(support_mechanisms, "_MAX_EXACT_WORK", 0)
        ends = np.sort(np.random.default_rng(16).integers(0, experiment.domain + 1, (2, 100)), axis=0)
        many, some = rough.ranges(*ends), rough.ranges(*ends[:, :10])
        np.testing.assert_allclose(many.value[:10], some.value, atol=1e-12)
        np.testing.assert_allclose(many.stderr[:10], some.stderr, rtol=0.12)
        # Both include the histogram's scatter, in different ways; without it, little or nothing remains.
        counts = expected_counts(experiment, 10**13)
        rough = estimate(experiment, counts)
        monkeypatch.setattr(support_mechanisms, "_MAX_EXACT_PAIRS", 10**9)
        exact = estimate(experiment, counts)
        np.testing.assert_allclose(rough.stderr, exact.stderr, rtol=0.12)
        np.testing.assert_allclose(rough.cdf_stderr[:-1], exact.cdf_stderr[:-1], rtol=0.12)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("experiment", "reports"),
        [
            (RR, 400),
            (GRR, 2000),
            pytest.param(OLH, 2000, marks=pytest.mark.long),
            (HADAMARD, 2000),
            pytest.param(HH, 2000, marks=pytest.mark.long),
            pytest.param(UNEVEN, 3000, marks=pytest.mark.long),
            (number_with_mechanism("hh", 64, 4, fanout=8, cells=[8, 31]), 500),
        ],
        ids=["rr", "grr", "olh", "hadamard", "hh", "uneven", "thin"],
    )
    def test_are_neither_too_wide_nor_too_narrow(self, experiment: Experiment, reports: int) -> None:
        """Draw 400 fleets each from the population, and check a frequency, a range and a weighted sum."""
        rng, f = np.random.default_rng(6), population(experiment.domain)
        r = np.sin(np.arange(experiment.domain))
        half = max(1, experiment.domain // 3)
        sums = np.zeros(4)
        for _ in range(FLEETS):
            e = estimate(experiment, fleet(experiment, reports, rng))
            statistics = (e.frequency(0), e.frequency(experiment.domain - 1), e.range(0, half), e.linear(r))
            truth = (f[0], f[-1], f[:half].sum(), r @ f)
            sums += [((s.value - t) / s.stderr) ** 2 for s, t in zip(statistics, truth, strict=True)]
        assert (sums > LOWEST).all(), sums / FLEETS
        assert (sums < HIGHEST).all(), sums / FLEETS

    @pytest.mark.slow
    def test_quantile_intervals_cover(self) -> None:
        """Draw 300 fleets with three quantiles: at a coverage of 95%, fewer hits have probability 1e-10."""
        rng, f = np.random.default_rng(7), population(HH.domain)
        cdf = np.cumsum(f)
        levels = (0.1, 0.5, 0.9)
        hits = np.zeros(3)
        for _ in range(300):
            e = estimate(HH, fleet(HH, 2000, rng))
            for k, q in enumerate(levels):
                result = e.quantile(q)
                assert result.low <= result.index <= result.high
                hits[k] += result.low <= np.argmax(cdf >= q) <= result.high
        assert (hits >= stats.binom.ppf(1e-10, 300, 0.95)).all(), hits

    @pytest.mark.slow
    def test_equal_weeks_differ_at_the_nominal_rate(self) -> None:
        """Draw 400 pairs of fleets: the numbers of p below 0.05 and 0.5 are binomial (alarm 1e-10)."""
        rng = np.random.default_rng(8)
        values = []
        for _ in range(FLEETS):
            a, b = (estimate(GRR, fleet(GRR, 1500, rng)).range(0, 4) for _ in range(2))
            result = difference(a, b)
            assert result.value == a.value - b.value
            assert result.stderr == pytest.approx(math.hypot(a.stderr, b.stderr))
            values.append(result.p)
        for level in (0.05, 0.5):
            low, high = stats.binom.ppf([5e-11, 1 - 5e-11], FLEETS, level)
            assert low <= np.sum(np.array(values) < level) <= high

    def test_of_two_reports_are_finite(self) -> None:
        for experiment in EXPERIMENTS:
            counts = np.zeros(experiment.code_count, dtype=int)
            counts[-1] = 2
            e = estimate(experiment, counts)
            assert np.isfinite(e.frequencies).all()
            assert np.isfinite(e.stderr).all()
            assert (e.stderr > 0).all()
            result = e.quantile(0.5)
            assert 0 <= result.low <= result.index <= result.high < experiment.domain


class TestStatistics:
    @each_experiment
    def test_agree_between_methods(self, experiment: Experiment) -> None:
        e = estimate(experiment, fleet(experiment, 500, np.random.default_rng(3)))
        for index in range(experiment.domain):
            one = e.frequency(index)
            assert (one.value, one.stderr) == pytest.approx(
                (e.frequencies[index], e.stderr[index]), abs=1e-12
            )
            below = e.range(0, index + 1)
            assert below.value == pytest.approx(e.cdf()[index], abs=1e-12)
            # Some mechanisms know the sum of all shares, so only squares of rounding errors remain.
            assert below.stderr == pytest.approx(e.cdf_stderr[index], rel=1e-6, abs=1e-6)
        assert e.range(1, 1) == Statistic(0.0, 0.0)
        whole = e.range(0, experiment.domain)
        assert whole.value == pytest.approx(1, abs=1e-9)
        assert whole.stderr < 1e-7

    def test_many_ranges_equal_single_ones(self) -> None:
        rng = np.random.default_rng(15)
        for experiment in (GRR, OLH, HH, UNEVEN):
            e = estimate(experiment, fleet(experiment, 2000, rng))
            ends = np.sort(rng.integers(0, experiment.domain + 1, (2, 300)), axis=0)
            result = e.ranges(*ends)
            assert len(result) == 300
            for i in (0, 17, 299):
                one = e.range(int(ends[0, i]), int(ends[1, i]))
                assert (result[i].value, result[i].stderr) == pytest.approx((one.value, one.stderr), abs=1e-9)
        with pytest.raises(EstimateError, match="lower and upper ends must have the same shape"):
            e.ranges([1, 2], [3])
        with pytest.raises(EstimateError, match="not 5 and 4"):
            e.ranges([1, 5], [3, 4])

    @pytest.mark.parametrize("experiment", [GRR, OLH, HH, UNEVEN], ids=["grr", "olh", "hh", "uneven"])
    def test_quantiles_follow_their_definition(self, experiment: Experiment) -> None:
        e = estimate(experiment, fleet(experiment, 200, np.random.default_rng(9)))
        cdf, (below, above) = e.cdf(), e.cdf_intervals(0.9)
        domain = experiment.domain
        for q in (0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999):
            result = e.quantile(q, confidence=0.9)
            reached = [i for i in range(domain) if max(cdf[: i + 1]) >= q]
            assert result.index == (reached[0] if reached else domain - 1)
            kept = [
                i
                for i in range(domain)
                if (i == 0 or below[i - 1] <= q) and (i == domain - 1 or above[i] >= q)
            ]
            assert (result.q, result.low, result.high) == (q, kept[0], kept[-1])
        for q in (0, 1, -0.1, math.nan):
            with pytest.raises(EstimateError, match="a quantile must be between 0 and 1"):
                e.quantile(q)

    def test_rejects_impossible_ranges_and_weights(self) -> None:
        e = estimate(GRR, np.full(10, 5))
        for lo, hi in ((-1, 3), (3, 2), (0, 11)):
            with pytest.raises(EstimateError, match="0 <= lo <= hi <= 10"):
                e.range(lo, hi)
        with pytest.raises(EstimateError, match=r"shape \(10,\), not \(9,\)"):
            e.linear(np.ones(9))
        for shape in ((10,), (9, 2), (10, 0), (10, 2, 1)):
            with pytest.raises(EstimateError, match=re.escape(f"shape (10, n), not {shape}")):
                e.linear_many(np.ones(shape))
        with pytest.raises(EstimateError, match="finite"):
            e.linear([math.nan] * 10)


class TestCounts:
    @refusals(
        (np.ones(9, dtype=int), "shape (10,), one per code of x, not (9,)"),
        (np.ones((10, 1), dtype=int), "shape"),
        (np.ones(10), "integers, not float64"),
        (np.array([True] * 10), "integers, not bool"),
        (np.array(["1"] * 10), "integers"),
        (np.array([1] * 9 + [-3]), "code 9 has -3"),
        (np.zeros(10, dtype=int), "at least 2 reports are needed for an estimate, not 0"),
        (np.eye(10, dtype=int)[0], "not 1"),
        (np.full(10, 1 << 62), "2**53"),
        call=lambda counts: estimate(GRR, counts),
        error=EstimateError,
    )
    def test_invalid_counts_are_rejected_with_the_reason(self, refusal: Refusal):
        refusal.check()

    def test_of_a_hierarchy_need_only_the_last_level(self) -> None:
        counts = fleet(HH, 1000, np.random.default_rng(13))
        leaf = HH.levels[-1]
        upper = counts.copy()
        upper[leaf.offset :] = 0
        with pytest.raises(EstimateError, match="last level"):
            estimate(HH, upper)
        only_leaves = counts.copy()
        only_leaves[: leaf.offset] = 0
        e = estimate(HH, only_leaves)
        assert e.frequencies.sum() == pytest.approx(1)
        assert np.isfinite(e.stderr).all()

    def test_are_unmodified_and_of_any_integer_type(self) -> None:
        counts = fleet(HH, 1000, np.random.default_rng(14))
        before = counts.copy()
        expected = estimate(HH, counts).range(3, 40)
        for dtype in (np.uint16, np.int32, np.uint64):
            assert estimate(HH, counts.astype(dtype)).range(3, 40) == expected
        assert estimate(HH, counts.tolist()).range(3, 40) == expected
        assert (counts == before).all()
