"""/metrics and /healthz over HTTP, answered in a thread of their own: also while a commit hangs.

uvicorn keeps neither a cap on connections that costs only who waits, nor a deadline for a request: a client
that sends a byte a minute would hold a connection for ever. Both are here. No signal is taken over, and what
clients do wrong is not logged.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import HushmoteError

REQUEST_S = 10.0  # from its connection, or the answer before it, until the answer has been taken
MOST_CONNECTIONS = 128
_WAITING = 1024  # connections that the system keeps until they are taken; a crowd costs others no second try
TAKEN_AT_ONCE = 8  # each turn of the loop; it is three turns until those whose place they take are closed
_HEAD_BYTES = 8192
_STOP_S = 5.0


class EndpointError(HushmoteError):
    """An address that cannot be listened on; the text says why and what would be right."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return (host, port) of host:port; raises EndpointError."""
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port is not None and not parts.path and "@" not in text:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise EndpointError(f"--http {text!r} must be host:port, such as 127.0.0.1:9417")


class _BoundedHTTP(H11Protocol):
    """A connection that ends where a request takes too long, or where too many others came after it."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_deadline()
        if len(self.connections) > MOST_CONNECTIONS:
            # Whoever has waited longest, and rather who has asked nothing yet: who asks at once is answered.
            oldest: Any = min(self.connections, key=lambda c: (c.is_asking, c.deadline.when()))  # type: ignore
            self.connections.discard(oldest)  # at once: it is lost only when the loop comes round
            oldest.transport.abort()

    @property
    def is_asking(self) -> bool:
        """Whether a whole request has come whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self) -> None:
        self.deadline = self.loop.call_later(REQUEST_S, self.transport.abort)

    def on_response_complete(self) -> None:
        self.deadline.cancel()
        self._set_deadline()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A server that takes few connections at once and lets many wait, which is one number for asyncio."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_WAITING)


class Endpoint:
    """A small HTTP server, as a context manager.

    metrics: returns the text of GET /metrics. trouble: returns why GET /healthz is to answer 503, None for
    200. port: where it listens, chosen by the system where 0 was asked for. Raises EndpointError.
    """

    def __init__(
        self, host: str, port: int, metrics: Callable[[], bytes], trouble: Callable[[], str | None]
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=_WAITING)
        except (OSError, OverflowError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            raise EndpointError(
                f"cannot answer HTTP at {host}:{port} ({reason}): take another with --http"
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                _application(metrics, trouble),
                http=_BoundedHTTP,
                ws="none",
                loop="asyncio",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=TAKEN_AT_ONCE,
                h11_max_incomplete_event_size=_HEAD_BYTES,
                timeout_graceful_shutdown=1,
            )
        )

    def __enter__(self) -> Endpoint:
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_S)


def _application(metrics: Callable[[], bytes], trouble: Callable[[], str | None]) -> Any:
    """The ASGI application."""

    def answer(method: str, path: str) -> tuple[int, str, bytes]:
        if path not in ("/metrics", "/healthz"):
            return 404, "text/plain", b"there is /metrics and /healthz\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"there is only GET\n"
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics()
        reason = trouble()
        body: dict[str, Any] = {"healthy": reason is None} | ({"reason": reason} if reason else {})
        return 200 if reason is None else 503, "application/json", json.dumps(body).encode() + b"\n"

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        status, kind, body = answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application
