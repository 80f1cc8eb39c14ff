"""The aggregator: subscribes to reports, commits them in batches, and only then acknowledges them.

Everything happens in the thread that calls run(): messages from the broker are collected, committed in one
transaction, then acknowledged in order. A process that dies at any instant has either committed a report (its
redelivery is a duplicate) or not acknowledged it (the broker keeps it).
"""

import datetime
import functools
import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from .extras import require
from .ingest.announce import Announcer
from .ingest.broker_url import BrokerAddress, NatsAddress
from .ingest.clock import CheckedClock, now
from .ingest.commit import GIVE_UP_S, Committer, Counters, Heartbeat, QueuedErasures, Retention
from .ingest.connection import BrokerConnection
from .ingest.connector import SHORT_S
from .ingest.link import Protocol
from .ingest.log_keeper import LogKeeper
from .ingest.mqtt_source import MqttSource
from .ingest.outbox import Outbox
from .ingest.pacing import BATCH_S, Backoff, Pace
from .ingest.pipeline import KnownFleets
from .ingest.rate_limit import RateLimit
from .ingest.session import BrokerRefused, Session
from .ingest.source import ReportConnection, Source
from .ingest.status import Condition, Status
from .store.store import Store
from .wire.keys import FleetKeys
from .wire.limits import BATCH_REPORTS

__all__ = ["CLIENT_ID", "Aggregator", "BrokerRefused", "Counters", "Counting"]

CLIENT_ID = "hushmote-aggregator"

_HERE = BrokerAddress("127.0.0.1")
_TURN_S = 0.2  # maximum delay before run() notices stop()
_MAX_IN_FLIGHT = 65_535
_MAX_UNCOMMITTED = 20  # batches to hold in memory while the store fails before reading stops


@dataclass(frozen=True, kw_only=True)
class Counting:
    """The fleets to count, the client id to use, and when to commit.

    Attributes:
        fleets: The fleets to subscribe to; None for all. Each fleet must be in the store.
        fleet_keys: The keys of keyed fleets, if there are any.
        client_id: The name of the session that the broker keeps while the aggregator is disconnected; only
            one aggregator at a time may use it. On NATS servers, it names the consumer, and any number of
            aggregators on the same store share its reports.
        share: The name of a group of aggregators on the same store, among which an MQTT 5 broker distributes
            the reports; each has its own client_id.
        retire: Whether to count the reports that the broker has queued for the session, end the session, and
            return from run(); requires MQTT 5.
        rate: The maximum number of reports per device counted within an hour; None for no limit. Each
            aggregator in a group counts separately.
        protocol: "auto" tries MQTT 5 and falls back to 3.1.1; NATS servers ignore it.
        batch_reports: The number of reports after which a batch is committed, 1 to 30,000.
        batch_s: The number of seconds after which a batch is committed, above 0.
        clock: The clock, UTC, that determines each report's window.
        give_up_s: The number of seconds of failing batches after which run() raises CountingGivenUp.

    Raises:
        ValueError: If a value is out of range, or MQTT 3.1.1 is combined with share or retire.
    """

    fleets: Sequence[str] | None = None
    fleet_keys: FleetKeys | None = None
    client_id: str = CLIENT_ID
    share: str | None = None
    retire: bool = False
    rate: int | None = None
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    batch_reports: int = BATCH_REPORTS
    batch_s: float = BATCH_S
    clock: Callable[[], datetime.datetime] = now
    give_up_s: float = GIVE_UP_S

    def __post_init__(self) -> None:
        if self.protocol not in ("auto", "5", "3.1.1"):
            raise ValueError(f'protocol must be "auto", "5" or "3.1.1", not {self.protocol!r}')
        if not (1 <= self.batch_reports <= 30_000 and self.batch_s > 0):
            raise ValueError("batch_reports must be 1 to 30000 and batch_s above 0")
        if self.protocol == "3.1.1" and (self.share is not None or self.retire):
            raise ValueError("share and retire require MQTT 5")


