"""A histogram's ε compared with enumeration, sums at 40 digits and published numbers."""

import functools
import math

import mpmath
import numpy as np
import pytest
from experiments import experiment_json, number_json
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from shuffled_enumeration import code_chances, exact_delta

from hushmote.device.ldp_client import Experiment
from hushmote.server.accounting.errors import AccountingError
from hushmote.server.accounting.shuffle import (
    MAX_SHUFFLED,
    Blanket,
    composed_epsilon,
    histogram_delta,
    histogram_epsilon,
)
from hushmote.server.estimate.shuffled import blanket_of
from hushmote.server.mechanisms.direct import Direct
from hushmote.server.mechanisms.mechanism import Mechanism

MILLION = 1_000_000
SMALL = {
    "grr": number_json(4, epsilon=MILLION),
    "grr 2": number_json(3, epsilon=2 * MILLION),
    "rr": experiment_json(),
    "rr 2": experiment_json(epsilon=2 * MILLION),
    "olh": number_json(4, mechanism="olh", g=3, epsilon=MILLION),
    "olh, g 2": number_json(3, mechanism="olh", g=2, epsilon=2 * MILLION),
    "hh": number_json(4, mechanism="hh", fanout=2, cells=[2, 4], weights=[1, 2], epsilon=MILLION),
    "hh, hashed": number_json(4, mechanism="hh", fanout=2, cells=[2, 3], epsilon=2 * MILLION),
}
POINTS = [
    *(("grr", 8, x) for x in (0.1, 0.3, 0.6, 0.9)),
    *(("grr 2", 6, x) for x in (0.3, 1.0, 1.7)),
    *(("rr", 30, x) for x in (0.1, 0.3, 0.8)),
    *(("rr 2", 20, x) for x in (0.5, 1.2)),
    *(("olh", 4, x) for x in (0.2, 0.5, 0.8)),
    *(("olh, g 2", 5, x) for x in (0.4, 1.5)),
    *(("hh", 5, x) for x in (0.2, 0.5, 0.8)),
    *(("hh, hashed", 3, x) for x in (0.3, 1.5)),
]


def _grr(epsilon: float, domain: int) -> Blanket:
    lie = 1 / (math.exp(epsilon) + domain - 1)
    return Blanket(math.exp(epsilon), lie, domain * lie)


def _hashed(epsilon: float, g: int, domain: int) -> Blanket:
    size = g
    while size < domain:
        size *= g
    lie = 1 / (math.exp(epsilon) + g - 1)
    return Blanket(math.exp(epsilon), (1 - (size / g - 1) / (size - 1)) * lie, g * lie)


@functools.cache
def _chances(name: str) -> np.ndarray:
    return code_chances(Experiment.parse(SMALL[name]))


class TestBlanket:
    @pytest.mark.parametrize("name", SMALL)
    def test_is_the_mass_shared_by_all_values(self, name: str) -> None:
        chances, blanket = _chances(name), blanket_of(Experiment.parse(SMALL[name]))
        shared = chances.min(axis=1)
        assert 0.99 * blanket.odds < (chances.max(axis=1) / shared).max() <= blanket.odds
        assert blanket.whole <= shared.sum() * (1 + 1e-9)
        first, last = chances[:, 0], chances[:, -1]
        assert shared[first > 1.5 * last].sum() == pytest.approx(blanket.pair, rel=1e-6)

    def test_mechanism_with_only_odds_uses_the_clones_blanket(self, monkeypatch: pytest.MonkeyPatch) -> None:
        experiment = Experiment.parse(SMALL["grr"])
        known = blanket_of(experiment)
        monkeypatch.setattr(Direct, "blanket", Mechanism.blanket)
        clones = blanket_of(experiment)
        assert clones == Blanket.of_clones(known.odds)
        assert histogram_epsilon(clones, 1_000, 1e-6) > histogram_epsilon(known, 1_000, 1e-6)


class TestEnumeration:
    @pytest.mark.parametrize(("name", "reports", "epsilon"), POINTS)
    def test_is_never_above_the_bound(self, name: str, reports: int, epsilon: float) -> None:
        exact = exact_delta(_chances(name), reports, epsilon)
        bound = histogram_delta(blanket_of(Experiment.parse(SMALL[name])), reports, epsilon)
        assert exact <= bound <= 1
        assert bound < 5 * exact + 1e-3  # and not far above: 1.25 times for grr over 4 values

    def test_matches_known_values(self) -> None:
        chances, blanket = _chances("grr"), blanket_of(Experiment.parse(SMALL["grr"]))
        assert exact_delta(chances, 8, 0.1) == pytest.approx(0.105550, abs=1e-6)
        assert exact_delta(chances, 8, 0.6) == pytest.approx(0.006219, abs=1e-6)
        assert histogram_delta(blanket, 8, 0.1) == pytest.approx(0.105550, abs=1e-6)
        assert histogram_delta(blanket, 8, 0.6) == pytest.approx(0.007744, abs=1e-6)

    @pytest.mark.parametrize(
        ("name", "reports", "delta"), [("grr", 6, 0.05), ("rr", 20, 0.02), ("hh", 4, 0.1)]
    )
    def test_two_reports_from_one_board_meet_their_epsilon(
        self, name: str, reports: int, delta: float
    ) -> None:
        blanket = blanket_of(Experiment.parse(SMALL[name]))
        epsilon = histogram_epsilon(blanket, reports, delta, own=2)
        assert exact_delta(_chances(name), reports, epsilon, own=2) <= delta
        assert epsilon > histogram_epsilon(blanket, reports, delta)


