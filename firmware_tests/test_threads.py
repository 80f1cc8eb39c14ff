"""Test two threads that report and acknowledge at the same time: no budget is spent twice."""

import os

import ldp_client
import on_device
from on_device import DOOR, EPSILON, KEY, POLICY

NEEDS = ("urandom", "folder")
CAP = 60
ROUNDS = 8 if on_device.LONG else 2
TEXT = DOOR.replace("6000000", str(CAP * EPSILON)).encode()

try:
    import _thread
except ImportError:  # without concurrency
    _thread = None


def live(client, reports, ended):
    """Report until the budget is spent, and acknowledge all reports."""
    try:
        while client.status()["experiments"]["door"]["left"]:
            report = client.report("door", True)
            if report is not None:
                reports.append(report)
            for waiting in client.outbox():
                client.sent(waiting)
        ended.append(None)
    except Exception as e:
        ended.append(e)


def test_two_threads_spend_budget_once():
    if _thread is None:
        return
    for i in range(ROUNDS):
        folder = f"threads{i}"
        os.mkdir(folder)
        ldp_client.provision(folder, consent=True)
        client = ldp_client.Client(POLICY, folder, "board-1", KEY)
        client.enroll(TEXT)
        payloads = [[], []]
        ended = []
        for reports in payloads:
            _thread.start_new_thread(live, (client, reports, ended))
        while len(ended) < 2:
            pass
        assert ended == [None, None], ended
        numbers = sorted([int.from_bytes(report[5:9], "big") for report in payloads[0] + payloads[1]])
        assert numbers == list(range(1, CAP + 1)), numbers
        assert client.status()["sum"] == CAP * EPSILON


on_device.run(globals())
