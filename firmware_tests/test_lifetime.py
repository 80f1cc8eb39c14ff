"""A client's lifetime in a real folder."""

import os

import ldp_client
import on_device
from on_device import DOOR, EXPERIMENTS, KEY, POLICY, READINGS, REPORTS, raises

NEEDS = ("urandom", "folder")

_count = [0]


def new_folder():
    _count[0] += 1
    return f"lifetime{_count[0]}"


def boot(folder, key=KEY):
    client = ldp_client.Client(POLICY, folder, "board-1", key)
    for text in EXPERIMENTS.values():
        client.enroll(text.encode())
    return client


def test_provisioned_board_reports_until_budget_is_spent():
    folder = new_folder()
    ldp_client.provision(folder, consent=True)
    client = boot(folder)
    for name, reading in READINGS.items():
        for number in range(1, REPORTS + 1):
            report = client.report(name, reading)
            assert report[0] == 0x11, report
            assert report[5:9] == number.to_bytes(4, "big"), report
            assert client.outbox() == [report]
            client.sent(report)
            assert client.outbox() == []
        assert client.report(name, reading) is None
        assert client.status()["experiments"][name]["state"] == "spent"
    assert boot(folder).report("door", True) is None


def test_unsent_reports_survive_reboots_unchanged_and_in_order():
    folder = new_folder()
    ldp_client.provision(folder, consent=True)
    payloads = []
    for name in ("door", "temperature", "mode", "door"):
        payloads.append(boot(folder).report(name, READINGS[name]))
        assert boot(folder).outbox() == payloads
    client = boot(folder)
    for report in payloads[1:]:
        client.sent(report)
    assert boot(folder).outbox() == payloads[:1]


def test_opt_out_is_stored_and_drops_unsent_reports():
    folder = new_folder()
    ldp_client.provision(folder, consent=True)
    client = boot(folder)
    client.report("door", True)
    client.report("door", False)
    client.consent = False
    client = boot(folder)
    assert not client.consent
    assert client.outbox() == []
    assert client.report("door", True) is None
    client.consent = True
    assert boot(folder).outbox() == []
    assert boot(folder).report("door", True)[5:9] == b"\x00\x00\x00\x03"


def test_board_without_ledger_is_locked_until_provisioned_once():
    folder = new_folder()
    client = boot(folder)
    assert "provision" in client.status()["locked"], client.status()
    assert client.report("door", True) is None
    ldp_client.provision(folder, consent=True)
    assert raises(ldp_client.LedgerExists, ldp_client.provision, folder)
    with open(folder + "/ledger0", "wb") as f:
        f.write(b"not a ledger")
    with open(folder + "/ledger1", "wb") as f:
        f.write(b"nor this")
    assert "damaged" in boot(folder).status()["locked"]
    os.remove(folder + "/ledger0")
    assert "damaged" in boot(folder).status()["locked"]


def test_accepts_readings_of_every_kind():
    folder = new_folder()
    ldp_client.provision(folder, consent=True)
    client = boot(folder)
    door = ldp_client.Experiment.parse(DOOR.encode())
    assert [door.bucket(x) for x in (True, 0, None, float("nan"))] == [1, 0, None, None]
    temperature = ldp_client.Experiment.parse(EXPERIMENTS["temperature"].encode())
    for value, index in ((-1e30, 0), (-20, 0), (float("inf"), 255), (50, 255), (15, 128)):
        assert temperature.bucket(value) == index, value
    assert raises(TypeError, client.report, "temperature", "warm")


def test_seed_is_never_used_twice():
    folder = new_folder()
    ldp_client.provision(folder, consent=True)
    client = boot(folder)
    seeds = set()
    for _ in range(REPORTS):
        client.report("door", True)
        seeds.add(client._ledger.state.seed)
    assert len(seeds) == REPORTS


on_device.run(globals())
