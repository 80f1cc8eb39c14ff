"""Read a board's health for the standard questions, which `hushmote questions` lists.

    health = Health(state)                     a dict of JSON values to keep across restarts
    health.start(cause(machine), now)          once after a start that is not the end of a sleep
    health.sample(gc.mem_free(), now)          at every wake-up
    health.acknowledged(rssi, now)             after each message that the broker acknowledged
    READINGS["crashed"] = lambda: health.read("crashed", now)

`now` is in seconds, from a clock that keeps running across restarts and sleep if the board has one. If it
is reset, or moves by more than a year, the time in between counts as zero.
"""

# pyright: reportAttributeAccessIssue=false

import gc
import json
import sys
import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .ldp_client import const
else:
    from ldp_client import const

_DAY = const(86_400)
_HOUR = const(3600)
_YEAR = const(31_536_000)
_FULL = const(95)  # percent from which a battery is full, and to which it is used up
_EMPTY = const(10)
_TIMES = ("start", "crash", "ack", "newer", "full")  # what `state` stores as a time
_CHIPS = ("esp32-s2", "esp32-s3", "esp32-c3", "esp32-c6", "esp32", "rp2040", "rp2350")


def cause(machine):
    """Return why the board started, as far as machine.reset_cause() says: power, watchdog or other."""
    causes = {getattr(machine, "PWRON_RESET", -1): "power", getattr(machine, "WDT_RESET", -2): "watchdog"}
    return causes.get(machine.reset_cause(), "other")


def chip(name=None):
    """Return the chip in a board's description, such as "ESP32S3 module with ESP32S3", or "other"."""
    text = (name or getattr(sys.implementation, "_machine", "")).lower().replace("-", "")
    for model in _CHIPS:
        if model.replace("-", "") in text:
            return model
    return "other"


def load(path):
    """Return the state in a file, or a new one."""
    try:
        with open(path) as f:
            state = json.load(f)
        return state if isinstance(state, dict) else {}
    except (OSError, ValueError):  # the first start, or a damaged file
        return {}


def save(path, state):
    """Store the state in a file; if the flash is full or worn out, it is kept only in memory."""
    try:
        with open(path, "w") as f:
            json.dump(state, f)
    except OSError as e:
        print("hushmote: cannot store %s: errno %s" % (path, e.args[0] if e.args else "unknown"))


class Health:
    """Readings of a board, computed from its state: times in seconds, and values.

    Attributes:
        state: The dict that the application keeps. If it is lost, the readings start over.
    """

    def __init__(self, state):
        self.state = state

    def _see(self, now):
        """Shift stored times if the clock was reset or set."""
        passed = now - self.state.get("now", now)
        if not 0 <= passed <= _YEAR:
            for name in _TIMES:
                if name in self.state:
                    self.state[name] += passed
        self.state["now"] = now

    def restarting(self, why):
        """Announce an intended restart and its reason: "update", or "panic" if the application failed."""
        self.state["why"] = why

    def start(self, why, now):
        """Record a start and its cause: power, panic, watchdog, brown-out, update or other."""
        state = self.state
        self._see(now)
        why = state.pop("why", why)
        state["start"], state["cause"] = now, why
        state.pop("boot", None)
        state.setdefault("ack", now)
        if why in ("panic", "watchdog", "brown-out"):
            state["crash"] = now

    def sample(self, free, now):
        """Record the free heap in bytes."""
        self._see(now)
        day, low, before = self.state.get("heap", (now // _DAY, None, None))
        if now // _DAY != day:
            day, low, before = now // _DAY, None, low
        self.state["heap"] = [day, free if low is None else min(low, free), before]

    def acknowledged(self, rssi, now):
        """Record that the broker acknowledged a message, and the signal in dBm, or None without a radio."""
        self._see(now)
        state = self.state
        if "boot" not in state and "start" in state:
            state["boot"] = now - state["start"]
        state["ack"], state["rssi"] = now, rssi

    def newer_version(self, now):
        """Record that a version newer than the running one exists."""
        self._see(now)
        self.state.setdefault("newer", now)

    def updated(self, outcome):
        """Record an offered update's outcome: "ok", the step that failed, "rolled back" or "refused"."""
        self.state["update"] = outcome
        if outcome == "ok":
            self.state.pop("newer", None)

    def battery(self, percent, now):
        """Record the battery's charge."""
        self._see(now)
        if percent >= _FULL:
            self.state["full"] = now
        elif percent <= _EMPTY and "full" in self.state:
            self.state["life"] = now - self.state.pop("full")

    def read(self, name, now):
        """Return the reading for a standard question, or None if there is none."""
        self._see(now)
        state = self.state
        if name == "crashed":
            return "crash" in state and now - state["crash"] < _DAY
        if name == "unreachable":
            return "ack" in state and now - state["ack"] >= _DAY
        if name == "days_behind":
            return (now - state["newer"]) / _DAY if "newer" in state else 0
        if name == "uptime":
            return (now - state["start"]) / _HOUR if "start" in state else None
        if name == "heap_low":
            _, low, before = state.get("heap", (0, None, None))
            low = low if before is None else before
            return None if low is None else low / 1024
        if name == "battery_life":
            return state["life"] / _HOUR if "life" in state else None
        if name == "chip":
            return chip()
        return state.get({"restart": "cause", "signal": "rssi", "boot_time": "boot"}.get(name, name))


def on_board(last, folder, event, value):
    """Tell the readers of an application like main.py what happened, or return a reading.

    Args:
        last: The dict that survives deep sleep; its "health" has the state.
        folder: The ledger's folder, which also stores the state; seldom, because flash wears out.
        event: "read", "start", "sample", "acknowledged", or another method of Health.
        value: Its first argument: for "start" the machine module, for "sample" nothing.
    """
    path = folder + "/health.json"
    if "health" not in last:
        last["health"] = load(path)
    health = Health(last["health"])
    if event == "start":
        value = cause(value)
    elif event == "sample":
        value = gc.mem_free()
    if event in ("updated", "restarting"):
        result = getattr(health, event)(value)
    elif event == "newer_version":
        result = health.newer_version(time.time())
    else:
        result = getattr(health, event)(value, time.time())
    if event not in ("read", "sample", "battery"):
        save(path, health.state)
    return result
