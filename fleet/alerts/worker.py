"""The process that sends alerts for an aggregator: `python -m hushmote.fleet.alerts.worker`.

The first line of input names the store and the receivers. Each line of output is an update;
results/worker_process says how they are read. It runs beside the aggregator because findings take seconds of
CPU time and services answer slowly. Unlike the aggregator, it goes on while the clock is wrong, to say so.
"""

import datetime
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...server.answers.query import Facts
from ...server.answers.result_cache import ResultCache
from ...server.budgets import remaining
from ...server.errors import HushmoteError
from ...server.ingest.clock import CheckedClock, now
from ...server.store.counting import ClockWrong
from ...server.store.database import affects_whole_store
from ...server.store.store import Store
from ..results.publication import Gauge
from ..results.snapshot import state_of
from ..results.worker_process import serve_updates
from . import events, home_assistant, weekly
from .alert import BEGIN, KINDS, Alert
from .outbox import AlertOutbox, Delivery, RecordedAlert
from .receivers import Receiver, send

_BUDGETS_S = 3600.0
_NEWS = datetime.timedelta(days=7)  # for how long a gauge shows an event that does not last
_SETTLE_S = 600.0  # until an aggregator that was stopped has counted what waited at the broker
_MAX_SENDS = 20  # messages in one turn, so that the others do not wait for a slow service


