"""An attacker's beliefs after reports, compared with exact enumeration of the board's randomizer."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from designs import number_with_mechanism
from enumeration import distribution
from refusals import Refusal, fails, refusals

from hushmote.device.ldp_client import ONE, Experiment
from hushmote.planning.privacy import beliefs as disclosure
from hushmote.planning.privacy import many_reports as disclosure_budget
from hushmote.planning.privacy import questions as epsilon_local
from hushmote.planning.privacy.beliefs import DisclosureError, Risk, Target, uniform
from hushmote.server.accounting import MICRO, THEOREMS, optimal_epsilon
from hushmote.server.accounting.theorem import exact_arithmetic

MECHANISMS = {
    "rr": number_with_mechanism("grr", 2, 1.3),
    "grr": number_with_mechanism("grr", 5, 0.7),
    "olh 3": number_with_mechanism("olh", 10, 1.0, g=3),
    "olh 2": number_with_mechanism("olh", 7, 0.4, g=2),
    "olh 5": number_with_mechanism("olh", 9, 2.0, g=5),
    "hh": number_with_mechanism("hh", 7, 1.5, fanout=2, cells=[2, 3, 3], weights=[2, 0, 3]),
    "hh direct": number_with_mechanism("hh", 6, 1.0, fanout=3, cells=[2, 5]),
}


@pytest.fixture(params=MECHANISMS.values(), ids=list(MECHANISMS))
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return request.param


def lopsided(domain: int) -> np.ndarray:
    """Return an uneven prior in exact sixty-fourths, with one impossible value."""
    weights = np.array([(7 * i * i + 3 * i) % 11 for i in range(domain)], dtype=float)
    return weights / weights.sum()


def channel(experiment: Experiment) -> dict[int, dict[int, Fraction]]:
    return {v: distribution(lambda rng, v=v: experiment.randomize(v, rng)) for v in range(experiment.domain)}


def enumerated(experiment: Experiment, prior: np.ndarray, members: tuple[int, ...]) -> Fraction:
    """Return the exact highest belief in `members` over all codes."""
    rows = channel(experiment)
    pi = [Fraction(float(p)) for p in prior]
    codes = set().union(*rows.values())
    joint = {c: [p * rows[v].get(c, 0) for v, p in enumerate(pi)] for c in codes}
    return max(sum((js[v] for v in members), Fraction(0)) / sum(js) for js in joint.values() if sum(js))


class TestLargestEpsilon:
    @pytest.mark.parametrize("about", [None, (0, 3)], ids=["every value", "a set"])
    @pytest.mark.parametrize(
        "risk", [Risk(most=Fraction(3, 5)), Risk(factor=Fraction(5, 4))], ids=["most", "factor"]
    )
    def test_exceeds_the_risk_at_a_micro_nat_more(self, experiment: Experiment, about, risk: Risk):
        prior = uniform(experiment.domain)
        targets = None if about is None else [Target("some", about[: experiment.domain // 2])]
        at = disclosure.fixed_mechanism(experiment)
        result = disclosure.largest_epsilon(at, prior, targets, risk)
        assert result is not None
        assert disclosure.keeps_risk(at(result), prior, targets, risk)
        if result < 16_000_000:
            assert not disclosure.keeps_risk(at(result + 1), prior, targets, risk, 1e-12)
        targets = targets or disclosure.singles(prior, ["v"] * len(prior))
        for target in targets:
            belief = disclosure.worst_posterior(at(result), prior, target)
            assert belief <= float(risk.ceiling(target.prior(prior)))
        allowed = disclosure.allowed_loss(prior, targets, risk)
        assert allowed.total is not None
        assert result >= allowed.total

    def test_without_a_mechanism_is_rounded_down(self):
        for prior, most in ((0.1, Fraction(1, 4)), (1 / 1024, Fraction(1, 1000)), (0.3, Fraction(99, 100))):
            total = disclosure.allowed_loss(
                np.array([prior, 1 - prior]), [Target("a", (0,))], Risk(most)
            ).total
            assert total is not None
            with exact_arithmetic():
                pi, ceiling = Decimal(prior), Decimal(most.numerator) / Decimal(most.denominator)
                for nats, is_kept in ((total, True), (total + 1, False)):
                    e = (Decimal(nats) / MICRO).exp()
                    assert (pi * e / (1 - pi + pi * e) <= ceiling) is is_kept

    def test_factor_is_limited_by_the_rarest_value(self):
        prior = np.array([0.6, 0.3, 0.1, 0.0])
        targets = disclosure.singles(prior, ["a", "b", "c", "d"])
        allowed = disclosure.allowed_loss(prior, targets, Risk(factor=Fraction(3, 2)))
        assert (allowed.target, allowed.ceiling) == ("c", pytest.approx(0.15))
        assert allowed.total == int(math.log(0.15 * 0.9 / (0.1 * 0.85)) * MICRO)
        # 1.2: any ε.
        assert disclosure.allowed_loss(prior, targets[:1], Risk(factor=Fraction(2))).total is None

    def test_rejects_a_prior_above_the_risk(self):
        with fails(r"^b: the belief is already 0.5 before any report.*no ε keeps", DisclosureError):
            disclosure.allowed_loss(
                np.array([0.2, 0.5, 0.3]),
                disclosure.singles(np.array([0.2, 0.5, 0.3]), ["a", "b", "c"]),
                Risk(Fraction(2, 5)),
            )


# --- Many reports ---------------------------------------------------------------------------------


def tail(n: int, epsilon: float, loss: float) -> float:
    """Return the probability that n randomized responses to a true bit lose more than `loss`."""
    lie = 1 / (1 + math.exp(epsilon))
    lies = [i for i in range(n + 1) if (n - 2 * i) * epsilon > loss * (1 + 1e-12)]
    return math.fsum(math.comb(n, i) * lie**i * (1 - lie) ** (n - i) for i in lies)


class TestTheorems:
    @pytest.mark.parametrize(("n", "total", "fails"), [(100, 1.0, 1e-6), (30, 2.0, 1e-3), (10, 1.1, 0.01)])
    def test_fail_no_more_often_than_stated(self, n: int, total: float, fails: float):
        rows = disclosure_budget.budget_rows(round(total * MICRO), n, fails)
        assert [row.theorem for row in rows] == [*THEOREMS]
        for row in rows:
            if row.fails is not None:
                assert row.epsilon is not None
                assert tail(n, row.epsilon, total) <= row.fails

    def test_epsilon_delta_guarantee_fails_more_often_than_delta(self):
        epsilon = optimal_epsilon(100, 1.0, 1e-6)
        assert tail(100, epsilon, 1.0) == pytest.approx(2.68e-5, rel=0.01)  # 27 δ
        (row,) = (r for r in disclosure_budget.budget_rows(MICRO, 100, 1e-6) if r.theorem == "optimal")
        assert row.epsilon is not None
        assert row.total is not None
        assert row.epsilon < epsilon
        assert row.delta <= 1e-6 * -math.expm1(row.total - 1.0)

    @pytest.mark.slow
    @pytest.mark.parametrize(("epsilon", "n"), [(0.1, 100), (1.0, 8), (0.02, 400)])
    def test_losses_hold_except_with_stated_chance(self, epsilon: float, n: int):
        rows = disclosure_budget.loss_rows(round(epsilon * MICRO), n, 1e-4)
        assert {row.theorem for row in rows} == {"basic", "zcdp", "optimal", "advanced"}
        for row in rows:
            assert row.loss <= n * epsilon
            assert tail(n, epsilon, row.loss) <= row.fails
        losses = {row.theorem: row.loss for row in rows}
        assert losses["optimal"] <= losses["zcdp"] <= losses["basic"]

    def test_only_certain_theorems_remain_without_delta(self):
        assert [r.theorem for r in disclosure_budget.budget_rows(MICRO, 10, 0.0)] == ["basic", "none"]
        assert [r.theorem for r in disclosure_budget.loss_rows(MICRO, 10, 0.0)] == ["basic"]


class TestRepeatedReports:
    def test_match_every_sequence_of_answers(self):
        prior, odds, n = np.array([0.5, 0.3, 0.2]), Fraction(3), 4
        keep, lie = odds / (odds + 2), 1 / (odds + 2)
        ceilings = np.array([0.8, 0.6, 0.5])
        pi = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)]
        worst, passes, mean, guess = [Fraction(0)] * 3, [Fraction(0)] * 3, Fraction(0), Fraction(0)
        for answers in itertools.product(range(3), repeat=n):
            likely = [keep ** answers.count(v) * lie ** (n - answers.count(v)) for v in range(3)]
            joint = [p * x for p, x in zip(pi, likely, strict=True)]
            belief = [j / sum(joint) for j in joint]
            guess += max(joint)
            for v in range(3):
                worst[v] = max(worst[v], belief[v])
                passes[v] += likely[v] if belief[v] > Fraction(float(ceilings[v])) else 0
                mean += joint[v] * belief[v]
        result = disclosure_budget.repeated_reports(prior, 3.0, n, ceilings)
        assert result.worst == pytest.approx([float(x) for x in worst], rel=1e-12)
        assert result.passes == pytest.approx([float(x) for x in passes], rel=1e-12)
        assert (result.mean, result.guess) == (pytest.approx(float(mean)), pytest.approx(float(guess)))

    def test_many_reports_do_not_overflow(self):
        result = disclosure_budget.repeated_reports(np.array([0.7, 0.3]), 3.0, 5_000, np.full(2, 0.8))
        assert result.worst == pytest.approx([1, 1])
        assert result.passes == pytest.approx([1, 1])
        assert (result.mean, result.guess) == (pytest.approx(1), pytest.approx(1))

    @pytest.mark.parametrize(
        ("text", "name", "members"),
        [
            ("3", "value 3", (3,)),
            ("2:5", "values 2 to 4", (2, 3, 4)),
            (":2", "values 0 to 1", (0, 1)),
            ("8:", "values 8 to 9", (8, 9)),
            ("1,4:6", "value 1,4:6", (1, 4, 5)),
        ],
    )
    def test_target_of_bare_values_is_named(self, text: str, name: str, members: tuple[int, ...]):
        assert epsilon_local.bare_values(10).target(text) == epsilon_local.Target(name, members)

    @pytest.mark.slow
    def test_reports_about_one_value_satisfy_the_theorems(self):
        values = epsilon_local.bare_values(4)
        prior = np.array([0.4, 0.3, 0.2, 0.1])
        at = epsilon_local.choose_mechanism(4, "grr")
        result = epsilon_local.from_risk(
            epsilon_local.Attacker(values, at, prior, None, 40, 0.01), Risk(Fraction(3, 5))
        )
        chances = dict(zip((r.theorem for r in result.rows), result.passes, strict=True))
        for row in result.rows:
            p = chances[row.theorem]
            assert row.theorem == "none" or p is not None
            assert row.fails is None or p is None or p <= row.fails
        far = at(round((result.rows[0].epsilon or 0) * MICRO))
        level = far.levels[0]
        odds = level.threshold * 3 / (ONE - level.threshold)
        worst = disclosure_budget.repeated_reports(prior, odds, 40, np.ones(4)).worst
        assert worst.max() <= 0.6
        assert worst.max() == pytest.approx(0.6, abs=1e-4)

    def test_hashed_reports_are_not_enumerated(self):
        values = epsilon_local.bare_values(10)
        at = epsilon_local.choose_mechanism(10, "olh")
        result = epsilon_local.from_epsilon(epsilon_local.Attacker(values, at, uniform(10), None, 3), MICRO)
        assert result.repeated is None
        assert result.refused.startswith("olh draws a new hash or level for every report")

    @pytest.mark.parametrize(
        ("reports", "risk"),
        [(None, Risk(Fraction(3, 5))), (40, Risk(factor=Fraction(20)))],
        ids=["one report", "any loss"],
    )
    def test_no_theorem_is_needed_without_a_total(self, reports: int | None, risk: Risk):
        values = epsilon_local.bare_values(4)
        at = epsilon_local.choose_mechanism(4, "grr")
        result = epsilon_local.from_risk(
            epsilon_local.Attacker(values, at, uniform(4), None, reports, 0.01), risk
        )
        assert (result.rows, result.passes, result.refused) == ((), (), "")

    def test_too_many_outcomes_are_rejected_with_their_number(self):
        with fails(r"1,000 reports over 64 values have .* outcomes, more than the 300,000", DisclosureError):
            disclosure_budget.repeated_reports(uniform(64), 3.0, 1000, np.ones(64))


class TestPosterior:
    @pytest.mark.slow
    @pytest.mark.parametrize("make", [uniform, lopsided])
    def test_matches_the_enumerated_randomizer(self, experiment: Experiment, make):
        prior = make(experiment.domain)
        result = disclosure.worst_posteriors(experiment, prior)
        expected = [float(enumerated(experiment, prior, (v,))) for v in range(experiment.domain)]
        assert result == pytest.approx(expected, rel=1e-12)
        bound = [disclosure.posterior_bound(p, experiment.epsilon / MICRO) for p in prior]
        assert (result <= np.array(bound) * (1 + 1e-15)).all()

    def test_in_a_set_matches_the_enumerated_randomizer(self, experiment: Experiment):
        prior = lopsided(experiment.domain)
        for members in ((0, 1), tuple(range(1, experiment.domain, 2)), (experiment.domain - 1,)):
            result = disclosure.worst_posterior(experiment, prior, Target("set", members))
            assert result == pytest.approx(float(enumerated(experiment, prior, members)), rel=1e-12)

    def test_direct_responses_reach_the_bound(self):
        prior = uniform(64)
        bound = disclosure.posterior_bound(1 / 64, 1.0)
        direct = disclosure.worst_posteriors(number_with_mechanism("grr", 64, 1.0), prior)
        hashed = disclosure.worst_posteriors(number_with_mechanism("olh", 64, 1.0, g=3), prior)
        assert direct == pytest.approx(np.full(64, bound), rel=1e-6)
        assert (hashed < 0.85 * bound).all()

    def test_65_536_hashed_values_are_fast(self):
        experiment = number_with_mechanism("olh", 1 << 16, 1.0, g=3)
        result = disclosure.worst_posteriors(experiment, uniform(1 << 16))
        bound = disclosure.posterior_bound(2.0**-16, 1.0)
        assert 0.5 * bound < result.min() <= result.max() < bound


# --- Input ----------------------------------------------------------------------------------------


class TestErrors:
    @refusals(
        ([0.5, 0.4], 2, "sums to 0.9, not 1"),
        ([1.5, -0.5], 2, "0 or more"),
        ([0.5, math.nan], 2, "0 or more"),
        ([0.5, 0.5], 3, "2 numbers, but there are 3"),
        ([1.0], 1, "at least 2 values"),
        ([], 0, "at least 2 values"),
        call=disclosure.normalize_prior,
        error=DisclosureError,
    )
    def test_invalid_prior_is_one_line(self, refusal: Refusal):
        refusal.check()

    @refusals(
        ({"most": Fraction(0)}, "between 0 and 1"),
        ({"most": Fraction(1)}, "between 0 and 1"),
        ({"most": Fraction(-1, 3)}, "between 0 and 1"),
        ({"factor": Fraction(1)}, "above 1"),
        ({}, "either as a probability or as a factor"),
        call=lambda given: Risk(**given),
        error=DisclosureError,
    )
    def test_invalid_risk_is_one_line(self, refusal: Refusal):
        refusal.check()
