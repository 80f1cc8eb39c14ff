"""Hushmote's board side: randomize a reading, debit the privacy budget, return a report.

Only this file and the ldp_*.py modules that the application imports ever see a reading. Read it from top to
bottom: arithmetic, randomness, experiments (value -> index -> code), the budget ledger, the client. It does
no networking, needs only the modules of stock MicroPython, and runs unchanged on CPython.

Units: epsilon is an integer number of micro-nats (1_000_000 is epsilon = 1), its squares are in micro-nats
squared, and numbers are in milli-units. No floats are used between index and code, or in the budget.

Only the reading is protected. An experiment may have one open group, such as the firmware's version: if the
policy names the group, each report also contains the board's value of it, as an index in the clear.

    provision("/ldp")                      once, by someone with physical access to the board
    client = Client(POLICY, "/ldp", device_id="k3f9x1")
    client.consent = True                  someone at the board opts in; until then it is silent
    client.enroll(payload)                 an experiment as published by the server
    report = client.report("room_temp", 21.4)      bytes to publish, or None
    client.sent(report)                    the broker acknowledged it
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false

import binascii
import hashlib
import json
import os
import sys

try:
    from micropython import const
except ImportError:  # CPython
    const = int

try:
    from machine import unique_id
except ImportError:  # CPython, or a port without unique_id()
    unique_id = bytes

try:
    from _thread import allocate_lock  # pyright: ignore[reportAssignmentType]
except ImportError:  # a port without threads: a callback returns before the call that it interrupted resumes

    class allocate_lock:
        """A lock for ports without threads: it refuses nested calls, which would otherwise wait forever."""

        locked = False

        def acquire(self, _):
            locked, self.locked = self.locked, True
            return not locked

        def release(self):
            self.locked = False


ONE = 1 << 30  # probabilities are integers out of ONE
EPSILON_MIN = const(1_000)
EPSILON_MAX = const(16_000_000)

_MAX_CODES = const(1 << 24)
_MAX_G = const(1 << 16)
_MAX_MILLI = const(1 << 40)
_MAX_CAP = const(1 << 54)  # the limit of a ledger entry's field
_MAX_GROUPS = const(15)
_NAME_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789-_"
_NAME_TEXT = " must be 1 to 32 of a-z, 0-9, _ and -"
_RULES = ("unlimited", "sum", "squares", "count")  # the ledger stores a rule's index in this tuple


def _import_sibling(name):
    """Import a module that is next to this file: in its package on CPython, in the same folder on a board."""
    path = __name__[:-10] + name  # without "ldp_client"
    module = __import__(path, None, None, ("*",))
    if path == name:
        sys.modules.pop(name, 0)  # a board needs the module only briefly, and then needs its memory back
    return module


class LDPError(Exception):
    """The base class of this file's errors, except TypeError for a reading of the wrong type."""


class ExperimentRefused(LDPError):
    """The experiment is malformed, unsigned or not allowed by the policy; the message says why."""


class SettingsError(LDPError):
    """One of the firmware's own settings (policy, device id, keys) is wrong; the message says which."""


class EntropyError(LDPError):
    """The random source is missing or stuck; nothing was reported or spent."""


class LedgerExists(LDPError):
    """provision() found a ledger, intact or damaged, and did not change it."""


class LedgerError(LDPError):
    """The ledger is locked, or the storage failed; nothing was reported or spent."""


# --- Arithmetic -----------------------------------------------------------------------------------


def _exp_bounds(epsilon, bits):
    """Return integers low and high with low <= e^-(epsilon / 10^6) * 2^bits <= high."""
    halvings = 0
    while epsilon << 4 >= 1_000_000 << halvings:  # until epsilon / 2^halvings is below 1/16
        halvings += 1
    x = (epsilon << bits) // (1_000_000 << halvings)
    term = total = 1 << bits
    i = 0
    while term:
        i += 1
        term = (term * x >> bits) // i
        total += -term if i & 1 else term
    # Each term is less than 2 units too small, and so are x and the sum of the omitted terms.
    low, high = total - 2 * i - 4, total + 2 * i + 4
    for _ in range(halvings):
        low = low * low >> bits
        high = (high * high >> bits) + 1
    return low, high


def truth_threshold(epsilon, g, inside=1):  # type: (int, int, int) -> int
    """Return floor(p * ONE) for p = inside e^eps / (inside e^eps + g - 1), exactly, on every runtime.

    `inside` codes share p, and the other g - 1 codes share the rest. Rounding p down keeps the ratio below
    e^eps. p is irrational, so the two bounds agree once they have enough bits.

    Args:
        epsilon: ε in micro-nats, 1_000 to 16_000_000.
        g: 2 to 2**24.
        inside: The number of codes that share p.

    Raises:
        ExperimentRefused: If epsilon or g is out of range.
    """
    check(EPSILON_MIN <= epsilon <= EPSILON_MAX and 2 <= g <= _MAX_CODES, "epsilon or g out of range")
    bits = 96
    while True:
        low, high = _exp_bounds(epsilon, bits)
        one = inside << bits
        least = ONE * one // (one + (g - 1) * high)
        most = ONE * one // (one + (g - 1) * low)
        if least == most:
            return least
        bits += 64


def is_prime(n):
    """Return whether n is prime, by trial division; n is at least 0."""
    i = 2
    while i * i <= n and n % i:
        i += 1
    return i * i > n > 1


def _sha256(data):
    return hashlib.sha256(data).digest()


def _hmac(key, data):
    """Return HMAC-SHA256 (RFC 2104) for a key of 32 bytes."""
    key += bytes(32)
    return _sha256(bytes([k ^ 0x5C for k in key]) + _sha256(bytes([k ^ 0x36 for k in key]) + data))


def _valid_name(name, chars):
    return type(name) is str and 1 <= len(name) <= 32 and not name.strip(chars)


# --- Randomness -----------------------------------------------------------------------------------

# os.urandom alone is not good enough: it returns raw ring-oscillator bits on a Pico W before MicroPython
# 1.28, and the output of a plain generator on an ESP32 whose radio is off. So we hash a lot of it together
# with the board's id and a seed kept in the ledger, and mix in a little more on every call.
_ENTROPY_BYTES = const(384)
_RESEED_BYTES = const(128)
# Even a source with only 1 bit of entropy per byte fails this repetition check in fewer than one of 2^22
# calls, and such a call just makes no report; a good source never repeats a piece of this length.
_PIECE_BYTES = const(32)


