"""An independent implementation of the board's computations, written from the design.

It computes thresholds with 60-digit decimals, tags with hmac, the DRBG with hashlib, signatures with
`cryptography`, hashes with lists of digits and records with struct. It must not import the client.
"""

import hashlib
import hmac
import json
import math
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ONE = 2**30
RULES = ("unlimited", "sum", "squares", "count")
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def threshold(epsilon: int, g: int, inside: int = 1) -> int:
    """Return floor(p * ONE) for p = inside e^eps / (inside e^eps + g - 1); epsilon in micro-nats."""
    with localcontext() as context:
        context.prec = 60
        e = inside * (Decimal(epsilon) / 1_000_000).exp()
        return int((e / (e + g - 1) * ONE).to_integral_value(ROUND_FLOOR))


class ReferenceDRBG:
    """SHA-256 with fast key erasure: domain 0 mixes in entropy, 1 makes the next key, 2 upwards output."""

    def __init__(self, seed: bytes) -> None:
        self.k = bytes(32)
        self.words: list[int] = []
        self.update(seed)

    def hashed(self, domain: int, more: bytes = b"") -> bytes:
        return hashlib.sha256(struct.pack("B32s", domain, self.k) + more).digest()

    def update(self, data: bytes) -> None:
        self.words = []
        self.k = self.hashed(0, data)

    def generate(self, n: int) -> bytes:
        blocks = [self.hashed(2 + i) for i in range(-(-n // 32))]
        self.k = self.hashed(1)
        return b"".join(blocks)[:n]

    def word(self) -> int:
        """Return 30 bits: the low bits of each big-endian word of a 32-byte block."""
        if not self.words:
            self.words = [w % ONE for w in struct.unpack(">8I", self.generate(32))]
        return self.words.pop(0)

    def bernoulli(self, chance: int) -> bool:
        return self.word() < chance

    def below(self, n: int) -> int:
        while True:
            x = self.word() % (1 << (n - 1).bit_length())
            if x < n:
                return x


def domain_of(fields: dict[str, Any]) -> int:
    if fields["type"] == "pair":
        return math.prod(domain_of(part) for part in fields["of"])
    if fields["type"] == "text":
        return fields["slots"] ** len(fields.get("prefixes", [0]))
    values = {"bool": 2, "choice": len(fields.get("labels", [])) + 1, "number": fields.get("bins", 0)}
    return values[fields["type"]] + fields.get("missing", 0)


def missing_index_of(fields: dict[str, Any]) -> int | None:
    """Return the index of a missing reading, in any part, or None if it is drawn uniformly."""
    parts = fields.get("of", [fields])
    return domain_of(fields) - 1 if all("missing" in part for part in parts) else None


def levels_of(fields: dict[str, Any]) -> list[list[int]]:
    """Return [domain, g, t, width, offset, threshold, weight] per level, top first, or per view, in order.

    A view's nodes are its table's cells.
    """
    if fields["mechanism"] in ("sw", "pgr", "prefix"):
        return []
    domain = domain_of(fields)
    cells, nodes = [fields.get("g", domain)], [(domain, 1)]
    if fields["mechanism"] == "hh":
        cells = fields["cells"]
        widths = [fields["fanout"] ** below for below in reversed(range(len(cells)))]
        nodes = [(-(-domain // width), width) for width in widths]
    elif fields["mechanism"] == "views":
        domains = [domain_of(child) for child in fields["of"]]
        cells = fields["cells"]
        nodes = [(math.prod(domains[part] for part in view), 1) for view in fields["views"]]
    weights = fields.get("weights", [1] * len(cells))
    levels: list[list[int]] = []
    offset = 0
    for (count, width), g, weight in zip(nodes, cells, weights, strict=True):
        t = 0 if g == count else next(t for t in range(1, 25) if g**t >= count)
        levels.append([count, g, t, width, offset, threshold(fields["epsilon"], g), weight])
        offset += g * (g**t - 1 if t else 1)
    return levels


def wave_code_of(fields: dict[str, Any], index: int, below: Any, bernoulli: Any) -> int:
    """Return a square-wave code: one near the value, or one of the others, in order."""
    reach, codes = fields["reach"], range(fields["bins"] + 2 * fields["reach"])
    near_codes = codes[index : index + 2 * reach + 1]
    far = [code for code in codes if code not in near_codes]
    chance = threshold(fields["epsilon"], len(far) + 1, len(near_codes))
    truthful, a, b = bernoulli(chance), below(len(near_codes)), below(len(far))
    return near_codes[a] if truthful else far[b]


def view_node_of(fields: dict[str, Any], view: list[int], index: int) -> int:
    """Return the cell of a view's table that contains an index of the joint table."""
    values = []
    for child in reversed(fields["of"]):
        index, value = divmod(index, domain_of(child))
        values.insert(0, value)
    node = 0
    for part in view:
        node = node * domain_of(fields["of"][part]) + values[part]
    return node


def points_before(q: int, top: int) -> int:
    """Return the number of points whose 1 is at a digit lower than `top`."""
    return sum(q**i for i in range(top))


def digits_of_points(fields: dict[str, Any]) -> int:
    values = fields["slots"] if fields["mechanism"] == "prefix" else domain_of(fields)
    return next(t for t in range(2, 25) if points_before(fields["q"], t) >= values)


def weights_of(fields: dict[str, Any]) -> list[int]:
    """Return the relative probability of each level."""
    levels = levels_of(fields)
    if levels:
        return [level[6] for level in levels]
    return fields.get("weights", [1] * len(fields["prefixes"])) if fields["mechanism"] == "prefix" else []


def code_count_of(fields: dict[str, Any]) -> int:
    if fields["mechanism"] in ("pgr", "prefix"):
        return points_before(fields["q"], digits_of_points(fields)) * max(len(weights_of(fields)), 1)
    if fields["mechanism"] == "sw":
        return domain_of(fields) + 2 * fields["reach"]
    _, g, t, _, offset, _, _ = levels_of(fields)[-1]
    return offset + g * (g**t - 1 if t else 1)


def code_bytes_of(fields: dict[str, Any]) -> int:
    return ((code_count_of(fields) - 1).bit_length() + 7) // 8


def digits(x: int, g: int, t: int) -> list[int]:
    """Return the base-g digits of x, little-endian."""
    return [x // g**i % g for i in range(t)]


def code_of(fields: dict[str, Any], index: int | None, rng: Any) -> tuple[int, list[list[Any]]]:
    """Return an index's code under a source of draws, and the draws: [primitive, argument, outcome]."""
    draws: list[list[Any]] = []

    def below(n: int) -> int:
        draws.append(["below", n, rng.below(n)])
        return draws[-1][2]

    def bernoulli(chance: int) -> bool:
        draws.append(["bernoulli", chance, int(rng.bernoulli(chance))])
        return bool(draws[-1][2])

    offset = 0
    if index is None and domain_of(fields) <= 2**24:
        index = below(domain_of(fields))
    if fields["mechanism"] == "prefix":
        weights, slots = weights_of(fields), fields["slots"]
        at = below(sum(weights)) if len(weights) > 1 else 0
        level = next(i for i in range(len(weights)) if at < sum(weights[: i + 1]))
        offset = level * code_count_of(fields) // len(weights)
        nothing = below(slots)
        index = nothing if index is None else index // slots**level % slots
    if fields["mechanism"] in ("pgr", "prefix"):
        q, t = fields["q"], digits_of_points(fields)
        chance = threshold(fields["epsilon"], q ** (t - 1) + 1, points_before(q, t - 1))
        lies = not bernoulli(chance)
        rests = [1 + below(q ** (t - 1) - 1), below(q ** (t - 1))]
        side = int(lies)
        return offset + point_at(q, t, index or 0, rests[side], side), draws
    assert index is not None
    if fields["mechanism"] == "sw":
        return wave_code_of(fields, index, below, bernoulli), draws
    levels = levels_of(fields)
    number = 0
    if len(levels) > 1:
        at = below(sum(x[6] for x in levels))
        number = next(i for i in range(len(levels)) if at < sum(y[6] for y in levels[: i + 1]))
    _, g, t, width, offset, chance, _ = levels[number]
    node = index // width
    if fields["mechanism"] == "views":
        node = view_node_of(fields, fields["views"][number], index)
    row = 0
    if t:
        row = below(g**t - 1)
        node = sum(a * v for a, v in zip(digits(row + 1, g, t), digits(node, g, t), strict=True)) % g
    truthful = bernoulli(chance)
    others = range(node + 1, node + g)  # the false value, counted upwards from the true value
    lie = others[below(g - 1)] % g
    return offset + row * g + (node if truthful else lie), draws


def point_at(q: int, t: int, value: int, rest: int, product: int) -> int:
    """Return the index of the point whose product with a value is 0 or 1, its other digits drawn as rest.

    The digit of `rest` where the value has its 1 is the point's top digit, unless that digit is solved for.
    """
    place = next(i for i in range(t) if value < points_before(q, i + 1))
    known = [*digits(value - points_before(q, place), q, place), 1]
    code = digits(rest, q, t)
    if place < t - 1:
        code[t - 1] = code[place]
    code[place] = (product - sum(known[i] * code[i] for i in range(place))) % q
    top = max(i for i in range(t) if code[i])
    unit = pow(code[top], -1, q)
    return points_before(q, top) + sum(code[i] * unit % q * q**i for i in range(top))


def bucket_of(fields: dict[str, Any], value: Fraction) -> int:
    """Return a number's index: rounded to milli-units, then put in equally wide bins with open end bins."""
    milli = (value * 1000 + Fraction(1, 2)).__floor__() if value.denominator > 1 else int(value) * 1000
    low, high, bins = fields["low"], fields["high"], fields["bins"]
    if "scale" in fields:
        return max(bisect_right(scale_edges_of(fields)[:-1], milli) - 1, 0)
    return min(max((milli - low) * bins // (high - low), 0), bins - 1)


def scale_edges_of(fields: dict[str, Any]) -> list[int]:
    """Return the edges of a number's logarithmic bins, in milli-units."""
    low, high, bins = fields["low"], fields["high"], fields["bins"]

    def edges(growth: int) -> list[int]:
        return [*accumulate(range(bins), lambda e, _: e + (e * growth // 2**20 or 1), initial=low)]

    growth = bisect_left(range(2**41), 1, key=lambda g: edges(g)[-1] > high) - 1
    return [*edges(growth)[:-1], high]


def slot_of(salt: str, slots: int, text: bytes, level: int = 0) -> int:
    """Return a string's slot: a digest's first eight-byte word, as an integer, modulo the slot count."""
    (word,) = struct.unpack_from(
        ">Q", hashlib.sha256(salt.encode() + struct.pack("B", level) + text[:255]).digest()
    )
    return word % slots


def text_index_of(fields: dict[str, Any], text: bytes) -> int:
    """Return a string's index: its slot, or one digit per prefix, the first prefix's being the lowest."""
    salt, slots = fields["salt"], fields["slots"]
    starts = [text[:255][:p].ljust(p, b"\0") for p in fields.get("prefixes", [])]
    if not starts:
        return slot_of(salt, slots, text)
    return sum(slot_of(salt, slots, x, i + 1) * slots**i for i, x in enumerate(starts))


def group_index_of(fields: dict[str, Any], value: Any) -> int:
    """Return the position of a group's value in [*groups, "other"]."""
    return {text: i for i, text in enumerate(fields["groups"])}.get(value, len(fields["groups"]))


def every_of(fields: dict[str, Any], group: int) -> int:
    every = fields.get("every", 1)
    return every[group] if isinstance(every, list) else every


def report_of(
    payload: str,
    number: int,
    code: int,
    device: str = "",
    key: bytes | None = None,
    group: int | None = None,
) -> bytes:
    """Return the bytes of a report on the wire; `group` is the index of the open group's value."""
    sha256 = hashlib.sha256(payload.encode()).digest()
    size = code_bytes_of(json.loads(payload))
    flags = 0b01 * (key is not None) + 0b10 * (group is not None)
    body = bytes([0x10 | flags]) + sha256[:4] + struct.pack(">I", number)
    body += b"" if group is None else struct.pack("B", group)
    body += code.to_bytes(size, "big")
    if key is None:
        return body
    return body + hmac.digest(key, device.encode() + b"\x00" + sha256 + body, "sha256")[:8]


def question_of(payload: str) -> bytes:
    """Return the bytes that an opt-in applies to under "ask": "each"; see docs/wire-format.md."""
    fields = json.loads(payload)
    left_out = ("v", "epsilon", "every", "budget", "window", "g", "q", "reach", "fanout", "cells", "weights")
    left_out += ("groups",)
    kept_fields = {name: value for name, value in fields.items() if name not in left_out}
    canonical = json.dumps(kept_fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).digest()[:8] + struct.pack(">I", fields["epsilon"])


def public_key(private: int) -> bytes:
    """Return x and y of a P-256 key."""
    point = ec.derive_private_key(private, ec.SECP256R1()).public_key().public_numbers()
    return point.x.to_bytes(32, "big") + point.y.to_bytes(32, "big")


def signed(payload: str, private: int, fleet: str, name: str, serial: int = 1) -> bytes:
    """Return a keyed fleet's retained message, signed by ECDSA with RFC 6979 nonces and a low s."""
    body = payload.encode() + b"\x00" + struct.pack(">I", serial)
    text = f"hushmote/v1/{fleet}/experiment/{name}".encode() + b"\x00" + body
    algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    r, s = decode_dss_signature(ec.derive_private_key(private, ec.SECP256R1()).sign(text, algorithm))
    return body + r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", zlib.crc32(body))


def ledger_record(
    sequence: int,
    entries: Sequence[tuple[str, int, str, int, int]] = (),
    total: int = 0,
    squares: int = 0,
    unsent: Sequence[bytes] = (),
    consent: bool | None = True,
    seed: bytes = bytes(16),
    asked: bool = True,
) -> bytes:
    """Return a ledger record; entries are (experiment name, last number, rule, pinned cap, spent).

    asked: False for a client that participated without opting in and could only opt out.
    """
    out = struct.pack(">BBI16s", 0x4E + (None, False, True).index(consent), len(entries), sequence, seed)
    if not asked:
        out = struct.pack(">BB", 0x4D, (consent is not False) << 7 | len(entries)) + out[2:]
    out += total.to_bytes(6, "big") + struct.pack(">Q", squares)
    for name, number, rule, cap, spent in entries:
        out += hashlib.sha256(name.encode()).digest()[:4] + struct.pack(">I", number)
        out += (RULES.index(rule) << 54 | cap).to_bytes(7, "big") + spent.to_bytes(7, "big")
    return sealed(out + b"".join(bytes([len(r)]) + r for r in unsent))
