"""The HTTP door as an ASGI application: it answers a report with 204 once the broker has acknowledged it.

`hushmote door` serves it on its own. It can also be mounted in another ASGI application, at /v1:

    publisher = ReportPublisher(parse_broker_url("mqtt://localhost"), tls=None, fleets=None)
    app.mount("/v1", door_application(publisher))      # Starlette, FastAPI, nicegui.app
    app.on_startup(publisher.start)                    # or: with publisher: ... around the server
    app.on_shutdown(publisher.stop)

Paths: POST /v1/FLEET/report/DEVICE, GET /v1/FLEET/experiment, GET /v1/FLEET/experiment/NAME,
GET /v1/FLEET/proof/NAME and GET /v1/FLEET/result/NAME. GET /healthz and GET /metrics are outside /v1, so they
are available only if the door is served on its own. The door answers a report with 503 while there is no
connection to the broker, and if no aggregator has ever subscribed (the broker then drops the reports it
acknowledges). It never answers 404, by which devices end an experiment, before the broker has had the time to
send its retained messages: until then, the answer is 503. `access` says who may use the door. By default,
anyone who can reach it may, but only web pages from its own host.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Match, Route

from ...server.service.http_endpoint import METRICS_TYPE, health
from ...server.service.log_files import PATH as LOG_PATH
from ...server.service.log_files import LogFiles
from ...server.service.request_body import read_body
from ...server.wire.topics import NameRefused, check_device, is_fleet, report_topic
from . import body
from .access import Access
from .limits import Buckets, Rates, client_of
from .metrics import DoorNumbers
from .publisher import Outcome, ReportPublisher

MARK = "hushmote-door"  # the header of the door's own answers, which a captive portal or another server lacks

_PATHS = (
    "there is POST /v1/FLEET/report/DEVICE, GET /v1/FLEET/experiment, GET /v1/FLEET/experiment/NAME, "
    "GET /v1/FLEET/proof/NAME and GET /v1/FLEET/result/NAME"
)
_AGAIN_S = 2
_AGAIN = "send the same bytes again later: a report is counted only once"
_FAILURES = {
    Outcome.AWAY: f"the broker is unreachable; {_AGAIN}",
    Outcome.LATE: f"the broker did not acknowledge the report in time; {_AGAIN}",
    Outcome.FULL: f"too many reports are in flight; {_AGAIN}",
    Outcome.REFUSED: f"the broker does not let the door publish this report; {_AGAIN}",
    Outcome.UNCOUNTED: f"no aggregator has ever subscribed on the broker; {_AGAIN}",
}


_NO_PROOFS = "this door does not serve proofs of a public log: its operator can start it with --proofs"
_INCOMPLETE = "the door has just connected, and the broker may not have sent everything yet; try again later"


def door_application(
    publisher: ReportPublisher,
    *,
    access: Access | None = None,
    rates: Rates | None = None,
    clock: Callable[[], float] = time.monotonic,
    log: LogFiles | None = None,
) -> Door:
    """Return the ASGI application that passes reports to a publisher.

    Args:
        publisher: The publisher, which the caller must start.
        access: Access rules; everyone may use the door by default.
        rates: Rate limits.
        clock: Monotonic seconds, for the rate limits.
        log: The log's files, for GET /log/...; None if there is no log.
    """
    return Door(publisher, access or Access(), rates or Rates(), clock, log)


class Door:
    """The ASGI application; `answers` counts responses by (method, status)."""

    def __init__(
        self,
        publisher: ReportPublisher,
        access: Access,
        rates: Rates,
        clock: Callable[[], float],
        log: LogFiles | None = None,
    ) -> None:
        self._publisher = publisher
        self._access = access
        self._of_device = Buckets(rates.device, clock)
        self._of_address = Buckets(rates.address, clock)
        self._of_all = Buckets(rates.total, clock)
        self._routes = [
            Route("/healthz", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/{fleet}/experiment", self._names),
            Route("/v1/{fleet}/experiment/{name}", self._experiment),
            Route("/v1/{fleet}/proof/{name}", self._proof),
            Route("/v1/{fleet}/result/{name}", self._result),
            Route("/v1/{fleet}/report/{device}", self._report, methods=["POST"]),
            Route("/v1/{fleet}/report", self._report, methods=["POST"]),
            Route("/v1/{fleet}/report/", self._report, methods=["POST"]),  # the device's name is empty
        ]
        self._log = log
        if log is not None:
            self._routes.append(Route(f"{LOG_PATH}{{path:path}}", self._log_file))
        self.answers: Counter[tuple[str, int]] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        # Match the raw path, which includes /v1 if the door is mounted there; valid names need no decoding.
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        scope = scope | {"path": path, "root_path": scope.get("root_path", "").removesuffix("/v1")}
        request = Request(scope, receive)
        is_own_path = True
        try:
            answer = await self._answer(request)
        except HTTPException as e:
            is_own_path = e.detail != _PATHS
            text = f"{e.detail}\n".encode("utf-8", "replace")
            answer = PlainTextResponse(text, e.status_code, e.headers)
        except ClientDisconnect:
            return
        method = request.method if request.method in ("GET", "HEAD", "OPTIONS", "POST") else "other"
        self.answers[method, answer.status_code] += 1
        answer.headers.update({"x-content-type-options": "nosniff", "cache-control": "no-store"})
        if is_own_path:
            answer.headers[MARK] = "1"
        if (origin := request.headers.get("origin")) in self._access.origins:
            answer.headers.update({"access-control-allow-origin": origin, "vary": "Origin"})
            answer.headers["access-control-expose-headers"] = "Retry-After, Hushmote-Door"
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        matches = ((route, *route.matches(request.scope)) for route in self._routes)
        route, match, names = next((f for f in matches if f[1] is not Match.NONE), (None, None, {}))
        if route is None:
            _refuse(404, _PATHS)
        allowed = ", ".join(sorted(route.methods or ()))
        if not self._access.is_host_allowed(request.headers):
            hosts = " or ".join(sorted(self._access.hosts or ()))
            _refuse(403, f"this door answers to the name {hosts}; the request's Host is different")
        if not self._access.is_origin_allowed(request.headers):
            _refuse(
                403,
                "web pages from this origin may not use the door: its operator can allow them with --origin",
            )
        if request.method == "OPTIONS" and "origin" in request.headers:
            preflight = {"methods": allowed, "headers": "content-type, authorization"}
            headers = {f"access-control-allow-{name}": value for name, value in preflight.items()}
            return Response(None, 204, headers | {"access-control-max-age": "600"})
        if match is Match.PARTIAL:
            _refuse(405, f"only {allowed.partition(',')[0]} is allowed here", allow=allowed)
        request.scope.update(names)
        return await route.endpoint(request)

    async def _health(self, _request: Request) -> Response:
        return health(self._publisher.unavailable_reason)

    async def _metrics(self, request: Request) -> Response:
        self._admit(request)
        numbers = DoorNumbers(self.answers, self._publisher.in_flight, self._publisher.ready.is_set())
        return Response(numbers.text(), media_type=METRICS_TYPE)

    async def _log_file(self, request: Request) -> Response:
        assert self._log is not None  # only then is there a route
        self._take_from_address(request)
        return await self._log.answer(request.path_params["path"])

    async def _names(self, request: Request) -> Response:
        self._admit(request)
        fleet = self._fleet(request)
        names = self._publisher.retained.experiments(fleet)
        self._check_complete()
        return Response(json.dumps(names) + "\n", media_type=body.JSON)

    async def _experiment(self, request: Request) -> Response:
        return Response(self._retained(request, "experiment"), media_type=body.RAW)

    async def _proof(self, request: Request) -> Response:
        if not self._publisher.serves_proofs:
            self._admit(request)
            _refuse(404, _NO_PROOFS)
        return Response(self._retained(request, "proof"), media_type=body.RAW)

    async def _result(self, request: Request) -> Response:
        return Response(self._retained(request, "result"), media_type=body.JSON)

    def _retained(self, request: Request, kind: str) -> bytes:
        self._admit(request)
        fleet = self._fleet(request)
        content = self._publisher.retained.get(kind, fleet, request.path_params["name"])
        if content is None:
            self._refuse_absent(f"the fleet {fleet} has no such {kind} on the broker")
        return content

    async def _report(self, request: Request) -> Response:
        client, fleet = self._admit(request), self._fleet(request)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (body.RAW, body.JSON):
            _refuse(415, f"the Content-Type must be {body.RAW}, or {body.JSON} from a LoRaWAN server")
        content, device = await read_body(request, body.MAX_BYTES[kind]), request.path_params.get("device")
        try:
            if kind == body.JSON:
                named, content = body.uplink(content)
                device = named if device is None else device
            payload = body.check(content)
            topic = report_topic(fleet, check_device(device or ""))
        except body.NoPayload as e:
            return PlainTextResponse(f"nothing was published: {e}\n")
        except (body.BodyRefused, NameRefused) as e:
            _refuse(400, str(e))
        # The report is not authenticated yet, so a stranger must not be able to use up the device's rate.
        self._take(self._of_device, (client, topic), "this device from this address")
        self._take(self._of_all, None, "all devices")
        outcome = await self._publisher.publish(topic, payload)
        if outcome is not Outcome.RECEIVED:
            _again(503, _FAILURES[outcome], _AGAIN_S)
        return Response(None, 204)

    def _admit(self, request: Request) -> str:
        """Return the client's key; refuse clients that send too often or have no valid token."""
        client = self._take_from_address(request)
        if not self._access.has_valid_token(request.headers):
            text = "the token is missing or wrong: send Authorization: Bearer TOKEN"
            raise HTTPException(401, text, {"www-authenticate": "Bearer"})
        return client

    def _take_from_address(self, request: Request) -> str:
        """Return the client's key; refuse clients that send too often."""
        client = client_of(self._access.address(request.client, request.headers.getlist("x-forwarded-for")))
        self._take(self._of_address, client, "this address")
        return client

    def _fleet(self, request: Request) -> str:
        """Return the name of the request's fleet; refuse unknown fleets."""
        fleet = request.path_params["fleet"]
        if fleet not in self._publisher.retained.fleets:
            if not is_fleet(fleet):
                _refuse(400, "the fleet's name must be 1 to 32 of a-z, 0-9, _ and -")
            if not self._publisher.ready.is_set():
                _again(503, _FAILURES[Outcome.AWAY], _AGAIN_S)
            self._refuse_absent(f"unknown fleet {fleet}: it has no experiment on the broker")
        return fleet

    def _refuse_absent(self, text: str) -> NoReturn:
        """Refuse a request for something that the broker does not retain, once that is certain."""
        self._check_complete()
        _refuse(404, text)

    def _check_complete(self) -> None:
        if not self._publisher.is_complete:
            _again(503, _INCOMPLETE, _AGAIN_S)

    def _take(self, buckets: Buckets, key: object, source: str) -> None:
        wait_s = buckets.take(key)
        if wait_s:
            _again(429, f"too many requests from {source}; {_AGAIN}", wait_s)


def _refuse(status: int, text: str, **headers: str) -> NoReturn:
    raise HTTPException(status, text, headers)


def _again(status: int, text: str, after_s: int) -> NoReturn:
    raise HTTPException(status, text, {"retry-after": str(after_s)})
