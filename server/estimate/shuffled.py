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
"""The observers against whom the ε of a histogram holds; shown beside it everywhere."""

# Multiples of the ε found so far at which to look for a larger one.
_AHEAD = tuple(1.03**n for n in range(10, 0, -1))


def blanket_of(experiment: Experiment) -> Blanket:
    """Return the blanket of the experiment's mechanism: the part that all readings' reports share.

    For your own mechanism it uses only the ε of a report, which devices keep.
    """
    if is_own(experiment.mechanism):
        return Blanket.of_clones(math.exp(experiment.epsilon / MICRO) * (1 + 1e-12))
    mechanism = mechanism_of(experiment)
    blanket = mechanism.blanket()
    return Blanket.of_clones(mechanism.odds * (1 + 1e-12)) if blanket is None else Blanket(*blanket)


def histogram_epsilon(
    experiment: Experiment, reports: int, delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return the ε of a histogram, (ε, delta)-DP for a device with `own` of its reports; nats, rounded up.

    reports: of honest devices, the device's own included, at least 1. own: at least 1. Never above own times
    the ε of a report. Raises AccountingError for other arguments.
    """
    return histograms_epsilon([(experiment, reports)], delta, own)


def histograms_epsilon(
    parts: Sequence[tuple[Experiment, int]], delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """Return the ε of several histograms seen together, windows or versions, each with its reports.

    own: the largest number of reports of one device in all of them together, wherever they are. Otherwise the
    same as histogram_epsilon().
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
    """Return the largest ε of a report found, in micro-nats, that keeps (epsilon, delta) for a histogram.

    design: the experiment for an ε of a report in micro-nats, None if the mechanism does not fit. reports,
    own: as in histogram_epsilon(). epsilon: the target for the histogram, nats. Rounded down, to within a
    thousandth; None if no ε that a device accepts keeps it.
    """

    def keeps(micro: int) -> bool:
        experiment = design(micro)
        if experiment is None:
            return micro < MICRO  # too little ε for the cells: look higher
        return histogram_epsilon(experiment, reports, delta, own) <= epsilon

    if keeps(MOST):
        return MOST
    if not keeps(LEAST):
        return None
    largest = _last_that_keeps(keeps, LEAST, MOST)
    for ahead in _AHEAD:  # with more ε a mechanism may choose other cells, whose histogram reveals less
        low, high = int(largest * ahead), int(largest * ahead * _AHEAD[-1])
        if high <= MOST and keeps(low):
            largest = _last_that_keeps(keeps, low, high)
            break
    return None if design(largest) is None else largest


def _last_that_keeps(keeps: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number from low, which keeps, to high that keeps; to within a thousandth."""
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
