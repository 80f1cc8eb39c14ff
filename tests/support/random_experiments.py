"""Random experiments, valid and almost valid, and readings for them: the same ones for every client.

Each client must accept and refuse the same experiments as ldp_client.py, and make the same code from the same
reading and draws.
"""

import contextlib
import json
import re
from typing import Any

import make_vectors
import numpy as np
from epsilon_shapes import SHAPES, SLOW_SHAPES
from experiments import TEXTS, experiment_json

from hushmote.device.ldp_client import Experiment, ExperimentRefused

ONE_NAT = 1_000_000


def published(shape: dict[str, Any], epsilon: int = ONE_NAT) -> bytes:
    """Return an experiment of this shape with an unlimited budget."""
    return experiment_json(epsilon=epsilon, **shape, budget={"rule": "unlimited"})


INTEGERS = (
    *(0, 1, -1, 2, 3, 4, 5, 7, 9, 13, 16, 17, 31, 64, 251, 255, 256, 257, 999, 1000, 1024, 4093, 4096),
    *(4097, 65_535, 65_536, 65_537, 16_000_000, 16_000_001, 2**20, 2**20 + 1, 2**23, 2**23 + 1),
    *(2**24 - 1, 2**24, 2**24 + 1, 2**31, 2**32, 2**32 + 1, 2**32 + 2, 2**40, 2**40 + 1, -(2**40)),
    *(-(2**40) - 1, 2**54 - 1, 2**54, 2**63, 2**64, 2**64 + 1, 2**64 + 1_000_000, -(2**63), -(2**64) + 2),
    *(10**30, 10**300),
)
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 1.0, 0.5, "", "a", "1", " ", "a" * 32, "a" * 33, "x" * 64, "x" * 65, "e f"),
    *("sum count", [], {}, [[]], [[0]], [0], [1], [0, 1], [1, 0], [0, 0], [2], [0, 1, 2], [3], [-1]),
    *([True], ["0"], [1, 1, 1], ["a"], ["a", "a"], ["a", "b"], ["a", ""], ["a", 1], [4, 3, 3, 3]),
    *([2, 2, 2], [1, 2, 2], [1] * 16, [1] * 17, {"rule": "sum", "cap": 1}, {"rule": "count"}),
    *({"rule": "unlimited"}, {"rule": "squares", "cap": 2**54 - 1}, [[0], [1]], [[0], [0]]),
    *([[0], [0, 1]], [[1], [0]], [[0], []], [[0], 1], [[0, 0]], [[0], [1], [0, 1], [0]], "hour", "all"),
    *("bool", "choice", "number", "text", "pair", "rr", "grr", "olh", "hh", "pgr", "sw", "prefix"),
    *("views", "unlimited", "squares", "count", "sum", make_vectors.nested(60)),
    *(["Österreich", "日本"], ["ä" * 32, "👩‍🚀"], ["ä" * 33, "b"], ["e\u0301", "é"], "ä" * 16, "ä" * 17),
    *(["\u202ea", "b"], ["a\u200f", "b"], ["\ufeffa", "b"], ["\ufffd", "b"], ["\x85", "b"]),
    ["\U0010ffff", "\u2027", "\u206a"],
)
PIECES = (
    *(b'"', b",", b":", b"{", b"}", b"[", b"]", b" ", b"-", b"0", b"00", b"-0", b"1", b".", b".0", b"e"),
    *(b"e1", b"E+2", b"true", b"null", b"nul", b"NaN", b"-Infinity", b"{}", b"[]", b'""', b'"e":'),
    *(b'"a",', b"\\", b"\\u0061", b"\t", b"\x00", b"\x7f", b'"every":NaN,', b'"every":1e5,'),
    *(b"\xc3\xa9", b"\xc3", b"\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf", b"\xe2\x80\xae"),
    b"\xf0\x9f\x8f\xa0",
    b'"every":[{"a":[1,-2.5e-3]}],',
)


