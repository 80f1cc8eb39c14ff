"""With too many connections, the one that has been idle longest is closed."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from running_aggregator import WAIT_S
from uvicorn.server import ServerState

from hushmote.server.service.bounded_http import BoundedServer, config

MAX_CONNECTIONS = 3


class Application:
    """An application that answers immediately, except for /wait, which waits for `release`."""

    def __init__(self) -> None:
        self.request_arrived = threading.Event()
        self.release = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            self.request_arrived.set()
            await asyncio.get_running_loop().run_in_executor(None, self.release.wait, WAIT_S)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def port(application: Application) -> Iterator[int]:
    # No deadline ends a connection within a test.
    request_s = 100 * WAIT_S
    with BoundedServer(
        "127.0.0.1", 0, application, most_connections=MAX_CONNECTIONS, request_s=request_s
    ) as server:
        yield server.port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_S)


def ask(s: socket.socket, path: str = "/") -> None:
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def has_answer(s: socket.socket) -> bool:
    answer = b""
    while not answer.endswith(b"\r\n\r\nok"):
        more = s.recv(1000)
        if not more:
            return False
        answer += more
    return answer.startswith(b"HTTP/1.1 200")


def is_closed(s: socket.socket) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return s.recv(1) == b""
    return True


class TestDeadline:
    @pytest.mark.parametrize(("request_s", "expected_s"), [(None, 10), (3.0, 3)])
    def test_is_ten_seconds_unless_given(self, request_s: float | None, expected_s: float):
        async def deadline_s() -> float:
            loop, settings = asyncio.get_running_loop(), config(Application(), most=3, request_s=request_s)
            settings.load()
            make: Any = settings.http_protocol_class
            protocol = make(config=settings, server_state=ServerState(), app_state={})
            transport, _ = await loop.create_connection(lambda: protocol, sock=near)
            seconds = protocol.deadline.when() - loop.time()
            transport.close()
            return seconds

        near, far = socket.socketpair()
        with far:
            assert asyncio.run(deadline_s()) == pytest.approx(expected_s, abs=0.5)


class TestLimit:
    def test_closes_the_connection_that_waited_longest(self, port: int):
        first, second, third = (connect(port) for _ in range(MAX_CONNECTIONS))
        for s in (second, third, first):  # now the second has waited longest
            ask(s)
            assert has_answer(s)
        last = connect(port)
        assert is_closed(second)
        for s in (first, third, last):
            ask(s)
            assert has_answer(s)
            s.close()

    def test_closes_the_oldest_idle_connection_first(self, port: int, application: Application):
        asking, idle, third = (connect(port) for _ in range(MAX_CONNECTIONS))
        ask(asking, "/wait")
        assert application.request_arrived.wait(WAIT_S)
        last = connect(port)
        assert is_closed(idle)
        application.release.set()
        assert has_answer(asking)
        for s in (third, last):
            ask(s)
            assert has_answer(s)
            s.close()
        asking.close()
