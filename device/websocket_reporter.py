"""Hushmote's asyncio reporter over WebSocket, for boards on CPython in networks that let only HTTPS through.

    reporter = WebSocketReporter(client, "wss://broker.example.org/mqtt", user=DEVICE_ID, password=PASSWORD)
    asyncio.create_task(reporter.run())

Everything else is as in async_reporter. MicroPython's boards never get this file.
"""

import asyncio
import base64
import contextlib
import errno
import hashlib
import os
import re
import ssl
from typing import Any
from urllib.parse import urlsplit

from . import ldp_client
from .async_reporter import AsyncReporter, _within

_PORTS = {"ws": 80, "wss": 443}
_PATH = "/mqtt"
_URL = re.compile(r"\w+://[\w.:%[\]-]+(/[!$->@-~]*)?", re.ASCII)  # a path without query and fragment
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_MAX_HEADER_BYTES = 16_384
_CONTINUATION, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x2, 0x8, 0x9, 0xA


class WebSocketRefused(Exception):
    """The server does not switch to MQTT over WebSocket; the argument states its answer."""


class _Stream:
    """The bytes in a WebSocket's binary frames; it replaces a StreamReader and a StreamWriter.

    read() may be cancelled: what has arrived stays in the buffer.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: Any, unread: bytes) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = bytearray(unread)
        self._left = 0  # remaining bytes of the current data frame
        self.drain, self.wait_closed = writer.drain, writer.wait_closed

    async def read(self, most: int) -> bytes:
        """Return at least one and at most this many bytes, or b"" at the end."""
        while True:
            if self._left and self._buffer:
                return self._take(min(most, self._left))
            if not self._left and (frame := self._next_frame()):
                code, body = frame
                if code == _CLOSE:
                    return b""
                if code == _PING:
                    self._send(_PONG, body)
                continue
            data = await self._reader.read(4096)
            if not data:
                return b""
            self._buffer += data

    def write(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the transport is already closed
            self._send(_CLOSE, b"\x03\xe8")
        self._writer.close()

    def _take(self, most: int) -> bytes:
        data = bytes(self._buffer[:most])
        del self._buffer[:most]
        self._left -= len(data)
        return data

    def _next_frame(self) -> tuple[int, bytes] | None:
        """Return the next frame's code and, except for data, its payload; None if it is incomplete."""
        head = self._buffer
        if len(head) < 2:
            return None
        code, length = head[0] & 0x0F, head[1]
        if length > 127 or (code >= _CLOSE and length > 125):
            raise ValueError("not MQTT over WebSocket")  # servers never mask, and control frames are short
        more = {126: 2, 127: 8}.get(length, 0)
        if len(head) < 2 + more:
            return None
        if more:
            length = int.from_bytes(head[2 : 2 + more], "big")
        if code in (_CONTINUATION, _BINARY) and not head[0] & 0x70 and length < 1 << 63:
            del head[: 2 + more]
            self._left = length
            return code, b""
        if code not in (_CLOSE, _PING, _PONG):
            raise ValueError("not MQTT over WebSocket")
        if len(head) < 2 + length:
            return None
        body = bytes(head[2 : 2 + length])
        del head[: 2 + length]
        return code, body

    def _send(self, code: int, data: bytes) -> None:
        size = len(data)
        if size < 126:
            length = bytes((0x80 | size,))
        elif size < 1 << 16:
            length = b"\xfe" + size.to_bytes(2, "big")
        else:
            length = b"\xff" + size.to_bytes(8, "big")
        key = os.urandom(4)
        mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")
        self._writer.write(bytes((0x80 | code,)) + length + key + masked)


class WebSocketReporter(AsyncReporter):
    """A board's connection to the broker over WebSocket, for asyncio on CPython.

    Args:
        client: See BaseReporter.
        url: The broker: wss://host[:443][/mqtt], or ws://host[:80][/mqtt] without TLS.
        user: The user name, if the broker requires one.
        password: The password that goes with user.
        tls: For wss://, the SSLContext that checks the broker's certificate; None to trust the system's
            certificate authorities.
        kept: See BaseReporter.
        **settings: As for BaseReporter.

    Raises:
        ldp_client.SettingsError: If the URL or a setting is wrong.
    """

    def __init__(self, client, url, user=None, password=None, tls=None, kept=None, **settings):
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, _PORTS[parts.scheme]
            port = port if parts.port is None else parts.port
        except (ValueError, KeyError):
            host = port = None
        if not (_URL.fullmatch(url) and host and port):
            raise ldp_client.SettingsError(
                "write the broker as wss://host[:443][/mqtt], or ws://host[:80][/mqtt] without TLS, in "
                "ASCII; pass user, password and topic_prefix separately"
            )
        if tls is not None and parts.scheme == "ws":
            raise ldp_client.SettingsError("ws:// has no TLS: write wss://, or omit tls")
        if parts.scheme == "wss" and tls is None:
            tls = ssl.create_default_context()
        super().__init__(client, f"[{host}]:{port}", None, user, password, tls, kept, **settings)
        self._authority = parts.netloc
        self._path = parts.path if parts.path not in ("", "/") else _PATH

    async def _open(self, host, port):
        try:
            await super()._open(host, port)
        except ssl.SSLCertVerificationError as e:
            raise ValueError(f"certificate verify failed: {e.verify_message}") from None
        key = base64.b64encode(os.urandom(16))
        request = (
            f"GET {self._path} HTTP/1.1\r\nHost: {self._authority}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
        await self._write(request.encode())
        reader: Any = self._reader
        answer = await _within(self._timeout_ms, _read_head(reader))
        head, _, unread = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        split_lines = (line.partition(":") for line in lines)
        fields = {name.lower(): value.strip() for name, _, value in split_lines}
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()  # noqa: S324 - RFC 6455
        if status.split(" ")[1:2] != ["101"]:
            raise WebSocketRefused(f"the server answered {status[:80]!r} at {self._path}")
        if fields.get("sec-websocket-accept") != accept or fields.get("sec-websocket-protocol") != "mqtt":
            raise WebSocketRefused(f"the server does not speak MQTT over WebSocket at {self._path}")
        stream: Any = _Stream(reader, self._writer, unread)
        self._reader = self._writer = stream


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    """Return an HTTP response's head, and any bytes that follow it."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MAX_HEADER_BYTES:
        part = await reader.read(4096)
        if not part:
            raise OSError(errno.ECONNRESET, "the server closed the connection")
        data += part
    return data
