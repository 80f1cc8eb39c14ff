"""Everything that reads what others wrote, fed with what nobody should have written.

    python benchmarks/fuzz.py [--inputs 10000000] [--seed 1] [--only TARGET] [--quick]

Each target makes an input from choices - mostly a valid one, mutated where its structure is - and checks
it: only documented exceptions come out, nothing takes longer than HANG_S, nothing is accepted that an
independent reading of it would not accept. tests/device/test_fuzz.py makes the same inputs from
hypothesis's choices, which shrinks what fails; here they come from numpy, and millions are made. Prints
inputs per second, exceptions and growth of memory, writes benchmarks/results/fuzz.json, and exits with 1
where anything undocumented came out. --only takes a single target, --quick a few inputs of all; neither
writes anything.
"""

import argparse
import binascii
import datetime
import hashlib
import hmac
import json
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results_file import machine, write

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, Experiment, ExperimentRefused, LDPError
from hushmote.server.experiments import definition as experiment
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, report, topics

HANG_S = 20
MASTER = bytes(range(32))
NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)


class Choices:
    """Where the choices that make an input come from."""

    def integer(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        raise NotImplementedError

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.integer(0, len(items) - 1)]

    def data(self, most: int) -> bytes:
        return bytes([self.integer(0, 255) for _ in range(self.integer(0, most))])


class Random(Choices):
    """Choices from a generator, drawn thousands at a time."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._words: list[int] = []

    def integer(self, low: int, high: int) -> int:
        if not self._words:
            self._words = self._rng.integers(0, 1 << 62, 4096).tolist()
        return low + self._words.pop() % (high - low + 1)


@dataclass(frozen=True)
class Target:
    """make an input, check it: the outcome in a word, any exception is a bug. share: weight in the mix."""

    name: str
    make: Callable[[Choices], Any]
    check: Callable[[Any], str]
    share: int


# --- Mutations ------------------------------------------------------------------------------------

BITS_OF_TEXT = [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"-", b".", b"0", b"\\", b"\n", b" ", b"\x00", b"\xff", b"="),
    *("é".encode(), "٣".encode(), b"null", b"true", b"NaN", b"Infinity", b"1e999", b"-1", b'"\\u0061"'),
    *(b"[" * 40, b"[" * 3000, b'{"a":' * 40, b"9" * 21, b"9" * 5000, b"1e99999999999999999999", b"[[x]]"),
]
ODD_NUMBERS = [0, 1, -1, 2, 3, 255, 256, 65_535, 65_537, 1 << 24, 1 << 30, (1 << 31) - 1, 1 << 40, 1 << 53]
ODD_NUMBERS += [(1 << 54) - 1, 1 << 54, 1 << 64, -(1 << 40), -(1 << 63), 10**19, 10**20, 10**30, 10**400]


def mutate(choose: Choices, text: bytes) -> bytes:
    """Cut off, overwrite, insert, leave out, repeat; mostly once, sometimes not at all."""
    for _ in range(choose.one_of((0, 1, 1, 1, 2, 4))):
        at = choose.integer(0, len(text))
        end = min(len(text), at + choose.integer(0, 20))
        kind = choose.integer(0, 5)
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[:at] + bytes((choose.integer(0, 255),)) + text[at + 1 :]
        elif kind == 2:
            text = text[:at] + choose.one_of(BITS_OF_TEXT) + text[at:]
        elif kind == 3:
            text = text[:at] + text[end:]
        elif kind == 4:
            text = text[:end] + text[at:]
        else:
            text = text[:at] + choose.data(8) + text[end:]
    return text


def odd_value(choose: Choices, others: Sequence[Any]) -> Any:
    """A value of any type: one of another field, a number that is too large, a text, a nested list."""
    kind = choose.integer(0, 6)
    if kind == 0:
        return choose.one_of(others)
    if kind == 1:
        return choose.one_of(ODD_NUMBERS)
    if kind == 2:
        return choose.integer(-(1 << 30), 1 << 30)
    if kind == 3:
        return choose.one_of((None, True, 1.5, float("nan"), "", "e", "other", "é", "x" * 65, "a\x00b", "٣"))
    if kind == 4:
        nested: Any = choose.one_of(others)
        for _ in range(choose.one_of((1, 2, 3, 4, 60))):
            nested = [nested] if choose.integer(0, 1) else {"a": nested}
        return nested
    if kind == 5:
        return [choose.one_of(ODD_NUMBERS) for _ in range(choose.integer(0, 6))]
    return {
        "rule": choose.one_of(("sum", "count", "squares", "unlimited", 1)),
        "cap": choose.one_of(ODD_NUMBERS),
    }


def mutate_fields(choose: Choices, fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Replace, remove and add fields; mostly one."""
    fields = dict(fields)
    for _ in range(choose.one_of((0, 1, 1, 2, 3))):
        name = choose.one_of(names)
        if choose.integer(0, 3) == 0:
            fields.pop(name, None)
        else:
            fields[name] = odd_value(choose, [*fields.values(), 0])
    return fields


