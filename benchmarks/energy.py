"""What reports cost an ESP32's battery in a year: arithmetic on the inputs below, each with its source.

python benchmarks/energy.py                             a reading an hour, every = 90
python benchmarks/energy.py --connected-s 5 --wake-ups 1188    others; wake-ups: see connections.py
"""

import argparse

HOURS = 365 * 24
SLEEP_MA = (
    0.010  # deep sleep, RTC timer and RTC memory: ESP32 Series Datasheet, power consumption by power modes
)
AWAKE_MA = 50  # radio off, 240 MHz, 30 to 68: the same table
RADIO_MA = 100  # receiving, 95 to 100: the same datasheet, RF power consumption
PICO_SLEEP_MA = 1.5  # lightsleep(5000): MicroPython's pull request 8832


def year_mah(wake_ups: int, connections: int, awake_s: float, connected_s: float) -> list[float]:
    """MAh asleep, awake and with the radio on."""
    return [
        SLEEP_MA * HOURS,
        AWAKE_MA * awake_s * wake_ups / 3600,
        RADIO_MA * connected_s * connections / 3600,
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--awake-s", type=float, default=1, help="of a wake-up, without radio: assumed")
    parser.add_argument("--connected-s", type=float, default=3, help="of a connection: assumed")
    parser.add_argument("--wake-ups", type=int, default=464, help="in a year, each with a connection")
    asked = parser.parse_args()
    times = asked.awake_s, asked.connected_s
    print("| mAh a year | sleep | awake | radio | all |\n|---|---|---|---|---|")
    for what, wake_ups in (("a wake-up for each reading", HOURS), ("with the gap", asked.wake_ups)):
        parts = year_mah(wake_ups, asked.wake_ups, *times)
        print(f"| {what} | " + " | ".join(f"{mah:,.0f}" for mah in [*parts, sum(parts)]) + " |")
    print(f"a report: {sum(year_mah(1, 1, *times)[1:]):.2f} mAh")
    print(f"a Pico W's light sleep: {PICO_SLEEP_MA * HOURS:,.0f} mAh a year")
