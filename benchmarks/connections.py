"""Count a sleeping board's wake-ups and connections, and estimate the charge that an ESP32 uses in a year.

    python benchmarks/connections.py              an hourly reading for a year; takes half a minute
    python benchmarks/connections.py --quick      ten days
    python benchmarks/connections.py --awake-s 2 --connected-s 5

This runs the real wake-ups of device/main.py and counts Wi-Fi connections. Every wake-up is a fresh start, as
on an ESP32, with a new client on the same flash and the shipped generator seeded by os.urandom. The
experiment's budget is unlimited. The charge is computed from the constants below, each with its source.
"""

import tempfile
from pathlib import Path

import pytest
from results_file import Options, options, show

# isort: split
from enumeration import memory
from experiments import number_json
from wake_ups import Air, install, provisioned

from hushmote.device import main as application

YEAR_H = 365 * 24
SLEEP_MA = 0.010  # deep sleep, RTC timer and memory: ESP32 Series Datasheet, power consumption by power modes
AWAKE_MA = 50  # radio off, 240 MHz, 30 to 68: the same table
RADIO_MA = 100  # receiving, 95 to 100: the same datasheet, RF power consumption
PICO_SLEEP_MA = 1.5  # lightsleep(5000): MicroPython's pull request 8832


def count(every: int, hours: int) -> tuple[int, int, int]:
    """Return the wake-ups, connections and reports of a board that takes one reading an hour."""
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


def year_mah(wake_ups: float, connections: float, settings: Options) -> dict[str, float]:
    """Return a year's charge, in mAh, for sleep, wake-ups and radio."""
    awake, radio = AWAKE_MA * settings.awake_s / 3600, RADIO_MA * settings.connected_s / 3600
    parts = {"sleep": SLEEP_MA * YEAR_H, "awake": awake * wake_ups, "radio": radio * connections}
    return parts | {"all": sum(parts.values()), "a_report": awake + radio}


if __name__ == "__main__":
    awake_s = {"type": float, "default": 1, "help": "assumed seconds awake per wake-up, without radio"}
    connected_s = {"type": float, "default": 3, "help": "assumed seconds of radio per connection"}
    settings = options(__doc__, awake_s=awake_s, connected_s=connected_s)
    hours, rows, energy = YEAR_H * 10 // 365 if settings.quick else YEAR_H, [], {}
    for every in (1, 10, 90, 1000):
        wake_ups, connections, reports = count(every, hours)
        row = {"every": every, "wake_ups": wake_ups, "connections": connections, "reports": reports}
        rows.append(row | {"a_day": wake_ups / hours * 24, "fewer_by": hours / wake_ups})
        for way, starts in ((f"every = {every}", wake_ups), (f"{every}, a wake-up for each reading", hours)):
            energy[way] = year_mah(starts * YEAR_H / hours, connections * YEAR_H / hours, settings)
    show("one reading an hour, where each reading used to cause a wake-up", rows)
    show(f"mAh a year (a Pico W's light sleep alone uses {PICO_SLEEP_MA * YEAR_H:,.0f})", energy)
