"""Test the compiled client with three experiments in 64 KiB; reports must not leave anything in memory."""

import gc

import check_vectors
import ldp_client
import on_device
from on_device import EXPERIMENTS, KEY, POLICY, READINGS

NEEDS = ("urandom", "heap", "compiled", "folder")
HEAP = "64k"


class Memory:
    def __init__(self):
        self.slots = [None] * 2

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = bytes(data)


def board(storage):
    """Return a client with three unlimited experiments, and an old report of each in the ledger."""
    ldp_client.provision(storage, consent=True)
    client = ldp_client.Client(POLICY_WITHOUT_END, storage, "board-1", KEY)
    for text in EXPERIMENTS.values():
        start = text.index('"cap":')
        text = text[:start] + '"cap":10000000000000000' + text[text.index("}", start) :]
        client.enroll(text.encode())
    for name, reading in READINGS.items():
        client.sent(client.report(name, reading))
    return client


POLICY_WITHOUT_END = dict(POLICY)
POLICY_WITHOUT_END["sum"] = 1 << 40


def allocated():
    gc.collect()
    return gc.mem_alloc()


def test_three_experiments_report_and_survive_an_outage():
    assert gc.mem_free() + gc.mem_alloc() < 66000
    # Use files, as on a board, because reading them back needs contiguous memory despite the reports'
    # garbage.
    client = board("ledger")
    for _ in range(10):
        for _ in range(5):
            for name, reading in READINGS.items():
                assert client.report(name, reading) is not None, client.status()
        assert len(client.outbox()) == 15
        for report in client.outbox():
            client.sent(report)
        assert client.outbox() == []


# A mean, logarithmic bins, and a text with design codes replace the three experiments.
FURTHER = {
    "temperature": (21.4, '"type":"number","low":0,"high":50000,"bins":1024,"mechanism":"sw","reach":461'),
    "door": (7.5, '"type":"number","low":1,"high":1000000,"bins":256,"scale":"log","mechanism":"grr"'),
    "mode": ("1.4.2", '"type":"text","salt":"s","slots":65536,"mechanism":"pgr","q":3'),
}


def test_further_mechanisms_fit():
    check_vectors.load_further()
    ldp_client.provision("ledger_of_more", consent=True)
    client = ldp_client.Client(POLICY_WITHOUT_END, "ledger_of_more", "board-1", KEY)
    for name, (_, text) in FURTHER.items():
        ends = '"epsilon":1000000,"budget":{"rule":"sum","cap":10000000000000000},"window":"day"}'
        client.enroll(('{"v":1,"name":"%s",%s,%s' % (name, text, ends)).encode())  # noqa: UP031
    for _ in range(20):
        for name, (reading, _) in FURTHER.items():
            report = client.report(name, reading)
            assert report is not None, client.status()
            client.sent(report)


def test_report_leaves_no_memory_allocated():
    client = board(Memory())
    before = after = 0
    for turn in range(2):
        for _ in range(5 if turn == 0 else 200):
            for name, reading in READINGS.items():
                client.sent(client.report(name, reading))
        if turn == 0:
            before = allocated()
        else:
            after = allocated()
    # If each of the 600 reports kept a word, that would be 9,600 bytes (a heap block has 16).
    assert after - before <= 64, after - before


on_device.run(globals())
