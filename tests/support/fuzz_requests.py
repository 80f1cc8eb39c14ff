"""Malformed requests to the HTTP door, and the checks on their answers.

A request is mostly a valid one whose path, headers or body are mutated. It must be answered with a documented
status, a refusal in one line of text. What the door passes to its publisher must be a well-formed report on a
well-formed topic of a known fleet, byte for byte as received, and only if the answer is 204. It must accept
every request that an independent parser accepts.
"""

import base64
import contextlib
import json
import re
from collections import Counter
from random import Random
from typing import Any, NamedTuple

from fuzz_inputs import DEVICES, make_report, mutate, no_hang, odd_value

from hushmote.fleet.door import body
from hushmote.fleet.door.access import LOOPBACK, Access
from hushmote.fleet.door.app import door_application
from hushmote.fleet.door.limits import Rate, Rates
from hushmote.fleet.door.publisher import Outcome, ReportPublisher
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.service.tokens import Tokens

STATUSES = {200, 204, 400, 401, 403, 404, 405, 413, 415}
FLEETS = ("home", "away_1")
TOKEN = "0123456789abcdef"
ORIGIN = "https://board.example"
_TOPIC = re.compile("hushmote/v1/(home|away_1)/report/[a-z0-9-]{1,32}")
_PATH = re.compile(rb"/v1/(home|away_1)/report/[a-z0-9-]{1,32}")
_ANY = Rate(1e9, 1_000_000_000)


class Request(NamedTuple):
    """A request as a server passes it to the application, with the body in chunks."""

    method: str
    path: bytes
    headers: list[tuple[bytes, bytes]]
    pieces: list[bytes]


class Recorder(ReportPublisher):
    """A publisher that is always connected and records its messages."""

    def __init__(self) -> None:
        super().__init__(BrokerAddress("localhost"), fleets=FLEETS)
        self.ready.set()
        self._was_complete = True
        self.retained.take("hushmote/v1/home/experiment/temp", b"{}")
        self.taken: list[tuple[str, bytes]] = []

    async def publish(self, topic: str, payload: bytes) -> Outcome:
        self.taken.append((topic, payload))
        return Outcome.RECEIVED


def well_formed(payload: bytes) -> bool:
    """Return whether these bytes are a report, parsed independently from docs/wire-format.md."""
    code_bytes = len(payload) - 9 - (8 if payload[:1] == b"\x11" else 0)
    return payload[:1] in (b"\x10", b"\x11") and 1 <= code_bytes <= 3 and payload[5:9] != bytes(4)


def decoded(text: bytes) -> bytes:
    """Return the bytes of a base64 string, or b"" if it is not base64."""
    with contextlib.suppress(ValueError):
        return base64.b64decode(text)
    return b""


def make_document(rng: Random, payload: bytes) -> bytes:
    """Return a LoRaWAN server's document, mutated in its fields or its bytes."""
    encoded = base64.b64encode(payload).decode()
    device: Any = rng.choice(DEVICES)
    things = {"end_device_ids": {"device_id": device}, "uplink_message": {"frm_payload": encoded}}
    chirp = {"deviceInfo": {"deviceName": device, "tags": {}}, "data": encoded, "fPort": 1}
    fields: dict[str, Any] = rng.choice((things, chirp, things | chirp))
    if rng.randint(0, 2) == 0:
        name = rng.choice((*fields, "extra"))
        fields = fields | {name: odd_value(rng, [device, encoded, {}, []])}
    return mutate(rng, json.dumps(fields).encode()) if rng.randint(0, 1) else json.dumps(fields).encode()


