"""The door with a real mosquitto: its responses, its publications, and misbehaving clients."""

import socket
import threading
import time
from typing import NamedTuple

import pytest
from boards import experiment, payload_of, reports
from deadlines import SHORT_S, shorten_request_timeout
from doors import RAW, WIDE, Opened, open_door, receive_all, statuses
from fleet_broker import visit
from log_witness import LOG
from lorawan import chirpstack, encoded, things_stack
from odd_broker import Habits, OddBroker
from running_aggregator import WAIT_S, until
from starlette.applications import Starlette
from traffic import publish

from hushmote.fleet.door import app as module
from hushmote.fleet.door.access import LOOPBACK, Access
from hushmote.fleet.door.limits import Rate, Rates
from hushmote.server.log.entry import experiment_entry
from hushmote.server.service import request_body
from hushmote.server.service.bounded_http import BoundedServer
from hushmote.server.service.log_files import LogFiles
from hushmote.server.service.tokens import TokenFile, Tokens
from hushmote.server.store.log import StoredLog
from hushmote.simulator.broker import MosquittoBroker

EXPERIMENT = experiment()
REPORTS = reports("d1", EXPERIMENT, 4)
REPORT = REPORTS[0]
HEAD = b"POST /v1/open/report/d1 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"


class Watched(NamedTuple):
    """A broker's address and the messages received by a subscriber to its reports."""

    host: str
    port: int
    messages: list[tuple[str, bytes]]


