"""Make the draws of `every` in advance, to learn how long a board can sleep and which reports are then due.

Without this module, a board with `every` = 90 wakes up 90 times for one report. With it, the board makes the
same draws before it sleeps, up to the first report, so the reports have exactly the same distribution. Draws
are independent: after a power cut, or if an experiment or a group's value has changed, discard the result and
draw again.

    calls, draws = gap.draw(client, 144)        after a report, for the following calls
    ...                                         sleep for that many intervals
    for name in draws:                          without another draw, unless version or group has changed:
        client.report(name, read(name), draws[name])

This module never sees a reading. report() still checks consent, budget and outbox, so an application that
reports without a draw spends the budget earlier, but not more of it.
"""


def draw(client, most, groups=None):
    """Draw for the next calls of report() until one is to report, for at most `most` calls.

    A draw takes a Pico about 0.1 ms.

    Args:
        client: The board's Client.
        most: The number of calls to draw for.
        groups: An experiment's name -> its group's value, for calls that will pass one to report(). Others
            have the client's value.

    Returns:
        (calls, draws): the number of calls up to the first that reports, and for each experiment that reports
        in it, name -> digest of the version and the byte of its group; (most, {}) if none does or consent is
        missing; (0, {}) without a draw if another call is in progress.
    """
    calls, draws = 0, {}
    groups = groups or {}
    if not client._lock.acquire(False):
        return calls, draws
    try:
        # An experiment without budget makes no report whatever is drawn, so it need not wake the board.
        experiments = client._experiments.values() if client.consent else ()
        asking = [exp for exp in experiments if client._remaining(exp)]
        while asking and calls < most and not draws:
            calls += 1
            for exp in asking:
                group = client._group_bytes(exp, groups.get(exp.name))
                every = exp.every_of(*group)
                if every == 1 or client.rng.below(every) == 0:
                    draws[exp.name] = exp.digest + group
    finally:
        client._lock.release()
    return (calls if asking else most), draws
