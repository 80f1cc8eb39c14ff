"""Lee and Clifton's bounds: published examples, brute-force sensitivities and speed."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from refusals import Refusal, refusals

from hushmote.planning.privacy.beliefs import DisclosureError
from hushmote.studies import lee_clifton as disclosure_central
from hushmote.studies import sensitivity as empirical_sensitivity
from hushmote.studies.lee_clifton import Worlds, choose_epsilon, upper, upper_epsilon
from hushmote.studies.sensitivity import ReleaseStatistic, Universe, bounded, spread, statistic, unbounded

SCHOOL, ABSENCE = [1, 2, 3, 4], [1, 2, 3, 10]


def universe(records: Sequence[float], size: int | None = None) -> Universe:
    return Universe(np.array(records, float), len(records) - 1 if size is None else size)


class TestPublishedExamples:
    @pytest.mark.parametrize(
        ("query", "records", "expected"),
        [
            ("mean", SCHOOL, ("0.337888", "0.525150", "0.329179")),
            ("mean", ABSENCE, ("0.382939", "0.431720", "0.347697")),
            ("median", SCHOOL, ("0.405465", "0.693147", "0.311230")),
            ("median", ABSENCE, ("1.621860", "2.772589", "0.265605")),
        ],
        ids=["mean of school", "mean of absence", "median of school", "median of absence"],
    )
    def test_match_to_the_digit(self, query: str, records: Sequence[float], expected):
        result = choose_epsilon(statistic(query), universe(records), 1 / 3)
        assert result.all is not None
        numbers = (result.upper_epsilon, result.tight_epsilon, result.all.tight(0.5))
        assert tuple(f"{x:.6f}" for x in numbers) == expected

    def test_density_is_laplace_and_gives_the_posterior(self):
        worlds = choose_epsilon(statistic("mean"), universe(ABSENCE), 1 / 3).all
        assert worlds is not None
        scale = 17 / 6 / 2
        expected = [math.exp(-abs(v - 2.20131) / scale) / (2 * scale) for v in worlds.values]
        assert worlds.densities(2.20131, 2) == pytest.approx(expected, rel=1e-12)
        assert f"{max(expected):.4f}" == "0.3062"
        shares = worlds.priors * worlds.densities(2.20131, 2)
        assert worlds.posterior(2.20131, 2) == pytest.approx(shares / shares.sum())
        with pytest.raises(DisclosureError, match="so no noise is added"):
            Worlds(np.ones(3), 0.0).densities(1.0, 2.0)

    def test_tutorial_confidences_are_prior_minus_posterior(self):
        """0.169178 and 0.151202 do not follow from the adjacent posteriors; they are before minus after."""
        for records, printed, right in ((SCHOOL, "0.169178", "0.150316"), (ABSENCE, "0.151202", "0.368024")):
            worlds = choose_epsilon(statistic("mean"), universe(records), 1 / 3).all
            assert worlds is not None
            assert f"{(worlds.priors - worlds.posterior(2.20131, 2)).max():.6f}" == printed
            assert f"{worlds.confidence(2.20131, 2):.6f}" == right


def brute(query: ReleaseStatistic, x: np.ndarray, n: int, k: int) -> tuple[float, float]:
    """Return the bounded and unbounded sensitivity over all pairs of releases."""
    value = {s: float(query.rows(x[list(s)][None])[0]) for m in range(1, len(x) + 1)
             for s in itertools.combinations(range(len(x)), m)}  # fmt: skip
    releases = [s for s in value if len(s) == n]
    near = (abs(value[s] - value[t]) for s, t in itertools.combinations(releases, 2)
            if len(set(s) - set(t)) <= k)  # fmt: skip
    fewer = [(s, t) for m in (n, n + k) for s in value if len(s) == m
             for t in itertools.combinations(s, m - k) if t]  # fmt: skip
    return max(near, default=0.0), max((abs(value[s] - value[t]) for s, t in fewer), default=0.0)


def interquartile(release: np.ndarray) -> float:
    return float(np.quantile(release, 0.75) - np.quantile(release, 0.25))


CUSTOM_STATISTIC = f"{__name__}:interquartile"


class TestTightBound:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["mean", "variance", "p90"])
    def test_is_reached_but_never_exceeded(self, name: str):
        query = statistic(name)
        worlds = choose_epsilon(query, universe([1, 2, 4, 4, 9, 11], 3), 0.5).all
        assert worlds is not None
        for epsilon in (0.1, 1.0, 5.0):
            answers = np.linspace(worlds.values.min() - 3, worlds.values.max() + 3, 501)
            highest = max(worlds.posterior(float(x), epsilon).max() for x in answers)
            reached = max(worlds.posterior(float(x), epsilon).max() for x in worlds.values)
            tight = worlds.tight(epsilon)
            assert tight == pytest.approx(reached, rel=1e-12)
            assert highest <= tight * (1 + 1e-12)
            assert tight <= upper(epsilon, 20, worlds.spread / worlds.sensitivity)

    def test_epsilon_is_the_largest_that_keeps_the_risk(self):
        worlds = choose_epsilon(statistic("mean"), universe(ABSENCE), 1 / 3).all
        assert worlds is not None
        for risk in (0.26, 0.5, 0.9, 0.999):
            result = worlds.tight_epsilon(risk)
            assert result is not None
            assert worlds.tight(result) <= risk < worlds.tight(result * (1 + 1e-9))

    def test_is_unlimited_if_no_answer_distinguishes_worlds(self):
        assert choose_epsilon(statistic("count"), universe(SCHOOL), 1 / 3).upper_epsilon is None
        median = choose_epsilon(statistic("median"), universe(SCHOOL), 1 / 2)  # two worlds per median
        assert median.tight_epsilon is None
        assert not median.refused
        assert median.upper_epsilon == pytest.approx(math.log(3))
        same = choose_epsilon(statistic("mean"), universe([2, 2, 2]), 0.9)
        assert (same.upper_epsilon, same.tight_epsilon) == (None, None)

    def test_depends_on_the_prior(self):
        query, prior = statistic("mean"), [0.1, 0.2, 0.3, 0.4]
        result = choose_epsilon(query, universe(ABSENCE), 0.6, prior=prior)
        worlds = result.all
        assert worlds is not None
        assert result.tight_epsilon is not None
        after = max(worlds.posterior(float(x), result.tight_epsilon).max() for x in worlds.values)
        assert after == pytest.approx(0.6)
        assert worlds.posterior(2.0, 1e-9) == pytest.approx(prior, abs=1e-8)
        with pytest.raises(DisclosureError, match=r"0.4 already, and 0.35"):
            choose_epsilon(query, universe(ABSENCE), 0.35, prior=prior)


class TestSpeed:
    @pytest.mark.slow
    def test_sums_along_sorted_values_equal_the_definition(self):
        rng = np.random.default_rng(5)
        values, mass = np.sort(rng.normal(size=2000) * 100), rng.random(2000)
        for epsilon in (1e-3, 0.3, 40.0):
            expected = np.exp(-epsilon * np.abs(values[:, None] - values)) @ mass
            result = disclosure_central._kernel_sums(values - values[0], mass, epsilon)
            assert result == pytest.approx(expected, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["mean", "median", "variance", "sum", "count", "min", "max", "p90"])
    def test_100_000_records_need_no_enumeration(self, name: str):
        x = np.random.default_rng(7).exponential(size=100_000)
        result = choose_epsilon(statistic(name), Universe(x, len(x) - 1), 1e-4)
        assert not result.refused
        if result.upper_epsilon and result.tight_epsilon:
            assert result.upper_epsilon * (1 - 1e-9) <= result.tight_epsilon

    def test_enumeration_is_refused_with_reason_and_upper_bound(self):
        x = np.random.default_rng(8).normal(size=1000)
        result = choose_epsilon(statistic("median"), Universe(x, 500), 0.01)
        assert result.refused == "10^299.4 possible worlds, above the limit of 1,000,000"
        assert result.tight_epsilon is None
        expected = (math.log(math.comb(1000, 500) - 1) + math.log(0.01 / 0.99)) / result.ratio
        assert result.upper_epsilon == pytest.approx(expected)
        with pytest.raises(DisclosureError, match=r"variance of 1000 records.*too much"):
            choose_epsilon(statistic("variance"), Universe(x, 500), 0.01)
        with pytest.raises(DisclosureError, match=r"is called 10\^26\.4 times, above the limit of 200,000"):
            choose_epsilon(statistic(CUSTOM_STATISTIC), Universe(x, 990), 0.01)


class TestSensitivity:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name", ["mean", "median", "variance", "sum", "count", "min", "max", "p33", "p90", CUSTOM_STATISTIC]
    )
    def test_matches_all_pairs_of_releases(self, name: str):
        rng, query = np.random.default_rng(3), statistic(name)
        for count in (2, 4, 6):
            kinds = [rng.normal(size=count), rng.integers(-3, 4, count), rng.exponential(size=count) ** 3]
            for x in (np.sort(kind.astype(float)) for kind in kinds):
                for n in range(1, count):
                    for k in range(1, n + 1):
                        other = Universe(x, n)
                        near, fewer = brute(query, x, n, k)
                        assert bounded(query, other, k) == pytest.approx(near, abs=1e-12)
                        if name == "sum" and n == k:  # an empty sum is 0
                            fewer = max(fewer, abs(x[-n:].sum()), abs(x[:n].sum()))
                        if name == "count":
                            fewer = k
                        if fewer or n + k <= count:
                            assert unbounded(query, other, k) == pytest.approx(fewer, abs=1e-12)
                    values = np.array(
                        [query.rows(x[list(s)][None])[0] for s in itertools.combinations(range(count), n)]
                    )
                    assert spread(query, other) == pytest.approx(np.ptp(values), abs=1e-12)
                    result = empirical_sensitivity.world_values(query, other)
                    assert np.sort(result) == pytest.approx(np.sort(values), abs=1e-12)

    @pytest.mark.parametrize("k", [0, -1, 4, 1.5])
    def test_rejects_a_distance_out_of_range(self, k):
        for sensitivity in (bounded, unbounded):
            with pytest.raises(DisclosureError, match="the distance must be from 1 to 3 records"):
                sensitivity(statistic("mean"), universe(SCHOOL), k)

    @pytest.mark.parametrize("name", ["mean", "p90", "variance"])
    def test_is_undefined_if_every_record_may_be_missing(self, name: str):
        with pytest.raises(DisclosureError, match=f"^{name} has no value without records: .* below 3, not 3"):
            unbounded(statistic(name), universe(SCHOOL), 3)


class TestErrors:
    @refusals(
        ([], 0, "universe is empty"),
        ([3.0], 1, "universe of one record"),
        ([1.0, math.inf], 1, "finite numbers"),
        (SCHOOL, 0, "1 to 3 of the 4 records, not 0"),
        (SCHOOL, 4, "1 to 3 of the 4 records, not 4"),
        call=universe,
        error=DisclosureError,
    )
    def test_invalid_universe_is_one_line(self, refusal: Refusal):
        refusal.check()

    @refusals(
        ("mode", "unknown statistic mode; choose from mean, median"),
        ("p101", "unknown statistic p101"),
        ("nowhere:at_all", "no function nowhere:at_all"),
        ("math:pi", "not a function"),
        call=statistic,
        error=DisclosureError,
    )
    def test_unknown_statistic_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_failing_function_is_named_with_its_release(self):
        with pytest.raises(DisclosureError, match=r"math:sqrt failed on \(1, 2, 3\)"):
            choose_epsilon(statistic("math:sqrt"), universe(SCHOOL), 1 / 3)

    @pytest.mark.parametrize(
        ("risk", "message"), [(0, "between 0 and 1"), (1, "between 0 and 1"), (0.25, "no ε can")]
    )
    def test_risk_out_of_range_is_one_line(self, risk: float, message: str):
        with pytest.raises(DisclosureError, match=message):
            upper_epsilon(risk, 4, 1.0)
        with pytest.raises(DisclosureError, match=message):
            Worlds(np.arange(4.0), 1.0).tight_epsilon(risk)

    @pytest.mark.parametrize("epsilon", [0, -1, math.nan])
    def test_epsilon_not_above_0_is_one_line(self, epsilon: float):
        worlds = Worlds(np.arange(4.0), 1.0)
        for ask in (worlds.tight, lambda e: worlds.posterior(1.0, e), lambda e: upper(e, 4, 1.0)):
            with pytest.raises(DisclosureError, match="epsilon must be above 0"):
                ask(epsilon)

    def test_noise_of_scale_0_is_rejected(self):
        with pytest.raises(DisclosureError, match="no noise would be added"):
            Worlds(np.arange(4.0), 0.0)