@pytest.fixture(scope="module")
def broker():
    """Run a broker with an experiment and a result for fleet open, and a subscriber to reports."""
    with MosquittoBroker() as broker, visit(broker.port, None, host="127.0.0.1") as visitor:
        assert visitor.connected()
        visitor.subscribe("hushmote/v1/+/report/+")
        retained = [
            ("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT)),
            ("hushmote/v1/open/result/temp", b'{"v": 1}'),
        ]
        publish(broker, retained, retain=True)
        yield Watched(broker.host, broker.port, visitor.messages)


@pytest.fixture(scope="module")
def door(broker):
    with open_door(broker) as door:
        yield door


@pytest.fixture(autouse=True)
def _nothing_yet(broker):
    """Clear what earlier tests published, after a marker shows that everything has arrived."""
    marker = ("hushmote/v1/between/report/tests", time.monotonic_ns().to_bytes(8))
    publish(broker, [marker])
    until(lambda: marker in broker.messages, "the marker arrives")
    broker.messages.clear()


def published(broker, door: Opened, **headers):
    """Return everything published; headers: the headers of the final report, which marks the end."""
    last = reports("last", EXPERIMENT, 1)[0]
    assert door.report("last", last, **headers).status == 204
    until(  # identify it by topic, since another report may have the same random code
        lambda: broker.messages and broker.messages[-1][0].endswith("/last"), "the last report arrives"
    )
    return broker.messages[:-1]


def one_line(response):
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.text.endswith("\n")
    assert response.text.count("\n") == 1
    return response.text


class TestExperiments:
    def test_are_served_as_retained(self, door):
        assert door.ask("GET", "/v1/open/experiment").json == ["temp"]
        response = door.ask("GET", "/v1/open/experiment/temp")
        assert (response.status, response.content) == (200, payload_of(EXPERIMENT))
        assert response.headers["content-type"] == RAW
        assert response.headers["x-content-type-options"] == "nosniff"
        response = door.ask("GET", "/v1/open/result/temp")
        assert (response.json, response.headers["content-type"]) == ({"v": 1}, "application/json")
        for path in ("experiment/other", "result/other"):
            assert "has no such" in one_line(door.ask("GET", f"/v1/open/{path}"))
        assert door.ask("HEAD", "/v1/open/experiment/temp").content == b""

    def test_fleet_is_known_while_it_has_an_experiment(self, broker, door):
        topic = "hushmote/v1/later/experiment/temp"
        assert door.report("d1", REPORT, fleet="later").status == 404
        publish(broker, [(topic, payload_of(EXPERIMENT))], retain=True)
        until(lambda: door.report("d1", REPORT, fleet="later").status == 204, "the fleet is known")
        publish(broker, [(topic, b"")], retain=True)
        until(lambda: door.report("d1", REPORT, fleet="later").status == 404, "the fleet is unknown again")


class TestLateExperiments:
    """Some brokers, such as aedes, send retained messages only after their answers."""

    def statuses(self, door: Opened, name: str, last: int) -> set[int]:
        """Return the statuses of an experiment's requests up to the first with status `last`."""
        seen: list[int] = []

        def ended() -> bool:
            response = door.ask("GET", f"/v1/open/experiment/{name}")
            seen.append(response.status)
            assert response.status != 503 or response.headers["retry-after"] == "2"
            return response.status == last

        until(ended, seen)
        return set(seen)

    def test_are_never_missing(self):
        with OddBroker(Habits(retained_after_s=0.5)) as broker:
            publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
            with open_door(broker, quiet_s=1.0) as door:
                assert door.ask("GET", "/v1/open/experiment").status == 503
                assert door.report("d1", REPORT).status == 503
                assert self.statuses(door, "temp", 200) == {503, 200}
                assert self.statuses(door, "other", 404) == {503, 404}
                assert door.ask("GET", "/v1/open/experiment").json == ["temp"]
                broker.restart()
                until(lambda: not door.publisher.ready.is_set(), "the door notices")
                assert self.statuses(door, "temp", 200) <= {503, 200}

    def test_do_not_need_an_unsuback(self):
        with OddBroker(Habits(answers_vain_unsubscribe=False)) as broker:
            publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
            with open_door(broker) as door:
                assert self.statuses(door, "temp", 200) == {200}

    def test_arrive_by_name_without_wildcards(self):
        with OddBroker(Habits(wildcards_get_retained=False)) as broker:
            publish(broker, [("hushmote/v1/open/experiment/temp", payload_of(EXPERIMENT))], retain=True)
            with open_door(broker, fleets=["open"]) as door:
                assert self.statuses(door, "temp", 404) == {404}
            with open_door(broker, fleets=["open"], experiments=["temp"]) as door:
                assert self.statuses(door, "temp", 200) == {200}


class TestReports:
    def test_are_published_unchanged_and_answered_204(self, broker, door):
        response = door.report("d1", REPORT)
        assert (response.status, response.content) == (204, b"")
        assert "content-length" not in response.headers
        assert published(broker, door) == [("hushmote/v1/open/report/d1", REPORT)]

    @pytest.mark.parametrize(
        ("path", "status", "words"),
        [
            ("/v1/nope/report/d1", 404, "unknown fleet nope"),
            ("/v1/Open/report/d1", 400, "1 to 32 of a-z"),
            ("/v1/open/report/D1", 400, "device id 'D1' must be"),
            ("/v1/open/report/", 400, "device id '' must be"),
            ("/v1/open/report", 400, "device id '' must be"),
            ("/v1/open/report/d%31", 400, "must be"),
            ("/v1/open/report/d1%2fx", 400, "must be"),
            ("/v1/open%2freport%2fd1", 404, "there is POST /v1/FLEET/report/DEVICE"),
            ("/v1/open/report/d1/", 404, "there is POST"),
            ("/v1/open/report/d1/x", 404, "there is POST"),
            ("//v1/open/report/d1", 404, "there is POST"),
            ("/v1/open/../open/report/d1", 404, "there is POST"),
            ("/v1/../v1/open/report/d1", 404, "there is POST"),
            ("/v1/open/report/%00", 400, "must be"),
            ("/v1/open/status/d1", 404, "there is POST"),
            ("/", 404, "there is POST"),
            ("/v2/open/report/d1", 404, "there is POST"),
        ],
    )
    def test_wrong_path_publishes_nothing(self, broker, door, path, status, words):
        response = door.ask("POST", path, REPORT)
        assert response.status == status
        assert words in one_line(response)
        assert published(broker, door) == []

    @pytest.mark.parametrize(
        ("content", "kind", "status", "words"),
        [
            (b"", RAW, 400, "not a report (empty)"),
            (bytes(22), RAW, 413, "at most 21 bytes"),
            (bytes(100_000), "application/json", 413, "at most 65536 bytes"),
            (b"{}", "application/json", 400, "not a LoRaWAN server's"),
            (REPORT, "application/x-www-form-urlencoded", 415, "must be application/octet-stream"),
            (REPORT, None, 415, "must be application/octet-stream"),
            (encoded(things_stack(REPORT[:5])), "application/json", 400, "not a report"),
            (b'{"deviceInfo": NaN}', "application/json", 400, "not JSON"),
        ],
        ids=["empty", "22 bytes", "100 kB", "empty object", "form", "no type", "short uplink", "nan"],
    )
    def test_invalid_body_publishes_nothing(self, broker, door, content, kind, status, words):
        response = door.ask("POST", "/v1/open/report/d1", content, kind)
        assert response.status == status
        assert words in one_line(response)
        assert published(broker, door) == []

    def test_lorawan_uplinks_are_named_by_path_or_document(self, broker, door):
        for path, document in (
            ("/v1/open/report/ttn-1", things_stack(REPORTS[0], "other")),
            ("/v1/open/report", things_stack(REPORTS[1], "ttn-2")),
            ("/v1/open/report?event=up", chirpstack(REPORTS[2], "chirp-1")),
        ):
            assert door.ask("POST", path, encoded(document), "application/json").status == 204
        response = door.ask(
            "POST", "/v1/open/report?event=join", encoded(chirpstack(b"")), "application/json"
        )
        assert (response.status, "nothing was published" in one_line(response)) == (200, True)
        response = door.ask(
            "POST", "/v1/open/report", encoded(things_stack(REPORT, "Kitchen")), "application/json"
        )
        assert (response.status, "device id 'Kitchen' must be" in one_line(response)) == (400, True)
        topics = [topic.rpartition("/")[2] for topic, _ in published(broker, door)]
        assert topics == ["ttn-1", "ttn-2", "chirp-1"]


class TestRates:
    def test_limit_device_address_and_total_independently(self, broker):
        rate = Rate(0.01, 2)
        for rates, whose in (
            (Rates(rate, WIDE.address, WIDE.total), "this device from this address"),
            (Rates(WIDE.device, rate, WIDE.total), "this address"),
            (Rates(WIDE.device, WIDE.address, rate), "all devices"),
        ):
            with open_door(broker, rates=rates) as door:
                assert [door.report("d1", REPORT).status for _ in range(2)] == [204, 204]
                response = door.report("d1", REPORT)
                assert response.status == 429
                assert f"too many requests from {whose}; send the same bytes again" in one_line(response)
                assert 1 <= int(response.headers["retry-after"]) <= 100
                assert door.report("d2", REPORT).status == (204 if "device from" in whose else 429)
                assert door.ask("GET", "/healthz").status == 200  # monitoring is not limited

    def test_limit_each_client_behind_trusted_proxy(self, broker):
        rates = Rates(WIDE.device, Rate(0.01, 1), WIDE.total)
        with open_door(broker, rates=rates, access=Access(trust_proxy=True)) as door:
            head = "GET /v1/open/experiment HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Forwarded-For: "
            # The proxy appends to the client's header line, or adds a line.
            for between, net in ((", ", "192.0.2"), ("\r\nX-Forwarded-For: ", "198.51.100")):
                requests = [f"{head}1.1.1.1{between}{net}.{i}\r\n\r\n".encode() for i in (1, 2, 1)]
                assert [statuses(door.raw(sent)) for sent in requests] == [[200], [200], [429]]

    def test_flooding_client_exhausts_only_its_own_limit(self, broker):
        """A request does not prove which device sent it, so no client can use up another's rate."""
        with open_door(
            broker, rates=Rates(Rate(0.01, 2), WIDE.address, WIDE.total), access=Access(trust_proxy=True)
        ) as door:
            stranger = [door.report("d1", REPORT, X_Forwarded_For="192.0.2.66").status for _ in range(5)]
            assert stranger == [204, 204, 429, 429, 429]
            statuses_by_client = [
                door.report("d1", REPORT, X_Forwarded_For="198.51.100.1").status for _ in range(3)
            ]
            assert statuses_by_client == [204, 204, 429]
            neighbour = [door.report("d1", REPORT, X_Forwarded_For=f"2001:db8::{i}").status for i in range(3)]
            assert neighbour == [204, 204, 429]  # an IPv6 client gains nothing from choosing more addresses


class TestAccess:
    def test_requires_token_except_for_health(self, broker):
        with open_door(broker, access=Access(Tokens({"lora": "0123456789abcdef"}))) as door:
            response = door.report("d1", REPORT)
            assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
            assert door.report("d1", REPORT, Authorization="Bearer wrong").status == 401
            authorization = {"Authorization": "Bearer 0123456789abcdef"}
            assert door.report("d1", REPORT, **authorization).status == 204
            for path in ("/metrics", "/v1/open/experiment", "/v1/open/result/temp"):
                assert door.ask("GET", path).status == 401
            assert door.ask("GET", "/healthz").status == 200
            assert [topic for topic, _ in published(broker, door, **authorization)] == [
                "hushmote/v1/open/report/d1"
            ]

    def test_revokes_token_without_restart(self, broker, tmp_path):
        file = tmp_path / "door.token"
        file.touch(0o600)
        file.write_text("lora 0123456789abcdef\nscript fedcba9876543210\n")
        lora, script = (
            {"Authorization": f"Bearer {token}"} for token in ("0123456789abcdef", "fedcba9876543210")
        )
        with open_door(broker, access=Access(TokenFile(file))) as door:
            assert door.report("d1", REPORT, **lora).status == 204
            file.write_text("script fedcba9876543210\n")
            assert door.report("d1", REPORT, **lora).status == 401
            assert door.report("d1", REPORT, **script).status == 204

    def test_rejects_web_pages_from_unlisted_origins(self, broker):
        access = Access(hosts=LOOPBACK, origins=frozenset({"https://board.example"}))
        with open_door(broker, access=access) as door:
            response = door.report("d1", REPORT, Origin="https://evil.example")
            assert (response.status, "--origin" in one_line(response)) == (403, True)
            assert "access-control-allow-origin" not in response.headers
            response = door.report("d1", REPORT, Host="evil.example:80")  # DNS rebinding
            assert (response.status, "Host" in one_line(response)) == (403, True)
            preflight = door.ask("OPTIONS", "/v1/open/report/d1", Origin="https://board.example")
            assert preflight.status == 204
            assert preflight.headers["access-control-allow-methods"] == "POST"
            assert preflight.headers["access-control-allow-headers"] == "content-type, authorization"
            assert door.ask("OPTIONS", "/v1/open/report/d1", Origin="https://evil.example").status == 403
            response = door.report("d2", REPORT, Origin="https://board.example")
            assert (response.status, response.headers["access-control-allow-origin"]) == (
                204,
                "https://board.example",
            )
            assert response.headers["vary"] == "Origin"
            assert door.report("d3", REPORT, Origin=f"http://127.0.0.1:{door.port}").status == 204
            topics = [topic.rpartition("/")[2] for topic, _ in published(broker, door)]
            assert topics == ["d2", "d3"]


class TestHttp:
    @pytest.mark.parametrize(
        ("target", "expected"),
        [
            (b"/v1/open/report/d1#x", [400]),
            (b"/v1/open/report/\xc3\xa9", [400]),
            (b"/v1/open/report/d1\x00", [400]),
            (b"http://localhost/v1/open/report/d1", [204]),  # the absolute form, as used with proxies
            (b"*", [404]),
            (b"/v1/open/report/d1?device=d2", [204]),
        ],
        ids=["fragment", "not ASCII", "null byte", "proxy", "asterisk", "query"],
    )
    def test_answers_unusual_request_target(self, door, target, expected):
        received = door.raw(
            b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(REPORT) + REPORT
        )
        assert statuses(received) == expected

    def test_refuses_other_methods_and_lists_allowed_methods(self, door):
        for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
            response = door.ask(method, "/v1/open/report/d1")
            assert (response.status, response.headers["allow"]) == (405, "POST")
            one_line(response)
        assert door.ask("POST", "/v1/open/experiment", b"").headers["allow"] == "GET, HEAD"

    def test_metrics_name_no_device_or_fleet(self, broker):
        with open_door(broker) as door:
            assert door.ask("GET", "/healthz").json == {"healthy": True}
            door.report("secret-device", REPORT)
            door.report("secret-device", b"x")
            door.ask("DELETE", "/v1/open/report/d1")
            text = door.ask("GET", "/metrics").text
        assert 'hushmote_door_answers_total{method="POST",status="204"} 1.0' in text
        assert 'hushmote_door_answers_total{method="POST",status="400"} 1.0' in text
        assert 'hushmote_door_answers_total{method="other",status="405"} 1.0' in text
        assert "hushmote_door_connected 1.0" in text
        assert "hushmote_door_in_flight 0.0" in text
        assert "secret" not in text
        assert "open" not in text

    def test_answers_same_paths_when_mounted(self, broker, door):
        application = Starlette()
        application.mount("/v1", module.door_application(door.publisher, rates=WIDE))
        with BoundedServer("127.0.0.1", 0, application) as server:
            mounted = Opened(server.port, door.door, door.publisher)
            assert mounted.report("d1", REPORT).status == 204
            assert mounted.ask("GET", "/v1/open/experiment").json == ["temp"]
            assert mounted.report("d%31", REPORT).status == 400
            assert mounted.ask("GET", "/v1/healthz").status == 404
            assert mounted.ask("GET", "/healthz").text == "Not Found"  # the other application's response
        assert published(broker, door) == [("hushmote/v1/open/report/d1", REPORT)]

    def test_answers_chunked_and_pipelined_requests_in_order(self, broker, door):
        chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\n" + REPORT[:4]
        chunked += b"\r\n%x\r\n" % len(REPORT[4:]) + REPORT[4:] + b"\r\n0\r\n\r\n"
        plain = HEAD + b"Content-Length: %d\r\n" % len(REPORTS[1])
        bad = HEAD + b"Content-Length: 3\r\n\r\nbad"
        received = door.raw(
            chunked + bad + plain + b"\r\n" + REPORTS[1] + plain + b"Connection: close\r\n\r\n" + REPORTS[2]
        )
        assert statuses(received) == [204, 400, 204, 204]
        assert [payload for _, payload in published(broker, door)] == [
            REPORT,
            REPORTS[1],
            REPORTS[2][: len(REPORTS[1])],
        ]

    @pytest.mark.parametrize(
        ("sent", "expected"),
        [
            (
                HEAD + b"Transfer-Encoding: chunked\r\n\r\n40\r\n" + bytes(64),
                [413],
            ),  # rejected before its end
            (HEAD + b"Content-Length: 99999999999\r\n\r\n", [413]),  # rejected before its body
            (HEAD + b"Content-Length: 99999999999\r\nExpect: 100-continue\r\n\r\n", [413]),
            (HEAD + b"Content-Length: -1\r\n\r\n", [400]),
            (HEAD + b"Content-Length: 10\r\nContent-Length: 11\r\n\r\n", [400]),
            (HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", [400, 413]),
            (HEAD + b"X: " + b"a" * 20_000, [400]),
            (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [400]),
            (b"POST /v1/open/report/d1\r\n\r\n", [400]),
            (b"\x16\x03\x01 TLS\r\n\r\n", [400]),
            (
                HEAD + b"Upgrade: websocket\r\nConnection: Upgrade, close\r\nContent-Length: 3\r\n\r\nbad",
                [400],
            ),
        ],
        ids=[
            "long chunk",
            "huge length",
            "100-continue",
            "negative length",
            "two lengths",
            "5000 digits",
            "long header",
            "malformed chunk",
            "no version",
            "TLS",
            "websocket",
        ],
    )
    def test_truncated_or_malformed_request_publishes_nothing(self, broker, door, sent, expected):
        received = statuses(door.raw(sent))
        assert len(received) == 1
        assert received[0] in expected
        assert published(broker, door) == []


class TestSlowClients:
    def test_incomplete_body_publishes_nothing(self, broker, door, monkeypatch):
        with socket.create_connection(("127.0.0.1", door.port)) as s:
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(REPORT) + REPORT[:5])
            s.shutdown(socket.SHUT_WR)
            assert statuses(receive_all(s)) in ([], [400])
        with monkeypatch.context() as patch, socket.create_connection(("127.0.0.1", door.port)) as s:
            patch.setattr(request_body, "BODY_S", 0.2)
            s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(REPORT) + REPORT[:5])
            received = receive_all(s)
        assert statuses(received) == [408]
        assert b"did not arrive within 0.2 s" in received
        assert published(broker, door) == []

    def test_serves_slow_clients_within_limits(self, broker, door, monkeypatch):
        with socket.create_connection(("127.0.0.1", door.port), WAIT_S) as s:
            for byte in HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(REPORT) + REPORT:
                s.sendall(bytes((byte,)))
            assert statuses(receive_all(s)) == [204]
        with monkeypatch.context() as patch:
            by_deadline = shorten_request_timeout(patch)
            with socket.create_connection(("127.0.0.1", door.port), WAIT_S) as s:
                s.sendall(HEAD[:50])
                assert receive_all(s) == b""
        assert by_deadline == [SHORT_S]
        assert published(broker, door) == [("hushmote/v1/open/report/d1", REPORT)]

    def test_answers_others_during_a_flood(self, broker, caplog):
        """Other clients are answered while sixty send continuously and sixty stop halfway."""
        rates = Rates(WIDE.device, WIDE.address, Rate(1, 50))  # any machine manages more than one a second
        with open_door(broker, rates=rates, most_connections=64) as door:
            stopped = threading.Event()
            idle = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(60)]
            for s in idle:
                s.sendall(HEAD)

            def flood(device):
                while not stopped.is_set():
                    try:
                        door.report(device, REPORT)
                    except OSError:  # it was closed to make room for another
                        time.sleep(0.01)

            threads = [threading.Thread(target=flood, args=(f"f{i}",), daemon=True) for i in range(60)]
            for thread in threads:
                thread.start()
            try:
                until(lambda: door.door.answers["POST", 429] > 200, lambda: f"refused: {door.door.answers}")
                for _ in range(5):
                    assert door.ask("GET", "/healthz").status == 200
                assert door.publisher.in_flight <= 60
            finally:
                stopped.set()
                for thread in threads:
                    thread.join(WAIT_S)
                for s in idle:
                    s.close()
            assert door.door.answers["POST", 204] >= 50
            until(lambda: door.report("after", REPORT).status == 204, "it accepts reports again")
        assert [r for r in caplog.records if r.levelname == "ERROR"] == []


