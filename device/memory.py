"""Memory across sleeps and updates, and printed results. Imported only while it is needed."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

import binascii
import gc
import json

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .ldp_client import const
else:
    from ldp_client import const

_MAX_PERIODS = const(4)


# An ESP32's RTC memory survives a deep sleep; on a board without it, main.py draws nothing in advance.
def _rtc(machine):
    clock = getattr(machine, "RTC", object)()
    return clock if hasattr(clock, "memory") else None


def remembers(machine):
    """Return whether the board can remember across a sleep why it was to wake up."""
    return not hasattr(machine, "DEEPSLEEP_RESET") or _rtc(machine) is not None


def keep(machine, due, last):
    """Store a plan's result (or None) and `last`, a JSON dict, where they survive a deep sleep."""
    clock = _rtc(machine)
    if clock is not None:
        digests, refresh = due or ({}, None)
        digests = {name: binascii.hexlify(digests[name]).decode() for name in digests}
        clock.memory(json.dumps([digests, refresh, last]).encode())


def recall(machine, last, unplanned):
    """Restore `last` on startup; return the stored plan's result, only once, or None.

    Args:
        machine: The module.
        last: The dict to restore into.
        unplanned: Whether this start did not follow a sleep of the planned length; then the stored draws,
            which were made for another moment, are dropped.
    """
    clock, due = _rtc(machine), None
    if clock is not None:
        try:
            digests, refresh, values = json.loads(clock.memory())
            last.update(values)
            if refresh is not None and not unplanned:
                due = {name: binascii.unhexlify(digests[name]) for name in digests}, refresh
        except (ValueError, TypeError, AttributeError):  # empty, or written by another program
            pass
        clock.memory(b"")
    if unplanned:
        last.pop("broker failures", None)  # the broker's rules may have changed
        last["cause"], last["up"] = machine.reset_cause(), 0
    return due


def start_periods(machine, unplanned, path, version):
    """Return the periods that no reading has described yet, the oldest first, and keep them in flash.

    A period is [version, crashes]: the time since the last reading in which one version ran. If the watchdog
    has restarted the board, that counts for the version that ran until then, even if another one starts now.

    Args:
        machine: The module.
        unplanned: Whether this start did not follow a sleep of the planned length.
        path: The file.
        version: The version that starts.
    """
    before = None
    try:
        with open(path) as f:
            before = [[str(name), int(crashes)] for name, crashes in json.load(f)]
    except (OSError, ValueError, TypeError):  # the first start, or a damaged file
        pass
    periods = [list(period) for period in before or ([version, 0],)]
    if unplanned and machine.reset_cause() == getattr(machine, "WDT_RESET", None):
        periods[-1][1] += 1
    if periods[-1][0] != version:
        periods = periods[1 - _MAX_PERIODS :] + [[version, 0]]
    if periods != before:
        write_periods(path, periods)
    return periods


def write_periods(path, values):
    """Write the periods that no reading has described yet to flash."""
    try:
        with open(path, "wb") as f:
            f.write(json.dumps(values).encode())
    except OSError as e:  # full or worn out: `values` hold until the next start
        print("hushmote: cannot store %s: errno %s" % (path, e.args[0] if e.args else "unknown"))


def health(machine, last):
    """Return (reset cause, last connection's dBm or None, free heap in KiB)."""
    gc.collect()
    causes = {getattr(machine, "PWRON_RESET", -1): "power", getattr(machine, "WDT_RESET", -2): "watchdog"}
    return causes.get(last.get("cause"), "other"), last.get("rssi"), gc.mem_free() / 1024


def print_results(client, reporter, kept):
    """Print a wake-up's results, one line per experiment and problem."""
    status = client.status()
    for name, line in status["experiments"].items():
        if line["state"] == "reporting":
            text = "%d report%s made, %d left" % (line["reports"], "s" * (line["reports"] != 1), line["left"])
            if line["group"]:
                text += "; its %s is sent unprotected" % line["group"]
            if line["leaf"] is not None:
                text += "; entry %d of the log" % line["leaf"]
        elif line["state"] == "spent":
            text = "silent: its budget is spent, after %d report%s"
            text %= (line["reports"], "s" * (line["reports"] != 1))
        elif line["reason"] or name in reporter.refused:
            text = "refused: %s" % (line["reason"] or reporter.refused[name])
            if name + "/proof" in reporter.refused:
                text += ": " + reporter.refused[name + "/proof"]
            if "its signature is" in text:
                text += ": is announce_key this fleet's?"
        else:
            text = "the broker has no such experiment yet: run `hushmote experiment add`"
        if line["state"] != "absent" or reporter.error is None:
            print("hushmote: %s: %s" % (name, text))
    problems = [reporter.error, reporter.fault, kept.fault, status["error"]] + list(
        reporter.mistyped.values()
    )
    if max(reporter.failures) > 1:  # the broker does not permit something, or ends every connection
        problems.append(reporter.status())
    for problem in problems:
        if problem:
            print("hushmote: %s" % problem)
    print("hushmote: %d sent, %d waiting" % (reporter.sent, status["pending"]))
