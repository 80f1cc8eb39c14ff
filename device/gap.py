"""Hushmote's coins, tossed ahead: how long a board may sleep until a report is due, and whose it is.

Without this file a board with `every` = 90 wakes up 90 times for one report. Here it tosses the same coins,
one call after the other, before it sleeps, and stops at the first yes. So gap and names have exactly the law
of coins that are tossed at each wake-up. A coin has no memory: after a power cut, or where an experiment has
changed, throw a draw away and draw anew.

    calls, digests = gap.draw(client, 144)      after the report of one call, for those that follow
    ...                                         sleep for so many intervals
    for name in digests:                        no coin is tossed here, if the version is still the same:
        client.report(name, read(name), digests[name])

No reading comes here. Consent, budget and outbox are report()'s to judge: who claims a yes that no coin gave
spends the budget earlier, and never more of it.
"""


def draw(client, most):
    """Toss the coins of the next calls of report() until one says yes, at most those of most calls.

    Returns (calls, digests): which of the coming calls is the first with a yes, and name -> digest of the
    experiments that report there; (most, {}) where all say no, or consent is missing. (0, {}): another
    call is under way, and nothing was tossed. A coin takes a Pico about 0.1 ms.
    """
    calls, digests = 0, {}
    if not client._lock.acquire(False):
        return calls, digests
    try:
        # What has no budget left makes no report whatever its coin says, so it wakes nobody.
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
