"""How often a board that sleeps switches its radio on: device/main.py's real wake-ups, its Wi-Fi counted.

    python benchmarks/connections.py              a year, hourly: about a minute
    python benchmarks/connections.py --quick      ten days

Every wake-up is a start, as on an ESP32: a new client on the same flash, the shipped generator on os.urandom.
The experiment's budget does not end.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import pytest
import results_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from enumeration import memory
from experiments import number_json
from wake_ups import Air, install, provisioned

from hushmote.device import main as application


def count(every: int, wake_ups: int) -> tuple[int, int]:
    """Connections and reports of a board in so many wake-ups."""
    payload = number_json(
        8, name="room_temp", high=40_000, every=every, budget={"rule": "unlimited"}, window="day"
    )
    air = Air()
    air.experiment("room_temp", payload)
    storage = memory(provisioned())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        install(patch, air, Path(folder), storage, {"room_temp": 21.4})
        for _ in range(wake_ups):
            application.Application().wake_up()
    return air.connections, len(air.reports())


def wake_ups(options: argparse.Namespace) -> list[dict]:
    hours, rows = (10 if options.quick else 365) * 24, []
    for every in (1, 10, 90, 1000):
        connections, reports = count(every, hours)
        row = {"every": every, "wake_ups": hours, "connections": connections, "reports": reports}
        rows.append(row | {"a_day": connections / hours * 24, "fewer_by": hours / connections})
    return rows


if __name__ == "__main__":
    results_file.show("an hourly wake-up; before, each connected", wake_ups(results_file.options(__doc__)))
