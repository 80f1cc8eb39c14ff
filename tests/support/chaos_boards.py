"""Boards for the chaos tests, each with a connection of its own, and a proxy that cuts and swallows.

A board sends its oldest report at QoS 1 and waits for the PUBACK, as umqtt does; on a new connection it sends
again what was not acknowledged, under a new packet id and without DUP. It keeps account of what it wrote to
a socket and of what it was told was received. All of it runs in one asyncio loop.
"""

from __future__ import annotations

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

_ANSWER_S = 3.0  # a broker that saves a large queue answers nobody meanwhile
_PINGREQ = b"\xc0\x00"
_PUBACK, _PINGRESP, _CONNACK = 4, 13, 2


@dataclass(frozen=True)
class Encoded:
    """Makes a board's reports with the server's own encoder: code(number) is told, volume is cheap."""

    device: str
    experiment: Experiment
    key: bytes | None
    code: Callable[[int], int]

    def make(self, number: int) -> bytes:
        return report.encode(self.experiment, number, self.code(number), self.device, self.key)

    def sent(self, payload: bytes) -> None:
        """Nothing is kept here."""


@dataclass(frozen=True)
class Shipped:
    """Makes a board's reports with the client that boards run, ledger and outbox included."""

    client: Client
    experiment: Experiment
    rng: np.random.Generator

    def make(self, number: int) -> bytes | None:
        """Report number's payload, or None while the outbox is full."""
        payload = self.client.report(self.experiment.name, self.rng.uniform(0, 64))
        assert payload is None or int.from_bytes(payload[5:9], "big") == number
        return payload

    def sent(self, payload: bytes) -> None:
        self.client.sent(payload)


class Board:
    """One device that reports until it is asked to finish, or until it dies.

    gap_s: mean seconds between two reports. hold_s: None where a PUBACK is enough to forget a report. Else a
    report is told only once a PINGRESP came, on the same connection, to a PINGREQ sent at least hold_s after
    its PUBACK.

    published: payload of each number that was ever written to a socket. told: numbers the board was told were
    received. sendings: how often a report was written in all. gap_s may be changed.
    """

    def __init__(
        self,
        topic: str,
        ports: Sequence[int],
        source: Encoded | Shipped,
        rng: np.random.Generator,
        *,
        gap_s: float = 0.0,
        hold_s: float | None = None,
    ) -> None:
        self.published: dict[int, bytes] = {}
        self.told: set[int] = set()
        self.sendings = 0
        self._topic = topic.encode()
        self._ports = ports
        self._source = source
        self._rng = rng
        self.gap_s = gap_s
        self._hold_s = hold_s
        self._unsent: deque[int] = deque()
        self._held: deque[tuple[int, float]] = deque()  # number, monotonic time of its PUBACK
        self._last = 0
        self._mid = 0
        self._finishing = False

    def finish(self) -> None:
        """Make live() return once everything that was made has been told."""
        self._finishing = True

    async def live(self) -> None:
        """Connect and report, again and again; cancel it and the board is dead."""
        while not (self._finishing and not self._unsent and not self._held):
            writer = None
            try:
                port = self._ports[int(self._rng.integers(len(self._ports)))]
                async with asyncio.timeout(_ANSWER_S):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    await self._connect(reader, writer)
                await self._report(reader, writer)
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                pass
            finally:
                if writer is not None:
                    writer.transport.abort()
                # What was only acknowledged by a broker that may have died is sent again.
                self._unsent.extendleft(number for number, _ in reversed(self._held))
                self._held.clear()
            await asyncio.sleep(self._rng.uniform(0, 0.2))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = self._topic.rsplit(b"/", 1)[1]
        body = b"\x00\x04MQTT\x04\x02\x00\x3c" + len(name).to_bytes(2, "big") + name
        writer.write(b"\x10" + bytes((len(body),)) + body)
        kind, answer = await _packet(reader)
        if kind != _CONNACK or answer[1]:
            raise OSError("refused")

    async def _report(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            if not self._unsent and not self._finishing:
                if self.gap_s:
                    await asyncio.sleep(self._rng.uniform(0, 2 * self.gap_s))
                payload = self._source.make(self._last + 1)
                if payload is not None:
                    self._last += 1
                    self.published[self._last] = payload
                    self._unsent.append(self._last)
            async with asyncio.timeout(_ANSWER_S):
                if self._unsent:
                    await self._publish(reader, writer, self._unsent[0])
            if self._held:
                await self._settle(reader, writer)
            if self._finishing and not self._unsent and not self._held:
                return

    async def _publish(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self._mid = self._mid % 65_535 + 1
        mid = self._mid.to_bytes(2, "big")
        body = len(self._topic).to_bytes(2, "big") + self._topic + mid + self.published[number]
        assert len(body) < 128
        writer.write(b"\x32" + bytes((len(body),)) + body)
        self.sendings += 1
        while await _packet(reader) != (_PUBACK, mid):
            pass
        self._unsent.popleft()
        if self._hold_s is None:
            self._tell(number)
        else:
            self._held.append((number, time.monotonic()))

    async def _settle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._hold_s is not None
        if self._finishing and not self._unsent:
            await asyncio.sleep(self._hold_s)
        now = time.monotonic()
        if now - self._held[0][1] < self._hold_s:
            return
        writer.write(_PINGREQ)
        async with asyncio.timeout(_ANSWER_S):
            while (await _packet(reader))[0] != _PINGRESP:
                pass
        while self._held and now - self._held[0][1] >= self._hold_s:
            self._tell(self._held.popleft()[0])

    def _tell(self, number: int) -> None:
        self.told.add(number)
        self._source.sent(self.published[number])


async def _packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readexactly(2)
    return head[0] >> 4, await reader.readexactly(head[1])


class Proxy:
    """Forwards TCP connections to a port, of 127.0.0.1 or of host, until it is told to cut or to swallow."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = target
        self._host = host
        self._writers: set[asyncio.StreamWriter] = set()
        self._deaf = {"up": False, "down": False}  # up: to the target
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Reset all connections; what was on its way is gone."""
        for writer in self._writers:
            peer = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def swallow(self, *ways: str) -> None:
        """Forward nothing that goes "up" or "down" until forward(), as a half-open connection does."""
        self._deaf = {way: way in ways for way in self._deaf}

    def forward(self) -> None:
        """Cut what swallowed, and forward what connects from now on."""
        self.cut()
        self.swallow()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, pumps = [writer], []
        self._writers.add(writer)
        try:
            far_reader, far = await asyncio.open_connection(self._host, self._target)
            writers.append(far)
            self._writers.add(far)
            ways = (("up", reader, far), ("down", far_reader, writer))
            pumps = [asyncio.create_task(self._pump(*way)) for way in ways]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # nobody listens there, or the proxy ends
        finally:
            for pump in pumps:
                pump.cancel()
            for w in writers:
                self._writers.discard(w)
                w.transport.abort()

    async def _pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if not self._deaf[way]:
                    writer.write(data)
                    await writer.drain()
