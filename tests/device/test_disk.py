"""One client per ledger, even if processes share a disk."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import enumeration
import pytest
from enumeration import POLICY
from experiments import experiment_json
from folder_writes import assert_survives_power_cuts, assert_syncs_every_change

from hushmote.device.ldp_client import Client, LedgerError, LedgerExists, provision
from hushmote.device.mqtt_reporter import Reporter

IN_USE = "locked: storage failed: errno 11, another client uses this ledger"
BUDGET = 8
TRIALS = 62
EPSILON = 1_000_000
PAYLOAD = experiment_json(epsilon=EPSILON, budget={"rule": "sum", "cap": BUDGET * EPSILON})
RACER = """if True:
    import sys
    sys.path.insert(0, sys.argv[1])
    from enumeration import POLICY
    from hushmote.device.ldp_client import Client
    payload = bytes.fromhex(sys.argv[2])
    print("ready", flush=True)
    for folder in sys.stdin:
        client = Client(POLICY, folder.strip(), device_id="d")
        client.enroll(payload)
        made = 0
        while client.report("e", True) is not None:
            made += 1
        print(made, flush=True)
"""


def boot(folder: Path) -> Client:
    client = Client(POLICY, str(folder), device_id="d")
    client.enroll(PAYLOAD)
    return client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    provision(str(tmp_path / "ldp"), consent=True)
    return tmp_path / "ldp"


@pytest.mark.slow
def test_racing_processes_never_exceed_budget(tmp_path: Path):
    folders = [tmp_path / str(i) for i in range(TRIALS)]
    for folder in folders:
        provision(str(folder), consent=True)
    command = [sys.executable, "-c", RACER, str(Path(enumeration.__file__).parent), PAYLOAD.hex()]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    try:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 2
        reports = []
        for folder in folders:
            for racer in racers:
                assert racer.stdin
                racer.stdin.write(f"{folder}\n")
                racer.stdin.flush()
            reports.append(sum(int(racer.stdout.readline()) for racer in racers if racer.stdout))
    finally:
        for racer in racers:
            racer.communicate()
    assert reports == [BUDGET] * TRIALS


@pytest.mark.slow
def test_second_client_is_locked_out_until_first_is_gone(folder: Path):
    first = boot(folder)
    assert first.report("e", True) is not None
    second = boot(folder)
    assert second.status()["locked"] == IN_USE
    assert second.report("e", True) is None
    assert first.report("e", True) is not None
    del first, second
    gc.collect()
    third = boot(folder)
    assert third.status()["locked"] is None
    assert third.status()["sum"] == 2 * EPSILON


def test_reporter_shows_ledger_in_use(folder: Path):
    clients = [Client(POLICY, str(folder), device_id="d", fleet="home") for _ in range(2)]
    assert IN_USE in Reporter(clients[1], lambda: None).status()


def test_refuses_to_provision_ledger_in_use(folder: Path):
    client = boot(folder)
    for replace in (False, True):
        with pytest.raises(LedgerError, match="another client uses this ledger"):
            provision(str(folder), replace=replace, consent=True)
    assert client.report("e", True) is not None


def test_provisioning_always_releases_its_lock(folder: Path):
    try:
        provision(str(folder), consent=True)
    except LedgerExists:
        assert boot(folder).status()["locked"] is None  # like an application that starts for the first time
    provision(str(folder), replace=True, consent=True)
    assert boot(folder).status()["locked"] is None


@pytest.mark.parametrize("steps", ["LEDGER", "KEPT"])
def test_power_cut_leaves_old_or_new_file(tmp_path: Path, steps: str):
    folder = tmp_path / "ldp"
    folder.mkdir()
    assert_survives_power_cuts(steps, folder)


def test_new_folder_and_removals_are_synced(tmp_path: Path):
    assert_syncs_every_change(tmp_path / "ldp" / "experiments")


def test_forked_process_spends_nothing(folder: Path):
    client = boot(folder)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        report = client.report("e", True)
        os.write(writing, b"spent" if report else str(client.status()["error"]).encode())
        os._exit(0)
    assert (
        os.read(reading, 100) == b"storage failed: errno 1, a forked process cannot use its parent's client"
    )
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    os.close(writing)
    assert client.report("e", True) is not None
    assert boot(folder).status()["locked"] == IN_USE, "the child's exit must not release the lock"
    assert client.status()["sum"] == EPSILON