class TestOtherClients:
    """Requests in forms that proxies, modems and old libraries send."""

    def test_accepts_absolute_uri(self, broker):
        with open_door(broker, access=Access(hosts=LOOPBACK)) as door:
            for scheme in (b"http", b"HTTPS"):
                head = HEAD.replace(b"/v1", scheme + b"://127.0.0.1:9418/v1").replace(
                    b"Host: localhost", b"Host: other"
                )
                received = door.raw(
                    head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(REPORT) + REPORT
                )
                assert statuses(received) == [204]
            uri = b"http://localhost/v1/open/experiment/temp?x=1"
            got = door.raw(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % uri)
            assert got.endswith(payload_of(EXPERIMENT))
            assert published(broker, door)[0] == ("hushmote/v1/open/report/d1", REPORT)

    def test_authority_of_absolute_uri_replaces_host(self, broker):
        """Otherwise a page of another name could use the door of this machine."""
        with open_door(broker, access=Access(hosts=LOOPBACK)) as door:
            for uri, status in (
                (b"http://evil.example/v1/open/experiment", 403),
                (b"http://localhost", 404),
                (b"http:///v1/open/experiment", 403),
                (b"ftp://localhost/v1/open/experiment", 404),
            ):
                request = b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % uri
                assert statuses(door.raw(request)) == [status], uri

    def test_accepts_http_1_0_without_host(self, broker):
        with open_door(broker, access=Access(hosts=LOOPBACK)) as door:
            head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Host: localhost\r\n", b"")
            received = door.raw(head + b"Content-Length: %d\r\n\r\n" % len(REPORT) + REPORT)
            assert statuses(received) == [204]
            assert published(broker, door) == [("hushmote/v1/open/report/d1", REPORT)]
            null = b"Origin: null\r\nContent-Length: %d\r\n\r\n" % len(REPORT)
            assert statuses(door.raw(head + null + REPORT)) == [403]
            missing = HEAD.replace(b"Host: localhost\r\n", b"") + b"\r\n"
            assert statuses(door.raw(missing)) == [400]

    @pytest.mark.parametrize("name", ["Kitchen 1", "KITCHEN", "Küche", "", None, "a" * 33])
    def test_chirpstack_name_that_is_no_id_uses_the_eui(self, broker, door, name):
        document = chirpstack(REPORT, name)
        document["deviceInfo"]["devEui"] = "24E124FFFEF1A2B3"
        answer = door.ask("POST", "/v1/open/report", encoded(document), "application/json")
        assert answer.status == 204
        assert published(broker, door) == [("hushmote/v1/open/report/24e124fffef1a2b3", REPORT)]

    def test_chirpstack_without_any_id_names_the_wrong_one(self, door):
        document = chirpstack(REPORT, "Kitchen 1")
        document["deviceInfo"]["devEui"] = 7
        answer = door.ask("POST", "/v1/open/report", encoded(document), "application/json")
        assert answer.status == 400
        assert "device id 'Kitchen 1' must be" in one_line(answer)


