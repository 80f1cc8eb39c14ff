"""Several questions that share a budget: the reports of each, and the table of what a quarter shows."""

import math
from typing import Any

import numpy as np
import pytest

from hushmote.planning import library
from hushmote.planning.devices import PlanError
from hushmote.planning.lifetime import LifetimeBudget, Rhythm, choose_every, reports_made
from hushmote.planning.question_set import USUAL_RHYTHM, SetPlan, SharedBudget, plan_set, set_question
from hushmote.planning.request import PlanRequest
from hushmote.server.experiments.definition import parse

DAILY = Rhythm(86_400, 5 * 365 * 86_400)
BUDGET = LifetimeBudget(8_000_000)


def plan(*names: str, devices: int = 20_000, **fields: Any) -> SetPlan:
    return plan_set(
        [set_question(library.question(n)) for n in names], PlanRequest(devices=devices, **fields)
    )


class TestReports:
    @pytest.mark.parametrize("count", [1, 3, 12])
    def test_one_epsilon_agrees_with_the_binomial_distribution(self, count: int):
        shared = SharedBudget((2_000_000,) * count, BUDGET, USUAL_RHYTHM)
        at_ends = reports_made(count * USUAL_RHYTHM.calls * np.arange(21) / 20, shared.every, 4)
        assert shared.reports.sum(axis=1) == pytest.approx(np.diff(at_ends), rel=2e-3)
        assert np.ptp(shared.reports, axis=1) == pytest.approx(0, abs=1e-4)

    def test_rate_is_near_that_of_a_single_question(self):
        shared = SharedBudget((2_000_000,), BUDGET, DAILY)
        last = {e: DAILY.in_window(91.25, e, 4) for e in (shared.every, choose_every(DAILY, 4))}
        assert last[shared.every] == pytest.approx(max(last.values()), rel=5e-3)

    def test_unequal_epsilons_agree_with_a_simulation(self):
        """20,000 boards; 6 standard errors, which chance exceeds in fewer than 1 of 10^8 runs."""
        epsilons, boards = (2_000_000, 1_000_000), 20_000
        shared = SharedBudget(epsilons, LifetimeBudget(3_000_000), Rhythm(86_400, 365 * 86_400))
        rng, spent = np.random.default_rng(1), np.zeros(boards)
        totals = np.zeros((365, 2))
        for day in range(365):
            for i, epsilon in enumerate(epsilons):
                reports = (rng.random(boards) < 1 / shared.every) & (spent + epsilon <= 3_000_000)
                spent += epsilon * reports
                totals[day, i] = reports.sum()
        for i in (0, 1):
            expected = boards * shared.reports[-1][i]
            assert abs(totals[-91:, i].sum() - expected) < 6 * math.sqrt(expected)
        assert spent.mean() / 3_000_000 == pytest.approx(shared.used, rel=0.02)


class TestErrors:
    @pytest.mark.parametrize(("size", "even", "last"), [(1, 1.39, 1.97), (3, 2.40, 3.41), (12, 4.81, 6.81)])
    def test_yes_or_no_in_a_quarter(self, size: int, even: float, last: float):
        """20,000 devices with four reports of ε = 2 in five years, a share of 2%."""
        crashed = plan("crashed")
        of_size = crashed.of_size(crashed.questions[0], size)
        question = of_size.questions[0]
        assert 100 * of_size.even_error(question) == pytest.approx(even, abs=0.006)
        assert 100 * of_size.error(question) == pytest.approx(last, abs=0.006)
        assert of_size.even_error(question) < of_size.error(question, first=True) < of_size.error(question)

    def test_error_falls_with_the_root_of_devices(self):
        small = plan("signal", devices=2_000)
        question = small.questions[0]
        assert small.with_devices(50_000).error(question) == pytest.approx(small.error(question) / 5)

    def test_file_of_your_own_takes_part(self):
        text = library.question_text("signal").partition("[planned]")[0].replace('"signal"', '"mine"')
        own = set_question(parse(text))
        assert own.question.share is None
        both = SetPlan((set_question(library.question("signal")), own), 20_000)
        assert both.error(own) > both.error(both.questions[0])


class TestPacks:
    @pytest.mark.parametrize("pack", library.PACKS)
    def test_policy_pays_for_the_pack(self, pack: str):
        planned = plan(*library.PACKS[pack])
        policy = planned.policy
        assert (policy.sum, policy.squares, policy.epsilon) == (8_000_000, 0, 2_000_000)
        assert policy.experiments == library.PACKS[pack]
        assert policy.remaining_reports(2_000_000) == planned.shared.reports_in_life == 4

    def test_lines_name_each_question(self):
        text = " ".join(plan(*library.PACKS["release"]).lines)
        assert "crashed to ±3.41 points" in text
        assert "3 questions share a device's budget of ε = 8: at most 4 reports" in text

    def test_says_what_a_quarter_cannot_show(self):
        text = " ".join(plan("crashed", "battery_life", devices=500).lines)
        assert "A quarter is too short for battery_life" in text


class TestRefusals:
    @pytest.mark.parametrize(
        ("names", "fields", "message"),
        [
            (("crashed",), {"devices": None}, "needs --devices"),
            (("crashed",), {"values": 3}, "omit --values"),
            (("crashed",), {"lifetime": 1}, "does not fit into a lifetime budget of 1"),
            (("crashed",), {"horizon": "30d"}, "at least 90d, not 30 days"),
            (("crashed",), {"call": "6y"}, "contains no call"),
            (("crashed", "crashed"), {}, "listed twice"),
        ],
    )
    def test_says_what_is_wrong(self, names: tuple[str, ...], fields: dict[str, Any], message: str):
        with pytest.raises(PlanError, match=message):
            _ = plan(*names, **{"devices": 20_000} | fields).lines

    def test_pair_has_no_planned_error(self):
        pair = parse(
            'name = "p"\npurpose = "?"\nowner = "o"\nexpires = 9999-12-31\ntype = "pair"\nepsilon = 2\n'
            '[[of]]\nname = "a"\ntype = "bool"\n[[of]]\nname = "b"\ntype = "bool"\n'
            '[budget]\nrule = "sum"\ncap = 8\n'
        )
        with pytest.raises(PlanError, match="a pair or a text has no planned error"):
            set_question(pair)