# --- Reports and topics ---------------------------------------------------------------------------

_COMMON: dict[str, Any] = {"v": 1, "name": "e", "epsilon": 1_000_000, "every": 1, "window": "day"}
_COMMON["budget"] = {"rule": "sum", "cap": 4_000_000}
_NUMBER = {"type": "number", "low": -20_000, "high": 50_000, "bins": 256}
EXPERIMENTS = [
    _COMMON | {"type": "bool", "mechanism": "rr"},
    _COMMON | {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"},
    _COMMON | _NUMBER | {"mechanism": "olh", "g": 3, "budget": {"rule": "squares", "cap": 1 << 53}},
    _COMMON | _NUMBER | {"mechanism": "hh", "fanout": 4, "cells": [4, 3, 3, 3], "weights": [1, 0, 2, 1]},
    _COMMON | _NUMBER | {"mechanism": "grr", "budget": {"rule": "unlimited"}, "every": 90},
]
FIELDS = [*sorted(set().union(*EXPERIMENTS)), "extra"]
PAYLOADS = [json.dumps(fields | {"name": f"e{i}"}).encode() for i, fields in enumerate(EXPERIMENTS)]
PARSED = [Experiment.parse(payload) for payload in PAYLOADS]
DEVICES = ["a", "k3f9x1", "x" * 32, "-"]


def make_report(choose: Choices) -> bytes:
    asked = choose.one_of(PARSED)
    device, number = choose.one_of(DEVICES), choose.one_of((1, 1, 2, 3, 4, 5, 77, (1 << 32) - 1))
    key = choose.one_of((None, bytes(32)))
    return mutate(choose, report.encode(asked, number, choose.integer(0, asked.code_count - 1), device, key))


def check_report(payload: bytes) -> str:
    try:
        sent = report.decode(payload)
    except report.MalformedReport as e:
        return _one_line(e)
    head = bytes((0x10 | (sent.tag is not None),))
    assert head + sent.digest + sent.number.to_bytes(4, "big") + sent.code + (sent.tag or b"") == payload
    assert len(payload) <= report.MAX_PAYLOAD_BYTES
    return "read"


def make_topic(choose: Choices, fleets: Sequence[str] = ("home", "away_1")) -> str:
    topic = f"hushmote/v1/{choose.one_of(fleets)}/report/{choose.one_of(DEVICES)}"
    return mutate(choose, topic.encode()).decode("utf-8", choose.one_of(("replace", "surrogateescape")))


TOPIC = re.compile("hushmote/v1/([a-z0-9_-]{1,32})/report/([a-z0-9-]{1,32})")


def check_topic(topic: str) -> str:
    right = TOPIC.fullmatch(topic)
    try:
        parts = topics.parse_topic(topic)
    except topics.TopicRefused as e:
        assert right is None
        return _one_line(e)
    assert right is not None
    assert parts == right.groups()
    return "read"


def _one_line(error: Exception) -> str:
    text = str(error)
    assert text, "an error without a text"
    assert "\n" not in text, f"not one line: {text!r}"
    return "refused"


# --- Experiments ----------------------------------------------------------------------------------


def make_experiment(choose: Choices) -> bytes:
    fields = mutate_fields(choose, choose.one_of(EXPERIMENTS), FIELDS)
    pairs = [[json.dumps(k), json.dumps(v, ensure_ascii=choose.integer(0, 9) > 0)] for k, v in fields.items()]
    if pairs and choose.integer(0, 5) == 0:
        pairs.append([choose.one_of(pairs)[0], choose.one_of(pairs)[1]])  # a key twice
    comma, colon = choose.one_of((", ", ",", " , ")), choose.one_of((": ", ":", " : "))
    text = ("{" + comma.join(k + colon + v for k, v in pairs) + "}").encode()
    return mutate(choose, text) if choose.integer(0, 1) else text


def check_experiment(payload: bytes) -> str:
    try:
        asked = Experiment.parse(payload)
    except ExperimentRefused as e:
        return _one_line(e)
    fields = json.loads(payload)  # of a key that comes twice the last one counts, as on every board
    assert (asked.name, asked.epsilon, asked.window) == (fields["name"], fields["epsilon"], fields["window"])
    assert asked.every == fields.get("every", 1)
    assert asked.rule == fields["budget"]["rule"]
    assert asked.sha256 == hashlib.sha256(payload).digest()
    assert 2 <= asked.code_count <= 1 << (8 * asked.code_bytes) <= 1 << 24
    assert asked.cost() >= 1
    assert all(level.threshold * level.g > ldp_client.ONE > level.threshold for level in asked.levels)
    return "read"


DEFINITION = {
    "name": '"room_temp"',
    "purpose": '"Is the room warm?"',
    "owner": '"ops@example.org"',
    "expires": "2027-12-31",
    "type": '"number"',
    "low": "-20",
    "high": "50.5",
    "bins": "32",
    "statistics": '"ranges"',
    "epsilon": "1",
    "window": '"day"',
    "budget": '{ rule = "sum", cap = 4 }',
}
BUDGETS = [
    '{ theorem = "basic", epsilon = 4 }',
    '{ rule = "count", cap = 3 }',
    '{ rule = "unlimited" }',
    '{ rule = "squares", cap = 1e3, delta = 1e-6 }',
]
MORE_FIELDS = {
    "labels": '["a", "b"]',
    "mechanism": '"hh"',
    "g": "3",
    "fanout": "2",
    "cells": "[2, 3]",
    "weights": "[1, 1]",
    "ranges": '["-5:5"]',
    "every": "90",
    '"a\\nb"': "1",
}
ODD_TOML = [
    "nan",
    "-inf",
    "1e999",
    "-1e5000",
    "1e999999999",
    "1e-999999999",
    "1e99999999999999999999",
    "0x7f",
]
ODD_TOML += ["9" * 4000, "9" * 5000, "-0.0", "true", '"bool"', '"choice"', "1979-05-27T07:32:00Z", "07:32:00"]
ODD_TOML += [
    "0001-01-01",
    "9999-12-31",
    "2026-02-30",
    "[]",
    "[[1]]",
    "{}",
    '"""a\nb"""',
    '"é"',
    '"\\u0000"',
    "''",
]
ODD_TOML += ["[" * 30 + "]" * 30, "[" * 3000 + "]" * 3000, "0.0005", "16", "17", "1e-7", "16777217", *BUDGETS]


def make_definition(choose: Choices) -> str:
    fields = dict(DEFINITION)
    if choose.integer(0, 2) == 0:
        fields["budget"] = choose.one_of(BUDGETS)
    names = [*DEFINITION, *MORE_FIELDS]
    for _ in range(choose.one_of((0, 1, 1, 2, 3))):
        name = choose.one_of(names)
        if choose.integer(0, 3) == 0:
            fields.pop(name, None)
        elif name in MORE_FIELDS and choose.integer(0, 1):
            fields[name] = MORE_FIELDS[name]
        else:
            fields[name] = choose.one_of(ODD_TOML)
    text = "\n".join(f"{name} = {value}" for name, value in fields.items())
    if choose.integer(0, 1):
        text = mutate(choose, text.encode()).decode("utf-8", "replace")
    return text


def check_definition(text: str) -> str:
    try:
        definition = experiment.parse(text)
        small = definition.domain <= 1024  # what a mechanism is chosen for may take seconds above
        if small:
            Experiment.parse(definition.payload())
    except experiment.DefinitionError as e:
        return _one_line(e)
    return "read"


# --- Number sets ----------------------------------------------------------------------------------


def make_numbers(choose: Choices) -> tuple[str, bytes | None]:
    numbers = NumberSet()
    for _ in range(choose.integer(0, 6)):
        numbers = numbers.add(choose.one_of((1, 2, 3, 5, 7, 9, 30, 70_000, (1 << 32) - 1)))
    text, beyond = numbers.encode()
    text = mutate(choose, text.encode()).decode("utf-8", "replace")
    return text, None if beyond is None else mutate(choose, beyond)


def check_numbers(row: tuple[str, bytes | None]) -> str:
    try:
        numbers = NumberSet.decode(*row)
    except ValueError as e:
        return _one_line(e)
    assert NumberSet.decode(*numbers.encode()) == numbers
    assert numbers.whole + 1 not in numbers, "the first gap is none"
    return "read"


# --- The board's ledger ---------------------------------------------------------------------------

POLICY = {
    "sum": 20_000_000,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ("sum", "squares", "count", "unlimited"),
    "experiments": ("e0", "e1"),
}


class Slots(dict[int, bytes]):
    """A board's storage in memory."""

    def read(self, slot: int) -> bytes | None:
        return self.get(slot)

    def write(self, slot: int, data: bytes) -> None:
        self[slot] = bytes(data)


def _boot(slots: Slots) -> Any:
    return Client(POLICY, slots, device_id="a")


def _ledgers() -> list[Slots]:
    """Ledgers of a board's life: new, one report, an outage, its end, opted out."""
    slots = Slots()
    ldp_client.provision(slots)
    ledgers = [Slots(slots)]
    client = _boot(slots)
    for payload in PAYLOADS[:2]:
        client.enroll(payload)
    for made in range(1, 9):
        client.report(f"e{made % 2}", "a" if made % 2 else True)
        if made in (1, 4, 8):
            ledgers.append(Slots(slots))
    client.enabled = False
    ledgers.append(Slots(slots))
    return ledgers


LEDGERS = _ledgers()


def make_ledger(choose: Choices) -> tuple[Slots, Slots, bool]:
    """A ledger as a board wrote it, what became of it, and whether somebody forged a check sum."""
    before = choose.one_of(LEDGERS)
    after = Slots(before)
    forged = False
    for slot in range(4):
        kind = choose.integer(0, 8)
        data = after.get(slot, b"")
        if kind == 0:
            after.pop(slot, None)
        elif kind == 1:
            after[slot] = b""
        elif kind == 2:
            after[slot] = choose.data(200)
        elif kind == 3 and data:
            at = choose.integer(0, 8 * len(data) - 1)
            after[slot] = data[: at // 8] + bytes((data[at // 8] ^ 1 << at % 8,)) + data[at // 8 + 1 :]
        elif kind == 4:
            after[slot] = mutate(choose, data)
        elif kind == 5:
            after[slot] = before.get(choose.integer(0, 3), b"")
        elif kind == 6 and data:
            record = mutate(choose, data[:-4])
            # The board writes no pending report above 255 bytes, and report() fails for one that is forged.
            record = record[: 6 + 30 + 22 * (record[1] & 127 if len(record) > 1 else 0) + 255]
            after[slot] = record + binascii.crc32(record).to_bytes(4, "big")
            forged = forged or slot < 2
    return before, after, forged


def _spent(record: bytes) -> int:
    """The sum of epsilon in a ledger's record, read anew; for its place see the head of the ledger's code."""
    return int.from_bytes(record[22:28], "big")


def check_ledger(made: tuple[Slots, Slots, bool]) -> str:
    before, after, forged = made
    client = _boot(Slots(after))
    for payload in PAYLOADS[:2]:
        try:
            client.enroll(payload)
        except ExperimentRefused as e:
            _one_line(e)
    status = client.status()
    if status["locked"] is not None:
        assert client.report("e0", True) is None
        assert client.outbox() == []
        return "locked"
    if not forged:
        # The record in force is one that the board wrote; of two it keeps the older one is the least spent.
        assert status["sum"] in {_spent(before[slot]) for slot in (0, 1)}, "a sum that was never written"
        whole = _boot(Slots(before)).status()
        assert status["sum"] >= whole["sum"] - 1_000_000, "more than one report's budget came back"
    spent = status["sum"]
    made_reports = 0
    for name in ("e0", "e1", "e0"):
        made_reports += client.report(name, True if name == "e0" else "b") is not None
    assert client.status()["sum"] >= spent + 1_000_000 * made_reports or forged
    try:
        for payload in client.outbox():
            client.sent(payload)
        client.enabled = not client.enabled
    except LDPError as e:
        _one_line(e)
        return "failed"
    return "read"


# --- The ingest path ------------------------------------------------------------------------------

FLEETS = {"open": None, "keyed": MASTER}


def make_messages(choose: Choices) -> list[tuple[str, bytes]]:
    """A batch: real reports, some mutated, on real topics, some mutated; some twice."""
    messages: list[tuple[str, bytes]] = []
    for _ in range(choose.integer(1, 20)):
        if messages and choose.integer(0, 5) == 0:
            messages.append(choose.one_of(messages))
            continue
        fleet, device = choose.one_of(("open", "keyed", "none")), choose.one_of(DEVICES)
        topic = f"hushmote/v1/{fleet}/report/{device}"
        asked = choose.one_of(PARSED)
        number = choose.one_of((1, 2, 3, 4, 5, choose.integer(1, (1 << 32) - 1)))
        key = keys.device_key(MASTER, "keyed", device) if fleet == "keyed" else None
        payload = report.encode(asked, number, choose.integer(0, asked.code_count - 1), device, key)
        kind = choose.integer(0, 5)
        if kind == 0:
            topic = make_topic(choose, ("open", "keyed"))
        elif kind == 1:
            payload = mutate(choose, payload)
        elif kind == 2:
            payload = choose.data(24)
        messages.append((topic, payload))
    return messages


class Ingest:
    """A store, and beside it what it must hold, worked out from the format's description alone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        for fleet, master in FLEETS.items():
            store.add_fleet(fleet, keyed=master is not None)
            for payload in PAYLOADS:
                store.add_experiment(fleet, payload)
        self.fleets = ingest.fleets(store, keys.FleetKeys((MASTER,), MASTER))
        self._asked = {e.digest: e for e in PARSED}
        self._counts: Counter[tuple[str, bytes, int]] = Counter()
        self._seen: dict[tuple[str, str, str], set[int]] = {}
        self.arrived = self.accepted = self.rejected = 0

    def check(self, messages: list[tuple[str, bytes]]) -> str:
        accepted = sum(self._take(topic, payload) for topic, payload in messages)
        tally = ingest.ingest(self.store, messages, self.fleets, NOW)
        assert tally.accepted == accepted, "counted what is not valid, or not what is"
        assert tally.accepted + sum(tally.rejected.values()) == len(messages), "not accounted for"
        assert {fleet for fleet, _ in tally.rejected} <= {"", *FLEETS}
        assert {reason for _, reason in tally.rejected} <= set(ingest.REASONS)
        self.arrived += len(messages)
        self.accepted += tally.accepted
        self.rejected += sum(tally.rejected.values())
        return "counted" if accepted else "rejected"

    def check_store(self) -> None:
        """Compare histograms and rejects with what arrived."""
        for v in self.store.experiments():
            counts = self.store.histogram(v.fleet, v.experiment.digest)
            right = np.zeros_like(counts)
            for (fleet, digest, code), count in self._counts.items():
                if (fleet, digest) == (v.fleet, v.experiment.digest):
                    right[code] = count
            np.testing.assert_array_equal(counts, right)
        assert sum(n for reasons in self.store.rejects().values() for n in reasons.values()) == self.rejected
        assert self.accepted + self.rejected == self.arrived
        assert self.accepted == sum(map(len, self._seen.values()))

    def _take(self, topic: str, payload: bytes) -> bool:
        match = TOPIC.fullmatch(topic)
        if match is None or match[1] not in FLEETS:
            return False
        fleet, device = match.groups()
        keyed = fleet == "keyed"
        signed, tag = (payload[:-8], payload[-8:]) if keyed else (payload, b"")
        asked = self._asked.get(payload[1:5])
        if payload[:1] != (b"\x11" if keyed else b"\x10") or asked is None:
            return False
        number, code = int.from_bytes(payload[5:9], "big"), int.from_bytes(signed[9:], "big")
        if len(signed) != 9 + asked.code_bytes or code >= asked.code_count or not number:
            return False
        if keyed:
            key = keys.device_key(MASTER, fleet, device)
            right = hmac.digest(key, device.encode() + b"\x00" + asked.sha256 + signed, "sha256")[:8]
            if tag != right:
                return False
        if asked.rule != "unlimited" and number * asked.cost() > asked.cap:
            return False
        seen = self._seen.setdefault((fleet, device, asked.name), set())
        if number in seen:
            return False
        seen.add(number)
        self._counts[fleet, asked.digest, code] += 1
        return True


# --- The long form --------------------------------------------------------------------------------


class Hang(Exception):
    """An input that took longer than HANG_S."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise Hang in the block where it takes longer than HANG_S seconds; main thread only.

    What hangs inside a C function is not interrupted: then the run itself stands still.
    """

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


PURE = [
    Target("report", make_report, check_report, 30),
    Target("topic", make_topic, check_topic, 20),
    Target("experiment", make_experiment, check_experiment, 25),
    Target("definition", make_definition, check_definition, 3),
    Target("numbers", make_numbers, check_numbers, 10),
    Target("ledger", make_ledger, check_ledger, 4),
]


def memory_mib() -> float:
    """This process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def run(inputs: int, seed: int, only: str | None) -> dict[str, Any]:
    """Make and check inputs in turn; a message of the ingest path is an input."""
    choose = Random(seed)
    outcomes: dict[str, Counter[str]] = {}
    failures: dict[str, str] = {}
    seconds: dict[str, float] = {}
    slowest: dict[str, float] = {}
    memory = []
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/fuzz.sqlite") as store:
        path = Ingest(store)
        targets = [*PURE, Target("ingest", make_messages, path.check, 1)]
        if only is not None:
            targets = [t for t in targets if t.name == only]
        done, step, start = 0, 0, time.perf_counter()
        while done < inputs:
            for target in targets:
                counts = outcomes.setdefault(target.name, Counter())
                for _ in range(target.share):
                    made = target.make(choose)
                    begun = time.perf_counter()
                    try:
                        with no_hang():
                            outcome = target.check(made)
                    except Exception as e:
                        outcome = f"FAILED {type(e).__name__}: {str(e)[:80]}"
                        failures.setdefault(
                            f"{target.name} {type(e).__name__}", f"{e!s:.200} <- {made!r:.600}"
                        )
                    took = time.perf_counter() - begun
                    seconds[target.name] = seconds.get(target.name, 0.0) + took
                    slowest[target.name] = max(slowest.get(target.name, 0.0), took)
                    count = len(made) if target.name == "ingest" else 1
                    counts[outcome] += count
                    done += count
            if done * 20 // inputs > step:
                step = done * 20 // inputs
                memory.append(memory_mib())
                print(f"{done:,} inputs, {memory[-1]:.1f} MiB", file=sys.stderr, flush=True)
        took = time.perf_counter() - start
        path.check_store()
    return {
        "inputs": done,
        "seed": seed,
        "seconds": round(took, 1),
        "inputs_per_second": round(done / took),
        "memory_mib": {"first_20th": round(memory[0], 1), "half": round(memory[len(memory) // 2], 1)}
        | {"end": round(memory[-1], 1)},
        "targets": {
            name: {"outcomes": dict(counts), "mean_us": round(1e6 * seconds[name] / counts.total(), 1)}
            | {"slowest_ms": round(1e3 * slowest[name], 1)}
            for name, counts in outcomes.items()
        },
        "failures": failures,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[*(t.name for t in PURE), "ingest"])
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()

    inputs = 20_000 if options.quick else options.inputs
    result = {"machine": machine()} | run(inputs, options.seed, options.only)
    print(json.dumps(result, indent=2, ensure_ascii=True))
    if options.only is None and not options.quick and not result["failures"]:
        write("fuzz.json", result)
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
