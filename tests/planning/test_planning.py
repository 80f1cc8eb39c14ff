"""Predicted errors compared with exact enumeration and simulated fleets; plans that meet their targets."""

import datetime
import itertools
import math
import tomllib
from typing import Any

import numpy as np
import pytest
from enumeration import distribution
from refusals import Refusal, fails, refusals
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.planning import fleet_plan
from hushmote.planning.answer import answer
from hushmote.planning.devices import (
    MICRO,
    PlanError,
    best_design,
    devices_for,
    half_width,
    solve,
    workload_of,
)
from hushmote.planning.expected_error import (
    Design,
    Kind,
    Question,
    mean_variance,
    parabola,
    places,
    variance,
    well_sampled,
)
from hushmote.planning.experiment_file import ExperimentInfo
from hushmote.planning.lifetime import (
    MAX_EVERY,
    LifetimeBudget,
    Rhythm,
    choose_every,
    parse_duration,
    plan_lifetime,
    reports_made,
)
from hushmote.planning.request import PlanRequest
from hushmote.server.estimate import estimate
from hushmote.server.experiments.payload import experiment_over
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.choice import Choice
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.hashing.choice import best_channel, flat_channel, primes
from hushmote.server.mechanisms.support_mechanisms import SupportMechanism
from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.workload import FREQUENCIES

TREE = Choice("hh", (("fanout", 3), ("cells", (3, 3)), ("weights", (1, 2))), 0.0)
HASH = Choice("olh", (("g", 3),), 0.0)
DIRECT = Choice("grr", (), 0.0)


def flat(domain: int, g: int) -> Choice:
    """Return a mechanism with g cells that asks for the value itself."""
    return Choice("olh", (("g", g),), 0.0) if g < domain else DIRECT


def enumerated_variance(design: Design, population: np.ndarray, statistic: np.ndarray) -> float:
    """Return the variance times the number of reports, from the exact distribution of the board's codes."""
    experiment: Experiment = experiment_over(design.domain, design.epsilon, design.choice.fields())
    chance = np.zeros(experiment.code_count)
    for index, share in enumerate(population):
        for code, p in distribution(lambda rng, i=index: experiment.randomize(i, rng)).items():
            chance[code] += share * float(p)
    parts = [statistic[:, None]]
    assert isinstance(design.mechanism, SupportMechanism)
    tree = design.mechanism.tree(design.mechanism.stratum_chances)
    if tree:
        parts, _ = hierarchy.transpose(tree, statistic[:, None])
    total = 0.0
    for level, part in zip(experiment.levels, parts, strict=True):
        channel = level_channel(level)
        w = butterfly.expand(level, butterfly.class_weights(level, part[:, 0])) / (channel.p - channel.q)
        drawn = level.weight / experiment.weight_sum
        within = chance[level.offset : level.offset + level.code_count] / drawn
        total += float(within @ w**2 - (within @ w) ** 2) / drawn
    return total


def estimated_variance(design: Design, population: np.ndarray, low: int, high: int) -> float:
    """Return the variance of estimate() for a range, times the number of reports, from its answers to codes.

    Each stratum has its drawn number of reports, all with one code, so an answer is that code's weight.
    """
    experiment, strata = design.experiment, design.mechanism.strata
    law = design.mechanism.code_law(population)
    counts = np.zeros(experiment.code_count, np.int64)
    drawn = [round(1000 * (experiment.weight_sum or 1) * stratum.chance) for stratum in strata]
    for stratum, reports in zip(strata, drawn, strict=True):
        counts[stratum.first] = reports
    total = 0.0
    for stratum, reports in zip(strata, drawn, strict=True):
        if not reports:
            continue
        weights = np.zeros(stratum.codes)
        for code in range(stratum.codes):
            code_counts = counts.copy()
            code_counts[stratum.first] = 0
            code_counts[stratum.first + code] = reports
            weights[code] = estimate(experiment, code_counts).frequencies[low:high].sum()
        within = law[stratum.first : stratum.first + stratum.codes] / stratum.chance
        total += float(within @ weights**2 - (within @ weights) ** 2) / stratum.chance
    return total


