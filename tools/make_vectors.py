"""Write vectors.json: the values that every client must compute, and the inputs that it must reject.

vectors_further.json has the same for mechanisms and types in separate files, and for `missing`.
vectors_groups.json has the same for experiments with an open group.
vectors_text.json has the same for labels and groups in other alphabets, and bytes that clients must reject.
vectors_scale.json has the edges of logarithmic bins, and inputs with `scale` that clients must reject.
vectors_questions.json has the questions that consent covers with "ask": "each"; separate files compute them.
vectors_log.json has proofs that an experiment is in a public log, for clients whose policy has "log".

Run `python tools/make_vectors.py` from the repository's root. Every expected value comes from
reference_board.py and reference_log.py, not from the client. The files are JSON with one case per line, so
that a board can read them line by line.
"""

import hashlib
import json
import re
import struct
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import _paths  # noqa: F401
import reference_board as ref
import reference_log

PATH = Path(__file__).parents[1] / "tests" / "vectors.json"
FURTHER_PATH = PATH.with_name("vectors_further.json")
GROUPS_PATH = PATH.with_name("vectors_groups.json")
TEXT_PATH = PATH.with_name("vectors_text.json")
SCALE_PATH = PATH.with_name("vectors_scale.json")
QUESTIONS_PATH = PATH.with_name("vectors_questions.json")
LOG_PATH = PATH.with_name("vectors_log.json")
# Types and mechanisms that are in separate files rather than in ldp_client.py.
_ENTERED = re.compile(r'(?:TYPES|MECHANISMS)\["(?!number")(\w+)"\] = ')
_SEPARATE_FILES = "".join(path.read_text("utf-8") for path in PATH.parents[1].glob("device/ldp_*.py"))
FURTHER = re.compile(rf'"(type|mechanism)": ?"({"|".join(_ENTERED.findall(_SEPARATE_FILES))})"|"missing":')
KEY = bytes(range(32))
SIGNING_KEY = 0x1234567890ABCDEF1234567890ABCDEF1234567890ABCDEF1234567890ABCDEF

ROOM_TEMP = (
    '{"v":1, "name":"room_temp", "type":"number", "low":-20000, "high":50000, "bins":256, '
    '"mechanism":"hh", "fanout":4, "cells":[4,3,3,3], "epsilon":1000000, "every":90, '
    '"budget":{"rule":"sum","cap":4000000}, "window":"day"}'
)


def as_json(value: Any) -> str:
    """Return a value as JSON without spaces and without escapes for characters that need none."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def text(**changes: Any) -> str:
    """Return the JSON of a small valid experiment with fields changed or, if None, left out."""
    fields: dict[str, Any] = {"v": 1, "name": "e", "type": "bool", "mechanism": "rr", "epsilon": 1_000_000}
    fields |= {"budget": {"rule": "sum", "cap": 4_000_000}, "window": "day"}
    fields |= changes
    return as_json({k: v for k, v in fields.items() if v is not None})


def number(bins: int, mechanism: str, **changes: Any) -> str:
    around = {"type": "number", "low": 0, "high": 50_000, "bins": bins, "mechanism": mechanism}
    return text(**{**around, **changes})


def hh(bins: int, fanout: int, cells: list[int], **changes: Any) -> str:
    return number(bins, "hh", fanout=fanout, cells=cells, **changes)


TEXTS = text(type="text", salt="a salt", slots=4096, mechanism="olh", g=3)
PREFIXES = text(
    type="text", salt="salz", slots=1024, prefixes=[2, 3, 3], mechanism="prefix", q=7, weights=[2, 1, 65_535]
)

NOT_PLAIN = "must be UTF-8 without backslashes or control characters"

# If a key occurs twice, the last one counts, also inside budget; surrounding spaces affect the digest.
_TWICE = text(every=[{"e": -1e22}]).replace('"cap":', '"cap":null,"cap":')
ODD = f' {_TWICE[:-1]},"epsilon":2000000,"every":1}} '

EXPERIMENTS = [
    ROOM_TEMP,
    text(),
    text(epsilon=1_000, every=16_777_216, window="hour"),
    text(epsilon=16_000_000, window="all", name="a" * 32),
    text(mechanism="grr", budget={"rule": "unlimited"}),
    text(type="choice", labels=["off", "on", "a b ~!"], mechanism="grr", budget={"rule": "count", "cap": 12}),
    text(type="choice", labels=["x"], mechanism="rr", budget={"rule": "squares", "cap": 18014398509481983}),
    text(type="choice", labels=[f"l{i}" for i in range(100)], mechanism="olh", g=3),
    number(256, "grr"),
    number(257, "grr", epsilon=4_000_000),
    number(16_777_216, "grr", epsilon=16_000_000, low=-1099511627776, high=1099511627776),
    number(3, "olh", g=2),
    number(1024, "olh", g=3),
    number(4096, "olh", g=2, epsilon=500_000),
    number(4097, "olh", g=2, epsilon=500_000),
    number(128, "olh", g=23, epsilon=3_000_000),
    number(65_536, "olh", g=53, epsilon=4_000_000),
    number(62_500, "olh", g=251, epsilon=4_000_000),
    number(11, "pgr", q=3),
    number(16_000_000, "pgr", q=4093, epsilon=8_000_000),
    hh(5, 2, [2, 2, 5], weights=[3, 0, 1]),
    hh(27, 5, [2, 3, 7], epsilon=2_000_000),
    hh(125, 5, [5, 5, 5], weights=[65_535, 1, 65_535]),
    hh(126, 5, [2, 5, 7, 5]),
    hh(256, 256, [3]),
    hh(1000, 10, [10, 7, 7], epsilon=2_000_000, budget={"rule": "squares", "cap": 40_000_000_000_000}),
    number(64, "sw", reach=15, epsilon=2_000_000),
    number(5, "sw", reach=0),
    TEXTS,
    PREFIXES,
    ODD,
    number(8, "grr", low=0, high=8_000).replace('"low":0', '"low":-0'),
    number(3, "grr", low=-1, high=2),
]


VERSION = {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}
CRASHED = {"name": "crashed", "type": "bool"}
DELAY = {"name": "delay", "type": "number", "low": 0, "high": 8_000, "bins": 16}
PAIRS = [
    text(type="pair", of=[VERSION, CRASHED], mechanism="grr"),
    text(type="pair", of=[VERSION, CRASHED], mechanism="views", views=[[0], [1], [0, 1]], cells=[3, 2, 5]),
    text(
        type="pair",
        of=[VERSION, DELAY, CRASHED],
        mechanism="views",
        views=[[1], [0, 2], [0, 1, 2]],
        cells=[7, 6, 11],
        weights=[2, 0, 65_535],
        epsilon=2_000_000,
    ),
]
CRASHED_OR_NONE = {**CRASHED, "missing": 1}
DELAY_OR_NONE = {"name": "delay", "type": "number", "low": 0, "high": 7_000, "bins": 7, "missing": 1}
FREE = {"budget": {"rule": "unlimited"}}  # the shortest budget
MISSING = [
    text(missing=1, mechanism="grr", **FREE),
    text(type="choice", labels=["off", "on"], missing=1, mechanism="olh", g=3, **FREE),
    number(15, "grr", low=-20_000, missing=1, **FREE),
    hh(15, 4, [4, 3], low=-20_000, missing=1, **FREE),
]
MISSING_PAIRS = [
    text(type="pair", of=[CRASHED_OR_NONE, DELAY_OR_NONE], mechanism="olh", g=5, **FREE),
    text(
        type="pair", of=[VERSION, CRASHED_OR_NONE], mechanism="views", views=[[0], [1]], cells=[2, 3], **FREE
    ),
]
EXPERIMENTS[-2:-2] = [*MISSING, *PAIRS, *MISSING_PAIRS]


FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
GROUPED = [
    text(**FIRMWARE),
    text(**FIRMWARE, every=[130, 1, 90]),
    text(**FIRMWARE, every=7, budget={"rule": "count", "cap": 12}),
    number(1000, "grr", group="m_0-" * 8, groups=["~ !#[]" + "x" * 26, "Other"], every=[1, 2, 2**24]),
    number(70_000, "grr", epsilon=16_000_000, group="g", groups=[str(i) for i in range(15)]),
    hh(256, 4, [4, 3, 3, 3], **FIRMWARE, every=[1, 1, 1]),
    text(type="choice", labels=["a", "b"], mechanism="olh", g=2, **FIRMWARE, every=[3, 3, 2]),
]
# Labels in several scripts; one with a joined emoji, one that starts like a number that JavaScript marks, and
# one of 64 bytes.
WORLD = text(
    type="choice",
    labels=["Österreich", "日本", "👩‍🌾🇦🇹", "العربية", "é12", "한" * 21 + "x", "می‌خواهم", "\U0010ffff\xa0"],
    mechanism="grr",
    group="model",
    groups=["größe-ä", "家" * 10 + "é", "🏠"],
)

LOG = {"type": "number", "low": 1_000, "high": 1_000_000, "bins": 24, "scale": "log"}
SCALED = [
    text(**LOG, mechanism="grr", **FREE),
    text(**{**LOG, "low": 1, "high": 8, "bins": 3}, mechanism="olh", g=2, **FREE),
    text(**{**LOG, "low": 100, "high": 105, "bins": 5}, mechanism="grr", **FREE),
    text(**{**LOG, "low": 1, "high": 1_000, "bins": 12}, missing=1, mechanism="grr", **FREE),
    text(**{**LOG, "low": 250, "bins": 256}, mechanism="olh", g=3, **FREE),
    text(**{**LOG, "low": 1, "high": 2**40, "bins": 2}, mechanism="rr", **FREE),
    text(**{**LOG, "high": 2**40, "bins": 30}, mechanism="grr", **FREE),
    text(**{**LOG, "low": 2**39, "high": 2**40, "bins": 7}, mechanism="grr", **FREE),
]


class Draws:
    """Fixed draws that look random: SHA-256 of a label and a counter."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.at = 0

    def below(self, n: int) -> int:
        self.at += 1
        digest = hashlib.sha256(f"{self.label}/{self.at}".encode()).digest()
        return int.from_bytes(digest[:16], "big") % n

    def bernoulli(self, chance: int) -> bool:
        return self.below(ref.ONE) < chance


