"""The budget ledger's guarantees under every flash failure."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import failing_storage
import pytest
from enumeration import POLICY, MemoryStorage
from experiments import experiment_json
from failing_storage import FailingStorage, PowerCut, Witness, newest_record, parse_record
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, FileStorage, LedgerError, LedgerExists, provision

EPSILON = 1_000_000
KEY = bytes(range(32))
CAP_REPORTS = 20
PAYLOAD = experiment_json(budget={"rule": "sum", "cap": CAP_REPORTS * EPSILON})


def fresh_slots():
    storage = MemoryStorage()
    provision(storage, consent=True)
    return storage.slots


def boot(storage, policy=None, payload: bytes | None = PAYLOAD, key=KEY) -> Any:
    client = Client(policy or POLICY, storage, device_id="board-1", key=key)
    if payload is not None:
        client.enroll(payload)
    return client


def exhaust(client, witness):
    """Call until the board stays silent, publishing and acknowledging every report."""
    for i in range(200):
        witness.see(client.report("e", i % 3 == 0))
        for report in client.outbox():
            witness.see(report)
            client.sent(report)


def lifetime(client, witness):
    """Simulate reports, an outage and out-of-order acknowledgements twice, with about 20 writes."""

    def acknowledge(reports):
        for report in reports:
            witness.see(report)
            with contextlib.suppress(LedgerError):
                client.sent(report)

    for i in range(4):
        witness.see(client.report("e", i % 2 == 0))
    acknowledge(client.outbox()[1:3])
    witness.see(client.report("e", None))
    acknowledge(client.outbox())
    witness.see(client.report("e", True))
    acknowledge(client.outbox())
    witness.see(client.report("e", True))
    witness.see(client.report("e", True))


def writes_of_a_lifetime():
    storage = FailingStorage(fresh_slots())
    lifetime(boot(storage), Witness())
    return storage.writes


def check_lifetime_with(fault, at, keep=0, forever=False):
    storage = FailingStorage(fresh_slots(), fault, at, keep, forever)
    witness = Witness()
    client = boot(storage)
    spent_before = 0
    try:
        lifetime(client, witness)
        spent_before = client.status()["sum"]
    except PowerCut:
        pass
    assert len(storage.writes) > at, "the fault was never reached"
    assert newest_record(storage.slots)["sum"] >= len(witness.seen) * EPSILON, (
        "a report was seen but not debited"
    )
    restarted = boot(MemoryStorage(storage.slots))
    if fault == "torn" and restarted.status()["locked"]:  # the last write before this restart was torn
        assert parse_record(storage.slots[storage.writes[-1][0]]) is None
        return CAP_REPORTS
    assert restarted.status()["locked"] is None
    assert restarted.status()["sum"] >= spent_before
    witness.see_all(restarted.outbox())
    lifetime(restarted, witness)
    exhaust(boot(MemoryStorage(restarted._ledger._storage.slots)), witness)
    assert len(witness.seen) <= CAP_REPORTS
    return len(witness.seen)


def check_damaged(slots):
    """Check that a board that starts with these slots is locked and returns no report."""
    client = boot(MemoryStorage(slots))
    assert client.status()["locked"] == "locked: the ledger is damaged; provision again"
    assert client.outbox() == []
    assert client.report("e", True) is None


class TestPowerCut:
    @pytest.mark.parametrize("fault", ["cut-before", "cut-after"])
    def test_between_writes_neither_overspends_nor_locks(self, fault):
        for at in range(len(writes_of_a_lifetime())):
            assert check_lifetime_with(fault, at) >= CAP_REPORTS - 1

    @pytest.mark.slow
    def test_within_a_write_locks_and_never_overspends(self):
        # littlefs writes a slot either completely or not at all. A torn slot could have been the newest.
        for at, (_, data) in enumerate(writes_of_a_lifetime()):
            for keep in range(len(data)):
                storage = FailingStorage(fresh_slots(), "torn-cut", at, keep)
                with pytest.raises(PowerCut):
                    lifetime(boot(storage), Witness())
                check_damaged(storage.slots)


class TestCommit:
    def test_stores_debit_and_report_together_before_returning(self):
        storage = FailingStorage(fresh_slots())
        client = boot(storage)
        report = client.report("e", True)
        assert len(storage.writes) == 1
        record = newest_record(storage.slots)
        assert record["unsent"] == [report]
        assert (record["sum"], record["squares"]) == (EPSILON, EPSILON**2)
        assert list(record["entries"].values()) == [(1, "sum", CAP_REPORTS * EPSILON, EPSILON)]

    @pytest.mark.parametrize("fault", ["raise", "raise-after", "lost", "torn", "full"])
    @pytest.mark.parametrize("forever", [False, True])
    def test_never_gives_a_free_report_if_any_write_fails(self, fault, forever):
        healthy = writes_of_a_lifetime()
        for at in range(len(healthy)):
            for keep in (0, 1, len(healthy[at][1]) - 1) if fault == "torn" else (0,):
                assert check_lifetime_with(fault, at, keep, forever) >= CAP_REPORTS - 2

    @pytest.mark.parametrize("fault", ["raise", "raise-after", "lost", "torn", "full"])
    def test_returns_no_report_and_spends_nothing_on_failure(self, fault):
        storage = FailingStorage(fresh_slots(), fault, 0, keep=50)
        client = boot(storage)
        assert client.report("e", True) is None
        assert client.outbox() == []
        assert client.status()["sum"] == 0
        assert client.status()["error"].startswith("storage failed: ")
        assert client.report("e", True)[5:9] == b"\x00\x00\x00\x01", "the next report must have number 1"
        assert client.status()["error"] is None
        assert storage.writes[0][0] == storage.writes[1][0]
        assert parse_record(storage.slots[1 - storage.writes[0][0]])["sum"] == 0, (
            "the last good record must be intact"
        )


class TestOutbox:
    def test_resends_oldest_first_and_accepts_acks_in_any_order(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        reports = [client.report("e", i % 2 == 0) for i in range(6)]
        assert client.outbox() == reports
        for drop in (2, 4, 0, 2):
            for _ in range(2):  # a repeated acknowledgement is harmless
                client.sent(reports[drop])
            del reports[drop]
            assert client.outbox() == boot(storage).outbox() == reports
            assert boot(storage, payload=None).outbox() == reports, (
                "the outbox must not depend on an enrolment"
            )
        client.sent(b"\x10 never made")
        client.sent(b"")
        assert client.outbox() == reports
        assert newest_record(storage.slots)["sum"] == 6 * EPSILON

    def test_makes_no_report_and_spends_nothing_when_full(self):
        client = boot(MemoryStorage(fresh_slots()))
        reports = []
        while (report := client.report("e", True)) is not None:
            reports.append(report)
        assert len(reports) == len(client.outbox()) == ldp_client._MAX_UNSENT < CAP_REPORTS
        before = dict(client._ledger._storage.slots)
        for value in (True, False, None):
            assert client.report("e", value) is None
        assert client._ledger._storage.slots == before
        client.sent(reports[0])
        assert client.report("e", True)[5:9] == (len(reports) + 1).to_bytes(4, "big")
        assert all(len(record) <= 4096 for record in before.values())


class TestTwoSlots:
    def test_newest_wins_and_commit_overwrites_the_other(self):
        storage = FailingStorage(fresh_slots())
        client = boot(storage)
        for _ in range(12):
            in_force = max((0, 1), key=lambda slot: parse_record(storage.slots[slot])["sequence"])
            client.sent(client.report("e", True))
            report_slot, sent_slot = (slot for slot, _ in storage.writes[-2:])
            assert (report_slot, sent_slot) == (1 - in_force, in_force)

    def test_losing_or_damaging_a_slot_refunds_nothing(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        history = [dict(storage.slots)]
        for reports in range(1, 9):
            client.report("e", True)
            history.append(dict(storage.slots))
            for slot, record in storage.slots.items():
                old = history[-4][slot] if reports > 2 else b"x"
                for bad in (None, b"", record[:-1], bytes([record[0] ^ 1]) + record[1:], old):
                    check_damaged({**storage.slots, slot: bad})

    @pytest.mark.parametrize("arrives", [False, True])
    def test_unverifiable_write_does_not_lock(self, arrives):
        # As if memory ran out between the write and the read-back.
        class Forgetful(MemoryStorage):
            fails = 0

            def write(self, slot, data):
                if not self.fails or arrives:
                    super().write(slot, data)
                self.failed = self.fails
                self.fails = 0

            def read(self, slot):
                if getattr(self, "failed", 0):
                    self.failed = 0
                    raise MemoryError
                return super().read(slot)

        storage = Forgetful(fresh_slots())
        client = boot(storage)
        assert client.report("e", True) is not None
        for reports in range(2, 6):
            storage.fails = 1
            with pytest.raises(MemoryError):
                client.report("e", True)
            report = client.report("e", True)
            assert report is not None
            assert report[5:9] == reports.to_bytes(4, "big")
            assert client.status()["sum"] == newest_record(storage.slots)["sum"] == reports * EPSILON
        assert boot(MemoryStorage(storage.slots)).status()["locked"] is None

    @pytest.mark.parametrize("now", [None, b""])
    @pytest.mark.parametrize("slot", [0, 1])
    def test_slot_missing_or_emptied_since_start_locks(self, slot, now):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        storage.slots = {key: value for key, value in storage.slots.items() if key != slot}
        if now is not None:
            storage.slots[slot] = now
        assert client.report("e", True) is None
        assert client.status()["locked"] == "locked: another client wrote this ledger"


class TestTwoClients:
    def test_do_not_spend_twice(self):
        cap = {"rule": "sum", "cap": 5 * EPSILON}
        storage = MemoryStorage(fresh_slots())
        clients = [boot(storage, payload=experiment_json(budget=cap)) for _ in range(2)]
        witness = Witness()
        for _ in range(10):
            for client in clients:
                witness.see(client.report("e", True))
                for report in client.outbox():
                    witness.see(report)
                    client.sent(report)
        assert len(witness.seen) == newest_record(storage.slots)["sum"] // EPSILON == 5
        assert clients[0].status()["locked"] is None
        assert clients[1].status()["locked"] == "locked: another client wrote this ledger"
        assert clients[1].outbox() == []
        for change in (True, False):
            with pytest.raises(LedgerError, match="another client"):
                clients[1].consent = change
        assert boot(storage).status()["locked"] is None, "a single client must work"

    def test_are_detected_after_a_failed_write_too(self):
        for fault in ("raise", "raise-after", "lost", "torn"):
            slots = fresh_slots()
            storage = FailingStorage(slots, fault, 0, keep=9)
            client = boot(storage)
            assert client.report("e", True) is None
            other = boot(MemoryStorage(slots))
            assert other.report("e", True) is not None
            storage.slots = other._ledger._storage.slots
            assert client.report("e", True) is None
            assert client.status()["locked"] == "locked: another client wrote this ledger"


class TestRecord:
    def test_detects_every_flipped_bit(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        client.report("e", True)
        for slot, record in storage.slots.items():
            for bit in range(8 * len(record)):
                rotten = bytearray(record)
                rotten[bit // 8] ^= 1 << bit % 8
                check_damaged({**storage.slots, slot: bytes(rotten)})

    def test_has_at_most_128_bytes_at_extreme_numbers(self):
        # Three experiments with the longest report, and budgets and counters near a record's limits.
        storage = MemoryStorage(fresh_slots())
        policy = {**POLICY, "sum": 2**48 - 1, "squares": 2**64 - 1}
        client = boot(storage, policy, payload=None)
        wide = {
            "type": "number",
            "low": 0,
            "high": 1,
            "bins": 2**24,
            "mechanism": "grr",
            "epsilon": 16_000_000,
        }
        for name in ("e", "f", "g"):
            client.enroll(experiment_json(name=name, budget={"rule": "sum", "cap": 2**54 - 1}, **wide))
            client.sent(client.report(name, 1))
        state = client._ledger.state
        for key, (_, pinned, cap, _) in state.entries.items():
            state.entries[key] = (2**32 - 2, pinned, cap, 2**54 - 17_000_000)
        state.sequence = 2**32 - 2
        state.sum = 2**48 - 17_000_000
        state.squares = 2**64 - 17_000_000**2
        report = client.report("g", 1)
        assert len(report) == 1 + 4 + 4 + 3 + 8
        assert report[5:9] == b"\xff\xff\xff\xff"
        assert max(len(storage.slots[slot]) for slot in (0, 1)) <= 128
        record = newest_record(storage.slots)
        assert (record["sequence"], record["unsent"]) == (2**32 - 1, [report])
        assert client.report("g", 1) is None, "no report number must be left"
        client._ledger.state.sum = client._ledger.state.squares = 0
        assert client.report("f", 1) is None, "no sequence number must be left"
        assert client.status()["error"] == "the ledger is worn out"

    def test_counters_stop_before_they_overflow(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(
            storage,
            {**POLICY, "sum": 2**48 - 1, "squares": 2**64 - 1},
            experiment_json(budget={"rule": "unlimited"}),
        )
        for counter, limit in (("sum", 2**48), ("squares", 2**64)):
            cost = EPSILON if counter == "sum" else EPSILON**2
            setattr(client._ledger.state, counter, limit - cost)
            assert client.report("e", True) is None
            setattr(client._ledger.state, counter, limit - cost - 1)
            assert client.report("e", True) is not None
            setattr(client._ledger.state, counter, 0)

    def test_is_small_except_in_an_outage(self):
        storage = FailingStorage(fresh_slots())
        client = boot(storage, {**POLICY, "experiments": ("e", "f", "g")}, key=KEY)
        for name in ("f", "g"):
            client.enroll(experiment_json(name=name))
        for i in range(9):
            client.sent(client.report("efg"[i % 3], True))
        assert max(len(data) for _, data in storage.writes) <= 128
        while client.report("e", True):
            pass
        assert {slot for slot, _ in storage.writes} == {0, 1}
        assert len(client.outbox()) == 16
        assert max(len(data) for _, data in storage.writes) <= 36 + 3 * 22 + 16 * 21 + 4
        for report in client.outbox():
            client.sent(report)
        assert len(storage.writes[-1][1]) <= 128


def locked_reason(slots):
    storage = MemoryStorage(slots)
    client = boot(storage)
    for value in (True, None):
        assert client.report("e", value) is None
    assert client.outbox() == []
    client.sent(b"x")
    with pytest.raises(LedgerError, match="locked"):
        client.consent = True
    with pytest.raises(LedgerError, match="locked"):
        client.consent = False
    assert storage.slots == dict(slots), "a locked board must not write"
    status = client.status()
    assert status["experiments"]["e"]["left"] == 0
    return status["locked"]


class TestLockedLedger:
    def test_missing_ledger_is_not_a_fresh_budget(self):
        assert locked_reason({}) == "locked: no ledger; provision this board"
        assert locked_reason({0: b""}) == "locked: no ledger; provision this board"

    def test_truncating_both_slots_anywhere_locks(self):
        slots = MemoryStorage(fresh_slots())
        client = boot(slots)
        for _ in range(3):
            client.report("e", True)
        slots_before = dict(slots.slots)
        for cut in range(min(len(slots_before[0]), len(slots_before[1]))):
            rotten = {slot: record[:cut] for slot, record in slots_before.items()}
            reason = "locked: the ledger is damaged" if cut else "locked: no ledger"
            assert locked_reason(rotten).startswith(reason)

    def test_unreadable_slot_locks_board(self):
        class Unreadable(MemoryStorage):
            bad = 0

            def read(self, slot):
                if slot == self.bad:
                    raise OSError(5)
                return super().read(slot)

        for bad in range(2):
            storage = Unreadable(fresh_slots())
            storage.bad = bad
            client = boot(storage)
            assert client.status()["locked"] == "locked: storage failed: errno 5"
            assert client.report("e", True) is None


class TestProvision:
    def test_refuses_existing_ledger_even_if_damaged(self):
        slots = fresh_slots()
        used = MemoryStorage(slots)
        boot(used).report("e", True)
        damaged = [{0: b"damaged"}, {1: b"x"}, {1: slots[1]}, {0: slots[0], 1: b"x"}, {0: used.slots[0]}]
        for existing in (slots, used.slots, *damaged):
            storage = FailingStorage(existing)
            with pytest.raises(LedgerExists, match=r"^a ledger exists; replace=True"):
                provision(storage, consent=True)
            assert storage.slots == existing
            assert storage.writes == []

    def test_replacing_resets_bound_and_erases_old(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        for _ in range(4):
            client.report("e", True)
        client.consent = False
        for damage in ({}, {0: b"x"}, {1: b""}, {0: b"x", 1: b"y"}):
            replaced = MemoryStorage({**storage.slots, **damage})
            provision(replaced, replace=True, consent=True)
            records = [parse_record(replaced.slots[slot]) for slot in (0, 1)]
            assert [(r["sequence"], r["sum"], r["entries"], r["unsent"]) for r in records] == [
                (1, 0, {}, []),
                (2, 0, {}, []),
            ]
            client = boot(replaced)
            assert client.consent
            assert client.outbox() == []
            assert client.report("e", True)[5:9] == b"\x00\x00\x00\x01"

    def test_power_cut_leaves_valid_or_locked_ledger(self):
        storage = MemoryStorage(fresh_slots())
        for spent in range(6):
            for at, fault in ((0, "cut-before"), (0, "cut-after"), (1, "cut-before"), (1, "cut-after")):
                cut = FailingStorage(storage.slots, fault, at)
                with pytest.raises(PowerCut):
                    provision(cut, replace=True, consent=True)
                restarted = boot(MemoryStorage(cut.slots))
                if (at, fault) == (0, "cut-before"):
                    assert restarted.status()["sum"] == spent * EPSILON
                elif (at, fault) == (1, "cut-after"):
                    assert (restarted.status()["locked"], restarted.status()["sum"]) == (None, 0)
                else:
                    assert restarted.status()["locked"] or restarted.status()["sum"] in (0, spent * EPSILON)
                    provision(restarted._ledger._storage, replace=True, consent=True)
            assert boot(storage).report("e", True) is not None

    def test_can_be_repeated_after_interruption(self):
        # littlefs creates a file when it is opened and writes it when it is closed, so a cut may leave it
        # empty.
        for at, empty in ((0, None), (0, 0), (1, None), (1, 1)):
            cut = FailingStorage({}, "cut-before", at)
            with pytest.raises(PowerCut):
                provision(cut, consent=True)
            storage = MemoryStorage(cut.slots if empty is None else {**cut.slots, empty: b""})
            assert boot(storage).status()["locked"] == "locked: no ledger; provision this board"
            provision(storage, consent=True)
            assert boot(storage).report("e", True) is not None

    def test_reports_storage_failure(self):
        for fault in ("raise", "full", "lost"):
            with pytest.raises(LedgerError, match=r"^storage failed: "):
                provision(FailingStorage({}, fault, 0), consent=True)


class TestOptOut:
    def test_is_stored_and_stops_reports_and_debits(self):
        storage = FailingStorage(fresh_slots())
        client = boot(storage)
        client.report("e", True)
        client.consent = False
        before = dict(storage.slots)
        for board in (client, boot(storage)):
            assert board.consent is False
            assert board.report("e", True) is None
            assert board.outbox() == []
            assert board.status()["consent"] is False
            assert board.status()["sum"] == EPSILON
        assert storage.slots == before
        board.consent = True
        assert boot(storage).consent is True
        assert board.report("e", True)[5:9] == b"\x00\x00\x00\x02"

    @pytest.mark.parametrize("reports", [1, 2, 3, 6])
    def test_drops_reports_for_good(self, reports):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        for _ in range(reports):
            client.report("e", True)
        client.consent = False
        board = boot(storage)
        assert board.outbox() == []
        assert board.consent is False
        board.consent = True
        assert board.outbox() == []
        restarted = boot(storage)
        assert restarted.outbox() == []
        assert restarted.status()["sum"] == reports * EPSILON, "the spent budget must stay spent"

    def test_drops_reports_for_good_despite_power_cut(self):
        storage = MemoryStorage(fresh_slots())
        client = boot(storage)
        reports = [client.report("e", True) for _ in range(4)]
        for switch in range(6):
            for fault in ("cut-before", "cut-after"):
                cut = FailingStorage(storage.slots, fault, switch)
                board = boot(cut)
                try:
                    board.consent = False
                    board.consent = True
                except PowerCut:
                    pass
                restarted = boot(MemoryStorage(cut.slots))
                if restarted.consent and restarted.outbox():
                    assert restarted.outbox() == reports, "either all reports or none must be dropped"
                if not restarted.consent:
                    restarted.consent = True
                    assert restarted.outbox() == []

    def test_silences_client_even_if_write_fails(self):
        storage = FailingStorage(fresh_slots(), "raise", 1, forever=True)
        client = boot(storage)
        client.report("e", True)
        with pytest.raises(LedgerError, match="storage failed: errno 5"):
            client.consent = False
        assert client.consent is False
        assert client.report("e", True) is None
        assert client.outbox() == []
        with pytest.raises(LedgerError, match="storage failed: errno 5"):
            client.consent = True  # which flash did not store either
        assert client.consent is False
        assert client.report("e", True) is None
        storage.fault = None
        client.consent = True
        assert client.report("e", True) is not None


class TestFolder:
    def test_is_created_provisioned_and_survives_reboots(self, tmp_path):
        folder = str(tmp_path / "ldp")
        provision(folder, consent=True)
        with pytest.raises(LedgerExists):
            provision(folder, consent=True)
        witness = Witness()
        for _ in range(7):
            lifetime(boot(folder), witness)
        exhaust(boot(folder), witness)
        assert len(witness.seen) == CAP_REPORTS
        assert sorted(os.listdir(folder)) == ["ledger0", "ledger1"]
        assert max(os.path.getsize(f"{folder}/ledger{i}") for i in (0, 1)) <= 128

    def test_locks_board_if_missing(self, tmp_path):
        client = boot(str(tmp_path / "nowhere"))
        assert client.status()["locked"] == "locked: no ledger; provision this board"
        assert client.report("e", True) is None
        assert not (tmp_path / "nowhere").exists()

    def test_locks_board_if_unreadable(self, tmp_path):
        provision(str(tmp_path), consent=True)
        os.remove(tmp_path / "ledger0")
        os.mkdir(tmp_path / "ledger0")  # reading a directory fails for every user, including root
        client = boot(str(tmp_path))
        assert client.status()["locked"] == "locked: storage failed: errno 21"
        assert client.report("e", True) is None

    def test_makes_no_report_if_not_writable(self, tmp_path):
        provision(str(tmp_path), consent=True)
        client = boot(str(tmp_path))
        if os.geteuid() == 0:  # root ignores permissions, but a directory in the new file's place blocks it
            os.mkdir(tmp_path / "ledger0.new")
        else:
            os.chmod(tmp_path, stat.S_IRUSR | stat.S_IXUSR)
        assert client.report("e", True) is None
        assert client.status()["error"].startswith("storage failed: errno ")
        assert client.status()["sum"] == 0
        assert client.status()["locked"] is None

    @pytest.mark.slow
    def test_killed_process_leaves_a_complete_slot(self, tmp_path):
        # Systems with fsync truncate a file when it is opened; a board killed then would be locked
        # permanently.
        provision(str(tmp_path), consent=True)
        script = """if True:
        import os, signal, sys
        sys.path.insert(0, sys.argv[2])
        from enumeration import POLICY
        from experiments import experiment_json
        from hushmote.device import ldp_client
        ldp_client.os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
        client = ldp_client.Client(POLICY, sys.argv[1], device_id="d")
        client.enroll(experiment_json())
        client.report("e", 1)
    """
        support = str(Path(failing_storage.__file__).parent)
        for _ in range(2):
            killed = subprocess.run([sys.executable, "-c", script, str(tmp_path), support], check=False)
            assert killed.returncode == -signal.SIGKILL
            assert boot(str(tmp_path)).status()["locked"] is None
        assert boot(str(tmp_path)).report("e", True) is not None

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
    def test_makes_no_report_on_full_disk(self, tmp_path):
        provision(str(tmp_path), consent=True)
        client = boot(str(tmp_path))
        for name in ("ledger0.new", "ledger1.new"):
            os.symlink("/dev/full", tmp_path / name)
        assert client.report("e", True) is None
        assert client.status()["error"] == "storage failed: errno 28"

    def test_distinguishes_missing_and_empty_slots(self, tmp_path):
        storage = FileStorage(str(tmp_path))
        assert [storage.read(slot) for slot in range(2)] == [None] * 2
        for slot in range(2):
            storage.write(slot, bytes([slot]) * slot)
        assert [storage.read(slot) for slot in range(2)] == [b"", b"\x01"]


LIFETIME_POLICY = {**POLICY, "sum": 9 * EPSILON, "squares": 0}


class BoardLifetime(RuleBasedStateMachine):
    """Enrolling, reporting, acknowledging, rebooting, failing and opting out, in any order.

    The board's state is checked against a witness that sees all its output.
    """

    names = ("e", "f")

    @initialize()
    def make(self):
        self.storage = FailingStorage(fresh_slots())
        self.witness = Witness()
        self.spent = 0
        self.pins: dict[bytes, int] = {}
        self.opted_out = False
        self.dropped: set[bytes] = set()
        self.boot()

    def boot(self):
        self.storage = FailingStorage(self.storage.slots)
        storage: Any = self.storage
        self.client: Any = Client(LIFETIME_POLICY, storage, device_id="b", key=KEY)

    @rule(name=st.sampled_from(names), cap=st.integers(1, 8), every=st.sampled_from([1, 1, 2]))
    def enroll(self, name, cap, every):
        budget = {"rule": "sum", "cap": cap * EPSILON}
        exp = self.client.enroll(experiment_json(name=name, every=every, budget=budget))
        self.witness.names[exp.digest] = name

    @rule(name=st.sampled_from(names))
    def withdraw(self, name):
        self.client.withdraw(name)

    @rule(name=st.sampled_from(names), value=st.sampled_from([True, False, None]))
    def report(self, name, value):
        report = self.client.report(name, value)
        self.witness.see(report)
        if report is not None:
            assert not self.opted_out
            assert newest_record(self.storage.slots)["unsent"][-1] == report, (
                "a report was returned but is not in flash"
            )
            assert self.client.outbox()[-1] == report
            for key, (_, _, cap, _) in newest_record(self.storage.slots)["entries"].items():
                self.pins.setdefault(key, cap)

    @rule(which=st.integers(0, 20))
    def publish_and_acknowledge(self, which):
        reports = self.client.outbox()
        if reports:
            report = reports[which % len(reports)]
            self.witness.see(report)
            try:
                self.client.sent(report)
            except LedgerError:
                assert report in self.client.outbox()
            else:
                assert report not in self.client.outbox()

    @rule()
    def reboot(self):
        self.boot()
        self.opted_out = not self.client.consent

    @rule(fault=st.sampled_from(["raise", "raise-after", "lost", "full"]), forever=st.booleans())
    def storage_starts_to_fail(self, fault, forever):
        self.storage.fault, self.storage.forever = fault, forever
        self.storage.at = len(self.storage.writes)

    @rule(
        fault=st.sampled_from(["cut-before", "cut-after"]),
        later=st.integers(0, 1),
        action=st.sampled_from(["report", "sent", "off"]),
    )
    def power_cut(self, fault, later, action):
        self.storage.fault, self.storage.forever = fault, False
        self.storage.at = len(self.storage.writes) + later
        reports = self.client.outbox()
        try:
            if action == "report":
                self.witness.see(self.client.report("e", True))
            elif action == "sent" and reports:
                self.client.sent(reports[0])
            elif action == "off":
                self.client.consent = False
                self.dropped.update(reports)
        except PowerCut:
            pass
        except LedgerError:
            pass
        self.boot()
        self.opted_out = not self.client.consent

    @precondition(lambda self: not self.opted_out)
    @rule()
    def opt_out(self):
        reports = self.client.outbox()
        self.opted_out = True
        try:
            self.client.consent = False
        except LedgerError:
            return  # silent until a restart; nothing is guaranteed about flash
        self.dropped.update(reports)

    @precondition(lambda self: self.opted_out)
    @rule()
    def opt_in(self):
        try:
            self.client.consent = True
        except LedgerError:
            return
        self.opted_out = False

    @invariant()
    def every_report_that_was_seen_is_debited_and_nothing_is_above_the_caps(self):
        status = self.client.status()
        assert status["locked"] is None
        assert status["sum"] >= len(self.witness.seen) * EPSILON
        assert status["sum"] <= LIFETIME_POLICY["sum"]
        for key, (number, _, cap, spent) in newest_record(self.storage.slots)["entries"].items():
            assert spent == number * EPSILON <= cap == self.pins.get(key, cap)

    @invariant()
    def what_is_spent_in_flash_never_falls(self):
        spent = newest_record(self.storage.slots)["sum"]
        if self.storage.fault == "raise-after":
            return  # the write succeeded but was reported as failed, so flash may be one report ahead
        assert spent >= self.spent
        self.spent = max(self.spent, self.client.status()["sum"])

    @invariant()
    def a_dropped_report_is_never_in_the_outbox(self):
        assert not self.dropped.intersection(self.client.outbox())

    @invariant()
    def opted_out_means_an_empty_outbox(self):
        if self.opted_out:
            assert self.client.outbox() == []


TestBoardLifetime = pytest.mark.slow(BoardLifetime.TestCase)
TestBoardLifetime.settings = settings(max_examples=60, stateful_step_count=40)
