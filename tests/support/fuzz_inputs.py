"""Malformed inputs for every parser of external data, and the checks that each must pass.

Each target draws an input from a random.Random, usually a valid one with structural mutations, and checks
that only documented exceptions are raised, that no input takes longer than HANG_S, and that only inputs that
an independent parser accepts are accepted. In the tests, Hypothesis makes the draws and shrinks failing
inputs; benchmarks/fuzz.py makes millions.
"""

import binascii
import datetime
import hashlib
import hmac
import json
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from boards import MemoryStorage
from enumeration import POLICY

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


@dataclass(frozen=True)
class Target:
    """A parser to fuzz.

    make: builds an input. check: returns the input's outcome; an exception is a bug. share: its weight in the
    mix.
    """

    name: str
    make: Callable[[Random], Any]
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


def mutate(rng: Random, text: bytes) -> bytes:
    """Truncate, overwrite, insert, delete or repeat; usually once, sometimes not at all."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
        at = rng.randint(0, len(text))
        end = min(len(text), at + rng.randint(0, 20))
        kind = rng.randint(0, 5)
        if kind == 0:
            text = text[:at]
        elif kind == 1:
            text = text[:at] + bytes((rng.randint(0, 255),)) + text[at + 1 :]
        elif kind == 2:
            text = text[:at] + rng.choice(BITS_OF_TEXT) + text[at:]
        elif kind == 3:
            text = text[:at] + text[end:]
        elif kind == 4:
            text = text[:end] + text[at:]
        else:
            text = text[:at] + rng.randbytes(rng.randint(0, 8)) + text[end:]
    return text


def odd_value(rng: Random, others: Sequence[Any]) -> Any:
    """Return a value of any type: one of another field, a number that is too large, a text, a nested list."""
    kind = rng.randint(0, 6)
    if kind == 0:
        return rng.choice(others)
    if kind == 1:
        return rng.choice(ODD_NUMBERS)
    if kind == 2:
        return rng.randint(-(1 << 30), 1 << 30)
    if kind == 3:
        return rng.choice((None, True, 1.5, float("nan"), "", "e", "other", "é", "x" * 65, "a\x00b", "٣"))
    if kind == 4:
        nested: Any = rng.choice(others)
        for _ in range(rng.choice((1, 2, 3, 4, 60))):
            nested = [nested] if rng.randint(0, 1) else {"a": nested}
        return nested
    if kind == 5:
        return [rng.choice(ODD_NUMBERS) for _ in range(rng.randint(0, 6))]
    return {"rule": rng.choice(("sum", "count", "squares", "unlimited", 1)), "cap": rng.choice(ODD_NUMBERS)}


def mutate_fields(rng: Random, fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Replace, remove or add fields, usually one."""
    fields = dict(fields)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(names)
        if rng.randint(0, 3) == 0:
            fields.pop(name, None)
        else:
            fields[name] = odd_value(rng, [*fields.values(), 0])
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


def make_report(rng: Random) -> bytes:
    exp = rng.choice(PARSED)
    device, number = rng.choice(DEVICES), rng.choice((1, 1, 2, 3, 4, 5, 77, (1 << 32) - 1))
    key = rng.choice((None, bytes(32)))
    return mutate(rng, report.encode(exp, number, rng.randint(0, exp.code_count - 1), device, key))


def check_report(payload: bytes) -> str:
    try:
        sent = report.decode(payload)
    except report.MalformedReport as e:
        return _one_line(e)
    head = bytes((0x10 | (sent.tag is not None),))
    assert head + sent.digest + sent.number.to_bytes(4, "big") + sent.code + (sent.tag or b"") == payload
    assert len(payload) <= report.MAX_PAYLOAD_BYTES
    return "read"


def make_topic(rng: Random, fleets: Sequence[str] = ("home", "away_1")) -> str:
    topic = f"hushmote/v1/{rng.choice(fleets)}/report/{rng.choice(DEVICES)}"
    return mutate(rng, topic.encode()).decode("utf-8", rng.choice(("replace", "surrogateescape")))


TOPIC = re.compile("hushmote/v1/([a-z0-9_-]{1,32})/report/([a-z0-9-]{1,32})")


def check_topic(topic: str) -> str:
    expected = TOPIC.fullmatch(topic)
    try:
        parts = topics.parse_topic(topic)
    except topics.TopicRefused as e:
        assert expected is None
        return _one_line(e)
    assert expected is not None
    assert parts == expected.groups()
    return "read"


def _one_line(error: Exception) -> str:
    text = str(error)
    assert text, "an error without a text"
    assert "\n" not in text, f"not one line: {text!r}"
    return "refused"


# --- Experiments ----------------------------------------------------------------------------------


