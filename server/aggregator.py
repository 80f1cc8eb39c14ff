"""The aggregator: subscribes to reports, commits them in batches, and only then acknowledges them.

Everything happens in the thread that calls run(): what the broker sent is collected, committed in one
transaction, then acknowledged in order. A process that dies at any instant has either committed a report (its
redelivery is a duplicate) or not acknowledged it (the broker keeps it).
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paho.mqtt.enums import MQTTErrorCode

from . import ingest, keys, report
from .batch import Pace
from .link import Link, Protocol
from .store import Store, StoreError

log = logging.getLogger(__name__)

CLIENT_ID = "hushmote-aggregator"

_RETRY_FIRST_S = 0.2
_RETRY_MOST_S = 15.0
_CONNACK_S = 10.0
_CONNACK_TRIAL_S = 2.0  # while another protocol is left to try: amqtt does not answer MQTT 5 at all
_SHORT_S = 10.0  # a connection that held less is not tried again at once
_TURN_S = 0.2  # how long run() may take to notice stop()
_RELOAD_S = 2.0  # how soon an experiment that was added meanwhile is published and counted
_MOST_UNCOMMITTED = 20  # batches in memory while the store fails; then nothing more is read

# CONNACK reasons that no waiting mends. MQTT 3.1.1's codes are translated to these by paho.
_REFUSED = {133, 134, 135, 138, 140}
_WRONG_PROTOCOL = 132


class BrokerRefused(Exception):
    """The broker refuses the login or the subscription; the text says which."""


@dataclass(frozen=True)
class Counters:
    """What was done since the start: reports accepted, rejected by reason, batches committed."""

    accepted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0


class Aggregator:
    """Counts a broker's reports into a store until it is stopped.

    fleets: names to subscribe to, None for all; every fleet must be in the store. master: 32 bytes, needed
    for fleets with keys. devices: fleet -> ids that may report; a fleet that is absent allows any. client_id
    names the session that the broker keeps while the aggregator is away: one aggregator at a time may use it.
    protocol: "auto" tries MQTT 5 and falls back to 3.1.1. A batch is committed after batch_reports reports or
    batch_s seconds. on_ready is called whenever the subscription holds, with the experiments published.

    run() blocks; stop(), ready and counters may be used from other threads and from signal handlers.
    """

    def __init__(
        self,
        store: Store,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        username: str | None = None,
        password: str | None = None,
        fleets: Sequence[str] | None = None,
        master: bytes | None = None,
        devices: Mapping[str, frozenset[str]] | None = None,
        client_id: str = CLIENT_ID,
        protocol: Literal["auto", "5", "3.1.1"] = "auto",
        batch_reports: int = 1000,
        batch_s: float = 1.0,
        on_ready: Callable[[], object] | None = None,
    ) -> None:
        if protocol not in ("auto", "5", "3.1.1"):
            raise ValueError(f'protocol must be "auto", "5" or "3.1.1", not {protocol!r}')
        if not (1 <= batch_reports <= 30_000 and batch_s > 0):
            raise ValueError("batch_reports must be 1 to 30000 and batch_s above 0")
        self._store = store
        self._host = host
        self._port = port
        self._login = (username, password)
        self._names = fleets
        self._master = master
        self._devices = devices
        self._client_id = client_id
        self._protocol: Protocol = "3.1.1" if protocol == "3.1.1" else "5"
        self._may_fall_back = protocol == "auto"
        self._batch_reports = batch_reports
        self._batch_s = batch_s
        self._on_ready = on_ready
        self._filters = (
            [report.report_filter(name) for name in fleets] if fleets else [report.report_filter()]
        )
        self._fleets: dict[str, ingest.Fleet] = {}
        self._look_again = 0.0
        self._published: dict[str, bytes] = {}
        self._publish_wanted = False
        self._state = ""
        self._short_links = 0
        self._accepted = 0
        self._rejected: Counter[str] = Counter()
        self._batches = 0
        self._commit_again = 0.0  # not before this time
        self._commit_delay_s = _RETRY_FIRST_S
        self._stopping = False
        self.ready = threading.Event()

    @property
    def counters(self) -> Counters:
        """What has been done since the start."""
        return Counters(self._accepted, dict(self._rejected), self._batches)

    def stop(self) -> None:
        """Make run() commit what has arrived and return; safe in a signal handler."""
        self._stopping = True  # a plain flag: an Event's lock could be held by the interrupted thread

    def publish_experiments(self) -> None:
        """Publish the store's current experiments again, retained; withdrawn ones are cleared."""
        self._publish_wanted = True

    def run(self) -> None:
        """Connect, count and commit until stop(); loses no report while broker or store are away.

        Raises BrokerRefused for a refused login or subscription, MasterKeyError where a fleet needs keys, and
        StoreError where the store cannot be read at the start.
        """
        self._fleets = self._load()
        for name in self._names or ():
            if name not in self._fleets:
                raise StoreError(f"there is no fleet {name} in {self._store.where}: add it first")
        delay_s = _RETRY_FIRST_S
        while not self._stopping:
            link = self._connect()
            if link is not None:
                try:
                    self._serve(link)
                finally:
                    self.ready.clear()
                    link.close()
                if time.monotonic() - link.started > _SHORT_S:
                    delay_s = _RETRY_FIRST_S
            if not self._stopping:
                self._sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S)

    # The connection

    def _connect(self) -> Link | None:
        """A connection whose CONNACK is still to come, or None where nobody listens."""
        # Twice the batch: the broker goes on sending while one is committed.
        most = min(2 * self._batch_reports, 65_535)
        pace = Pace(self._batch_reports, self._batch_s)
        link = Link(self._protocol, self._client_id, self._login, most, pace)
        try:
            link.connect(self._host, self._port)
        except (OSError, ValueError) as e:
            reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
            self._say(logging.WARNING, f"no broker at {self._host}:{self._port} ({reason}): trying again")
            return None
        return link

    def _serve(self, link: Link) -> None:
        """Work on a connection until it is lost or stop() is called."""
        rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        while rc == MQTTErrorCode.MQTT_ERR_SUCCESS and not self._stopping:
            before = link.answer, link.granted
            if len(link.messages) < _MOST_UNCOMMITTED * self._batch_reports:
                rc = link.client.loop(self._wait_s(link))
            else:
                self._sleep(_TURN_S)
            if before != (link.answer, link.granted):
                self._greet(link, before[0] is None)
            now = time.monotonic()
            if link.answer is None and now - link.started > (
                _CONNACK_TRIAL_S if self._may_fall_back else _CONNACK_S
            ):
                break
            if link.pace.due(len(link.messages), now) and now >= self._commit_again:
                self._commit(link)
            if link.granted is not None:
                self._look_for_experiments(link, now)
        # What a lost connection brought is committed all the same: should the broker have lost it, we have
        # not.
        self._commit(link)
        if self._stopping:
            return
        if link.answer is None:
            self._say(
                logging.WARNING, f"the broker at {self._host}:{self._port} did not answer: trying again"
            )
            self._fall_back()
        elif not link.answer.is_failure:
            text = f"lost the broker at {self._host}:{self._port}: connecting again"
            short = time.monotonic() - link.started < _SHORT_S
            self._short_links = self._short_links + 1 if short else 0
            if self._short_links > 2:
                # Brokers drop the older of two clients with one id, mostly without saying so.
                text += f"; is there another client with the id {self._client_id}?"
            self._say(logging.WARNING, text)

    def _wait_s(self, link: Link) -> float:
        if not link.messages:
            return _TURN_S
        now = time.monotonic()
        wait_s = max(link.pace.due_in(len(link.messages), now), self._commit_again - now)
        return min(max(wait_s, 0.0), _TURN_S)

    def _greet(self, link: Link, connecting: bool) -> None:
        """Answer the broker's CONNACK with the subscription, and its SUBACK with the experiments."""
        assert link.answer is not None
        where = f"the broker at {self._host}:{self._port}"
        if link.answer.is_failure:
            # MQTT 3.1.1 brokers answer an MQTT 5 CONNECT with their own code 1, which reads as 1 or 132 here.
            if link.answer.value in (1, _WRONG_PROTOCOL) and self._may_fall_back:
                self._fall_back()
            elif link.answer.value in _REFUSED or link.answer.value == _WRONG_PROTOCOL:
                raise BrokerRefused(f"{where} refuses the connection: {str(link.answer).lower()}")
            else:
                self._say(logging.WARNING, f"{where} answers {str(link.answer).lower()}: trying again")
        elif connecting:
            self._may_fall_back = False
            link.client.subscribe([(f, 1) for f in self._filters])
        elif link.granted is not None:
            if link.granted.is_failure:
                raise BrokerRefused(f"{where} refuses the subscription: {str(link.granted).lower()}")
            self._say(logging.INFO, f"subscribed at {self._host}:{self._port} with MQTT {link.protocol}")
            self._published = {}
            self._publish(link)
            self.ready.set()
            if self._on_ready is not None:
                self._on_ready()

    def _fall_back(self) -> None:
        if self._may_fall_back:
            # In turns: what did not answer may have been a broker that was just starting.
            self._protocol = "3.1.1" if self._protocol == "5" else "5"

    # Reports

    def _commit(self, link: Link) -> None:
        """Commit what has arrived, then acknowledge it; or, where the store fails, keep both for later."""
        if not link.messages:
            return
        now = datetime.datetime.now(datetime.UTC)
        try:
            fleets = self._fresh_fleets(link.messages)
            tally = ingest.ingest(self._store, link.messages, fleets, now)
        except StoreError as e:
            # Nothing was counted or acknowledged: the batch is tried again, and the broker keeps it as well.
            log.error("%s; reports wait at the broker", e)
            self._commit_again = time.monotonic() + self._commit_delay_s
            self._commit_delay_s = min(2 * self._commit_delay_s, _RETRY_MOST_S)
            return
        self._commit_delay_s = _RETRY_FIRST_S
        self._accepted += tally.accepted
        for (_fleet, reason), count in tally.rejected.items():
            self._rejected[reason] += count
        self._batches += 1
        link.acknowledge()

    def _fresh_fleets(self, messages: list[tuple[str, bytes]]) -> Mapping[str, ingest.Fleet]:
        """The fleets, read again where a report names what was not there at the last look."""
        # At most once a batch: a board may have enrolled a moment after an experiment was added elsewhere.
        if ingest.names_unknown(messages, self._fleets):
            self._reload()
        return self._fleets

    # Experiments

    def _load(self) -> dict[str, ingest.Fleet]:
        return ingest.fleets(self._store, self._master, self._names, self._devices)

    def _reload(self) -> None:
        try:
            self._fleets = self._load()
        except keys.MasterKeyError as e:  # a fleet that was added meanwhile; the others go on
            self._say(logging.ERROR, str(e))

    def _look_for_experiments(self, link: Link, now: float) -> None:
        if self._publish_wanted:
            self._published = {}
        elif now < self._look_again:
            return
        self._publish_wanted = False
        self._look_again = now + _RELOAD_S
        try:
            self._reload()
        except StoreError as e:
            self._say(logging.ERROR, str(e))
            return
        self._publish(link)

    def _publish(self, link: Link) -> None:
        """Publish, retained, what this connection has not published yet."""
        wanted: dict[str, bytes] = {}
        today = datetime.datetime.now(datetime.UTC).date()
        for fleet in self._fleets.values():
            for version in fleet.versions.values():
                topic = report.experiment_topic(fleet.name, version.experiment.name)
                if version.published_on(today):
                    wanted[topic] = version.payload
                    if fleet.master is not None:
                        key = keys.announce_key(fleet.master, fleet.name)
                        wanted[topic] = keys.sign_experiment(key, topic, version.payload)
                else:
                    wanted.setdefault(topic, b"")
        for topic, payload in wanted.items():
            if self._published.get(topic) != payload:
                link.client.publish(topic, payload, qos=1, retain=True)
        self._published = wanted

    # State

    def _say(self, level: int, text: str) -> None:
        """Log a line when the state changes, once, however often it is tried."""
        if text != self._state:
            log.log(level, "%s", text)
            self._state = text

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _TURN_S))
