"""/metrics and /healthz under load from crowds, slow senders, slow readers and resets."""

import contextlib
import logging
import os
import selectors
import socket
import struct
import threading
from typing import Any

import pytest
from deadlines import SHORT_S, shorten_request_timeout
from running_aggregator import WAIT_S, until
from serve_process import add_fleet, get, health, served
from traffic import counted_reports, crowd, publish

from hushmote.server.service import bounded_http
from hushmote.server.service.bounded_http import EndpointError, parse_endpoint
from hushmote.server.service.http_endpoint import Endpoint
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port

ASK = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
CROWD = 250
FILES = 256  # open files per process, fewer than the crowd's connections

LIMITED = f"""
import resource, sys
from hushmote.cli.main import main
resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES},) * 2)
sys.argv[0] = "hushmote"
main()
"""


class Crowd:
    """Clients that send an endless request byte by byte; rejected ones reconnect."""

    def __init__(self, port, count):
        self._port = port
        self.ended = 0
        self.served = 0
        self._stopped = threading.Event()
        self._selector: Any = selectors.DefaultSelector()
        for _ in range(count):
            self._join()
        self._thread = threading.Thread(target=self._run)

    def _join(self):
        s = socket.socket()
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect(("127.0.0.1", self._port))
        self._selector.register(s, selectors.EVENT_READ, iter(b"GET /healthz HTTP/1.1\r\nX: "))

    def _run(self):
        while not self._stopped.wait(0.2):
            for key, _ in self._selector.select(0):
                with contextlib.suppress(OSError):
                    self.served += bool(key.fileobj.recv(1000))
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
                self.ended += 1
                self._join()
            for key in list(self._selector.get_map().values()):
                with contextlib.suppress(OSError):
                    key.fileobj.send(bytes((next(key.data, ord("a")),)))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stopped.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()


def files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class TestCrowd:
    def test_of_slow_clients_blocks_neither_health_nor_broker(self, tmp_path):
        messages, _ = crowd(30)
        port = free_port()
        url = f"sqlite:///{tmp_path}/store.sqlite"
        with MosquittoBroker(port=free_port()) as broker, Store(url) as store:
            add_fleet(store)
            options = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}", "--batch", "0.1s")
            base_url = f"http://127.0.0.1:{port}"
            with served(*options, "--http", f"127.0.0.1:{port}", script=LIMITED) as process:
                process.ready()
                before = files(process.process.pid)
                with Crowd(port, CROWD) as trickling:
                    until(lambda: files(process.process.pid) > before + 100, "the crowd is connected")
                    assert health(base_url) == (200, None)
                    broker.terminate()
                    until(lambda: health(base_url)[0] == 503, "the broker's loss is noticed")
                    broker.start()
                    until(lambda: health(base_url)[0] == 200, process.log)
                    publish(broker, messages)
                    until(lambda: counted_reports(store) == 30, process.log)
                    until(lambda: trickling.ended > 2 * CROWD, "all clients were rejected twice")
                    max_descriptors = (
                        before + bounded_http.MAX_CONNECTIONS + 4 * bounded_http.ACCEPTS_PER_TURN
                    )
                    assert max(files(process.process.pid) for _ in range(100)) <= max_descriptors
                    assert trickling.served == 0
                    assert process.end() == 0
            assert "Traceback" not in process.log()
            assert "Too many open files" not in process.log()
            assert len(process.log().splitlines()) < 10, process.log()


@contextlib.contextmanager
def endpoint(metrics=lambda: b"numbers"):
    with Endpoint("127.0.0.1", 0, metrics, lambda: None) as running:
        yield running.port


def is_closed(s):
    """Return whether the other side closes a connection; read its data until then."""
    s.settimeout(WAIT_S)
    try:
        while s.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


class TestDeadline:
    @pytest.mark.parametrize(
        "begin",
        [
            b"",
            b"GET /healthz HTTP/1.1\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",  # a second, unfinished request
            b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx",
        ],
        ids=["silence", "half a head", "second request", "half a body"],
    )
    def test_ends_an_incomplete_request(self, begin, monkeypatch):
        by_deadline = shorten_request_timeout(monkeypatch)
        with endpoint() as port, socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(begin)
            assert is_closed(s)
        assert by_deadline == [SHORT_S]

    def test_ends_an_unread_answer(self, monkeypatch):
        by_deadline = shorten_request_timeout(monkeypatch)
        with endpoint(lambda: bytes(50_000_000)) as port:
            s = socket.create_connection(("127.0.0.1", port))
            s.sendall(ASK)
            local = s.getsockname()[1]
            until(lambda: not is_open(port, local), "the server closes the connection")
            s.close()
        assert by_deadline == [SHORT_S]


def is_open(port, client):
    """Return whether this process still has the server's end of a connection open."""
    line_part = f"0100007F:{port:04X} 0100007F:{client:04X} 01"
    with open("/proc/net/tcp") as f:
        return any(line_part in line for line in f)


class TestRequests:
    def test_resets_and_garbage_log_nothing(self, caplog):
        caplog.set_level(logging.INFO)
        with endpoint() as port:
            for data in (
                b"",
                b"GET /metrics HTTP/1.1\r\n",
                b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                b"\x16\x03\x01\0",
            ):
                for _ in range(20):
                    s = socket.create_connection(("127.0.0.1", port))
                    s.sendall(data)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # RST
                    s.close()
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
                assert is_closed(s)
            assert get(f"http://127.0.0.1:{port}/metrics") == (200, "numbers")
        assert caplog.records == []

    def test_only_two_read_only_pages_exist(self):
        with endpoint() as port:
            url = f"http://127.0.0.1:{port}"
            assert get(url + "/metrics?x=1") == (200, "numbers")
            assert get(url + "/healthz") == (200, '{"healthy": true}\n')
            assert get(url + "/")[0] == get(url + "/docs")[0] == 404
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.sendall(b"DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert s.recv(100).startswith(b"HTTP/1.1 405 ")

    def test_error_in_metrics_is_status_500(self, caplog):
        def fail():
            raise ValueError("what a device sent")

        with endpoint(fail) as port:
            assert get(f"http://127.0.0.1:{port}/metrics")[0] == 500
            assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200
        assert len(caplog.records) == 1


class TestAddress:
    def test_must_be_host_and_port(self):
        assert parse_endpoint("127.0.0.1:9417") == ("127.0.0.1", 9417)
        assert parse_endpoint("[::1]:80") == ("::1", 80)
        for address in (
            "9417",
            ":9417",
            "localhost",
            "localhost:",
            "localhost:99999",
            "a:1/metrics",
            "u@a:1",
        ):
            with pytest.raises(EndpointError, match="must be host:port"):
                parse_endpoint(address)
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(EndpointError, match="Address already in use"):
                Endpoint("127.0.0.1", port, bytes, str)
