"""A request's time at a bounded HTTP server, made short, and what it ended."""

from typing import Any

import pytest

from hushmote.server.service import bounded_http
from hushmote.server.service.bounded_http import BoundedHTTP

SHORT_S = 0.3


def shortened(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give each request of a connection from now on SHORT_S; the list gets the seconds that ended one.

    Whatever else ends a connection, such as uvicorn's limit for one that is idle, closes it in order.
    """
    ended: list[float] = []
    made = BoundedHTTP.connection_made

    def watched(self: BoundedHTTP, transport: Any) -> None:
        abort = transport.abort

        def noted() -> None:
            ended.append(self.request_s)
            abort()

        transport.abort = noted
        made(self, transport)

    monkeypatch.setattr(bounded_http, "REQUEST_S", SHORT_S)
    monkeypatch.setattr(BoundedHTTP, "connection_made", watched)
    return ended
