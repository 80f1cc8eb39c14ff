"""The most common value is named if the reports allow it."""

import numpy as np
import pytest
from designs import number_with_mechanism
from scipy import stats

from hushmote.server.estimate import estimate
from hushmote.server.estimate.leaders import Leaders, leaders, leaders_from_chances
from hushmote.simulator import vectorised

GRR = number_with_mechanism("grr", 6, 1)  # five labels and "other"


class TestLeading:
    """Selection of the named values by their probabilities."""

    @pytest.mark.parametrize(
        ("chances", "indices"),
        [
            ([0.04, 0.95, 0.01], (1,)),
            ([0.94, 0.04, 0.02], (0, 1)),
            ([0.3, 0.6, 0.1], (1, 0, 2)),
            ([0.02, 0.6, 0.25, 0.13], (1, 2, 3)),
            ([0.6, 0.1, 0.1, 0.1, 0.1], ()),
            ([0.49, 0.49, 0.02], ()),
            ([0.5, 0.5, 0.0], (0, 1)),
            ([0.2] * 5, ()),
        ],
        ids=str,
    )
    def test_names_fewest_values_with_enough_chance(self, chances, indices):
        assert leaders_from_chances(chances) == Leaders(indices, max(chances))

    def test_single_value_leads(self):
        assert leaders_from_chances([0.96, 0.04]).has_single_leader
        assert not leaders_from_chances([0.94, 0.06]).has_single_leader
        assert not leaders_from_chances([0.2] * 5).has_single_leader


def wrong(shares: list[float], reports: int, fleets: int, seed: int) -> tuple[int, int]:
    """Return how many fleets name a single value, and how many of those are wrong."""
    rng, alone, mistaken = np.random.default_rng(seed), 0, 0
    f = np.array(shares)
    right = int(f.argmax()) if (f == f.max()).sum() == 1 else None
    for _ in range(fleets):
        top = leaders(estimate(GRR, vectorised.histogram(GRR, rng.multinomial(reports, f), rng)))
        alone += top.has_single_leader
        mistaken += top.has_single_leader and top.indices[0] != right
    return alone, mistaken


class TestCalibration:
    """Draw new fleets; at an error rate of 5%, the bound is exceeded with a probability below 1e-9."""

    @pytest.mark.slow
    @pytest.mark.parametrize("reports", [1000, 4000, 16_000])
    @pytest.mark.parametrize(
        "shares",
        [
            [0.225, 0.2, 0.2, 0.2, 0.175, 0.0],
            [0.2, 0.2, 0.2, 0.2, 0.2, 0.0],
            [0.45, 0.425, 0.05, 0.05, 0.025, 0.0],
        ],
        ids=["a lead of 2.5 points", "equal", "two ahead"],
    )
    def test_single_leader_is_rarely_wrong(self, shares, reports):
        """Draw 200 fleets each: at most 33 are wrong."""
        _, mistaken = wrong(shares, reports, 200, 21)
        assert mistaken <= stats.binom.isf(1e-9, 200, 0.05)

    @pytest.mark.slow
    def test_clear_leader_is_named_alone(self):
        """For 20 fleets of 64,000 reports, a lead of 12 points is 11 standard errors."""
        assert wrong([0.32, 0.2, 0.2, 0.18, 0.1, 0.0], 64_000, 20, 22) == (20, 0)
