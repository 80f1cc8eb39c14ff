"""Boards, the door and `hushmote serve` on brokers by other people, which `make brokers` installs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
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
from real_brokers import OWN_BROKERS, RealBroker
from run_page import LIBRARY
from running_aggregator import WAIT_S, until
from serve_process import served
from traffic import publish

from hushmote.device import ldp_client
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
PATIENT = {"delay_s": 0, "timeout_s": 60, "backoff_s": 1, "backoff_max_s": 1, "settle_s": 1}
EACH_MS = 120_000
LOAD = 1000

pytestmark = pytest.mark.broker


def _marks(kind: type[RealBroker]) -> list[pytest.MarkDecorator]:
    # markers.py counts Node.js as a runtime of MicroPython.
    node = [pytest.mark.micropython] if kind.tool == "npm" else []
    return [pytest.mark.skipif(bool(kind.missing()), reason=kind.missing()), *node]


each_broker = pytest.mark.parametrize(
    "kind", [pytest.param(kind, id=kind.name, marks=_marks(kind)) for kind in OWN_BROKERS]
)


@dataclass
class Fleet:
    """A broker with a running `hushmote serve`, and its store."""

    broker: RealBroker
    store: Store
    folder: Path

    def count(self) -> int:
        return int(self.store.histogram(FLEET, ldp_client.Experiment.parse(EXPERIMENT).digest).sum())

    def board(self, *program: str, kind: str | None = None) -> dict[str, Any]:
        """Let a board of this runtime send three reports; return its last answers by command."""
        modules = str(ROOT / "device")
        settings = {"host": "127.0.0.1", "port": self.broker.port, "device": f"board-{kind or 'umqtt'}"}
        settings |= {"fleet": FLEET, "policy": POLICY, "reporter": PATIENT, "kind": kind}
        commands = [["until", "state", "reporting", EACH_MS]]
        commands += [["report", "room_temp", value] for value in (21.4, None, 3)]
        commands += [["until", "pending", 0, EACH_MS], ["status"], ["connects"]]
        done = subprocess.run(
            [*program, str(ROOT / "firmware_tests" / "reporter" / "board.py")],
            input="".join(json.dumps(line) + "\n" for line in (settings, *commands)),
            env=os.environ | {"MICROPYPATH": f"{modules}{os.pathsep}.frozen", "PYTHONPATH": modules},
            capture_output=True,
            text=True,
            timeout=3 * EACH_MS / 1000,
            check=False,
        )
        ready, *answers = map(json.loads, done.stdout.splitlines())
        assert ready == "ready", done.stdout + done.stderr
        return {command[0]: answer for command, answer in zip(commands, answers, strict=True)}


@contextlib.contextmanager
def running_fleet(broker: RealBroker, folder: Path) -> Iterator[Fleet]:
    url = f"sqlite:///{folder}/store.sqlite"
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=False)
        store.add_experiment(FLEET, EXPERIMENT)
        with served("--store", url, "--broker", broker.url) as process:
            process.ready()
            yield Fleet(broker, store, folder)
            assert process.end() == 0


def load(first: int, count: int) -> list[tuple[str, bytes]]:
    payload = report.encode(ldp_client.Experiment.parse(EXPERIMENT), 1, 0)
    return [(topics.report_topic(FLEET, f"load-{i}"), payload) for i in range(first, first + count)]


class TestFleet:
    @each_broker
    def test_counts_reports_of_every_client(self, kind: type[RealBroker], tmp_path: Path) -> None:
        with kind() as broker, running_fleet(broker, tmp_path) as fleet:
            for program, reporter in ((find_runtime(), None), ((sys.executable,), "asyncio")):
                assert fleet.board(*program, kind=reporter)["until"] is not False
            with open_door(broker) as door:
                for topic, payload in load(0, 3):
                    device = topic.rpartition("/")[2]
                    # Unlike the others, aedes sends retained messages some time after the SUBACK.
                    until(
                        lambda device=device, payload=payload: (
                            door.report(device, payload, FLEET).status == 204
                        ),
                        "the door knows the fleet",
                    )
            until(lambda: fleet.count() == 9, lambda: f"{fleet.count()} of 9 reports")
            assert not any(fleet.store.rejects().values())

    @needs_gcc
    @pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev")
    @each_broker
    def test_counts_reports_of_c_client(self, kind: type[RealBroker], tmp_path: Path) -> None:
        program = post_program(tmp_path, C_POLICY)
        device = tmp_path / "c"
        device.mkdir()

        def post(*arguments: str, text: str = "") -> str:
            done = subprocess.run(
                [program, device, *arguments], input=text, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with kind() as broker, running_fleet(broker, tmp_path) as fleet:
            settings = {"fleet": FLEET, "device_id": "c", "key": None, "announce_key": None}
            settings |= {"mqtt_host": broker.host, "mqtt_port": broker.port, "mqtt_user": None}
            (device / "settings.json").write_text(json.dumps(settings))
            post("provision")
            post("yes")
            post("run", "0", text="room_temp 21.4\n" * 3)
            until(lambda: fleet.count() == 3, lambda: f"{fleet.count()} of 3 reports")

    @pytest.mark.long
    @each_broker
    def test_restart_under_load_loses_and_doubles_nothing(
        self, kind: type[RealBroker], tmp_path: Path
    ) -> None:
        if not kind.keeps_data:
            pytest.skip(f"{kind.title} loses acknowledged reports over a restart: docs/your-own-broker.md")
        with kind() as broker, running_fleet(broker, tmp_path) as fleet:
            publisher = threading.Thread(target=publish, args=(broker, load(0, LOAD)))
            publisher.start()
            until(lambda: fleet.count() > LOAD // 10, "a tenth is counted")
            broker.restart()
            publisher.join(WAIT_S)
            assert not publisher.is_alive()
            until(lambda: fleet.count() >= LOAD, lambda: f"{fleet.count()} of {LOAD} reports")
            publish(broker, load(LOAD, 1))
            until(lambda: fleet.count() > LOAD, "one more is counted")
            assert fleet.count() == LOAD + 1
            assert fleet.store.rejects().get(FLEET, {}).keys() <= {"duplicate"}


class TestTable:
    @pytest.mark.long
    @each_broker
    def test_column_holds_at_the_broker(self, kind: type[RealBroker]) -> None:
        assert limits(kind) == columns_of_page(PAGE, ROWS)[kind.title]

    def test_lists_each_row(self) -> None:
        for cells in columns_of_page(PAGE, ROWS).values():
            assert list(cells) == list(ROWS)
            assert all(cells.values())
