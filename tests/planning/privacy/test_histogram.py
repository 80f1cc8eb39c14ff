"""Histogram observers' beliefs, compared with every possible histogram of a small fleet."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from refusals import fails

from hushmote.planning.privacy.beliefs import DisclosureError, fixed_mechanism, posterior_bound
from hushmote.planning.privacy.histogram import (
    for_histogram,
    for_reports,
    histogram_view,
    likely_loss,
    shuffled_for_epsilon,
    shuffled_for_reports,
)
from hushmote.planning.privacy.questions import Belief, choose_mechanism
from hushmote.server.accounting import AccountingError
from hushmote.server.epsilon import MICRO
from hushmote.server.estimate.shuffled import histogram_epsilon
from hushmote.server.mechanisms import mechanism_of


def histograms(rows: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """Return the distribution of code counts, given each board's code distribution."""
    law: dict[tuple[int, ...], float] = {(0,) * len(rows[0]): 1.0}
    for row in rows:
        after: Counter[tuple[int, ...]] = Counter()
        for (counts, chance), (code, p) in itertools.product(law.items(), enumerate(row)):
            after[(*counts[:code], counts[code] + 1, *counts[code + 1 :])] += chance * p
        law = dict(after)
    return law


class TestTable:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("domain", "name", "epsilon", "expected"),
        [(16, "grr", 2.0, 0.0404), (2, "rr", 2.0, 0.0686), (256, "hh", 1.0, 0.0210)],
    )
    def test_26000_reports_match_known_epsilons(self, domain, name, epsilon, expected):
        rows = {row.mechanism: row for row in for_reports(domain, 26_000, round(epsilon * MICRO), 1e-6)}
        assert rows[name].local == epsilon
        assert rows[name].histogram == pytest.approx(expected, rel=0.02)

    @pytest.mark.slow
    @pytest.mark.parametrize("domain", [5, pytest.param(16, marks=pytest.mark.long)])
    def test_allowed_report_epsilon_is_tight(self, domain):
        """Test a few mechanisms with 5 values, and all mechanisms with 16."""
        own_reports = 3
        rows = for_histogram(domain, 5_000, 0.2, 1e-6, own_reports)
        assert rows
        for row in rows:
            assert row.local is not None
            assert row.histogram is not None
            assert row.histogram <= 0.2
            at = choose_mechanism(domain, row.mechanism)
            more = histogram_epsilon(
                at(round(row.local * 1.005 * MICRO)), 5_000 * own_reports, 1e-6, own_reports
            )
            assert more > 0.2

    def test_too_few_boards_allow_no_report(self):
        rows = for_histogram(2, 1, 0.0005, 1e-6)
        assert [(row.local, row.histogram) for row in rows] == [(None, None)]
        (row,) = for_reports(2, 1, MICRO, 1e-6)
        assert row.histogram == pytest.approx(1.0, abs=1e-5)


