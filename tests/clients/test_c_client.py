"""The C client's ledger, budget, consent and signatures, compared byte by byte with MicroPython's."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from c_client import CODES, LOCK, NAMES, UNLOCK, CBoard, Line, Refused, Source, Status, library, pointer
from c_core import needs_gcc
from enumeration import POLICY, MemoryStorage
from experiments import experiment_json, number_json
from failing_storage import PowerCut, Witness, newest_record
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hushmote.device import gap, ldp_client
from hushmote.device.ldp_client import Client, ExperimentRefused, LDPError

pytestmark = needs_gcc

ROOT = Path(__file__).parents[2]
VECTORS: dict[str, list[dict[str, Any]]] = {}
for file in ("vectors.json", "vectors_further.json"):
    for section, cases in json.loads((ROOT / "tests" / file).read_text()).items():
        VECTORS.setdefault(section, []).extend(cases)
EPSILON = 1_000_000
KEY = bytes(range(32))

# The C client's codes, by the start of the MicroPython client's message.
CODES_BY_MESSAGE = {
    "locked: storage failed": "STORAGE",
    "storage failed": "STORAGE",
    "locked: no ledger": "NO_LEDGER",
    "locked: the ledger is damaged": "LOCKED",
    "locked: another client": "ANOTHER",
    "the ledger is worn out": "WORN_OUT",
    "another call is in progress": "BUSY",
    "a newer version": "REFUSED_SERIAL",
    "its signature": "REFUSED_SIGNATURE",
    "its budget rule was pinned": "REFUSED_PINNED",
    "its epsilon was pinned": "REFUSED_PINNED",
    "epsilon is above": "REFUSED_POLICY",
    "the policy forbids": "REFUSED_POLICY",
    "the policy does not name group": "REFUSED_GROUP",
    "this firmware has no os": "BAD_ENTROPY",
    "os.urandom is stuck": "BAD_ENTROPY",
}


def word(text: str | None) -> str | None:
    """Return the C client's code for a message of the MicroPython client."""
    if text is None:
        return None
    return next((code for start, code in CODES_BY_MESSAGE.items() if text.startswith(start)), "REFUSED")


def board(slots: Any = None, policy: dict[str, Any] | None = None, seed: int = 1, **settings: Any) -> CBoard:
    storage = slots if hasattr(slots, "read") else MemoryStorage(slots)
    return CBoard(policy or POLICY, storage, entropy=Source(seed), **settings)


def fresh_slots(consent: int = 2) -> dict[int, bytes]:
    new = board(begin=False)
    assert new.provision(consent=consent) == 0
    return new.storage.slots


def with_crc(record: bytes) -> bytes:
    return record + struct.pack(">I", zlib.crc32(record))


class TestReadings:
    @pytest.mark.slow
    def test_floats_of_both_precisions_become_thousandths(self):
        milli = library().test_milli
        table = [
            (0.5, 500),
            (-0.5, -500),
            (-0.0005, 0),
            (1.001, 1001),
            (21.4, 21400),
            (-2.0625, -2062),
            (0.0, 0),
        ]
        table += [(float("inf"), 2**60), (-1e30, -(2**60)), (1e12, 2**60), (8388.609, 8388609)]
        for value, wanted in table:
            assert milli(value, 0) == milli(value, 1) == wanted
        assert milli(float("nan"), 0) == milli(float("nan"), 1) == -(2**63)


LIFETIME_POLICY = {
    "sum": 30 * EPSILON,
    "squares": 40 * EPSILON**2,
    "epsilon": 4 * EPSILON,
    "rules": ("sum", "count", "squares"),
    "experiments": ("e", "f", "room-1"),
    "groups": ("firmware", "model"),
}
GROUP_VALUES = (None, None, "2.3.1", "2.4.0", "", "other")
VALUES = (True, False, None, 0, 7, 21.4, -3.0, "on", 10**30, float("nan"), float("inf"))


def payload_of(
    name: str, kind: int, rule_of: str, epsilon: int, cap: int, every: int, group: str = ""
) -> bytes:
    budget = {"rule": rule_of} | ({} if rule_of == "unlimited" else {"cap": cap * EPSILON})
    if rule_of == "count":
        budget["cap"] = cap
    if rule_of == "squares":
        budget["cap"] = cap * EPSILON**2
    changes = {"name": name, "epsilon": epsilon * EPSILON, "budget": budget, "every": every}
    if group:
        changes |= {"group": group, "groups": ["2.3.1", "2.4.0"], "every": [every, 1, 2]}
    if kind == 0:
        return experiment_json(**changes)
    if kind == 1:
        return number_json(16, **changes, mechanism="hh", fanout=4, cells=[4, 3])
    return experiment_json(**changes, type="choice", labels=["on", "off", "idle"], mechanism="grr")


