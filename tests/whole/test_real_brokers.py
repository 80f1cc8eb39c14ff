"""Boards, the door and `hushmote serve` on brokers by other people, which `make brokers` installs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from broker_limits import ROWS
from broker_table import columns_of_page
from c_core import needs_gcc, post_program
from doors import open_door
from experiments import number_json
from make_own_brokers import PAGE, limits
from micropython import find_runtime
from real_brokers import OWN_BROKERS, Moquette, RealBroker
from run_page import LIBRARY
from running_aggregator import WAIT_S, until
from serve_process import Served, served
from tcp_proxy import Proxy
from traffic import publish

from hushmote.device import ldp_client
from hushmote.fleet.door.publisher import QUIET_S
from hushmote.server.store import Store
from hushmote.server.wire import report, topics

ROOT = Path(__file__).resolve().parents[2]
FLEET = "house"
BUDGET = {"rule": "sum", "cap": 30_000_000}
EXPERIMENT = number_json(8, name="room_temp", high=40_000, epsilon=1_000_000, budget=BUDGET, window="all")
POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 2_000_000,
    "rules": ["sum"],
    "experiments": ["room_temp"],
}
C_POLICY = 'HUSHMOTE_POLICY(policy, 40000000, 0, 2000000, HUSHMOTE_SUM, false, "room_temp");\n'
PATIENT = {
    "delay_s": 0,
    "spread_s": 1,
    "timeout_s": 60,
    "backoff_s": 1,
    "backoff_max_s": 1,
    "settle_s": 1,
}
EACH_MS = 120_000
LOAD = 1000
STATUS = "hushmote/v1/+/status/+"
# What a board leaves out if a broker forbids STATUS; mosquitto acknowledges the status and drops it.
LEFT_OUT = {"mosquitto": [], "hivemq": ["status", "will"]}
SESSION_S = 2

pytestmark = pytest.mark.broker


def each(applies: Callable[[type[RealBroker]], bool], *, java: bool = True) -> pytest.MarkDecorator:
    """Parametrize `kind` with the brokers to which this applies; java: whether `make test` starts Java."""

    def marks(kind: type[RealBroker]) -> list[pytest.MarkDecorator]:
        # markers.py counts Node.js as a runtime of MicroPython.
        node = [pytest.mark.micropython] if kind.tool == "npm" else []
        slow = [pytest.mark.long] if kind.tool == "mvn" and not java else []
        return [pytest.mark.skipif(bool(kind.missing()), reason=kind.missing()), *node, *slow]

    kinds = [pytest.param(kind, id=kind.name, marks=marks(kind)) for kind in OWN_BROKERS if applies(kind)]
    return pytest.mark.parametrize("kind", kinds)


each_broker = each(lambda kind: True)
needs_libmosquitto = pytest.mark.skipif(
    not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev"
)


@dataclass
class Fleet:
    """A broker, and the store of its aggregator."""

    broker: RealBroker
    store: Store

    def counts(self) -> list[int]:
        """Return the number of counted reports by code."""
        return self.store.histogram(FLEET, ldp_client.Experiment.parse(EXPERIMENT).digest).tolist()

    def count(self) -> int:
        return sum(self.counts())

    def board(
        self,
        *program: str,
        reports: int = 3,
        left_out: list[str] | None = None,
        folder: Path | None = None,
        timeout_s: int = 60,
        kind: str | None = None,
    ) -> dict[str, Any]:
        """Let a board of this runtime send reports; return its last answers by command.

        left_out: what it must leave out before it ends. folder: the ledger's, which may exist.
        """
        modules = str(ROOT / "device")
        settings = {"host": "127.0.0.1", "port": self.broker.port, "device": f"board-{kind or 'umqtt'}"}
        settings |= {"fleet": FLEET, "policy": POLICY, "kind": kind}
        settings |= {"reporter": PATIENT | {"timeout_s": timeout_s}}
        if folder is not None:
            settings |= {"folder": str(folder), "again": folder.exists()}
            folder.mkdir(exist_ok=True)
        commands = [["until", "state", "reporting", EACH_MS]]
        commands += [["report", "room_temp", value] for value in (21.4, None, 3)[:reports]]
        commands += [["until", "pending", 0, EACH_MS], ["spent"], ["sent"]]
        commands += [] if left_out is None else [["until", "left_out", left_out, EACH_MS]]
        commands += [["until", "connected", True, EACH_MS], ["status"]]
        done = subprocess.run(
            [*program, str(ROOT / "firmware_tests" / "reporter" / "board.py")],
            input="".join(json.dumps(line) + "\n" for line in (settings, *commands)),
            env=os.environ | {"MICROPYPATH": f"{modules}{os.pathsep}.frozen", "PYTHONPATH": modules},
            capture_output=True,
            text=True,
            timeout=4 * EACH_MS / 1000,
            check=False,
        )
        ready, *answers = map(json.loads, done.stdout.splitlines())
        assert ready == "ready", done.stdout + done.stderr
        assert len(answers) == len(commands), done.stdout + done.stderr
        for command, answer in zip(commands, answers, strict=True):
            assert command[0] != "until" or answer[0], (command, answers)
        return {command[0]: answer for command, answer in zip(commands, answers, strict=True)}


class Post:
    """A device with hushmote-post, which reaches the broker at this port."""

    def __init__(self, broker: RealBroker, folder: Path, port: int | None = None) -> None:
        self._program, self._folder = post_program(folder, C_POLICY), folder / "c"
        self._folder.mkdir()
        settings = {"fleet": FLEET, "device_id": "c", "key": None, "announce_key": None}
        settings |= {"mqtt_host": broker.host, "mqtt_port": port or broker.port, "mqtt_user": None}
        (self._folder / "settings.json").write_text(json.dumps(settings))
        self("provision")
        self("yes")

    def __call__(self, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [self._program, self._folder, *arguments], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run_until(self, condition: Callable[[], bool], text: str) -> str:
        """Report these readings and stay connected until the condition holds; return the output."""
        with subprocess.Popen(
            [self._program, self._folder, "run", "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdin
                process.stdin.write(text)
                process.stdin.flush()
                until(condition, "the C client reaches the condition")
                process.terminate()
                return process.communicate(timeout=WAIT_S)[0]
            finally:
                process.kill()


@contextlib.contextmanager
def open_fleet(broker: RealBroker, folder: Path) -> Iterator[Fleet]:
    with Store(f"sqlite:///{folder}/store.sqlite") as store:
        store.add_fleet(FLEET, keyed=False)
        store.add_experiment(FLEET, EXPERIMENT)
        yield Fleet(broker, store)


@contextlib.contextmanager
def running_fleet(broker: RealBroker, folder: Path) -> Iterator[Fleet]:
    with open_fleet(broker, folder) as fleet, serving(broker, folder):
        yield fleet


@contextlib.contextmanager
def serving(broker: RealBroker, folder: Path) -> Iterator[Served]:
    """Run `hushmote serve`, which must end without an error."""
    with served("--store", f"sqlite:///{folder}/store.sqlite", "--broker", broker.url) as process:
        yield process.ready()
        assert process.end() == 0


def load(first: int, count: int, code: int = 0) -> list[tuple[str, bytes]]:
    payload = report.encode(ldp_client.Experiment.parse(EXPERIMENT), 1, code)
    return [(topics.report_topic(FLEET, f"load-{i}"), payload) for i in range(first, first + count)]


class TestFleet:
    @each_broker
    def test_counts_reports_of_every_client(self, kind: type[RealBroker], tmp_path: Path) -> None:
        with kind() as broker, running_fleet(broker, tmp_path) as fleet:
            for program, reporter in ((find_runtime(), None), ((sys.executable,), "asyncio")):
                fleet.board(*program, kind=reporter)
            with open_door(broker, quiet_s=QUIET_S) as door:
                for topic, payload in load(0, 3):
                    accepted = door.accepts(topic.rpartition("/")[2], payload, FLEET)
                    until(accepted, "the broker has sent the experiment")
            until(lambda: fleet.count() == 9, lambda: f"{fleet.count()} of 9 reports")
            assert not any(fleet.store.rejects().values())

    @needs_gcc
    @needs_libmosquitto
    @each_broker
    def test_counts_reports_of_c_client(self, kind: type[RealBroker], tmp_path: Path) -> None:
        with kind() as broker, running_fleet(broker, tmp_path) as fleet:
            Post(broker, tmp_path)("run", "0", text="room_temp 21.4\n" * 3)
            until(lambda: fleet.count() == 3, lambda: f"{fleet.count()} of 3 reports")

    @pytest.mark.long
    @each_broker
    def test_restart_under_load_doubles_nothing(self, kind: type[RealBroker], tmp_path: Path) -> None:
        """Nothing is lost either, unless the broker loses the session with it, which `serve` then logs."""
        if not kind.recovers:
            pytest.skip(f"{kind.title} does not serve clients after that: docs/your-own-broker.md")
        with (
            kind() as broker,
            open_fleet(broker, tmp_path) as fleet,
            serving(broker, tmp_path) as serve,
        ):
            publisher = threading.Thread(target=publish, args=(broker, load(0, LOAD)))
            publisher.start()
            until(lambda: fleet.count() > LOAD // 10, "a tenth is counted")
            broker.restart()
            publisher.join(WAIT_S)
            assert not publisher.is_alive()
            until(lambda: serve.log().count("subscribed at") == 2, serve.log)
            if kind.keeps_data:
                until(lambda: fleet.count() >= LOAD, lambda: f"{fleet.count()} of {LOAD} reports")
            else:
                assert "the broker forgot this aggregator: reports that boards sent between" in serve.log()
            publish(broker, load(LOAD, 1, code=1))
            until(lambda: fleet.counts()[1] == 1, "one more is counted")
            assert LOAD // 10 < fleet.counts()[0] <= LOAD
            assert fleet.counts()[0] == LOAD or not kind.keeps_data
            assert fleet.store.rejects().get(FLEET, {}).keys() <= {"duplicate"}


class TestForbiddenStatus:
    @each(lambda kind: kind.has_permissions, java=False)
    def test_board_reports_and_names_the_topic(self, kind: type[RealBroker], tmp_path: Path) -> None:
        left_out = LEFT_OUT.get(kind.name, ["status"])
        with kind(forbidden=(STATUS,)) as broker, running_fleet(broker, tmp_path) as fleet:
            answers = fleet.board(*find_runtime(), left_out=left_out, timeout_s=5)
            assert answers["sent"] == 3
            for part, words in (("status", "status left out"), ("will", "last will left out")):
                sentence = f"{words}: the broker does not permit it on hushmote/v1/{FLEET}/status/board-umqtt"
                assert (sentence in answers["status"]) == (part in left_out)
            until(lambda: fleet.count() == 3, lambda: f"{fleet.count()} of 3 reports")
            assert not any(fleet.store.rejects().values())

    @needs_gcc
    @needs_libmosquitto
    @pytest.mark.long
    @each(lambda kind: kind.has_permissions)
    def test_c_client_reports_and_names_the_topic(self, kind: type[RealBroker], tmp_path: Path) -> None:
        # A status without a PUBACK costs this client nothing, because it does not wait for it.
        left_out = [] if kind is Moquette else LEFT_OUT.get(kind.name, ["status"])
        with (
            kind(forbidden=(STATUS,)) as broker,
            running_fleet(broker, tmp_path) as fleet,
            contextlib.closing(Proxy(broker.port)) as proxy,
        ):
            connections = 1 + 2 * len(left_out)
            output = Post(broker, tmp_path, proxy.port).run_until(
                lambda: fleet.count() == 3 and proxy.connects >= connections, "room_temp 21.4\n" * 3
            )
            assert fleet.count() == 3
            # Artemis may close the connection before it acknowledges a report that follows the status.
            assert fleet.store.rejects().get(FLEET, {}).keys() <= {"duplicate"}
        parts = " or ".join({"status": "the status", "will": "a last will"}[part] for part in left_out)
        sentence = f"left out: the broker does not permit {parts} on hushmote/v1/{FLEET}/status/c"
        assert (sentence in output) if left_out else ("left out" not in output)


class TestExpiredSession:
    @pytest.mark.long
    @each(lambda kind: kind.has_session_limit)
    def test_states_the_loss_and_counts_the_rest(self, kind: type[RealBroker], tmp_path: Path) -> None:
        ledger = tmp_path / "ledger"
        with kind(session_s=SESSION_S) as broker, open_fleet(broker, tmp_path) as fleet:

            def report() -> dict[str, Any]:
                answers = fleet.board(*find_runtime(), reports=1, folder=ledger)
                assert answers["sent"] == 1
                return answers

            with serving(broker, tmp_path) as serve:
                report()
                until(lambda: fleet.count() == 1, lambda: f"{fleet.count()} of 1 report")
                speaks_5 = "with MQTT 5" in serve.log()
                limit = f"the broker discards this aggregator's session {SESSION_S} s after it disconnects"
                assert (limit in serve.log()) == speaks_5
            report()  # the broker acknowledges it, and drops it with the session
            time.sleep(SESSION_S + 2)
            with serving(broker, tmp_path) as serve:
                assert "the broker does not know this aggregator: if it was there before" in serve.log()
                assert report()["spent"] == 3 * 1_000_000
                until(lambda: fleet.count() >= 2, lambda: f"{fleet.count()} of 2 reports")
            # Moquette may still deliver the queue of a session that it says it does not have.
            assert fleet.count() in ((2, 3) if kind is Moquette else (2,))
            assert not any(fleet.store.rejects().values())


class TestTable:
    @pytest.mark.long
    @each_broker
    def test_column_holds_at_the_broker(self, kind: type[RealBroker]) -> None:
        assert limits(kind) == columns_of_page(PAGE, ROWS)[kind.title]

    def test_lists_each_row(self) -> None:
        for cells in columns_of_page(PAGE, ROWS).values():
            assert list(cells) == list(ROWS)
            assert all(cells.values())
