"""The door's broker thread: publishes each report and passes on its PUBACK.

It keeps no session: if no PUBACK arrives, the sender must send the same bytes again.
"""

import asyncio
import contextlib
import enum
import logging
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Literal, Self

from paho.mqtt.reasoncodes import ReasonCode

from ...server.errors import HushmoteError
from ...server.ingest.broker_limits import LOGIN_IN_USE
from ...server.ingest.broker_url import BrokerAddress
from ...server.ingest.connector import SHORT_S, Connector
from ...server.ingest.link import Protocol
from ...server.ingest.pacing import MAX_WAIT_S, Backoff
from ...server.ingest.session import BrokerRefused, Session
from ...server.ingest.status import Status
from .connection import DoorConnection
from .retained import Retained, filters

MAX_IN_FLIGHT = 256
QUIET_S = 2.0  # aedes sends its retained messages within this time after its answers
PUBACK_S = 4.0  # how long a sender waits for a PUBACK
_TURN_S = 0.5
_STOP_S = 5.0
_NOBODY_COUNTS = 16  # MQTT 5: no matching subscribers, not even an offline client


class Outcome(enum.Enum):
    """The outcome of a publication. Unless it is RECEIVED, the report must be sent again."""

    RECEIVED = enum.auto()
    AWAY = enum.auto()  # not connected to the broker, or the connection was lost
    LATE = enum.auto()  # the broker did not answer in time
    FULL = enum.auto()  # too many reports are in flight
    REFUSED = enum.auto()  # the broker does not let the door publish the report
    UNCOUNTED = enum.auto()  # no aggregator has ever subscribed, so the broker dropped the report


@dataclass(eq=False, slots=True)
class _PendingReport:
    """A report in flight, and the caller waiting for it.

    Attributes:
        sent: Monotonic seconds.
    """

    topic: str
    payload: bytes
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]
    sent: float = field(default_factory=time.monotonic)


