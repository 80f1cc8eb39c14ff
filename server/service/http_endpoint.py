"""/metrics and /healthz over HTTP, answered by threads of their own: also while a commit hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from ..errors import HushmoteError

_CLIENT_S = 10.0


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


class Endpoint:
    """A small HTTP server, as a context manager.

    metrics: returns the text of GET /metrics. trouble: returns why GET /healthz is to answer 503, None for
    200. port: where it listens, chosen by the system where 0 was asked for. Raises EndpointError.
    """

    def __init__(
        self, host: str, port: int, metrics: Callable[[], bytes], trouble: Callable[[], str | None]
    ) -> None:
        try:
            self._server = _Server((host, port), _Handler)
        except (OSError, OverflowError) as e:
            reason = getattr(e, "strerror", None) or str(e)
            raise EndpointError(
                f"cannot answer HTTP at {host}:{port} ({reason}): take another with --http"
            ) from None
        self._server.metrics, self._server.trouble = metrics, trouble
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Endpoint:
        Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    metrics: Callable[[], bytes]
    trouble: Callable[[], str | None]


class _Handler(BaseHTTPRequestHandler):
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]
    server_version = "hushmote"
    sys_version = ""
    timeout = _CLIENT_S  # a client that says nothing keeps no thread for longer

    def do_GET(self) -> None:
        """Answer /metrics, /healthz, or 404."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.server.metrics())
        elif path == "/healthz":
            reason = self.server.trouble()
            body: dict[str, Any] = {"healthy": reason is None} | ({"reason": reason} if reason else {})
            self._answer(
                200 if reason is None else 503, "application/json", json.dumps(body).encode() + b"\n"
            )
        else:
            self._answer(404, "text/plain", b"there is /metrics and /healthz\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the only thing to say would be who asked."""
