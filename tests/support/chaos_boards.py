"""Boards for the chaos tests, each with its own connection, and a proxy that drops connections or data.

A board sends its reports in bursts at QoS 1 and has several in flight; on a new connection it resends
unacknowledged reports, under a new packet id and without DUP. Boards that do not run the shipped client
skip long ranges of numbers, as if reports were lost before they were sent, and send long runs between these
gaps. A board records which reports it wrote to a socket and which were confirmed. Everything runs in one
asyncio loop.
"""

import asyncio
import contextlib
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hushmote.device.ldp_client import Client, Experiment
from hushmote.server.wire import report

_ANSWER_S = 3.0  # a broker does not answer while it saves a large queue
_PINGREQ = b"\xc0\x00"
_GAPS = 40  # consecutive gaps; more than an old store kept below the newest numbers
_GAPS_AGAIN = 0.0005  # probability of another such gap before a number
_PUBACK, _PINGRESP, _CONNACK = 4, 13, 2


@dataclass(frozen=True)
class Encoded:
    """Makes a board's reports cheaply, with predictable codes, with the server's encoder.

    skips: whether make() accepts any number, or only consecutive ones.
    """

    skips = True

    device: str
    experiment: Experiment
    key: bytes | None
    code: Callable[[int], int]

    def make(self, number: int) -> bytes:
        return report.encode(self.experiment, number, self.code(number), self.device, self.key)

    def sent(self, payload: bytes) -> None:
        """Do nothing; this encoder has no outbox."""


@dataclass(frozen=True)
class Shipped:
    """Makes a board's reports with the shipped client, including its ledger and outbox."""

    skips = False

    client: Client
    experiment: Experiment
    rng: np.random.Generator

    def make(self, number: int) -> bytes | None:
        """Return the payload of this report, or None while the outbox is full."""
        payload = self.client.report(self.experiment.name, self.rng.uniform(0, 64))
        assert payload is None or int.from_bytes(payload[5:9], "big") == number
        return payload

    def sent(self, payload: bytes) -> None:
        self.client.sent(payload)


