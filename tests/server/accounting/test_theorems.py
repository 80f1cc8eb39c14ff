"""Composition theorems compared with publications, formulas at 60 digits and other accountants."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import reference_composition as composition
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import Refusal, refusals

from hushmote.server.accounting import (
    THEOREMS,
    AccountingError,
    Advanced,
    Basic,
    History,
    Kind,
    Optimal,
    ReportCost,
    Unlimited,
    ZcdpFilter,
    choose,
)

WITHOUT_DELTA = ("basic", "none")


def make(name: str, total: float, delta: float):
    return choose(name, None if name == "none" else total, 0 if name in WITHOUT_DELTA else delta)


# --- Caps never exceed their theorem, at 60 digits -------------------------------------------

micro_totals = st.integers(50_000, 12_000_000)
micro_epsilons = st.integers(20_000, 4_000_000)
deltas = st.sampled_from(["0.1", "0.001", "1e-6", "3.7e-9", "1e-12"])


def overruns(name: str, total: int, delta: str, epsilon: int, reports: int) -> bool:
    """Return whether this many reports at epsilon violate the paper's formula, at 60 digits."""
    if name == "basic":
        return reports * epsilon > total
    if name == "zcdp":
        return composition.zcdp(reports * epsilon**2, delta) > composition.nats(total)
    if name == "advanced":
        return composition.advanced(epsilon, reports, delta) > composition.nats(total)
    assert name == "optimal", f"{name} is missing here; add the formula from its paper"
    return composition.optimal_delta(epsilon, reports, total) > composition.mpmath.mpf(delta)


BOUNDED = [name for name in THEOREMS if name != "none"]


