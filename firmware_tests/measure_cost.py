"""What the client costs a board, measured on it; write_cost.py runs this with the modules as compiled.

micropython -m measure_cost import             heap kept by each module
micropython -m measure_cost report NAME VALUE  memory and time of report(), experiment in NAME.json
micropython -m measure_cost life [reporter]    provision, enroll three experiments, report, send; in any heap

Each prints one line of fields separated by "|", or ends in an error.
"""

import gc
import sys

NAMES = ("door", "mode", "temperature")
VALUES = (True, "eco", 21.4)
POLICY = {
    "sum": 1 << 40,
    "squares": 0,
    "epsilon": 4000000,
    "rules": ("sum", "squares", "count", "unlimited"),
    "experiments": NAMES,
}
ROUNDS = 15  # of timing; the fastest counts: whatever else the machine does only ever adds
TURNS = 40  # reports that have to pass, so that each level of hh is drawn


class Memory:
    """Storage that takes no time worth mentioning."""

    def __init__(self):
        self.slots = [None] * 2

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def allocated():
    gc.collect()
    return gc.mem_alloc()


def kept_by_import():
    before = allocated()
    import ldp_client

    client = allocated()
    import mqtt_reporter

    reporter = allocated()
    print("IMPORT", client - before, reporter - client, ldp_client.ONE, mqtt_reporter.__name__, sep="|")


def board(storage, names):
    """A client with these experiments, as it is after power-up."""
    import ldp_client

    client = ldp_client.Client(POLICY, storage, "board-1", bytes(32), fleet="house")
    for name in names:
        with open(name + ".json", "rb") as f:
            client.enroll(f.read())
    return client


def report_once(client, name, value):
    report = client.report(name, value)
    if report is None:
        raise RuntimeError(client.status())
    client.sent(report)
    return report


def passes(client, name, value, room_bytes):
    """Whether reports pass when one hole of room_bytes is all the free memory there is."""
    gc.collect()
    hole = bytearray(room_bytes)
    chain = None
    try:
        while True:
            chain = (chain,)  # one heap block each, until none is left
    except MemoryError:
        pass
    hole = None  # noqa: F841 (the collector finds it when report() asks for memory)
    try:
        for _ in range(TURNS):
            report_once(client, name, value)
        return True
    except MemoryError:
        return False
    finally:
        chain = None
        gc.collect()
        for report in client.outbox():
            client.sent(report)


def smallest_room(client, name, value):
    """The smallest hole in which reports pass, by bisection down to a heap block of 16 bytes."""
    low = 0
    high = 4096  # blocks
    if not passes(client, name, value, high * 16):
        raise RuntimeError("report() needs more than 64 KiB")
    while high - low > 1:
        middle = (low + high) // 2
        if passes(client, name, value, middle * 16):
            high = middle
        else:
            low = middle
    return high * 16


def time_us(calls, call):
    """Microseconds per call."""
    import time

    gc.collect()
    start = time.ticks_us()
    for _ in range(calls):
        call()
    return time.ticks_diff(time.ticks_us(), start) / calls


def cost_of_report(name, text):
    import hashlib

    import ldp_client

    value = True if text == "True" else float(text)
    ldp_client.provision("ledger_of_" + name)
    before = allocated()
    client = board("ledger_of_" + name, (name,))
    report_once(client, name, value)
    kept = allocated() - before
    record = max(len(client._storage.read(slot)) for slot in (0, 1))
    room = smallest_room(client, name, value)

    storage = Memory()
    ldp_client.provision(storage)
    client = board(storage, (name,))
    block = bytes(64)
    sha256_us = report_us = 1e9
    for _ in range(ROUNDS):  # in turn, so that a slow moment of the machine meets both
        sha256_us = min(sha256_us, time_us(4000, lambda: hashlib.sha256(block).digest()))
        report_us = min(report_us, time_us(200, lambda: report_once(client, name, value)))
    length = len(report_once(client, name, value))
    garbage = 0
    for _ in range(TURNS):
        gc.collect()
        gc.disable()
        start = gc.mem_alloc()
        report_once(client, name, value)
        garbage = max(garbage, gc.mem_alloc() - start)
        gc.enable()
    print("REPORT", name, kept, room, garbage, report_us / sha256_us, length, record, sep="|")


def power_up(folder, with_reporter):
    """The client, and whoever would carry its reports; in memory like the rest."""
    client = board(folder, NAMES)
    if not with_reporter:
        return client, None
    import mqtt_reporter

    return client, mqtt_reporter.Reporter(client, None)


def life(with_reporter):
    """What a board does from the box on, in whatever heap it has."""
    own = allocated()
    import ldp_client

    folder = "ledger_of_life"
    ldp_client.provision(folder)
    running = power_up(folder, with_reporter)
    for turn in range(16):  # the broker is away
        if running[0].report(NAMES[turn % 3], VALUES[turn % 3]) is None:
            raise RuntimeError(running[0].status())
    for report in running[0].outbox():
        running[0].sent(report)
    running = None
    running = power_up(folder, with_reporter)
    for turn in range(60):
        report_once(running[0], NAMES[turn % 3], VALUES[turn % 3])
    print("LIFE", own, sep="|")


if __name__ == "__main__":
    if sys.argv[1] == "import":
        kept_by_import()
    elif sys.argv[1] == "report":
        POLICY["experiments"] = (sys.argv[2],)
        cost_of_report(sys.argv[2], sys.argv[3])
    else:
        life(len(sys.argv) > 2)
