"""An in-process HTTP door on a real broker, and clients that write HTTP byte by byte."""

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from running_aggregator import WAIT_S, until

from hushmote.fleet.door.access import Access
from hushmote.fleet.door.app import Door, door_application
from hushmote.fleet.door.limits import Rate, Rates
from hushmote.fleet.door.publisher import ReportPublisher
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.service.bounded_http import BoundedServer
from hushmote.server.service.log_files import LogFiles

RAW = "application/octet-stream"
WIDE = Rates(Rate(1e6, 1_000_000), Rate(1e6, 1_000_000), Rate(1e6, 1_000_000))


@dataclass(frozen=True)
class Response:
    """A door's response."""

    status: int
    content: bytes
    headers: dict[str, str]

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Opened:
    """A running door."""

    port: int
    door: Door
    publisher: ReportPublisher

    def ask(
        self, method: str, path: str, content: bytes | None = None, kind: str | None = RAW, **headers: str
    ) -> Response:
        """Send a request on a new connection; underscores in header names become hyphens."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        if content is not None and kind is not None:
            more |= {"Content-Type": kind}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, content, more)
            answer = connection.getresponse()
            fields = {name.lower(): value for name, value in answer.getheaders()}
            return Response(answer.status, answer.read(), fields)
        finally:
            connection.close()

    def report(self, device: str, payload: bytes, fleet: str = "open", **headers: str) -> Response:
        return self.ask("POST", f"/v1/{fleet}/report/{device}", payload, **headers)

    def accepts(self, device: str, payload: bytes, fleet: str = "open") -> Callable[[], bool]:
        """Return a function that sends a report and returns whether the door has accepted it yet."""

        def accepted() -> bool:
            answer = self.report(device, payload, fleet)
            assert answer.status in (204, 503), answer.text
            return answer.status == 204

        return accepted

    def raw(self, sent: bytes) -> bytes:
        """Send bytes on a new connection and return everything received until it is closed."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S) as s:
            s.sendall(sent)
            return receive_all(s)


def receive_all(s: socket.socket) -> bytes:
    """Return everything received until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := s.recv(65_536):
            received += piece
    return received


def statuses(received: bytes) -> list[int]:
    """Return the statuses of the responses that a connection received."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


@contextlib.contextmanager
def open_door(
    broker: Any,
    *,
    access: Access | None = None,
    rates: Rates = WIDE,
    most_connections: int = 512,
    ready: bool = True,
    log: LogFiles | None = None,
    **options: Any,
) -> Iterator[Opened]:
    """Run a door on a broker; ready: whether to wait until it accepts reports.

    mosquitto sends its retained messages before its answers, so nothing needs to wait for a quiet time.
    """
    patient: dict[str, Any] = {"puback_s": WAIT_S, "hung_s": WAIT_S, "quiet_s": 0.0}
    address = options.pop("address", BrokerAddress("127.0.0.1", broker.port))
    publisher = ReportPublisher(address, **patient | options)
    door = door_application(publisher, access=access, rates=rates, log=log)
    with publisher, BoundedServer("127.0.0.1", 0, door, most_connections=most_connections) as server:
        if ready:
            until(publisher.ready.is_set, "the door is ready")
        yield Opened(server.port, door, publisher)