class TestCap:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", BOUNDED)
    @settings(max_examples=60)
    @given(total=micro_totals, epsilon=micro_epsilons, delta=deltas)
    def test_allows_exactly_what_the_theorem_allows(self, name, total, epsilon, delta):
        rule = make(name, total / 1e6, float(delta))
        reports = rule.most_reports(epsilon)
        assert reports is not None
        assume(reports < 3_000)
        assert reports * rule.cost(epsilon) <= rule.cap(epsilon)
        if reports:
            assert not overruns(name, total, delta, epsilon, reports)
            assert rule.allowed([epsilon] * reports)
        assert overruns(name, total, delta, epsilon, reports + 1)
        assert not rule.allowed([epsilon] * (reports + 1))

    @pytest.mark.slow
    @pytest.mark.parametrize("name", BOUNDED)
    @settings(max_examples=40)
    @given(total=micro_totals, reports=st.integers(1, 400), delta=deltas)
    def test_largest_epsilon_is_tight(self, name, total, reports, delta):
        rule = make(name, total / 1e6, float(delta))
        epsilon = rule.most_epsilon(reports)
        assert epsilon is not None
        if epsilon:
            assert not overruns(name, total, delta, epsilon, reports)
            assert rule.most_reports(epsilon) >= reports
        assert overruns(name, total, delta, epsilon + 1, reports)

    @settings(max_examples=100)
    @given(total=micro_totals, delta=deltas)
    def test_of_squares_is_exact_to_the_last_digit(self, total, delta):
        cap = ZcdpFilter(total / 1e6, float(delta)).cap(1)
        assert composition.zcdp(cap, delta) <= composition.nats(total) < composition.zcdp(cap + 1, delta)

    @pytest.mark.slow
    @settings(max_examples=100)
    @given(
        total=micro_totals,
        history=st.lists(micro_epsilons, min_size=1, max_size=30),
        delta=deltas,
        cents=st.integers(1, 1000),
    )
    def test_mixed_reports_within_it_satisfy_the_theorem(self, total, history, delta, cents):
        scaled = [max(1, e * cents // 1000) for e in history]
        squares = ZcdpFilter(total / 1e6, float(delta))
        within = composition.zcdp(sum(e * e for e in scaled), delta) <= composition.nats(total)
        assert (sum(squares.cost(e) for e in scaled) <= squares.cap(1)) == within == squares.allowed(scaled)
        basic = Basic(total / 1e6)
        assert (sum(basic.cost(e) for e in scaled) <= basic.cap(1)) == (sum(scaled) <= total)
        assert basic.allowed(scaled) == (sum(scaled) <= total)


# --- One interface ----------------------------------------------------------------------------------


class TestUnlimited:
    def test_has_no_bound(self):
        assert Unlimited().most_reports(1_000_000) is None
        assert Unlimited().most_epsilon(10) is None
        assert Unlimited().allowed([16_000_000] * 1000)
        assert (Unlimited().cost(5), Unlimited().cap(5)) == (0, 0)


class TestSpent:
    @pytest.mark.parametrize("name", THEOREMS)
    def test_is_zero_without_reports_and_fits_exactly(self, name):
        rule = make(name, 4, 1e-6)
        assert rule.spent([]).epsilon == 0
        assert rule.allowed([])
        if name != "none":
            spent = rule.spent([50_000] * 60).epsilon
            assert make(name, spent + 1.1e-6, 1e-6).allowed([50_000] * 60)
            assert not make(name, spent - 1e-9, 1e-6).allowed([50_000] * 60)

    def test_deducts_the_deltas_of_reports(self):
        leaky = [ReportCost(100_000, 1e-7)] * 5
        assert not Basic(8).allowed(leaky)
        assert Basic(8, 5e-7).allowed(leaky)
        assert not Basic(8, 4.9e-7).allowed(leaky)
        assert Basic(8, 5e-7).spent(leaky).delta == Basic(8, 1e-6).spent(leaky).delta == 5e-7
        assert Basic(8, 5e-7).guarantee().kind == Kind.APPROXIMATE
        assert not ZcdpFilter(8, 1e-6).allowed(leaky)
        assert ZcdpFilter(8, 1e-6, own=5e-7).allowed(leaky)
        assert ZcdpFilter(8, 1e-6, own=5e-7).cap(1) == ZcdpFilter(8, 5e-7).cap(1)
        assert Advanced(8, 1e-6).spent(leaky).epsilon == Advanced(8, 5e-7).spent([100_000] * 5).epsilon
        ours = Optimal(0.4, 1e-3).spent([ReportCost(100_000, 1e-4)] * 5).epsilon
        assert ours == pytest.approx(
            Optimal(0.4, 1 - (1 - 1e-3) / (1 - 1e-4) ** 5).spent([100_000] * 5).epsilon
        )
        assert Optimal(8, 4e-7).spent(leaky).epsilon == math.inf

    def test_reads_total_as_its_printed_decimal(self):
        assert Basic(0.1).cap(1) == 100_000
        assert Basic(0.1 + 0.2).spent([300_000]).epsilon == 0.3
        for total in (Fraction(3, 10), np.float64(0.3)):
            assert Basic(total).cap(1) == 300_000  # type: ignore[arg-type]
        assert Basic(np.float32(0.7)).cap(1) == 699_999  # type: ignore[arg-type]  # 0.699999988 is the nearest float32
        assert "0.3-LDP" in Basic(Fraction(3, 10)).guarantee().words  # type: ignore[arg-type]


class TestGuarantee:
    @pytest.mark.parametrize("name", THEOREMS)
    def test_describes_every_theorem(self, name):
        guarantee = make(name, 4, 1e-6).guarantee()
        kinds = {"basic": Kind.PURE, "none": Kind.UNBOUNDED}
        assert guarantee.kind == kinds.get(name, Kind.APPROXIMATE)
        assert guarantee.epsilon == (math.inf if name == "none" else 4)
        assert guarantee.delta == (0 if name in WITHOUT_DELTA else 1e-6)
        assert "{" not in guarantee.words
        json.dumps([guarantee.kind, guarantee.words])

    @pytest.mark.parametrize(
        "theorem",
        [Basic(3, 0.1), ZcdpFilter(3, 0.1, own=0.01), Optimal(3, 0.1)],
        ids=["basic", "zcdp", "optimal"],
    )
    def test_mentions_odds_only_without_own_delta(self, theorem):
        words = theorem.guarantee().words
        assert "except with probability" not in words
        assert "no event is likelier under one course of readings than e^3 times" in words
        assert "except with probability 0.1" in ZcdpFilter(3, 0.1).guarantee().words


class TestKnownNumbers:
    @pytest.mark.parametrize(
        ("total", "epsilon", "basic", "zcdp", "optimal"),
        [
            (1, 10_000, 100, 349, 562),
            (4, 50_000, 80, 203, 284),
            (8, 100_000, 80, 181, 238),
            (8, 500_000, 16, 7, 16),
        ],
    )
    def test_reports_match_publications(self, total, epsilon, basic, zcdp, optimal):
        expected = {"basic": basic, "zcdp": zcdp, "optimal": optimal}
        assert {name: make(name, total, 1e-6).most_reports(epsilon) for name in expected} == expected

    def test_advanced_composition_has_its_factor_before_the_root(self):
        history = History.equal(500_000, 350)
        assert Advanced(200, 0.1).spent(history).epsilon == pytest.approx(133.60, abs=0.005)
        assert Advanced(133.60, 0.1).allowed(history)
        assert not Advanced(133.59, 0.1).allowed(history)
        without = math.sqrt(2 * 350 * math.log(10)) + 350 * 0.5 * math.expm1(0.5)
        assert without == pytest.approx(153.67, abs=0.005)  # the value in a tutorial

    def test_squares_cap_of_8_at_a_millionth(self):
        assert ZcdpFilter(8, 1e-6).cap(1) == 1_819_413_659_380
        assert ZcdpFilter(8, 1e-6).cap(1) // 10**9 * 10**9 == 1_819_000_000_000

    def test_negligible_delta_allows_basic_epsilon(self):
        """0.3 / 3 is slightly less than the double 0.1, but three reports of a tenth fit exactly."""
        assert Optimal(0.3, 1e-300).most_epsilon(3) == Basic(0.3).most_epsilon(3) == 100_000

    def test_handles_millions_of_small_reports(self):
        assert Optimal(10, 1e-6).most_reports(1_000) == 3_415_598
        assert Optimal(10, 1e-6).most_epsilon(10**6) == 1_848


# --- Against Google's accountants -------------------------------------------------------------------


def randomized_response(epsilon: float, step: float):
    return privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=step
    )


class TestOtherAccountants:
    def test_mixtures_stay_within_our_delta(self):
        """Their δ for a mixture at our ε is at most ours (with the optimistic δ if losses are rounded up)."""
        rng = np.random.default_rng(5)
        step = 1e-3
        for _ in range(6):
            history = [int(x) * 10_000 for x in rng.integers(1, 40, size=12)]
            composed = randomized_response(history[0] / 1e6, step)
            for epsilon in history[1:]:
                composed = composed.compose(randomized_response(epsilon / 1e6, step))
            for name in ("zcdp", "advanced"):
                for delta in (1e-2, 1e-5):
                    total = make(name, 5, delta).spent(history).epsilon
                    assert composed.get_delta_for_epsilon(total + len(history) * step) <= delta

    def test_zcdp_conversion_is_never_below_the_tight_one(self):
        for rho in (0.001, 0.1, 0.9, 3):
            accountant = rdp_privacy_accountant.RdpAccountant()
            accountant.compose(dp_event.ZCDpEvent(rho))
            for delta in (1e-3, 1e-6, 1e-9):
                history = [round(math.sqrt(2 * rho) * 1e6)]
                ours = ZcdpFilter(5, delta).spent(history).epsilon
                theirs = accountant.get_epsilon(delta)
                assert theirs <= ours < 1.35 * theirs + 0.2


# --- Invalid arguments ----------------------------------------------------------------------------


class TestArguments:
    @pytest.mark.parametrize("name", [n for n in THEOREMS if n != "none"])
    @pytest.mark.parametrize("total", [0, -1, math.nan, math.inf, "4", True])
    def test_rejects_invalid_total(self, name, total):
        with pytest.raises(AccountingError, match="the total must be a positive number"):
            make(name, total, 1e-6)

    @pytest.mark.parametrize("delta", [-0.1, 1, 2, math.nan])
    @pytest.mark.parametrize("name", [n for n in THEOREMS if n not in WITHOUT_DELTA])
    def test_rejects_delta_outside_0_to_1(self, name, delta):
        with pytest.raises(AccountingError, match="delta must be at least 0 and below 1"):
            choose(name, 4, delta)

    @refusals(
        ("zcdp", 4, 0, "zcdp composition needs a delta above 0"),
        ("advanced", 4, 0, "advanced composition needs a delta above 0"),
        ("none", 4, 0, "none does not accept a total"),
        ("none", None, 1e-6, "none does not accept a total"),
        ("basic", None, 0, "basic composition needs a total"),
        ("best", 4, 0, "unknown theorem best; choose from basic, zcdp"),
        ("nowhere:Class", 4, 0, "unknown theorem nowhere:Class"),
        ("json:loads", 4, 0, "unknown theorem json:loads"),
        call=choose,
        error=AccountingError,
    )
    def test_rejects_contradictory_pairs_and_unknown_names(self, refusal: Refusal):
        refusal.check()

    def test_custom_theorem_can_reject_a_delta(self):
        class Sum(Basic):
            name = "sum"
            deltas = "none"

        assert Sum(4).cap(1) == 4_000_000
        with pytest.raises(AccountingError, match=r"^sum does not use a delta; omit it$"):
            Sum(4, 1e-6)

    def test_rejects_invalid_reports(self):
        with pytest.raises(AccountingError, match=r"\(500000 is 0.5\) must be a whole number"):
            Basic(4).allowed([0.5])  # type: ignore[list-item]
        with pytest.raises(AccountingError, match="at least 1"):
            Basic(4).cost(0)
        with pytest.raises(AccountingError, match="delta must be at least"):
            ReportCost(1, 1.0)
        with pytest.raises(AccountingError, match="the number of reports"):
            Basic(4).most_epsilon(0)
        with pytest.raises(AccountingError, match="own must be below delta"):
            ZcdpFilter(4, 1e-6, own=1e-6)
        with pytest.raises(AccountingError, match=r"equal reports, not epsilons of 0.1, 0.2"):
            Optimal(4, 1e-6).spent([100_000, 200_000])
