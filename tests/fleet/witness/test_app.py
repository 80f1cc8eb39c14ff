"""A witness over HTTP: C2SP's tlog-witness protocol, hostile clients, and the page for people."""

import contextlib
import hashlib
import http.client
import http.server
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from public_log import (
    DAY_S,
    KEY,
    ORIGIN,
    begin,
    restart,
    rule,
    serving,
    version,
    withdrawal,
)
from running_aggregator import WAIT_S

from hushmote.fleet.witness.app import MAX_BODY_BYTES, WitnessApp
from hushmote.server.log import tiles
from hushmote.server.log.note import COSIGNATURE, ECDSA, Checkpoint, parse_signatures, valid_signatures
from hushmote.server.service.bounded_http import BoundedServer
from hushmote.server.wire.topics import ROOT


@pytest.fixture
def witness(log, file, clock):
    return begin(log, file, clock, rule=rule(None, most_fleets=50))


@contextlib.contextmanager
def running(application):
    with BoundedServer("127.0.0.1", 0, application) as server:
        yield server.port


@pytest.fixture
def port(witness):
    with running(WitnessApp(witness)) as port:
        yield port


def request(port, method, path, body=None, **headers) -> tuple[int, str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers


def ask(port, body):
    return request(port, "POST", "/add-checkpoint", body)


class TestProtocol:
    def test_signs_for_logs_and_boards(self, port, log):
        log.append(version("door"))
        status, text, headers = ask(port, log.request(1))
        assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
        checkpoint = log.checkpoint()
        signed = Checkpoint(ORIGIN, checkpoint.size, checkpoint.root, parse_signatures(text))
        keys = KEY.public(COSIGNATURE), KEY.public(ECDSA)
        assert valid_signatures(signed, keys).keys() == set(keys)

    def test_other_size(self, port, log):
        status, text, headers = ask(port, log.request(0))
        assert (status, text, headers["content-type"]) == (409, "1\n", "text/x.tlog.size")

    def test_not_yet(self, port, log):
        log.append(version(a=1))
        status, text, headers = ask(port, log.request(1))
        assert (status, headers["retry-after"]) == (503, str(DAY_S))
        assert text == "home/temp changes again within 24 hours: at most 1 a day\n"

    def test_until_a_person_accepts(self, port, log):
        log.append(version("door", a=1), version("door", a=2))
        status, text, headers = ask(port, log.request(1))
        assert (status, headers["retry-after"]) == (403, None)
        assert text.startswith(
            "home/door has 2 versions since the last signature: one at a time is allowed; "
        )

    def test_newest_checkpoint(self, port, log):
        path = f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
        assert request(port, "GET", path)[0] == 404
        ask(port, log.request(1))
        status, text, _ = request(port, "GET", path)
        assert status == 200
        assert Checkpoint.parse(text).text == log.checkpoint().text
        assert request(port, "GET", "/" + "0" * 64 + "/checkpoint")[0] == 404

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/add-checkpoint", 405),
            ("POST", "/", 405),
            ("GET", "/x", 404),
            ("POST", "/sign-subtree", 404),
        ],
    )
    def test_other_paths(self, port, method, path, status):
        assert request(port, method, path)[:2] == (status, "there is GET / and POST /add-checkpoint\n")


class TestLines:
    def test_anyone_can_cause_only_few_short_ones(self, port, log, caplog):
        for number in range(3):
            assert ask(port, b"old 0\n\n" + b"x" * 30_000 + b"\n%d\n\n" % number)[0] == 400
            assert ask(port, log.request(1) + b"%d\n" % number)[0] == 400
        (line,) = caplog.messages
        assert line.startswith("not signed: a checkpoint has ")
        assert len(line) < 600

    def test_signature_that_is_repeated_is_logged_once(self, port, log, caplog):
        caplog.set_level("INFO", "hushmote.fleet.witness")
        for _ in range(3):
            assert ask(port, log.request(1))[0] == 200
        assert caplog.messages == ["signed size 1"]

    def test_strangers_hide_no_refusal_of_the_log(self, port, log, caplog):
        assert ask(port, b"nonsense")[0] == 400
        log.append(version(a=1))
        assert ask(port, log.request(1))[0] == 503
        assert caplog.messages[1:] == ["not signed: home/temp changes again within 24 hours: at most 1 a day"]


