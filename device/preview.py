"""What a board would send and what it has sent, in words for people at the board. Spends nothing.

print(preview(client, "room_temp", 21.4))
shown = LastReports()
reporter.on_report = shown          shown.lines has the last 8 reports from then on
"""

# pyright: reportMissingImports=false

import time

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
else:
    import ldp_client

_LAST = 8


def _tenths(n):
    return "%d.%d" % (n // 10, n % 10) if n % 10 else str(n // 10)


def _epsilon(exp):
    milli = exp.epsilon // 1000
    return ("%d.%03d" % (milli // 1000, milli % 1000)).rstrip("0").rstrip(".")


def _times(exp):
    """Return e^epsilon, rounded up to a tenth."""
    low = ldp_client._exp_bounds(exp.epsilon, 64)[0]
    return _tenths(-(-(10 << 64) // low))


def _remaining_words(client, exp):
    n = client._remaining(exp)
    return "%d more report%s left" % (n, "" if n == 1 else "s")


def preview(client, name, reading):
    """Return what report(name, reading) would send, in lines of text; draw and spend nothing.

    Raises:
        TypeError: For a reading of the wrong type.
        ldp_client.SettingsError: For a name that is not in the policy.
    """
    ldp_client.check(
        name in client._policy["experiments"], "%s is not in the policy" % name, ldp_client.SettingsError
    )
    exp = client._experiments.get(name)
    if exp is None:
        return "%s: nothing is asked yet." % name
    index = exp.bucket(reading)
    size = 9 + exp.code_bytes + (8 if client._device_key else 0)
    lines = ["%s: one of %d codes, in %d bytes." % (name, exp.code_count, size)]
    if index is None:
        lines.append("No reading: a value drawn evenly takes its place.")
    elif exp.levels:
        # Each of a level's seeds has one code that is the truth, drawn with the level's threshold.
        speak = sum(level.seeds for level in exp.levels if level.weight)
        truth = sum(level.weight * level.threshold for level in exp.levels)
        whole = exp.weight_sum * ldp_client.ONE
        odds = 10 * truth // (whole - truth)
        text = "One code speaks for %s. It" if speak == 1 else "%d codes speak for %%s. One of these" % speak
        value = "no reading" if index == exp.missing else reading
        lines.append((text + " is sent with odds %s to 1.") % (value, _tenths(odds)))
    lines.append("No code is more than %s times as likely at one reading as at another." % _times(exp))
    if exp.every > 1:
        lines.append("One reading in %d is reported, drawn before anything looks at it." % exp.every)
    lines.append("A report costs epsilon %s; %s." % (_epsilon(exp), _remaining_words(client, exp)))
    if not client.consent:
        lines.append("Nothing is sent: nobody at this board has said yes.")
    return "\n".join(lines)


def words(client, report):
    """Return one line on a report: its question, code, bytes and cost, and what is left of the budget."""
    for name, exp in client._experiments.items():
        if exp.digest == report[1:5]:
            code = int.from_bytes(report[9 : 9 + exp.code_bytes], "big")
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
    """Call an application's function with words(); return the error that it raised, in one line, or None."""
    try:
        on_report(words(client, report))
    except Exception as e:  # a failed display must not change what is sent
        return "on_report: %s: %s" % (type(e).__name__, e)
    return None


def timed(text, at=None):
    """Return a text followed by a time (UTC), if the clock is right.

    Args:
        text: The text.
        at: The time as time.time() returns it; None for now.
    """
    then = time.gmtime(at)
    if then[0] < 2025:
        return text
    return "%04d-%02d-%02d %02d:%02d " % tuple(then[:5]) + text


class LastReports:
    """The last 8 reports in words, newest last; an object for a reporter's on_report.

    Attributes:
        lines: A list of text, with the time (UTC) if the board's clock is set.
    """

    def __init__(self):
        self.lines = []

    def __call__(self, text):
        self.lines = self.lines[1 - _LAST :] + [timed(text)]
