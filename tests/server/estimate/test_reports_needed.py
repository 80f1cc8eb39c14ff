"""The number of reports that an answer takes, compared with closed forms and simulated fleets."""

import math

import numpy as np
import pytest
from designs import bell as centred
from designs import choice, designed, draw
from refusals import Refusal, refusals

from hushmote.device.ldp_client import ONE
from hushmote.server.estimate.reports_needed import (
    MOST,
    MeanIndex,
    QuantileLevel,
    RangeShare,
    _covariance,
    bell,
    likely_population,
    reports_needed,
    rounded_target,
    usual_population,
)
from hushmote.server.estimate.statistic import EstimateError, normal_quantile
from hushmote.server.mechanisms import mechanism_of

Z = normal_quantile(0.95)
TREE = designed("hh", 64, 1, fanout=4, cells=[4, 5, 5])
OLH = designed("olh", 64, 1, g=3)
TREE_2 = designed("hh", 64, 2, fanout=4, cells=[4, 5, 7])
TARGET = 5.12  # 8% of the range


class TestRoundedTarget:
    """The half-width that is announced is the one that reports are worked out for."""

    @pytest.mark.parametrize(
        ("scale", "target"), [(25, 2), (35, 4), (64, 6), (1, 0.1), (0.128, 0.01), (1200, 100)]
    )
    def test_is_tenth_to_one_digit(self, scale, target):
        assert rounded_target(scale) == target


class TestShare:
    """Shares and means: z² v / target², with v from the mechanism."""

    def test_yes_or_no_follows_closed_form(self):
        of = designed("rr", 2, 1)
        p = of.levels[0].threshold / ONE
        support = 0.3 * p + 0.7 * (1 - p)
        variance = support * (1 - support) / (2 * p - 1) ** 2
        assert reports_needed(of, RangeShare(1, 2), 0.1, [0.7, 0.3]) == math.ceil(variance * (Z / 0.1) ** 2)

    def test_label_of_choice_follows_closed_form(self):
        of = choice(["a", "b", "c"], 1)
        p = of.levels[0].threshold / ONE
        q = (1 - p) / 3
        support = 0.25 * p + 0.75 * q
        variance = support * (1 - support) / (p - q) ** 2
        assert reports_needed(of, RangeShare(0, 1), 0.05) == math.ceil(variance * (Z / 0.05) ** 2)

    def test_mean_has_the_mechanism_s_variance(self):
        shares = bell(64, 0.2)
        (variance,) = mechanism_of(TREE).variances(np.arange(64.0)[:, None], shares)
        assert reports_needed(TREE, MeanIndex(), 3, shares) == math.ceil(variance * (Z / 3) ** 2)

    def test_wider_confidence_takes_more(self):
        share = RangeShare(0, 20)
        assert reports_needed(TREE, share, 0.1, confidence=0.99) > reports_needed(TREE, share, 0.1)

    def test_small_answers_take_two_reports(self):
        assert reports_needed(designed("grr", 4, 12), RangeShare(0, 2), 10) == 2


class TestQuantile:
    """The reports at which the interval of a quantile has the target's width."""

    def test_covariances_have_variances_on_diagonal(self):
        below = np.tril(np.ones((64, 64)), -1).T[:, 1:]
        expected = mechanism_of(TREE).variances(below, bell(64, 0.2))
        np.testing.assert_allclose(np.diag(_covariance(mechanism_of(TREE), below, bell(64, 0.2))), expected)

    def test_follows_density_where_hardly_anything_is_randomized(self):
        """A share below of variance 1/4, an even population: 3.5 bins each side are 3 and half a bin."""
        of, even = designed("grr", 64, 14), np.full(64, 1 / 64)
        expected = 0.25 * (Z / (3 / 64)) ** 2
        assert reports_needed(of, QuantileLevel(0.5), 3.5, even) == pytest.approx(expected, rel=0.05)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("of", "q", "spread"),
        [(TREE, 0.5, 1 / 6), (TREE, 0.5, 0.25), (OLH, 0.5, 1 / 6), (TREE_2, 0.9, 1 / 6), (TREE_2, 0.9, 0.2)],
        ids=["tree", "tree, wide", "olh", "90% of tree", "90% of tree, wide"],
    )
    def test_intervals_of_fleets_have_the_target(self, of, q, spread):
        """The mean of 300 fleets' half-widths, of a deviation of 2.2 bins at most: ±0.8 are 6 of its own."""
        shares, rng = bell(64, spread), np.random.default_rng(23)
        reports = reports_needed(of, QuantileLevel(q), TARGET, shares)
        each = [draw(of, shares, reports, rng).quantile(q) for _ in range(300)]
        widths = np.array([(one.high - one.low + 1) / 2 for one in each])
        assert widths.std() < 2.2
        assert widths.mean() == pytest.approx(TARGET, abs=0.8)

    @pytest.mark.slow
    def test_finer_target_takes_more_and_bins_end_it(self):
        few, many = (reports_needed(TREE, QuantileLevel(0.5), target) for target in (6.4, 3.2))
        assert 2.5 * few < many
        assert reports_needed(TREE, QuantileLevel(0.5), 0.4) == MOST

    def test_large_domains_look_at_some_edges(self):
        """Between few edges noise reaches less far, so the number is smaller, by no more than half."""
        shares = bell(64, 1 / 6)
        exact = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares)
        some = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares, most_pairs=1)
        assert exact / 2 < some < exact


class TestPopulation:
    """What is assumed of the readings."""

    @pytest.mark.slow
    def test_estimate_gives_nearly_the_number_of_the_population(self):
        """Ten estimates of 2,000 reports each: the middle of their numbers is within a factor of 1.5."""
        shares, rng = centred(64, 30, 10), np.random.default_rng(24)
        expected = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares)
        each = [
            reports_needed(TREE, QuantileLevel(0.5), TARGET, likely_population(draw(TREE, shares, 2000, rng)))
            for _ in range(10)
        ]
        assert 1 / 1.5 < np.median(each) / expected < 1.5

    def test_likely_shares_are_shares(self):
        rng = np.random.default_rng(25)
        for of in (TREE, choice(["a", "b"], 1)):
            shares = likely_population(draw(of, np.full(of.domain, 1 / of.domain), 300, rng))
            assert shares.min() >= 0
            assert shares.sum() == pytest.approx(1)

    def test_usual_one_is_bell_of_numbers_and_even_of_labels(self):
        assert usual_population(TREE) == pytest.approx(bell(64, 1 / 6))
        assert usual_population(choice(["a", "b"], 1)) == pytest.approx(np.full(3, 1 / 3))


class TestErrors:
    @refusals(
        (QuantileLevel(1), 5, "a quantile is between 0 and 1"),
        (RangeShare(3, 65), 0.1, "a range lies within 0:64, unlike 3:65"),
        (MeanIndex(), 0, "half an interval is above 0, not 0"),
        call=lambda answer, target: reports_needed(TREE, answer, target),
        error=EstimateError,
    )
    def test_rejects_questions_without_an_answer(self, refusal: Refusal):
        refusal.check()