class TestFile:
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_has_exact_numbers(self, epsilon: float):
        info = ExperimentInfo("planned", None, "a@example.org", datetime.date(2026, 1, 1))
        plan = answer(PlanRequest(devices=1000, epsilon=epsilon, values=8, low=-0.5, high=31.5))
        fields = tomllib.loads(plan.file(info))
        assert (fields["epsilon"], fields["low"], fields["high"]) == (epsilon, -0.5, 31.5)
        assert (fields["bins"], fields["planned"]["devices"]) == (8, 1000)

    def test_of_a_number_needs_its_range(self):
        info = ExperimentInfo("planned", None, "a@example.org", datetime.date(2026, 1, 1))
        with fails("a number requires its range; add --low and --high", PlanError):
            answer(PlanRequest(devices=1000, epsilon=1, values=8)).file(info)


class TestFleetPlan:
    def test_has_its_plans_numbers(self):
        fleet = fleet_plan.plan(devices=5_000, epsilon=2, values="yes-no")
        assert (fleet.devices, fleet.epsilon, fleet.values) == (5_000, 2, 2)


class TestFixedLimit:
    @pytest.mark.parametrize(
        ("fields", "is_cheaper"),
        [
            ({"values": 16}, True),
            ({"values": 2}, False),  # the same question
            ({"values": 16, "statistics": "frequencies"}, False),
        ],
        ids=["range", "two values", "frequencies"],
    )
    def test_is_advised_if_it_needs_fewer_devices(self, fields: dict[str, Any], is_cheaper: bool):
        common: dict[str, Any] = {"epsilon": 2.0, "error": 0.05, "statistics": "ranges"}
        advice = answer(PlanRequest(**common | fields)).fixed_limit
        assert ("needs only" in advice) == is_cheaper
        if fields == {"values": 16}:
            needed = answer(PlanRequest(epsilon=2.0, error=0.05, values="yes-no")).plan.devices
            assert f"needs only {needed:,} devices." in advice