def _direct(blanket: Blanket, n: int, epsilon: float) -> mpmath.mpf:
    """Sum the definition term by term at 40 digits."""
    with mpmath.workdps(40):
        odds, k = mpmath.mpf(blanket.odds), mpmath.mpf(blanket.pair)
        neither, x = mpmath.mpf(blanket.whole) - 2 * k, mpmath.exp(mpmath.mpf(epsilon))
        rest, total = 1 - mpmath.mpf(blanket.whole), mpmath.mpf(0)
        for n0 in range(n + 1):
            for n1 in range(n - n0 + 1):
                for n2 in range(n - n0 - n1 + 1):
                    gain = n0 * (odds - x) + n1 * (1 - x * odds) + n2 * (1 - x)
                    if gain <= 0:
                        break
                    ways = mpmath.binomial(n, n0) * mpmath.binomial(n - n0, n1)
                    ways *= mpmath.binomial(n - n0 - n1, n2)
                    total += gain * ways * k ** (n0 + n1) * neither**n2 * rest ** (n - n0 - n1 - n2)
        return total / n


class TestBound:
    @pytest.mark.parametrize(
        ("blanket", "reports", "known"),
        [
            (_grr(2, 16), 26_000, 0.0404),
            (_hashed(2, 7, 64), 26_000, 0.0527),
            (_grr(2, 2), 26_000, 0.0685),
            (Blanket.of_clones(math.e**2), 26_000, 0.0685),
            (Blanket.of_clones(math.e), 26_000, 0.0258),
            (Blanket.of_clones(math.e**4), 26_000, 0.244),
            (Blanket.of_clones(math.e**2), 1_000, 0.397),
        ],
        ids=[
            *("grr of 16", "hashed", "grr of 2"),
            *("clones at 2", "clones at 1", "clones at 4", "clones of 1,000 reports"),
        ],
    )
    def test_matches_known_values(self, blanket: Blanket, reports: int, known: float) -> None:
        assert histogram_epsilon(blanket, reports, 1e-6) == pytest.approx(known, rel=0.02)

    @pytest.mark.slow
    @pytest.mark.parametrize(("epsilon", "reports"), [(0.05, 40), (0.3, 40), (0.9, 25), (1.5, 12)])
    def test_rounds_up_only_slightly(self, epsilon: float, reports: int) -> None:
        blanket = _grr(2, 5)
        true = _direct(blanket, reports, epsilon)
        assert true <= histogram_delta(blanket, reports, epsilon) <= true * mpmath.mpf(1.000001)

    @pytest.mark.slow
    @pytest.mark.parametrize(("n", "epsilon"), [(1_000, 0.3), (6_000, 0.12)])
    def test_blocks_and_chords_add_little(self, n: int, epsilon: float) -> None:
        """Compare with the full sum over M and N2, without blocks."""
        blanket, x = _hashed(2, 7, 64), math.exp(epsilon)
        odds, k = blanket.odds, blanket.pair
        m = np.arange(n * 2 * k - 250, n * 2 * k + 450).round()
        m = m[(m >= 1) & (m <= n)][:, None]
        centre = n * (blanket.whole - 2 * k)
        n2 = np.arange(max(0, centre - 320), centre + 320).round()[None, :]
        a, t = (x + 1) * (odds - 1), m * (x * odds - 1) + n2 * (x - 1)
        first = np.floor(t / a) + 1
        mean = a * m / 2 * stats.binom.sf(first - 2, m - 1, 0.5) - t * stats.binom.sf(first - 1, m, 0.5)
        law = stats.binom.pmf(m, n, 2 * k) * stats.binom.pmf(n2, n - m, (blanket.whole - 2 * k) / (1 - 2 * k))
        true = float((law * np.maximum(mean, 0)).sum() / n)
        assert true * (1 - 1e-9) <= histogram_delta(blanket, n, epsilon) <= true * 1.01

    @pytest.mark.parametrize(("trials", "sigmas"), [(10**6, 5), (10**9, 4), (10**9, 9)])
    def test_binomial_tails_are_precise_for_a_billion_trials(self, trials: int, sigmas: float) -> None:
        """The error of SciPy's binomial tail is smaller than our margin for it."""
        from scipy import special

        k = int(trials / 2 + sigmas * math.sqrt(trials) / 2)
        with mpmath.workdps(40):
            # The beta integral up to ½, which is negligible below ½ - w.
            w = mpmath.mpf(60) / (2 * (2 * k - trials))
            half, logs = mpmath.mpf(1) / 2, mpmath.loggamma
            front = logs(trials + 1) - logs(k) - logs(trials - k + 1)

            def density(t: mpmath.mpf) -> mpmath.mpf:
                return mpmath.exp(front + (k - 1) * mpmath.log(t) + (trials - k) * mpmath.log(1 - t))

            true = mpmath.quad(density, [half - w * i / 12 for i in range(12, -1, -1)])
            assert abs(special.betainc(k, trials - k + 1, 0.5) / true - 1) < 1e-9


