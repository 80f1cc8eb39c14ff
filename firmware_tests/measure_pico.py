"""Measure the client's cost on the emulated Pico; write_cost.py runs this and reads the emulator's marks.

Writing a number to a register that the real chip does not have marks a moment, with the cycles so far.
"""

import gc
import json

_MARK = 0x40060020
TURNS = 20


class Memory:
    def __init__(self):
        self.slots = [None] * 2

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def timed(number, call):
    """Run the collector, then call the function between two marks with this number."""
    import machine

    gc.collect()
    machine.mem32[_MARK] = number
    answer = call()
    machine.mem32[_MARK] = number
    return answer


def imports():
    """Measure the heap that each module keeps, and print it with the module's name."""
    heap_kept = []
    with open("modules.json") as f:
        names = json.loads(f.read())
    for number, name in enumerate(names):
        gc.collect()
        before = gc.mem_alloc()
        timed(200 + number, lambda name=name: __import__(name))
        gc.collect()
        heap_kept.append([name, gc.mem_alloc() - before])
    print("KEPT" + json.dumps(heap_kept))


def reports():
    """Mark each mechanism's report(), keyed and open (100 and up), a SHA-256 (1) and a signature (2)."""
    import hashlib

    import ldp_client
    import ldp_p256

    with open("costs.json") as f:
        cases = json.loads(f.read())
    names = list(cases["experiments"])
    policy = {
        "sum": 1 << 40,
        "squares": 0,
        "epsilon": 4000000,
        "rules": ("sum", "squares", "count", "unlimited"),
        "experiments": tuple(names),
    }
    block = bytes(64)
    timed(1, lambda: hashlib.sha256(block).digest())
    key, digest, signature = [bytes.fromhex(x) for x in cases["signature"]]
    if not timed(2, lambda: ldp_p256.verify(key, digest, signature)):
        raise ValueError("the signature is not taken")
    number = 100
    for name in names:
        for key in (bytes(32), None):
            storage = Memory()
            ldp_client.provision(storage, consent=True)
            client = ldp_client.Client(policy, storage, "board-1", key)
            text = cases["experiments"][name].encode()
            timed(10 + names.index(name), lambda client=client, text=text: client.enroll(text))
            value = True if name == "rr" else 21.4
            for _ in range(TURNS):
                report = timed(
                    number, lambda client=client, name=name, value=value: client.report(name, value)
                )
                timed(number + 1, lambda client=client, report=report: client.sent(report))
            number += 2
    storage = ldp_client.FileStorage("/ldp")
    ldp_client.provision("/ldp", consent=True)
    client = ldp_client.Client(policy, storage, "board-1", bytes(32))
    client.enroll(cases["experiments"]["hh"].encode())
    for _ in range(TURNS):
        report = timed(3, lambda: client.report("hh", 21.4))
        timed(4, lambda report=report: client.sent(report))