class TestVariance:
    @pytest.mark.parametrize("choice", [TREE, HASH, DIRECT], ids=["tree", "hash", "direct"])
    @pytest.mark.parametrize(("low", "high"), [(0, 1), (2, 6), (0, 4)])
    def test_matches_boards_exact_distribution(self, choice: Choice, low: int, high: int) -> None:
        design = Design(7, 1_500_000, choice)
        weights = np.zeros(7)
        weights[low:high] = 1
        fit = parabola(design, weights[:, None])
        for share in (0.0, 0.3, 1.0):
            population = share * weights / weights.sum() + (1 - share) * (1 - weights) / (1 - weights).sum()
            assert fit.at(share)[0] == pytest.approx(
                enumerated_variance(design, population, weights), rel=1e-9
            )

    @pytest.mark.parametrize(
        ("domain", "g"),
        [(7, 3), (9, 3), (10, 3), (26, 5), (64, 7), (130, 11), (12, 2), (7, 5), (9, 9), (2, 2)],
    )
    @pytest.mark.parametrize("share", [0.0, 0.2, 1.0, None])
    def test_direct_value_needs_no_enumeration(self, domain: int, g: int, share: float | None) -> None:
        """Lines are counted exactly for powers of g, one value more, three digits and direct answers."""
        design = Design(domain, 1_500_000, flat(domain, g))
        general = parabola(design, np.eye(domain)).mean().at(share)[0]
        assert variance(design, Question("frequency", share)) == pytest.approx(general, rel=1e-9)

    def test_is_largest_at_the_worst_share(self) -> None:
        design = Design(7, 3_000_000, TREE)
        fit = parabola(design, np.array([[1], [1], [0], [0], [0], [0], [0]]))
        worst = fit.at(None)[0]
        assert worst == pytest.approx(max(fit.at(f)[0] for f in np.linspace(0, 1, 1001)), rel=1e-5)
        assert worst > fit.at(0.0)[0]

    @pytest.mark.parametrize("choice", [TREE, HASH, DIRECT], ids=["tree", "hash", "direct"])
    def test_several_statistics_are_averaged(self, choice: Choice) -> None:
        design = Design(9, 2_000_000, choice)
        population = np.arange(1.0, 10) / 45
        weights = np.eye(9)[:, 2:5] + np.eye(9)[:, 4:7]
        variances = [enumerated_variance(design, population, column) for column in weights.T]
        assert mean_variance(design, population, weights) == pytest.approx(np.mean(variances), rel=1e-9)

    def test_ranges_are_averaged_at_the_given_share(self) -> None:
        design = best_design(24, 3_000_000, Question())
        pairs = [(a, b) for a, b in itertools.combinations(range(25), 2) if b - a < 24]
        weights = np.array([[low <= i < high for low, high in pairs] for i in range(24)], float)
        fitted = parabola(design, weights).at(0.5).mean()
        assert variance(design, Question(share=0.5)) == pytest.approx(fitted)
        assert fitted <= variance(design, Question()) < 1.1 * fitted

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "question",
        [Question(), Question("quantile", 0.5), Question(width=50)],
        ids=["ranges", "median", "wide ranges"],
    )
    def test_sample_represents_all_statistics(self, question: Question) -> None:
        design = best_design(128, 1_000_000, question)
        expected = variance(design, question)
        assert well_sampled(design, question)
        sample_size = 40 * design.classes
        assert not well_sampled(design, question, sample_size)
        assert places(design, question, sample_size).variance.mean() == pytest.approx(expected, rel=0.05)

    def test_sample_leaves_no_wide_gap(self) -> None:
        design = Design(9_000, MICRO, DIRECT)
        sample = places(design, Question("frequency"), 100 * design.classes).low
        assert len(sample) == 100
        assert np.diff(sample).max() < 1.5 * 90


QUESTIONS = {
    "frequency": Question("frequency"),
    "rare frequency": Question("frequency", 0.05),
    "ranges": Question("range"),
    "ranges of one width": Question("range", width=5),
    "two ranges": Question("range", 0.2, ranges=((3, 9), (0, 2))),
    "quantile": Question("quantile", 0.9),
    "mean": Question("mean", spread=0.1),
}