def make_experiment(rng: Random) -> bytes:
    fields = mutate_fields(rng, rng.choice(EXPERIMENTS), FIELDS)
    pairs = [[json.dumps(k), json.dumps(v, ensure_ascii=rng.randint(0, 9) > 0)] for k, v in fields.items()]
    if pairs and rng.randint(0, 5) == 0:
        pairs.append([rng.choice(pairs)[0], rng.choice(pairs)[1]])  # a key twice
    comma, colon = rng.choice((", ", ",", " , ")), rng.choice((": ", ":", " : "))
    text = ("{" + comma.join(k + colon + v for k, v in pairs) + "}").encode()
    return mutate(rng, text) if rng.randint(0, 1) else text


def check_experiment(payload: bytes) -> str:
    try:
        exp = Experiment.parse(payload)
    except ExperimentRefused as e:
        return _one_line(e)
    fields = json.loads(payload)  # the last of duplicate keys counts, as on every board
    assert (exp.name, exp.epsilon, exp.window) == (fields["name"], fields["epsilon"], fields["window"])
    assert exp.every == fields.get("every", 1)
    assert exp.rule == fields["budget"]["rule"]
    assert exp.sha256 == hashlib.sha256(payload).digest()
    assert 2 <= exp.code_count <= 1 << (8 * exp.code_bytes) <= 1 << 24
    assert exp.cost() >= 1
    assert all(level.threshold * level.g > ldp_client.ONE > level.threshold for level in exp.levels)
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
ODD_TOML = ["nan", "-inf", "1e999", "-1e5000", "1e999999999", "1e-999999999", "1e99999999999999999999"]
ODD_TOML += ["0x7f", "-0.0", "true", "1979-05-27T07:32:00Z", "07:32:00", "0001-01-01", "9999-12-31"]
ODD_TOML += ["2026-02-30", "[]", "[[1]]", "{}", "''"]
ODD_TOML += ["9" * 4000, "9" * 5000, '"bool"', '"choice"', '"""a\nb"""', '"é"', '"\\u0000"']
ODD_TOML += ["[" * 30 + "]" * 30, "[" * 3000 + "]" * 3000, "0.0005", "16", "17", "1e-7", "16777217", *BUDGETS]


def make_definition(rng: Random) -> str:
    fields = dict(DEFINITION)
    if rng.randint(0, 2) == 0:
        fields["budget"] = rng.choice(BUDGETS)
    names = [*DEFINITION, *MORE_FIELDS]
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(names)
        if rng.randint(0, 3) == 0:
            fields.pop(name, None)
        elif name in MORE_FIELDS and rng.randint(0, 1):
            fields[name] = MORE_FIELDS[name]
        else:
            fields[name] = rng.choice(ODD_TOML)
    text = "\n".join(f"{name} = {value}" for name, value in fields.items())
    if rng.randint(0, 1):
        text = mutate(rng, text.encode()).decode("utf-8", "replace")
    return text


def check_definition(text: str) -> str:
    try:
        definition = experiment.parse(text)
        small = definition.domain <= 1024  # choosing a mechanism for a larger domain may take seconds
        if small:
            Experiment.parse(definition.payload())
    except experiment.DefinitionError as e:
        return _one_line(e)
    return "read"


# --- Number sets ----------------------------------------------------------------------------------


def make_numbers(rng: Random) -> tuple[str, bytes | None]:
    numbers = NumberSet()
    for _ in range(rng.randint(0, 6)):
        numbers = numbers.add(rng.choice((1, 2, 3, 5, 7, 9, 30, 70_000, (1 << 32) - 1)))
    text, beyond = numbers.encode()
    text = mutate(rng, text.encode()).decode("utf-8", "replace")
    return text, None if beyond is None else mutate(rng, beyond)


def check_numbers(row: tuple[str, bytes | None]) -> str:
    try:
        numbers = NumberSet.decode(*row)
    except ValueError as e:
        return _one_line(e)
    assert NumberSet.decode(*numbers.encode()) == numbers
    assert numbers.whole + 1 not in numbers, "the first gap is none"
    return "read"


# --- The board's ledger ---------------------------------------------------------------------------

RULED = POLICY | {"sum": 20_000_000, "experiments": ("e0", "e1")}


def _boot(slots: Any) -> Any:
    return Client(RULED, slots, device_id="a")


def _ledgers() -> list[MemoryStorage]:
    """Return ledgers from a board's lifetime: new, one report, an outage, exhausted, opted out."""
    slots = MemoryStorage()
    ldp_client.provision(slots, consent=True)
    ledgers = [MemoryStorage(slots)]
    client = _boot(slots)
    for payload in PAYLOADS[:2]:
        client.enroll(payload)
    for report_count in range(1, 9):
        client.report(f"e{report_count % 2}", "a" if report_count % 2 else True)
        if report_count in (1, 4, 8):
            ledgers.append(MemoryStorage(slots))
    client.consent = False
    ledgers.append(MemoryStorage(slots))
    return ledgers


LEDGERS = _ledgers()