BLANKETS = {
    "grr at 1": _grr(1, 4),
    "grr at 0.1": _grr(0.1, 2),
    "grr at 6": _grr(6, 1000),
    "hashed at 2": _hashed(2, 7, 64),
    "hashed at 4": _hashed(4, 53, 256),
}


class TestEpsilon:
    @pytest.mark.slow
    @settings(max_examples=30)
    @given(
        st.sampled_from(list(BLANKETS.values())),
        st.integers(1, 60_000),
        st.integers(1, 60_000),
        st.sampled_from([1e-12, 1e-6, 1e-3]),
        st.integers(1, 3),
    )
    def test_never_grows_with_more_reports(
        self, blanket: Blanket, first: int, second: int, delta: float, own: int
    ) -> None:
        low, high = sorted((first + own - 1, second + own - 1))  # including a board with `own` reports
        assert histogram_epsilon(blanket, high, delta, own) <= histogram_epsilon(blanket, low, delta, own)

    @pytest.mark.slow
    @pytest.mark.parametrize("blanket", BLANKETS.values(), ids=BLANKETS)
    def test_never_grows_between_neighbouring_numbers(self, blanket: Blanket) -> None:
        numbers = [
            *range(1, 40, 3),
            *range(254, 260),
            *range(5_000, 5_400, 48),
            *range(10**6, 10**6 + 30_000, 8_192),
        ]
        epsilons = [histogram_epsilon(blanket, n, 1e-6) for n in numbers]
        assert epsilons == sorted(epsilons, reverse=True)

    @pytest.mark.slow
    @settings(max_examples=20)
    @given(
        st.sampled_from(list(BLANKETS.values())),
        st.integers(1, 10**9),
        st.sampled_from([0.0, 1e-12, 1e-6]),
        st.integers(1, 50),
    )
    def test_never_exceeds_own_reports_epsilon(
        self, blanket: Blanket, reports: int, delta: float, own: int
    ) -> None:
        epsilon = histogram_epsilon(blanket, reports, delta, own)
        assert 0 <= epsilon <= min(own, reports) * blanket.epsilon * (1 + 1e-12)

    @pytest.mark.parametrize("reports", [3, 50, 1_000, 26_000, 10**6, MAX_SHUFFLED])
    def test_meets_delta(self, reports: int) -> None:
        blanket = _hashed(2, 7, 64)
        epsilon = histogram_epsilon(blanket, reports, 1e-6)
        assert histogram_delta(blanket, reports, epsilon) <= 1e-6 * (1 + 1e-4)


class TestComposedEpsilon:
    def test_is_that_of_the_least_private_histogram(self) -> None:
        blanket = _hashed(2, 7, 64)
        alone = histogram_epsilon(blanket, 1_000, 1e-6)
        assert composed_epsilon([(blanket, 1_000), (blanket, 26_000)], 1e-6) == alone
        # A window with one report cannot contain both of a board's reports.
        pair = composed_epsilon([(blanket, 1), (blanket, 1_000)], 1e-6, own=2)
        assert blanket.epsilon + alone <= pair < blanket.epsilon + 1.1 * alone
        assert composed_epsilon([(blanket, 1_000)] * 5, 1e-6, own=3) == histogram_epsilon(
            blanket, 1_000, 1e-6, 3
        )


class TestArguments:
    def test_rejects_invalid_values(self) -> None:
        blanket = _grr(1, 4)
        for reports, delta, own in ((0, 1e-6, 1), (10, 1.0, 1), (10, 1e-6, 0)):
            with pytest.raises(AccountingError):
                histogram_epsilon(blanket, reports, delta, own)
        with pytest.raises(AccountingError, match="blanket"):
            Blanket(2.0, 0.6, 1.0)
