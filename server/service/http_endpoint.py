"""/metrics and /healthz over HTTP, answered in a thread of their own: also while a commit hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .bounded_http import BoundedServer

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint(BoundedServer):
    """An aggregator's HTTP server, as a context manager.

    metrics: returns the text of GET /metrics. trouble: returns why GET /healthz is to answer 503, None for
    200. port: where it listens, chosen by the system where 0 was asked for. Raises EndpointError.
    """

    def __init__(
        self, host: str, port: int, metrics: Callable[[], bytes], trouble: Callable[[], str | None]
    ) -> None:
        super().__init__(host, port, _application(metrics, trouble))


def health(reason: str | None) -> tuple[int, bytes]:
    """Return the status and the JSON of an answer to GET /healthz; reason: why not healthy, None where so."""
    body: dict[str, Any] = {"healthy": reason is None} | ({"reason": reason} if reason else {})
    return 200 if reason is None else 503, json.dumps(body).encode() + b"\n"


def _application(metrics: Callable[[], bytes], trouble: Callable[[], str | None]) -> Any:
    """The ASGI application."""

    def answer(method: str, path: str) -> tuple[int, str, bytes]:
        if path not in ("/metrics", "/healthz"):
            return 404, "text/plain", b"there is /metrics and /healthz\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"there is only GET\n"
        if path == "/metrics":
            return 200, METRICS_TYPE, metrics()
        status, body = health(trouble())
        return status, "application/json", body

    async def application(scope: Any, _receive: Any, send: Any) -> None:
        status, kind, body = answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application
