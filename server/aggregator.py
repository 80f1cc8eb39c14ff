"""The aggregator: subscribes to reports, commits them in batches, and only then acknowledges them.

Everything happens in the thread that calls run(): what the broker sent is collected, committed in one
transaction, then acknowledged in order. A process that dies at any instant has either committed a report (its
redelivery is a duplicate) or not acknowledged it (the broker keeps it).
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paho.mqtt.enums import MQTTErrorCode

from .errors import HushmoteError
from .ingest import pipeline as ingest
from .ingest.announce import announcements
from .ingest.connection import Link, Protocol
from .ingest.health import Condition
from .ingest.pacing import BATCH_S, Pace
from .ingest.rate_limit import RateLimit
from .ingest.tls import explain
from .store.store import Store, StoreError
from .wire import keys, report
from .wire.limits import BATCH_REPORTS

log = logging.getLogger(__name__)

CLIENT_ID = "hushmote-aggregator"

_RETRY_FIRST_S = 0.2
_RETRY_MOST_S = 15.0
_RETRY_SHARED_S = 1.0  # mosquitto keeps no share over its restart, and nothing until a member is back
_CONNACK_S = 10.0
_CONNACK_TRIAL_S = 2.0  # while another protocol is left to try: amqtt does not answer MQTT 5 at all
_SHORT_S = 10.0  # a connection that held less is not tried again at once
_TURN_S = 0.2  # how long run() may take to notice stop()
_RELOAD_S = 2.0  # how soon an experiment that was added meanwhile is published and counted
_RETIRED_S = 3.0  # a broker that has more for a session sends it before this
_MOST_UNCOMMITTED = 20  # batches in memory while the store fails; then nothing more is read

# CONNACK reasons that no waiting mends. MQTT 3.1.1's codes are translated to these by paho.
_REFUSED = {133, 134, 135, 138, 140}
_WRONG_PROTOCOL = 132
_NO_SUBSCRIPTION = 17  # of UNSUBACK


class BrokerRefused(HushmoteError):
    """The broker refuses the login or the subscription; the text says which."""


@dataclass(frozen=True)
class Counters:
    """What was done since the start: reports accepted, rejected by reason, batches committed and failed."""

    accepted: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    batches: int = 0
    failures: int = 0


class Aggregator:
    """Counts a broker's reports into a store until it is stopped.

    tls: how the broker is checked, None for plain TCP. fleets: names to subscribe to, None for all; every
    fleet must be in the store. master: 32 bytes, needed for fleets with keys; several during a rotation, the
    one in force first. client_id names the session that the broker keeps while the aggregator is away: one
    aggregator at a time may use it. share: name of a group of aggregators on one store, among whom the broker
    divides the reports; each has a client_id of its own. retire: count what the broker has kept for the
    session, end the session, and return from run(). rate: reports of one device counted within an hour at
    most, None for any number; each aggregator of a group counts for itself.
    protocol: "auto" tries MQTT 5 and falls back to 3.1.1; share and retire need MQTT 5. A batch is committed
    after batch_reports reports or batch_s seconds. on_ready is called whenever the subscription holds, with
    the experiments published; on_commit after each commit, with its messages and seconds.

    run() blocks; stop(), ready, counters and condition may be used from other threads, stop() in signal
    handlers too.
    """

    def __init__(
        self,
        store: Store,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        fleets: Sequence[str] | None = None,
        master: bytes | Sequence[bytes] | None = None,
        client_id: str = CLIENT_ID,
        share: str | None = None,
        retire: bool = False,
        rate: int | None = None,
        protocol: Literal["auto", "5", "3.1.1"] = "auto",
        batch_reports: int = BATCH_REPORTS,
        batch_s: float = BATCH_S,
        on_ready: Callable[[], object] | None = None,
        on_commit: Callable[[int, float], object] | None = None,
    ) -> None:
        if protocol not in ("auto", "5", "3.1.1"):
            raise ValueError(f'protocol must be "auto", "5" or "3.1.1", not {protocol!r}')
        if not (1 <= batch_reports <= 30_000 and batch_s > 0):
            raise ValueError("batch_reports must be 1 to 30000 and batch_s above 0")
        if protocol == "3.1.1" and (share is not None or retire):
            raise ValueError("shared subscriptions and sessions that end need MQTT 5")
        self._store = store
        self._host = host
        self._port = port
        self._where = f"{host}:{port}"
        self._login = (username, password)
        self._tls = tls
        self._names = fleets
        self._master = master
        self._client_id = client_id
        self._protocol: Protocol = "3.1.1" if protocol == "3.1.1" else "5"
        self._may_fall_back = protocol == "auto" and share is None and not retire
        self._batch_reports = batch_reports
        self._batch_s = batch_s
        self._on_ready = on_ready
        self._on_commit = on_commit
        self._share = share
        self._retire = retire
        self._limit = None if rate is None else RateLimit(rate)
        self._filters = [report.report_filter(name, share) for name in fleets or (None,)]
        self._unshared = [report.report_filter(name) for name in fleets or (None,)]
        self._fleets: dict[str, ingest.Fleet] = {}
        self._look_again = 0.0
        self._published: dict[str, bytes] = {}
        self._publish_wanted = False
        self._state = ""
        self._short_links = 0
        self._counters = Counters()
        self._link: Link | None = None
        self._turned = time.monotonic()
        self._arrived: float | None = None  # when the oldest uncommitted message did
        self._committed: float | None = None
        self._commit_failed = self._look_failed = False
        self._retired_at = 0.0
        self._commit_again = 0.0  # not before this time
        self._commit_delay_s = _RETRY_FIRST_S
        self._stopping = False
        self.ready = threading.Event()

    @property
    def counters(self) -> Counters:
        """What has been done since the start, as of one commit."""
        return self._counters

    @property
    def condition(self) -> Condition:
        """What it is doing at the moment."""
        link, now, arrived, committed = self._link, time.monotonic(), self._arrived, self._committed
        return Condition(
            connected=link is not None and link.answer is not None and not link.answer.is_failure,
            subscribed=link is not None and link.granted is not None and not link.granted.is_failure,
            uncommitted=0 if link is None else len(link.messages),
            oldest_s=0.0 if arrived is None else now - arrived,
            since_commit_s=None if committed is None else now - committed,
            since_turn_s=now - self._turned,
            failing=self._commit_failed or self._look_failed,
            published=sum(payload != b"" for payload in self._published.values()),
            state=self._state,
        )

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
            self._turned = time.monotonic()
            link = self._connect()
            if link is not None:
                self._link = link
                retired = False
                try:
                    retired = self._serve(link)
                finally:
                    self.ready.clear()
                    link.close(end_session=retired)
                    self._link = self._arrived = None
                if retired:
                    where = f"the broker at {self._where}"
                    self._say(logging.INFO, f"retired: nothing is left for {self._client_id} at {where}")
                    return
                if time.monotonic() - link.started > _SHORT_S:
                    delay_s = _RETRY_FIRST_S
            if not self._stopping:
                self._sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_MOST_S if self._share is None else _RETRY_SHARED_S)
        if self._retire:
            self._say(logging.WARNING, f"{self._client_id} is not retired yet: do it again")

    # The connection

    def _connect(self) -> Link | None:
        """A connection whose CONNACK is still to come, or None where nobody listens."""
        # Twice the batch: the broker goes on sending while one is committed.
        most = min(2 * self._batch_reports, 65_535)
        pace = Pace(self._batch_reports, self._batch_s)
        link = Link(self._protocol, self._client_id, self._login, most, pace, self._tls)
        try:
            link.connect(self._host, self._port)
        except (OSError, ValueError) as e:
            why = explain(e)
            if why is not None:
                self._say(logging.ERROR, f"no TLS with the broker at {self._where}: {why}")
                return None
            reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
            if self._tls is not None and isinstance(e, ConnectionResetError):
                reason += "; does it speak TLS on this port?"
            self._say(logging.WARNING, f"no broker at {self._where} ({reason}): trying again")
            return None
        return link

    def _serve(self, link: Link) -> bool:
        """Work on a connection until it is lost, stop() is called, or, which is True, it is retired."""
        rc = MQTTErrorCode.MQTT_ERR_SUCCESS
        while rc == MQTTErrorCode.MQTT_ERR_SUCCESS and not self._stopping:
            before = link.answer, link.granted
            if len(link.messages) < _MOST_UNCOMMITTED * self._batch_reports:
                # A full batch first; more only while the store fails.
                rc = link.turn(self._wait_s(link), max(self._batch_reports, len(link.messages) + 1))
            else:
                self._sleep(_TURN_S)
            self._turned = now = time.monotonic()
            if before != (link.answer, link.granted):
                self._greet(link, before[0] is None)
            if link.answer is None and now - link.started > (
                _CONNACK_TRIAL_S if self._may_fall_back else _CONNACK_S
            ):
                break
            if link.messages:
                self._arrived = self._arrived or now
                self._retired_at = now + _RETIRED_S
            if link.pace.due(len(link.messages), now) and now >= self._commit_again:
                self._commit(link)
            if link.granted is not None:
                self._look_for_experiments(link, now)
            if self._retire and self._is_drained(link, now):
                return True
        # What a lost connection brought is committed all the same: should the broker have lost it, we have
        # not.
        self._commit(link)
        if not self._stopping:
            self._explain_loss(link)
        return False

    def _is_drained(self, link: Link, now: float) -> bool:
        """Whether a session that is to end has no subscription and nothing left to count."""
        if link.unsubscribed is not None and link.unsubscribed.value == _NO_SUBSCRIPTION:
            # It may be subscribed under another name; what came by that would go with the session.
            raise BrokerRefused(
                f"{self._client_id} is not subscribed as it would be with these options: correct --share; "
                "or, after a restart of the broker, start it once without --retire"
            )
        return link.unsubscribed is not None and not link.messages and now > self._retired_at

    def _explain_loss(self, link: Link) -> None:
        """Say why a connection ended, and change the protocol where it never was one."""
        where = f"the broker at {self._where}"
        if link.answer is None:
            why = explain(link.trouble)
            if why is not None:
                self._say(logging.ERROR, f"no TLS with {where}: {why}")
                return
            text = f"{where} did not answer"
            if self._share is not None or self._retire:
                text += " MQTT 5, which a share of reports needs"
            elif self._tls is not None:
                if self._state.startswith("no TLS with"):
                    return  # the reason that came with another try is the better one
                text += ": it may want a client certificate, --cert and --cert-key"
            self._say(logging.WARNING, text + ": trying again")
            self._fall_back()
        elif not link.answer.is_failure:
            text = f"lost {where}: connecting again"
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
        where = f"the broker at {self._where}"
        if link.answer.is_failure:
            # MQTT 3.1.1 brokers answer an MQTT 5 CONNECT with their own code 1, which reads as 1 or 132 here.
            old = link.answer.value in (1, _WRONG_PROTOCOL)
            if old and self._may_fall_back:
                self._fall_back()
            elif old and (self._share is not None or self._retire):
                raise BrokerRefused(
                    f"{where} speaks only MQTT 3.1.1, and a share of reports needs MQTT 5: "
                    "take another broker, or one aggregator without a share"
                )
            elif link.answer.value in _REFUSED or old:
                raise BrokerRefused(f"{where} refuses the connection: {str(link.answer).lower()}")
            else:
                self._say(logging.WARNING, f"{where} answers {str(link.answer).lower()}: trying again")
        elif connecting:
            self._may_fall_back = False
            self._open(link, where)
        elif link.granted is not None:
            if link.granted.is_failure:
                raise BrokerRefused(f"{where} refuses the subscription: {str(link.granted).lower()}")
            # Without the group's name: who knows it, and may subscribe, could take reports out of it.
            shared = "" if self._share is None else ", sharing the reports with others"
            self._say(
                logging.INFO,
                f"subscribed at {self._where} with MQTT {link.protocol}{shared}",
            )
            self._published = {}
            self._publish_wanted = True

    def _open(self, link: Link, where: str) -> None:
        """Subscribe; or unsubscribe for good, so that what is published from now on goes to others."""
        if self._retire:
            if not link.session_present:
                raise BrokerRefused(
                    f"{where} keeps nothing for a client with the id {self._client_id}: "
                    "it was retired before, or the id is another"
                )
            self._retired_at = time.monotonic() + _RETIRED_S
            self._say(logging.INFO, f"retiring {self._client_id}: counting what {where} keeps for it")
            link.client.unsubscribe(self._filters)
            return
        if self._share is not None:
            # Left by a time without the share: all reports would come here as well as this one's part.
            link.client.unsubscribe(self._unshared)
        link.client.subscribe([(f, 1) for f in self._filters])

    def _fall_back(self) -> None:
        if self._may_fall_back:
            # In turns: what did not answer may have been a broker that was just starting.
            self._protocol = "3.1.1" if self._protocol == "5" else "5"

    # Reports

    def _commit(self, link: Link) -> None:
        """Commit what has arrived, then acknowledge it; or, where the store fails, keep both for later."""
        if not link.messages:
            return
        # Wall time, which decides the window only; all waiting is by the monotonic clock.
        now = datetime.datetime.now(datetime.UTC)
        start, size, done = time.monotonic(), len(link.messages), self._counters
        try:
            fleets = self._fresh_fleets(link.messages)
            tally = ingest.ingest(self._store, link.messages, fleets, now, self._limit)
        except StoreError as e:
            # Nothing was counted or acknowledged: the batch is tried again, and the broker keeps it as well.
            self._commit_failed = True
            self._counters = dataclasses.replace(done, failures=done.failures + 1)
            self._say(logging.ERROR, f"{e}; reports wait at the broker")
            self._commit_again = time.monotonic() + self._commit_delay_s
            self._commit_delay_s = min(2 * self._commit_delay_s, _RETRY_MOST_S)
            return
        self._committed = time.monotonic()
        if self._commit_failed:
            self._say(logging.INFO, "reports are counted again")
        self._commit_failed = False
        self._commit_delay_s = _RETRY_FIRST_S
        rejected = Counter(done.rejected)
        for (_fleet, reason), count in tally.rejected.items():
            rejected[reason] += count
        self._counters = Counters(
            done.accepted + tally.accepted, dict(rejected), done.batches + 1, done.failures
        )
        if self._on_commit is not None:
            self._on_commit(size, self._committed - start)
        link.acknowledge()
        self._arrived = None

    def _fresh_fleets(self, messages: list[tuple[str, bytes]]) -> Mapping[str, ingest.Fleet]:
        """The fleets, read again where a report names what was not there at the last look."""
        # At most once a batch: a board may have enrolled a moment after an experiment was added elsewhere.
        if ingest.names_unknown(messages, self._fleets):
            self._reload()
        return self._fleets

    # Experiments

    def _load(self) -> dict[str, ingest.Fleet]:
        return ingest.fleets(self._store, self._master, self._names)

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
            self._look_failed = True
            self._say(logging.ERROR, str(e))
            return
        if self._look_failed:
            self._say(logging.INFO, "the store can be read again")
        self._look_failed = False
        self._publish(link)
        if not self.ready.is_set():
            self.ready.set()
            if self._on_ready is not None:
                self._on_ready()

    def _publish(self, link: Link) -> None:
        """Publish, retained, what this connection has not published yet."""
        wanted = announcements(self._fleets.values(), datetime.datetime.now(datetime.UTC).date())
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
            self._turned = time.monotonic()
            time.sleep(min(left, _TURN_S))