def choose(rng: np.random.Generator, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def change(value: Any, rng: np.random.Generator) -> Any:
    """Return a value that is similar to this one or unrelated."""
    kind = rng.integers(8)
    if kind == 0 and isinstance(value, list) and value:
        at = int(rng.integers(len(value)))
        return [*value[:at], change(value[at], rng), *value[at + 1 :]]
    if kind == 1 and isinstance(value, list):
        return [*value, *value[:1]] if rng.integers(2) else value[1:]
    if kind == 2 and isinstance(value, dict):
        return mutate(value, rng)
    if kind <= 4 and type(value) is int:
        return value + choose(rng, (-1, 1, 2**32, 2**64))
    if kind <= 6 and type(value) is int and 0 < value < 2**60:
        return int(rng.integers(1, 2 * value))
    return choose(rng, INTEGERS if rng.integers(2) else OTHERS)


def mutate(fields: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the fields with one of them dropped, changed or added."""
    names = list(fields)
    kind = rng.integers(8)
    if kind == 0 and names:
        dropped = choose(rng, names)
        return {name: value for name, value in fields.items() if name != dropped}
    if kind == 1:
        new = choose(rng, (*FIELDS, "x", "", "__proto__", "constructor"))
        return {**fields, new: choose(rng, (*DONATED.get(new, ()), *INTEGERS[:12]))}
    name = choose(rng, names or ["v"])
    donated = DONATED.get(name, ())
    if kind <= 4 and donated:
        return {**fields, name: choose(rng, donated)}
    return {**fields, name: change(fields.get(name), rng)}


def damage(payload: bytes, rng: np.random.Generator) -> bytes:
    """Return the payload with a few bytes changed, deleted, inserted or repeated."""
    for _ in range(int(rng.integers(1, 3))):
        at = int(rng.integers(len(payload) + 1))
        to = at + int(rng.integers(1, 12))
        more = choose(rng, PIECES) if rng.integers(3) else payload[at:to]
        payload = payload[:at] + more + payload[at if rng.integers(2) else to :]
    return payload


def sources() -> list[bytes]:
    shapes = [published(shape) for shape in (*SHAPES.values(), *SLOW_SHAPES.values())]
    payloads = [
        payload.encode()
        for payload in (*make_vectors.EXPERIMENTS, *make_vectors.GROUPED, *make_vectors.SCALED)
    ]
    cases = [*make_vectors.malformed(), *make_vectors.malformed_scales()]
    payloads += [bytes.fromhex(x["hex"]) if "hex" in x else x["payload"].encode() for x in cases]
    # Texts whose slots serve as ordinary indices, and prefixes that differ only in length.
    text = {"type": "text", "salt": "s", "slots": 2, "prefixes": [1, 2, 3]}
    payloads.append(published({**text, "mechanism": "grr"}))
    payloads.append(published({**text, "mechanism": "hh", "fanout": 2, "cells": [2, 3, 3]}))
    payloads.append(
        published({**text, "slots": 1 << 20, "prefixes": [1] * 16, "mechanism": "prefix", "q": 1021})
    )
    # A view that contains a part twice, parts with the same name, and parts whose product is too large.
    views = {"type": "pair", "mechanism": "views", "views": [[0], [1]], "cells": [3, 2]}
    named = {**make_vectors.CRASHED, "name": "version"}
    payloads.append(published({**views, "of": [make_vectors.VERSION, named]}))
    payloads.append(
        published({**views, "of": [make_vectors.VERSION, make_vectors.CRASHED], "views": [[0], [1, 1]]})
    )
    for bins in (4096, 8192, 65_536):
        numbers = [{"name": name, "type": "number", "low": 0, "high": 9, "bins": bins} for name in "ab"]
        payloads.append(published({**views, "of": numbers}))
    return payloads + shapes


SOURCES = sources()
OBJECTS: list[dict[str, Any]] = []
for _payload in SOURCES:
    with contextlib.suppress(ValueError, TypeError):
        OBJECTS.append(dict(json.loads(_payload)))
GOOD = [dict(json.loads(_payload)) for _payload in (*make_vectors.EXPERIMENTS, *make_vectors.SCALED)]
GOOD += [json.loads(published(shape)) for shape in (*SHAPES.values(), *SLOW_SHAPES.values())]
DONATED: dict[str, list[Any]] = {}
for _fields in OBJECTS:
    for _name, _value in _fields.items():
        if _value not in DONATED.setdefault(_name, []):
            DONATED[_name].append(_value)
FIELDS = tuple(DONATED)


def respell(payload: bytes, rng: np.random.Generator) -> bytes:
    """Return the payload with one number respelled, usually as invalid JSON."""
    number = choose(rng, list(re.finditer(rb"(?<![\w\"])-?\d+", payload)))
    signs_and_zeros = (b"0%s", b"-%s", b"+%s", b"%s.0", b"%s.", b"%se0", b"%sE+0", b"%s.0e-0", b"-0", b"--%s")
    forms = (*signs_and_zeros, b"%s0", b" %s ")
    form = choose(rng, forms)
    return payload[: number.start()] + form.replace(b"%s", number[0]) + payload[number.end() :]


def candidates(rng: np.random.Generator, count: int) -> list[bytes]:
    """Return experiments, valid and almost valid."""
    payloads = list(SOURCES)
    while len(payloads) < count:
        kind = int(rng.integers(5))
        fields = choose(rng, GOOD if kind != 2 else OBJECTS)
        for _ in range(int(rng.integers(1, 3)) if kind >= 2 else 0):
            fields = mutate(fields, rng)
        between = choose(rng, ((",", ":"), (", ", ": "), ("  ,", " :  ")))
        payload = json.dumps(fields, separators=between, ensure_ascii=bool(rng.integers(8) == 0)).encode()
        if rng.integers(4) == 0:  # an earlier field, which a later one with the same name may override
            other = choose(rng, FIELDS)
            earlier = json.dumps({other: change(1, rng)}, separators=between, ensure_ascii=False)
            payload = b"{" + earlier[1:-1].encode() + between[0].encode() + payload[1:]
        if kind < 2:
            payload = (respell, damage)[kind](payload, rng)
        payloads.append(payload)
    return payloads


def parse_in_python(payload: bytes) -> Any:
    """Return ldp_client.py's experiment; None if refused or not JSON (such as NaN)."""
    try:
        experiment = Experiment.parse(payload)
        json.loads(payload, parse_constant=_no_json)
    except (ExperimentRefused, ValueError):
        return None
    return experiment


def _no_json(word: str) -> None:
    raise ValueError(word)


def readings(python: Any, rng: np.random.Generator) -> list[Any]:
    """Return readings of all types, many of them of the experiment's type."""
    some: list[Any] = [None, True, False, 0, 1, -1, 10**30, -(10**30), b"off", [], (1, 2), *TEXTS]
    low, high = -(2**41), 2**41
    for part in (python, *getattr(python, "parts", ())):
        some += part.labels[:4]
        if part.type == "number":
            low, high = part.low, part.high
            some += [x for edge in (low, high) for x in (edge // 1000, edge // 1000 + 1)]
    some += [int(x) for x in rng.integers(low // 1000 - 2, high // 1000 + 2, 4)]
    if python.type == "pair":
        some += [[choose(rng, some) for _ in python.parts] for _ in range(40)]
    return some