def _entropy(n):
    """Return n bytes of os.urandom; raise EntropyError if the source is missing or stuck.

    A stuck source repeats itself, though not necessarily every byte: an RP2040 whose oscillator has stopped
    returns a cycle of 93 bytes. So the first piece must not occur again, and the last must not occur earlier.
    """
    try:
        data = os.urandom(n)
    except (AttributeError, OSError, RuntimeError):  # RuntimeError is the base class of NotImplementedError
        data = b""
    check(len(data) == n, "this firmware has no os.urandom", EntropyError)
    last = n - _PIECE_BYTES
    good = data.find(data[:_PIECE_BYTES], 1) < 0 and data.find(data[last:]) == last
    check(good, "os.urandom is stuck: power-cycle the board", EntropyError)
    return data


class DRBG:
    """A deterministic random bit generator: SHA-256 with fast key erasure, plus two primitives.

    The state is a 32-byte key. SHA-256 of byte 1 and the key is the next key; SHA-256 of byte 2, 3, ... and
    the key is the output; SHA-256 of byte 0, the key and new entropy is the key after a reseed. These inputs
    differ in their first byte or their length, so SHA-256 acts as a keyed random function. The guarantees are
    those of HMAC-DRBG (SP 800-90A) with a fifth of the hashing: earlier output cannot be computed from the
    state, and new entropy makes a compromised state secret again.
    Citation: Bernstein, "Fast-key-erasure random-number generators", 2017.
    """

    def __init__(self, seed):
        self._key = bytes(32)
        self.reseed(seed)

    def reseed(self, entropy):
        """Mix entropy into the state, and discard any bits that were generated but not used."""
        self._key = _sha256(b"\x00" + self._key + entropy)
        self._pool = b""

    def generate(self, n):
        """Return n random bytes, at most 8,096."""
        key = self._key
        self._key = _sha256(b"\x01" + key)
        out = b""
        block = 2
        while len(out) < n:
            out += _sha256(bytes((block,)) + key)
            block += 1
        return out[:n]

    def _bits(self):
        """Return 30 uniform bits, which fit into a small integer on every board."""
        p = self._pool or self.generate(32)
        self._pool = p[4:]
        return (p[0] & 0x3F) << 24 | p[1] << 16 | p[2] << 8 | p[3]

    def bernoulli(self, threshold):
        """Return True with probability threshold / ONE, exactly."""
        return self._bits() < threshold

    def below(self, n):
        """Return an exactly uniform number from range(n), 1 <= n <= 2**24, by rejection, never by modulo."""
        if not 1 <= n <= _MAX_CODES:
            raise ValueError("n must be 1 to 16777216")
        mask = 0
        while mask < n - 1:
            mask = mask << 1 | 1
        while True:
            x = self._bits() & mask
            if x < n:
                return x


# --- Experiments: value -> index -> code ----------------------------------------------------------


def check(good, text, error=ExperimentRefused):
    # type: (object, str | None, type[LDPError]) -> None
    """Raise the error with this text unless good."""
    if not good:
        raise error(text)


def is_plain(data):
    """Return whether bytes are strict UTF-8 without backslashes or characters that disturb a line of text.

    Those are control characters, line separators, bidirectional controls, byte-order marks, and U+FFFD, which
    replaces unreadable bytes. The server also requires the form NFC, whose tables are too large for boards.
    """
    left = low = point = 0  # the number of bytes left, the lowest point of that length, the code point
    for c in data:
        if left:
            if c & 0xC0 != 0x80:
                return False
            left -= 1
            point = point << 6 | c & 0x3F
        elif c < 0xC0:  # ASCII, or a byte that cannot begin a character
            if not 0x20 <= c < 0x7F or c == 0x5C:
                return False
            continue
        else:
            left = 1 + (c > 0xDF) + (c > 0xEF)
            low = (0, 0xA0, 0x800, 0x10000)[left]  # 0x80 to 0x9F are control characters
            point = c & (0x1F if left == 1 else 0x0F)
        if not left and (
            not low <= point <= 0x10FFFF
            or point in (0x61C, 0x200E, 0x200F, 0xFEFF, 0xFFFD)
            or 0x2028 <= point <= 0x202E
            or 0x2066 <= point <= 0x2069
            or 0xD800 <= point <= 0xDFFF  # halves of surrogate pairs
        ):
            return False
    return not left


def take(fields, name, default=None):
    """Remove a field and return its value, or the default if it is missing."""
    value = fields.pop(name, default)
    check(value is not None, name + " is missing")
    return value


def take_int(fields, name, low, high, default=None):
    """Take a field that must be an integer from low to high."""
    value = take(fields, name, default)
    good = type(value) is int and low <= value <= high
    check(good, "%s must be an integer from %d to %d" % (name, low, high))
    return value


def take_ints(fields, name, count, low, high, default=None):
    """Take a field that must be a list of count integers from low to high."""
    value = take(fields, name, default)
    good = type(value) is list and len(value) == count
    for x in value if good else ():
        good = good and type(x) is int and low <= x <= high
    check(good, "%s must be a list of %d integers from %d to %d" % (name, count, low, high))
    return value


def take_texts(fields, name, size):
    """Take a field that must be a list of different texts of at most size bytes; return a tuple."""
    texts = take(fields, name)
    good = type(texts) is list and texts
    for text in good or ():
        good = good and type(text) is str and 1 <= len(text.encode()) <= size
    good = good and len(set(texts)) == len(texts)
    check(good, "%s must differ and have 1 to %d bytes" % (name, size))
    return tuple(texts)


def take_choice(fields, name, choices):
    """Take a field that must be one of the texts in choices."""
    value = take(fields, name)
    value = value if type(value) is str else "?"  # formatting a deeply nested value would raise RuntimeError
    check(value in choices, "this board does not support %s %s" % (name, value))
    return value


def take_no_more(fields, where=""):
    """Refuse the experiment if any field is left over."""
    for name in fields:
        raise ExperimentRefused("unknown field %s%s" % (name, where))