def make_ledger(rng: Random) -> tuple[MemoryStorage, MemoryStorage, bool]:
    """Return a ledger written by a board, how it was mutated, and whether its checksum is forged."""
    before = rng.choice(LEDGERS)
    after = MemoryStorage(before)
    forged = False
    for slot in range(4):
        kind = rng.randint(0, 8)
        data = after.get(slot, b"")
        if kind == 0:
            after.pop(slot, None)
        elif kind == 1:
            after[slot] = b""
        elif kind == 2:
            after[slot] = rng.randbytes(rng.randint(0, 200))
        elif kind == 3 and data:
            at = rng.randint(0, 8 * len(data) - 1)
            after[slot] = data[: at // 8] + bytes((data[at // 8] ^ 1 << at % 8,)) + data[at // 8 + 1 :]
        elif kind == 4:
            after[slot] = mutate(rng, data)
        elif kind == 5:
            after[slot] = before.get(rng.randint(0, 3), b"")
        elif kind == 6 and data:
            record = mutate(rng, data[:-4])
            # The board never writes a pending report above 255 bytes; report() fails for a forged one.
            record = record[: 6 + 30 + 22 * (record[1] & 127 if len(record) > 1 else 0) + 255]
            after[slot] = record + binascii.crc32(record).to_bytes(4, "big")
            forged = forged or slot < 2
    return before, after, forged


def check_ledger(case: tuple[MemoryStorage, MemoryStorage, bool]) -> str:
    before, after, forged = case
    client = _boot(MemoryStorage(after))
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
        # The board wrote the current record; the older of its two records has spent the least.
        written = {int.from_bytes(before[slot][22:28], "big") for slot in (0, 1)}  # their total epsilon
        assert status["sum"] in written, "a sum that was never written"
        complete = _boot(MemoryStorage(before)).status()
        assert status["sum"] >= complete["sum"] - 1_000_000, "more than one report's budget came back"
    spent = status["sum"]
    made_reports = 0
    for name in ("e0", "e1", "e0"):
        made_reports += client.report(name, True if name == "e0" else "b") is not None
    assert client.status()["sum"] >= spent + 1_000_000 * made_reports or forged
    try:
        for payload in client.outbox():
            client.sent(payload)
        client.consent = not client.consent
    except LDPError as e:
        _one_line(e)
        return "failed"
    return "read"


# --- The ingest path ------------------------------------------------------------------------------

FLEETS = {"open": None, "keyed": MASTER}


def make_messages(rng: Random) -> list[tuple[str, bytes]]:
    """Return a batch of real reports on real topics, with some of each mutated and some repeated."""
    messages: list[tuple[str, bytes]] = []
    for _ in range(rng.randint(1, 20)):
        if messages and rng.randint(0, 5) == 0:
            messages.append(rng.choice(messages))
            continue
        fleet, device = rng.choice(("open", "keyed", "none")), rng.choice(DEVICES)
        topic = f"hushmote/v1/{fleet}/report/{device}"
        exp = rng.choice(PARSED)
        number = rng.choice((1, 2, 3, 4, 5, rng.randint(1, (1 << 32) - 1)))
        key = keys.device_key(MASTER, "keyed", device) if fleet == "keyed" else None
        payload = report.encode(exp, number, rng.randint(0, exp.code_count - 1), device, key)
        kind = rng.randint(0, 5)
        if kind == 0:
            topic = make_topic(rng, ("open", "keyed"))
        elif kind == 1:
            payload = mutate(rng, payload)
        elif kind == 2:
            payload = rng.randbytes(rng.randint(0, 24))
        messages.append((topic, payload))
    return messages


class Ingest:
    """A store, and its expected contents derived independently from the documented format."""

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
            expected = np.zeros_like(counts)
            for (fleet, digest, code), count in self._counts.items():
                if (fleet, digest) == (v.fleet, v.experiment.digest):
                    expected[code] = count
            np.testing.assert_array_equal(counts, expected)
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
        exp = self._asked.get(payload[1:5])
        if payload[:1] != (b"\x11" if keyed else b"\x10") or exp is None:
            return False
        number, code = int.from_bytes(payload[5:9], "big"), int.from_bytes(signed[9:], "big")
        if len(signed) != 9 + exp.code_bytes or code >= exp.code_count or not number:
            return False
        if keyed:
            key = keys.device_key(MASTER, fleet, device)
            expected = hmac.digest(key, device.encode() + b"\x00" + exp.sha256 + signed, "sha256")[:8]
            if tag != expected:
                return False
        if exp.rule != "unlimited" and number * exp.cost() > exp.cap:
            return False
        seen = self._seen.setdefault((fleet, device, exp.name), set())
        if number in seen:
            return False
        seen.add(number)
        self._counts[fleet, exp.digest, code] += 1
        return True


# --- Targets ------------------------------------------------------------------------------------


class Hang(Exception):
    """Raised for an input that took longer than HANG_S."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Raise Hang if the block takes longer than HANG_S seconds; main thread only.

    A hang inside a C function cannot be interrupted and stops the run itself.
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
