"""/metrics and /healthz over HTTP, answered in a separate thread: also while a commit hangs."""

import json
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .bounded_http import BoundedServer

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint(BoundedServer):
    """An aggregator's HTTP server, as a context manager.

    metrics: returns the text of GET /metrics. trouble: returns why GET /healthz should answer 503, None for
    200. port: where it listens, a free one if 0 was asked for. Raises EndpointError.
    """

    def __init__(
        self, host: str, port: int, metrics: Callable[[], bytes], trouble: Callable[[], str | None]
    ) -> None:
        async def numbers(_request: Request) -> Response:
            return Response(metrics(), media_type=METRICS_TYPE)

        async def condition(_request: Request) -> Response:
            return health(trouble())

        async def absent(_request: Request, _error: Exception) -> Response:
            return PlainTextResponse("there is /metrics and /healthz\n", 404)

        routes = [Route("/metrics", numbers), Route("/healthz", condition)]
        super().__init__(host, port, Starlette(routes=routes, exception_handlers={404: absent}))


def health(reason: str | None) -> Response:
    """Return the answer to GET /healthz; reason: why not healthy, None if healthy."""
    body = {"healthy": True} if reason is None else {"healthy": False, "reason": reason}
    status = 200 if reason is None else 503
    return Response(json.dumps(body) + "\n", status, media_type="application/json")