class TestBelief:
    @pytest.mark.parametrize("delta", [0.2, 0.05, 0.01, 1e-3])
    @pytest.mark.parametrize("own_reports", [1, 2])
    def test_exceeds_the_bound_no_more_often_than_delta(self, delta, own_reports):
        """Enumerate all histograms of 7 reports over 3 values, for any readings of the other boards."""
        epsilon, reports = 1.0, 7
        experiment = choose_mechanism(3, "grr")(MICRO)
        odds = mechanism_of(experiment).odds
        laws = (np.ones((3, 3)) + (odds - 1) * np.eye(3)) / (odds + 2)
        view = histogram_view(experiment, [Belief("a", 0.3, 0, 0)], reports, own_reports, delta)
        assert view.epsilon <= view.loss <= own_reports * epsilon + 1e-12
        worst = 0.0
        for others in itertools.combinations_with_replacement(range(3), reports - own_reports):
            other_laws = [laws[v] for v in others]
            true, false = (histograms([*other_laws, *[laws[v]] * own_reports]) for v in (0, 1))
            beliefs = {h: 0.3 * p / (0.3 * p + 0.7 * false[h]) for h, p in true.items()}
            limit = posterior_bound(0.3, view.loss) * (1 + 1e-12)
            worst = max(worst, math.fsum(p for h, p in true.items() if beliefs[h] > limit))
        assert worst <= delta
        assert view.beliefs == (("a", 0.3, posterior_bound(0.3, view.loss)),)

    def test_loss_exceeds_epsilon_and_is_certain_without_delta(self):
        def at(delta: float) -> float:
            return 4.0 if not delta else min(4.0, 0.1 * math.sqrt(-math.log(delta)))

        loss = likely_loss(at, 1e-6)
        assert at(1e-6) < loss < 1.5 * at(1e-6)
        assert likely_loss(at, 0.0) == 4.0
        assert likely_loss(lambda _: 0.5, 1e-6) == 0.5

    @pytest.mark.slow
    def test_risk_gives_epsilon_against_observers_of_a_histogram(self):
        at = choose_mechanism(16, "grr")
        loss, reports, delta = math.log(5), 2_000, 1e-6
        view = histogram_view(
            at(MICRO), [Belief("a", 1 / 16, 0, 0)], reports, 1, delta, (fixed_mechanism(at(MICRO)), loss)
        )
        assert view.local is not None
        assert view.local > loss
        first_view = histogram_view(at(round(view.local * MICRO)), [], reports, 1, delta)
        assert first_view.loss <= loss


class TestArguments:
    def test_rejects_invalid_values(self):
        experiment = choose_mechanism(4, "grr")(MICRO)
        with fails("reports in the histogram", AccountingError):
            histogram_view(experiment, [], 0, 1, 1e-6)
        with fails("cannot contain 3 from one board", DisclosureError):
            histogram_view(experiment, [], 2, 3, 1e-6)
        with fails("ε of the histogram must be a positive number", AccountingError):
            for_histogram(4, 100, 0.0, 1e-6)
        with fails("number of devices", AccountingError):
            for_histogram(4, 0, 1.0, 1e-6)
        with fails("2 to 16,777,216 values", DisclosureError):
            for_reports(1, 10, MICRO, 1e-6)


class TestShuffledTotal:
    def test_report_count_keeps_total_and_is_nearly_tight(self):
        at = choose_mechanism(64, "auto")
        row = shuffled_for_epsilon(at, 500, 2.0, 1e-6, MICRO)
        assert row.reports is not None
        assert row.reports > 2  # 2 is allowed by the sum of their ε

        def total(reports: int) -> float:
            return histogram_epsilon(at(MICRO), 500 * reports, 1e-6, reports)

        assert total(row.reports) <= 2.0 < total(row.reports + 1 + row.reports // 128)
        assert (row.rule, row.cap, row.sum) == ("count", row.reports, row.reports)

    def test_report_epsilon_keeps_total_and_is_nearly_tight(self):
        at = choose_mechanism(2, "auto")
        row = shuffled_for_reports(at, 500, 0.5, 1e-6, 4)
        assert row.epsilon is not None
        assert row.epsilon > 0.5 / 4
        for factor, is_kept in ((1.0, True), (1.01, False)):
            epsilon = histogram_epsilon(at(int(factor * row.epsilon * MICRO)), 2000, 1e-6, 4)
            assert (epsilon <= 0.5) == is_kept

    def test_single_device_gets_the_sums_allowance(self):
        assert shuffled_for_epsilon(choose_mechanism(2, "auto"), 1, 2.9, 1e-6, 1_450_000).reports == 2

    def test_epsilon_refused_by_boards_allows_no_report(self):
        row = shuffled_for_epsilon(choose_mechanism(64, "auto"), 500, 8.0, 1e-6, 500)
        assert (row.reports, row.sum) == (0, None)
