"""A number's mean and standard deviation, with errors, as linear statistics of the shares.

Each reading is counted at the midpoint of its bin, and readings outside the range at the midpoint of an end
bin, so both statistics describe the readings as the board bucketed them. For readings inside the range, this
shifts the mean by at most half a bin.
"""

import math
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..estimate.estimate import Estimates
from ..estimate.statistic import Floats, Statistic, Statistics
from ..experiments.units import bin_edges, bin_middles
from ..mechanisms import mechanism_of
from ..mechanisms.workload import positions
from ..wire.experiments import scale_of

_MAX_ROUNDING = 1e-6  # a larger bias is not due to rounding
_SMALL = 0.1  # fraction of the half-width below which the binning error is not mentioned


@dataclass(frozen=True)
class Deviation:
    """A standard deviation, based on an estimate of the variance; 0 if that estimate is negative.

    Attributes:
        mean: The mean around which the variance is taken.
        centred_squares: The mean squares around three centres: one standard error below the mean, the mean,
            and one standard error above it.
    """

    variance: Statistic
    mean: Statistic
    centred_squares: Statistics

    @property
    def value(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(self.variance.value, 0.0))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval that contains the population's standard deviation with probability `confidence`.

        The mean square around the population's mean is a weighted sum of shares, so its interval is valid.
        The interval around the estimated mean is not valid if that mean is far off. The result is therefore
        the union of the intervals around three plausible means, and is wide if there are few reports.
        """
        low, high = self.centred_squares.interval(confidence)
        return math.sqrt(max(float(low.min()), 0.0)), math.sqrt(max(float(high.max()), 0.0))


@dataclass(frozen=True)
class BinQuantile:
    """A number's quantile, for q from 0 to 1: the midpoint of its bin, with an interval of whole bins."""

    estimate: Estimates
    q: float

    @property
    def value(self) -> float:
        """The midpoint of the quantile's bin, in whole units."""
        return float(bin_middles(self.estimate.experiment)[self.estimate.quantile_index(self.q)])

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the outer bin edges of Estimates.quantile()'s interval, in whole units."""
        edges, quantile = bin_edges(self.estimate.experiment), self.estimate.quantile(self.q, confidence)
        return float(edges[quantile.low]), float(edges[quantile.high + 1])


def mean(estimate: Estimates) -> Statistic:
    """Return a number's mean in whole units.

    Raises:
        UnitsError: If the experiment's type is not a number.
    """
    return estimate.linear(bin_middles(estimate.experiment))


def has_deviation(estimate: Estimates) -> bool:
    """Return whether mean squares can also be estimated; a custom mechanism may estimate only the mean."""
    return can_estimate(estimate, positions(estimate.domain)[:, None] ** 2)


def can_estimate(estimate: Estimates, statistics: Floats) -> bool:
    """Return whether statistics can be estimated without bias.

    Args:
        estimate: The estimate.
        statistics: The weights of the values, between 0 and 1, shape (domain, n).
    """
    return all(_is_unbiased(experiment, statistics) for experiment in estimate.versions)


def _is_unbiased(experiment: Experiment, statistics: Floats) -> bool:
    mechanism = mechanism_of(experiment)
    if "frequencies" in mechanism.answers:
        return True
    # For a missing reading.
    missing_rows = np.zeros((mechanism.domain - len(statistics), statistics.shape[1]))
    statistics = np.append(statistics, missing_rows, axis=0)
    weights, constant = mechanism.weights(statistics, mechanism.stratum_chances)
    both = zip(weights, mechanism.class_sizes, strict=True)
    classes = [np.zeros((len(size), len(constant))) if w is None else w for w, size in both]
    for i, constant_part in enumerate(constant):
        expected = mechanism.law_transposed([w[:, i] for w in classes]) + constant_part
        if np.abs(expected - statistics[:, i]).max() > _MAX_ROUNDING:
            return False
    return True


def bins_note(estimate: Estimates, unit: str, half_width: float) -> str:
    """Return a note on the error that binning adds to a mean, or "" if `half_width` is much larger."""
    widths = np.diff(bin_edges(estimate.experiment))
    if scale_of(estimate.experiment):
        return _log_bins_note(estimate, unit, half_width, widths)
    width = float(widths.max())
    if width / 2 <= _SMALL * half_width:
        return ""
    bin_width, off = (f"{x:.3g} {unit}".strip() for x in (width, width / 2))
    counted = f"Each reading is counted at the midpoint of its bin, which is {bin_width} wide"
    return f"{counted}, so the mean may be off by up to another {off}."


def _log_bins_note(estimate: Estimates, unit: str, half_width: float, widths: Floats) -> str:
    """Return the note for bins on a logarithmic scale, whose errors depend on where the readings are."""
    off = float(max(estimate.linear(widths / 2).interval()))
    if off <= _SMALL * half_width:
        return ""
    most = f"{off:.3g} {unit}".strip()
    return (
        "Each reading is counted at the midpoint of its bin, and higher bins are wider, so the mean may be "
        f"off by up to another {most}; readings above the highest edge make it too low."
    )


def deviation(estimate: Estimates) -> Deviation:
    """Return a number's standard deviation in whole units.

    On average, the mean square around the estimated mean is too small by the variance of that mean, so this
    variance is added. Its noise contributes to the error, and dominates it if there are few reports.

    Raises:
        UnitsError: If the experiment's type is not a number.
    """
    centre = mean(estimate)
    off = centre.stderr * np.array([-1.0, 0.0, 1.0])
    around = estimate.linear_many(np.square(bin_middles(estimate.experiment)[:, None] - centre.value - off))
    square, error = around[1], centre.stderr**2
    stderr = math.hypot(square.stderr, math.sqrt(2) * error)
    skew = square.skew * (square.stderr / stderr) ** 2 if stderr else 0.0
    return Deviation(Statistic(square.value + error, stderr, skew), centre, around)
