"""Mixed lists of releases under every theorem: the papers' formulas, and the reasons for refusals."""

import math
from typing import Any

import numpy as np
import pytest
import reference_composition as composition
from dp_accounting.pld import privacy_loss_distribution

from hushmote.server.accounting import (
    AccountingError,
    History,
    Kind,
    Odometer,
    ReportCost,
)
from hushmote.studies.mixed_list import closed_form, compose
from hushmote.studies.mixture import mixed_total
from hushmote.studies.rogers import RogersFilter

MIXED = History(((ReportCost(500_000), 2), (ReportCost(1_000_000), 3), (ReportCost(500_000, 1e-7), 4)))
THOUSANDS = History(
    ((ReportCost(500_000), 1_000), (ReportCost(1_000_000), 1_000), (ReportCost(500_000, 0.01), 1_000))
)


def rows(history, slack: float = 1e-6):
    return {row.theorem: row for row in compose(history, slack)}


class TestClosedForm:
    @pytest.mark.parametrize("slack", [0.5, 1e-2, 1e-6])
    def test_matches_the_paper_and_holds(self, slack):
        for epsilons in ([10_000] * 50, [500_000, 1_000_000, 2_000_000], [30_000] * 300 + [70_000] * 100):
            ours = closed_form(epsilons, slack)
            exact: Any = composition.closed_form(epsilons, repr(slack))
            assert exact <= ours == pytest.approx(float(exact), rel=1e-12)
            assert ours >= float(mixed_total(epsilons, slack))


class TestRefusals:
    def test_cover_a_delta_of_1_but_not_just_below(self):
        """Half of δ is the release's own, and half may be added by a theorem."""
        for own, refused in ((0.5, True), (0.4999, False)):
            result = rows([ReportCost(1_000_000, own)], 0.5)
            for name in ("zcdp", "advanced"):
                assert (result[name].epsilon is None) is refused
                assert ("its δ, 1, is not below 1" in result[name].refused) is refused

    def test_have_reasons(self):
        nothing = rows(MIXED, 0.0)
        assert nothing["optimal"].epsilon == 6.0  # its own δ aside, the sum
        for name in ("zcdp", "rogers", "advanced", "closed form"):
            assert nothing[name].refused == "not valid here: it needs a δ of its own above 0"
        large = rows(History(((ReportCost(100_000, 0.1), 4),)))
        assert "Σδ twice, 0.8, and may be 2/e" in large["rogers"].refused
        limit = 2 / math.e
        assert not rows([ReportCost(100_000)], limit)["rogers"].refused
        assert rows([ReportCost(100_000)], math.nextafter(limit, 1))["rogers"].refused
        with pytest.raises(AccountingError, match="no releases"):
            compose([], 1e-6)
        with pytest.raises(AccountingError, match="delta must be at least"):
            compose([100_000], 1.0)