def make_request(rng: Random) -> Request:
    """Return a request to any of the door's paths, mostly a report."""
    fleet, device = rng.choice(FLEETS), rng.choice(DEVICES)
    others = (
        f"/v1/{fleet}/report",
        f"/v1/{fleet}/experiment/temp",
        "/metrics",
        "/healthz",
        f"/v1/{fleet}/result/x",
    )
    path = f"/v1/{fleet}/report/{device}" if rng.randint(0, 3) else rng.choice(others)
    raw = path.encode() if rng.randint(0, 2) else mutate(rng, path.encode())
    content, kind = make_report(rng), body.RAW
    if rng.randint(0, 2) == 0:
        content, kind = make_document(rng, content), body.JSON
    headers = [(b"content-type", kind.encode()), (b"host", b"localhost:9418")]
    headers.append((b"authorization", f"Bearer {TOKEN}".encode()))
    if rng.randint(0, 4) == 0:
        headers.append(
            (b"content-length", str(rng.choice((len(content), 0, 20, 21, 65_537, 10**30))).encode())
        )
    if rng.randint(0, 4) == 0:
        headers.append(
            (b"origin", rng.choice((ORIGIN, "http://localhost:9418", "null", "https://x.y")).encode())
        )
    if rng.randint(0, 3) == 0:
        at = rng.randint(0, len(headers) - 1)
        headers[at] = headers[at][0], mutate(rng, headers[at][1])
    cut = rng.randint(0, len(content))
    pieces = [content] if rng.randint(0, 1) else [content[:cut], content[cut:]]
    method = rng.choice((*["POST"] * 15, "GET", "HEAD", "OPTIONS", "PUT", "é"))
    return Request(method, raw, headers, pieces)


class Asked:
    """A door under test; answers: the number of responses by status."""

    def __init__(self) -> None:
        self._publisher = Recorder()
        access = Access(Tokens({"lora": TOKEN}), LOOPBACK, frozenset({ORIGIN}), trust_proxy=True)
        self._door = door_application(self._publisher, access=access, rates=Rates(_ANY, _ANY, _ANY))
        self.answers = Counter[int]()

    async def check(self, request: Request) -> None:
        """Send a request; raise AssertionError if the answer or the published message is wrong."""
        sent: list[dict[str, Any]] = []
        pieces = [{"type": "http.request", "body": piece, "more_body": True} for piece in request.pieces]
        pieces[-1]["more_body"] = False
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.path.decode("latin-1"),
            "raw_path": request.path,
            "headers": request.headers,
            "client": ("192.0.2.1", 1),
        }

        async def receive() -> dict[str, Any]:
            return pieces.pop(0) if pieces else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        self._publisher.taken.clear()
        await self._door(scope, receive, send)
        start, content = sent
        status, taken = start["status"], self._publisher.taken
        self.answers[status] += 1
        assert status in STATUSES, status
        kind = dict(start["headers"]).get(b"content-type", b"")
        if status >= 400:
            assert kind == b"text/plain; charset=utf-8", kind
            assert content["body"].endswith(b"\n"), content
            assert content["body"].count(b"\n") == 1, content
        assert len(taken) == (status == 204 and request.method == "POST"), (status, taken)
        whole, headers = b"".join(request.pieces), dict(request.headers)
        for topic, payload in taken:
            assert _TOPIC.fullmatch(topic), topic
            assert well_formed(payload), payload
            if headers[b"content-type"].startswith(body.RAW.encode()):
                assert payload == whole
            else:
                texts = re.findall(rb"[A-Za-z0-9+/]+={0,2}", whole)
                assert payload in map(decoded, texts) or b"\\" in whole  # JSON can write it in escapes
        plain = [name for name, _ in request.headers] == [b"content-type", b"host", b"authorization"]
        is_authorized = plain and headers[b"authorization"] == f"Bearer {TOKEN}".encode()
        is_authorized &= (
            headers[b"host"] == b"localhost:9418" and headers[b"content-type"] == body.RAW.encode()
        )
        if (
            is_authorized
            and request.method == "POST"
            and _PATH.fullmatch(request.path)
            and well_formed(whole)
        ):
            assert status == 204, status


async def run(inputs: int, seed: int) -> Counter[int]:
    """Make and check requests; returns the answers by status."""
    requests, rng = Asked(), Random(seed)  # noqa: S311
    for _ in range(inputs):
        request = make_request(rng)
        with no_hang():
            await requests.check(request)
    return requests.answers
