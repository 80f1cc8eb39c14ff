"""Boards on CPython that reach a real mosquitto over WebSocket, with and without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from boards import MemoryStorage, ask_fleet, experiment
from certificates import Authority
from running_aggregator import WAIT_S, running, until
from traffic import counted_reports

from hushmote.device import ldp_client
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.websocket_reporter import WebSocketReporter, _Stream
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port

POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 4_000_000,
    "rules": ("sum", "count"),
    "experiments": ("temp",),
}
pytestmark = pytest.mark.broker
FAST = {"delay_s": 0, "spread_s": 1, "backoff_s": 1, "backoff_max_s": 1, "settle_s": 1}


class Broker(MosquittoBroker):
    """mosquitto with listeners for WebSocket; it cannot bind them to an address."""

    def __init__(self, folder: Path) -> None:
        self.ca = Authority(folder)
        certificate, key = self.ca.sign("broker", "localhost")
        self.ports = {"ws": free_port(), "wss": free_port()}
        lines = ["allow_anonymous true"]
        for port in self.ports.values():
            lines += [f"listener {port}", "protocol websockets", "allow_anonymous true"]
        super().__init__(settings=(*lines, f"certfile {certificate}", f"keyfile {key}"))

    def web_url(self, scheme: str) -> str:
        return f"{scheme}://localhost:{self.ports[scheme]}/mqtt"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        yield broker


@pytest.fixture
def start() -> Iterator[Callable[..., WebSocketReporter]]:
    """Provide a function that runs a board's reporter in a thread."""
    with contextlib.ExitStack() as running_boards:

        def start(url: str, **options: Any) -> WebSocketReporter:
            storage = MemoryStorage()
            ldp_client.provision(storage, consent=True)
            client = ldp_client.Client(POLICY, storage, "k3f9x1", fleet="open")
            reporter = WebSocketReporter(client, url, kept=KeptExperiments(client, None), **FAST | options)
            thread = threading.Thread(target=lambda: asyncio.run(reporter.run()))
            thread.start()
            running_boards.callback(thread.join, WAIT_S)
            running_boards.callback(reporter.stop)
            return reporter

        yield start


def enrolled(reporter: WebSocketReporter) -> bool:
    return reporter._client.status()["experiments"]["temp"]["state"] == "reporting"


class TestReports:
    @pytest.mark.parametrize("scheme", ["ws", "wss"])
    def test_are_counted(self, broker: Broker, store: Store, start: Any, scheme: str) -> None:
        ask_fleet(store, "open", experiment())
        tls = ssl.create_default_context(cafile=broker.ca.file) if scheme == "wss" else None
        with running(store, broker):
            reporter = start(broker.web_url(scheme), tls=tls)
            until(lambda: enrolled(reporter), reporter.status)
            for value in (20.0, None, 3.0):
                assert reporter.report("temp", value)
            until(lambda: counted_reports(store) == 3, reporter.status)
            assert reporter.connects == 1

    def test_are_kept_and_sent_after_a_restart(self, broker: Broker, store: Store, start: Any) -> None:
        ask_fleet(store, "open", experiment())
        with running(store, broker):
            reporter = start(broker.web_url("ws"))
            until(lambda: enrolled(reporter), reporter.status)
            broker.terminate()
            until(lambda: not reporter.connected, reporter.status)
            assert reporter.report("temp", 20.0)
            broker.start()
            until(lambda: counted_reports(store) == 1, reporter.status)
            assert reporter.connects == 2


class Refusal(BaseHTTPRequestHandler):
    """A web server without MQTT."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: Any) -> None:
        pass


class TestStatus:
    def test_names_rejected_certificate(self, broker: Broker, start: Any) -> None:
        reporter = start(broker.web_url("wss"))
        words = "the broker's certificate was rejected: certificate verify failed: "
        until(lambda: words in reporter.status(), reporter.status)

    def test_names_answer_of_other_web_server(self, start: Any) -> None:
        with HTTPServer(("127.0.0.1", 0), Refusal) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            reporter = start(f"ws://127.0.0.1:{server.server_port}")
            words = "the server answered 'HTTP/1.0 404 Not Found' at /mqtt"
            until(lambda: words in reporter.status(), reporter.status)
            server.shutdown()

    def test_port_without_websocket_is_one_line(self, broker: Broker, start: Any) -> None:
        reporter = start(f"ws://127.0.0.1:{broker.port}/mqtt")
        until(lambda: "the broker closed the connection" in reporter.status(), reporter.status)

    @pytest.mark.parametrize(
        ("url", "words"),
        [
            ("mqtt://localhost", "write the broker as wss://host"),
            ("wss:///mqtt", "write the broker as wss://host"),
            ("wss://me@localhost", "pass user, password"),
            ("wss://localhost:99999", "write the broker as wss://host"),
            ("wss://localhost/mqtt?prefix=a", "topic_prefix"),
            ("https://localhost:443/mqtt", "write the broker as wss://host"),
            ("mqtts://localhost:8883", "write the broker as wss://host"),
            ("wss://localhost:0", "write the broker as wss://host"),
            ("wss://localhost,other/mqtt", "write the broker as wss://host"),
            ("wss://localhost/my mqtt", "write the broker as wss://host"),
            ("wss://bücher.example", "in ASCII"),
        ],
    )
    def test_wrong_url_is_refused(self, start: Any, url: str, words: str) -> None:
        with pytest.raises(ldp_client.SettingsError, match=words):
            start(url)


class TestFrames:
    def test_arrive_in_any_pieces(self) -> None:
        """Fragments, a ping between them, and lengths in each form, byte by byte."""
        long = bytes(range(256)) * 300
        sent = [b"\x02\x03abc", b"\x89\x02hi", b"\x80\x00", b"\x00\x01d"]
        sent += [
            b"\x82\x7e\x00\x80" + long[:128],
            b"\x82\x7f" + len(long).to_bytes(8, "big") + long,
            b"\x88\x00",
        ]
        answers: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for byte in b"".join(sent[:5]):
                writer.write(bytes((byte,)))
                await writer.drain()
            writer.write(b"".join(sent[5:]))
            answers.append(await reader.read())
            writer.close()

        async def receive() -> AsyncIterator[bytes]:
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            stream = _Stream(*await asyncio.open_connection(*server.sockets[0].getsockname()), b"")
            while data := await stream.read(512):
                assert len(data) <= 512
                yield data
            stream.close()
            await stream.wait_closed()
            server.close()
            until_answered = asyncio.get_running_loop().time() + WAIT_S
            while not answers and asyncio.get_running_loop().time() < until_answered:
                await asyncio.sleep(0.01)

        async def collect() -> bytes:
            return b"".join([data async for data in receive()])

        assert asyncio.run(collect()) == b"abcd" + long[:128] + long
        (answer,) = answers
        assert answer[:2] == b"\x8a\x82"
        assert bytes(a ^ b for a, b in zip(answer[2:6], answer[6:8], strict=False)) == b"hi"
        assert answer[8:10] == b"\x88\x82"

    @pytest.mark.parametrize("sent", [b"\x81\x01a", b"\xc2\x01a", b"\x8a\x7e\x00\x02", b"\x82\x81\0\0\0\0a"])
    def test_other_frames_are_refused(self, sent: bytes) -> None:
        async def read() -> None:
            reader = asyncio.StreamReader()
            reader.feed_data(sent)
            reader.feed_eof()
            server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await _Stream(reader, writer, b"").read(10)
            finally:
                writer.close()
                server.close()

        with pytest.raises(ValueError, match="not MQTT"):
            asyncio.run(read())