@dataclass
class AlertWatch:
    """Records what happens in a store, and sends it; times are monotonic seconds.

    Attributes:
        receivers: The receivers.
        client: The name of the aggregator, for messages about its clock.
        certificates: The certificate files, by the setting that names each.
        home_assistant: Home Assistant's discovery prefix, or None.
        topic_prefix: The topic prefix in the broker's address, for the topics that Home Assistant reads.
        weekly: The weekday of the weekly summary, one of WEEKDAYS, or None.
        send: Sends a message and returns "" or why it did not arrive.
    """

    store: Store
    receivers: tuple[Receiver, ...]
    client: str = ""
    certificates: Mapping[str, Path] = field(default_factory=dict[str, Path])
    home_assistant: str | None = None
    topic_prefix: str = ""
    weekly: str | None = None
    send: Callable[[Receiver, str, str, str], str] = send
    _cache: ResultCache = field(default_factory=ResultCache)
    _state: object = None
    _budgets_due_at: float = float("-inf")
    _active: list[RecordedAlert] = field(default_factory=list[RecordedAlert])
    _events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    _notes: list[str] = field(default_factory=list[str])
    _waiting: int = -1
    _clock_fault: str | None = None  # None: not known yet
    _settled_at: float | None = None

    def __post_init__(self) -> None:
        self.clock: Callable[[], datetime.datetime] = CheckedClock(self.store.last_time)
        ids = [receiver.id for receiver in self.receivers]
        ids += [] if self.home_assistant is None else [home_assistant.RECEIVER]
        self.outbox = AlertOutbox(self.store, ids)

    def turn(self, clock_s: float) -> dict[str, Any] | None:
        """Record what is new, send what is due, and return an update if there is anything new."""
        is_new = self._look(clock_s)
        self._deliver()
        waiting = self.outbox.waiting()
        if not is_new and waiting == self._waiting and not self._events:
            return None
        self._waiting = waiting
        gauges = [*_gauges(self._active), Gauge("hushmote_alerts_waiting", {}, waiting)]
        events, self._events = self._events, []
        update = {"gauges": gauges, "notes": self._notes, "at": now().timestamp(), "events": events}
        return update | {"retained": self._retained()}

    def _retained(self) -> dict[str, str]:
        """Return what is retained for Home Assistant, by topic."""
        retained = dict[str, bytes]()
        for fleet in self.store.fleets() if self.home_assistant is not None else ():
            retained |= home_assistant.discovery(self.home_assistant or "", fleet, self.topic_prefix)
            active = [event for event in self._active if event.fleet in ("", fleet)]
            topic, payload = home_assistant.active_alerts(fleet, active)
            retained[topic] = payload
        return {topic: payload.decode() for topic, payload in retained.items()}

    def _look(self, clock_s: float) -> bool:
        """Record what is new, and return whether it looked at all."""
        try:
            at = self.clock()
        except ClockWrong as e:
            self._settled_at = None
            return self._note_clock(e.reason)
        if self._settled_at is None:
            self._settled_at = clock_s + _SETTLE_S
        is_new = self._note_clock("")
        state = state_of(self.store.readable_experiments()[0], at)
        if state == self._state:
            return is_new
        self._record(at, clock_s)
        self._state = state
        self._active = active(self.outbox.alerts(), at)
        return True

    def _note_clock(self, fault: str) -> bool:
        """Record that the clock is wrong, or right again; return whether that is new."""
        if fault == self._clock_fault:
            return False
        today = now().date()  # of a wrong clock, it may be any day
        alert = events.clock_alert(fault, self.client, today)
        self.outbox.record([alert if fault else events.clock_ended(alert, self.client, today)])
        self._clock_fault = fault
        self._active = active(self.outbox.alerts(), now())
        return True

    def _record(self, at: datetime.datetime, clock_s: float) -> None:
        facts = Facts(self.store, at, self._cache)
        self._notes, before, urgent = [], list[Alert](), list[Alert]()
        is_first, most = not self.outbox.alerts([events.START_SUBJECT]), 1
        is_settled = self._settled_at is not None and clock_s >= self._settled_at
        for fleet in self.store.fleets():
            with self._noting(fleet):
                comparisons = self.outbox.raise_comparisons(fleet, events.count_comparisons(facts, fleet))
                most = max(most, comparisons)
                before += events.changes(facts, fleet, comparisons)
                before += events.releases(facts, fleet)
                before += self._summaries(facts, fleet)
                if is_first or is_settled:
                    before += self._silences(facts, fleet)
        if clock_s >= self._budgets_due_at:
            for fleet in self.store.fleets():
                with self._noting(fleet):
                    before += self._budgets(facts, fleet)
            self._budgets_due_at = clock_s + _BUDGETS_S
        for option, path in self.certificates.items():
            with self._noting(option):
                urgent += filter(None, [events.certificate_alert(option, path, at)])
        old = sum(alert.kind in KINDS for alert in before)
        start = events.started(tuple(self.store.fleets()), most, old, at.date())
        self.outbox.record(before, deliver=not is_first)
        self.outbox.record([*urgent, *([start] if is_first else [])])

    def _silences(self, facts: Facts, fleet: str) -> Iterator[Alert]:
        """Yield the experiments that are silent, and those that report again."""
        seen = list(events.reporting(facts, fleet))
        opened = {event.subject for event in self.outbox.open_events("silence")}
        silent = {each.alert.experiment for each in seen if each.arrivals.is_silent}
        used_up = set[str]()
        if silent:  # boards without a budget are meant to be silent
            used_up = {
                line.budget.experiment.name for line in _budget_lines(facts, fleet) if _is_used_up(line)
            }
        for each in seen:
            if each.alert.experiment in silent - used_up:
                yield each.alert
            elif each.alert.subject in opened and each.arrivals.is_current:
                yield events.silence_ended(each.alert, facts.at)
        asked = {version.experiment.name for version in events.current_versions(facts, fleet)}
        self.outbox.record(
            (
                _closed(event, facts.at.date())
                for event in self.outbox.open_events("silence")
                if event.fleet == fleet and event.experiment not in asked
            ),
            deliver=False,  # withdrawn, so that nobody expects reports any more
        )

    def _summaries(self, facts: Facts, fleet: str) -> Iterator[Alert]:
        """Yield a fleet's weekly summary if it is due and not recorded yet."""
        alert = None if self.weekly is None else weekly.weekly_alert(facts, fleet, self.weekly)
        if alert is not None and not self.outbox.alerts([alert.subject]):
            yield replace(alert, text=weekly.summary_text(facts, fleet))

    def _budgets(self, facts: Facts, fleet: str) -> Iterator[Alert]:
        return events.budget_alerts(fleet, _budget_lines(facts, fleet), facts.at.date())

    def _noting(self, subject: str) -> "_Noting":
        return _Noting(subject, self._notes)

    def _deliver(self) -> None:
        by_id = {receiver.id: receiver for receiver in self.receivers}
        for _ in range(_MAX_SENDS):
            delivery = self.outbox.claim()
            if delivery is None:
                return
            if delivery.receiver == home_assistant.RECEIVER:
                self._publish(delivery)
            else:
                self._send(delivery, by_id[delivery.receiver])

    def _publish(self, delivery: Delivery) -> None:
        """Hand an event to the aggregator, which publishes it for Home Assistant."""
        if delivery.kind in KINDS:
            for fleet in [delivery.fleet] if delivery.fleet else self.store.fleets():
                topic, payload = home_assistant.event_message(fleet, delivery)
                self._events.append((topic, payload.decode()))
        self.outbox.note_sent(delivery)

    def _send(self, delivery: Delivery, receiver: Receiver) -> None:
        html = ""
        if delivery.kind == "weekly":
            html = weekly.summary_html(Facts(self.store, self.clock(), self._cache), delivery.fleet)
        reason = self.send(receiver, delivery.title, delivery.text, html)
        if not reason:
            self.outbox.note_sent(delivery)
            return
        again = "trying again" if self.outbox.note_failure(delivery) else "given up"
        note = (
            f"an alert did not arrive at the receiver in line {receiver.line} ({receiver.service}): {reason}"
        )
        self._notes = [*self._notes, f"{note}; {again}"]


