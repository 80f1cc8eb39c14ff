"""Compute the second ε, which bounds what someone who sees only histograms learns about one device.

The second ε does not apply to the broker, the aggregator's operator or the database's journal, which can link
a report to its device. An estimate or a picture derived from a histogram reveals no more than the histogram.
"""

import math
from collections.abc import Callable, Sequence

from ...device.ldp_client import Experiment
from ..accounting.shuffle import USUAL_HISTOGRAM_DELTA, Blanket, composed_epsilon
from ..epsilon import LEAST, MICRO, MOST
from ..mechanisms import mechanism_of
from ..wire.experiments import is_own

LIMITS = (
    "against whoever sees histograms only; not against the broker, the aggregator's operator or the "
    "database's journal"
)
"""The observers that a histogram's ε protects against, shown wherever it is shown."""

# The multiples of the largest ε so far at which to look for a larger one.
_PROBE_FACTORS = tuple(1.03**n for n in range(10, 0, -1))


def blanket_of(experiment: Experiment) -> Blanket:
    """Return the mechanism's blanket: the part of the distribution that reports for all readings share.

    For a custom mechanism, it uses only a report's ε, which devices enforce.
    """
    if is_own(experiment.mechanism):
        return Blanket.of_clones(math.exp(experiment.epsilon / MICRO) * (1 + 1e-12))
    mechanism = mechanism_of(experiment)
    blanket = mechanism.blanket()
    return Blanket.of_clones(mechanism.odds * (1 + 1e-12)) if blanket is None else Blanket(*blanket)


def histogram_epsilon(
    experiment: Experiment, reports: int, delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return a histogram's ε in nats, rounded up; it never exceeds `own` times a report's ε.

    Args:
        experiment: The experiment.
        reports: The number of reports from honest devices, including the device's own, at least 1.
        delta: δ, above 0 and below 1.
        own: The number of reports from the device to protect, at least 1.

    Raises:
        AccountingError: If an argument is out of range.
    """
    return histograms_epsilon([(experiment, reports)], delta, own)


def histograms_epsilon(
    parts: Sequence[tuple[Experiment, int]], delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return the ε of several histograms seen together, in nats, rounded up.

    Args:
        parts: Each histogram's experiment and number of reports; histograms are windows or versions.
        delta: δ, above 0 and below 1.
        own: The maximum number of reports from one device across all of them.

    Raises:
        AccountingError: If an argument is out of range.
    """
    blankets = {experiment.digest: blanket_of(experiment) for experiment, _ in parts}
    return composed_epsilon([(blankets[experiment.digest], n) for experiment, n in parts], delta, own)


def local_epsilon_for(
    design: Callable[[int], Experiment | None],
    reports: int,
    epsilon: float,
    delta: float = USUAL_HISTOGRAM_DELTA,
    own: int = 1,
) -> int | None:
    """Return the largest report ε, in micro-nats, whose histogram satisfies (epsilon, delta).

    Args:
        design: A function that returns the experiment for a report ε in micro-nats, or None if the mechanism
            does not fit.
        reports: The number of reports, as in histogram_epsilon().
        epsilon: The target for the histogram, in nats.
        delta: δ, as in histogram_epsilon().
        own: The number of reports from the device, as in histogram_epsilon().

    Returns:
        The ε, rounded down to within a thousandth, or None if no ε that a device accepts meets the target.
    """

    def meets_target(micro: int) -> bool:
        experiment = design(micro)
        if experiment is None:
            return micro < MICRO  # ε is too small for any cells, so look higher
        return histogram_epsilon(experiment, reports, delta, own) <= epsilon

    if meets_target(MOST):
        return MOST
    if not meets_target(LEAST):
        return None
    largest = _largest_meeting(meets_target, LEAST, MOST)
    for factor in _PROBE_FACTORS:  # at a larger ε, a mechanism may choose different cells, which reveal less
        low, high = int(largest * factor), int(largest * factor * _PROBE_FACTORS[-1])
        if high <= MOST and meets_target(low):
            largest = _largest_meeting(meets_target, low, high)
            break
    return None if design(largest) is None else largest


def _largest_meeting(meets_target: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number from `low` to `high` that meets the target, to within a thousandth."""
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high)
        low, high = (middle, high) if meets_target(middle) else (low, middle)
    return low
