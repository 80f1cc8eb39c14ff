"""The limits on requests, in front of an application that counts what reaches it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from nicegui import Client
from nicegui.page import page

from hushmote.web import limits
from hushmote.web.limits import MAX_BODY, MAX_BURST, MAX_UNSEEN, PAGES_PER_S, DrawingLimit, Limits


class Application:
    """An ASGI application that reads each request's body, and answers 200 with the number of its bytes."""

    def __init__(self) -> None:
        self.lengths: list[int | None] = []  # None for an interrupted body

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        length = 0
        while True:
            message = await receive()
            length += len(message.get("body", b""))
            if message["type"] == "http.disconnect" or not message.get("more_body"):
                break
        self.lengths.append(None if message["type"] == "http.disconnect" else length)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def status_of(application: Any, path: str = "/", *body: bytes, length: str = "") -> int:
    """Send one request, whose body arrives in these parts, and return the answer's status."""
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    messages = iter([*parts, {"type": "http.request", "body": b"", "more_body": False}])
    answers: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        answers.append(message)

    headers = [(b"content-length", length.encode())] if length else []
    scope = {"type": "http", "path": path, "headers": headers}
    asyncio.run(application(scope, receive, send))
    return answers[0]["status"]


class TestBody:
    @pytest.mark.parametrize(("length", "status"), [(MAX_BODY, 200), (MAX_BODY + 1, 413), (10**30, 413)])
    def test_announced_length_is_limited(self, length: int, status: int):
        application = Application()
        assert status_of(Limits(application), length=str(length)) == status
        assert len(application.lengths) == (status == 200)

    @pytest.mark.parametrize(("extra", "received"), [(0, MAX_BODY), (1, None)])
    def test_body_of_unknown_length_is_cut_off(self, extra: int, received: int | None):
        application = Application()
        half = bytes(MAX_BODY // 2)
        status_of(Limits(application), "/", half, half + bytes(extra))
        assert application.lengths == [received]


class TestDrawing:
    def test_burst_is_limited_and_recovers(self, monkeypatch: pytest.MonkeyPatch):
        now_s = 0.0
        monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now_s))
        limited = DrawingLimit(Application())
        for seconds, pages in ((0, MAX_BURST), (1, PAGES_PER_S), (100, MAX_BURST)):
            now_s += seconds
            statuses = [status_of(limited) for _ in range(int(pages) + 2)]
            assert statuses == [200] * int(pages) + [503] * 2
            assert status_of(limited, "/static/page.js") == 200  # no page

    def test_oldest_pages_nobody_opened_are_dropped(self):
        before = set(Client.instances)
        clients = [Client(page("")) for _ in range(MAX_UNSEEN + 2)]
        try:
            assert status_of(DrawingLimit(Application())) == 200
            kept = [client.id for client in clients if client.id in Client.instances]
            assert kept == [client.id for client in clients[2:]]
        finally:
            for client in clients:
                if client.id in Client.instances:
                    client.delete()
        assert set(Client.instances) <= before
