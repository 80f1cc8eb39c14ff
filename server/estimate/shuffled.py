"""The second ε: how much someone who sees only an experiment's histograms learns about one device.

It does not hold against the broker, the aggregator's operator or the database's journal: they can link a
report to its device. An estimate or a picture derived from a histogram reveals no more than the histogram.
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
"""The observers that the ε of a histogram protects against; shown beside it everywhere."""

# Multiples of the largest ε so far at which to look for a larger one.
_AHEAD = tuple(1.03**n for n in range(10, 0, -1))


def blanket_of(experiment: Experiment) -> Blanket:
    """Return the blanket of the experiment's mechanism: the part that the reports of all readings share.

    For your own mechanism it uses only the ε of a report, which devices enforce.
    """
    if is_own(experiment.mechanism):
        return Blanket.of_clones(math.exp(experiment.epsilon / MICRO) * (1 + 1e-12))
    mechanism = mechanism_of(experiment)
    blanket = mechanism.blanket()
    return Blanket.of_clones(mechanism.odds * (1 + 1e-12)) if blanket is None else Blanket(*blanket)


def histogram_epsilon(
    experiment: Experiment, reports: int, delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return the ε of a histogram in nats, rounded up; it is never above `own` times the ε of a report.

    Args:
        experiment: The experiment.
        reports: The number of reports of honest devices, including the device's own, at least 1.
        delta: δ, above 0 and below 1.
        own: The number of reports of the device to protect, at least 1.

    Raises:
        AccountingError: If an argument is out of range.
    """
    return histograms_epsilon([(experiment, reports)], delta, own)


def histograms_epsilon(
    parts: Sequence[tuple[Experiment, int]], delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return the ε of several histograms seen together, in nats, rounded up.

    Args:
        parts: The experiment and the number of reports of each histogram: windows or versions.
        delta: δ, above 0 and below 1.
        own: The largest number of reports of one device in all of them together.

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
    """Return the largest ε of a report, in micro-nats, whose histogram keeps (epsilon, delta).

    Args:
        design: A function that returns the experiment for an ε of a report in micro-nats, or None if the
            mechanism does not fit.
        reports: As in histogram_epsilon().
        epsilon: The target for the histogram, in nats.
        delta: As in histogram_epsilon().
        own: As in histogram_epsilon().

    Returns:
        The ε, rounded down to within a thousandth, or None if no ε that a device accepts keeps the target.
    """

    def keeps(micro: int) -> bool:
        experiment = design(micro)
        if experiment is None:
            return micro < MICRO  # too little ε for any cells: look higher
        return histogram_epsilon(experiment, reports, delta, own) <= epsilon

    if keeps(MOST):
        return MOST
    if not keeps(LEAST):
        return None
    largest = _last_that_keeps(keeps, LEAST, MOST)
    for ahead in _AHEAD:  # at a larger ε, a mechanism may choose other cells, which reveal less
        low, high = int(largest * ahead), int(largest * ahead * _AHEAD[-1])
        if high <= MOST and keeps(low):
            largest = _last_that_keeps(keeps, low, high)
            break
    return None if design(largest) is None else largest


def _last_that_keeps(keeps: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number from `low`, which keeps, to `high` that keeps, to within a thousandth."""
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
