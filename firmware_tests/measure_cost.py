"""Measure the client's cost on the board itself; write_cost.py runs this with compiled modules.

micropython -m measure_cost import NAME...
    Heap kept by each module.
micropython -m measure_cost report NAME VALUE MODULES
    Memory and SHA-256 computations of report(), with the experiment in NAME.json, a value as JSON, and the
    modules that its mechanism needs, separated by commas.
micropython -m measure_cost lifetime [reporter]
    Provision, enroll three experiments, report and send, in the current heap.

Each prints one line of fields separated by "|", or ends in an error.
"""

import gc
import json
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
TURNS = 40  # reports that must succeed, so that each level of hh is drawn


class Memory:
    """Storage that takes negligible time."""

    def __init__(self):
        self.slots = [None] * 2

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def allocated():
    gc.collect()
    return gc.mem_alloc()


def kept_by_import(names):
    heap_kept = []
    for name in names:
        before = allocated()
        __import__(name)
        heap_kept.append(allocated() - before)
    print("IMPORT", *heap_kept, sep="|")


def board(storage, names):
    """Return a client with these experiments, in its state after power-up."""
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


def passes(name, value, hole_bytes):
    """Return whether reports succeed when a single hole of hole_bytes is all the free memory.

    It uses a separate client, because a client whose commit runs out of memory does not know the flash's
    state and locks.
    """
    client = board("ledger_of_" + name, (name,))
    for report in client.outbox():
        client.sent(report)
    report_once(client, name, value)
    gc.collect()
    hole = bytearray(hole_bytes)
    chain = None
    try:
        while True:
            chain = (chain,)  # one heap block each, until none are left
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


def smallest_hole(name, value):
    """Return the smallest hole in which reports succeed, by bisection down to a heap block of 16 bytes."""
    low = 0
    high = 4096  # blocks
    if not passes(name, value, high * 16):
        raise RuntimeError("report() needs more than 64 KiB")
    while high - low > 1:
        middle = (low + high) // 2
        if passes(name, value, middle * 16):
            high = middle
        else:
            low = middle
    return high * 16


def max_sha256(client, name, value):
    """Return the maximum number of SHA-256 computations, over TURNS, for a report and its acknowledgement."""
    import ldp_client

    sha256 = ldp_client._sha256
    count = [0]

    def counted(data):
        count[0] += 1
        return sha256(data)

    ldp_client._sha256 = counted
    max_count = 0
    for _ in range(TURNS):
        count[0] = 0
        report_once(client, name, value)
        max_count = max(max_count, count[0])
    ldp_client._sha256 = sha256
    return max_count


def cost_of_report(name, text, modules):
    import ldp_client

    for module in modules.split(","):
        if module:
            __import__(module)
    value = json.loads(text)
    value = tuple(value) if isinstance(value, list) else value
    ldp_client.provision("ledger_of_" + name, consent=True)
    before = allocated()
    client = board("ledger_of_" + name, (name,))
    report_once(client, name, value)
    heap_kept = allocated() - before
    record = max(len(client._ledger._storage.read(slot)) for slot in (0, 1))
    client = None
    hole = smallest_hole(name, value)

    storage = Memory()
    ldp_client.provision(storage, consent=True)
    client = board(storage, (name,))
    sha256 = max_sha256(client, name, value)
    length = len(report_once(client, name, value))
    garbage = 0
    for _ in range(TURNS):
        gc.collect()
        gc.disable()
        start = gc.mem_alloc()
        report_once(client, name, value)
        garbage = max(garbage, gc.mem_alloc() - start)
        gc.enable()
    print("REPORT", name, heap_kept, hole, garbage, sha256, length, record, sep="|")


def power_up(folder, with_reporter):
    """Return the client, and optionally the reporter, in memory like everything else."""
    client = board(folder, NAMES)
    if not with_reporter:
        return client, None
    import mqtt_reporter

    return client, mqtt_reporter.Reporter(client, None)


def lifetime(with_reporter):
    """Run a board's lifetime, starting with provisioning, in the current heap."""
    measuring_bytes = allocated()
    import ldp_client

    folder = "ledger_of_lifetime"
    ldp_client.provision(folder, consent=True)
    running = power_up(folder, with_reporter)
    for turn in range(16):  # the broker is unavailable
        if running[0].report(NAMES[turn % 3], VALUES[turn % 3]) is None:
            raise RuntimeError(running[0].status())
    for report in running[0].outbox():
        running[0].sent(report)
    running = None
    running = power_up(folder, with_reporter)
    for turn in range(60):
        report_once(running[0], NAMES[turn % 3], VALUES[turn % 3])
    print("LIFETIME", measuring_bytes, sep="|")


if __name__ == "__main__":
    if sys.argv[1] == "import":
        kept_by_import(sys.argv[2:])
    elif sys.argv[1] == "report":
        POLICY["experiments"] = (sys.argv[2],)
        cost_of_report(sys.argv[2], sys.argv[3], sys.argv[4])
    else:
        lifetime(len(sys.argv) > 2)