class TestRows:
    def test_match_their_theorems_formulas(self):
        result = rows(MIXED)
        epsilons = [500_000] * 6 + [1_000_000] * 3
        squares = sum(e * e for e in epsilons)
        zcdp: Any = composition.zcdp(squares, "1e-6")
        closed: Any = composition.closed_form(epsilons, "1e-6")
        assert result["basic"].epsilon == 6.0
        assert result["basic"].delta == 4e-7
        assert result["zcdp"].epsilon == pytest.approx(float(zcdp))
        drift = sum(e / 1e6 * math.expm1(e / 1e6) for e in epsilons)
        root = math.sqrt(2 * squares / 1e12 * math.log(1e6))
        assert result["advanced"].epsilon == pytest.approx(drift + root)
        assert result["closed form"].epsilon == pytest.approx(float(closed), rel=1e-15)
        assert result["optimal"].epsilon == float(mixed_total(epsilons, 1e-6))
        for name in ("zcdp", "advanced"):
            assert result[name].delta == pytest.approx(1.4e-6, rel=1e-12)
        for name in ("closed form", "optimal"):
            assert result[name].delta == pytest.approx(1 - (1 - 1e-6) * (1 - 1e-7) ** 4, rel=1e-9)
        rogers = result["rogers"]
        assert rogers.epsilon is not None
        assert rogers.delta == pytest.approx(1.4e-6)
        assert RogersFilter(rogers.epsilon, 1.4e-6).allowed(MIXED)
        assert not RogersFilter(rogers.epsilon * 0.999, 1.4e-6).allowed(MIXED)

    def test_keep_pure_releases_pure_and_optimal_is_best(self):
        history = History(((ReportCost(100_000), 100), (ReportCost(200_000), 50), (ReportCost(50_000), 300)))
        result = rows(history)
        assert (result["basic"].kind, result["basic"].delta) == (Kind.PURE, 0)
        best = result["optimal"].epsilon
        assert best is not None
        for name in ("basic", "zcdp", "rogers", "advanced", "closed form"):
            epsilon = result[name].epsilon
            assert epsilon is not None
            assert epsilon > best
        odometer = Odometer(1e-6, sharpest=best)
        odometer.history = history
        assert odometer.spent().epsilon > best

    def test_basic_promises_nothing_for_3_000_releases(self):
        result = rows(THOUSANDS)
        basic = result["basic"]
        assert (basic.kind, basic.epsilon, basic.delta) == (Kind.UNBOUNDED, math.inf, 1.0)
        assert "Σε = 2,000 with Σδ = 10 is (inf, 1): a δ of 1 or more promises nothing" in basic.refused
        for name in ("zcdp", "rogers", "advanced"):
            assert result[name].epsilon is None
            assert "not below 1" in result[name].refused
        # 1 - 0.99^1000 is still below 1, but almost meaningless
        assert result["optimal"].delta == pytest.approx(1 - 0.99**1000, rel=1e-9)
        assert basic.to_dict()["epsilon"] is None

    def test_optimal_matches_another_accountant(self):
        """The general bound for (ε, δ); the worst possible release reveals everything with probability δ."""
        epsilon, delta, n, step = 0.5, 0.001, 20, 1e-4
        both = [
            privacy_loss_distribution.from_privacy_parameters(
                privacy_loss_distribution.common.DifferentialPrivacyParameters(e, d),
                value_discretization_interval=step,
            ).self_compose(n)
            for e, d in ((epsilon, delta), (0.2, 0.0))
        ]
        theirs = both[0].compose(both[1])
        history = History(((ReportCost(500_000, delta), n), (ReportCost(200_000), n)))
        ours = rows(history, 1e-3)["optimal"]
        assert ours.epsilon is not None
        assert ours.delta is not None
        assert theirs.get_epsilon_for_delta(ours.delta) == pytest.approx(ours.epsilon, abs=2 * n * step)
        assert theirs.get_delta_for_epsilon(ours.epsilon + 2 * n * step) <= ours.delta

    def test_hold_for_every_event_of_the_worst_releases(self):
        """Check P(B) <= e^ε Q(B) + δ over all 2^n outcomes of randomized response and of full disclosures."""
        runs = ((400_000, 0.02), (900_000, 0.0), (700_000, 0.05), (250_000, 0.0))
        history = History(tuple((ReportCost(e, d), 1) for e, d in runs))
        p, q = np.ones(1), np.ones(1)
        for epsilon, delta in runs:
            true = (1 - delta) / (1 + math.exp(-epsilon / 1e6))
            one = np.array([delta, true, 1 - delta - true, 0.0])
            p, q = np.outer(p, one).ravel(), np.outer(q, one[::-1]).ravel()
        for slack in (1e-6, 0.01, 0.2):
            for row in compose(history, slack):
                if row.epsilon is not None and row.delta is not None and row.epsilon < math.inf:
                    worst = np.maximum(p - math.exp(row.epsilon) * q, 0).sum()
                    assert worst <= row.delta + 1e-12, row
