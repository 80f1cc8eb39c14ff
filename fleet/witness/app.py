"""A witness over HTTP: C2SP's tlog-witness protocol for logs, and a page of text for people.

POST /add-checkpoint        signs a tree head, or answers why not: 400, 403, 404, 409, 422 or 503
GET /ORIGIN-HASH/checkpoint the newest tree head that it has signed
GET /                       which log, which questions, and what it refused
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ...server.plain_text import one_line, shorten
from ...server.service.bounded_http import BoundedServer
from ...server.service.process import announce_ready, catch_signals, notify
from ...server.service.request_body import read_body
from .text import describe
from .witness import READ_S, NotSigned, OtherSize, Unproven, Witness

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 2**15
_MAX_WAITING = 100
_TICK_S = 0.1
_UNPROVEN_S = 600.0  # between two lines about requests that anyone can make
_MAX_LOGGED = 500


class WitnessApp(Starlette):
    """The ASGI application of a witness."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._logged, self._signed = "", -1  # the last refusal and size
        self._unproven_at = float("-inf")
        hashed = hashlib.sha256(witness.rule.origin.encode()).hexdigest()
        routes = [
            Route("/", self._page),
            Route(f"/{hashed}/checkpoint", self._checkpoint),
            Route("/add-checkpoint", self._add_checkpoint, methods=["POST"]),
        ]
        super().__init__(routes=routes, exception_handlers={HTTPException: _answer_error})

    async def _page(self, _request: Request) -> Response:
        witness = self._witness
        return _text(describe(witness.key, witness.rule, witness.state))

    async def _checkpoint(self, _request: Request) -> Response:
        note = self._witness.state.checkpoint
        return _text(note) if note else _text("nothing is signed yet\n", 404)

    async def _add_checkpoint(self, request: Request) -> Response:
        try:
            body = await read_body(request, MAX_BODY_BYTES)
        except ClientDisconnect:
            return Response(None, 400)
        if self._waiting >= _MAX_WAITING:
            return _text("too many requests are waiting\n", 503, {"retry-after": "5"})
        self._waiting += 1
        try:
            async with self._turn:
                lines = await _in_thread(lambda: self._witness.add_checkpoint(body))
        except OtherSize as e:
            return Response(f"{e.size}\n", 409, {"content-type": "text/x.tlog.size"})
        except NotSigned as e:
            text = one_line(str(e))
            self._log_refusal(text, isinstance(e, Unproven))
            headers = {"retry-after": str(e.retry_after_s)} if e.status == 503 else {}
            return _text(f"{text}\n", e.status, headers)
        finally:
            self._waiting -= 1
        if self._witness.state.size != self._signed:
            self._signed = self._witness.state.size
            log.info("signed size %d", self._signed)
        return _text("".join(map(str, lines)))

    def _log_refusal(self, text: str, is_unproven: bool) -> None:
        """Log why a request was refused, once; anyone can repeat it, or make any number of unproven ones."""
        now = time.monotonic()
        if is_unproven and now < self._unproven_at + _UNPROVEN_S:
            return
        if is_unproven:
            self._unproven_at = now
        elif text == self._logged:
            return
        else:
            self._logged = text
        log.warning("not signed: %s", shorten(text, _MAX_LOGGED))


def run(witness: Witness, host: str, port: int) -> None:
    """Serve a witness until SIGTERM or SIGINT.

    Raises:
        EndpointError: If the address cannot be used.
    """
    server = BoundedServer(host, port, WitnessApp(witness), request_s=2 * READ_S)
    with catch_signals() as signals, server:
        announce_ready()
        while not signals:
            time.sleep(_TICK_S)
        notify(STOPPING=1)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Return a slow function's result, from a thread that does not delay the end of the process."""
    future = concurrent.futures.Future[Any]()
    future.set_running_or_notify_cancel()  # a client that leaves does not cancel it

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as e:  # raised again by the future
            future.set_exception(e)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(future)


async def _answer_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = error.detail
    if error.status_code in (404, 405):
        text = "there is GET / and POST /add-checkpoint"
    return _text(f"{text}\n", error.status_code, dict(error.headers or {}))


def _text(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    fixed = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
    return PlainTextResponse(text, status, fixed | (headers or {}))
