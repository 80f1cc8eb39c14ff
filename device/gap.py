"""The draws of `every`, made in advance: how long a board may sleep until a report is due, and which one is.

Without this file, a board with `every` = 90 wakes up 90 times for one report. Here it makes the same draws,
one call after the other, before it sleeps, and stops at the first report. So calls and names have exactly the
distribution of draws that are made at each wake-up. Draws are independent: after a power cut, or if an
experiment has changed, discard the draw and draw again.

    calls, digests = gap.draw(client, 144)      after the report of one call, for those that follow
    ...                                         sleep for that many intervals
    for name in digests:                        nothing is drawn here, if the version is still the same:
        client.report(name, read(name), digests[name])

This file sees no reading. report() checks consent, budget and outbox: an application that claims a report
without a draw spends the budget earlier, but never more of it.
"""


def draw(client, most):
    """Draw for the next calls of report() until one is to report, for at most `most` calls.

    A draw takes a Pico about 0.1 ms.

    Returns:
        (calls, digests): which of the coming calls is the first to report, and name -> digest of the
        experiments that report there; (most, {}) if none does, or consent is missing; (0, {}) if another
        call is under way, and nothing was drawn.
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
