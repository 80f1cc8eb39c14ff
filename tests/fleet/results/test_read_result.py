"""The example that reads a result on a board, in a real MicroPython and from a real mosquitto."""

import datetime
import os
import subprocess
from pathlib import Path

from boards import experiment, payload_of
from filled import fill
from micropython import ROOT, find_runtime
from running import HANGS_S
from traffic import publish

from hushmote.fleet.results.result import result_of
from hushmote.server.store import Store
from hushmote.server.wire.topics import result_topic
from hushmote.simulator.broker import MosquittoBroker

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


def shown(runtime: tuple[str, ...], port: int, name: str) -> str:
    """Return what the board prints."""
    script = f"import read_result; read_result.show('127.0.0.1', 'home', {name!r}, port={port})"
    path = f"{ROOT / 'examples'}:{ROOT / 'device'}"
    board = subprocess.run(
        [*runtime, "-c", script],
        env=os.environ | {"MICROPYPATH": path},
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )
    assert board.returncode == 0, board.stderr + board.stdout
    return board.stdout


def test_a_board_reads_what_was_learned(tmp_path: Path):
    runtime = find_runtime()
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store, MosquittoBroker() as broker:
        fill(store, "home", payload_of(experiment()), {"2026-11-21": 900}, unit="°C")
        result = result_of(store, "home", "temp", NOON)
        publish(broker, [(result_topic("home", "temp"), result.to_json())], retain=True)
        mean, median, last = shown(runtime, broker.port, "temp").splitlines()
        for line, one in zip((mean, median), result.statistics.values(), strict=True):
            name, _, numbers = line.partition(": ")
            assert name == one.name
            assert abs(float(numbers.split()[0]) - one.value) < 1e-4 * abs(one.value)  # a board's floats
        assert last == f"900 reports; {result.epsilon.holds}"
        assert shown(runtime, broker.port, "other") == "nothing was published yet\n"
