"""The results in a store at one time: the messages for the broker to retain, and the gauges."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...server.answers.query import Facts
from ...server.answers.windows import SETTLED
from ...server.budgets import remaining
from ...server.errors import HushmoteError
from ...server.estimate import plausibility
from ...server.store.database import affects_whole_store
from ...server.store.store import Store, Version
from ...server.store.versions import UnreadableExperiment
from ...server.wire.topics import is_fleet, result_topic
from . import home_assistant
from .publication import Gauge, Publication
from .result import ENDLESS, Result, possible_statistics, result_of


@dataclass(frozen=True)
class Snapshot:
    """Results by (fleet, experiment), all readable versions, gauges, and notes for the log."""

    results: Mapping[tuple[str, str], Result] = field(default_factory=dict)
    versions: Sequence[Version] = ()
    unreadable: Sequence[UnreadableExperiment] = ()
    gauges: Sequence[Gauge] = ()
    notes: Sequence[str] = ()


def state_of(versions: Sequence[Version], at: datetime.datetime) -> object:
    """Return a value that changes whenever results may change: the experiments and the hour."""
    settled = (at - SETTLED).strftime("%Y-%m-%dT%H")
    return settled, [(v.id, v.current, v.serial, v.unit, v.expires, v.day, v.week) for v in versions]


def take_snapshot(store: Store, publication: Publication, at: datetime.datetime) -> Snapshot:
    """Compute the result of every current experiment at a time, UTC; note and skip those that fail."""
    (versions, unreadable), facts = store.readable_experiments(), Facts(store)
    results: dict[tuple[str, str], Result] = {}
    gauges: list[Gauge] = []
    notes = [f"{e.fleet}/{e.name} is not published: {e.words}" for e in unreadable]
    for version in versions:
        fleet, name = version.fleet, version.experiment.name
        if not version.current:
            continue
        try:
            live = publication.live_s is not None
            result = result_of(store, fleet, name, at, live=live, newest=publication.newest, facts=facts)
            results[fleet, name] = result
            gauges += [*_result_gauges(result), *_version_gauges(store, version)]
            if result.note == ENDLESS:
                notes.append(f"{fleet}/{name}: {ENDLESS}; publish it with --publish SECONDS")
        except Exception as e:
            if affects_whole_store(e):
                raise
            # One bad experiment must not stop the others. Log only the type: a text may contain anything.
            why = str(e) if isinstance(e, HushmoteError) else f"a bug in Hushmote, {type(e).__name__}"
            notes.append(f"{fleet}/{name} is not published: {why}")
    return Snapshot(results, versions, unreadable, gauges, notes)


def budgets(store: Store, at: datetime.datetime) -> list[Gauge]:
    """Return the gauges of the boards' remaining budgets; this reads every board's row.

    Experiments that cannot be read are left out.
    """
    gauges: list[Gauge] = []
    for fleet in store.fleets():
        for line in remaining.read(store, fleet, at.date()).lines(at.date()):
            if line.budget.state == "current":
                gauges += _budget_gauges(fleet, line)
    return gauges


def retained_messages(
    snapshot: Snapshot, publication: Publication, at: datetime.datetime
) -> dict[str, bytes]:
    """Return the payload to retain for each topic; an empty one clears it, for example after a withdrawal.

    Args:
        snapshot: The results.
        publication: What to publish.
        at: The time stated in every result.
    """
    names = {(e.fleet, e.name) for e in snapshot.unreadable if is_fleet(e.name)}
    messages = {result_topic(*name): b"" for name in names}
    versions_by_name: dict[tuple[str, str], list[Version]] = {}
    for version in snapshot.versions:
        versions_by_name.setdefault((version.fleet, version.experiment.name), []).append(version)
    for (fleet, name), versions in versions_by_name.items():
        result = snapshot.results.get((fleet, name))
        if (prefix := publication.home_assistant) is not None:
            for statistic in possible_statistics(versions):
                messages[home_assistant.config_topic(prefix, fleet, name, statistic)] = b""
            for statistic in result.statistics if result else ():
                topic = home_assistant.config_topic(prefix, fleet, name, statistic)
                assert result
                messages[topic] = home_assistant.sensor(
                    result, statistic, publication.expire_s, publication.topic_prefix
                )
        messages[result_topic(fleet, name)] = b"" if result is None else replace(result, at=at).to_json()
    return messages


def _result_gauges(result: Result) -> list[Gauge]:
    labels = {"fleet": result.fleet, "experiment": result.experiment}
    values = {
        "hushmote_estimate_reports": result.reports,
        "hushmote_estimate_timestamp_seconds": result.at.timestamp(),
        "hushmote_report_epsilon": result.epsilon.report,
        "hushmote_histogram_epsilon": result.epsilon.histogram,
    }
    gauges = [Gauge(name, labels, value) for name, value in values.items() if value is not None]
    gauges.append(Gauge("hushmote_experiment_info", labels | {"type": result.type, "unit": result.unit}, 1))
    for statistic in result.statistics.values():
        statistic_labels = labels | {"statistic": statistic.name, "quantity": result.quantity}
        ends = (("", statistic.value), ("_low", statistic.low), ("_high", statistic.high))
        gauges += [Gauge(f"hushmote_estimate{end}", statistic_labels, value) for end, value in ends]
    return gauges


def _version_gauges(store: Store, version: Version) -> list[Gauge]:
    """Return whether a version's reports, with the running window's, look forged, and when it expires."""
    labels = {"fleet": version.fleet, "experiment": version.experiment.name}
    counts = store.counts(version)
    implausible = plausibility.check(version.experiment, counts).implausible
    gauges = [Gauge("hushmote_histogram_implausible", labels, float(implausible))]
    if version.expires is not None:
        end = version.expires + datetime.timedelta(1)
        midnight = datetime.datetime.combine(end, datetime.time(), datetime.UTC)
        gauges.append(Gauge("hushmote_experiment_expires_timestamp_seconds", labels, midnight.timestamp()))
    return gauges


def _budget_gauges(fleet: str, line: remaining.Remaining) -> list[Gauge]:
    """Return the gauges of the remaining budgets; none before the first board has reported."""
    if not line.boards:
        return []
    labels = {"fleet": fleet, "experiment": line.budget.experiment.name}
    numbers = {"boards": line.boards, "boards_silent": line.silent, "reports_left": line.total_left}
    return [Gauge(f"hushmote_budget_{what}", labels, n) for what, n in numbers.items() if n is not None]
