"""The HTTP door as an ASGI application: a report in, 204 once the broker has acknowledged it.

By itself, `hushmote door` serves it. Inside another ASGI application, mounted at /v1 as it names its paths:

    publisher = ReportPublisher(parse_broker_url("mqtt://localhost"), tls=None, fleets=None)
    app.mount("/v1", door_application(publisher))      # Starlette, FastAPI, nicegui.app
    app.on_startup(publisher.start)                    # or: with publisher: ... around the server
    app.on_shutdown(publisher.stop)

Paths: POST /v1/FLEET/report/DEVICE, GET /v1/FLEET/experiment, GET /v1/FLEET/experiment/NAME and
GET /v1/FLEET/result/NAME; outside of /v1, so only by itself, GET /healthz and GET /metrics. Until the
publisher has read what the broker retains, and while the broker is away, a report is answered 503; so it is
where no aggregator has ever subscribed at the broker, which then drops what it acknowledges.
`access` says who may use it; the default is anybody who reaches it, from web pages of its own host alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from ..service.http_endpoint import METRICS_TYPE, health
from ..wire.topics import NameRefused, check_device, is_fleet, report_topic
from . import body
from .access import Access, Headers
from .limits import Buckets, Rates, client_of
from .metrics import DoorNumbers
from .publisher import Published, ReportPublisher

BODY_S = 8.0  # within which a body must have come

_TEXT = "text/plain; charset=utf-8"
_PATHS = (
    "there is POST /v1/FLEET/report/DEVICE, GET /v1/FLEET/experiment, GET /v1/FLEET/experiment/NAME and "
    "GET /v1/FLEET/result/NAME"
)
_AGAIN_S = 2
_AGAIN = "send the same bytes again later: a report is counted once"
_FAILURES = {
    Published.AWAY: f"the broker is away; {_AGAIN}",
    Published.LATE: f"the broker did not acknowledge the report in time; {_AGAIN}",
    Published.FULL: f"too many reports are under way; {_AGAIN}",
    Published.REFUSED: f"the broker does not let the door publish this report; {_AGAIN}",
    Published.UNCOUNTED: f"no aggregator has ever subscribed at the broker; {_AGAIN}",
}


class HttpAnswer(NamedTuple):
    """What is answered: status, content and its type, and further headers."""

    status: int
    content: bytes = b""
    kind: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


class _Refused(Exception):
    """A request that ends with this answer."""

    def __init__(self, reply: HttpAnswer) -> None:
        super().__init__(reply.status)
        self.reply = reply


class _Gone(Exception):
    """The client went away before its request was complete."""


def door_application(
    publisher: ReportPublisher,
    *,
    access: Access | None = None,
    rates: Rates | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Door:
    """Return the ASGI application that hands reports to a publisher, which has to be started.

    access: who may use it; the default is anybody. rates: what is let in, requests a second. clock: of the
    rates, monotonic seconds.
    """
    return Door(publisher, access or Access(), rates or Rates(), clock)


class Door:
    """The ASGI application; answers: how often which (method, status) was answered."""

    def __init__(
        self, publisher: ReportPublisher, access: Access, rates: Rates, clock: Callable[[], float]
    ) -> None:
        self._publisher = publisher
        self._access = access
        self._of_device = Buckets(rates.device, clock)
        self._of_address = Buckets(rates.address, clock)
        self._of_all = Buckets(rates.total, clock)
        self.answers: Counter[tuple[str, int]] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        if scope["type"] != "http":
            return
        headers: Headers = dict(scope["headers"])
        try:
            reply = await self._answer(scope, headers, receive)
        except _Refused as e:
            reply = e.reply
        except _Gone:
            return
        method = scope["method"] if scope["method"] in ("GET", "HEAD", "OPTIONS", "POST") else "other"
        self.answers[method, reply.status] += 1
        more = [*reply.headers, ("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
        if reply.status != 204:  # which has no content
            more += [("content-type", reply.kind), ("content-length", str(len(reply.content)))]
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self._access.origins:
            more += [("access-control-allow-origin", origin), ("vary", "Origin")]
            more += [("access-control-expose-headers", "Retry-After")]
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in more]
        await send({"type": "http.response.start", "status": reply.status, "headers": encoded})
        await send({"type": "http.response.body", "body": reply.content})

    async def _answer(self, scope: Any, headers: Headers, receive: Any) -> HttpAnswer:
        method, parts = scope["method"], _path(scope)
        match parts:
            case ["healthz"] | ["metrics"] | ["v1", _, "experiment"] | ["v1", _, "experiment" | "result", _]:
                allowed = ("GET", "HEAD")
            case ["v1", _, "report"] | ["v1", _, "report", _]:
                allowed = ("POST",)
            case _:
                _refuse(404, _PATHS)
        if not self._access.host_allowed(headers):
            names = " or ".join(sorted(self._access.hosts or ()))
            _refuse(403, f"this door is asked by the name {names}; the request's Host is another")
        if not self._access.origin_allowed(headers):
            _refuse(
                403, "web pages of this origin may not use the door: its operator names them with --origin"
            )
        if method == "OPTIONS" and b"origin" in headers:
            names = (("methods", ", ".join(allowed)), ("headers", "content-type, authorization"))
            more = tuple((f"access-control-allow-{name}", value) for name, value in names)
            return HttpAnswer(204, headers=(*more, ("access-control-max-age", "600")))
        if method not in allowed:
            _refuse(405, f"there is only {allowed[0]} here", ("allow", ", ".join(allowed)))
        if parts == ["healthz"]:
            status, content = health(self._publisher.trouble)
            return HttpAnswer(status, content, "application/json")
        client = client_of(self._access.address(scope.get("client"), headers))
        self._take(self._of_address, client, "this address")
        if not self._access.token_right(headers):
            _refuse(401, "the token is missing or wrong: send Authorization: Bearer TOKEN", _BEARER)
        if parts == ["metrics"]:
            numbers = DoorNumbers(self.answers, self._publisher.in_flight, self._publisher.ready.is_set())
            return HttpAnswer(200, numbers.text(), METRICS_TYPE)
        fleet, name = parts[1], parts[3] if len(parts) == 4 else None
        self._check(fleet)
        if parts[2] == "report":
            return await self._report(client, fleet, name, headers, receive)
        return self._read(fleet, parts[2], name)

    def _check(self, fleet: str) -> None:
        """Refuse a fleet that is not known."""
        if fleet in self._publisher.retained.known:
            return
        if not is_fleet(fleet):
            _refuse(400, "the fleet's name must be 1 to 32 of a-z, 0-9, _ and -")
        if not self._publisher.ready.is_set():
            _again(503, _FAILURES[Published.AWAY], _AGAIN_S)
        _refuse(404, f"the fleet {fleet} is not known here: it has no experiment at the broker")

    def _read(self, fleet: str, kind: str, name: str | None) -> HttpAnswer:
        retained = self._publisher.retained
        if name is None:
            return HttpAnswer(200, json.dumps(retained.experiments(fleet)).encode() + b"\n", body.JSON)
        content = retained.get(kind, fleet, name)
        if content is None:
            _refuse(404, f"the fleet {fleet} has no such {kind} at the broker")
        return HttpAnswer(200, content, body.RAW if kind == "experiment" else body.JSON)

    async def _report(
        self, client: str, fleet: str, device: str | None, headers: Headers, receive: Any
    ) -> HttpAnswer:
        """Check a report and publish it."""
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        if kind not in (body.RAW, body.JSON):
            _refuse(415, f"the Content-Type must be {body.RAW}, or {body.JSON} of a LoRaWAN server")
        content = await _content(headers, receive, body.MOST_BYTES[kind])
        try:
            if kind == body.JSON:
                named, content = body.uplink(content)
                device = named if device is None else device
            payload = body.check(content)
            topic = report_topic(fleet, check_device(device or ""))
        except body.NoPayload as e:
            return HttpAnswer(200, f"nothing was published: {e}\n".encode())
        except (body.BodyRefused, NameRefused) as e:
            _refuse(400, str(e))
        # Nothing proves yet that the device sent it: a stranger must not use up the device's own rate.
        self._take(self._of_device, (client, topic), "this device from this address")
        self._take(self._of_all, None, "all devices")
        published = await self._publisher.publish(topic, payload)
        if published is not Published.RECEIVED:
            _again(503, _FAILURES[published], _AGAIN_S)
        return HttpAnswer(204)

    def _take(self, buckets: Buckets, key: object, whose: str) -> None:
        wait_s = buckets.take(key)
        if wait_s:
            _again(429, f"too many requests of {whose}; {_AGAIN}", wait_s)


_BEARER = ("www-authenticate", "Bearer")


def _refuse(status: int, text: str, *headers: tuple[str, str]) -> NoReturn:
    raise _Refused(HttpAnswer(status, text.encode("utf-8", "replace") + b"\n", headers=headers))


def _again(status: int, text: str, after_s: int) -> NoReturn:
    _refuse(status, text, ("retry-after", str(after_s)))


def _path(scope: Any) -> list[str]:
    """The path's parts after its first slash, as they were sent: in no name is anything to be decoded."""
    raw = scope.get("raw_path") or scope["path"].encode()
    prefix = scope.get("root_path", "").removesuffix("/v1").encode()
    return raw.removeprefix(prefix).decode("latin-1").split("/")[1:]


async def _content(headers: Headers, receive: Any, most: int) -> bytes:
    """The body, of which no more than `most` bytes are held; _Gone where its sender went away."""
    # What was not read cannot be followed by another request.
    close = ("connection", "close")
    too_long = f"the body is too long: it may have {most} bytes"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit():
        _refuse(400, "the Content-Length must be a number", close)
    if len(length) > 9 or int(length) > most:
        _refuse(413, too_long, close)
    content = b""
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                content += message.get("body", b"")
                if len(content) > most:
                    _refuse(413, too_long, close)
                if not message.get("more_body"):
                    return content
    except TimeoutError:
        _refuse(408, f"the body did not come within {BODY_S:g} s", close)
