"""Who makes room where there are more connections than there may be: the oldest that asks nothing."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from running import WAIT_S

from hushmote.server.service import bounded_http
from hushmote.server.service.bounded_http import BoundedHTTP, BoundedServer

MOST = 3


class Slow(BoundedHTTP):
    """A connection that no deadline ends within a test."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["request_s"] = 100 * WAIT_S
        super().__init__(*arguments, **options)


class Application:
    """Answers at once, but /wait only once it is released."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            self.asked.set()
            await asyncio.get_running_loop().run_in_executor(None, self.released.wait, WAIT_S)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def port(application: Application, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(bounded_http, "BoundedHTTP", Slow)
    with BoundedServer("127.0.0.1", 0, application, most_connections=MOST) as server:
        yield server.port


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def ask(s: socket.socket, path: str = "/") -> None:
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def answered(s: socket.socket) -> bool:
    said = b""
    while not said.endswith(b"\r\n\r\nok"):
        more = s.recv(1000)
        if not more:
            return False
        said += more
    return said.startswith(b"HTTP/1.1 200")


def ended(s: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return s.recv(1) == b""
    return True


class TestLimit:
    def test_closes_the_connection_that_waited_longest(self, port: int):
        first, second, third = (connected(port) for _ in range(MOST))
        for s in (second, third, first):  # now the second has waited longest
            ask(s)
            assert answered(s)
        last = connected(port)
        assert ended(second)
        for s in (first, third, last):
            ask(s)
            assert answered(s)
            s.close()

    def test_closes_the_oldest_idle_connection_first(self, port: int, application: Application):
        asking, idle, third = (connected(port) for _ in range(MOST))
        ask(asking, "/wait")
        assert application.asked.wait(WAIT_S)
        last = connected(port)
        assert ended(idle)
        application.released.set()
        assert answered(asking)
        for s in (third, last):
            ask(s)
            assert answered(s)
            s.close()
        asking.close()