class TestMark:
    """A header by which clients tell the door's answers from those of a captive portal or a wrong URL."""

    def test_is_on_answers_under_the_doors_paths(self, door):
        for method, path, status in (
            ("GET", "/v1/open/experiment/temp", 200),
            ("GET", "/v1/open/experiment/other", 404),
            ("GET", "/v1/nope/experiment/temp", 404),
            ("GET", "/v1/open/report/d1", 405),
        ):
            answer = door.ask(method, path)
            assert (answer.status, answer.headers.get("hushmote-door")) == (status, "1"), path
        assert door.report("d1", REPORT).headers["hushmote-door"] == "1"

    def test_is_not_on_wrong_urls(self, door):
        for path in ("/", "/door/v1/open/experiment/temp", "/v1/open/experiments/temp"):
            answer = door.ask("GET", path)
            assert (answer.status, "hushmote-door" in answer.headers) == (404, False), path

    def test_is_readable_by_web_pages(self, broker):
        origin = "https://board.example"
        with open_door(broker, access=Access(origins=frozenset({origin}))) as door:
            answer = door.ask("GET", "/v1/open/experiment/temp", Origin=origin)
            assert "Hushmote-Door" in answer.headers["access-control-expose-headers"]


def test_serves_a_log_if_it_has_one(broker, store):
    log = StoredLog(store)
    log.append(LOG, lambda _: [experiment_entry("home", "temp", b"{}")], 100)
    with open_door(broker, log=LogFiles(store.engine.url.render_as_string())) as door:
        assert door.ask("GET", "/log/checkpoint").text == str(log.checkpoint)
        assert door.ask("GET", "/log/tile/entries/000.p/1").status == 200
        assert door.ask("GET", "/log/tile/entries/001").status == 404
        assert door.ask("POST", "/log/checkpoint", b"").status == 405
    with open_door(broker) as door:
        assert door.ask("GET", "/log/checkpoint").status == 404
