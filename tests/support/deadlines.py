"""Shorten a bounded HTTP server's request timeout, and collect the timeouts that expire."""

from typing import Any

import pytest

from hushmote.server.service import bounded_http
from hushmote.server.service.bounded_http import BoundedHTTP

SHORT_S = 0.3


def shorten_request_timeout(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Shorten the request timeout to SHORT_S for new connections; return a list of expired timeouts.

    Connections that other limits close, such as uvicorn's idle timeout, are not in the list.
    """
    ended: list[float] = []
    connection_made = BoundedHTTP.connection_made

    def watched(self: BoundedHTTP, transport: Any) -> None:
        abort = transport.abort

        def record_timeout() -> None:
            ended.append(self.request_s)
            abort()

        transport.abort = record_timeout
        connection_made(self, transport)

    monkeypatch.setattr(bounded_http, "REQUEST_S", SHORT_S)
    monkeypatch.setattr(BoundedHTTP, "connection_made", watched)
    return ended
