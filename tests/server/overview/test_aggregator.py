"""The health of a real or fake aggregator at an address."""

import contextlib
import socket
import threading
import time

import pytest
from boards import experiment, reports
from running_aggregator import WAIT_S, until
from serve_process import add_fleet, served
from traffic import publish

from hushmote.server.errors import UsageError
from hushmote.server.overview.aggregator import ask, check_url
from hushmote.server.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker, free_port


def test_reports_health_while_the_broker_comes_and_goes(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        add_fleet(store)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    assert ask(url, WAIT_S).words == f"The aggregator at {url} does not answer: Connection refused."
    with MosquittoBroker() as broker:
        arguments = ["--store", f"sqlite:///{tmp_path / 'store.sqlite'}", "--http", f"127.0.0.1:{port}"]
        with served(*arguments, "--broker", f"mqtt://127.0.0.1:{broker.port}") as process:
            process.ready()
            health = ask(url, WAIT_S)
            assert (health.is_reachable, health.connected, health.problem) == (True, True, "")
            temp = experiment()
            sent = [(topics.report_topic("open", "d"), payload) for payload in reports("d", temp, 3)]
            publish(broker, [*sent, (topics.report_topic("open", "d"), b"nonsense")])
            until(lambda: ask(url, WAIT_S).accepted == 3 and not ask(url, WAIT_S).uncommitted, "all counted")
            health = ask(url, WAIT_S)
            assert [r.reason for r in health.rejects] == ["malformed"]
            assert health.words == "The aggregator is connected to the broker, and has counted all reports."
            broker.stop()
            until(lambda: not ask(url, WAIT_S).connected, lambda: ask(url, WAIT_S))
            assert ask(url, WAIT_S).words == "The aggregator reports a problem: not connected to the broker."


class Answering:
    """A server that sends a fixed response to every client and nothing more."""

    def __init__(self, say):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._say = say
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), connection:
                request = connection.recv(65_536)
                self._say(connection, request)

    def close(self):
        self._listener.close()


def plain(body, status=b"200 OK"):
    def say(connection, _asked):
        connection.sendall(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\n\r\n" + body)

    return say


def drip(connection, _asked):
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(600):
        connection.sendall(b"x")
        time.sleep(0.05)


def endless(connection, _asked):
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(b"# x\n" * 4096)


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (plain(b"hello"), "is not an aggregator"),
        (plain(b""), "is not an aggregator"),
        (plain(b'\xff\xfe{"a": 1'), "is not an aggregator"),
        (plain(b"no", b"404 Not Found"), "is not an aggregator"),
        (plain(b"[1]", b"503 Service Unavailable"), "is not an aggregator"),
        (plain(b"[" * 50_000, b"503 Service Unavailable"), "is not an aggregator"),
        (plain(b"hushmote_connected nan\n"), "is not an aggregator"),
        (plain(b"x", b"302 Found\r\nLocation: http://127.0.0.1:1/"), "is not an aggregator"),
        (lambda c, _: c.sendall(b"\x00\x01\x02\r\n\r\n"), "does not answer"),
        (lambda c, _: None, "does not answer"),
        (drip, "does not answer: timed out"),
        (endless, "longer than 1 MiB"),
        (plain(b'{"reason": "\x1b[31m' + b"x" * 900 + b'"}', b"503 No"), "is not an aggregator"),
    ],
    ids=[
        *("text", "nothing", "not utf-8", "not found", "list", "deep list", "nan", "redirect"),
        *("not http", "silence", "drip", "endless", "escapes"),
    ],
)
def test_any_response_becomes_a_short_sentence(say, words):
    answering = Answering(say)
    try:
        health = ask(answering.url, 1.0 if say is drip else WAIT_S)
    finally:
        answering.close()
    assert words in health.words
    assert not health.is_reachable
    assert (health.uncommitted, health.lag_s, health.accepted, health.unsigned) == (0, 0.0, 0, 0)
    assert "\n" not in health.words
    assert "\x1b" not in health.words
    assert len(health.words) < 400


@pytest.mark.parametrize("url", ["http://127.0.0.1:9417", "https://host.example", "http://[::1]:9417/"])
def test_accepts_addresses(url):
    assert check_url(url) == url.removesuffix("/")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:9417", "file:///etc/passwd", "http://", "http://u:secret@h:1", "http://h/metrics", "h\n"],
)
def test_rejects_invalid_url_without_showing_password(url):
    with pytest.raises(UsageError, match="is not an aggregator's address") as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