def _take_type(reading, fields):
    if reading.type == "choice":
        reading.labels = take_texts(fields, "labels", 64)
        reading.domain = len(reading.labels) + 1  # the last index is "other": any label that is not listed
    elif reading.type == "number":
        reading.low = take_int(fields, "low", -_MAX_MILLI, _MAX_MILLI)
        reading.high = take_int(fields, "high", -_MAX_MILLI, _MAX_MILLI)
        check(reading.low < reading.high, "low must be less than high")
        reading.domain = take_int(fields, "bins", 2, _MAX_CODES)
    if "missing" in fields:  # add one more index, the last, for "no reading"
        reading.missing = reading.domain
        reading.domain += take_int(fields, "missing", 1, 1)


def _bucket(reading, value):
    low, high = reading.low, reading.high
    if reading.type == "choice":
        if isinstance(value, str):
            labels = reading.labels
            return labels.index(value) if value in labels else len(labels)
    elif reading.type == "bool":
        if isinstance(value, (bool, int)):
            return 1 if value else 0
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        value *= 1000
        if isinstance(value, float) and low <= value < high:  # excludes infinities
            value += 0.5  # round to the nearest milli-unit, so that 1.001 is 1001 in single precision too
            milli = int(value)
            value = milli - 1 if milli > value else milli
        bins = reading.missing or reading.domain
        if value >= high:
            return bins - 1
        return (value - low) * bins // (high - low) if value >= low else 0
    return -1


class Level:
    """A domain and its g-ary randomized response: all of rr, grr and olh, or one level of hh.

    Attributes:
        domain: Number of nodes.
        width: Number of neighbouring indices that a node covers; 1 except in hh.
        g: Number of cells.
        t: Number of base-g digits of the hash; 0 if the node itself is the cell (g == domain).
        seeds: Number of nonzero hash seeds, g**t - 1; 1 if there is no hash.
        threshold: The code tells the truth with probability threshold / ONE.
        offset: Index of the level's first code among the experiment's codes.
        weight: How many times the level is drawn, on average, out of weight_sum.
    """

    def __init__(self, epsilon, domain, g, width, offset, weight):
        good = g == domain or (g < domain and g <= _MAX_G and is_prime(g))
        check(good, "cells: %d must be %d or a prime below it" % (g, domain))
        self.domain = domain  # type: int
        self.g = g  # type: int
        self.width = width  # type: int
        self.offset = offset  # type: int
        self.weight = weight  # type: int
        t, size = 0, 1
        while g != domain and size < domain:
            size *= g
            t += 1
        self.t = t  # type: int
        self.seeds = size - 1 if t else 1  # type: int
        self.code_count = self.seeds * g  # type: int
        self.threshold = truth_threshold(epsilon, g)  # type: int
        # At or below 1/g the truth is no likelier than any single lie, so e^eps would bound the wrong ratio.
        check(self.threshold * g > ONE, "epsilon is too small for so many cells")

    def respond(self, node, rng):
        """Return a code for a node in range(domain)."""
        g = self.g
        code = self.offset
        cell = node
        if self.t:
            seed = 1 + rng.below(self.seeds)
            code += (seed - 1) * g
            cell = 0
            for _ in range(self.t):  # always t steps, whatever the node
                cell += node % g * (seed % g)
                node //= g
                seed //= g
        # Both are always drawn, and one expression covers both cases, so timing does not reveal a lie.
        lie = not rng.bernoulli(self.threshold)
        other = 1 + rng.below(g - 1)  # one of the g - 1 *other* cells: with all g, epsilon would be larger
        return code + (cell + lie * other) % g


def pick(exp, rng):
    """Return the report's level, drawn by weight and independently of the reading."""
    level = exp.levels[0]
    if len(exp.levels) > 1:
        draw = rng.below(exp.weight_sum)
        for level in exp.levels:
            if draw < level.weight:
                break
            draw -= level.weight
    return level


