"""Bounds the beliefs of someone who sees only histograms, and finds the per-report ε for a target ε of them.

The ε of a histogram protects only against people who see nothing but histograms, not against the broker, the
aggregator's operator or the database's journal, who see each board's own reports.

A histogram is (E, δ)-DP, which alone does not bound the odds. As for `optimal` in many_reports, the loss
stays below t, for every t > E, except with probability η where δ = η (1 - e^(E - t)).
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...device.ldp_client import Experiment, ExperimentRefused
from ...server.accounting import Kind
from ...server.accounting.compare import TheoremRow
from ...server.accounting.errors import positive_number, probability, whole_number
from ...server.epsilon import MICRO
from ...server.estimate.shuffled import LIMITS, histogram_epsilon, local_epsilon_for
from ...server.experiments.payload import NoMechanism
from ...server.mechanisms import MECHANISMS, mechanism_of
from ...server.mechanisms.choose import designs
from ...server.mechanisms.workload import ALL_RANGES, FREQUENCIES
from .beliefs import ByEpsilon, DisclosureError, posterior_bound
from .questions import Belief, check_domain, choose_mechanism

SHUFFLE = "shuffle"
"""The name of the shuffling row in a comparison of theorems."""

_MARGINS = (0.05, 0.1, 0.2, 0.4)  # margins between E and t, as fractions of ε; the optimum is broad


@dataclass(frozen=True)
class HistogramRow:
    """ε of one report under a mechanism and ε of the histogram of all reports, both in nats.

    Both are None if no valid ε of an experiment keeps the target.
    """

    mechanism: str
    described: str
    local: float | None
    histogram: float | None


def for_histogram(
    domain: int, devices: int, epsilon: float, delta: float, own: int = 1
) -> list[HistogramRow]:
    """Return each mechanism's largest per-report ε whose histogram is (epsilon, delta)-DP.

    Each is rounded down, to within a thousandth.

    Args:
        domain: The number of values.
        devices: The number of honest boards, each with `own` reports in the histogram.
        epsilon: ε of the histogram, in nats, above 0.
        delta: δ of the histogram.
        own: The number of reports of each board.

    Raises:
        DisclosureError: If the domain is out of range.
        AccountingError: If another number is out of range.
    """
    positive_number("ε of the histogram", epsilon)
    return [
        _row(name, at, largest_local(at, devices * own, epsilon, delta, own), devices, delta, own)
        for name, at in _mechanisms(domain, devices, delta, own)
    ]


def for_reports(domain: int, devices: int, epsilon: int, delta: float, own: int = 1) -> list[HistogramRow]:
    """Return the ε of the histogram for reports of epsilon micro-nats; otherwise as for_histogram()."""
    return [
        _row(name, at, epsilon, devices, delta, own) for name, at in _mechanisms(domain, devices, delta, own)
    ]


def largest_local(at: ByEpsilon, reports: int, epsilon: float, delta: float, own: int) -> int | None:
    """Return local_epsilon_for() for a mechanism that may not support every ε."""
    return local_epsilon_for(lambda micro: _fitting(at, micro), reports, epsilon, delta, own)


def shuffled_for_reports(at: ByEpsilon, devices: int, total: float, delta: float, reports: int) -> TheoremRow:
    """Return the largest per-report ε for which the histogram of all devices' reports is (total, delta)-DP.

    The row can be shown alongside those from server.accounting.compare.for_reports().

    Args:
        at: The mechanism at any ε.
        devices: The number of honest devices, at least 1, each with `reports` reports in the histogram.
        total: ε of the histogram, in nats, above 0.
        delta: δ of the histogram, above 0 and below 1.
        reports: The number of reports per device, at least 1.

    Raises:
        AccountingError: If a number is out of range.
    """
    _check_total(devices, total, delta)
    epsilon = largest_local(
        at, devices * whole_number("the number of reports", reports), total, delta, reports
    )
    return _shuffle_row(epsilon or 0, reports if epsilon else 0, total, delta)


def shuffled_for_epsilon(at: ByEpsilon, devices: int, total: float, delta: float, epsilon: int) -> TheoremRow:
    """Return the number of reports per device at an ε, as a row like that of shuffled_for_reports().

    The number is rounded down, to within 1/256. It is 0 if the mechanism does not support this ε.

    Args:
        at: The mechanism at any ε.
        devices: The number of honest devices.
        total: ε of the histogram, in nats, above 0.
        delta: δ of the histogram, above 0 and below 1.
        epsilon: ε of a report, in micro-nats.
    """
    _check_total(devices, total, delta)
    experiment = _fitting(at, epsilon)
    if experiment is None:
        return _shuffle_row(epsilon, 0, total, delta)

    def keeps(reports: int) -> bool:
        return histogram_epsilon(experiment, devices * reports, delta, reports) <= total

    max_reports = int(total * MICRO) // epsilon  # the number that summation alone allows
    too_many = max(2 * max_reports, 1)
    while keeps(too_many):
        max_reports, too_many = too_many, 2 * too_many
    while too_many - max_reports > 1 + max_reports // 256:
        middle = (max_reports + too_many) // 2
        max_reports, too_many = (middle, too_many) if keeps(middle) else (max_reports, middle)
    return _shuffle_row(epsilon, max_reports, total, delta)


def _check_total(devices: int, total: float, delta: float) -> None:
    whole_number("the number of devices", devices)
    positive_number("the total", total)
    positive_number("delta", probability("delta", delta))


def _shuffle_row(epsilon: int, reports: int, total: float, delta: float) -> TheoremRow:
    guarantee = f"({total:g}, {delta:g})-DP"
    return TheoremRow(
        theorem=SHUFFLE,
        kind=Kind.SHUFFLED,
        guarantee=f"{guarantee}, shuffled",
        rule="count",
        cap=reports,
        epsilon=epsilon / MICRO,
        reports=reports,
        sum=epsilon * reports / MICRO or None,
        words=f"The histogram of all devices' reports is {guarantee}, {LIMITS}.",
    )


def _fitting(at: ByEpsilon, micro: int) -> Experiment | None:
    try:
        return at(micro)
    except (ExperimentRefused, NoMechanism):
        return None


def _mechanisms(domain: int, devices: int, delta: float, own: int) -> list[tuple[str, ByEpsilon]]:
    check_domain(domain)
    whole_number("the number of devices", devices)
    whole_number("the number of reports of each", own)
    probability("delta", delta)
    return [(name, choose_mechanism(domain, name)) for name in MECHANISMS if _is_for(domain, name)]


def _is_for(domain: int, name: str) -> bool:
    """Return whether a mechanism supports single values or ranges of a domain."""
    for workload in (FREQUENCIES, ALL_RANGES):
        with contextlib.suppress(ValueError):
            return bool(designs(domain, MICRO, workload, name))
    return False


def _row(name: str, at: ByEpsilon, epsilon: int | None, devices: int, delta: float, own: int) -> HistogramRow:
    experiment = None if epsilon is None else _fitting(at, epsilon)
    if experiment is None:
        return HistogramRow(name, name, None, None)
    return HistogramRow(
        name,
        mechanism_of(experiment).words(),
        experiment.epsilon / MICRO,
        histogram_epsilon(experiment, devices * own, delta, own),
    )


# --- Beliefs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistogramView:
    """The beliefs of an attacker who sees only the histogram, limited as in this module's docstring.

    Attributes:
        reports: The number of reports in the histogram.
        own: The number of reports of the board.
        delta: δ of the histogram.
        epsilon: ε of the histogram at delta, in nats.
        loss: The largest change of the log-odds, in nats, except with probability delta.
        local: An ε of a report that would keep a risk against someone who sees only the histogram, or None if
            no risk was given or no such ε is known.
        beliefs: Each value's name, its prior, and the bound on the belief in it.
    """

    reports: int
    own: int
    delta: float
    epsilon: float
    loss: float
    local: float | None
    beliefs: tuple[tuple[str, float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        named = [{"name": n, "prior": p, "posterior": q} for n, p, q in self.beliefs]
        return asdict(self) | {"beliefs": named, "holds": LIMITS}


def histogram_view(
    experiment: Experiment,
    beliefs: Sequence[Belief],
    reports: int,
    own: int,
    delta: float,
    risk: tuple[ByEpsilon, float] | None = None,
) -> HistogramView:
    """Return beliefs about a board after seeing a histogram.

    Args:
        experiment: The experiment.
        beliefs: The beliefs before.
        reports: The number of reports in the histogram.
        own: The number of reports of the board.
        delta: The probability of a larger loss, in [0, 1).
        risk: A mechanism at any ε, and the loss in nats that a risk allows, to find a per-report ε that keeps
            that risk.

    Raises:
        AccountingError: If a number is out of range.
        DisclosureError: If `own` exceeds `reports`.
    """
    whole_number("the number of reports in the histogram", reports)
    if own > reports:
        raise DisclosureError(f"a histogram of {reports:,} reports cannot contain {own:,} from one board")

    def at(fails: float) -> float:
        return histogram_epsilon(experiment, reports, fails, own)

    loss = likely_loss(at, delta)
    after = tuple((b.name, b.prior, posterior_bound(b.prior, loss)) for b in beliefs)
    local = None if risk is None else _local_for_loss(*risk, reports, delta, own)
    return HistogramView(reports, own, delta, at(delta), loss, local, after)


def _local_for_loss(at: ByEpsilon, loss: float, reports: int, delta: float, own: int) -> float | None:
    """Return a per-report ε in nats, not the largest, that keeps the loss except with delta."""
    margin = loss / 5 if delta else 0.0
    micro = largest_local(at, reports, loss - margin, -delta * math.expm1(-margin), own)
    return None if micro is None else micro / MICRO


def likely_loss(at: Callable[[float], float], delta: float) -> float:
    """Return the loss in nats exceeded with probability at most delta, given (at(δ), δ)-DP for all δ."""
    certain = at(0.0)
    if not delta:
        return certain
    epsilon = at(delta)
    margins = [share * epsilon for share in _MARGINS]
    return min(certain, *(at(-delta * math.expm1(-x)) + x for x in margins))
