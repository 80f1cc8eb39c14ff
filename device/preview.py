"""Describe what a board would send and what it has sent, for people at the board. Spends nothing.

print(preview(client, "room_temp", 21.4))
last_reports = LastReports()
reporter.on_report = last_reports       last_reports.lines then has the last 8 reports
"""

# pyright: reportMissingImports=false

import time

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client

const = ldp_client.const
_LAST = const(8)


def _tenths(n):
    return "%d.%d" % (n // 10, n % 10) if n % 10 else str(n // 10)


def _epsilon(exp):
    return _in_words(exp.epsilon // 1000 / 1000)


def _times(exp):
    """Return e^epsilon, rounded up to a tenth."""
    low = ldp_client._exp_bounds(exp.epsilon, 64)[0]
    return _tenths(-(-(10 << 64) // low))


def _remaining_words(client, exp):
    n = client._remaining(exp)
    return "%d more report%s left" % (n, "" if n == 1 else "s")


def _in_words(reading):
    """Return a reading as the C and JavaScript clients write it: numbers in thousandths at most."""
    if isinstance(reading, (list, tuple)):
        return ", ".join([_in_words(part) for part in reading])
    if isinstance(reading, bool):
        return "yes" if reading else "no"
    if isinstance(reading, float):
        return ("%.3f" % reading).rstrip("0").rstrip(".")
    return "no reading" if reading is None else str(reading)


def preview(client, name, reading, group=None):
    """Return what report(name, reading, None, group) would send, in lines of text; draw and spend nothing.

    Raises:
        TypeError: If the reading is of the wrong type.
        ldp_client.SettingsError: If the name is not in the policy.
    """
    ldp_client.check(
        name in client._policy["experiments"], "%s is not in the policy" % name, ldp_client.SettingsError
    )
    exp = client._experiments.get(name)
    if exp is None:
        return "%s: there is no such experiment yet." % name
    index = exp.bucket(reading)
    group = client._group_bytes(exp, group)
    size = 9 + len(group) + exp.code_bytes + (8 if client._device_key else 0)
    lines = ["%s: one of %d codes, in %d bytes." % (name, exp.code_count, size)]
    if index is None:
        lines.append("No reading: a uniformly drawn value takes its place.")
    elif exp.mechanism != "sw":
        # Each of a level's seeds has one truthful code, sent with the level's probability.
        levels = exp.levels or (exp.points,)
        count = sum([level.seeds for level in levels if level.weight])
        truth = sum([level.weight * level.threshold for level in levels])
        total = sum([level.weight for level in levels]) * ldp_client.ONE
        share = 1000 * truth // total
        text = "One code stands for %s. It" if count == 1 else "%d codes stand for %%s. One of these" % count
        value = _in_words(None if index == exp.missing else reading)
        lines.append((text + " is sent in %s%% of reports.") % (value, _tenths(share)))
    lines.append("No code is more than %s times as likely at one reading as at another." % _times(exp))
    if group:
        value = (exp.groups + ("other",))[group[0]]
        lines.append("Unprotected, everyone can see %s %s in the report." % (exp.group, value))
    every = exp.every_of(*group)
    if every > 1:
        lines.append("One reading in %d is reported, chosen before anything looks at it." % every)
    lines.append("A report costs epsilon %s; %s." % (_epsilon(exp), _remaining_words(client, exp)))
    if client.log:
        lines.append(client.log.words(exp))
    if not client.consent:
        lines.append("Nothing is sent: nobody at this board has opted in.")
    return "\n".join(lines)


def words(client, report):
    """Return one line about a report: its question, code, size and cost, and the remaining budget."""
    for name, exp in client._experiments.items():
        if exp.digest == report[1:5]:
            end = len(report) - 8 * (report[0] & 1)  # where the tag begins
            code = int.from_bytes(report[end - exp.code_bytes : end], "big")
            text = "%s: code %d of %d, %d bytes, epsilon %s; %s"
            return text % (
                name,
                code,
                exp.code_count,
                len(report),
                _epsilon(exp),
                _remaining_words(client, exp),
            )
    return "a question that is no longer asked: %d bytes" % len(report)


def show(on_report, client, report):
    """Call an application's function with words(); return the error it raised as one line, or None."""
    try:
        on_report(words(client, report))
    except Exception as e:  # a failed display must not change what is sent
        return "on_report: %s: %s" % (type(e).__name__, e)
    return None


def timed(text, at=None):
    """Return a text preceded by a time (UTC), if the clock is set.

    Args:
        text: The text.
        at: The time as time.time() returns it; None for now.
    """
    fields = time.gmtime(at)
    if fields[0] < 2025:
        return text
    return "%04d-%02d-%02d %02d:%02d " % tuple(fields[:5]) + text


class LastReports:
    """Descriptions of the last 8 reports, newest last; for use as a reporter's on_report.

    Attributes:
        lines: A list of texts, with the time (UTC) if the board's clock is set.
    """

    def __init__(self):
        self.lines = []

    def __call__(self, text):
        self.lines = self.lines[1 - _LAST :] + [timed(text)]
