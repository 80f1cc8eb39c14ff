"""The number of reports that an answer needs, compared with closed forms and simulated fleets."""

import math

import numpy as np
import pytest
from designs import bell as centred
from designs import choice, draw, number_with_mechanism
from refusals import Refusal, refusals

from hushmote.device.ldp_client import ONE
from hushmote.server.estimate.postprocess import nonnegative
from hushmote.server.estimate.reports_needed import (
    MOST,
    MeanIndex,
    QuantileLevel,
    RangeShare,
    _covariance,
    bell_population,
    default_population,
    likely_population,
    reports_needed,
    round_target,
)
from hushmote.server.estimate.statistic import EstimateError, normal_quantile
from hushmote.server.mechanisms import mechanism_of

Z = normal_quantile(0.95)
TREE = number_with_mechanism("hh", 64, 1, fanout=4, cells=[4, 5, 5])
OLH = number_with_mechanism("olh", 64, 1, g=3)
TREE_2 = number_with_mechanism("hh", 64, 2, fanout=4, cells=[4, 5, 7])
TARGET = 5.12  # 8% of the range


class TestRoundedTarget:
    """The announced half-width is the one used to calculate the reports."""

    @pytest.mark.parametrize(
        ("scale", "target"), [(25, 2), (35, 4), (64, 6), (1, 0.1), (0.128, 0.01), (1200, 100)]
    )
    def test_is_a_tenth_rounded_to_one_digit(self, scale, target):
        assert round_target(scale) == target


class TestShare:
    """Shares and means: z² v / target², with v from the mechanism."""

    def test_yes_or_no_follows_closed_form(self):
        version = number_with_mechanism("rr", 2, 1)
        p = version.levels[0].threshold / ONE
        support = 0.3 * p + 0.7 * (1 - p)
        variance = support * (1 - support) / (2 * p - 1) ** 2
        assert reports_needed(version, RangeShare(1, 2), 0.1, [0.7, 0.3]) == math.ceil(
            variance * (Z / 0.1) ** 2
        )

    def test_label_of_choice_follows_closed_form(self):
        version = choice(["a", "b", "c"], 1)
        p = version.levels[0].threshold / ONE
        q = (1 - p) / 3
        support = 0.25 * p + 0.75 * q
        variance = support * (1 - support) / (p - q) ** 2
        assert reports_needed(version, RangeShare(0, 1), 0.05) == math.ceil(variance * (Z / 0.05) ** 2)

    def test_mean_has_the_mechanisms_variance(self):
        shares = bell_population(64, 0.2)
        (variance,) = mechanism_of(TREE).variances(np.arange(64.0)[:, None], shares)
        assert reports_needed(TREE, MeanIndex(), 3, shares) == math.ceil(variance * (Z / 3) ** 2)

    def test_higher_confidence_needs_more_reports(self):
        share = RangeShare(0, 20)
        assert reports_needed(TREE, share, 0.1, confidence=0.99) > reports_needed(TREE, share, 0.1)

    def test_easy_answers_need_two_reports(self):
        assert reports_needed(number_with_mechanism("grr", 4, 12), RangeShare(0, 2), 10) == 2


class TestQuantile:
    """The reports for which a quantile's interval has the target width."""

    def test_covariances_have_variances_on_diagonal(self):
        below = np.tril(np.ones((64, 64)), -1).T[:, 1:]
        expected = mechanism_of(TREE).variances(below, bell_population(64, 0.2))
        np.testing.assert_allclose(
            np.diag(_covariance(mechanism_of(TREE), below, bell_population(64, 0.2))), expected
        )

    def test_follows_density_with_little_randomization(self):
        """With variance 1/4 and a uniform population, 3.5 bins on each side are 3 and a half."""
        of, even = number_with_mechanism("grr", 64, 14), np.full(64, 1 / 64)
        expected = 0.25 * (Z / (3 / 64)) ** 2
        assert reports_needed(of, QuantileLevel(0.5), 3.5, even) == pytest.approx(expected, rel=0.05)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("of", "q", "spread"),
        [(TREE, 0.5, 1 / 6), (TREE, 0.5, 0.25), (OLH, 0.5, 1 / 6), (TREE_2, 0.9, 1 / 6), (TREE_2, 0.9, 0.2)],
        ids=["tree", "tree, wide", "olh", "90% of tree", "90% of tree, wide"],
    )
    def test_intervals_from_fleets_have_the_target_width(self, of, q, spread):
        """The mean half-width of 300 fleets, with deviation up to 2.2 bins: ±0.8 is 6 standard errors."""
        shares, rng = bell_population(64, spread), np.random.default_rng(23)
        reports = reports_needed(of, QuantileLevel(q), TARGET, shares)
        quantiles = [draw(of, shares, reports, rng).quantile(q) for _ in range(300)]
        widths = np.array([(one.high - one.low + 1) / 2 for one in quantiles])
        assert widths.std() < 2.2
        assert widths.mean() == pytest.approx(TARGET, abs=0.8)

    @pytest.mark.slow
    def test_finer_target_needs_more_up_to_the_bin_width(self):
        loose, tight = (reports_needed(TREE, QuantileLevel(0.5), target) for target in (6.4, 3.2))
        assert 2.5 * loose < tight
        assert reports_needed(TREE, QuantileLevel(0.5), 0.4) == MOST

    def test_large_domains_use_only_some_edges(self):
        """With few edges, noise has less effect, so the number is smaller by at most half."""
        shares = bell_population(64, 1 / 6)
        exact = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares)
        some = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares, max_pairs=1)
        assert exact / 2 < some < exact


class TestPopulation:
    """The assumed distribution of the readings."""

    @pytest.mark.slow
    def test_estimate_gives_nearly_the_populations_number(self):
        """For ten estimates from 2,000 reports each, the median number is within a factor of 1.5."""
        shares, rng = centred(64, 30, 10), np.random.default_rng(24)
        expected = reports_needed(TREE, QuantileLevel(0.5), TARGET, shares)
        quantiles = [
            reports_needed(TREE, QuantileLevel(0.5), TARGET, likely_population(draw(TREE, shares, 2000, rng)))
            for _ in range(10)
        ]
        assert 1 / 1.5 < np.median(quantiles) / expected < 1.5

    def test_likely_shares_are_shares(self):
        rng = np.random.default_rng(25)
        for of in (TREE, choice(["a", "b"], 1)):
            shares = likely_population(draw(of, np.full(of.domain, 1 / of.domain), 300, rng))
            assert shares.min() >= 0
            assert shares.sum() == pytest.approx(1)

    def test_likely_numbers_leave_no_gaps(self):
        estimate = draw(TREE, np.full(64, 1 / 64), 300, np.random.default_rng(26))
        assert nonnegative(estimate).frequencies.min() == 0
        assert likely_population(estimate).min() > 0

    def test_default_is_bell_for_numbers_and_uniform_for_labels(self):
        assert default_population(TREE) == pytest.approx(bell_population(64, 1 / 6))
        assert default_population(choice(["a", "b"], 1)) == pytest.approx(np.full(3, 1 / 3))


class TestErrors:
    @refusals(
        (QuantileLevel(1), 5, "a quantile must be between 0 and 1"),
        (RangeShare(3, 65), 0.1, "a range must lie within 0:64, unlike 3:65"),
        (MeanIndex(), 0, "an interval's half-width must be above 0, not 0"),
        call=lambda answer, target: reports_needed(TREE, answer, target),
        error=EstimateError,
    )
    def test_rejects_impossible_questions(self, refusal: Refusal):
        refusal.check()