class TestPromise:
    def test_is_kept_by_the_estimator(self) -> None:
        """Use direct levels with few reports on the last, where other least squares would differ most."""
        plan = solve(Question(share=0.1, ranges=((25, 60),)), epsilon=4 * MICRO, domain=100, error=0.01)
        population = np.full(100, 0.9 / 65)
        population[25:60] = 0.1 / 35
        estimated = estimated_variance(plan.design, population, 25, 60)
        assert 1.96 * math.sqrt(estimated / plan.devices) == pytest.approx(0.01, rel=1e-4)
        assert 10_400 < plan.devices < 10_500

    @pytest.mark.slow
    @pytest.mark.parametrize("epsilon", [500_000, 2_000_000, 4_000_000, 7_000_000])
    @pytest.mark.parametrize(
        ("domain", "low", "high", "share", "kind"),
        [
            (2, 1, 2, 0.3, "frequency"),
            (7, 2, 3, 0.9, "frequency"),
            (12, 0, 1, 0.0, "frequency"),
            (20, 4, 9, 0.1, "range"),
            (27, 9, 18, 0.5, "range"),
            (20, 0, 10, 0.5, "quantile"),
        ],
    )
    def test_every_kind_is_kept_by_the_estimator(
        self, epsilon: int, domain: int, low: int, high: int, share: float, kind: Kind
    ) -> None:
        ranges = ((low, high),) if kind == "range" else ()
        design = best_design(domain, epsilon, Question(kind, share, None, ranges))
        weights = np.zeros(domain)
        weights[low:high] = 1
        population = share * weights / weights.sum() + (1 - share) * (1 - weights) / (1 - weights).sum()
        predicted = parabola(design, weights[:, None]).at(share)[0]
        assert predicted == pytest.approx(estimated_variance(design, population, low, high), rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
    def test_meets_the_target_error_and_is_tight(self, question: Question) -> None:
        error = 0.05
        plan = solve(question, epsilon=MICRO, domain=16, error=error)
        assert plan.error <= error < half_width(plan.devices - 1, plan.design, question)
        plan = solve(question, devices=8000, domain=16, error=error)
        assert plan.error <= error
        assert half_width(8000, best_design(16, plan.design.epsilon - 1000, question), question) > error
        if not question.ranges:
            plan = solve(question, devices=8000, epsilon=MICRO, error=error)
            assert plan.error <= error
        if question.all_ranges:  # other questions may have as many values as a plan allows
            larger = best_design(plan.design.domain + 1, MICRO, question)
            assert half_width(8000, larger, question) > error


class TestDesign:
    @pytest.mark.parametrize(
        ("domain", "epsilon"), [(9, 100_000), (10, MICRO), (30, 1_500_000), (50, 2 * MICRO)]
    )
    def test_cells_for_single_values_are_optimal(self, domain: int, epsilon: int) -> None:
        """In these cases, other cells minimize the variance of a lone support, which ignores the sum."""
        choice = oracle.choose(domain, epsilon, FREQUENCIES)
        exact: dict[int, float] = {}
        for g in (*primes(domain), domain):
            if flat_channel(domain, g, epsilon):
                design = Design(domain, epsilon, flat(domain, g))
                exact[g % domain] = parabola(design, np.eye(domain)).mean().at(0.0)[0]
        assert choice.variance == pytest.approx(min(exact.values()), rel=1e-9)
        g = dict(choice.parameters).get("g", 0)
        assert exact[g] == min(exact.values())
        lone = best_channel(domain, epsilon).g
        assert exact[lone % domain] > exact[g] * 1.001

    def test_yes_or_no_is_randomized_response_at_worst_share(self) -> None:
        plan = solve(Question("frequency"), devices=10_000, epsilon=MICRO, domain=2)
        p = math.e / (1 + math.e)
        assert plan.design.choice.mechanism == "rr"
        assert plan.stderr == pytest.approx(0.5 / (2 * p - 1) / 100, rel=1e-6)

    def test_common_and_rare_values_have_different_cells(self) -> None:
        rare, common = (best_design(64, 4_000_000, Question("frequency", f)) for f in (0.0, 0.5))
        assert rare.choice != common.choice
        question = Question("frequency", 0.5)
        assert variance(common, question) < 0.8 * variance(rare, question)

    def test_every_question_has_a_workload_inside_the_domain(self) -> None:
        for question in QUESTIONS.values():
            workload_of(question, 16).check(16)
        assert len(workload_of(Question(width=10), 5000).ranges) <= 64


# A lifetime of reports


class TestReportsMade:
    @pytest.mark.parametrize(
        ("calls", "every", "cap"), [(0, 5, 2), (1, 1, 1), (7, 3, 2), (12, 4, 12), (9, 2, 20)]
    )
    def test_match_every_and_the_cap(self, calls: int, every: int, cap: int) -> None:
        reports = np.arange(calls + 1)
        exact = np.minimum(reports, cap) @ stats.binom.pmf(reports, calls, 1 / every)
        assert reports_made(calls, every, cap) == pytest.approx(exact, abs=1e-12)

    @pytest.mark.parametrize(("cap", "share"), [(1, 0.632), (4, 0.805), (10, 0.875)])
    def test_use_a_budgets_known_share(self, cap: int, share: float) -> None:
        assert float(reports_made(cap * 10_000, 10_000, cap)) / cap == pytest.approx(share, abs=5e-4)


class TestDuration:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("10min", 600),
            ("hour", 3600),
            ("2 years", 63_072_000),
            ("90d", 7_776_000),
            ("30 s", 30),
            ("s", 1),
            ("1.5h", 5400),
        ],
    )
    def test_is_parsed(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize("text", ["", "soon", "10", "-1d", "0h", "101y", "2 fortnights"])
    def test_rejects_other_texts(self, text: str) -> None:
        with fails("a duration", PlanError):
            parse_duration(text)


YEAR = Rhythm(86_400, 365 * 86_400)


class TestRhythm:
    @pytest.mark.parametrize(("calls", "cap"), [(10, 3), (365, 1), (365, 2), (400, 30)])
    def test_every_gives_the_last_day_the_most_reports(self, calls: int, cap: int) -> None:
        every = np.arange(1, 4 * calls)
        last = reports_made(calls, every, cap) - reports_made(calls - 1, every, cap)
        choice = choose_every(Rhythm(86_400, calls * 86_400), cap)
        assert last[choice - 1] == pytest.approx(last.max(), rel=1e-5)

    def test_every_call_reports_if_the_budget_lasts(self) -> None:
        assert choose_every(Rhythm(86_400, 30 * 86_400), 30) == 1
        assert choose_every(Rhythm(1, 3 * 365 * 86_400), 1) <= 1 << 24

    def test_windows_add_up_to_the_horizon(self) -> None:
        rhythm = Rhythm(600, 28 * 86_400)
        total = sum(rhythm.in_window(7, 1000, 2, 1008 * week) for week in (1, 2, 3, 4))
        assert total == pytest.approx(float(reports_made(4032, 1000, 2)))

    def test_weekly_calls_show_a_seventh_each_day(self) -> None:
        rhythm = Rhythm(7 * 86_400, 365 * 86_400)
        assert rhythm.in_window(1, 10, 1) == pytest.approx(rhythm.in_window(7, 10, 1) / 7)


class TestLifetime:
    @pytest.mark.slow
    def test_few_large_reports_win_within_the_budget(self) -> None:
        lifetime = plan_lifetime(Question(), 100_000, 64, LifetimeBudget(4 * MICRO, 1e-6), YEAR)
        assert (lifetime.best.cap, lifetime.best.composition) == (1, "basic")
        for s in lifetime.spendings:
            assert s.epsilon >= 1000
            assert s.composition == "optimal" or s.cap * s.epsilon <= 4 * MICRO
        basic, optimal = (
            next(s for s in lifetime.spendings if s.cap == 365 and s.composition == c)
            for c in ("basic", "optimal")
        )
        assert lifetime.error(lifetime.best, 1) < lifetime.error(optimal, 1) < lifetime.error(basic, 1)

    @pytest.mark.slow
    def test_no_report_costs_more_than_the_policy_allows(self) -> None:
        lifetime = plan_lifetime(Question(), 100_000, 64, LifetimeBudget(8 * MICRO), YEAR, limit=500_000)
        assert max(s.epsilon for s in lifetime.spendings) == 500_000
        assert lifetime.best.cap == 16

    @pytest.mark.slow
    def test_delta_helps_if_reports_must_be_small(self) -> None:
        lifetime = plan_lifetime(Question(), 100_000, 64, LifetimeBudget(4 * MICRO, 1e-6), YEAR, limit=50_000)
        assert (lifetime.best.composition, lifetime.best.rule) == ("optimal", "count")
        assert lifetime.best.cap >= 284  # the optimum for ε = 0.05 within (4, 1e-6)

    def test_as_many_calls_as_every_allows_are_planned(self) -> None:
        """A refusal names a rhythm, which must be accepted."""
        rhythm = Rhythm(1, 2 * MAX_EVERY)
        lifetime = plan_lifetime(Question("frequency"), 1000, 2, LifetimeBudget(MICRO), rhythm)
        assert lifetime.best.every <= MAX_EVERY
        with fails("every 1 seconds or less frequently", PlanError):
            plan_lifetime(Question("frequency"), 1000, 2, LifetimeBudget(MICRO), Rhythm(0.5, 2 * MAX_EVERY))

    def test_first_day_is_more_accurate_than_the_last(self) -> None:
        lifetime = plan_lifetime(Question("frequency"), 20_000, 2, LifetimeBudget(2 * MICRO), YEAR)
        assert lifetime.error(lifetime.best, 1, first=True) < lifetime.error(lifetime.best, 1)
        assert lifetime.best.per_device(365) == pytest.approx(lifetime.best.used * lifetime.best.cap)

    @refusals(
        (LifetimeBudget(999), YEAR, "lifetime epsilon"),
        (LifetimeBudget(MICRO, 1.0), YEAR, "delta"),
        (LifetimeBudget(MICRO), Rhythm(86_400, 3600), "contains no call"),
        (LifetimeBudget(MICRO), Rhythm(1, 2 * 365 * 86_400), "every 2 seconds or less frequently"),
        call=lambda budget, rhythm: plan_lifetime(Question(), 1000, 8, budget, rhythm),
        error=PlanError,
    )
    def test_rejects_impossible_budgets(self, refusal: Refusal):
        refusal.check()


class TestErrors:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"devices": 1000}, r"add two of epsilon \(2 is a common choice\) or values or error"),
            ({"devices": 1000, "epsilon": MICRO, "domain": 8, "error": 0.1}, "omit one of them"),
            ({"devices": 1, "epsilon": MICRO, "domain": 8}, "devices must be from 2"),
            (
                {"devices": 1000, "epsilon": 999, "domain": 8},
                "epsilon must be from 0.001 to 16, not 0.000999",
            ),
            ({"devices": 1000, "epsilon": 16_000_001, "domain": 8}, "epsilon must be from 0.001 to 16"),
            ({"devices": 1000, "epsilon": MICRO, "domain": 1}, "from 2 to 16777216 values, not 1"),
            ({"devices": 1000, "epsilon": MICRO, "domain": 70_000}, "at most 65536 values"),
            ({"devices": 1000, "epsilon": MICRO, "error": 0.0}, "between 0 and 0.3"),
            ({"devices": 1000, "epsilon": MICRO, "error": math.nan}, "between 0 and 0.3"),
            ({"devices": 1000, "epsilon": MICRO, "error": 1e-200}, "at least 1e-09"),
            ({"devices": 1000, "domain": 8, "error": 0.001}, "no epsilon up to 16 gives ±0.001"),
            ({"devices": 1000, "epsilon": MICRO, "error": 0.001}, "not even 2 values"),
            ({"epsilon": 1000, "domain": 8, "error": 1e-6}, "devices at epsilon 0.001; allow a larger error"),
        ],
    )
    def test_impossible_plan_suggests_alternatives(self, given: dict, text: str) -> None:
        with fails(text.replace("±", "."), PlanError):
            solve(Question(), **given)

    def test_suggested_alternative_is_feasible(self) -> None:
        with pytest.raises(PlanError, match="would do") as error:
            solve(Question(), devices=1000, domain=8, error=0.01)
        needed = int(str(error.value).split(";")[-1].split()[0].replace(",", ""))
        assert solve(Question(), devices=needed, domain=8, error=0.01).error <= 0.01

    @pytest.mark.parametrize(
        "question",
        [Question("range", ranges=((5, 3),)), Question("range", width=8), Question(ranges=((0, 8),))],
        ids=["reversed", "too wide", "everything"],
    )
    def test_ranges_outside_the_domain_are_rejected(self, question: Question) -> None:
        with fails("8", PlanError):
            solve(question, devices=1000, epsilon=MICRO, domain=8)

    def test_fleets_too_large_for_floats_are_rejected(self) -> None:
        design = solve(Question(), devices=100, epsilon=1000, domain=2).design
        assert devices_for(design, Question(), 1e-9) > 1 << 53
        with fails("allow a larger error", PlanError):
            solve(Question(), epsilon=1000, domain=2, error=1e-9)
