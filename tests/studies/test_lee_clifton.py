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
        found = choose_epsilon(statistic(query), universe(records), 1 / 3)
        assert found.all is not None
        numbers = (found.upper_epsilon, found.tight_epsilon, found.all.tight(0.5))
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
        with pytest.raises(DisclosureError, match="without noise"):
            Worlds(np.ones(3), 0.0).densities(1.0, 2.0)

    def test_tutorial_confidences_are_prior_minus_posterior(self):
        """0.169178 and 0.151202 do not follow from the posteriors beside them: they are before less after."""
        for records, printed, right in ((SCHOOL, "0.169178", "0.150316"), (ABSENCE, "0.151202", "0.368024")):
            worlds = choose_epsilon(statistic("mean"), universe(records), 1 / 3).all
            assert worlds is not None
            assert f"{(worlds.priors - worlds.posterior(2.20131, 2)).max():.6f}" == printed
            assert f"{worlds.confidence(2.20131, 2):.6f}" == right


def brute(query: ReleaseStatistic, x: np.ndarray, n: int, k: int) -> tuple[float, float]:
    """Bounded and unbounded sensitivity by going through all pairs of releases."""
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


OWN = f"{__name__}:interquartile"


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
            found = worlds.tight_epsilon(risk)
            assert found is not None
            assert worlds.tight(found) <= risk < worlds.tight(found * (1 + 1e-9))

    def test_is_unlimited_if_no_answer_distinguishes_worlds(self):
        assert choose_epsilon(statistic("count"), universe(SCHOOL), 1 / 3).upper_epsilon is None
        median = choose_epsilon(statistic("median"), universe(SCHOOL), 1 / 2)  # two worlds have each median
        assert median.tight_epsilon is None
        assert not median.refused
        assert median.upper_epsilon == pytest.approx(math.log(3))
        same = choose_epsilon(statistic("mean"), universe([2, 2, 2]), 0.9)
        assert (same.upper_epsilon, same.tight_epsilon) == (None, None)

    def test_depends_on_the_prior(self):
        query, prior = statistic("mean"), [0.1, 0.2, 0.3, 0.4]
        found = choose_epsilon(query, universe(ABSENCE), 0.6, prior=prior)
        worlds = found.all
        assert worlds is not None
        assert found.tight_epsilon is not None
        after = max(worlds.posterior(float(x), found.tight_epsilon).max() for x in worlds.values)
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
            found = disclosure_central._kernel_sums(values - values[0], mass, epsilon)
            assert found == pytest.approx(expected, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["mean", "median", "variance", "sum", "count", "min", "max", "p90"])
    def test_of_100_000_records_less_one_needs_no_enumeration(self, name: str):
        x = np.random.default_rng(7).exponential(size=100_000)
        found = choose_epsilon(statistic(name), Universe(x, len(x) - 1), 1e-4)
        assert not found.refused
        if found.upper_epsilon and found.tight_epsilon:
            assert found.upper_epsilon * (1 - 1e-9) <= found.tight_epsilon

    def test_enumeration_is_refused_with_reason_and_upper_bound(self):
        x = np.random.default_rng(8).normal(size=1000)
        found = choose_epsilon(statistic("median"), Universe(x, 500), 0.01)
        assert found.refused == "10^299.4 possible worlds, and 1,000,000 are gone through at most"
        assert found.tight_epsilon is None
        expected = (math.log(math.comb(1000, 500) - 1) + math.log(0.01 / 0.99)) / found.ratio
        assert found.upper_epsilon == pytest.approx(expected)
        with pytest.raises(DisclosureError, match=r"variance of 1000 records.*too much"):
            choose_epsilon(statistic("variance"), Universe(x, 500), 0.01)
        with pytest.raises(DisclosureError, match=r"is called .* times, and 200,000 is the most"):
            choose_epsilon(statistic(OWN), Universe(x, 990), 0.01)


class TestSensitivity:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "name", ["mean", "median", "variance", "sum", "count", "min", "max", "p33", "p90", OWN]
    )
    def test_matches_all_pairs_of_releases(self, name: str):
        rng, query = np.random.default_rng(3), statistic(name)
        for count in (2, 4, 6):
            kinds = [rng.normal(size=count), rng.integers(-3, 4, count), rng.exponential(size=count) ** 3]
            for x in (np.sort(kind.astype(float)) for kind in kinds):
                for n in range(1, count):
                    for k in range(1, n + 1):
                        there = Universe(x, n)
                        near, fewer = brute(query, x, n, k)
                        assert bounded(query, there, k) == pytest.approx(near, abs=1e-12)
                        if name == "sum" and n == k:  # an empty sum is 0
                            fewer = max(fewer, abs(x[-n:].sum()), abs(x[:n].sum()))
                        if name == "count":
                            fewer = k
                        if fewer or n + k <= count:
                            assert unbounded(query, there, k) == pytest.approx(fewer, abs=1e-12)
                    values = np.array(
                        [query.rows(x[list(s)][None])[0] for s in itertools.combinations(range(count), n)]
                    )
                    assert spread(query, there) == pytest.approx(np.ptp(values), abs=1e-12)
                    found = empirical_sensitivity.world_values(query, there)
                    assert np.sort(found) == pytest.approx(np.sort(values), abs=1e-12)

    @pytest.mark.parametrize("k", [0, -1, 4, 1.5])
    def test_rejects_a_distance_out_of_range(self, k):
        for sensitivity in (bounded, unbounded):
            with pytest.raises(DisclosureError, match="a distance of 1 to 3 records"):
                sensitivity(statistic("mean"), universe(SCHOOL), k)


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
        ("mode", "no statistic is called mode; there are mean, median"),
        ("p101", "no statistic is called p101"),
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
        ("risk", "says"), [(0, "between 0 and 1"), (1, "between 0 and 1"), (0.25, "no ε can")]
    )
    def test_risk_out_of_range_is_one_line(self, risk: float, says: str):
        with pytest.raises(DisclosureError, match=says):
            upper_epsilon(risk, 4, 1.0)
        with pytest.raises(DisclosureError, match=says):
            Worlds(np.arange(4.0), 1.0).tight_epsilon(risk)

    @pytest.mark.parametrize("epsilon", [0, -1, math.nan])
    def test_epsilon_not_above_0_is_one_line(self, epsilon: float):
        worlds = Worlds(np.arange(4.0), 1.0)
        for ask in (worlds.tight, lambda e: worlds.posterior(1.0, e), lambda e: upper(e, 4, 1.0)):
            with pytest.raises(DisclosureError, match="epsilon is a number above 0"):
                ask(epsilon)

    def test_noise_of_scale_0_is_rejected(self):
        with pytest.raises(DisclosureError, match="no noise would be added"):
            Worlds(np.arange(4.0), 0.0)
