"""The second ε: what somebody who sees only an experiment's histograms learns about one board.

It does not hold against the broker, the aggregator's operator or the database's journal: they see a report
with its board. What is published of a histogram, an estimate or a picture, gives away no more than it does.
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
"""Whom the ε of a histogram holds against, said wherever it is shown."""

# Times the ε that was found: where a larger one is looked for.
_AHEAD = tuple(1.03**n for n in range(10, 0, -1))


def blanket_of(experiment: Experiment) -> Blanket:
    """The blanket of the experiment's mechanism: what all readings' reports share.

    From a mechanism of your own it takes only the ε of a report, which boards keep.
    """
    if is_own(experiment.mechanism):
        return Blanket.of_clones(math.exp(experiment.epsilon / MICRO) * (1 + 1e-12))
    mechanism = mechanism_of(experiment)
    known = mechanism.blanket()
    return Blanket.of_clones(mechanism.odds * (1 + 1e-12)) if known is None else Blanket(*known)


def histogram_epsilon(
    experiment: Experiment, reports: int, delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """ε of a histogram: it is (ε, delta)-DP for a board with `own` of its reports; nats, rounded up.

    reports: of honest boards, the board's own included, from 1 up. own: from 1 up. Never above own times the
    ε of a report. AccountingError on anything else.
    """
    return histograms_epsilon([(experiment, reports)], delta, own)


def histograms_epsilon(
    parts: Sequence[tuple[Experiment, int]], delta: float = USUAL_HISTOGRAM_DELTA, own: int = 1
) -> float:
    """ε of several histograms that are seen together, windows or versions, each with its reports.

    own: the most reports of one board in all of them together, wherever they lie. Otherwise as
    histogram_epsilon().
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
    """The largest ε of a report, in micro-nats, that is found to keep (epsilon, delta) for a histogram.

    design: the experiment for an ε of a report in micro-nats, None where the mechanism does not fit. reports,
    own: as histogram_epsilon(). epsilon: wanted of the histogram, nats. Rounded down, to within a thousandth;
    None where no ε that a board takes keeps it.
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
    found = _last_kept(keeps, LEAST, MOST)
    for ahead in _AHEAD:  # with more ε a mechanism may choose other cells, and its histogram give away less
        low, high = int(found * ahead), int(found * ahead * _AHEAD[-1])
        if high <= MOST and keeps(low):
            found = _last_kept(keeps, low, high)
            break
    return None if design(found) is None else found


def _last_kept(keeps: Callable[[int], bool], low: int, high: int) -> int:
    """Between low, which is kept, and high, the last that is; to within a thousandth."""
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