class Aggregator:
    """Counts a broker's reports into a store until it is stopped.

    run() blocks; stop(), ready, counters and condition may be used from other threads, and stop() also in
    signal handlers.

    Args:
        store: The store.
        broker: The broker's address.
        counting: The fleets to count, and how to count them.
        tls: How to verify the broker; None for plain TCP.
        on_ready: Called whenever the subscription is active and the experiments are published.
        on_commit: Called after each commit, with its messages and seconds.
        retained_messages: Returns additional payloads to retain at the broker, by topic, where an empty
            payload clears a topic; it must return the same object as long as nothing has changed.
        take_events: Returns messages to publish once without retaining them, each topic with its payload.
        clear_options: The options with which `hushmote experiment clear` reaches the broker, for log lines.
        again_s: The number of seconds after which everything is published again, because a NATS server that
            is starting may miss it.
        keeper: The log in which experiments must be before they are announced; None if there is none.
    """

    def __init__(  # noqa: PLR0913 - most are optional
        self,
        store: Store,
        broker: BrokerAddress | NatsAddress = _HERE,
        counting: Counting = Counting(),
        *,
        tls: ssl.SSLContext | None = None,
        on_ready: Callable[[], object] | None = None,
        on_commit: Callable[[int, float], object] | None = None,
        retained_messages: Callable[[], Mapping[str, bytes]] | None = None,
        take_events: Callable[[], Sequence[tuple[str, bytes]]] = tuple,
        clear_options: str = "",
        again_s: float = 600.0,
        keeper: LogKeeper | None = None,
    ) -> None:
        nats = isinstance(broker, NatsAddress)
        if nats and counting.share is not None:
            raise ValueError("on NATS all aggregators with one client_id divide the reports: omit share")
        self._batch_reports = counting.batch_reports
        self._on_ready = on_ready
        self._again_s = again_s
        self._retire = counting.retire
        self._status = Status()
        self._fleets = KnownFleets(store, self._status, counting.fleet_keys, counting.fleets)
        address = broker.mqtt if nats else broker
        session = Session(
            address,
            counting.client_id,
            tls,
            counting.fleets,
            counting.share,
            counting.retire,
            has_log=keeper is not None,
        )
        pace = functools.partial(Pace, counting.batch_reports, counting.batch_s)
        self._source: Source[Any]
        if not nats:
            # Twice the batch size, so that the broker keeps sending while a batch is committed.
            max_in_flight = min(2 * counting.batch_reports, _MAX_IN_FLIGHT)

            def open_connection(version: Protocol) -> BrokerConnection:
                return BrokerConnection(version, counting.client_id, address, max_in_flight, pace(), tls)

            self._source = MqttSource(
                session, self._status, counting.protocol, open_connection, store.counting_time
            )
        else:
            require("nats", "a broker on NATS")
            # Imported by name because the core works without this package.
            module = import_module(".ingest.nats.source", __package__)
            nats_pace = functools.partial(pace, on_request=True)
            self._source = module.NatsSource(broker, session, self._status, nats_pace)
        limit = None if counting.rate is None else RateLimit(counting.rate)
        # Everything that depends on the time uses this clock, so nothing acts on a wrong time.
        self._clock = CheckedClock(store.last_time, self._status.say, counting.clock)
        self._heartbeat = Heartbeat(store, self._status, self._clock)
        self._committer = Committer(
            store,
            self._fleets,
            self._status,
            limit,
            on_commit,
            self._clock,
            self._heartbeat,
            counting.give_up_s,
        )
        self._announcer = Announcer(self._fleets, self._status, self._clock, clear_options, keeper)
        self._retention = Retention(store, self._status, self._clock.steady_time)
        self._erasures = QueuedErasures(store, self._status, counting.fleet_keys, counting.fleets)
        self._outbox = None if retained_messages is None else Outbox(retained_messages, take_events)
        self._connection: ReportConnection | None = None
        self._loop_turned_at = time.monotonic()
        self._oldest_uncommitted_at: float | None = None
        self._stopping = False
        self.ready = threading.Event()

    @property
    def counters(self) -> Counters:
        """The work done since the start, as of the last commit."""
        return self._committer.counters

    @property
    def condition(self) -> Condition:
        """The aggregator's current condition."""
        connection, oldest_at = self._connection, self._oldest_uncommitted_at
        now, committed_at = time.monotonic(), self._committer.committed_at
        return Condition(
            connected=connection is not None and connection.accepted,
            subscribed=connection is not None and connection.subscribed,
            uncommitted=0 if connection is None else len(connection.messages),
            oldest_s=0.0 if oldest_at is None else now - oldest_at,
            since_commit_s=None if committed_at is None else now - committed_at,
            since_turn_s=now - self._loop_turned_at,
            failing=self._committer.failing or self._announcer.failing,
            published=self._announcer.experiments,
            clock=self._clock.fault,
            state=self._status.text,
            unsigned=self._announcer.unsigned,
            unknown=self._announcer.unknown,
            warnings=(*self._source.warnings, *self._announcer.warnings),
        )

    def stop(self) -> None:
        """Make run() commit the messages that have arrived and return; safe to call in a signal handler."""
        self._stopping = True  # a plain flag, because the interrupted thread could hold an Event's lock

    def run(self) -> None:
        """Connect, count and commit until stop(); no reports are lost while broker or store are down.

        Raises:
            BrokerRefused: If the broker refuses the login or the subscription.
            MasterKeyError: If a keyed fleet has no key.
            StoreError: If the store cannot be read at startup.
            CountingGivenUp: If batches have failed for give_up_s.
        """
        self._fleets.load()
        backoff = Backoff(self._source.max_wait_s)
        while not self._stopping:
            self._loop_turned_at = time.monotonic()
            self._committer.recent.forget_old()
            connection = self._source.connect()
            if connection is not None:
                self._connection = connection
                try:
                    if self._serve(connection):
                        return
                finally:
                    self.ready.clear()
                    connection.close()
                    self._connection = self._oldest_uncommitted_at = None
                if time.monotonic() - connection.started_at > SHORT_S:
                    backoff.reset()
            if not self._stopping:
                self._sleep(backoff.next_s())
        if self._retire:
            self._status.say(
                logging.WARNING, f"{self._source.name} is not retired yet; run the command again"
            )

    def _serve(self, connection: ReportConnection) -> bool:
        """Serve a connection until it is lost or stop() is called; return True if the session was retired."""
        alive, again_at = True, math.inf
        while alive and not self._stopping:
            alive = self._turn(connection)
            self._loop_turned_at = now = time.monotonic()
            self._committer.recent.forget_old()
            is_new = self._source.greet(connection, now)
            if is_new or now >= again_at:
                again_at = now + self._again_s
                for publisher in filter(None, (self._announcer, self._outbox)):
                    (publisher.begin if is_new else publisher.again)()
            if self._source.has_waited_enough(connection, now):
                break
            if connection.messages:
                self._oldest_uncommitted_at = self._oldest_uncommitted_at or now
                self._source.note_messages(now)
            if connection.pace.is_due(len(connection.messages), now) and now >= self._committer.not_before:
                self._commit(connection)
            if connection.subscribed:
                self._announce(connection, now)
                self._retention.turn()
                self._erasures.turn()
                if not self._committer.failing:
                    self._heartbeat.turn()
            if self._source.is_over(connection, now):
                return True
        # Messages from a lost connection are committed as well, in case the broker has lost them.
        self._commit(connection)
        if not self._stopping:
            self._source.explain_loss(connection)
        return False

    def _turn(self, connection: ReportConnection) -> bool:
        """Read messages from the broker until a batch is due."""
        held_count = len(connection.messages)
        if held_count >= _MAX_UNCOMMITTED * self._batch_reports:
            self._sleep(_TURN_S)
            return True
        wait_s = _TURN_S
        if held_count:
            now = time.monotonic()
            wait_s = max(connection.pace.seconds_until_due(held_count, now), self._committer.not_before - now)
        # Read a full batch first, and more only while the store fails.
        return connection.turn(min(max(wait_s, 0.0), _TURN_S), max(self._batch_reports, held_count + 1))

    def _commit(self, connection: ReportConnection) -> None:
        """Commit the messages that have arrived, then acknowledge them; if the store fails, retry later."""
        if connection.messages and self._committer.commit(connection.messages):
            connection.acknowledge()
            self._oldest_uncommitted_at = None

    def _announce(self, connection: ReportConnection, now: float) -> None:
        if self._announcer.turn(connection.publish, now, connection.experiments) and not self.ready.is_set():
            self.ready.set()
            if self._on_ready is not None:
                self._on_ready()
        self._announcer.note_refusals(connection.refusals)
        if self._outbox is not None and self.ready.is_set():
            self._outbox.turn(connection)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (remaining_s := end - time.monotonic()) > 0:
            self._loop_turned_at = time.monotonic()
            time.sleep(min(remaining_s, _TURN_S))
