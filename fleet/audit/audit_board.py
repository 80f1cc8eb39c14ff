"""Draws and counts codes on a board that is being audited, next to ldp_client.py.

It imports nothing else from Hushmote. serial_port.py sends it with an extra last line that calls run(). A job
is the payload, the experiment's name, whether to call report() or only randomize(), two readings, and each
half's number of draws per reading. It prints these kinds of lines:

    RUNTIME name version platform
    JOB number index index                        the indices of the two readings on this board
    TALLY number half input code:count ...        input 0 or 1; code -1 means no report; counts add up
    END
"""

import sys

import ldp_client  # pyright: ignore[reportMissingImports]

_LINE_CODES = 200  # print a tally once it has this many codes, because a board has little memory
_LINE_DRAWS = 500  # print it at least this often, to show progress


class Memory:
    """The four slots of a ledger, in memory, so that an audit does not touch the board's own ledger."""

    def __init__(self):
        self.slots = {}

    def read(self, slot):
        return self.slots.get(slot)

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def sampler(payload, name, whole):
    """Return the experiment and draw(reading) -> code, using only randomize() or all of report()."""
    policy = {
        "sum": (1 << 48) - 1,
        "squares": 0,
        "epsilon": 16_000_000,
        "rules": ("unlimited",),
        "experiments": (name,),
    }
    storage = Memory()
    ldp_client.provision(storage, consent=True)
    client = ldp_client.Client(policy, storage, device_id="audit")
    exp = client.enroll(payload)

    def report(reading):
        payload = client.report(name, reading)
        if payload is None:
            return -1
        client.sent(payload)
        return int.from_bytes(payload[9 : 9 + exp.code_bytes], "big")

    def randomize(reading):
        return exp.randomize(exp.bucket(reading), client.rng)

    return exp, report if whole else randomize


def tell(job, half, which, counts):
    """Print a tally and empty it."""
    if counts:
        words = ["%d:%d" % (code, counts[code]) for code in counts]  # noqa: UP031
        print("TALLY", job, half, which, " ".join(words))
        counts.clear()


def run(jobs):
    """Run every job, drawing for its two readings alternately."""
    version = ".".join([str(x) for x in sys.implementation.version[:3]])
    print("RUNTIME", sys.implementation.name, version, sys.platform)
    for number, (payload, name, whole, readings, halves) in enumerate(jobs):
        exp, draw = sampler(payload, name, whole)
        print("JOB", number, exp.bucket(readings[0]), exp.bucket(readings[1]))
        for half, draws in enumerate(halves):
            tallies = ({}, {})
            for done in range(1, draws + 1):
                for which in (0, 1):
                    counts = tallies[which]
                    code = draw(readings[which])
                    counts[code] = counts.get(code, 0) + 1
                    if len(counts) >= _LINE_CODES:
                        tell(number, half, which, counts)
                if done % _LINE_DRAWS == 0:
                    tell(number, half, 0, tallies[0])
                    tell(number, half, 1, tallies[1])
            tell(number, half, 0, tallies[0])
            tell(number, half, 1, tallies[1])
    print("END")
