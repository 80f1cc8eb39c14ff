"""Make the draws of `every` in advance, to learn how long a board can sleep and which reports are then due.

Without this module, a board with `every` = 90 wakes up 90 times for one report. With it, the board makes the
same draws before it sleeps, up to the first report, so the reports have exactly the same distribution. Draws
are independent: after a power cut, or if an experiment has changed, discard the result and draw again.

    calls, digests = gap.draw(client, 144)      after a report, for the following calls
    ...                                         sleep for that many intervals
    for name in digests:                        without another draw, unless the version has changed:
        client.report(name, read(name), digests[name])

This module never sees a reading. report() still checks consent, budget and outbox, so an application that
reports without a draw spends the budget earlier, but not more of it.
"""


def draw(client, most):
    """Draw for the next calls of report() until one is to report, for at most `most` calls.

    A draw takes a Pico about 0.1 ms.

    Returns:
        (calls, digests): the number of calls up to the first that reports, and name -> digest of the
        experiments that report in it; (most, {}) if none does or consent is missing; (0, {}) without a draw
        if another call is in progress.
    """
    calls, digests = 0, {}
    if not client._lock.acquire(False):
        return calls, digests
    try:
        # An experiment without budget makes no report whatever is drawn, so it need not wake the board.
        experiments = client._experiments.values() if client.consent else ()
        asking = [exp for exp in experiments if client._remaining(exp)]
        while asking and calls < most and not digests:
            calls += 1
            for exp in asking:
                if exp.every == 1 or client.rng.below(exp.every) == 0:
                    digests[exp.name] = exp.digest
    finally:
        client._lock.release()
    return (calls if asking else most), digests
