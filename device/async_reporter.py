"""Hushmote's reporter for asyncio applications: does what mqtt_reporter does, as a task alongside yours.

    reporter = AsyncReporter(client, "broker.example.org", user=DEVICE_ID, password=PASSWORD)
    asyncio.create_task(reporter.run())
    while True:
        reporter.report("room_temp", read())   on a fixed rhythm, never because a reading changed
        await asyncio.sleep(3600)

umqtt.simple's calls block, which an asyncio application cannot afford. So this file implements the part of
MQTT 3.1.1 that Hushmote needs: one outgoing packet in flight, QoS 1, clean sessions. Other tasks wait only
for the firmware's name look-up, for TLS and signature arithmetic, and for the flash.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import asyncio
import errno
import select
import socket

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import reporter_base as base
else:
    import reporter_base as base

NOT_MQTT, const = base.NOT_MQTT, base.const
left_ms, ticks_add, ticks_ms = base.left_ms, base.ticks_add, base.ticks_ms

_SLICE_MS = const(500)  # how often to check for reports if nothing arrives
_CONNECT_SLICE_S = 0.02  # how often to check whether the connection is open
_MAX_BODY_BYTES = const(1800)  # fits a proof or an experiment with its topic; the rest is skipped

_STATUS = const(0)  # indices of BaseReporter.failures, and the numbers that count
_WILL = const(1)
_SHORT = const(2)
_LEFT_OUT = const(2)

_CONNACK = const(0x20)
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_SUBACK = const(0x90)
_PINGRESP = const(0xD0)
_ANSWERS = (0x20, 0x40, 0x90, 0xD0)


def _text(data):
    data = data.encode() if isinstance(data, str) else data
    return len(data).to_bytes(2, "big") + data


def _packet(kind, *parts):
    body = b"".join(parts)
    size = len(body)
    head = bytearray((kind,))
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + body


async def _within(ms, awaitable):
    try:
        return await asyncio.wait_for(awaitable, max(ms, 1) / 1000)
    except asyncio.TimeoutError:
        raise OSError(errno.ETIMEDOUT)


class _Packets:
    """Splits a byte stream into complete packets."""

    def __init__(self):
        self._data = b""
        self._skip = 0  # remaining bytes of an oversized packet
        self.since_ms = None  # when the incomplete packet began

    def feed(self, data):
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._data += data[skipped:]
        if self.since_ms is None or (skipped and not self._skip):  # idle, or an oversized packet has ended
            self.since_ms = ticks_ms() if self._data or self._skip else None

    def next(self):
        """Return the next packet's (first byte, body), or None if it is still incomplete.

        Raises:
            ValueError: If the data is not MQTT.
        """
        data = self._data
        if data and data[0] & 0xF0 != _PUBLISH and data[0] not in _ANSWERS:
            raise ValueError(NOT_MQTT)
        size = shift = 0
        at = 1
        while True:
            if at >= len(data):
                return None
            size |= (data[at] & 0x7F) << shift
            at += 1
            if data[at - 1] < 0x80:
                break
            shift += 7
            if shift > 21:
                raise ValueError(NOT_MQTT)
        end = at + min(size, _MAX_BODY_BYTES)
        if len(data) < end:
            return None
        self._data = b""
        self._skip = at + size - end
        self.since_ms = None
        self.feed(data[end:])
        return data[0], data[at:end]


class AsyncReporter(base.BaseReporter):
    """A board's connection to the broker, for asyncio.

    Without `log` in the policy, at most one signature is verified at a time. A proof has several, and an
    RP2040 needs more than a second for each: set client.log.feed to feed its watchdog between them.

    Args:
        client: See BaseReporter.
        host: The broker's host, or all hosts in a cluster that serve boards, such as "a,b:1884,c"; each
            connection attempt uses the next one.
        port: The port where host does not include one; by default 1883, or 8883 with ssl.
        user: The user name, if the broker requires one.
        password: The password that goes with user.
        ssl: An SSLContext that checks the broker's certificate against host; None for no TLS.
        kept: See BaseReporter.
        **settings: As for BaseReporter.
    """

    def __init__(self, client, host, port=None, user=None, password=None, ssl=None, kept=None, **settings):
        super().__init__(client, kept, **settings)
        self._brokers = base.Brokers(host, port or (8883 if ssl else 1883))
        self._login = (user, password)
        self._ssl = ssl
        self._reader = None
        self._writer = None
        self._packets = _Packets()
        self._pid = 0
        self._stopping = False

    async def run(self):
        """Connect and report until stop() is called, as long as there is consent.

        If the task is cancelled, the broker publishes the last will, "offline".
        """
        self._stopping = False
        try:
            while not self._stopping:
                wait_ms = self._wait_ms() if self._client.consent else _SLICE_MS
                if wait_ms:
                    await asyncio.sleep(min(wait_ms, _SLICE_MS) / 1000)
                    continue
                try:
                    await self._connect()
                    while self._client.consent and not self._stopping:
                        await self._step()
                    if 0 <= self.failures[_STATUS] < _LEFT_OUT:
                        await self._publish(self._status_topic, self._health("offline"), True)
                    await self._write(b"\xe0\x00")
                    self.failures[_SHORT] = 0
                    self._next_ms = ticks_ms()
                except Exception as e:  # whatever happened, this connection is over, and no data is lost
                    self._mark_lost(self.reason(e))
                await self._shut()
        finally:
            await self._shut()

    def stop(self):
        """Publish "offline" and disconnect; run() returns within half a second, and may be called again."""
        self._stopping = True

    async def _connect(self):
        self._packets = _Packets()
        await self._open(*self._brokers.next())
        user, password = self._login
        flags = (
            0x02 | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
        )  # clean session
        fields = [self._client.device_id]
        if 0 <= self.failures[_WILL] < _LEFT_OUT:
            flags |= 0x2C  # at QoS 1 and retained
            fields += [self._status_topic, self._health("offline")]
        fields += [field for field in (user, password) if field is not None]
        parts = [_text("MQTT"), bytes((4, flags)), self._keepalive_s.to_bytes(2, "big")]
        parts += [_text(field) for field in fields]
        self.topic = True
        await self._write(_packet(0x10, *parts))
        answer = await self._answer(_CONNACK)
        if len(answer) != 2:
            raise ValueError(NOT_MQTT)
        if answer[1]:
            raise base.ConnectionRefused(answer[1])
        self._seen_names.clear()
        self._kept.waiting.clear()
        for name in self._names:
            if self.refused.get(name) == base.FORBIDDEN:
                del self.refused[name]  # the broker will say whether it still is
            self.topic = self._names[name]
            packet = _text(self.topic) + b"\x00"  # QoS 0: see mqtt_reporter
            answer = await self._exchange(0x82, _SUBACK, b"", packet)
            if answer[2:] >= b"\x80":
                self.refused[name] = base.FORBIDDEN
        self._start_session()

    async def _open(self, host, port):
        """Open the connection; whatever happens, _shut() can close it.

        MicroPython's open_connection() never closes the socket of an attempt that fails or is given up.
        """
        if hasattr(asyncio, "StreamReaderProtocol"):  # CPython
            more = {"ssl": self._ssl, "server_hostname": host} if self._ssl else {}
            opening = asyncio.open_connection(host, port, **more)
            self._reader, self._writer = await _within(self._timeout_ms, opening)
            return
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, protocol)
        self._writer = asyncio.StreamWriter(sock)  # pyright: ignore[reportCallIssue]
        sock.setblocking(False)
        try:
            sock.connect(address)
        except OSError as e:
            if e.args[0] != errno.EINPROGRESS:
                raise
        until_ms = ticks_add(ticks_ms(), self._timeout_ms)
        poller = select.poll()
        poller.register(sock, select.POLLOUT)
        while not poller.poll(0):
            if not left_ms(until_ms, self._timeout_ms):
                raise OSError(errno.ETIMEDOUT)
            await asyncio.sleep(_CONNECT_SLICE_S)
        if self._ssl:  # the handshake happens with the first bytes
            sock = self._ssl.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
            sock.setblocking(False)
            self._writer = asyncio.StreamWriter(sock)  # pyright: ignore[reportCallIssue]
        self._reader = self._writer

    async def _step(self):
        wait_ms = 0 if self._kept.waiting or self._health_is_stale else _SLICE_MS
        if self._due_ms is not None:
            wait_ms = min(wait_ms, left_ms(self._due_ms, self._delay_ms))
        packet = await self._receive(wait_ms)
        if packet is not None and packet[0] != _PINGRESP:
            raise ValueError(NOT_MQTT)  # no other packet is expected
        if self._must_ping():
            await self._write(b"\xc0\x00")
        self._settle()
        if self._kept.waiting:
            await asyncio.sleep(0)  # let other tasks run, such as one that feeds a watchdog
            self._process_message()
        report = self._due_report(False)
        while report is not None:
            await self._publish(self._report_topic, report, False)
            report = self._due_report(False) if self._handle_ack(report) else None
        health = self._changed_health()
        if health is not None:
            await self._publish(self._status_topic, health, True)

    # Packets

    async def _write(self, data):
        self._writer.write(data)
        await _within(self._timeout_ms, self._writer.drain())

    async def _publish(self, topic, message, retain):
        self.topic = topic
        await self._exchange(0x33 if retain else 0x32, _PUBACK, _text(topic), message)
        if retain:
            self.failures[_STATUS] = 0

    async def _exchange(self, kind, answer, before, after):
        """Send a packet, with its id between two parts; return the acknowledgement's body."""
        self._pid = self._pid % 65_535 + 1
        pid = self._pid.to_bytes(2, "big")
        await self._write(_packet(kind, before, pid, after))
        body = await self._answer(answer)
        if body[:2] != pid:
            raise ValueError(NOT_MQTT)
        self.topic = None
        return body

    async def _answer(self, kind):
        until_ms = ticks_add(ticks_ms(), self._timeout_ms)
        while True:
            packet = await self._receive(left_ms(until_ms, self._timeout_ms))
            if packet is None:
                raise OSError(errno.ETIMEDOUT)
            if packet[0] == kind:
                return packet[1]
            if packet[0] != _PINGRESP:
                raise ValueError(NOT_MQTT)

    async def _receive(self, ms):
        """Return the next packet that is not a message as (kind, body), or None if none arrives within ms."""
        until_ms = ticks_add(ticks_ms(), ms)
        while True:
            packet = self._packets.next()
            if packet is not None:
                self._pinged = False
                if packet[0] & 0xF0 != _PUBLISH:
                    return packet
                await self._message(*packet)
            since_ms = self._packets.since_ms
            if since_ms is not None and not left_ms(ticks_add(since_ms, self._timeout_ms), self._timeout_ms):
                raise OSError(errno.ETIMEDOUT)  # the rest of a packet never arrived
            remaining_ms = left_ms(until_ms, ms)
            if not remaining_ms:  # return even if messages keep arriving, so that reports are sent
                return None
            if packet is None:
                try:
                    await asyncio.wait_for(self._fetch(), remaining_ms / 1000)
                except asyncio.TimeoutError:
                    return None

    async def _fetch(self):
        """Read and store in one step: MicroPython's wait_for() drops a result at its deadline."""
        data = await self._reader.read(512)
        if not data:
            raise OSError(errno.ECONNRESET)
        self._packets.feed(data)

    async def _message(self, head, body):
        qos = head >> 1 & 3
        at = 2 + int.from_bytes(body[:2], "big")
        payload_at = at + 2 if qos else at
        if qos > 1 or len(body) < max(payload_at, 2):
            raise ValueError(NOT_MQTT)
        self._take(body[2:at], body[payload_at:])
        if qos:
            await self._write(b"\x40\x02" + body[at:payload_at])

    # The end of a connection

    async def _shut(self):
        """Drop the connection. A socket that is not closed remains in use until the board restarts."""
        writer = self._writer
        self._reader = self._writer = None
        self.connected = False
        if writer is not None:
            try:
                writer.close()
                await writer.wait_closed()
            except Exception:  # it may already be closed, which is fine
                pass