class TestClients:
    def test_oversized_body(self, port):
        status, text, _ = ask(port, b"x" * (MAX_BODY_BYTES + 1))
        assert (status, text) == (413, f"the body is too long: at most {MAX_BODY_BYTES} bytes are allowed\n")
        chunks = (b"x" * 4096 for _ in range(20))
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert ask(port, chunks)[0] == 413

    def test_client_that_leaves(self, port, log):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"POST /add-checkpoint HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nold")
        assert ask(port, log.request(1))[0] == 200

    @pytest.mark.slow
    def test_a_hundred_posts_at_once(self, port, log, witness):
        for number in range(100):
            log.append(version(f"q{number}"))
        with ThreadPoolExecutor(100) as pool:
            answers = list(pool.map(lambda size: ask(port, log.request(1, size))[0], range(2, 102)))
        assert sorted(answers) == [200] + [409] * 99
        assert witness.state.root == log.tree.root(witness.state.size)

    def test_page_answers_while_the_log_hangs(self, log, file, clock, witness):
        asked, go_on = threading.Event(), threading.Event()

        def hang(path):
            asked.set()
            assert go_on.wait(WAIT_S)
            return tiles.reader(str(log.folder))(path)

        log.append(version("door"))
        slow = restart(log, file, clock, fetch=hang, rule=witness.rule)
        with running(WitnessApp(slow)) as port, ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask, port, log.request(1))
            assert asked.wait(WAIT_S)
            assert request(port, "GET", "/")[0] == 200
            go_on.set()
            assert answer.result()[0] == 200


class TestLogOverHttp:
    @pytest.mark.slow
    def test_reads_a_web_server(self, log, file, clock, witness):
        log.append(*(withdrawal(f"q{n}") for n in range(700)))
        with serving(log.folder) as url:
            again = restart(log, file, clock, fetch=tiles.reader(url), rule=witness.rule)
            again.add_checkpoint(log.request(1))

    @pytest.mark.slow
    @pytest.mark.parametrize("fault", ["slow", "half", "endless", "closed", "error"])
    def test_bad_servers(self, log, file, clock, witness, fault, monkeypatch):
        monkeypatch.setattr(tiles, "TIMEOUT_S", 0.5)

        class Bad(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                if fault in ("closed", "error"):
                    if fault == "error":
                        self.send_error(500)
                    return
                self.send_response(200)
                if fault != "endless":
                    self.send_header("Content-Length", "1000")
                self.end_headers()
                if fault == "half":
                    self.wfile.write(b"\0")
                with contextlib.suppress(OSError):
                    while fault == "endless":
                        self.wfile.write(bytes(2**20))
                    for _ in range(1000 * (fault == "slow")):
                        self.wfile.write(b"\0")
                        threading.Event().wait(0.02)

        log.append(version("door"))
        with serving(log.folder, Bad) as url:
            slow = restart(log, file, clock, fetch=tiles.reader(url), rule=witness.rule)
            with running(WitnessApp(slow)) as port:
                status, text, headers = ask(port, log.request(1))
        assert (status, headers["retry-after"]) == (503, "60")
        assert text.startswith("the log's files cannot be read: http://127.0.0.1:")
        assert slow.state.size == 1


class TestPage:
    def page(self, port):
        status, text, headers = request(port, "GET", "/")
        assert status == 200
        assert headers["content-type"] == "text/plain; charset=utf-8"
        lines = text.splitlines()
        assert len(lines) <= 34
        assert max(len(line) for line in lines if not line.startswith("Key for logs")) <= 80
        return " ".join(text.split())

    def test_a_new_witness(self, port):
        text = self.page(port)
        assert f"Witness {KEY.name} of the log {ORIGIN} It has not signed the log yet." in text
        assert "It has not refused anything." in text
        assert str(KEY.public(COSIGNATURE)) in text

    def test_says_what_it_saw_and_refused(self, port, log, clock):
        log.append(version("door", "cellar"))
        ask(port, log.request(1))
        clock.now += 2 * DAY_S
        log.append(withdrawal(), version("door", "cellar", a=1))
        ask(port, log.request(2))
        log.append(version("door", "cellar", a=2), version("door", "cellar", a=3))
        ask(port, log.request(4))
        text = self.page(port)
        assert "cellar / door 2 17 Jan 2027, 08:00 UTC" in text
        assert "home / temp 1 15 Jan 2027, 08:00 UTC (withdrawn)" in text
        assert "Refused, newest first: 17 Jan 2027, 08:00 UTC, size 6: cellar/door has 2 versions" in text
        assert "It last signed the log on 17 Jan 2027, 08:00 UTC, with 4 entries." in text

    @pytest.mark.slow
    def test_is_one_screen_with_hundreds_of_questions(self, port, log, witness):
        log.append(*(version("q" * 20 + str(n), f"fleet{n % 40}") for n in range(150)))
        assert ask(port, log.request(1))[0] == 200
        for number in range(9):
            log.append(*[version("q" * 32, "f" * 32, a=n + number) for n in range(9)])
            ask(port, log.request(151))
        assert "and 143 more, in 41 fleets" in self.page(port)

    def test_hostile_text_stays_on_its_line(self, port, log):
        log.append(f"{ROOT}/home/x\x1b[2J\n<script>".encode() + b"\0{}")
        status, text, _ = ask(port, log.request(1))
        assert (status, text.count("\n")) == (403, 1)
        assert "\x1b" not in text + self.page(port)