class Board:
    """One device that reports until finish() is called or until it dies.

    gap_s: mean seconds between two reports. in_flight: the maximum number of unacknowledged reports. hold_s:
    None if a PUBACK confirms a report. Otherwise a report is confirmed only by a PINGRESP, on the same
    connection, to a PINGREQ sent at least hold_s after the PUBACK.

    published: the payload of each number that was written to a socket. told: the numbers of confirmed
    reports. sendings: the total number of writes. paused: set to stop making reports.
    """

    def __init__(
        self,
        topic: str,
        ports: Sequence[int],
        source: Encoded | Shipped,
        rng: np.random.Generator,
        *,
        gap_s: float = 0.0,
        in_flight: int = 1,
        hold_s: float | None = None,
    ) -> None:
        self.published: dict[int, bytes] = {}
        self.told: set[int] = set()
        self.sendings = 0
        self._topic = topic.encode()
        self._ports = ports
        self._source = source
        self._rng = rng
        self.paused = False
        self._gap_s = gap_s
        self._in_flight = in_flight
        self._hold_s = hold_s
        self._unsent: deque[int] = deque()
        self._flying: dict[int, int] = {}  # packet id -> number
        self._held: deque[tuple[int, float]] = deque()  # number, monotonic time of its PUBACK
        self._heard = asyncio.Event()
        self._pongs = 0
        self._last = 0
        self._gaps = _GAPS if source.skips else 0
        self._mid = 0
        self._finishing = False

    def finish(self) -> None:
        """Make live() return once every report has been confirmed."""
        self._finishing = True

    @property
    def has_unconfirmed_reports(self) -> bool:
        """Return whether any report is still unconfirmed."""
        return len(self.told) < len(self.published)

    @property
    def _finished(self) -> bool:
        return self._finishing and not (self._unsent or self._flying or self._held)

    async def live(self) -> None:
        """Connect and report in a loop; cancelling it kills the board."""
        while not self._finished:
            writer = listener = None
            try:
                port = self._ports[int(self._rng.integers(len(self._ports)))]
                async with asyncio.timeout(_ANSWER_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    await self._connect(reader, writer)
                listener = asyncio.create_task(self._listen(reader))
                listener.add_done_callback(lambda _: self._heard.set())
                await self._report(writer, listener)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                pass
            finally:
                if listener is not None:
                    listener.cancel()
                    await asyncio.wait([listener])
                if writer is not None:
                    writer.transport.abort()
                # Resend reports acknowledged only by a broker that may have died.
                unconfirmed = [number for number, _ in self._held] + list(self._flying.values())
                self._unsent.extendleft(reversed(unconfirmed))
                self._held.clear()
                self._flying.clear()
            await asyncio.sleep(self._rng.uniform(0, 0.2))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = self._topic.rsplit(b"/", 1)[1]
        body = b"\x00\x04MQTT\x04\x02\x00\x3c" + len(name).to_bytes(2, "big") + name
        writer.write(b"\x10" + bytes((len(body),)) + body)
        kind, answer = await _packet(reader)
        if kind != _CONNACK or answer[1]:
            raise OSError("refused")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while True:
            kind, body = await _packet(reader)
            number = self._flying.pop(int.from_bytes(body, "big"), None) if kind == _PUBACK else None
            if number is not None and self._hold_s is None:
                self._tell(number)
            elif number is not None:
                self._held.append((number, time.monotonic()))
            self._pongs += kind == _PINGRESP
            self._heard.set()

    async def _hear(self, listener: asyncio.Task[None]) -> None:
        """Wait until the broker sends more; re-raise the listener's exception if it has ended."""
        async with asyncio.timeout(_ANSWER_S):
            await self._heard.wait()
        self._heard.clear()
        if listener.done():
            listener.result()

    async def _report(self, writer: asyncio.StreamWriter, listener: asyncio.Task[None]) -> None:
        while not self._finished:
            if listener.done():
                listener.result()
            if not self._unsent and not self._finishing:
                await self._make()
            while self._unsent and len(self._flying) < self._in_flight:
                self._publish(writer, self._unsent.popleft())
            # Wait for room for more reports or, when no more are made, until all are answered.
            while self._flying and (self._unsent or self._finishing or len(self._flying) >= self._in_flight):
                await self._hear(listener)
                while self._unsent and len(self._flying) < self._in_flight:
                    self._publish(writer, self._unsent.popleft())
            if self._held:
                await self._settle(writer, listener)

    async def _make(self) -> None:
        """Make a burst of as many reports as fit, unless the client's outbox is full."""
        count = int(self._rng.integers(1, self._in_flight + 1))
        await asyncio.sleep(self._rng.uniform(0, 2 * self._gap_s * count))
        if self.paused:
            return
        for _ in range(count):
            number = self._next_number()
            payload = self._source.make(number)
            if payload is None:
                return
            self._last = number
            self.published[number] = payload
            self._unsent.append(number)

    def _next_number(self) -> int:
        if self._gaps:
            self._gaps -= 1
            return self._last + 2
        if self._source.skips and self._rng.random() < _GAPS_AGAIN:
            self._gaps = _GAPS
        return self._last + 1

    def _publish(self, writer: asyncio.StreamWriter, number: int) -> None:
        self._mid = self._mid % 65_535 + 1
        body = len(self._topic).to_bytes(2, "big") + self._topic + self._mid.to_bytes(2, "big")
        body += self.published[number]
        assert len(body) < 128
        writer.write(b"\x32" + bytes((len(body),)) + body)
        self.sendings += 1
        self._flying[self._mid] = number

    async def _settle(self, writer: asyncio.StreamWriter, listener: asyncio.Task[None]) -> None:
        assert self._hold_s is not None
        if self._finishing and not self._unsent:
            await asyncio.sleep(self._hold_s)
        now = time.monotonic()
        if now - self._held[0][1] < self._hold_s:
            return
        before = self._pongs
        writer.write(_PINGREQ)
        while self._pongs == before:
            await self._hear(listener)
        while self._held and now - self._held[0][1] >= self._hold_s:
            self._tell(self._held.popleft()[0])

    def _tell(self, number: int) -> None:
        self.told.add(number)
        self._source.sent(self.published[number])


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readexactly(2)
    return head[0] >> 4, await reader.readexactly(head[1])


class Proxy:
    """Forwards TCP connections to a port on 127.0.0.1 or `host` until told to cut or swallow them."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = target
        self._host = host
        self._writers: set[asyncio.StreamWriter] = set()
        self._deaf = {"up": False, "down": False}  # up: to the target
        self.swallowed = 0  # chunks read that begin with an acknowledgement
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections; data in transit is lost."""
        for writer in self._writers:
            peer = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def swallow(self, *ways: str) -> None:
        """Drop data that goes "up" or "down" until forward() is called, as a half-open connection does."""
        self._deaf = {way: way in ways for way in self._deaf}

    def forward(self) -> None:
        """Cut the swallowing connections, and forward new ones again."""
        self.cut()
        self.swallow()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, pumps = [writer], []
        self._writers.add(writer)
        try:
            far_reader, far = await asyncio.open_connection(self._host, self._target)
            writers.append(far)
            self._writers.add(far)
            directions = (("up", reader, far), ("down", far_reader, writer))
            pumps = [asyncio.create_task(self._pump(*way)) for way in directions]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # no listener at the target, or the proxy is closing
        finally:
            for pump in pumps:
                pump.cancel()
            for w in writers:
                self._writers.discard(w)
                w.transport.abort()

    async def _pump(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self._deaf[direction]:
                    writer.write(data)
                    await writer.drain()
                elif data[0] >> 4 == _PUBACK:
                    self.swallowed += 1
