"""Record a device's lifetime for the health readers: python tools/make_health_lifetime.py.

The device crashes, loses its network and its power, updates itself and uses its battery. Each reading's truth
is computed from the whole record by the question's definition, so it does not depend on the readers' state.
The first line of the file has the questions' experiments, each further line one event:

    [seconds, "start", cause] [seconds, "ack", dBm] [seconds, "heap", bytes] [seconds, "newer"]
    [seconds, "updated", outcome] [seconds, "why", cause] [seconds, "battery", percent]
    [seconds, "read", {question: [truth, index]}]
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from hushmote.planning import library

PATH = Path(__file__).parents[1] / "tests" / "health_lifetime.jsonl"
HOUR, DAY = 3600, 86_400
BEGIN, DAYS = 1_000 * DAY, 60
READ = (
    *("crashed", "update", "days_behind", "unreachable", "restart"),
    *("uptime", "signal", "heap_low", "boot_time", "battery_life"),
)
"""The questions that Health.read() answers from its state."""
Event = tuple[int, str, Any]


def record() -> list[Event]:
    """Return 60 days of events, in order, without readings."""
    rng, events, level = np.random.default_rng(58), list[Event](), 40.0
    crashes = {9: "watchdog", 17: "panic", 18: "watchdog", 40: "brown-out"}
    for day in range(DAYS):
        begin = BEGIN + day * DAY
        if day == 0:
            events.append((begin + 7, "start", "power"))
        if day in crashes:
            events.append((begin + 5 * HOUR + 13, "start", crashes[day]))
        if day in (18, 52):  # the power fails after a crash, and on its own
            events.append((begin + 11 * HOUR, "start", "power"))
        if day in (5, 33, 55):
            events.append((begin + 2 * HOUR, "newer", None))
        if day in (24, 45, 53):
            outcome = {24: "verify", 45: "rolled back", 53: "ok"}[day]
            events += [(begin + 3 * HOUR, "why", "update"), (begin + 3 * HOUR + 60, "start", "other")]
            events.append((begin + 3 * HOUR + 70, "updated", outcome))
        for hour in range(0, 24, 3):
            now = begin + hour * HOUR + 1800
            events.append((now, "heap", int(rng.integers(20_000, 150_000))))
            if not 33 <= day + hour / 24 < 35.3 and rng.random() < 0.4:
                events.append((now + int(rng.integers(1, 20)), "ack", int(rng.integers(-95, -45))))
            level = 100.0 if level < 6 else level - 3 * rng.random()
            events.append((now + 30, "battery", int(level)))
    starts = [t for t, kind, _ in events if kind == "start"]
    events += [(t + int(rng.integers(2, 30)), "ack", int(rng.integers(-95, -45))) for t in starts]
    return sorted(events, key=lambda event: event[0])


def truth(events: list[Event], now: int) -> dict[str, Any]:
    """Return the true answer to each question at a time, by definition, from all earlier events."""
    past = [event for event in events if event[0] <= now]

    def times(kind: str, *values: str) -> list[int]:
        return [t for t, k, value in past if k == kind and (not values or value in values)]

    why = [(t, value) for t, k, value in past if k == "why"]
    starts = [
        (t, next((w for at, w in why if 0 <= t - at <= 60), cause)) for t, k, cause in past if k == "start"
    ]
    acknowledged, started = times("ack"), starts[-1][0]
    first_ack = [t for t in acknowledged if t >= started]
    installed = max(times("updated", "ok"), default=0)
    newer = [t for t in times("newer") if t > installed]
    today = now // DAY
    heaps = {d: [v for t, k, v in past if k == "heap" and t // DAY == d] for d in (today - 1, today)}
    outcomes = [value for _, k, value in past if k == "updated"]
    charges = [(t, value) for t, k, value in past if k == "battery"]
    return {
        "crashed": any(now - DAY < t for t, cause in starts if cause in ("panic", "watchdog", "brown-out")),
        "update": outcomes[-1] if outcomes else None,
        "days_behind": (now - newer[0]) / DAY if newer else 0,
        "unreachable": now - max([starts[0][0], *acknowledged]) >= DAY,
        "restart": starts[-1][1],
        "uptime": (now - started) / HOUR,
        "signal": next((value for _, k, value in reversed(past) if k == "ack"), None),
        "heap_low": min(heaps[today - 1] or heaps[today], default=0) / 1024,
        "boot_time": first_ack[0] - started if first_ack else None,
        "battery_life": _last_charge(charges),
    }


def _last_charge(charges: list[tuple[int, int]]) -> float | None:
    """Return the hours from the last full charge before the last time that the battery was used up."""
    for i in range(len(charges) - 1, 0, -1):
        used_up = charges[i][1] <= 10 < charges[i - 1][1]
        full = [t for t, level in charges[:i] if level >= 95]
        if used_up and full:
            return (charges[i][0] - full[-1]) / HOUR
    return None


def text() -> str:
    """Return the file: the experiments, then the events with two readings a day."""
    events = record()
    experiments = {name: library.question(name).experiment() for name in READ}
    payloads = {name: library.question(name).payload().decode() for name in READ}
    lines = [json.dumps(payloads, separators=(",", ":"))]
    for day in range(1, DAYS):
        for hour in (4, 15):
            now = BEGIN + day * DAY + hour * HOUR
            values = truth(events, now)
            reading = {name: [values[name], experiments[name].bucket(values[name])] for name in READ}
            events.append((now, "read", reading))
    events.sort(key=lambda event: event[0])
    return "\n".join([*lines, *(json.dumps(event, separators=(",", ":")) for event in events)]) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="ascii")
