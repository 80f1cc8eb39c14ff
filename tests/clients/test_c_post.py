"""hushmote-post, the C client for POSIX, with a real broker, a real aggregator and interruptions."""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import reference_board as ref
import reference_log
from boards import FLEET_KEYS, MASTER, SIGNING, experiment, payload_of
from c_core import SANITIZED, STRICT, needs_gcc, post_program
from certificates import Authority
from experiments import experiment_json
from run_page import LIBRARY
from running_aggregator import WAIT_S, until
from scripted_broker import CLOSE, PUBLISH, SUBSCRIBE, ScriptedBroker, forbidding, message, polite
from serve_process import served
from traffic import publish

from hushmote.device import preview
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, Experiment
from hushmote.fleet.provisioning.authority import parse
from hushmote.fleet.provisioning.firmware import Firmware, file_content
from hushmote.fleet.provisioning.master_key import to_text
from hushmote.fleet.provisioning.settings import Network, provision_device
from hushmote.server.store import Store
from hushmote.server.wire import keys
from hushmote.simulator.broker import MosquittoBroker, free_port

pytestmark = [
    needs_gcc,
    pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev"),
]
POLICY = """
static const struct hushmote_group groups[] = {{"firmware", "2.4.0"}};
HUSHMOTE_POLICY_WITH_GROUPS(policy, groups, 40000000, 0, 4000000, HUSHMOTE_SUM, false, "temp", "room_temp");
"""
PYTHON_POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 4_000_000,
    "rules": ("sum",),
    "experiments": ("temp", "room_temp"),
}
EXPERIMENT = experiment(bins=4, epsilon=2_000_000, budget={"rule": "sum", "cap": 40_000_000})
FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
WITH_GROUP = experiment(name="room_temp", bins=4, budget={"rule": "sum", "cap": 20_000_000}, **FIRMWARE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = " ".join((*STRICT, *SANITIZED))
    return post_program(tmp_path_factory.mktemp("post"), POLICY, f"CFLAGS={flags}")


class Post:
    """A device: a folder, and the program that uses it."""

    def __init__(
        self, program: Path, folder: Path, port: int, fleet: str = "open", keyed: bool = False
    ) -> None:
        self.program, self.folder = program, folder
        folder.mkdir(exist_ok=True)
        self.settings: dict[str, Any] = {"fleet": fleet, "device_id": folder.name, "key": None}
        self.settings |= {"announce_key": None, "mqtt_host": "127.0.0.1", "mqtt_user": None}
        if keyed:
            self.settings["key"] = keys.device_key(MASTER, fleet, folder.name).hex()
            self.settings["announce_key"] = keys.public_key_bytes(SIGNING).hex().upper()
        self.set_broker_port(port)

    def set_broker_port(self, port: int) -> None:
        (self.folder / "settings.json").write_text(json.dumps(self.settings | {"mqtt_port": port}, indent=2))

    def __call__(self, *arguments: str, text: str = "", status: int | None = 0) -> str:
        done = subprocess.run(
            [self.program, self.folder, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert status in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def ready(self) -> Post:
        self("provision")
        self("yes")
        return self

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Run the program with its input open, and kill it at the end if it is still running."""
        command, pipe = [self.program, self.folder, "run", "0"], subprocess.PIPE
        with subprocess.Popen(command, text=True, bufsize=1, stdin=pipe, stdout=pipe) as process:
            try:
                yield process
            finally:
                process.kill()


@contextlib.contextmanager
def run_aggregator(
    folder: Path, broker: MosquittoBroker, published: Experiment = EXPERIMENT, *, query: str = ""
) -> Iterator[Store]:
    """Run an aggregator with a store for an open and a keyed fleet."""
    url = f"sqlite:///{folder}/store.sqlite"
    (folder / "master.key").write_text(to_text(FLEET_KEYS))
    (folder / "master.key").chmod(0o600)
    with Store(url) as store:
        for fleet in ("open", "keyed"):
            store.add_fleet(fleet, keyed=fleet == "keyed")
            store.add_experiment(fleet, payload_of(published))
        arguments = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}{query}")
        with served(*arguments, "--master-key", folder / "master.key") as process:
            process.ready()
            yield store
            assert process.end() == 0


def count_reports(store: Store, fleet: str = "open") -> int:
    return int(store.histogram(fleet, EXPERIMENT.digest).sum())


class TestConsent:
    @pytest.mark.slow
    def test_is_required_and_opt_out_drops_unsent_reports(self, program: Path, tmp_path: Path):
        nobody = Post(program, tmp_path / "c", 1)  # no broker listens on this port
        assert "no ledger; provision this board" in nobody("status", status=1)
        assert "no ledger" in nobody("run", text="temp 1\n", status=1)
        nobody("provision")
        assert "a ledger exists" in nobody("provision", status=1)
        assert "consent: not asked" in nobody("run", text="temp 1\n")
        nobody("yes")

        def in_use() -> bool:
            with nobody.running() as process:  # ends if a status command locked the folder first; then retry
                while process.poll() is None:
                    if "another client uses this folder" in nobody("status", status=None):
                        return True
            return False

        until(in_use, "the lock")
        # The MicroPython client can use the same folder.
        client = Client(PYTHON_POLICY, str(nobody.folder), device_id="c", fleet="open")
        client.enroll(payload_of(EXPERIMENT))
        assert client.report("temp", 21.4) is not None
        assert client.report("temp", 21.4) is not None
        del client
        assert "consent: yes; 2 waiting" in nobody("status")
        nobody("no")
        assert "consent: no; 0 waiting" in nobody("status")
        (nobody.folder / "ledger1").write_bytes(b"damaged")
        assert "damaged" in nobody("status", status=1)
        assert "damaged" in nobody("yes", status=1)
        (nobody.folder / "settings.json").write_text('{"fleet": "open"}')
        assert "settings.json: mqtt_host" in nobody("status", status=1)
        # A value may equal a field's name. C texts cannot contain U+0000, nor UTF-8 half of a surrogate pair.
        nobody.settings["mqtt_user"] = "mqtt_port"
        for password in ("back\\slash\\new\t", "ä€😀"):
            nobody.settings["mqtt_password"] = password
            nobody.set_broker_port(1)
            assert "consent" in nobody("status", status=1)
        wrong = ("\0", "\ud83d", "\ud83dx", "\ude00", "x" * 256, "😀" * 64)
        for password in wrong:
            nobody.settings["mqtt_password"] = password
            nobody.set_broker_port(1)
            assert "mqtt_prefix is wrong" in nobody("status", status=1), ascii(password)
        nobody.settings |= {"mqtt_password": "", "mqtt_user": "a\tb"}
        nobody.set_broker_port(1)
        assert "mqtt_user must be UTF-8 without control characters" in nobody("status", status=1)
        assert "usage" in nobody("stop", status=1) + nobody("run", "0", "0", status=2)


class TestOwner:
    def test_sees_preview_and_exports_last_reports(self, program: Path, tmp_path: Path):
        post = Post(program, tmp_path / "c", 1)  # no broker listens on this port
        assert "no ledger" in post("preview", "temp", "21.4", status=1)
        assert "usage" in post("preview", "temp", status=2) + post("export", "temp", status=2)
        post("provision")
        assert post("preview", "temp", "21.4") == "temp: there is no such experiment yet.\n"
        policy = PYTHON_POLICY | {"groups": ("firmware",)}
        client = Client(policy, str(post.folder), device_id="c", fleet="open")
        kept = KeptExperiments(client, str(post.folder / "experiments"))
        for of in (EXPERIMENT, WITH_GROUP):
            kept.take(of.name, payload_of(of))
        words = {
            ("temp", "21.4"): preview.preview(client, "temp", 21.4),
            ("temp", "-"): preview.preview(client, "temp", None),
            ("room_temp@2.3.1", "-3"): preview.preview(client, "room_temp", -3, "2.3.1"),
        }
        del client, kept  # unlocks the folder
        for line, text in words.items():
            assert post("preview", *line) == f"{text}\n", line
            assert text.endswith("Nothing is sent: nobody at this board has opted in.")
        assert "requires another type of reading" in post("preview", "temp", "warm", status=1)
        assert post("preview", "nobody", "1", status=1).startswith("hushmote-post: nobody: ")
        post("yes")
        with post.running() as process:
            assert process.stdin
            assert process.stdout
            for _ in range(4):  # the outbox is full
                process.stdin.write("temp 21.4\n")
                assert process.stdout.readline().startswith("temp: report ")
        exported = json.loads(post("export"))
        assert (exported["consent"], exported["locked"], exported["sum"]) == (True, False, 8_000_000)
        assert exported["experiments"]["temp"] == {"epsilon": 2_000_000, "reports": 4, "left": 16}
        client = Client(PYTHON_POLICY, str(post.folder), device_id="c", fleet="open")
        client.enroll(payload_of(EXPERIMENT))
        *older, newest = [preview.words(client, report) for report in client.outbox()]
        described = [words.partition(";")[0] for words in older]  # how many were left then is not known
        assert [line[17:] for line in exported["last"]] == [*described, newest]
        assert all(re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d temp: code ", line) for line in exported["last"])
        del client
        (post.folder / "last").write_text("1800000000 1\n1800000000 11" + "00" * 9 + "\nno report")
        assert json.loads(post("export"))["last"] == []


class AckDroppingProxy:
    """Forward connections to a broker but drop its PUBACKs; `published` lists the forwarded reports."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.published: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), source, target, source.makefile("rb") as stream:
            while head := stream.read(1):
                size, shift, length = 0, 0, b""
                while not length or length[-1] & 128:
                    length += stream.read(1)
                    size |= (length[-1] & 127) << shift
                    shift += 7
                body = stream.read(size)
                if head[0] >> 4 == 3 and b"/report/" in body[: 2 + int.from_bytes(body[:2], "big")]:
                    self.published.append(body)
                if head[0] >> 4 != 4:
                    target.sendall(head + length + body)

    def close(self) -> None:
        self._server.close()


class TestReports:
    def test_count_once_and_give_correct_shares(self, program: Path, tmp_path: Path):
        """The count of the true bin in 160 reports is within 40 (7 standard deviations) of its mean."""
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            for i in range(8):
                fleet = ("open", "keyed")[i % 2]
                post = Post(program, tmp_path / f"c-{i}", broker.port, fleet, fleet == "keyed").ready()
                # Each device's budget is spent before the 21st line; the other lines are invalid.
                output = post(
                    "run", "0", text="x" * 9000 + "\n" + "temp 21.4\n" * 21 + "nobody 1\ntemp\n\ntemp 2"
                )
                assert output.count("each line must be NAME VALUE") == 2
                assert output.count("ignored a line of more than 4095 bytes") == 1
                assert "ignored the last line, which does not end with a newline" in output
                assert output.count("temp: report ") == 20
                assert "temp: no report; 0 more left" in output
                assert "temp: 20 reports made, 0 left" in output
            for fleet in ("open", "keyed"):
                until(lambda fleet=fleet: count_reports(store, fleet) >= 80, "80 reports")
                assert count_reports(store, fleet) == 80
            histogram = store.histogram("open", EXPERIMENT.digest) + store.histogram(
                "keyed", EXPERIMENT.digest
            )
            truth = math.exp(2) / (math.exp(2) + 3)
            assert abs(histogram[1] - 160 * truth) < 40
            assert all(of_fleet == {} for of_fleet in store.rejects().values())

    def test_name_the_group_of_the_readings_period(self, program: Path, tmp_path: Path):
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker, WITH_GROUP) as store:
            post = Post(program, tmp_path / "c", broker.port)
            post("provision")
            assert post("yes") == "it may send firmware unprotected\n"
            assert "room_temp: report 1, 11 bytes" in post("run", "0", text="room_temp 21.4\n")
            until(lambda: store.histogram("open", WITH_GROUP.digest).sum() == 1, "the report")
        with post.running() as process:  # the reports wait for the broker
            assert process.stdin
            assert process.stdout
            for line in ("room_temp 21.4", "room_temp@2.3.1 21.4", "room_temp@1.0 -"):
                process.stdin.write(f"{line}\n")
                assert process.stdout.readline().startswith("room_temp: report ")
        assert "room_temp: 4 reports made, 16 left; its firmware is sent unprotected\n" in post("status")
        client = Client(PYTHON_POLICY, str(post.folder), device_id="c", fleet="open")
        assert [report[9] for report in client.outbox()] == [1, 0, 2]

    def test_survive_broker_restart(self, program: Path, tmp_path: Path):
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            post = Post(program, tmp_path / "c", broker.port).ready()
            with post.running() as process:
                assert process.stdin
                assert process.stdout
                process.stdin.write("temp 1\n" * 3)
                until(lambda: count_reports(store) == 3, "3 reports")
                before = broker.saved_ns
                until(lambda: broker.saved_ns > before, "the broker to save the aggregator's session")
                broker.kill()
                process.stdin.write("temp 1\n" * 5)
                for number in range(1, 9):
                    assert process.stdout.readline().startswith(f"temp: report {number}, ")
                broker.start()
                process.stdin.close()
                assert process.wait(WAIT_S) == 0
            until(lambda: count_reports(store) >= 8, "8 reports")
            assert count_reports(store) == 8

    def test_count_once_if_killed_at_any_time(self, program: Path, tmp_path: Path):
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            post = Post(program, tmp_path / "c", broker.port).ready()
            for killed_after in (0, 1, 2, 3, 1, 0, 2, 3):
                with post.running() as process:
                    assert process.stdin
                    assert process.stdout
                    process.stdin.write("temp 1\n" * 3)
                    for _ in range(killed_after):
                        assert process.stdout.readline()
            output = post("run", "0")
            (report_count,) = map(int, re.findall(r"^temp: (\d+) reports? made", output, re.MULTILINE))
            assert 12 <= report_count <= 20
            until(lambda: count_reports(store) >= report_count, "all reports")
            assert count_reports(store) == report_count
            assert set(store.rejects().get("open", {})) <= {"duplicate"}

    def test_without_ack_are_bounded_and_resent_unchanged(self, program: Path, tmp_path: Path):
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            proxy = AckDroppingProxy(broker.port)
            post = Post(program, tmp_path / "c", proxy.port).ready()
            with post.running() as process:
                assert process.stdin
                assert process.stdout
                process.stdin.write("temp 1\n" * 7)
                for _ in range(7):
                    assert process.stdout.readline().startswith("temp: report ")
                until(lambda: count_reports(store) == 4, "4 reports")
            proxy.close()
            assert len(proxy.published) == 4
            post.set_broker_port(broker.port)
            assert "; 0 waiting" in post("run", "0")
            until(lambda: count_reports(store) >= 7, "7 reports")
            until(lambda: store.rejects().get("open") == {"duplicate": 4}, "the same 4 again")
            assert count_reports(store) == 7

    def test_go_only_to_the_fleets_broker_over_tls(self, program: Path, tmp_path: Path):
        """With the settings that `hushmote provision device` writes, and a CA file with two roots."""
        old, ca, port = Authority(tmp_path, "old"), Authority(tmp_path), free_port()
        certificate, key = ca.sign("broker", "127.0.0.1")
        roots = tmp_path / "roots.pem"
        roots.write_bytes(
            "Für den Wechsel\r\n".encode("latin-1") + old.file.read_bytes() + ca.file.read_bytes()
        )
        own = parse(b"".join(path.read_bytes() for path in ca.sign("c")), "the board's certificate")
        lines = (
            f"listener {port} 127.0.0.1",
            f"certfile {certificate}",
            f"keyfile {key}",
            f"cafile {ca.file}",
        )

        def provision(trusted: Path) -> None:
            path = post.folder / "settings.json"
            path.unlink()
            network = Network(mqtt_host="127.0.0.1", mqtt_port=port, mqtt_ca=trusted, certificate=own)
            provision_device(None, "open", "c", network, path=path)

        with (
            MosquittoBroker(settings=(*lines, "require_certificate true")) as broker,
            run_aggregator(tmp_path, broker) as store,
        ):
            post = Post(program, tmp_path / "c", port).ready()
            provision(roots)
            assert "; 0 waiting\n" in post("run", "0", text="temp 1\n")
            until(lambda: count_reports(store) == 1, "a report")
            provision(old.file)
            with post.running() as process:
                assert process.stdin
                assert process.stdout
                process.stdin.write("temp 1\n")
                assert process.stdout.readline().startswith("temp: report 2, ")
                log = Path(broker._folder or "", "log")
                until(lambda: "unknown ca" in log.read_text(), log.read_text)
                process.terminate()
                assert "; 1 waiting" in process.stdout.read()
                assert process.wait(WAIT_S) == 3
            assert count_reports(store) == 1

    @pytest.mark.parametrize("host", ["::1", "[::1]", "[::1]:{port}", "127.0.0.1:1,[::1]:{port}"])
    def test_reach_a_broker_with_an_ipv6_address(self, program: Path, tmp_path: Path, host: str):
        port = free_port()
        lines = (f"listener {port} ::1", "allow_anonymous true")
        with MosquittoBroker(settings=lines) as broker, run_aggregator(tmp_path, broker) as store:
            post = Post(program, tmp_path / "c", port).ready()
            post.settings["mqtt_host"] = host.format(port=port)
            post.set_broker_port(port)
            assert "; 0 waiting\n" in post("run", "0", text="temp 1\n")
            until(lambda: count_reports(store) == 1, "a report")

    def test_go_below_the_topic_prefix(self, program: Path, tmp_path: Path):
        prefix = "tenants/acme"
        with (
            MosquittoBroker() as broker,
            run_aggregator(tmp_path, broker, query=f"?prefix={prefix}") as store,
        ):
            post = Post(program, tmp_path / "c", broker.port)
            post.settings["mqtt_prefix"] = prefix
            post.set_broker_port(broker.port)
            post.ready()
            assert "; 0 waiting\n" in post("run", "0", text="temp 1\n")
            until(lambda: count_reports(store) == 1, "a report")

    @pytest.mark.parametrize("host", ["a,,b", "a:x", ":1883", "a:65536", "[::1", "[::1]1883", "[]:1"])
    def test_malformed_broker_is_refused(self, program: Path, tmp_path: Path, host: str):
        post = Post(program, tmp_path / "c", 1)
        post.settings["mqtt_host"] = host
        post.set_broker_port(1)
        assert "write mqtt_host as host or host:port" in post("provision", status=1)

    def test_page_without_broker_is_refused(self, program: Path, tmp_path: Path):
        post = Post(program, tmp_path / "c", 1)
        page = file_content(provision_device(None, "open", "c"), Firmware.PAGE)
        (post.folder / "identity.bin").write_bytes(page)
        assert "identity.bin has no broker: give" in post("provision", status=1)

    def test_websocket_is_refused_and_the_door_named(self, program: Path, tmp_path: Path):
        post = Post(program, tmp_path / "c", 1)
        for host in ("ws://a", "wss://a:443/mqtt"):
            post.settings["mqtt_host"] = host
            post.set_broker_port(1)
            output = post("provision", status=1)
            assert "does not speak MQTT over WebSocket" in output
            assert "`hushmote door`" in output
            assert output.count("\n") == 1

    def test_certificate_must_be_pem_or_base64(self, program: Path, tmp_path: Path):
        post = Post(program, tmp_path / "c", 1)
        for wrong in ("?", "AAAA  AAAA", " AAAA"):
            post.settings["mqtt_ca"] = wrong
            post.set_broker_port(1)
            assert "mqtt_ca, mqtt_cert or mqtt_key is wrong" in post("provision", status=1)


class TestForbiddingBroker:
    """The broker has an experiment, but does not permit the will or the status topic."""

    @pytest.mark.parametrize("what", ["closes at the will", "refuses the will", "closes at the status"])
    def test_gets_the_reports(self, what: str, program: Path, tmp_path: Path):
        reports: list[bytes] = []

        def answers(kind: int, body: bytes) -> bytes:
            answer = polite(kind, body)
            if kind == SUBSCRIBE and b"/room_temp" in body:
                return answer[:-1] + b"\x80"
            if kind == SUBSCRIBE:
                answer += message("open", "temp", payload_of(EXPERIMENT))
            if kind == PUBLISH and b"/report/" in body:
                reports.append(body)
            return answer

        broker = ScriptedBroker(forbidding(what, answers))
        post = Post(program, tmp_path / "d1", broker.port)
        post("provision")
        post("yes")
        output = post("run", "0", text="temp 21\n" * 3)
        assert len(reports) == 3
        assert "room_temp: 0 reports made, 0 left; refused: the broker forbids the subscription" in output
        if "will" in what:
            assert "left out: the broker does not permit a last will on hushmote/v1/open/status/d1" in output
        broker.close()

    def test_readings_wait_for_a_connection_that_lasts(self, program: Path, tmp_path: Path):
        """The broker closes four connections before their experiments arrive; the waits add up to seconds."""
        reports: list[bytes] = []
        subscriptions: list[bytes] = []

        def answers(kind: int, body: bytes) -> bytes:
            if kind == SUBSCRIBE:
                subscriptions.append(body)
                if len(subscriptions) <= 4:
                    return CLOSE
                if b"/temp" in body:
                    return polite(kind, body) + message("open", "temp", payload_of(EXPERIMENT))
            if kind == PUBLISH and b"/report/" in body:
                reports.append(body)
            return polite(kind, body)

        broker = ScriptedBroker(answers)
        Post(program, tmp_path / "d1", broker.port).ready()("run", "0", text="temp 21\n" * 3)
        assert len(reports) == 3
        broker.close()

    def test_settings_omit_status_and_will(self, program: Path, tmp_path: Path):
        packets: list[bytes] = []

        def answers(kind: int, body: bytes) -> bytes:
            packets.append(body)
            if kind == SUBSCRIBE and b"/temp" in body:
                return polite(kind, body) + message("open", "temp", payload_of(EXPERIMENT))
            return polite(kind, body)

        broker = ScriptedBroker(answers)
        post = Post(program, tmp_path / "d1", broker.port)
        post.settings |= {"mqtt_status": False, "mqtt_last_will": False}
        post.set_broker_port(broker.port)
        post("provision")
        post("yes")
        post("run", "0", text="temp 21\n")
        assert not [body for body in packets if b"/status/" in body]
        broker.close()


class TestReadings:
    def test_wrong_type_is_named_and_counts_as_missing(self, program: Path, tmp_path: Path):
        post = Post(program, tmp_path / "c", 1).ready()  # no broker listens on this port
        client = Client(PYTHON_POLICY, str(post.folder), device_id="c", fleet="open")
        kept = KeptExperiments(client, str(post.folder / "experiments"))
        kept.take("room_temp", experiment_json(name="room_temp", budget={"rule": "sum", "cap": 20_000_000}))
        del client, kept  # unlocks the folder
        made = "room_temp: report {}, 10 bytes; {} more left"
        wrong = "room_temp: the experiment requires another type of reading; it counted as missing"
        with post.running() as process:
            assert process.stdin
            assert process.stdout
            process.stdin.write("".join(f"room_temp {x}\n" for x in ("1", "warm", "false", "1.5", "-")))
            process.stdin.write("temp warm\n")  # not asked
            process.stdin.flush()
            lines = [process.stdout.readline().rstrip() for _ in range(8)]
        assert lines == [
            made.format(1, 19),
            *(made.format(2, 18), wrong),
            made.format(3, 17),
            *(made.format(4, 16), wrong),
            made.format(5, 15),
            "temp: no report; 0 more left",
        ]


@pytest.mark.broker
class TestNoDuringRun:
    """`no` takes effect in a process that has locked the folder."""

    @pytest.fixture
    def waiting(self, program: Path, tmp_path: Path) -> Iterator[tuple[Post, subprocess.Popen[str]]]:
        """Return a device whose broker is down and that has an unsent report, and its process."""
        with MosquittoBroker() as broker, run_aggregator(tmp_path, broker) as store:
            device = Post(program, tmp_path / "c", broker.port).ready()
            device("run", "0", text="temp 21.4\n")
            until(lambda: count_reports(store) == 1, "the experiment has come")
            broker.terminate()
            with device.running() as process:
                assert process.stdin
                assert process.stdout
                process.stdin.write("temp 21.4\n")
                assert "report 2" in process.stdout.readline()
                yield device, process
            broker.start()

    def test_ends_the_run_within_a_second(self, waiting: tuple[Post, subprocess.Popen[str]]):
        device, process = waiting
        since = time.monotonic()
        assert device("no") == ""
        process.wait(WAIT_S)
        assert time.monotonic() - since < 1
        assert process.stdout
        assert "consent: no; 0 waiting" in process.stdout.read()
        assert "consent: no; 0 waiting" in device("status")
        device("yes")
        assert "consent: yes; 0 waiting" in device("status")

    def test_is_stored_even_if_the_process_hangs_and_is_killed(
        self, waiting: tuple[Post, subprocess.Popen[str]]
    ):
        device, process = waiting
        process.send_signal(signal.SIGSTOP)
        output = device("no", status=1)
        assert "the opt-out is stored, but the running client has not applied it yet" in output
        process.kill()
        process.wait(WAIT_S)
        assert "consent: no; 0 waiting" in device("status")
        assert not (device.folder / "no").exists()

    def test_takes_over_the_folder_of_an_ending_process(self, waiting: tuple[Post, subprocess.Popen[str]]):
        device, process = waiting
        process.send_signal(signal.SIGSTOP)
        killer = threading.Timer(1, process.kill)
        killer.start()
        assert device("no") == ""
        killer.join()
        assert "consent: no; 0 waiting" in device("status")


LOG_KEYS = [5**80 + i for i in range(3)]


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    digits = ", ".join(f'"{ref.public_key(key).hex()}"' for key in LOG_KEYS)
    policy = (
        f'HUSHMOTE_LOG(questions, "example.org/questions", 2, {digits});\n'
        'HUSHMOTE_POLICY_WITH_LOG(policy, questions, 40000000, 0, 4000000, HUSHMOTE_SUM, 0, "temp");\n'
    )
    flags = " ".join((*STRICT, *SANITIZED))
    return post_program(tmp_path_factory.mktemp("logged"), policy, f"CFLAGS={flags}")


class TestLog:
    TOPIC = "hushmote/v1/keyed/experiment/temp"

    def test_reports_only_to_what_the_log_has(self, logged: Path, tmp_path: Path):
        payload = keys.sign_experiment(SIGNING, self.TOPIC, payload_of(EXPERIMENT), 1)
        proof = reference_log.proof_of(
            "example.org/questions", LOG_KEYS, (0, 1, 2), self.TOPIC, payload, 999, 1_000
        )
        with MosquittoBroker() as broker:
            publish(broker, [(self.TOPIC, payload)], retain=True)
            post = Post(logged, tmp_path / "c", broker.port, fleet="keyed", keyed=True).ready()
            output = post("run", "0", text="temp 1\n")
            assert "temp: no report" in output
            assert "refused: its proof from the log is missing" in output
            publish(broker, [("hushmote/v1/keyed/proof/temp", proof)], retain=True)
            output = post("run", "0", text="temp 1\n")
            assert "temp: report 1" in output
            assert "entry 999 of the log example.org/questions\n" in output
        assert "entry 999 of the log" in post("status")  # kept across the restart

    def test_requires_a_fleet_with_keys(self, logged: Path, tmp_path: Path):
        output = Post(logged, tmp_path / "c", 1)("provision", status=1)
        assert "names a log, which requires an announce_key" in output
