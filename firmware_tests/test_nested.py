"""Test report() in a callback during another report(): it returns None, and no budget is spent twice."""

import os

import ldp_client
import micropython
import on_device
from on_device import DOOR, EPSILON, KEY, POLICY

NEEDS = ("urandom", "folder")
CAP = 30
TEXT = DOOR.replace("6000000", str(CAP * EPSILON)).encode()

_count = [0]


class Slots(ldp_client.FileStorage):
    """A ledger in files that calls between() before each write, where a callback could run."""

    def __init__(self):
        _count[0] += 1
        folder = f"nested{_count[0]}"
        os.mkdir(folder)
        super().__init__(folder)
        self.between = lambda: None

    def write(self, slot, data):
        self.between()
        super().write(slot, data)


def board(storage):
    client = ldp_client.Client(POLICY, storage, "board-1", KEY)
    client.enroll(TEXT)
    return client


def use_up(storage, start, stop):
    """Report and send beyond the budget's end, with reports in callbacks too; compare with the ledger."""
    ldp_client.provision(storage, consent=True)
    client = board(storage)
    handed_out = []
    answers = [0, 0]  # number of None results and of reports in callbacks

    def call_back(_):
        report = client.report("door", True)
        answers[report is not None] += 1
        if report is not None:
            handed_out.append(report)

    start(call_back)
    for _ in range(4 * CAP):
        report = client.report("door", False)
        if report is not None:
            handed_out.append(report)
        for report in client.outbox():
            try:  # noqa: SIM105 (MicroPython has no contextlib)
                client.sent(report)
            except ldp_client.LedgerError:
                pass  # it stays, and is sent again
    stop()
    contents = {}
    for report in handed_out:
        contents.setdefault(report[5:9], set()).add(report)
    debited = board(storage).status()["experiments"]["door"]["reports"]
    two = len([c for c in contents.values() if len(c) > 1])
    print(len(handed_out), "handed out,", debited, "debited,", two, "numbers with two contents,", answers)
    assert answers[0], "no callback came while a report was being made"
    assert two == 0
    assert debited == len(handed_out) == CAP


def test_report_nested_by_micropython_schedule():
    storage = Slots()

    def start(call_back):
        def between():
            try:  # noqa: SIM105
                micropython.schedule(call_back, None)
            except RuntimeError:  # the queue is full
                pass
            for _ in range(2):  # callbacks run at jumps
                pass

        storage.between = between

    def stop():
        storage.between = lambda: None

    use_up(storage, start, stop)


def test_report_nested_by_timer():
    try:
        from machine import Timer
    except ImportError:
        return
    timer = Timer(-1)
    use_up(
        Slots(),
        lambda call_back: timer.init(period=25, mode=Timer.PERIODIC, callback=call_back),
        timer.deinit,
    )


def test_opt_out_in_callback_is_stored():
    storage = Slots()
    ldp_client.provision(storage, consent=True)
    client = board(storage)

    def between():
        storage.between = lambda: None
        client.consent = False

    storage.between = between
    assert client.report("door", True) is None
    assert client.consent is False
    again = board(storage)  # a restart
    assert again.consent is False
    assert again.outbox() == []
    assert again.status()["sum"] == EPSILON


on_device.run(globals())