class Twin(MemoryStorage):
    """Memory that fails once, at operation `at` (counted from 0, including reads), like FailingStorage."""

    def __init__(self, slots: Any) -> None:
        super().__init__(slots)
        self.count, self.at, self.fault = 0, -1, ""

    def _due(self) -> bool:
        self.count += 1
        return self.count - 1 == self.at

    def read(self, slot: int) -> bytes | None:
        if self._due() and self.fault != "lost":
            raise PowerCut if "cut" in self.fault else OSError(5)
        return super().read(slot)

    def write(self, slot: int, data: bytes) -> None:
        if not self._due():
            super().write(slot, data)
            return
        if self.fault in ("raise-after", "cut-after"):
            super().write(slot, data)
        if self.fault in ("torn", "torn-cut"):
            super().write(slot, data[: len(data) // 2])
        if self.fault != "lost":
            raise PowerCut if "cut" in self.fault else OSError(5)


class Twins(RuleBasedStateMachine):
    """Both clients receive the same calls, randomness and storage, and must give the same results."""

    @initialize(keyed=st.booleans(), seed=st.integers(0, 2**32), consent=st.sampled_from([None, True]))
    def make(self, keyed: bool, seed: int, consent: bool | None) -> None:
        self.settings: dict[str, Any] = {"device_id": "b-1", "key": KEY if keyed else None, "fleet": "home"}
        self.settings["announce_key"] = bytes(64) if keyed else None
        self.seed = seed
        self.python, self.c = Twin({}), Twin({})
        self.sources = Source(seed), Source(seed)
        with self.randomness():
            ldp_client.provision(self.python, consent=consent)
        provisioned = CBoard(LIFETIME_POLICY, self.c, entropy=self.sources[1], begin=False, **self.settings)
        assert provisioned.provision(consent=2 if consent else 0) == 0
        self.boot(False)

    def randomness(self) -> Any:
        return mock.patch.object(ldp_client.os, "urandom", self.sources[0])

    def boot(self, crossed: bool) -> None:
        assert self.python.slots == self.c.slots
        slots = [self.python.slots, self.c.slots]
        self.python, self.c = Twin(slots[crossed]), Twin(slots[not crossed])
        with self.randomness():
            self.board: Any = Client(LIFETIME_POLICY, self.python, **self.settings)
        self.twin = CBoard(LIFETIME_POLICY, self.c, entropy=self.sources[1], **self.settings)
        assert self.twin.begun == 0

    def both(self, call: Any) -> Any:
        """Return the result of call(client), or the code of its error, which must match for both."""

        def outcome(client: Any) -> Any:
            try:
                with self.randomness():
                    return call(client)
            except Refused as e:
                return str(e)
            except TypeError:
                return "WRONG_TYPE"
            except LDPError as e:
                return word(str(e))

        first, second = outcome(self.board), outcome(self.twin)
        assert first == second
        return first

    @rule(
        name=st.sampled_from(LIFETIME_POLICY["experiments"]),
        kind=st.integers(0, 2),
        rule_of=st.sampled_from(["sum", "sum", "squares", "count", "unlimited"]),
        epsilon=st.sampled_from([1, 1, 2, 5]),
        cap=st.integers(1, 9),
        every=st.sampled_from([1, 1, 2]),
        group=st.sampled_from(["", "firmware", "model", "region"]),
        serial=st.integers(0, 4),
    )
    def enroll(self, name: str, serial: int, **what: Any) -> None:
        payload = payload_of(name, **what)
        if self.settings["announce_key"]:
            payload += b"\0" + serial.to_bytes(4, "big") + bytes(64)
        self.both(lambda client: [client.enroll(payload, True)][:0])

    @rule(name=st.sampled_from(LIFETIME_POLICY["experiments"]), serial=st.integers(0, 4))
    def send_wrong_signature(self, name: str, serial: int) -> None:
        if self.settings["announce_key"]:
            payload = b"\0" + serial.to_bytes(4, "big") + bytes(64)
            assert self.both(lambda client: client.withdraw(name, payload)) in (
                "REFUSED_SERIAL",
                "REFUSED_SIGNATURE",
            )

    @rule(name=st.sampled_from(LIFETIME_POLICY["experiments"]), empty=st.booleans())
    def withdraw(self, name: str, empty: bool) -> None:
        self.both(lambda client: client.withdraw(name, b"" if empty else None))

    @rule(value=st.sampled_from(GROUP_VALUES))
    def set_group(self, value: str | None) -> None:
        for client in (self.board, self.twin):
            client.groups = {} if value is None else {"firmware": value}

    @rule(
        name=st.sampled_from((*LIFETIME_POLICY["experiments"], "nobody")),
        value=st.sampled_from(VALUES),
        group=st.sampled_from(GROUP_VALUES),
    )
    def report(self, name: str, value: Any, group: str | None) -> None:
        self.both(lambda client: client.report(name, value, group=group))

    @rule(which=st.integers(0, 15), known=st.booleans())
    def sent(self, which: int, known: bool) -> None:
        reports = self.both(lambda client: client.outbox())
        report = reports[which % len(reports)] if reports and known else b"\x10unknown"
        self.both(lambda client: client.sent(report))

    @rule(value=st.sampled_from([True, True, False]))
    def consent(self, value: bool) -> None:
        self.both(lambda client: setattr(client, "consent", value))

    @rule(crossed=st.booleans())
    def restart(self, crossed: bool) -> None:
        self.boot(crossed)

    @rule(at=st.integers(0, 3), fault=st.sampled_from(["raise", "raise-after", "lost", "torn"]))
    def fail_storage(self, at: int, fault: str) -> None:
        for storage in (self.python, self.c):
            storage.at, storage.fault = storage.count + at, fault
        self.both(lambda client: setattr(client, "consent", True))
        self.clients_agree()
        self.both(lambda client: setattr(client, "consent", True))

    @rule(value=st.sampled_from([True, None]))
    def report_with_stuck_source(self, value: Any) -> None:
        for source in self.sources:
            source.stuck = True
        self.report("e", value, None)
        for source in self.sources:
            source.stuck = False

    @rule(at=st.integers(0, 3), fault=st.sampled_from(["cut", "cut-after", "torn-cut"]), no=st.booleans())
    def cut_power(self, at: int, fault: str, no: bool) -> None:
        for storage, client in ((self.python, self.board), (self.c, self.twin)):
            storage.at, storage.fault = storage.count + at, fault
            try:
                with self.randomness():
                    if no:
                        client.consent = False
                    else:
                        client.report("e", None)
            except (PowerCut, LDPError, Refused, TypeError):
                pass
        self.boot(False)

    @rule(slot=st.integers(0, 1), data=st.sampled_from([b"", b"old"]))
    def write_as_another_client(self, slot: int, data: bytes) -> None:
        before = self.python.slots.get(slot)
        for storage in (self.python, self.c):
            storage.slots[slot] = data
        self.both(lambda client: client.report("e", None))
        self.both(lambda client: setattr(client, "consent", True))
        for storage in (self.python, self.c):
            storage.slots[slot] = before or b""
        self.boot(False)

    @invariant()
    def clients_agree(self) -> None:
        if not hasattr(self, "board"):
            return
        assert self.python.slots == self.c.slots
        assert self.board.outbox() == self.twin.outbox()
        ours, theirs = self.board.status(), self.twin.status()
        for name in ("consent", "pending", "sum", "squares"):
            assert ours[name] == theirs[name], name
        assert [word(ours[x]) for x in ("locked", "error")] == [theirs[x] for x in ("locked", "error")]
        for name, line in ours["experiments"].items():
            other = theirs["experiments"][name]
            assert other["enrolled"] == (line["left"] is not None)
            assert (other["left"], other["reports"]) == (line["left"] or 0, line["reports"])
            assert other["refused"] == word(line["reason"])
            assert not other["enrolled"] or other["digest"] == line["digest"]
            assert other["group"] == line.get("group", "")
            assert self.twin.serial(name) == self.board.serials.get(name, 0)


Twins.TestCase.settings = settings(
    max_examples=2000 if os.environ.get("LONG") else 60, stateful_step_count=40
)
TestTwins = pytest.mark.slow(Twins.TestCase)


CAP = 20
PAYLOAD = experiment_json(budget={"rule": "sum", "cap": CAP * EPSILON})


def lifetime(device: CBoard, witness: Witness) -> None:
    """Make reports with an outage and out-of-order acknowledgements, then opt out and in again."""

    def acknowledge(reports: list[bytes]) -> None:
        for report in reports:
            witness.see(report)
            with contextlib.suppress(Refused):
                device.sent(report)

    for i in range(4):
        witness.see(device.report("e", i % 2 == 0))
    acknowledge(device.outbox()[1:3])
    witness.see(device.report("e", None))
    acknowledge(device.outbox())
    witness.see(device.report("e", True))
    for value in (False, True):
        try:
            device.consent = value
        except Refused:
            assert value or not device.outbox()
    witness.see(device.report("e", True))


def start_device(slots: Any, seed: int) -> CBoard:
    device = board(slots, seed=seed, key=KEY)
    assert device.begun == 0
    device.enroll(PAYLOAD)
    return device


class TestConcurrentCall:
    @pytest.mark.slow
    def test_from_callback_or_other_thread_is_ignored(self):
        device = start_device(fresh_slots(), 2)
        nested_in = []

        def nested(where: str) -> None:
            device.during = lambda where: None
            nested_in.append(where)
            assert device.report("e", True) is None
            assert device.outbox() == []
            for call in (
                lambda: device.sent(b"x"),
                lambda: device.enroll(PAYLOAD),
                lambda: device.withdraw("e"),
            ):
                with pytest.raises(Refused, match="BUSY"):
                    call()
            with pytest.raises(Refused, match="BUSY"):
                device.consent = True
            assert device.busy()
            device.during = nested

        device.during = nested
        assert device.report("e", True) is not None
        assert set(nested_in) == {"entropy", "read", "write"}
        device.during = lambda where: None
        assert len(device.outbox()) == 1

        # Calls while another thread holds the lock.
        held = [False, []]
        device.callbacks += [LOCK(lambda _: held[1].append("lock") or not held[0])]
        device.callbacks += [UNLOCK(lambda _: held[1].append("unlock"))]
        device.config.lock, device.config.unlock = map(pointer, device.callbacks[2:])
        device.during = nested  # with a recursive lock
        assert device.report("e", True) is not None
        device.during = lambda where: None
        assert held[1].count("lock") == held[1].count("unlock") > len(nested_in) > 8
        held[0] = True
        assert device.report("e", True) is None
        assert (device.outbox(), device.busy()) == ([], True)
        assert held[1][-1] == "lock"
        held[0] = False
        assert (len(device.outbox()), device.busy()) == (2, False)


class TestOptOutDuringAnotherCall:
    """The running call stores the opt-out, so no reports are sent after a restart."""

    CALLS: ClassVar = {
        "report": (lambda device: device.report("e", True), 2),
        "sent": (lambda device: device.sent(device.outbox()[0]), 1),
        "yes": (lambda device: setattr(device, "consent", True), 1),
        "no": (lambda device: setattr(device, "consent", False), 1),
    }

    @pytest.mark.parametrize("call", CALLS)
    def test_is_stored_before_the_call_ends(self, call: str):
        run, spent = self.CALLS[call]
        device = start_device(fresh_slots(), 2)
        assert device.report("e", True) is not None

        def no(where: str) -> None:
            if where == "write":
                device.during = lambda where: None
                assert device.c.hushmote_set_consent(device.client, False) == 0
                assert device.consent is False

        device.during = no
        assert run(device) is None  # a report is made and debited, but not returned
        for client in (device, start_device(dict(device.storage.slots), 3)):
            assert (client.consent, client.outbox(), client.report("e", True)) == (False, [], None)
            assert client.status()["sum"] == spent * EPSILON
            client.consent = True
            assert client.outbox() == []  # reports deleted by the opt-out do not reappear
            assert client.report("e", True) is not None

    def test_is_written_when_it_arrives_just_before_unlock(self):
        device = start_device(fresh_slots(), 2)
        free, left = [True], [1]

        def unlock(_context: Any) -> None:
            free[0] = not left  # another thread opts out while this one still holds the lock
            if left:
                left.pop()
                assert device.c.hushmote_set_consent(device.client, False) == 0
                free[0] = True

        device.callbacks += [LOCK(lambda _: free[0]), UNLOCK(unlock)]
        device.config.lock, device.config.unlock = map(pointer, device.callbacks[2:])
        assert device.report("e", True) is not None  # the report was returned before the opt-out
        restarted = start_device(dict(device.storage.slots), 3)
        assert (restarted.consent, restarted.outbox()) == (False, [])

    def test_from_other_thread_is_left_to_lock_holder(self):
        device = start_device(fresh_slots(), 2)
        held = [False]
        device.callbacks += [LOCK(lambda _: not held[0]), UNLOCK(lambda _: None)]
        device.config.lock, device.config.unlock = map(pointer, device.callbacks[2:])
        assert device.report("e", True) is not None
        held[0] = True
        assert device.c.hushmote_set_consent(device.client, False) == 0
        assert NAMES[device.c.hushmote_set_consent(device.client, True)] == "BUSY"
        assert start_device(dict(device.storage.slots), 3).consent is True
        held[0] = False
        assert device.status()["consent"] is False  # any call stores the opt-out when it ends
        assert start_device(dict(device.storage.slots), 3).consent is False

    def test_is_retried_by_next_report_but_not_by_status(self):
        device = start_device(fresh_slots(), 2)
        assert device.report("e", True) is not None
        writes = []

        def fails(where: str) -> None:
            if where == "write":
                writes.append(where)
                raise OSError

        device.during = fails
        with pytest.raises(Refused, match="STORAGE"):
            device.consent = False
        assert (device.status()["consent"], device.outbox(), len(writes)) == (False, [], 1)
        device.during = lambda where: None
        assert device.status()["error"] == "STORAGE"
        assert start_device(dict(device.storage.slots), 3).consent is True
        assert (device.report("e", True), device.status()["error"]) == (None, None)
        assert start_device(dict(device.storage.slots), 3).consent is False


class TestBudget:
    @pytest.mark.slow
    def test_precomputed_gap_draws_match_python_and_apply_once(self):
        """Draw twice (only the second draw counts), call twice, and repeat until the budget is spent."""
        seen = set()
        for seed in range(60):
            sources = Source(seed), Source(seed)
            with mock.patch.object(ldp_client.os, "urandom", sources[0]):
                storage = MemoryStorage({})
                ldp_client.provision(storage, consent=True)
                python = Client(LIFETIME_POLICY, storage, "b-1")
                c = CBoard(LIFETIME_POLICY, MemoryStorage({}), "b-1", entropy=sources[1], begin=False)
                assert c.provision(consent=2) == 0
                c = CBoard(LIFETIME_POLICY, c.storage, "b-1", entropy=sources[1])
                for name, every, cap in (("e", 2, 2), ("f", 1 + seed % 3, 3)):
                    for client in (python, c):
                        client.enroll(payload_of(name, 0, "sum", 1, cap, every))
                for _ in range(5):
                    for _ in range(2):
                        calls, drawn = gap.draw(python, 1 + seed % 2)
                        assert c.gap(1 + seed % 2) == (calls, sorted(drawn))
                    for name in ("e", "f"):
                        for digest in (drawn.get(name), None):
                            report = python.report(name, True, digest)
                            assert c.report(name, True) == report
                            seen.add((name in drawn, digest is None, report is None))
                assert storage.slots == c.storage.slots
                c.consent = False
                assert c.gap(3) == (3, [])
        assert len(seen) == 5  # a drawn report is always made, because the budget suffices
        busy = board(fresh_slots())
        nested_gaps: list[Any] = []
        busy.during = lambda where: nested_gaps.append(busy.gap(3))
        busy.enroll(payload_of("e", 0, "sum", 1, 2, 1))
        assert busy.report("e", True)
        assert set(map(str, nested_gaps)) == {"(0, [])"}

    @pytest.mark.slow
    @given(
        entry=st.tuples(
            st.sampled_from([1, 2, 5, 2**32 - 2, 2**32 - 1]),
            st.sampled_from(["sum", "squares", "count", "unlimited"]),
            st.sampled_from([1, 3 * EPSILON, 10**13, 2**54 - 1]),
            st.sampled_from([0, EPSILON, 3 * EPSILON, 2**54 - 1, 2**56 - 1]),
        ),
        pinned=st.booleans(),
        others=st.sampled_from([0, 0, 63, 64]),
        cap=st.sampled_from([1, 2 * EPSILON, 2**54 - 1]),
        epsilon=st.sampled_from([1000, EPSILON, 16_000_000]),
        total=st.sampled_from([0, EPSILON, 2**47, 2**48 - EPSILON, 2**48 - 1]),
        squares=st.sampled_from([0, 10**13, 2**64 - 10**12, 2**64 - 1]),
        bounds=st.sampled_from(
            [(2**47, 0), (2**62, 2**63), (2**63, 2**64 - 1), (16_000_000, 0), (0, 10**15)]
        ),
        sequence=st.sampled_from([3, 2**32 - 1]),
    )
    @settings(max_examples=400)
    def test_remaining_reports_match_micropython_client(
        self, entry, pinned, others, cap, epsilon, total, squares, bounds, sequence
    ):
        """Compare the remaining reports, and whether one more is made, at every bound and field limit."""
        number, kind, pinned_cap, spent = entry
        state: Any = ldp_client._State(bytes(16))
        state.consent, state.sequence, state.sum, state.squares = True, sequence, total, squares
        state.entries = {bytes([255, 255, 255, i]): (1, "sum", EPSILON, EPSILON) for i in range(others)}
        if pinned:
            state.entries[ldp_client._key("e")] = (
                number,
                kind,
                pinned_cap if kind != "unlimited" else 0,
                spent,
            )
        older = state.copy()
        older.sequence = sequence - 1
        slots = {0: state.encode(), 1: older.encode()}
        policy = POLICY | {"sum": bounds[0], "squares": bounds[1]}
        payload = experiment_json(
            epsilon=epsilon, budget={"rule": kind} | ({} if kind == "unlimited" else {"cap": cap})
        )
        python: Any = Client(policy, MemoryStorage(slots), device_id="board-1")
        c = board(slots, policy, record_bytes=40 + 22 * 66 + 21 * 16)
        outcomes = []
        for client, error in ((python, ExperimentRefused), (c, Refused)):
            try:
                client.enroll(payload)
                outcomes.append(
                    (client.status()["experiments"]["e"]["left"], client.report("e", None) is None)
                )
            except error as e:
                outcomes.append(word(str(e)) if client is python else str(e))
        assert outcomes[0] == outcomes[1]

    @pytest.mark.slow
    def test_is_not_spent_if_entropy_is_stuck_or_missing(self):
        device = start_device(fresh_slots(), 2)
        before = dict(device.storage.slots)
        device.entropy.stuck = True
        for value in (True, "wrong"):
            with pytest.raises(Refused, match="BAD_ENTROPY"):
                device.report("e", value)
        assert device.storage.slots == before
        device.entropy.stuck = False
        assert device.report("e", True) is not None
        dead = board(before, begin=False)
        dead.entropy.stuck = True
        assert NAMES[dead.c.hushmote_begin(dead.client, dead.config_pointer)] == "BAD_ENTROPY"
        dead.entropy.stuck = False
        assert dead.report("e", True) is None
        with pytest.raises(Refused, match="BUSY"):
            dead.enroll(PAYLOAD)
        assert (dead.consent, dead.outbox(), dead.storage.slots) == (None, [], before)
        fresh = board(begin=False)
        fresh.entropy.stuck = True
        assert NAMES[fresh.provision()] == "BAD_ENTROPY"
        assert fresh.storage.slots == {}


FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}


def device_with_group(**changes: Any) -> CBoard:
    device = board(fresh_slots(), POLICY | {"groups": ("firmware",)}, key=changes.pop("key", None))
    device.enroll(experiment_json(budget={"rule": "sum", "cap": 400 * EPSILON}, **FIRMWARE, **changes))
    device.groups = {"firmware": "2.4.0"}
    return device


class TestGroup:
    def test_precomputed_gap_draws_match_python_for_each_period(self):
        """Draws for a group's value apply to readings under this value only."""
        seen = set()
        for seed in range(60):
            sources = Source(seed), Source(seed)
            with mock.patch.object(ldp_client.os, "urandom", sources[0]):
                storage = MemoryStorage({})
                ldp_client.provision(storage, consent=True)
                policy = POLICY | {"groups": ("firmware",)}
                python = Client(policy, storage, "b-1")
                c = CBoard(policy, MemoryStorage({}), "b-1", entropy=sources[1], begin=False)
                assert c.provision(consent=2) == 0
                c = CBoard(policy, c.storage, "b-1", entropy=sources[1])
                for client in (python, c):
                    client.enroll(experiment_json(every=[3, 2, 4], **FIRMWARE))
                    client.groups = {"firmware": "2.4.0"}
                for group in ("2.3.1", "2.4.0", "1.0", None):
                    groups = {} if group is None else {"e": group}
                    calls, drawn = gap.draw(python, 2, groups)
                    assert c.gap(2, groups) == (calls, sorted(drawn))
                    for value in ("2.3.1", group):
                        report = python.report("e", True, drawn.get("e"), value)
                        assert c.report("e", True, value) == report
                        seen.add(("e" in drawn, value == group, report is None))
                        drawn = {}  # a draw applies to one call
                assert storage.slots == c.storage.slots
        assert (True, True, True) not in seen
        assert len(seen) == 7

    def test_is_covered_by_the_tag_in_the_longest_report(self):
        number = {"type": "number", "low": 0, "high": 9, "bins": 70_000, "mechanism": "grr"}
        device = device_with_group(key=KEY, epsilon=16_000_000, **number)
        report = device.report("e", 0.0)
        assert report
        assert (report[0], report[9], len(report)) == (0x13, 1, 21)
        assert device.outbox() == [report]
        payload = experiment_json(
            budget={"rule": "sum", "cap": 400 * EPSILON}, **FIRMWARE, epsilon=16_000_000, **number
        )
        body = b"board-1\0" + hashlib.sha256(payload).digest() + report[:-8]
        assert report[-8:] == hmac.digest(KEY, body, "sha256")[:8]

    def test_rate_depends_only_on_the_group(self):
        device = device_with_group(every=[1 << 24, 1, 1 << 24])
        for group, is_made in ((None, True), ("2.3.1", False), ("2.4.0", True), ("other", False)):
            for value in (True, False, None):
                report = device.report("e", value, group)
                assert (report is not None) == is_made
                if report:
                    device.sent(report)

    def test_without_the_policys_name_is_refused(self):
        for groups in ((), ("model",)):
            device = board(fresh_slots(), POLICY | {"groups": groups})
            with pytest.raises(Refused, match="REFUSED_GROUP"):
                device.enroll(experiment_json(**FIRMWARE))
            assert device.status()["experiments"]["e"]["refused"] == "REFUSED_GROUP"
            assert device.report("e", True) is None


class TestLedger:
    @pytest.mark.slow
    def test_lock_reasons_match_micropython_client(self):
        locked = 0
        for case in VECTORS["ledgers"]:
            slots = {i: bytes.fromhex(slot) for i, slot in enumerate(case["slots"]) if slot is not None}
            device = board(slots, POLICY | {"experiments": ("e", "f")})
            code = device.status()["locked"]
            assert code == word(case["locked"])
            if case["locked"]:
                assert library().hushmote_text(CODES[code]).decode()[:20] == case["locked"][:20]
                locked += 1
            elif (case["slots"][0] or "").startswith("4d") and case["consent"] is None:
                device.consent = True  # reports that an earlier client made without asking are deleted
                assert device.outbox() == []
        assert 0 < locked < len(VECTORS["ledgers"])

    @pytest.mark.slow
    def test_faults_and_cuts_never_refund_budget_or_reuse_numbers(self):
        counting = Twin(fresh_slots())
        lifetime(start_device(counting, 2), Witness())
        assert counting.count > 50
        seen = set()
        for fault in ("raise", "raise-after", "lost", "torn", "cut", "cut-after", "torn-cut"):
            for at in range(2, counting.count):
                storage, witness = Twin(fresh_slots()), Witness()
                storage.at, storage.fault = at, fault
                with contextlib.suppress(PowerCut):
                    lifetime(start_device(storage, 2), witness)
                assert newest_record(storage.slots)["sum"] >= len(witness.seen) * EPSILON, (
                    "a report was seen but not debited"
                )
                slots = dict(storage.slots)
                restarted = start_device(MemoryStorage(slots), 3)
                locked = restarted.status()["locked"]
                seen.add((fault, locked))
                if locked:
                    assert locked == "LOCKED"
                    assert [restarted.report("e", True) for _ in range(9)] == [None] * 9
                    assert restarted.outbox() == []
                    assert NAMES[restarted.provision()] == "EXISTS"
                    assert restarted.storage.slots == slots, "the ledger was replaced"
                    continue
                witness.see_all(restarted.outbox())
                lifetime(restarted, witness)
                for _ in range(CAP):
                    witness.see(restarted.report("e", None))
                    for report in restarted.outbox():
                        restarted.sent(report)
                assert len(witness.seen) <= CAP
                assert restarted.status()["sum"] == CAP * EPSILON
        assert {fault for fault, locked in seen if locked} == {"torn", "torn-cut"}

    @pytest.mark.slow
    def test_wrong_byte_in_a_slot_locks_permanently(self):
        device = start_device(fresh_slots(), 2)
        device.report("e", True)
        intact = device.storage.slots
        for slot in (0, 1):
            for at in range(len(intact[slot])):
                for change in (0x01, 0x80, 0xFF):
                    wrong = bytearray(intact[slot])
                    wrong[at] ^= change
                    slots = intact | {slot: bytes(wrong)}
                    locked = start_device(slots, 3)
                    assert locked.status()["locked"] == "LOCKED"
                    assert locked.report("e", True) is None
                    with pytest.raises(Refused, match="LOCKED"):
                        locked.consent = True
                    assert locked.storage.slots == slots
        for slots in (
            {0: intact[0]},
            {1: intact[1]},
            {0: intact[1], 1: intact[0]},
            {0: intact[0], 1: intact[0]},
        ):
            assert start_device(slots, 3).status()["locked"] == "LOCKED"

    @pytest.mark.slow
    def test_oversized_record_locks_and_full_one_makes_no_report(self):
        device = start_device(fresh_slots(), 2)
        reports = [device.report("e", True) for _ in range(3)]
        assert None not in reports
        small = board(
            device.storage.slots, POLICY | {"experiments": ("e",)}, unsent=1, record_bytes=40 + 22 + 22
        )
        assert small.status()["locked"] == "LOCKED"
        # Room for a new entry and two unsent reports, for one, and for none.
        for size, unsent, reports in (
            (36 + 2 * 22 + 11 + 22 + 4, 2, 2),
            (36 + 2 * 22 + 22 + 4, 2, 1),
            (36 + 2 * 22 + 22 + 3, 1, 0),
        ):
            slots = fresh_slots()
            other = board(slots)
            other.enroll(experiment_json(name="f"))
            other.sent(other.report("f", True) or b"")
            tight = board(
                other.storage.slots, POLICY | {"experiments": ("e",)}, unsent=unsent, record_bytes=size
            )
            tight.enroll(PAYLOAD)
            assert [tight.report("e", True) is not None for _ in range(3)].count(True) == reports
            assert (tight.status()["experiments"]["e"]["left"] > 0) == (reports > 0)
        long = {i: with_crc(slot[:-4] + bytes([22 + i]) + bytes(22 + i)) for i, slot in fresh_slots().items()}
        assert board(long).status()["locked"] == "LOCKED"  # longer than any report
        full = board(device.storage.slots, unsent=3)
        full.enroll(PAYLOAD)
        assert full.report("e", True) is None
        full.sent(full.outbox()[0])
        assert full.report("e", True) is not None

    @pytest.mark.slow
    def test_client_locks_if_it_detects_another(self):
        storage = MemoryStorage(fresh_slots())
        first, second = start_device(storage, 2), start_device(storage, 3)
        assert first.report("e", True) is not None
        assert second.report("e", True) is None
        assert (second.status()["locked"], second.status()["error"], second.outbox()) == (
            "ANOTHER",
            "ANOTHER",
            [],
        )
        assert first.report("e", True) is not None
        assert newest_record(storage.slots)["sum"] == 2 * EPSILON


class TestStart:
    @pytest.mark.slow
    def test_invalid_settings_prevent_start_and_provisioning(self):
        device = board(device_id="D")
        assert NAMES[device.begun or 0] == "BAD_SETTINGS"
        assert NAMES[device.provision()] == "BAD_SETTINGS"
        assert device.c.hushmote_status(device.client, ctypes.byref(status := Status())) == 0
        assert (NAMES[status.locked], device.report("e", True)) == ("BAD_SETTINGS", None)
        assert device.storage.slots == {}

    @pytest.mark.slow
    def test_provisions_only_an_empty_board(self):
        for cut in range(10):
            storage = Twin({})
            storage.at, storage.fault = cut, "cut"
            device = board(storage, begin=False)
            with contextlib.suppress(PowerCut):
                device.provision(consent=0)
            restarted = board(storage.slots)
            assert restarted.status()["locked"] in (None, "NO_LEDGER")
            assert restarted.consent is None
            if restarted.status()["locked"]:
                assert restarted.provision(consent=1) == 0
            assert NAMES[restarted.provision()] == "EXISTS"
            assert restarted.provision(replace=True, consent=2) == 0
            assert board(restarted.storage.slots).consent is True

    @pytest.mark.slow
    def test_every_code_has_one_line_of_text(self):
        texts = [library().hushmote_text(code).decode() for code in (0, *CODES.values())]
        assert len(set(texts)) == len(texts)
        assert all(text and "\n" not in text for text in texts)
        assert "unknown code" not in texts
        assert {library().hushmote_text(code) for code in (1, -40, -99)} == {b"unknown code"}


class TestNames:
    @pytest.mark.slow
    def test_rejects_name_outside_the_policy(self):
        device = start_device(fresh_slots(), 2)
        with pytest.raises(Refused, match="UNKNOWN"):
            device.withdraw("nobody")
        for serial in (0, 8, 2**32 - 1):  # after withdrawal by the application, older versions are refused
            keyed = board(dict(device.storage.slots), announce_key=KEY * 2, fleet="home")
            keyed.enroll(PAYLOAD + b"\0" + serial.to_bytes(4, "big") + bytes(64), True)
            with pytest.raises(Refused, match="SIGNATURE"):
                keyed.withdraw("e", b"\x01" * 69)
            for _ in range(2):
                keyed.withdraw("e")
                assert keyed.serial("e") == min(serial + 1, 2**32 - 1)
        device.withdraw("e")
        for name in ("nobody", "", "ee"):
            assert device.report(name, True) is None
        assert device.c.hushmote_line(device.client, b"nobody", ctypes.byref(Line())) == CODES["UNKNOWN"]
        assert newest_record(device.storage.slots)["sum"] == 0

    def test_with_same_key_use_rule_of_first_report(self):
        names = "n18622", "n41826"
        for kind, epsilon in (("sum", 1), ("count", 2)):
            device = board(fresh_slots(), LIFETIME_POLICY | {"experiments": names})
            first = payload_of(names[0], 0, kind, 1, 9, 1)
            second = payload_of(names[1], 0, "count", epsilon, 9, 1)
            device.enroll(first)
            device.enroll(second)
            report = device.report(names[0], True)
            assert (report is not None, device.report(names[1], True)) == (True, None)
            device.enroll(first)
            with pytest.raises(Refused, match="PINNED"):
                device.enroll(second)
            device.sent(bytes(10))
            assert device.outbox() == [report]
            assert device.c.hushmote_unsent(device.client, 9, ctypes.create_string_buffer(21)) == 0