def _take_levels(exp, fields):
    domain = exp.domain
    cells, weights = [domain], [1]
    check(exp.mechanism != "rr" or domain == 2, "rr requires two values")
    if exp.mechanism == "olh":
        cells = [take_int(fields, "g", 2, domain - 1)]
    elif exp.mechanism == "hh":
        exp.fanout = take_int(fields, "fanout", 2, domain)
        height, nodes = 0, 1
        while nodes < domain and height < 24:  # more than 2**24 leaves would have too many codes anyway
            nodes *= exp.fanout
            height += 1
        cells = take_ints(fields, "cells", height, 2, _MAX_CODES)
        weights = take_ints(fields, "weights", height, 0, 65535, [1] * height)
        check(weights[-1], "the last weight must not be 0")
    width = exp.fanout ** (len(cells) - 1)
    for g, weight in zip(cells, weights):
        level = Level(exp.epsilon, (domain + width - 1) // width, g, width, exp.code_count, weight)
        width //= exp.fanout or 1
        exp.levels += (level,)
        exp.code_count += level.code_count
    exp.weight_sum = sum(weights)


def _randomize(exp, index, rng):
    """Randomize an index by rr, grr, olh or hh.

    Privacy: for every code and any two indices (including None), the ratio of the code's probabilities is at
    most e^epsilon. Utility: docs/mathematics.md; local hashing is best with g near e^epsilon + 1. Cost: at
    most 5 draws and t multiplications of numbers below g, whatever the index. Citation: Wang, Blocki, Li,
    Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX Security 2017, 4.1, 4.4;
    for hh Cormode, Kulkarni, Srivastava, "Answering Range Queries Under Local Differential Privacy", VLDB
    2019.
    """
    level = pick(exp, rng)
    return level.respond(index // level.width, rng)


def _take_group(exp, fields):
    """Take the open group's name and values, and `every` for each of them or for all."""
    if "group" in fields:
        exp.group = take(fields, "group")
        check(_valid_name(exp.group, _NAME_CHARS), "group" + _NAME_TEXT)
        exp.groups = take_texts(fields, "groups", 32)
        good = len(exp.groups) <= _MAX_GROUPS and "other" not in exp.groups
        check(good, "groups must have at most 15 values, and not other")
    count = len(exp.groups) + 1  # the last index is "other": any value that is not listed
    if exp.group and type(fields.get("every")) is list:
        every = take_ints(fields, "every", count, 1, _MAX_CODES)
    else:
        every = [take_int(fields, "every", 1, _MAX_CODES, 1)] * count
    exp._every, exp.every = every, every[-1]


# The reading types and mechanisms that this board supports, by their names in experiments. Other modules add
# theirs when they are imported. Types: take(exp, fields) sets domain, and also missing if "no reading" has
# its own index; bucket(exp, value) returns an index, None for no reading, or -1 for a wrong type.
# Mechanisms: take(exp, fields) sets code_count; randomize(exp, index, rng) returns a code.
TYPES = dict.fromkeys(["bool", "choice", "number"], (_take_type, _bucket))
MECHANISMS = dict.fromkeys(["rr", "grr", "olh", "hh"], (_take_levels, _randomize))


class Experiment:
    """An experiment's question, randomization and cost. Immutable; use Experiment.parse() to create one.

    Attributes:
        name, type, labels, mechanism, window, rule, cap: The JSON fields of the same names.
        group, groups: The open group's name and listed values; "" and () without one.
        every: The JSON field; if it is a list, its last number, which is that of "other".
        low, high: The range of a number, in milli-units.
        epsilon: Per report, in micro-nats.
        domain: Number of indices.
        missing: The index for no reading, or None if the experiment does not set it.
        levels, weight_sum: The levels of randomized response, and the sum of their weights.
        code_count, code_bytes: Number of codes, and number of bytes per code in a report.
        sha256, digest: SHA-256 of the JSON as it was published, and its first 4 bytes.
        leaf: The index in the public log, which enroll() sets if the policy has "log"; otherwise None.
    """

    group = ""  # type: str
    labels = ()
    groups = ()  # type: tuple[str, ...]
    levels = ()  # type: tuple[Level, ...]
    low = high = fanout = weight_sum = code_count = 0
    domain = 2  # type: int
    every = 1  # type: int
    missing = None  # type: int | None
    leaf = None  # type: int | None

    @classmethod
    def parse(cls, payload):  # type: (bytes | bytearray | memoryview) -> Experiment
        """Return the Experiment in a JSON object of at most 1 KiB, or raise ExperimentRefused."""
        return cls(payload)

    def __init__(self, payload):
        payload = bytes(payload)
        check(len(payload) <= 1024, "larger than 1024 bytes")
        check(is_plain(payload), "must be UTF-8 without backslashes or control characters")
        # MicroPython's json accepts more than JSON (missing commas, numbers as keys). That does no harm: each
        # field is checked below, and a server only counts reports under digests of bytes that it wrote.
        try:
            fields = json.loads(payload.decode())
        except (ValueError, TypeError, RuntimeError):  # TypeError: list as a key; RuntimeError: too deep
            fields = None
        check(type(fields) is dict, "not a JSON object")
        self.sha256 = _sha256(payload)
        self.digest = self.sha256[:4]
        take_int(fields, "v", 1, 1)
        self.name = take(fields, "name")  # type: str
        check(_valid_name(self.name, _NAME_CHARS), "name" + _NAME_TEXT)
        self.key = _key(self.name)  # type: bytes
        self.type = take_choice(fields, "type", TYPES)  # type: str
        setup, self._bucket = TYPES[self.type]
        setup(self, fields)
        self.epsilon = take_int(fields, "epsilon", EPSILON_MIN, EPSILON_MAX)  # type: int
        self.mechanism = take_choice(fields, "mechanism", MECHANISMS)  # type: str
        setup, self._randomize = MECHANISMS[self.mechanism]
        setup(self, fields)
        check(2 <= self.code_count <= _MAX_CODES, "more than 16777216 codes")
        self.code_bytes = 1 + (self.code_count > 1 << 8) + (self.code_count > 1 << 16)
        _take_group(self, fields)
        self.window = take_choice(fields, "window", ("hour", "day", "all"))
        budget = take(fields, "budget")
        check(type(budget) is dict, "budget must be an object")
        self.rule = take_choice(budget, "rule", _RULES)
        self.cap = 0 if self.rule == "unlimited" else take_int(budget, "cap", 1, _MAX_CAP - 1)  # type: int
        take_no_more(budget, " in budget")
        take_no_more(fields)

    def every_of(self, index=0):  # type: (int) -> int
        """Return n, where 1 in n calls makes a report, for a group value's index; 0 without a group."""
        return self._every[index]

    def cost(self):
        """Return the cost of one report against the cap: micro-nats, micro-nats squared, or 1."""
        return self.epsilon ** (_RULES.index(self.rule) % 3)  # the index in _RULES, except 0 for count

    def bucket(self, value):
        """Return the index of a reading, in range(domain), or None.

        A bool accepts a bool or an int (a pin's value), a choice accepts a str, and a number accepts an int
        or float in whole units. Numbers outside low to high, including infinities, are counted in the end
        bins; an unlisted label counts as "other". No reading (None, NaN) returns the last index if the
        experiment sets missing, else None.

        Raises:
            TypeError: If, and only if, the reading is of another type.
        """
        if value is None or (isinstance(value, float) and value != value):
            return self.missing
        index = self._bucket(self, value)
        if index == -1:  # the wrong type, which is a bug in the application
            raise TypeError("%s must be a %s or None" % (self.name, self.type))
        return index

    def randomize(self, index, rng):
        """Return a code in range(code_count).

        Args:
            index: An index in range(domain), or None for no reading. An index is then drawn uniformly, by the
                mechanism itself if the domain is too large for below().
            rng: An object with bernoulli(threshold) and below(n).
        """
        if index is None:
            if self.domain <= _MAX_CODES:
                index = rng.below(self.domain)
        elif not 0 <= index < self.domain:
            raise ValueError("bad index")
        return self._randomize(self, index, rng)


# --- The budget ledger ----------------------------------------------------------------------------

# Storage has two slots, written alternately, so a failed write does not touch the record in force. A record
# is big-endian:
#     1 format + consent (0 not asked, 1 no, 2 yes)   1 number of experiments   4 sequence number
#     16 seed   6 sum of epsilon   8 sum of epsilon**2, over the board's lifetime
#     per experiment: 4 first bytes of SHA-256(name)   4 last report number
#                     7 rule << 54 | pinned cap   7 spent (rule count: the pinned epsilon)
#     per unsent report, oldest first: 1 length   the report
#     4 CRC-32
# Format - 1 was written by clients that did not ask for consent: its second byte is enabled << 7 | number of
# experiments. A stored opt-out is kept; everyone else is asked again.
# A record with 3 experiments and one unsent report has 127 bytes. littlefs stores up to 128 bytes inline,
# which causes 20 to 40 times less flash wear than a separate block; during an outage the record is longer.
_FORMAT = const(0x4E)
_CONSENT = (None, False, True)
_HEAD_BYTES = const(36)
_SEED_BYTES = const(16)
_MAX_UNSENT = const(16)
_MAX_ENTRIES = const(64)
_MAX_SUM = const(1 << 48)
_MAX_SQUARES = const(1 << 64)
_MAX_UINT32 = const((1 << 32) - 1)


class FileStorage:
    """Two slots, stored as files in a folder.

    Where processes share a disk, the object locks the folder for as long as it exists, and the constructor
    raises OSError if another client has the lock.
    """

    def __init__(self, folder):
        self._folder = folder
        self._disk = _import_sibling("disk").Disk(folder) if hasattr(os, "fsync") else None

    def read(self, slot):
        """Return the slot's bytes, or None if it was never written; raise OSError if it cannot be read."""
        try:
            with open("%s/ledger%d" % (self._folder, slot), "rb") as f:
                size = f.seek(0, 2)  # without a size, reading needs up to twice the memory, in one piece
                f.seek(0)
                return f.read(size)
        except OSError as e:
            if e.args and e.args[0] in (2, 44):  # ENOENT (44 in WebAssembly); only this means an empty slot
                return None
            raise

    def write(self, slot, data):
        """Replace the slot's bytes; raise OSError if that fails."""
        path = "%s/ledger%d" % (self._folder, slot)
        if self._disk:
            self._disk.replace(path, data)
        else:
            with open(path, "wb") as f:  # littlefs keeps the old bytes until the file is closed
                f.write(data)


def _storage_failed(e):
    return LedgerError("storage failed: errno %s" % (e.args or ("unknown",))[0])


def _uint(data, at, n):
    return int.from_bytes(data[at : at + n], "big")


def _key(name):
    """Return an experiment's ledger key. Two names with the same key would share one entry's budget."""
    return _sha256(name.encode())[:4]


class _State:
    """The content of a ledger record. Changes are made to a copy, and take effect once it is in flash."""

    def __init__(self, seed):
        self.consent = None
        self.seed = seed
        self.sequence = self.sum = self.squares = 0
        # key -> (last report's number, rule, pinned cap, spent)
        self.entries = {}
        self.unsent = ()  # reports, oldest first

    def copy(self):
        new = _State(self.seed)
        new.consent, new.sum, new.squares = self.consent, self.sum, self.squares
        new.entries, new.unsent = dict(self.entries), self.unsent
        return new

    def encode(self):
        out = bytes((_FORMAT + _CONSENT.index(self.consent), len(self.entries)))
        out += self.sequence.to_bytes(4, "big") + self.seed
        out += self.sum.to_bytes(6, "big") + self.squares.to_bytes(8, "big")
        for key, (number, rule, cap, spent) in self.entries.items():
            out += key + number.to_bytes(4, "big")
            out += (_RULES.index(rule) << 54 | cap).to_bytes(7, "big") + spent.to_bytes(7, "big")
        for report in self.unsent:
            out += bytes((len(report),)) + report
        return out + _crc(out)

    @classmethod
    def decode(cls, data):
        """Return the state in a record, or None if any byte of it is wrong."""
        if len(data) < _HEAD_BYTES + 4 or _crc(data[:-4]) != data[-4:]:
            return None
        consent, count = data[0] - _FORMAT, data[1]
        is_older = consent == -1
        if is_older:
            consent, count = 1 - (count >> 7), count & 127
        if not 0 <= consent < 3:
            return None
        self = cls(data[6:22])
        self.sequence = _uint(data, 2, 4)
        self.consent = _CONSENT[consent]
        self.sum, self.squares = _uint(data, 22, 6), _uint(data, 28, 8)
        at, end = _HEAD_BYTES, len(data) - 4
        for _ in range(count):
            number, cap, spent = _uint(data, at + 4, 4), _uint(data, at + 8, 7), _uint(data, at + 15, 7)
            self.entries[data[at : at + 4]] = (number, _RULES[cap >> 54], cap & (_MAX_CAP - 1), spent)
            at += 22
        while at < end:
            report = data[at + 1 : at + 1 + data[at]]
            self.unsent += (report,)
            at += 1 + len(report) if report else end
        if is_older:  # do not send reports that were made before anyone consented
            self.unsent = ()
        return self if at == end else None


def _crc(data):
    return (binascii.crc32(data) & 0xFFFFFFFF).to_bytes(4, "big")


class _Ledger:
    """The two slots: the record with the higher sequence number is in force, the other is overwritten next.

    Both must be intact and one commit apart: a lost or damaged slot could have been the newer one, and
    continuing from the other would undo a debit. littlefs never leaves such a slot after a power cut.

    Attributes:
        state: The state in force.
        locked: None, or the reason why nothing may be spent.
        unfinished: Whether the slots hold no more than an interrupted provision() leaves; None if unreadable.
    """

    def __init__(self, storage: object):
        self._tried = ()  # the last record passed to write(), whether or not it was stored
        self.state = _State(bytes(_SEED_BYTES))
        self.locked = self.unfinished = None
        self._storage = storage
        try:
            if isinstance(storage, str):
                self._storage = storage = FileStorage(storage)
            self._slots = [storage.read(0), storage.read(1)]  # the slots' last known contents
        except OSError as e:
            self.locked = "locked: %s" % _storage_failed(e)
            return
        odd, even = _State.decode(self._slots[0] or b""), _State.decode(self._slots[1] or b"")
        self.unfinished = not self._slots[1] and (not self._slots[0] or bool(odd and odd.sequence == 1))
        if self.unfinished:
            self.locked = "locked: no ledger; provision this board"
        elif not (odd and even and odd.sequence & 1 and abs(odd.sequence - even.sequence) == 1):
            self.locked = "locked: the ledger is damaged; provision again"
        else:
            self.state = odd if odd.sequence > even.sequence else even

    def commit(self, state):
        """Put a state in force; if storage fails or loses it, raise LedgerError and keep the old state."""
        check(not self.locked, self.locked, LedgerError)
        slot = self.state.sequence & 1  # odd sequence numbers go into slot 0
        state.sequence = self.state.sequence + 1
        check(state.sequence <= _MAX_UINT32, "the ledger is worn out", LedgerError)
        record = state.encode()
        storage, slots = self._storage, self._slots
        try:
            is_ours = storage.read(slot) in (slots[slot], self._tried)
            if storage.read(1 - slot) != slots[1 - slot] or not is_ours:
                self.locked = "locked: another client wrote this ledger"
                raise LedgerError(self.locked)
            self._tried = record
            try:
                storage.write(slot, record)
            finally:
                slots[slot] = storage.read(slot)  # includes whatever a failed write left behind
        except OSError as e:
            raise _storage_failed(e)
        check(slots[slot] == record, "storage failed: the data read back differs", LedgerError)
        self.state = state


def provision(storage: object, replace=False, consent=None):
    """Create the empty ledger, once, by someone with physical access to the board.

    Args:
        storage: See Client.
        replace: Overwrite an existing ledger, intact or damaged. This restarts the privacy bound for the
            people whom the board measures, so it needs a new device id and a good reason.
        consent: True if they have already consented, for example on a signed form.

    Raises:
        LedgerExists: If there is a ledger, and replace is False.
        EntropyError: If the random source is missing or stuck.
        LedgerError: If the storage fails.
    """
    if isinstance(storage, str):
        try:
            os.mkdir(storage)
        except OSError:
            pass  # it exists, or it cannot be created, in which case the first write raises the reason
    state = _State(DRBG(_entropy(_ENTROPY_BYTES) + unique_id()).generate(_SEED_BYTES))
    ledger = _Ledger(storage)
    check(ledger.unfinished is not None, ledger.locked, LedgerError)
    if not (replace or ledger.unfinished):
        ledger = None  # unlock the folder, so that whoever catches the error can use it
        raise LedgerExists("a ledger exists; replace=True would restart its privacy bound")
    # Write both slots, with sequence numbers 1 and 2. The first report's commit has number 3, so a ledger
    # that lost that commit cannot pass for a new one.
    ledger.locked = None
    ledger.state = _State(b"")
    state.consent = consent
    ledger.commit(state)
    ledger.commit(state)


# --- The client -----------------------------------------------------------------------------------


class Client:
    """One board: its experiments, budget and unsent reports.

    Each ledger has one client, used from one thread. A report(), sent() or opt-in that is called during
    another call (from a timer callback or a second thread) spends nothing and does nothing; an opt-out is
    written by that other call before it returns. Where processes share a disk, a folder can have only one
    client at a time; elsewhere, if two clients share a ledger, the one that notices the other locks itself.

    Args:
        policy: A dict of what this firmware allows, whatever a server publishes. sum and squares: reports
            continue while the lifetime sum of epsilon <= sum, or that of epsilon**2 <= squares; epsilon: the
            highest cost of one report; rules and experiments: the allowed names; groups, optional: the names
            of the open groups that experiments may have; log, optional: the public log that must have every
            experiment, see ldp_log.py. Other modules read its optional fields ask and consent_from.
        storage: A folder, or an object with read(slot) and write(slot, data), slots 0 and 1.
        device_id: 1 to 32 of a-z, 0-9 and -; new each time the board is provisioned, never a MAC address.
        key: The device's 32-byte key; None in an open fleet.
        announce_key: The fleet's 64-byte public key, which verifies signed experiments; requires fleet.
        fleet: The fleet's name.

    Attributes:
        groups: An open group's name -> this board's value, such as {"firmware": "2.4.0"}; the application
            sets it. Values are sent unprotected, so they must not depend on a reading.
        log: If the policy has "log", its ldp_log_client.Log, otherwise None. An application that calls
            enroll() itself puts the message on the topic of the experiment's proof into log.proofs before.
        rng: The random source for reports, with bernoulli and below; only tests and simulations replace it.
        serials: The lowest serial number accepted for each signed experiment, by name. An application that
            keeps experiments in flash must keep these as well.

    Raises:
        SettingsError: If an argument is wrong.
        EntropyError: If the random source is missing or stuck. A missing or damaged ledger does not raise an
            error: the client is locked (status() gives the reason) and the application continues.
    """

    log = None  # type: object

    def __init__(
        self, policy, storage: object = "/ldp", device_id=None, key=None, announce_key=None, fleet=None
    ):
        good = type(policy) is dict and len(set(policy) - {"groups", "ask", "consent_from", "log"}) == 5
        for name in ("sum", "squares", "epsilon"):
            good = good and type(policy.get(name)) is int
        for name in ("rules", "experiments"):  # not str: ("bath") lacks a comma, and "at" would be in it
            good = good and type(policy.get(name)) in (tuple, list)
        good = good and type(policy.get("groups", ())) in (tuple, list)
        text = "policy must have int sum, squares, epsilon and tuple rules, experiments, [groups], no more"
        check(good, text, SettingsError)
        good = _valid_name(device_id, _NAME_CHARS[:-1])
        check(good, "device_id must be 1 to 32 of a-z, 0-9 and -", SettingsError)
        for k, size in ((key, 32), (announce_key, 64)):
            good = k is None or (type(k) is bytes and len(k) == size)
            check(good, "key must be 32 bytes, announce_key 64, or None", SettingsError)
        good = fleet is announce_key is None or _valid_name(fleet, _NAME_CHARS)
        check(good, "fleet" + _NAME_TEXT, SettingsError)
        self._policy = policy
        self.device_id = device_id
        self.fleet = fleet
        self.groups = {}
        self._device_key = key
        self._announce_key = announce_key
        self._experiments = {}
        self._refusals = {}
        self._withdrawn = set()  # names that the application withdrew; only its own enroll() brings them back
        self.serials = {}
        if "log" in policy:
            self.log = _import_sibling("ldp_log_client").Log(self)
        self._error = None
        # The last opt-out since startup, and the last one written to flash; each opt-out is a new object.
        self._opt_out = self._stored_opt_out = None
        self._on_opt_out = None  # called when an opt-out is written, or an opt-in after one that failed
        self._lock = allocate_lock()  # held during a call
        self._ledger = _Ledger(storage)
        seed = _entropy(_ENTROPY_BYTES) + self._ledger.state.seed + unique_id()
        self._drbg = DRBG(seed + device_id.encode())
        self.rng: object = self._drbg

    # Experiments

    def enroll(self, payload, verified=False, exp=None):
        """Take part in a retained experiment, signed or not; return the Experiment.

        Args:
            payload: The message's bytes.
            verified: Whether this payload was kept in flash after enroll() had accepted it; its signature is
                then not verified again.
            exp: The result of Experiment.parse() for this JSON; ignored if it is for another.

        Raises:
            ExperimentRefused: If the experiment is not acceptable; status() also shows the reason. The
                previous version stays in force.
        """
        payload = bytes(payload)
        body = payload.partition(b"\x00")[0]
        name = ""
        try:
            if exp is None or exp.sha256 != _sha256(body):
                exp = Experiment.parse(body)
            check(exp.name in self._policy["experiments"], exp.name + " is not in the policy")
            name = exp.name
            self._check(exp)
            if self.log:
                exp.leaf = self.log.verify(name, payload)
            if self._announce_key is not None:
                self._check_signature(name, payload, len(body), verified)
        except ExperimentRefused as e:
            self._refusals[name] = str(e)
            raise
        self._refusals.pop(name, None)
        self._withdrawn -= {name}
        self._experiments[name] = exp
        return exp

    def _check(self, exp):
        most = self._policy["epsilon"]
        check(exp.epsilon <= most, "epsilon is above the policy's %d" % most)
        check(exp.rule in self._policy["rules"], "the policy forbids budget rule " + exp.rule)
        good = not exp.group or exp.group in self._policy.get("groups", ())
        check(good, "the policy does not name group " + exp.group)
        _, rule, _, spent = self._entry(exp)
        check(exp.rule == rule, "its budget rule was pinned as " + rule)
        good = rule != "count" or exp.epsilon == spent
        check(good, "its epsilon was pinned as %d" % spent)

    def _check_signature(self, name, payload, end, verified=False):
        """Check the serial and the signature of a message.

        The JSON and a zero byte are followed by a 4-byte serial number and a 64-byte signature over all that
        precedes it. The serial is compared first, so a replayed old message costs no verification.
        """
        key = self._announce_key
        good = key is not None and payload[end : end + 1] == b"\x00" and len(payload) == end + 69
        serial = _uint(payload, end + 1, 4)
        check(not good or serial >= self.serials.get(name, 0), "a newer version was published")
        if good and not verified:
            text = "hushmote/v1/%s/experiment/%s\x00" % (self.fleet, name)
            digest = _sha256(text.encode() + payload[:-64])
            good = _import_sibling("ldp_p256").verify(key, digest, payload[-64:])
        check(good, "its signature is missing or wrong")
        self.serials[name] = serial

    def withdraw(self, name, payload=None):
        """Stop taking part. Spent budget remains spent; unsent reports remain in the outbox.

        From then on, earlier versions of a signed experiment are refused.

        Args:
            name: The experiment's name.
            payload: The retained message that withdraws it: empty in an open fleet, otherwise a signed
                experiment without JSON. None if the application decided: no reporter then enrolls in any
                version of it until the application calls enroll() itself, or until the next start.

        Raises:
            ExperimentRefused: If the payload is not a withdrawal of this experiment.
        """
        if payload is None:
            self._withdrawn.add(name)
            if name in self._experiments and name in self.serials:
                self.serials[name] += 1
        elif payload or self._announce_key is not None:
            self._check_signature(name, bytes(payload), 0)
        self._experiments.pop(name, None)
        self._refusals.pop(name, None)

    # Reports

    def report(self, name, value, drawn=None, group=None):
        """Randomize a reading; return a report to publish, already debited, or None.

        None means that there is no consent, or it ended during the call, that the draw of `every` skipped it,
        the budget is spent, the outbox is full, the experiment is absent, the client is locked, another call
        is under way, or the storage failed (status() says which). The cause never depends on the value.

        Args:
            name: The experiment's name.
            value: The reading, or None if there is none.
            drawn: What gap.py returned if it drew a report for this call in advance.
            group: The open group's value in the period that the reading describes, such as the version before
                an update; None for the value in `groups`. It must not depend on the reading either.

        Raises:
            TypeError: If the value is of the wrong type; nothing was spent.
            EntropyError: If the random source is missing or stuck; nothing was spent.
        """
        if not self._lock.acquire(False):
            return None
        try:
            exp = self._experiments.get(name)
            if exp is None or not self.consent:  # before the draw, and before the value is looked at
                return None
            self._drbg.reseed(_entropy(_RESEED_BYTES))
            # `every` is drawn before the value is looked at, and depends only on the group.
            group = self._group_bytes(exp, group)
            every = exp.every_of(*group)
            silent = every > 1 and exp.digest + group != drawn and self.rng.below(every)
            index = exp.bucket(value)
            state = self._ledger.state
            if silent or self._remaining(exp) < 1 or len(state.unsent) >= _MAX_UNSENT:
                return None
            new = state.copy()
            number, rule, cap, spent = self._entry(exp)
            report = self._encode(exp, number + 1, group, exp.randomize(index, self.rng))
            if rule == "sum" or rule == "squares":
                spent += exp.cost()
            new.entries[exp.key] = (number + 1, rule, cap, spent)
            new.sum += exp.epsilon
            new.squares += exp.epsilon * exp.epsilon
            new.seed = self._drbg.generate(_SEED_BYTES)
            new.unsent += (report,)
            self._error = None
            self._ledger.commit(new)
            return report if self.consent else None  # someone may have opted out in the meantime
        except LedgerError as e:
            self._error = str(e)
        finally:
            self._release()

    def _group_bytes(self, exp, value=None):
        """Return the byte that reports a group's value: its index. Without a group there is no byte.

        A value that is not listed counts as "other", the last index; None means this board's value.
        """
        value = self.groups.get(exp.group) if value is None else value
        index = exp.groups.index(value) if value in exp.groups else len(exp.groups)
        return bytes((index,)) if exp.group else b""

    def _entry(self, exp):
        """Return the experiment's ledger entry, or the one that its first report will write."""
        new = (0, exp.rule, exp.cap, exp.epsilon if exp.rule == "count" else 0)
        return self._ledger.state.entries.get(exp.key, new)

    def _remaining(self, exp):
        """Return the number of further reports at this epsilon that every bound allows.

        That is the largest n with spent + n * cost <= cap for every cap.
        """
        state = self._ledger.state
        epsilon = exp.epsilon
        square = epsilon * epsilon
        number, rule, cap, spent = self._entry(exp)
        full = len(state.entries) >= _MAX_ENTRIES and exp.key not in state.entries
        # A concurrent call may have pinned another rule since this version was checked.
        if self._ledger.locked or full or rule != exp.rule or (rule == "count" and spent != epsilon):
            return 0
        # For the board's lifetime: while the sum or the squares are within their bound.
        count = (self._policy["sum"] - state.sum) // epsilon
        count = max(count, (self._policy["squares"] - state.squares) // square)
        # For this experiment: within the smaller of the pinned cap and this version's cap.
        if rule != "unlimited":
            count = min(count, (min(cap, exp.cap) - (number if rule == "count" else spent)) // exp.cost())
        # Within the range of the ledger's fields.
        count = min(
            count, (_MAX_SUM - 1 - state.sum) // epsilon, (_MAX_SQUARES - 1 - state.squares) // square
        )
        return max(min(count, _MAX_UINT32 - number), 0)

    def _encode(self, exp, number, group, code):
        key = self._device_key
        report = bytes((0x10 + 2 * len(group) + (1 if key else 0),))
        report += exp.digest + number.to_bytes(4, "big") + group + code.to_bytes(exp.code_bytes, "big")
        if key:
            report += _hmac(key, self.device_id.encode() + b"\x00" + exp.sha256 + report)[:8]
        return report

    def outbox(self):
        """Return the reports that no broker has acknowledged, oldest first; send them again unchanged."""
        return list(self._ledger.state.unsent) if self.consent and not self._ledger.locked else []

    def sent(self, report):
        """Delete a report that the broker acknowledged; if storage fails, keep it and raise LedgerError."""
        if self._lock.acquire(False):
            try:
                new = self._ledger.state.copy()
                unsent = list(new.unsent)
                if report in unsent:
                    unsent.remove(report)
                    new.unsent = tuple(unsent)
                    self._ledger.commit(new)
            finally:
                self._release()

    # Consent and status

    @property
    def consent(self):
        """Whether this board takes part: None if nobody was asked, else True or False. Stored in flash.

        Reports are made only while this is True. Someone at the board sets it to True or to False; False also
        deletes unsent reports. If False is set during another call, that call writes it. If False cannot be
        written, the client is silent all the same, and later calls try again to write it.

        Raises:
            LedgerError: If the ledger is locked or cannot be written, or if True is set during another call.
        """
        return self._opt_out is self._stored_opt_out and self._ledger.state.consent

    @consent.setter
    def consent(self, value):
        check(type(value) is bool, "consent must be True or False", SettingsError)
        if not value:
            self._opt_out = object()
        opt_out = self._opt_out
        if not self._lock.acquire(False):
            check(not value, "another call is in progress", LedgerError)
            return  # the call that holds the lock writes the opt-out
        try:
            if value and self._opt_out is opt_out:  # no opt-out has come since
                self._write_answer(True, opt_out)
        finally:
            self._release()
        check(value or self._opt_out is self._stored_opt_out, self._error, LedgerError)

    def _write_answer(self, value, opt_out):
        """Write an opt-in that is newer than this opt-out, or the opt-out itself."""
        if self._on_opt_out and opt_out is not self._stored_opt_out:
            self._on_opt_out()
        new = self._ledger.state.copy()
        new.consent = value
        if not value:
            new.unsent = ()
        self._ledger.commit(new)
        self._stored_opt_out = opt_out
        self._error = None

    def _release(self):
        """Write any opt-out that came during this call or could not be written earlier; release the lock."""
        while True:
            opt_out = self._opt_out
            try:
                if opt_out is not self._stored_opt_out:
                    self._write_answer(False, opt_out)
            except LedgerError as e:
                self._error = str(e)
            finally:
                self._lock.release()
            # An opt-out that came after self._opt_out was read, but before the release, relies on this call.
            if self._opt_out is opt_out or not self._lock.acquire(False):
                return

    def status(self):
        """Return the board's state, with reasons, as a dict of plain values.

        Returns:
            locked, error: None or a line of text; consent; pending: unsent reports; sum, squares: spent in
            the board's lifetime; experiments: name -> state (reporting, spent, refused, absent), reports
            made, left (reports that the budget still allows), digest, epsilon, group (the
            open group that reports name unprotected, or ""), leaf (the index in the public log, or None
            without a log), reason (of a refusal); refused: why the last experiment that is not among these
            was refused, or None.
        """
        state = self._ledger.state
        experiments = {}
        for name in self._policy["experiments"]:
            exp = self._experiments.get(name)
            reason = self._refusals.get(name)
            line = {"state": "refused" if reason else "absent", "left": None, "reason": reason}
            line["reports"] = state.entries.get(_key(name), (0,))[0]
            if exp:
                line["left"] = self._remaining(exp)
                line["state"] = "reporting" if line["left"] else "spent"
                line["digest"] = binascii.hexlify(exp.digest).decode()
                line["epsilon"] = exp.epsilon
                line["group"] = exp.group
                line["leaf"] = exp.leaf
            experiments[name] = line
        return {
            "locked": self._ledger.locked,
            "error": self._error,
            "consent": self.consent,
            "pending": len(self.outbox()),
            "sum": state.sum,
            "squares": state.squares,
            "experiments": experiments,
            "refused": self._refusals.get(""),
        }
