"""An experiment's numbers for gauges: its result, what looks forged, what its boards can still give."""

from __future__ import annotations

import datetime

from ..estimate import plausibility
from ..planning.remaining import Remaining
from ..store.store import Store, Version
from .publication import Gauge
from .result import Result


def of_result(result: Result) -> list[Gauge]:
    """The gauges of one result."""
    labels = {"fleet": result.fleet, "experiment": result.experiment}
    gauges = [
        Gauge("hushmote_estimate_reports", labels, result.reports),
        Gauge("hushmote_estimate_timestamp_seconds", labels, result.at.timestamp()),
        Gauge("hushmote_report_epsilon", labels, result.epsilon.report),
        Gauge("hushmote_experiment_info", labels | {"type": result.type, "unit": result.unit}, 1),
    ]
    if result.epsilon.histogram is not None:
        gauges.append(Gauge("hushmote_histogram_epsilon", labels, result.epsilon.histogram))
    for one in result.statistics:
        which = labels | {"statistic": one.name, "quantity": one.quantity}
        gauges += [
            Gauge("hushmote_estimate", which, one.value),
            Gauge("hushmote_estimate_low", which, one.low),
            Gauge("hushmote_estimate_high", which, one.high),
        ]
    return gauges


def of_version(store: Store, version: Version) -> list[Gauge]:
    """Whether a version's reports of all windows, the running one too, look forged; and when it expires."""
    labels = {"fleet": version.fleet, "experiment": version.experiment.name}
    counts = store.histogram(version.fleet, version.experiment.digest)
    implausible = plausibility.check(version.experiment, counts).implausible
    gauges = [Gauge("hushmote_histogram_implausible", labels, float(implausible))]
    if version.expires is not None and version.expires < datetime.date.max:
        end = version.expires + datetime.timedelta(1)
        midnight = datetime.datetime.combine(end, datetime.time(), datetime.UTC)
        gauges.append(Gauge("hushmote_experiment_expires_timestamp_seconds", labels, midnight.timestamp()))
    return gauges


def of_budget(fleet: str, line: Remaining) -> list[Gauge]:
    """What the boards of a fleet can still give to an experiment; nothing before one is known of."""
    if not line.boards:
        return []
    labels = {"fleet": fleet, "experiment": line.budget.experiment.name}
    gauges = [
        Gauge("hushmote_budget_boards", labels, line.boards),
        Gauge("hushmote_budget_boards_silent", labels, line.silent),
    ]
    if line.left is not None:
        gauges.append(Gauge("hushmote_budget_reports_left", labels, line.left))
    return gauges