@dataclass
class _Noting:
    """Turns errors about one fleet or file into a note, so that the others go on; a context manager."""

    subject: str
    notes: list[str]

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or affects_whole_store(error):
            return False
        # Log only the type of other errors: a text may contain anything.
        why = str(error) if isinstance(error, HushmoteError) else f"a bug in Hushmote, {type(error).__name__}"
        self.notes.append(f"no alerts about {self.subject}: {why}")
        return True


def _budget_lines(facts: Facts, fleet: str) -> list[remaining.Remaining]:
    lines = remaining.read(facts.store, fleet, facts.at.date()).lines(facts.at.date())
    return [line for line in lines if line.budget.state == "current"]


def _is_used_up(line: remaining.Remaining) -> bool:
    return line.boards > 0 and line.silent == line.boards


def _closed(event: RecordedAlert, at: datetime.date) -> Alert:
    """Return the end of an event that nobody needs to hear about."""
    alert = Alert("silence", (event.experiment,), event.title, "", at, at, event.fleet, event.experiment)
    return alert.ended(event.title, "", at)


def active(alerts: Mapping[str, list[RecordedAlert]], at: datetime.datetime) -> list[RecordedAlert]:
    """Return the events that last, or that were noticed within a week before a time, UTC."""
    newest = (events[-1] for events in alerts.values())
    return [event for event in newest if event.kind in KINDS and _is_active(event, at)]


def _gauges(active: Iterable[RecordedAlert]) -> list[Gauge]:
    """Return 1 for each kind, fleet and experiment with an active event, and 0 for the other kinds."""
    values = {(event.kind, event.fleet, event.experiment): 1 for event in active}
    kinds = {kind for kind, _, _ in values}
    values |= {(kind, "", ""): 0 for kind in KINDS if kind not in kinds}
    labels = "kind", "fleet", "experiment"
    return [
        Gauge("hushmote_alert_active", dict(zip(labels, names, strict=True)), value)
        for names, value in sorted(values.items())
    ]


def _is_active(event: RecordedAlert, at: datetime.datetime) -> bool:
    if event.kind in ("silence", "clock"):
        return event.direction == BEGIN
    # An old change was noticed only now if alerts have just been turned on.
    return at - event.at < _NEWS and (event.kind != "change" or event.last >= (at - _NEWS).date())


def main() -> None:
    """Send alerts until the input ends."""
    logging.getLogger().addHandler(logging.NullHandler())  # libraries would write addresses to standard error
    serve_updates(_start)


def _start(request: dict[str, Any]) -> tuple[Callable[[], dict[str, Any] | None], Callable[[], None]]:
    store = Store(request["store"], create=False)
    receivers = tuple(Receiver(*each) for each in request["receivers"])
    certificates = {option: Path(path) for option, path in request["certificates"].items()}
    prefix, topics = request["home_assistant"], request["topic_prefix"] or ""
    watch = AlertWatch(store, receivers, request["client"], certificates, prefix, topics, request["weekly"])
    return lambda: watch.turn(time.monotonic()), store.close


if __name__ == "__main__":
    main()