class Edges(Draws):
    """Draws that always return the largest value, and a lie."""

    def below(self, n: int) -> int:
        return n - 1

    def bernoulli(self, chance: int) -> bool:
        return False


def thresholds() -> list[dict[str, Any]]:
    epsilons = (1_000, 1_001, 62_499, 62_500, 500_000, 1_000_000, 1_098_612, 4_000_000, 7_654_321, 16_000_000)
    cells = (2, 3, 7, 256, 65_521, 2**24)
    return [{"epsilon": e, "g": g, "threshold": ref.threshold(e, g)} for e in epsilons for g in cells]


def experiments(payloads: Sequence[str] = EXPERIMENTS) -> list[dict[str, Any]]:
    cases = []
    for payload in payloads:
        fields = json.loads(payload)
        case: dict[str, Any] = {"payload": payload, "sha256": hashlib.sha256(payload.encode()).hexdigest()}
        case |= {name: fields.get(name, no) for name, no in (("epsilon", None), ("every", 1), ("fanout", 0))}
        case |= {"cap": fields["budget"].get("cap", 0), "domain": ref.domain_of(fields)}
        case |= {"weight_sum": sum(ref.weights_of(fields)), "code_count": ref.code_count_of(fields)}
        case |= {"code_bytes": ref.code_bytes_of(fields), "levels": ref.levels_of(fields)}
        cases.append(case)
    return cases


