"""Serve /metrics and /healthz over HTTP in a separate thread, which answers even while a commit hangs."""

import json
from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from .bounded_http import BoundedServer
from .log_files import PATH, LogFiles

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Endpoint(BoundedServer):
    """An aggregator's HTTP server, as a context manager.

    Args:
        host: The host name or address to listen on.
        port: The port; 0 for a free one.
        metrics: Returns the response body for GET /metrics.
        problem: Returns the reason for answering GET /healthz with 503; None for 200.
        warnings: Returns the warnings to include in that answer.
        log: The log's files, for GET /log/...; None if there is no log.

    Attributes:
        port: The port on which the server listens.

    Raises:
        EndpointError: If the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], bytes],
        problem: Callable[[], str | None],
        warnings: Callable[[], Sequence[str]] = tuple,
        log: LogFiles | None = None,
    ) -> None:
        async def answer_metrics(_request: Request) -> Response:
            return Response(metrics(), media_type=METRICS_TYPE)

        async def answer_health(_request: Request) -> Response:
            return health(problem(), warnings())

        async def answer_not_found(_request: Request, _error: Exception) -> Response:
            return PlainTextResponse("only /metrics and /healthz exist\n", 404)

        async def answer_log(request: Request) -> Response:
            assert log is not None
            return await log.answer(request.path_params["path"])

        routes = [Route("/metrics", answer_metrics), Route("/healthz", answer_health)]
        if log is not None:
            routes.append(Route(f"{PATH}{{path:path}}", answer_log))
        super().__init__(host, port, Starlette(routes=routes, exception_handlers={404: answer_not_found}))


def health(reason: str | None, warnings: Sequence[str] = ()) -> Response:
    """Return the answer to GET /healthz.

    Args:
        reason: Why the service is not healthy; None if it is healthy.
        warnings: What may need attention although the service is healthy.
    """
    body: dict[str, object] = {"healthy": reason is None}
    body |= ({"reason": reason} if reason is not None else {}) | ({"warnings": warnings} if warnings else {})
    status = 200 if reason is None else 503
    return Response(json.dumps(body) + "\n", status, media_type="application/json")
