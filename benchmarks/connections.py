"""How often a board that sleeps switches its radio on: device/main.py's real wake-ups, its Wi-Fi counted.

    python benchmarks/connections.py              a year, hourly: about a minute
    python benchmarks/connections.py --quick      two months

Every wake-up is a start, as on an ESP32: a new client on the same flash, the shipped generator on os.urandom.
The experiment's budget does not end.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two months instead of a year")
    wake_ups = 60 * 24 if parser.parse_args().quick else 365 * 24
    print(f"{wake_ups:,} wake-ups, one an hour; before, each of them connected")
    print(f"{'every':>6}{'connections':>14}{'reports':>10}{'a day':>8}{'fewer by':>10}")
    for every in (1, 10, 90, 1000):
        connections, reports = count(every, wake_ups)
        a_day = connections / wake_ups * 24
        print(f"{every:>6}{connections:>14,}{reports:>10,}{a_day:>8.2f}{wake_ups / connections:>9.1f}x")


if __name__ == "__main__":
    main()