def codes() -> list[dict[str, Any]]:
    cases = []
    for payload in EXPERIMENTS:
        fields = json.loads(payload)
        last = ref.domain_of(fields) - 1
        for i, index in enumerate((0, last // 3, None, last)):
            if payload in (*MISSING, *MISSING_PAIRS) and i < 3:
                continue  # the client handles an index in the usual way
            rng = Edges("") if i == 3 else Draws(f"{payload}{i}")
            code, draws = ref.code_of(fields, index, rng)
            cases.append({"experiment": fields_key(payload), "index": index, "draws": draws, "code": code})
    return cases


def fields_key(payload: str) -> str:
    """Return an experiment's name in later sections, which is its digest."""
    return hashlib.sha256(payload.encode()).hexdigest()[:8]


def single(x: float) -> float:
    return struct.unpack("f", struct.pack("f", x))[0]


def safe_in_single(fields: dict[str, Any], value: float) -> bool:
    """Return whether a board with 32-bit floats agrees, even if it reads or multiplies two units off."""
    indices = set()
    for slip in (-2, -1, 0, 1, 2):
        v = single(single(value) * (1 + slip * 2.0**-23))
        milli = Fraction(single(single(v * 1000) + 0.5)).__floor__()
        indices.add(ref.bucket_of(fields, Fraction(milli, 1000) if milli % 1000 else Fraction(milli // 1000)))
    return len(indices) == 1


def buckets() -> list[dict[str, Any]]:
    cases = []

    def add(payload: str, kind: str, value: Any, index: Any) -> None:
        cases.append({"experiment": fields_key(payload), "kind": kind, "value": value, "index": index})

    for payload in (ROOM_TEMP, *EXPERIMENTS[-2:]):
        fields = json.loads(payload)
        for value in (0, 1, -1, 7, 8, 50, -20, 51, -21, 10**6, -(10**6), 10**30, -(10**30)):
            add(payload, "int", value, ref.bucket_of(fields, Fraction(value)))
        for value in (0.5, -0.5, 21.4, 0.25, 3.75, -19.9, 49.9, 1.5, 6.5, 1e30, -1e30, 100.5, -100.5):
            if safe_in_single(fields, value):
                add(payload, "float", value, ref.bucket_of(fields, Fraction(Decimal(repr(value)))))
        add(payload, "float", "inf", fields["bins"] - 1)
        add(payload, "float", "-inf", 0)
        add(payload, "float", "nan", None)
        add(payload, "none", None, None)
        for kind, value in (("text", "21.4"), ("bool", 1), ("bytes", "21"), ("list", [])):
            add(payload, kind, value, "TypeError")
    # Rounding up to the end of the range, and in bins as narrow as the rounding unit.
    for payload, values in ((ROOM_TEMP, (49.9996,)), (EXPERIMENTS[-1], (0.0004, 0.0006, -0.0004, -0.0006))):
        for value in values:
            assert safe_in_single(json.loads(payload), value)
            add(payload, "float", value, ref.bucket_of(json.loads(payload), Fraction(Decimal(repr(value)))))
    choice = EXPERIMENTS[5]
    for i, label in enumerate(("off", "on", "a b ~!", "not listed", "", "ON")):
        add(choice, "text", label, min(i, 3))
    add(choice, "none", None, None)
    add(choice, "float", "nan", None)
    for kind, value in (("float", "inf"), ("int", 0), ("bool", 1), ("bytes", "off")):
        add(choice, kind, value, "TypeError")
    texts = ("text", ""), ("text", "ä€"), ("text", "ä" * 130), ("bytes", "1.2"), ("bytes", "x" * 256)
    for kind, value in texts:
        for payload in (TEXTS, PREFIXES):
            add(payload, kind, value, ref.text_index_of(json.loads(payload), value.encode()))
    add(TEXTS, "none", None, None)
    add(TEXTS, "int", 1, "TypeError")
    numbers = (("bool", 0), ("bool", 1), ("int", 0), ("int", 1), ("int", -7), ("int", 10**30))
    for kind, value in numbers:
        add(EXPERIMENTS[1], kind, value, int(value != 0))
    add(EXPERIMENTS[1], "none", None, None)
    add(EXPERIMENTS[1], "float", "nan", None)
    for kind, value in (("float", 1.0), ("float", "inf"), ("text", "1")):
        add(EXPERIMENTS[1], kind, value, "TypeError")
    pairs = (["1.2", False], ["1.2", True], ["1.3", 0], ["nobody's", 7], [None, True], ["1.2", None])
    for pair, index in zip(pairs, (0, 1, 2, 5, None, None), strict=True):
        add(PAIRS[0], "tuple", pair, index)
    for pair in (["1.2"], ["1.2", True, True], [1, True], [None, "yes"]):
        add(PAIRS[0], "tuple", pair, "TypeError")
    add(PAIRS[0], "list", ["1.3", True], 3)
    add(PAIRS[0], "text", "1.2", "TypeError")
    # Experiments with `missing`: no reading has the last index, and all other readings keep theirs.
    highest = (("bool", 1), ("text", "not listed"), ("float", "inf"), ("int", 50))
    for payload, (kind, value) in zip(MISSING, highest, strict=True):
        last = ref.domain_of(json.loads(payload)) - 1
        add(payload, "none", None, last)
        add(payload, "float", "nan", last)
        add(payload, kind, value, last - 1)
    add(MISSING[1], "text", "on", 1)
    for value in (-20, -1, 21, 49):
        add(MISSING[2], "int", value, ref.bucket_of(json.loads(MISSING[2]), Fraction(value)))
    pairs = ([True, 3], [None, 3], [False, None], [None, None], [True, 99])
    for pair, index in zip(pairs, (11, 19, 7, 23, 14), strict=True):
        add(MISSING_PAIRS[0], "tuple", pair, index)
    add(MISSING_PAIRS[0], "none", None, 23)
    for pair, index in zip(
        (["1.3", None], [None, None], [None, True], ["?", 1]), (5, None, None, 7), strict=True
    ):
        add(MISSING_PAIRS[1], "tuple", pair, index)
    add(MISSING_PAIRS[1], "none", None, None)
    return cases


def drbg() -> list[dict[str, Any]]:
    cases = []
    for seed in (b"", b"seed", bytes(range(256)), bytes(600)):
        rng = ref.ReferenceDRBG(seed)
        steps: list[list[Any]] = []
        steps += [["generate", n, rng.generate(n).hex()] for n in (1, 31, 32, 33, 0, 128)]
        rng.update(b"more")
        steps.append(["reseed", b"more".hex()])
        for n in (1, 2, 3, 7, 1000, 2**24, 2**24 - 1, 728, 90, 5):
            steps.append(["below", n, rng.below(n)])
            chance = ref.threshold(1_000_000, 2 + n % 50)
            steps.append(["bernoulli", chance, int(rng.bernoulli(chance))])
        steps.append(["generate", 16, rng.generate(16).hex()])
        steps.append(["below", 2**24, rng.below(2**24)])
        rng.update(seed[:7] + b"x")
        steps.append(["reseed", (seed[:7] + b"x").hex()])
        steps.append(["bernoulli", 2**29, int(rng.bernoulli(2**29))])
        cases.append({"seed": seed.hex(), "steps": steps})
    return cases


# A digest byte for which few reports cover every budget rule and the most mechanisms.
_REPORT_BYTE = 10


def reports() -> list[dict[str, Any]]:
    """Return calls of report(): the ledger before, the draws, the payload, and the ledger after (seed zero).

    The digest decides which experiments report, and with what: another experiment adds at most its own case.
    """
    cases = []
    always = [p for p in EXPERIMENTS if '"every"' not in p and p not in (*MISSING[1:], *MISSING_PAIRS)]
    for payload in always:
        i = hashlib.sha256(payload.encode()).digest()[_REPORT_BYTE]
        fields = json.loads(payload)
        name, epsilon, rule = fields["name"], fields["epsilon"], fields["budget"]["rule"]
        cap = fields["budget"].get("cap", 0)
        cost = {"sum": epsilon, "squares": epsilon**2, "count": 1, "unlimited": 0}[rule]
        if cost > cap or i % 2:
            continue
        key, device = (KEY, f"board-{i}") if i % 4 else (None, "0" * 32)
        before = [(name, 7, rule, cap, {"count": epsilon, "unlimited": 0}.get(rule, cap - cost))]
        if i % 3 == 0:
            before = []
        last = before[0][1] if before else 0
        spent = {"count": epsilon, "unlimited": 0}.get(rule, (before[0][4] if before else 0) + cost)
        code, draws = ref.code_of(fields, ref.missing_index_of(fields), Draws(f"report {i}"))
        report = ref.report_of(payload, last + 1, code, device, key)
        after = [(name, last + 1, rule, cap, spent)]
        case = {"payload": payload, "device": device, "key": key and key.hex(), "draws": draws}
        older = ref.ledger_record(39 + 2 * i, before, 10**9 * i, 10**15 * i)
        case["before"] = [older.hex(), ref.ledger_record(40 + 2 * i, before, 10**9 * i, 10**15 * i).hex()]
        case["report"] = report.hex()
        record = ref.ledger_record(41 + 2 * i, after, 10**9 * i + epsilon, 10**15 * i + epsilon**2, [report])
        case["after"] = record.hex()
        cases.append(case)
    return cases


def group_experiments(payloads: Sequence[str] = GROUPED) -> list[dict[str, Any]]:
    cases = experiments(payloads)
    for case in cases:
        fields = json.loads(case["payload"])
        case |= {"group": fields["group"], "groups": fields["groups"]}
        case["every_of"] = [ref.every_of(fields, i) for i in range(len(fields["groups"]) + 1)]
        case["every"] = case["every_of"][-1]
    return cases


def group_reports(payloads: Sequence[str] = GROUPED) -> list[dict[str, Any]]:
    """Return calls of report() in which the group has a value; null for a call that the draw skips."""
    cases = []
    for payload in payloads:
        fields = json.loads(payload)
        name, epsilon, rule = fields["name"], fields["epsilon"], fields["budget"]["rule"]
        if epsilon > fields["budget"]["cap"]:
            continue
        for i, value in enumerate((fields["groups"][0], fields["groups"][-1], "not listed")):
            group = ref.group_index_of(fields, value)
            every = ref.every_of(fields, group)
            key, device = (KEY, f"board-{i}") if i % 2 else (None, "board")
            before = [ref.ledger_record(sequence).hex() for sequence in (1, 2)]
            case = {"payload": payload, "device": device, "key": key and key.hex(), "group": value}
            case |= {"before": before, "after": before[0], "report": None}
            if every > 1:
                cases.append(case | {"draws": [["below", every, every - 1]]})
            code, draws = ref.code_of(fields, None, Draws(f"group report {i}"))
            case["draws"] = ([["below", every, 0]] if every > 1 else []) + draws
            report = ref.report_of(payload, 1, code, device, key, group)
            entry = (name, 1, rule, fields["budget"]["cap"], epsilon)
            case["after"] = ref.ledger_record(3, [entry], epsilon, epsilon**2, [report]).hex()
            cases.append(case | {"report": report.hex()})
    return cases


def policies() -> list[dict[str, Any]]:
    """Return experiments, the groups that a policy names, and why it refuses the experiment, or null."""
    without = "the policy does not name group firmware"
    forms = [(["firmware"], None), (["model", "firmware"], None), ([], without), (["model"], without)]
    forms += [(["firmware "], without), (None, without)]
    cases = [{"payload": GROUPED[1], "groups": groups, "refused": why} for groups, why in forms]
    return [*cases, {"payload": text(), "groups": ["firmware"], "refused": None}]


def world_buckets() -> list[dict[str, Any]]:
    """Return labels in several scripts and their indices; a label in another form counts as unlisted."""
    labels = json.loads(WORLD)["labels"]
    values = [*labels, unicodedata.normalize("NFD", labels[0]), "日本語", "O\u0308sterreich", "é1", "\x7f12"]
    key = fields_key(WORLD)
    indices = [labels.index(value) if value in labels else len(labels) for value in values]
    return [
        {"experiment": key, "kind": "text", "value": value, "index": index}
        for value, index in zip(values, indices, strict=True)
    ]


def malformed_text() -> list[dict[str, Any]]:
    """Return experiments with a label that no board accepts, and the text of the ExperimentRefused."""
    points = (0x80, 0x9F, 0x61C, 0x200E, 0x200F, 0x2028, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF, 0xFFFD)
    labels = [chr(point).encode() for point in points]
    # Not UTF-8: lone and missing continuations, overlong forms, surrogates, points above 0x10FFFF.
    labels += [
        b"\x80",
        b"a\xbf",
        b"\xc3",
        b"\xc3a",
        b"\xe2\x82",
        b"\xe2\x82a",
        b"\xf0\x9f\x98",
        b"\xc3\xa4\xa4",
    ]
    labels += [b"\xc0\xa2", b"\xc1\xbf", b"\xe0\x82\xa0", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf"]
    labels += [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb8\x80"]
    labels += [b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfc", b"\xfe", b"\xff"]
    cases = [{"hex": (b'{"v":"' + label + b'"}').hex(), "text": NOT_PLAIN} for label in labels]
    cases.append({"hex": b'{"v":1}\xe2'.hex(), "text": NOT_PLAIN})  # ends within a character
    choice = text(type="choice", labels=["a", "~"], mechanism="grr", **FREE)
    of_labels = "labels must differ and have 1 to 64 bytes"
    too_long = (choice.replace("~", label) for label in ("한" * 21 + "é", "ä" * 33, "👩" * 17))
    return cases + [{"payload": payload, "text": of_labels} for payload in too_long]


def malformed_groups() -> list[dict[str, Any]]:
    """Return invalid experiments with a group, and the text of the ExperimentRefused."""
    of_name = "group must be 1 to 32 of a-z, 0-9, _ and -"
    of_texts = "groups must differ and have 1 to 32 bytes"
    of_values = "groups must have at most 15 values, and not other"
    of_every = "every must be a list of 3 integers from 1 to 16777216"
    of_number = "every must be an integer from 1 to 16777216"
    forms = [({"group": name}, of_name) for name in ("", "Firmware", "a b", "g" * 33, 5, ["a", "b"])]
    forms += [({"group": None}, "group is missing"), ({"groups": None}, "groups is missing")]
    lists = [], ["a", "a"], ["a", ""], ["a" * 33], ["a", 1], "ab", [["a"], ["a"]], {"a": 1}
    forms += [({"groups": groups}, of_texts) for groups in lists]
    forms += [({"groups": [str(i) for i in range(16)]}, of_values), ({"groups": ["a", "other"]}, of_values)]
    lists = [], [1, 1], [1, 1, 1, 1], [1, 0, 1], [1, 1, 2**24 + 1], [1, 1, True], [1, 1, 1.0], [1, 1, "1"]
    forms += [({"every": every}, of_every) for every in lists]
    forms += [({"every": every}, of_number) for every in (0, True, "1", {"2.4.0": 1})]
    cases = []
    for change, why in forms:
        fields = {**json.loads(text(**FIRMWARE)), **change}
        cases.append({"payload": as_json(fields), "text": why})
    alone = [
        (text(groups=["a"]), "unknown field groups"),
        (text(group="firmware"), "groups is missing"),
        (text(every=[1]), of_number),
        (text(every=[1, 1, 1]), of_number),
        (text(**FIRMWARE, group2="model"), "unknown field group2"),
    ]
    return cases + [{"payload": payload, "text": why} for payload, why in alone]


def signatures() -> list[dict[str, Any]]:
    """Return retained messages, the lowest acceptable serial (least), and whether a board accepts them."""
    payload = text()
    good = ref.signed(payload, SIGNING_KEY, "home", "e", 7)
    s = int.from_bytes(good[-32:], "big")
    high = good[:-32] + (ref.P256_ORDER - s).to_bytes(32, "big")
    missing = "its signature is missing or wrong"
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    forms = [
        (good, 0, None),
        (good, 7, None),
        (wrong, 8, "a newer version was published"),  # the serial is compared before the signature is
        (payload.encode(), 0, missing),
        (wrong, 0, missing),
        (good[:-69] + b"\x00\x00\x00\x00\x08" + good[-64:], 0, missing),
        (good[:-1], 0, missing),
        (good + b"\x00", 0, missing),
        (high, 0, missing),
        (payload.replace("day", "all").encode() + good[-69:], 0, missing),
        (ref.signed(payload, SIGNING_KEY + 1, "home", "e", 7), 0, missing),
        (ref.signed(payload, SIGNING_KEY, "away", "e", 7), 0, missing),
    ]
    around = {"fleet": "home", "key": ref.public_key(SIGNING_KEY).hex()}
    return [{**around, "payload": form.hex(), "least": least, "refused": why} for form, least, why in forms]


def withdrawals() -> list[dict[str, Any]]:
    """Return retained messages that may withdraw the experiment e, the previous serial, and whether they do.

    They are among the cases that need files beside the client, since ldp_p256.py is one. The key is None in
    an open fleet.
    """
    missing = "its signature is missing or wrong"
    newer = "a newer version was published"
    good = ref.signed("", SIGNING_KEY, "home", "e", 8)
    wrong = good[:-1] + bytes([good[-1] ^ 1])
    forms = [
        (good, 7, None),
        (good, 8, None),
        (good, 9, newer),
        (wrong, 9, newer),  # the serial is compared before the signature
        (wrong, 7, missing),
        (good[:-1], 7, missing),
        (b"", 7, missing),
        (ref.signed("", SIGNING_KEY, "home", "f", 8), 7, missing),
        (ref.signed("", SIGNING_KEY + 1, "home", "e", 8), 7, missing),
    ]
    around = {"fleet": "home", "key": ref.public_key(SIGNING_KEY).hex()}
    keyed = [
        {**around, "withdrawal": form.hex(), "least": least, "refused": why} for form, least, why in forms
    ]
    opened = {"fleet": "home", "key": None, "least": 0}
    return [
        *keyed,
        {**opened, "withdrawal": "", "refused": None},
        {**opened, "withdrawal": good.hex(), "refused": missing},
    ]


LOST = "locked: no ledger; provision this board"
DAMAGED = "locked: the ledger is damaged; provision again"


def ledgers() -> list[dict[str, Any]]:
    """Return pairs of slots, and the state of a board that starts with them."""
    cases = []

    def add(slots: Sequence[bytes | None], **says: Any) -> None:
        fields = {"locked": None, "consent": True, "sum": 0, "squares": 0, "reports": [0, 0], "outbox": []}
        assert set(says) <= set(fields)
        if says.get("locked"):  # its state is unknown, including consent; check_vectors.py fills in the rest
            fields = {}
        hexed = [slot if slot is None else slot.hex() for slot in slots]
        cases.append({"slots": hexed, **fields, **says})

    payload = text()
    r = [ref.report_of(payload, n, n % 2, "board-1", KEY) for n in range(1, 6)]
    entries = [("e", 3, "sum", 4_000_000, 3_000_000), ("f", 2**32 - 1, "unlimited", 0, 0)]
    full = ref.ledger_record(9, entries, 2**48 - 1, 2**64 - 1, [r[2]], seed=bytes(range(16)))
    older = ref.ledger_record(8, entries[:1], 3_000_000, 3 * 10**12, [r[1]])
    newer = ref.ledger_record(10, entries[:1], 3_000_000, 3 * 10**12, [r[1]])
    neighbour = ref.ledger_record(8)  # adjacent to number 9, so that only the damage can lock it
    first, second = ref.ledger_record(1), ref.ledger_record(2)
    most = {"sum": 2**48 - 1, "squares": 2**64 - 1, "reports": [3, 2**32 - 1], "outbox": [r[2].hex()]}
    less = {"sum": 3_000_000, "squares": 3 * 10**12, "reports": [3, 0], "outbox": [r[1].hex()]}
    add([first, second])
    add([full, older], **most)
    add([full, newer], **less)
    last = ref.ledger_record(2**32 - 1, unsent=[r[0][:10]])
    add([last, ref.ledger_record(2**32 - 2)], outbox=[r[0][:10].hex()])
    off = ref.ledger_record(10, entries[:1], 3_000_000, 3 * 10**12, r[:1], consent=False)
    add([full, off], **{**less, "consent": False, "outbox": []})
    add([ref.ledger_record(3, unsent=r[:1], consent=None), second], consent=None)
    # From a client that did not ask for consent: budgets continue, an opt-out stays, others drop their
    # outbox.
    for before, now in ((True, None), (False, False)):
        old = ref.ledger_record(3, entries[:1], 7, 9, r[:1], before, asked=False)
        add([old, second], sum=7, squares=9, reports=[3, 0], consent=now)
    add([ref.ledger_record(3), ref.ledger_record(2, asked=False)])
    for reports in ([], r[:1], r[:4], [r[0]] * 16):
        add([ref.ledger_record(3, unsent=reports), second], outbox=[x.hex() for x in reports])
    # Remains of an interrupted provision(): nothing can be lost.
    for nothing in (None, b""):
        for interrupted in (None, b"", first):
            add([interrupted, nothing], locked=LOST)
    # A slot that is lost, damaged, old or in the wrong place could have been the newest.
    for bad in (None, b""):
        for whole in (older, second):
            add([bad, whole], locked=DAMAGED)
        add([full, bad], locked=DAMAGED)
    for bad in (b"\x00" * 40, full[:-1], full[:39], full + b"\x00", full[::-1]):
        add([bad, neighbour], locked=DAMAGED)
    add([first, b"\xff" * 40], locked=DAMAGED)
    for pair in ([older, full], [newer, full], [first, full], [full, second], [second, first]):
        add(pair, locked=DAMAGED)
    for at in (0, 1, 5, 27, 50, len(full) - 5, len(full) - 1):
        bad = full[:at] + bytes([full[at] ^ 0x10]) + full[at + 1 :]
        add([bad, neighbour], locked=DAMAGED)
    # A valid CRC over a record that is too short or long, of another format, or ends within a report.
    forms = (b"\x4c" + full[1:-4], b"\x51" + full[1:-4])
    for body in (*forms, full[:-5], full[:-4] + b"\x01", full[:-4] + b"\x00", full[:36], b""):
        add([ref.sealed(body), neighbour], locked=DAMAGED)
    for length in (1, 17, 19, 255):
        at = len(full) - 4 - len(r[2]) - 1
        add([ref.sealed(full[:at] + bytes([length]) + full[at + 1 : -4]), neighbour], locked=DAMAGED)
    return cases


def scales() -> list[dict[str, Any]]:
    """Return experiments, and the edges of their bins in milli-units."""
    return [{"payload": payload, "edges": ref.scale_edges_of(json.loads(payload))} for payload in SCALED]


def malformed_scales() -> list[dict[str, Any]]:
    """Return invalid experiments with a scale, and the text of the ExperimentRefused."""
    of_bins = "scale log requires at most 256 bins of at least 0.001"
    forms = [
        ({"scale": "linear"}, "this board does not support scale linear"),
        ({"scale": 1}, "this board does not support scale ?"),
        ({"scale": None}, "scale is missing"),
        ({"low": 0}, "scale log requires low above 0"),
        ({"low": -1_000}, "scale log requires low above 0"),
        ({"low": 1_000_000}, "low must be less than high"),
        ({"bins": 257}, of_bins),
        ({"high": 1_023}, of_bins),
    ]
    cases = []
    for change, why in forms:
        fields = {**json.loads(SCALED[0]), **change}
        cases.append({"payload": as_json(fields), "text": why})
    parts = [{"name": "a", **LOG, "low": 0}, CRASHED]
    pair = text(type="pair", of=parts, mechanism="grr", **FREE)
    alone = [(text(scale="log", **FREE), "unknown field scale"), (pair, "scale log requires low above 0")]
    return cases + [{"payload": payload, "text": why} for payload, why in alone]


def nested(depth: int) -> list[Any]:
    """Return lists nested to that depth."""
    return [nested(depth - 1)] if depth else []


def malformed() -> list[dict[str, Any]]:
    """Return invalid experiments, and the text of the ExperimentRefused."""
    cases = []
    free = FREE
    rr, grr, olh = text(**free), number(256, "grr", **free), number(256, "olh", g=3, **free)
    tree = hh(256, 4, [4, 3, 3, 3], **free)
    choice = text(type="choice", labels=["a", "b"], mechanism="grr", **free)

    def add(payload: str | bytes, reason: str) -> None:
        form = {"hex": payload.hex()} if isinstance(payload, bytes) else {"payload": payload}
        cases.append({**form, "text": reason})

    def change(payload: str, field: str, value: Any) -> str:
        return as_json({**json.loads(payload), field: value})

    def changes(payload: str, field: str, values: Sequence[Any], reason: str) -> None:
        for value in values:
            add(change(payload, field, value), reason)

    def token(field: str, raw: str) -> str:
        return change(rr, field, 987654).replace("987654", raw)

    no_object = "not a JSON object"
    for bad in ("", "null", "[]", "}", "1", '"e"', rr[1:], rr + "x", rr.replace('"day"', "'day'"), "nul"):
        add(bad, no_object)
    add(rr + " " * (1025 - len(rr)), "larger than 1024 bytes")
    # Without a rule about bytes, a JSON parser or C strings would accept each of these experiments.
    around = ("\ufeff" + rr, "\n" + rr, rr + "\0", rr.replace(",", ",\r", 1), rr.replace('"e"', r'"\u0065"'))
    within = [choice.replace('"a"', f'"{bad}"') for bad in ("a\0", "\x7f", "\u202e")]
    for bad in (*around, *within, choice.encode().replace(b'"a"', b'"\xff"')):
        add(bad, NOT_PLAIN)
    for field in ("v", "name", "type", "mechanism", "epsilon", "budget", "window"):
        add(text(**{**free, field: None}), field + " is missing")
    of_others = (choice, "labels"), (grr, "bins"), (grr, "low"), (grr, "high"), (olh, "g"), (tree, "fanout")
    for payload, field in (*of_others, (tree, "cells")):
        remaining = {k: v for k, v in json.loads(payload).items() if k != field}
        add(as_json(remaining), field + " is missing")
    tokens = {
        "v": (("0", "2", "-1", "1.0", "true", '"1"', "[1]", "1e0", "9" * 40), "from 1 to 1"),
        "epsilon": (("999", "16000001", "-1000000", "1000000.0"), "from 1000 to 16000000"),
        "every": (("0", "16777217", "false", '2,"every":0'), "from 1 to 16777216"),
    }
    for field, (raws, span) in tokens.items():
        for raw in raws:
            add(token(field, raw), f"{field} must be an integer {span}")
    changes(rr, "name", ["", "A", "a/b", "a" * 33, 5], "name must be 1 to 32 of a-z, 0-9, _ and -")
    for bad, reported_name in (("Bool", "Bool"), (1, "?")):
        for field in ("type", "mechanism", "window"):
            add(change(rr, field, bad), f"this board does not support {field} {reported_name}")
    # Whose text no board's stack holds.
    add(change(rr, "type", nested(150)), "this board does not support type ?")
    of_labels = "labels must differ and have 1 to 64 bytes"
    changes(choice, "labels", [[], ["a", "a"], [""], ["a" * 65], [1], "ab"], of_labels)
    low = "low must be an integer from -1099511627776 to 1099511627776"
    changes(grr, "low", [-1099511627777, 10**30, 0.5], low)
    changes(grr, "high", [2**40 + 1, True], low.replace("low", "high"))
    changes(grr, "low", [50_000], "low must be less than high")
    changes(grr, "bins", [1, 16_777_217, 2.0], "bins must be an integer from 2 to 16777216")
    changes(rr, "missing", [0, 2, True], "missing must be an integer from 1 to 1")
    changes(rr, "missing", [None], "missing is missing")
    add(text(missing=1, **free), "rr requires two values")
    add(change(TEXTS, "missing", 1), "a text does not support missing readings")
    add(number(64, "sw", reach=15, missing=1, **free), "sw does not support missing readings")
    changes(TEXTS, "salt", ["s" * 33], "salt must be 1 to 32 bytes")
    changes(TEXTS, "slots", [4095], "slots must be a power of 2")
    changes(TEXTS, "prefixes", [[3, 2]], "prefixes must not decrease")
    add(number(64, "sw", reach=-1), "reach must be an integer from 0 to 8388608")
    add(text(mechanism="sw", reach=0), "sw supports only numbers")
    add(number(2**24, "sw", reach=0, epsilon=1_000, **free), "epsilon is too small for so many codes")
    add(number(11, "pgr", q=4), "q must be a prime")
    add(number(2**24, "pgr", q=2, **free), "more than 16777216 codes")
    changes(PREFIXES, "weights", [[1, 1]], "weights must be a list of 3 integers from 1 to 65535")
    part, other = ({"name": name, "type": "bool"} for name in "ab")
    pair = text(type="pair", of=[part, other], mechanism="views", views=[[0], [1]], cells=[2, 2], **free)
    changes(pair, "weights", [[0, 0]], "weights must not all be 0")
    changes(pair, "views", [[[0], [0]], [[0], [0, nested(150)]]], "views must differ and ascend")
    changes(pair, "of", [[part, part]], "of has a wrong name or too many values")
    changes(pair, "of", [[part, {**other, "missing": 0}]], "missing must be an integer from 1 to 1")
    changes(pair, "missing", [1], "unknown field missing")
    for bad in (4, 255):
        add(change(olh, "g", bad), f"cells: {bad} must be 256 or a prime below it")
    changes(olh, "g", [1, 256, 257], "g must be an integer from 2 to 255")
    changes(grr, "mechanism", ["rr"], "rr requires two values")
    changes(tree, "fanout", [1, 257, "4"], "fanout must be an integer from 2 to 256")
    lists = [[4, 3, 3], [4, 3, 3, 3, 3], 4, [4, 3, 3, 1], [4, 3, 3, True]]
    changes(tree, "cells", lists, "cells must be a list of 4 integers from 2 to 16777216")
    for bad, g, nodes in (([5, 3, 3, 3], 5, 4), ([4, 4, 3, 3], 4, 16), ([4, 3, 3, 257], 257, 256)):
        add(change(tree, "cells", bad), f"cells: {g} must be {nodes} or a prime below it")
    four = "weights must be a list of 4 integers from 0 to 65535"
    changes(tree, "weights", [[1, 1, 1], [1] * 5, [1, 1, 1, 65_536], [1, -1, 1, 1], [1, 1, 1, True], 1], four)
    changes(tree, "weights", [[1, 1, 1, 0]], "the last weight must not be 0")
    for field in ("color", "labels", "g"):
        add(change(rr, field, 3), "unknown field " + field)
    for payload, field, value in ((rr, "color", None), (rr, "cap", 1), (olh, "weights", [1])):
        add(change(payload, field, value), "unknown field " + field)
    add(change(rr, "every", None), "every is missing")
    many = "more than 16777216 codes"
    add(number(2**24, "olh", g=3), many)
    add(number(65_536, "olh", g=257, epsilon=8_000_000), many)
    add(hh(2**23, 2**12, [2**11, 2]), many)  # each level alone would be allowed
    small = "epsilon is too small for so many cells"
    add(number(2**24, "grr", epsilon=1_000), small)
    add(hh(2**22, 2, [2] * 20 + [2**21, 2], weights=[0] * 21 + [1], epsilon=1_000), small)
    changes(rr, "budget", [[], 4_000_000], "budget must be an object")
    for bad, reported_name in (("total", "total"), (1, "?")):
        add(
            change(rr, "budget", {"rule": bad, "cap": 1}), f"this board does not support rule {reported_name}"
        )
    caps = [{"rule": "count", "cap": bad} for bad in (0, 2**54, True, 1.0)]
    changes(rr, "budget", caps, "cap must be an integer from 1 to 18014398509481983")
    changes(rr, "budget", [{"cap": 1}], "rule is missing")
    changes(rr, "budget", [{"rule": "sum"}], "cap is missing")
    changes(rr, "budget", [{"rule": "unlimited", "cap": 1}], "unknown field cap in budget")
    changes(rr, "budget", [{"rule": "sum", "cap": 1, "delta": 1}], "unknown field delta in budget")
    return cases


def settings() -> list[dict[str, Any]]:
    """Return invalid device ids, keys and fleets, and the text of the SettingsError."""
    cases = []
    good = {"device": "d", "key": None, "announce_key": None, "fleet": None}
    reason = "device_id must be 1 to 32 of a-z, 0-9 and -"
    for bad in ("", "A", "a_b", "a/b", "a+", "#", "a" * 33, 5, None):
        cases += [{**good, "device": bad, "text": reason}]
    for name, right in (("key", 32), ("announce_key", 64)):
        for size in (0, right - 1, right + 1):
            reason = "key must be 32 bytes, announce_key 64, or None"
            cases.append({**good, "fleet": "home", name: "00" * size, "text": reason})
    for bad in (None, "", "A", "a/b", "a" * 33):
        reason = "fleet must be 1 to 32 of a-z, 0-9, _ and -"
        cases.append({**good, "announce_key": "00" * 64, "fleet": bad, "text": reason})
    return cases


def questions() -> list[dict[str, Any]]:
    """Return the scope of consent to each experiment; null if its fields cannot be read."""
    odd = [
        ' { "name" : "r" , "of":[ {"b":-0,"a":[ ]} , { } ],"epsilon": 4294967294} ',
        '{"epsilon":1,"B":1,"a":2,"AB":3,"A":4,"":5,"aa":6}',
        '{"epsilon":5,"a":{"x":1,"x":[2,"t"]},"a":{"x":1,"x":[3,"t"]},"epsilon":7}',
        '{"v":1,"g":1,"q":1,"reach":1,"fanout":1,"cells":1,"weights":1,"every":1,"budget":1,"window":1,"epsilon":0}',
        '{"epsilon":1,"of":[{"v":1,"g":1,"epsilon":2}],"high":123456789012345678901234567890}',
        '{"epsilon":1,"__proto__":{"cells":[1]},"constructor":"x","views":[[0],[0,1]]}',
        '{"epsilon":1,"every":[null,true,1.5],"budget":{"rule":null},"labels":["{","a b~","]",""]}',
        '{"epsilon":1,"a":[[[[1]]]],"b":[{},{"c":{"d":[]}}]}',
    ]
    refused = [
        *(
            '{"epsilon":1,"a":1.5}',
            '{"epsilon":1,"a":1e2}',
            '{"epsilon":1,"a":-0.0}',
            '{"epsilon":1,"a":1e999}',
        ),
        *('{"epsilon":1,"a":true}', '{"epsilon":1,"a":[{"b":null}]}', '{"a":1}', '{"epsilon":"1"}'),
        *('{"epsilon":-1}', '{"epsilon":4294967296}', '{"epsilon":1.0}', '{"epsilon":true}', '{"epsilon":1'),
        *('["epsilon"]', '{"epsilon":1}x', "", " ", "1", '{"epsilon":1,"a":01}', '{"epsilon":1,"a":+1}'),
    ]
    cases: list[dict[str, Any]] = [
        {"payload": payload, "question": ref.question_of(payload).hex()}
        for payload in (*EXPERIMENTS, *odd, *GROUPED, SCALED[0], WORLD)
    ]
    return cases + [{"payload": payload, "question": None} for payload in refused]


ORIGIN = "example.org/questions"
# The log and three witnesses, the last often a stranger; policies have none of the others.
LOG_KEYS = [SIGNING_KEY + 100 * i for i in range(1, 25)]


def logs() -> list[dict[str, Any]]:
    """Return the policies' "log" that proofs() refers to by number."""
    keys = [ref.public_key(key).hex() for key in LOG_KEYS[:4]]
    rule = {"origin": ORIGIN, "keys": keys[:3], "need": 2}
    swapped = [keys[0], keys[2], keys[1]]
    changes = [{}, {"keys": keys}, {"origin": "example.org/question"}, {"keys": swapped}]
    changes += [{"keys": keys[:2], "need": 1}, {"keys": [keys[0], *keys[2:]]}]
    return [rule | change for change in changes]


def proofs() -> list[dict[str, Any]]:
    """Return proofs under one of logs(), and the entry's index or why they are refused."""
    origin, fleet, name = ORIGIN, "home", "e"
    two, three, other, swapped, one, rotated = range(6)
    topic = f"hushmote/v1/{fleet}/experiment/{name}"
    payload = ref.signed(text(), SIGNING_KEY, fleet, name, 7)
    malformed = "its proof is malformed"
    wrong = "it is not in the log, or a signature in its proof is wrong"
    few = "too few witnesses have signed its proof"
    cases: list[dict[str, Any]] = []

    def add(proof: bytes, why: str | None, index: int | None = None, **changes: Any) -> None:
        case = {"log": two, "fleet": fleet, "name": name, "payload": payload.hex(), **changes}
        cases.append({**case, "proof": proof.hex(), "index": index, "refused": why})

    def proof(index: int, size: int, signers: Sequence[int] = (0, 1, 2), **changes: Any) -> bytes:
        parts = {"origin": origin, "private": LOG_KEYS, "topic": topic, "payload": payload, **changes}
        return reference_log.proof_of(signers=signers, index=index, size=size, **parts)

    most = 2**32 - 1
    shapes = [
        (0, 1),
        (0, 2),
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 5),
        (6, 7),
        (7, 8),
        (8, 9),
        (5, 9),
        (511, 1000),
        (512, 1025),
    ]
    shapes += [(999, 1000), (1023, 1024), (1024, 1025), (2**16, 2**16 + 3), (0, 2**31), (2**31, 2**31 + 1)]
    for index, size in (*shapes, (0, most), (most - 1, most), (2**31 - 1, most)):
        add(proof(index, size), None, index)
    good = proof(5, 9)
    path_end = 9 + 4 * 32
    assert len(good) == path_end + 64 + 2 * 68
    for signers in ([0, 1, 2], [0, 1, 3], [0, 2, 3], [0, 1, 2, 3]):
        add(proof(5, 9, signers), None, 5, log=three)
    # A client skips witnesses that its policy does not have, and those that it does not need.
    everyone = proof(5, 9, range(4))
    for log in (one, two, three, rotated):
        add(everyone, None, 5, log=log)
    add(proof(5, 9, [0, 1, 2, *range(4, 22)]), None, 5)  # 1,561 bytes
    add(proof(5, 9, [0, 1, 2, *range(4, 23)]), malformed)  # 1,629
    add(proof(5, 9, [0, 1, *range(4, 23)]), few)
    add(everyone[:-64] + bytes(64), None, 5, log=three)
    add(b"", "its proof from the log is missing")
    # Lengths and numbers.
    for length in (1, 8, 9, 10, path_end - 1, path_end, path_end + 63, len(good) - 1):
        add(good[:length], malformed)
    add(good + b"\0", malformed)
    add(good[:8] + b"\xff" + good[9:], malformed)
    for index, size in ((9, 9), (10, 9), (0, 0), (most, most), (most, 0)):
        add(index.to_bytes(4, "big") + size.to_bytes(4, "big") + good[8:], malformed)
    for index, size in (
        (0, 16),
        (7, 16),
        (8, 17),
        (5, 2**20),
    ):  # these need more hashes than the proof has, or 4
        add(index.to_bytes(4, "big") + size.to_bytes(4, "big") + good[8:], wrong if size == 16 else malformed)
    add(good[:8] + b"\5" + bytes(32) + good[9:], malformed)
    add(good[:8] + b"\3" + good[41:], malformed)
    # Another tree, entry or log.
    add((4).to_bytes(4, "big") + good[4:], wrong)
    add(good[:7] + b"\x0a" + good[8:], wrong)  # leaf 5 has as many hashes above it among 10 as among 9
    for at in (9, 9 + 31, 9 + 64, path_end - 1):
        add(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], wrong)
    add(good[:9] + good[41:73] + good[9:41] + good[73:], wrong)
    add(good, wrong, payload=ref.signed(text(), SIGNING_KEY, fleet, name, 8).hex())
    add(good, wrong, payload=ref.signed(text(epsilon=2_000_000), SIGNING_KEY, fleet, name, 7).hex())
    add(good, wrong, name="f")
    add(good, wrong, fleet="away")
    add(good, wrong, log=other)
    add(proof(5, 9, origin="example.org/other"), wrong)
    add(proof(5, 9, payload=payload + b"\0"), wrong)
    # Signatures.
    head, own = good[:path_end], good[path_end : path_end + 64]
    first, second = good[-136:-68], good[-68:]
    for signature in (own, first[4:], second[4:]):
        at = good.index(signature)
        for bit in (0, 32, 63):
            add(good[: at + bit] + bytes([good[at + bit] ^ 1]) + good[at + bit + 1 :], wrong)
        high = ref.P256_ORDER - int.from_bytes(signature[32:], "big")
        add(good[: at + 32] + high.to_bytes(32, "big") + good[at + 64 :], wrong)
        add(good[:at] + bytes(64) + good[at + 64 :], wrong)
    add(head + first + second, malformed)
    add(head + own, few)
    add(head + own + first, few)
    add(head + own + second, few)
    add(head + own, few, log=three)
    for signer in (1, 2, 3):
        add(proof(5, 9, [0, signer]), few, log=three)
    add(proof(5, 9, [1, 2, 3]), wrong, log=three)
    add(head + own + first + first, few)
    add(head + own + second + first + first, None, 5)
    add(head + own + second + first + second[:4] + bytes(64), None, 5)  # the first one counts
    add(head + own + second[:4] + bytes(64) + first + second, wrong)
    add(head + own + first + b"\xff" + second[1:], few)
    add(head + own + first[:4] + second[4:] + second, wrong)
    add(head + own + first + second[:4] + own, wrong)
    add(proof(5, 9, [0, 1, 3]), few)  # a stranger as a witness
    add(proof(5, 9, [3, 1, 2]), wrong)
    add(proof(5, 9, [0, 0, 1]), few)  # the log as a witness
    add(good, None, 5, log=swapped)  # the order of a policy's witnesses does not matter
    older = proof(5, 8)  # an older tree that has the entry is as good
    add(older, None, 5)
    add(older[:-68] + second, wrong)  # but its signatures cannot be mixed
    return cases


SECTIONS = (thresholds, experiments, codes, buckets, drbg, reports)
SECTIONS += (signatures, withdrawals, ledgers, malformed, settings)


def is_further(case: dict[str, Any], keys: set[str]) -> bool:
    """Return whether a case needs a file in addition to ldp_client.py; `keys` belong to such experiments."""
    if "withdrawal" in case:
        return True
    return case.get("experiment") in keys or FURTHER.search(case.get("payload", "")) is not None


def build(further: bool = False) -> str:
    """Return the text of vectors.json, or of vectors_further.json."""
    keys = {fields_key(payload) for payload in EXPERIMENTS if FURTHER.search(payload)}
    cases = {f.__name__: [case for case in f() if is_further(case, keys) == further] for f in SECTIONS}
    return format_sections({name: own for name, own in cases.items() if own})


def build_groups() -> str:
    """Return the text of vectors_groups.json."""
    sections = {"experiments": group_experiments(), "reports": group_reports()}
    return format_sections(sections | {"policies": policies(), "malformed": malformed_groups()})


def build_text() -> str:
    """Return the text of vectors_text.json."""
    sections = {"experiments": group_experiments([WORLD]), "buckets": world_buckets()}
    return format_sections(sections | {"reports": group_reports([WORLD]), "malformed": malformed_text()})


def build_scale() -> str:
    """Return the text of vectors_scale.json."""
    return format_sections({"scales": scales(), "malformed": malformed_scales()})


def build_questions() -> str:
    """Return the text of vectors_questions.json."""
    return format_sections({"questions": questions()})


def build_log() -> str:
    """Return the text of vectors_log.json."""
    return format_sections({"logs": logs(), "proofs": proofs()})


def format_sections(sections: dict[str, list[dict[str, Any]]]) -> str:
    """Return sections as JSON with one case per line."""
    parts = []
    for name, cases in sections.items():
        lines = ",\n".join(as_json(case) for case in cases)
        parts.append(f'"{name}":[\n{lines}\n]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    texts = {PATH: build(), FURTHER_PATH: build(further=True), GROUPS_PATH: build_groups()}
    texts |= {TEXT_PATH: build_text(), SCALE_PATH: build_scale(), QUESTIONS_PATH: build_questions()}
    texts[LOG_PATH] = build_log()
    for path, content in texts.items():
        path.write_text(content, encoding="utf-8")
        print(f"{path}: {path.stat().st_size} bytes")
