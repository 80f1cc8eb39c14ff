"""The second ε: what a histogram of an experiment gives away of one board, to whoever sees histograms only.

It does not hold against the broker, the aggregator's operator or the database's journal: they see a report
with its board. What is published of a histogram, an estimate or a picture, gives away no more than it does.
"""

import math
from collections.abc import Callable, Sequence

from ...device.ldp_client import Experiment
from ..accounting.shuffle import USUAL_HISTOGRAM_DELTA, Blanket, composed_epsilon
from ..epsilon import LEAST, MOST
from ..mechanisms import mechanism_of


def blanket_of(experiment: Experiment) -> Blanket:
    """What all readings' reports have in common under the experiment's mechanism."""
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
    design: Callable[[int], Experiment],
    reports: int,
    epsilon: float,
    delta: float = USUAL_HISTOGRAM_DELTA,
    own: int = 1,
) -> int:
    """The largest ε of a report, in micro-nats, whose histogram of these reports keeps (epsilon, delta).

    design: the experiment for an ε of a report in micro-nats. epsilon: wanted of the histogram, nats. To
    within a thousandth, rounded down; MOST where even that keeps it, 0 where LEAST does not.
    """

    def keeps(micro: int) -> bool:
        return histogram_epsilon(design(micro), reports, delta, own) <= epsilon

    if keeps(MOST):
        return MOST
    if not keeps(LEAST):
        return 0
    low, high = LEAST, MOST
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
