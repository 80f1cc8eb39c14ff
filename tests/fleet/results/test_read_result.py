"""The example that reads a result on a board, with real MicroPython and a real mosquitto."""

import datetime
import os
import subprocess
from pathlib import Path

from boards import experiment, payload_of
from filled_store import fill
from micropython import ROOT, find_runtime
from running_aggregator import HANGS_S
from traffic import publish

from hushmote.fleet.results.result import result_of
from hushmote.server.store import Store
from hushmote.server.wire.topics import result_topic
from hushmote.simulator.broker import MosquittoBroker

NOON = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)


def board_output(runtime: tuple[str, ...], port: int, name: str) -> str:
    """Return the board's output."""
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


def test_board_reads_result(tmp_path: Path):
    runtime = find_runtime()
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store, MosquittoBroker() as broker:
        fill(store, "home", payload_of(experiment()), {"2026-11-21": 900}, unit="°C")
        result = result_of(store, "home", "temp", NOON)
        publish(broker, [(result_topic("home", "temp"), result.to_json())], retain=True)
        mean, median, last = board_output(runtime, broker.port, "temp").splitlines()
        for line, statistic in zip((mean, median), result.statistics.values(), strict=True):
            name, _, numbers = line.partition(": ")
            assert name == statistic.name
            # The precision of a board's floats.
            assert abs(float(numbers.split()[0]) - statistic.value) < 1e-4 * abs(statistic.value)
        assert last == f"900 reports; {result.epsilon.holds}"
        assert board_output(runtime, broker.port, "other") == "nothing was published yet\n"
