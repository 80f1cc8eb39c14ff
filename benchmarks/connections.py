"""How often a board that sleeps wakes up and connects: device/main.py's real wake-ups, its Wi-Fi counted.

    python benchmarks/connections.py              a year, hourly: half a minute
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


def count(every: int, hours: int) -> tuple[int, int, int]:
    """Wake-ups, connections and reports of a board with a reading an hour."""
    payload = number_json(
        8, name="room_temp", high=40_000, every=every, budget={"rule": "unlimited"}, window="day"
    )
    air = Air()
    air.experiment("room_temp", payload)
    storage = memory(provisioned())
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        install(patch, air, Path(folder), storage, {"room_temp": 21.4})
        at_s = wake_ups = 0
        due = None
        while at_s < hours * 3600:
            board = application.Application()
            board.due = due
            board.wake_up()
            at_s += board.sleep_s()
            due = board.due
            wake_ups += 1
    return wake_ups, air.connections, len(air.reports())


def rows(options: argparse.Namespace) -> list[dict]:
    hours, found = (10 if options.quick else 365) * 24, []
    for every in (1, 10, 90, 1000):
        wake_ups, connections, reports = count(every, hours)
        row = {"every": every, "wake_ups": wake_ups, "connections": connections, "reports": reports}
        found.append(row | {"a_day": wake_ups / hours * 24, "fewer_by": hours / wake_ups})
    return found


if __name__ == "__main__":
    results_file.show("a reading an hour: once each had a wake-up", rows(results_file.options(__doc__)))