class ReportPublisher:
    """Publishes reports to a broker, as a context manager; publish() works from any event loop.

    `ready` is set while the broker is connected and has answered the subscription to its retained messages,
    which are in `retained`; `is_complete` says whether all of them are.

    Args:
        address: The broker's address.
        tls: The TLS context, or None for a connection without TLS.
        fleets: Fleets whose experiments and results to read, and that are valid even without an experiment;
            None for all fleets that have one.
        experiments: Their experiments' names. By default all are read with wildcards, for which some brokers
            do not send retained messages.
        proofs: Whether to read the proofs of experiments from a public log as well.
        protocol: "auto" tries MQTT 5 and falls back to 3.1.1.
        puback_s: How long a sender waits, in seconds.
        hung_s: Silence, in seconds, after which to reconnect.
        most_in_flight: The limit of reports in flight.
        quiet_s: Seconds without a message after which no further retained message is expected.

    Raises:
        NameRefused: If the name of a fleet or an experiment is invalid.
    """

    def __init__(  # noqa: PLR0913 - one for each setting
        self,
        address: BrokerAddress,
        tls: ssl.SSLContext | None = None,
        *,
        fleets: Sequence[str] | None = None,
        experiments: Sequence[str] = ("+",),
        proofs: bool = False,
        protocol: Literal["auto", "5", "3.1.1"] = "auto",
        puback_s: float = PUBACK_S,
        hung_s: float = 2 * PUBACK_S,
        most_in_flight: int = MAX_IN_FLIGHT,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._puback_s, self._hung_s, self._most_in_flight = puback_s, hung_s, most_in_flight
        self.retained = Retained(fleets)
        self.ready = Event()
        self.refusal: HushmoteError | None = None  # set while the broker refuses us
        self._quiet_s = quiet_s
        self._open_connection: DoorConnection | None = None
        self._was_complete = False  # when the last connection ended
        self.serves_proofs = proofs
        self._filters = filters(fleets, experiments, proofs=proofs)
        self._session = Session(address, "hushmote-door", tls)
        self._status = Status()
        self._connector = Connector(self._session, self._status, protocol, self._connection, counts=False)
        self._queue: deque[_PendingReport] = deque()
        self._under_way: dict[int, _PendingReport] = {}  # by packet id, in order of sending
        self._settled: list[tuple[_PendingReport, Outcome]] = []
        self._in_flight = 0
        self._stopping = Event()
        self._wake_r, self._wake_w = socket.socketpair()
        for end in (self._wake_r, self._wake_w):
            end.setblocking(False)
        self._thread = Thread(target=self._run, name="door", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Connect in a separate thread, and reconnect whenever the connection is lost."""
        self._thread.start()

    def stop(self) -> None:
        """Disconnect; reports without a PUBACK become AWAY."""
        self._stopping.set()
        self._wake()
        self._thread.join(_STOP_S)

    @property
    def in_flight(self) -> int:
        """Number of reports without an outcome so far."""
        return self._in_flight

    @property
    def unavailable_reason(self) -> str | None:
        """Why reports are currently not accepted, without names and addresses; None if they are accepted."""
        return None if self.ready.is_set() else "not connected to the broker"

    @property
    def is_complete(self) -> bool:
        """Whether `retained` has all of the broker's messages, so that others do not exist there."""
        connection = self._open_connection if self.ready.is_set() else None
        return self._was_complete if connection is None else connection.is_complete(self._quiet_s)

    async def publish(self, topic: str, payload: bytes) -> Outcome:
        """Publish with QoS 1 and wait for the broker's PUBACK, puback_s seconds at most."""
        if not self.ready.is_set():
            return Outcome.AWAY
        if self._in_flight >= self._most_in_flight:
            return Outcome.FULL
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        self._in_flight += 1
        self._queue.append(_PendingReport(topic, payload, loop, future))
        self._wake()
        # Not wait_for(), which would cancel the future: the report stays in flight until its answer arrives.
        done, _ = await asyncio.wait((future,), timeout=self._puback_s)
        return future.result() if done else Outcome.LATE

    @property
    def running(self) -> bool:
        """True until the thread ends: only stop() or a bug in Hushmote ends it."""
        return self._thread.is_alive()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the buffer is full, so the thread will wake anyway
            self._wake_w.send(b"x")

    # The rest runs in the thread.

    def _connection(self, protocol: Protocol) -> DoorConnection:
        session = self._session
        # Remember known fleets: after a crash the broker has no experiments until an aggregator is back, and
        # a device that gets 404 until then might drop its report.
        retained = Retained(self.retained.fleets)
        # A new id for each connection, so that a session that exists is another client's.
        client_id = f"{session.client_id}-{secrets.token_hex(8)}"
        return DoorConnection(protocol, client_id, session.address, session.tls, retained, self._on_puback)

    def _run(self) -> None:
        backoff = Backoff(MAX_WAIT_S)
        while not self._stopping.is_set():
            connection = self._connector.connect()
            if connection is not None:
                try:
                    self._serve(connection)
                except BrokerRefused as e:
                    self.refusal = e
                    self._status.say(logging.ERROR, str(e))
                finally:
                    self._was_complete = self.is_complete
                    self.ready.clear()
                    connection.close()
                    self._settle_all()
                if time.monotonic() - connection.started_at > SHORT_S:
                    backoff.reset()
            self._stopping.wait(backoff.next_s())
        self._settle_all()

    def _serve(self, connection: DoorConnection) -> None:
        """Serve a connection until it is lost or stop() is called."""
        greeted = False
        while not self._stopping.is_set():
            alive = connection.turn(_TURN_S, self._wake_r)
            with contextlib.suppress(BlockingIOError):
                self._wake_r.recv(4096)
            now = time.monotonic()
            if connection.answer is not None and not greeted:
                if not self._connector.accepted(connection):
                    return
                if connection.session_present:
                    raise BrokerRefused(f"{self._session.address} cannot be used: {LOGIN_IN_USE}")
                greeted = True
                connection.watch(self._filters)
            if connection.settled and not self.ready.is_set():
                self._open(connection)
            self._send(connection)
            self._tell()
            oldest = next(iter(self._under_way.values()), None)
            hung = oldest is not None and now - oldest.sent > self._hung_s
            if not alive or hung or self._connector.has_waited_enough(connection, now):
                self._connector.explain_loss(connection)
                return

    def _open(self, connection: DoorConnection) -> None:
        broker = str(self._session.address)
        if connection.granted is None or not connection.granted.is_failure:
            where = broker.partition(" at ")[2]
            self._status.say(logging.INFO, f"publishing at {where} with MQTT {connection.protocol}")
        else:
            why = str(connection.granted).lower()
            kinds = "experiments, proofs and results" if self.serves_proofs else "experiments and results"
            text = f"{broker} does not let this user read {kinds} ({why}): allow it"
            self._status.say(logging.WARNING, text)
        self.refusal = None
        self.retained, self._open_connection = connection.retained, connection
        self.ready.set()

    def _send(self, connection: DoorConnection) -> None:
        while self._queue and self.ready.is_set() and len(self._under_way) < connection.max_in_flight:
            waiting = self._queue.popleft()
            mid = connection.publish(waiting.topic, waiting.payload)
            if mid is None:
                self._settled.append((waiting, Outcome.AWAY))
            else:
                self._under_way[mid] = waiting

    def _on_puback(self, mid: int, reason: ReasonCode) -> None:
        waiting = self._under_way.pop(mid, None)
        if waiting is None:
            return
        outcome = Outcome.RECEIVED
        if reason.value == _NOBODY_COUNTS:
            outcome = Outcome.UNCOUNTED
        elif reason.is_failure:
            outcome = Outcome.REFUSED
            text = (
                f"{self._session.address} refuses reports ({str(reason).lower()}): allow this user to publish"
            )
            self._status.say(logging.ERROR, text)
        self._settled.append((waiting, outcome))

    def _settle_all(self) -> None:
        """Mark all reports in flight as AWAY, because their connection is gone."""
        self._settled += [(waiting, Outcome.AWAY) for waiting in self._under_way.values()]
        self._under_way.clear()
        while self._queue:
            self._settled.append((self._queue.popleft(), Outcome.AWAY))
        self._tell()

    def _tell(self) -> None:
        """Wake the waiting callers, once per event loop."""
        if not self._settled:
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_PendingReport, Outcome]]] = {}
        for waiting, outcome in self._settled:
            by_loop.setdefault(waiting.loop, []).append((waiting, outcome))
        self._settled = []
        for loop, settled in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is waiting
                loop.call_soon_threadsafe(self._resolve, settled)

    def _resolve(self, settled: list[tuple[_PendingReport, Outcome]]) -> None:
        for waiting, outcome in settled:
            self._in_flight -= 1
            if not waiting.future.done():
                waiting.future.set_result(outcome)
