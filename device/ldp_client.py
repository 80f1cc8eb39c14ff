"""Hushmote's board side: randomize a reading, debit the privacy budget, hand over a report.

This one file is all that ever sees a reading. Read it top to bottom: arithmetic, randomness,
experiments (value -> index -> code), the budget ledger, the client. It knows nothing of networks.
It needs only modules of stock MicroPython firmware and runs unchanged on CPython.

Units: epsilon is an integer number of micro-nats (1_000_000 is epsilon = 1), squares of it are
micro-nats squared, numbers are milli-units. From index to code, and in the budget, there is no float.

    provision("/ldp")                      once, by somebody who holds the board
    client = Client(POLICY, "/ldp", device_id="k3f9x1")
    client.enroll(payload)                 an experiment, as the server published it
    report = client.report("room_temp", 21.4)      bytes to publish, or None
    client.sent(report)                    the broker acknowledged it
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false

import binascii
import hashlib
import os

try:
    from micropython import const
except ImportError:  # CPython

    def const(x):
        return x


try:
    import machine
except ImportError:  # CPython, or a port without hardware
    machine = None

ONE = 1 << 30  # probabilities are integers out of ONE
EPSILON_MIN = const(1_000)
EPSILON_MAX = const(16_000_000)

_MAX_CODES = const(1 << 24)
_MAX_G = const(1 << 16)
_MAX_JSON_BYTES = const(1024)
_MAX_MILLI = const(1 << 40)
_MAX_CAP = const(1 << 54)  # what a ledger entry can hold
_NAME_CHARS = "abcdefghijklmnopqrstuvwxyz0123456789_-"
_NAME_TEXT = " must be 1 to 32 of a-z, 0-9, _ and -"
_DEVICE_CHARS = _NAME_CHARS.replace("_", "")
_RULES = ("unlimited", "sum", "squares", "count")  # the order is the ledger's encoding


class LDPError(Exception):
    """Base of every error this file raises, TypeError for a reading of the wrong type excepted."""


class ExperimentRefused(LDPError):
    """An experiment that is malformed, unsigned, or outside the policy; the text says why."""


class SettingsError(LDPError):
    """The firmware's own settings (policy, device id, keys) do not fit; the text says which."""


class EntropyError(LDPError):
    """There is no random source, or it is stuck; nothing was reported or spent."""


class LedgerExists(LDPError):
    """provision() found a ledger, whole or damaged, and left it alone."""


class LedgerError(LDPError):
    """The ledger is locked, or the storage failed; nothing was reported or spent."""


# --- Arithmetic -----------------------------------------------------------------------------------


def _exp_bounds(epsilon, bits):
    """Integers low <= e^-(epsilon / 10^6) * 2^bits <= high."""
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
    # Each term is short by less than 2 units, and so are x and the terms left out together.
    low = total - 2 * i - 4
    high = total + 2 * i + 4
    for _ in range(halvings):
        low = low * low >> bits
        high = (high * high >> bits) + 1
    return low, high


def truth_threshold(epsilon, g):
    # type: (int, int) -> int
    """Return exactly floor(p * ONE) for p = e^eps / (e^eps + g - 1), the same on every runtime.

    epsilon in micro-nats, 1_000 to 16_000_000; g, the number of cells, 2 to 2**24. Rounding down
    keeps the ratio of truth to lie below e^eps. p is irrational, so the two bounds meet.
    Raises ExperimentRefused outside these ranges.
    """
    if not (EPSILON_MIN <= epsilon <= EPSILON_MAX and 2 <= g <= _MAX_CODES):
        raise ExperimentRefused("epsilon or g out of range")
    bits = 96
    while True:
        low, high = _exp_bounds(epsilon, bits)
        least = (ONE << bits) // ((1 << bits) + (g - 1) * high)
        most = (ONE << bits) // ((1 << bits) + (g - 1) * low)
        if least == most:
            return least
        bits += 64


def _is_prime(n):
    if n < 2:
        return False
    i = 2
    while i * i <= n:
        if n % i == 0:
            return False
        i += 1
    return True


_IPAD = int.from_bytes(b"\x36" * 64, "big")
_OPAD = int.from_bytes(b"\x5c" * 64, "big")


def _hmac(key, *parts):
    """HMAC-SHA256 of the joined parts; the key has at most 64 bytes (here always 32)."""
    block = int.from_bytes(key + bytes(64 - len(key)), "big")
    inner = hashlib.sha256((block ^ _IPAD).to_bytes(64, "big"))
    for part in parts:
        inner.update(part)
    outer = hashlib.sha256((block ^ _OPAD).to_bytes(64, "big"))
    outer.update(inner.digest())
    return outer.digest()


def _valid_name(name, chars):
    return type(name) is str and 1 <= len(name) <= 32 and not name.strip(chars)


# --- Randomness -----------------------------------------------------------------------------------

# os.urandom is not enough by itself: raw ring-oscillator bits on a Pico W before MicroPython 1.28, a
# plain generator on an ESP32 whose radio is off. So plenty of it is condensed, together with a seed
# that lives in the ledger and the board's id, and a little more is mixed in at every call.
_ENTROPY_BYTES = const(384)
_RESEED_BYTES = const(64)
# A source with at least 1 bit of entropy per byte repeats itself this often once in 2^40 tries
# (repetition count test, NIST SP 800-90B section 4.4.1).
_MAX_REPEATS = const(41)


def _entropy(n):
    """n bytes of os.urandom, n a multiple of 64; EntropyError where the source is missing or stuck."""
    try:
        data = os.urandom(n)
    except (AttributeError, NotImplementedError, OSError):
        data = b""
    if len(data) != n:
        raise EntropyError("no os.urandom: build the firmware with one")
    repeats = 1
    for i in range(1, n):
        repeats = repeats + 1 if data[i] == data[i - 1] else 1
        if repeats >= _MAX_REPEATS or (i % 32 == 0 and data[i : i + 32] == data[i - 32 : i]):
            raise EntropyError("os.urandom is stuck: power-cycle or replace the board")
    return data


class DRBG:
    """HMAC-DRBG with SHA-256 (NIST SP 800-90A section 10.1.2) behind the two primitives.

    seed: entropy, nonce and personalisation, joined. What was drawn before cannot be computed from
    the state, nor from a later draw.
    """

    def __init__(self, seed):
        self._key = bytes(32)
        self._v = b"\x01" * 32
        self._pool = b""
        self._at = 0
        self.reseed(seed)

    def reseed(self, entropy):
        """Mix entropy in; bits drawn ahead are thrown away."""
        self._update(entropy)
        self._pool = b""
        self._at = 0

    def _update(self, data):
        self._key = _hmac(self._key, self._v, b"\x00", data)
        self._v = _hmac(self._key, self._v)
        if data:
            self._key = _hmac(self._key, self._v, b"\x01", data)
            self._v = _hmac(self._key, self._v)

    def generate(self, n):
        """n random bytes."""
        out = b""
        while len(out) < n:
            self._v = _hmac(self._key, self._v)
            out += self._v
        self._update(b"")
        return out[:n]

    def _bits(self):
        """30 uniform bits: what fits a small integer on every board."""
        at = self._at
        if at == len(self._pool):
            self._pool = self.generate(32)
            at = 0
        self._at = at + 4
        p = self._pool
        return (p[at] & 0x3F) << 24 | p[at + 1] << 16 | p[at + 2] << 8 | p[at + 3]

    def bernoulli(self, threshold):
        """True with probability threshold / ONE, exactly."""
        return self._bits() < threshold

    def below(self, n):
        """Uniform over range(n), 1 <= n <= 2**24, exactly: by rejection, never by modulo."""
        if not 1 <= n <= _MAX_CODES:
            raise ValueError("below() takes 1 to 16777216")
        mask = 1
        while mask < n:
            mask <<= 1
        mask -= 1
        while True:
            x = self._bits() & mask
            if x < n:
                return x


# --- Experiments: value -> index -> code ----------------------------------------------------------


class Level:
    """A domain and its g-ary randomized response: the whole of rr, grr and olh, one level of hh.

    domain     number of nodes; a node stands for width neighbouring indices (1 but in hh)
    g, t       cells; base-g digits of the hash, 0 where the node itself is the cell (g == domain)
    seeds      g**t - 1 nonzero hash seeds, 1 where there is no hash
    threshold  the truth is told with probability threshold / ONE
    offset     of its codes in the experiment's; code_count of them
    weight     how often the level is drawn, out of the experiment's weight_sum
    """

    def __init__(self, epsilon, domain, g, width, offset, weight):
        self.domain = domain  # type: int
        self.g = g  # type: int
        self.width = width  # type: int
        self.offset = offset  # type: int
        self.weight = weight  # type: int
        t = 0
        size = 1
        if g != domain:
            while size < domain:
                size *= g
                t += 1
        self.t = t  # type: int
        self.seeds = size - 1 if t else 1  # type: int
        self.code_count = self.seeds * g  # type: int
        if offset + self.code_count > _MAX_CODES:
            raise ExperimentRefused("more than 16777216 codes: take a smaller domain")
        self.threshold = truth_threshold(epsilon, g)  # type: int
        # At or below 1/g the truth is no likelier than each lie: e^eps would bound the wrong ratio.
        if self.threshold * g <= ONE:
            raise ExperimentRefused("epsilon is too small for so many cells: take a smaller g")


# The board and the server must read the same bytes alike, and json.loads does not: MicroPython's takes
# text without commas, cut off, or with keys that are numbers. So an experiment's JSON is read here.
_NOT_JSON = const("not a JSON object")


def _skip(text, at):
    while text[at : at + 1] == " ":
        at += 1
    return at


def _parse_value(text, at, depth):
    """Return a JSON value in text from at on (str, int, list, dict), and where it ends.

    A float, true, false or null becomes a tuple of its text, which no field of an experiment takes.
    """
    at = _skip(text, at)
    c = text[at : at + 1]
    if c == '"':
        end = text.find('"', at + 1)
        if end < 0:
            raise ExperimentRefused(_NOT_JSON)
        return text[at + 1 : end], end + 1
    if (c == "{" or c == "[") and depth < 3:
        return _parse_items(text, at + 1, depth, c == "{")
    start = at
    while at < len(text) and text[at] not in ' ,:"[]{}':
        at += 1
    token = text[start:at]
    digits = token[1:] if c == "-" else token
    if not (digits and (c in "+-." or c.isalpha() or c.isdigit())):
        raise ExperimentRefused(_NOT_JSON)
    for d in digits:
        if not "0" <= d <= "9":
            return (token,), at
    if len(digits) > 20 or (digits[0] == "0" and len(digits) > 1):
        return (token,), at
    return int(token), at


def _parse_items(text, at, depth, is_dict):
    pairs = {}
    items = []
    end = "}" if is_dict else "]"
    at = _skip(text, at)
    c = text[at : at + 1]
    while c != end:
        item, at = _parse_value(text, at, depth + 1)
        if is_dict:
            at = _skip(text, at)
            if type(item) is not str or item in pairs or text[at : at + 1] != ":":
                raise ExperimentRefused(_NOT_JSON)
            pairs[item], at = _parse_value(text, at + 1, depth + 1)
        else:
            items.append(item)
        at = _skip(text, at)
        c = text[at : at + 1]
        if c == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == end:
                raise ExperimentRefused(_NOT_JSON)
        elif c != end:
            raise ExperimentRefused(_NOT_JSON)
    return pairs if is_dict else items, at + 1


def _take(fields, name, default=None):
    value = fields.pop(name, default)
    if value is None:
        raise ExperimentRefused(name + " is missing")
    return value


def _take_int(fields, name, low, high, default=None):
    value = _take(fields, name, default)
    if type(value) is not int or not low <= value <= high:
        raise ExperimentRefused("%s must be an integer from %d to %d" % (name, low, high))
    return value


def _take_ints(fields, name, count, low, high, default=None):
    value = _take(fields, name, default)
    good = type(value) is list and len(value) == count
    if good:
        for x in value:
            good = good and type(x) is int and low <= x <= high
    if not good:
        text = "%s must be a list of %d integers from %d to %d"
        raise ExperimentRefused(text % (name, count, low, high))
    return value


def _take_choice(fields, name, choices):
    value = _take(fields, name)
    if type(value) is not str or value not in choices:
        raise ExperimentRefused("%s must be one of %s" % (name, ", ".join(choices)))
    return value


def _take_name(fields, name):
    value = _take(fields, name)
    if not _valid_name(value, _NAME_CHARS):
        raise ExperimentRefused(name + _NAME_TEXT)
    return value


def _take_no_more(fields, where=""):
    for name in fields:
        raise ExperimentRefused("unknown field " + name + where)


class Experiment:
    """What is asked, how it is randomized, and what it may cost; made by Experiment.parse().

    Immutable. name, type, labels, low, high (milli-units), domain, mechanism, fanout (0 but in hh),
    epsilon (micro-nats per report), every, rule, cap, window, levels, weight_sum, code_count,
    code_bytes, sha256 and digest (its first 4 bytes) of the JSON as published.
    """

    @classmethod
    def parse(cls, payload):  # type: (bytes | bytearray | memoryview) -> Experiment
        """Return the Experiment in the bytes of a JSON object of at most 1 KiB.

        Raises ExperimentRefused with the reason; nothing that is not understood is ignored.
        """
        return cls(payload)

    def __init__(self, payload):
        payload = bytes(payload)
        if len(payload) > _MAX_JSON_BYTES:
            raise ExperimentRefused("larger than 1024 bytes")
        for c in payload:
            if not 32 <= c < 127 or c == 92:
                raise ExperimentRefused("must be printable ASCII without a backslash")
        fields, end = _parse_value(payload.decode(), 0, 0)
        if type(fields) is not dict or _skip(payload.decode(), end) != len(payload):
            raise ExperimentRefused(_NOT_JSON)
        self.sha256 = hashlib.sha256(payload).digest()
        self.digest = self.sha256[:4]
        _take_int(fields, "v", 1, 1)
        self.name = _take_name(fields, "name")  # type: str
        self._take_type(fields)
        self.epsilon = _take_int(fields, "epsilon", EPSILON_MIN, EPSILON_MAX)  # type: int
        self._take_mechanism(fields)
        self.every = _take_int(fields, "every", 1, _MAX_CODES, 1)
        self._take_budget(fields)
        self.window = _take_choice(fields, "window", ("hour", "day", "all"))
        _take_no_more(fields)

    def _take_type(self, fields):
        self.type = _take_choice(fields, "type", ("bool", "choice", "number"))  # type: str
        self.labels = ()
        self.low = self.high = 0
        self.domain = 2  # type: int
        if self.type == "choice":
            labels = _take(fields, "labels")
            good = type(labels) is list and labels
            if good:
                for label in labels:
                    good = good and type(label) is str and 1 <= len(label) <= 64
            if not good or len(set(labels)) != len(labels):
                raise ExperimentRefused("labels must be different, of 1 to 64 characters")
            self.labels = tuple(labels)
            self.domain = len(labels) + 1  # the last index is "other": whatever is not listed
        elif self.type == "number":
            self.low = _take_int(fields, "low", -_MAX_MILLI, _MAX_MILLI)
            self.high = _take_int(fields, "high", -_MAX_MILLI, _MAX_MILLI)
            if self.low >= self.high:
                raise ExperimentRefused("low must be less than high")
            self.domain = _take_int(fields, "bins", 2, _MAX_CODES)

    def _take_mechanism(self, fields):
        self.mechanism = _take_choice(fields, "mechanism", ("rr", "grr", "olh", "hh"))  # type: str
        self.fanout = 0  # type: int
        domain = self.domain
        cells = [domain]
        weights = [1]
        if self.mechanism == "rr" and domain != 2:
            raise ExperimentRefused("rr is for two values: take grr, olh or hh")
        if self.mechanism == "olh":
            cells = [_take_int(fields, "g", 2, _MAX_G)]
            if not _is_prime(cells[0]) or cells[0] >= domain:
                raise ExperimentRefused("g must be a prime below the domain")
        elif self.mechanism == "hh":
            self.fanout = _take_int(fields, "fanout", 2, domain)
            height = 0
            nodes = 1
            while nodes < domain:
                nodes *= self.fanout
                height += 1
            cells = _take_ints(fields, "cells", height, 2, _MAX_CODES)
            weights = _take_ints(fields, "weights", height, 0, 65535, [1] * height)
            if not weights[-1]:
                raise ExperimentRefused("the last of the weights must not be 0")
        levels = []
        offset = 0
        width = self.fanout ** (len(cells) - 1)
        for g, weight in zip(cells, weights):
            nodes = (domain + width - 1) // width
            if g != nodes and (g > nodes or g > _MAX_G or not _is_prime(g)):
                text = "cells: %d must be %d or a prime below it"
                raise ExperimentRefused(text % (g, nodes))
            levels.append(Level(self.epsilon, nodes, g, width, offset, weight))
            offset += levels[-1].code_count
            width //= self.fanout or 1
        self.levels = tuple(levels)  # type: tuple[Level, ...]
        self.weight_sum = sum(weights)  # type: int
        self.code_count = offset  # type: int
        self.code_bytes = 1 if offset <= 1 << 8 else 2 if offset <= 1 << 16 else 3

    def _take_budget(self, fields):
        budget = _take(fields, "budget")
        if type(budget) is not dict:
            raise ExperimentRefused("budget must be an object")
        self.rule = _take_choice(budget, "rule", _RULES)
        self.cap = 0 if self.rule == "unlimited" else _take_int(budget, "cap", 1, _MAX_CAP - 1)
        _take_no_more(budget, " in budget")

    def cost(self):
        """What one report takes from the cap: micro-nats, micro-nats squared, or 1."""
        if self.rule == "sum":
            return self.epsilon
        if self.rule == "squares":
            return self.epsilon * self.epsilon
        return 1

    def bucket(self, value):
        """Return the index of a reading, in range(domain), or None for no reading (None, NaN).

        bool experiments take bool or int (a pin's value), choice str, number int or float in whole
        units. Numbers outside low..high, infinities included, fall into the end bins; a label that is
        not listed is the last index. Raises TypeError for another type, for nothing else.
        """
        if value is None:
            return None
        if isinstance(value, float):
            if value != value:
                return None
            if self.type == "number":
                return self._bin_float(value)
        elif self.type == "choice":
            if isinstance(value, str):
                labels = self.labels
                for i in range(len(labels)):
                    if labels[i] == value:
                        return i
                return len(labels)
        elif self.type == "bool":
            if isinstance(value, (bool, int)):
                return 1 if value else 0
        elif isinstance(value, int) and not isinstance(value, bool):
            return self._bin(value * 1000)
        want = "str" if self.type == "choice" else self.type
        raise TypeError("%s takes a %s or None" % (self.name, want))

    def _bin(self, milli):
        if milli >= self.high:
            return self.domain - 1
        if milli < self.low:
            return 0
        return (milli - self.low) * self.domain // (self.high - self.low)

    def _bin_float(self, value):
        value *= 1000
        # Infinities, and what would overflow on the way to an integer.
        if value >= self.high:
            return self.domain - 1
        if value < self.low:
            return 0
        value += 0.5  # to the nearest milli-unit, so that 1.001 is 1001 in single precision too
        milli = int(value)
        return self._bin(milli - 1 if milli > value else milli)

    def randomize(self, index, rng):
        """Return a code in range(code_count) for an index in range(domain), or None for no reading.

        rng: an object with bernoulli(threshold) and below(n).

        Privacy: for every code and every two indices (None included) the probabilities' ratio is at
        most e^epsilon. Utility: docs/mathematics.md; the best variance of local hashing for g near
        e^epsilon + 1. Cost: at most 5 draws and t multiplications of numbers below g, whatever the
        index. Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for
        Frequency Estimation", USENIX Security 2017, sections 4.1 and 4.4; for hh Cormode, Kulkarni,
        Srivastava, "Answering Range Queries Under Local Differential Privacy", VLDB 2019, section 4.
        """
        if index is None:
            index = rng.below(self.domain)
        elif not 0 <= index < self.domain:
            raise ValueError("index must be in range(%d)" % self.domain)
        level = self.levels[0]
        if len(self.levels) > 1:
            draw = rng.below(self.weight_sum)
            for level in self.levels:
                if draw < level.weight:
                    break
                draw -= level.weight
        g = level.g
        code = level.offset
        cell = index // level.width
        if level.t:
            seed = 1 + rng.below(level.seeds)
            code += (seed - 1) * g
            node = cell
            cell = 0
            for _ in range(level.t):  # always t steps, whatever the node
                cell += node % g * (seed % g)
                node //= g
                seed //= g
            cell %= g
        # Both are always drawn: the time taken does not tell a lie from the truth.
        truthful = rng.bernoulli(level.threshold)
        other = rng.below(g - 1)  # one of the g - 1 *other* cells: with all g, epsilon would be larger
        if not truthful:
            cell = (cell + 1 + other) % g
        return code + cell


# --- The budget ledger ----------------------------------------------------------------------------

# Storage has four slots. 0 and 1 hold the ledger, written in turn; 2 and 3 the reports of an outage,
# written in turn. A write that is cut short can only hurt the slot that was not in force.
#
# Every record, big-endian: 1 format   1 count   4 sequence number   body   4 CRC-32
# Ledger, 126 bytes with 3 experiments and one pending report (stored inline by littlefs, which wears
# the flash 20 to 40 times less than a block of its own); count is enabled << 7 | number of experiments:
#     16 seed   6 sum of epsilon   8 sum of epsilon**2, over the board's whole life
#     per experiment: 4 first bytes of SHA-256(name)   4 last report number
#                     7 rule << 54 | pinned cap   7 spent (rule count: the pinned epsilon)
#     0 to 20 the pending report
# Outbox: per report 1 length and the report.
_LEDGER = const(0x4C)
_OUTBOX = const(0x4F)
_HEAD_BYTES = const(30)
_ENTRY_BYTES = const(22)
_SEED_BYTES = const(16)
_OUTBOX_REPORTS = const(16)  # pending at most, all in all
_MAX_ENTRIES = const(64)
_MAX_SUM = const(1 << 48)
_MAX_SQUARES = const(1 << 64)
_MAX_UINT32 = const((1 << 32) - 1)


class FileStorage:
    """Four slots as files in a folder: read(slot) -> bytes or None, write(slot, data)."""

    _FILES = ("/ledger0", "/ledger1", "/outbox0", "/outbox1")

    def __init__(self, folder):
        self._folder = folder

    def make_folder(self):
        try:
            os.mkdir(self._folder)
        except OSError:
            pass  # it is there; or it cannot be made, and the first write says why

    def read(self, slot):
        """The slot's bytes, None where it was never written; OSError where it cannot be read."""
        try:
            with open(self._folder + self._FILES[slot], "rb") as f:
                return f.read()
        except OSError as e:
            if e.args and e.args[0] in (2, 44):  # ENOENT, and WebAssembly's. No other is an empty slot
                return None
            raise

    def write(self, slot, data):
        """Replace the slot's bytes; OSError where that fails."""
        with open(self._folder + self._FILES[slot], "wb") as f:
            f.write(data)
            if hasattr(os, "fsync"):  # CPython; on boards closing the file commits it
                f.flush()
                os.fsync(f.fileno())


def _storage_failed(e):
    return LedgerError("storage failed: errno %s" % (e.args[0] if e.args else "unknown"))


def _uint(data, at, n):
    return int.from_bytes(data[at : at + n], "big")


class _Entry:
    """One experiment's line in the ledger: what was pinned at its first report, and what is gone."""

    def __init__(self, number, rule, cap, spent):
        self.number = number  # of the last report; also how many there were
        self.rule = rule
        self.cap = cap
        self.spent = spent  # micro-nats or their squares; under count: the epsilon that was pinned


class _State:
    """A ledger record's content. Changes are made to a copy, and hold once the copy is in flash."""

    def __init__(self, seed):
        self.enabled = True
        self.seed = seed
        self.sum = 0
        self.squares = 0
        self.entries = {}
        self.pending = b""

    def copy(self):
        return _State.decode(*self.encode())

    def encode(self):
        """The record's count and body."""
        out = self.seed + self.sum.to_bytes(6, "big") + self.squares.to_bytes(8, "big")
        for key, e in self.entries.items():
            out += key + e.number.to_bytes(4, "big")
            out += (_RULES.index(e.rule) << 54 | e.cap).to_bytes(7, "big") + e.spent.to_bytes(7, "big")
        return (128 if self.enabled else 0) | len(self.entries), out + self.pending

    @classmethod
    def decode(cls, count, body):
        self = cls(body[:_SEED_BYTES])
        self.enabled = count >= 128
        self.sum = _uint(body, 16, 6)
        self.squares = _uint(body, 22, 8)
        end = _HEAD_BYTES + (count & 127) * _ENTRY_BYTES
        for at in range(_HEAD_BYTES, end, _ENTRY_BYTES):
            cap = _uint(body, at + 8, 7)
            rule = _RULES[cap >> 54]
            entry = _Entry(_uint(body, at + 4, 4), rule, cap & (_MAX_CAP - 1), _uint(body, at + 15, 7))
            self.entries[body[at : at + 4]] = entry
        self.pending = body[end:]
        return self


class _Slots:
    """Two slots that are written in turn: the newest whole record wins, only the other is overwritten.

    found: whether anything was there, whole or not; count and body of the record in force, body None
    where there is none. Raises OSError where a slot cannot be read: it might be the newest.
    """

    def __init__(self, storage, first, kind):
        self._storage = storage
        self._first = first
        self._kind = kind
        self._slot = 1
        self.sequence = 0
        self.found = False
        self.count = 0
        self.body = None
        for slot in (0, 1):
            record = storage.read(first + slot)
            if record is None or (slot == 0 and not record):  # empty: the very first write was cut short
                continue
            self.found = True
            sequence = _uint(record, 2, 4)
            whole = len(record) >= 10 and record[0] == kind and self._seal(record[:-4]) == record
            if whole and (self.body is None or sequence > self.sequence):
                self._slot = slot
                self.sequence = sequence
                self.count = record[1]
                self.body = record[6:-4]

    def _seal(self, record):
        return record + (binascii.crc32(record) & 0xFFFFFFFF).to_bytes(4, "big")

    def commit(self, count, body):
        """Put a record in force; LedgerError, and the old one stays, where storage fails or forgets."""
        if self.sequence == _MAX_UINT32:
            raise LedgerError("the ledger is worn out")
        slot = 1 - self._slot
        record = bytes((self._kind, count)) + (self.sequence + 1).to_bytes(4, "big") + body
        record = self._seal(record)
        try:
            self._storage.write(self._first + slot, record)
            same = self._storage.read(self._first + slot) == record
        except OSError as e:
            raise _storage_failed(e)
        if not same:
            raise LedgerError("storage failed: it reads back otherwise")
        self._slot = slot
        self.found = True
        self.sequence += 1
        self.count = count
        self.body = body


def _open(storage):
    """The slots of the ledger and of the outbox."""
    return _Slots(storage, 0, _LEDGER), _Slots(storage, 2, _OUTBOX)


def _clear(outbox):
    """Empty both slots: dropped reports must not come back when one of them is damaged."""
    if outbox.found:
        outbox.commit(0, b"")
        outbox.commit(0, b"")


def _storage(storage: object):
    return FileStorage(storage) if isinstance(storage, str) else storage


def provision(storage: object, replace=False):
    """Make the empty ledger, once, with the board in hand; raises LedgerExists where there is one.

    storage: a folder, or an object with read(slot) and write(slot, data), slots 0 to 3.
    replace=True overwrites a ledger, whole or damaged. That starts the privacy bound again for
    whoever this board measures, so it needs a new device id and a reason.
    """
    storage = _storage(storage)
    try:
        if isinstance(storage, FileStorage):
            storage.make_folder()
        ledger, outbox = _open(storage)
    except OSError as e:
        raise _storage_failed(e)
    if (ledger.found or outbox.found) and not replace:
        raise LedgerExists("there is a ledger already; replace=True starts its bound again")
    _clear(outbox)
    state = _State(DRBG(_entropy(_ENTROPY_BYTES) + _unique_id()).generate(_SEED_BYTES))
    # Both slots, the older one first: at no moment is there no ledger, and none of the old one stays.
    for _ in range(2):
        count, body = state.encode()
        ledger.commit(count, body)


def _unique_id():
    try:
        return machine.unique_id()
    except AttributeError:  # no machine module, or one without an id
        return b""


# --- The client -----------------------------------------------------------------------------------


def _need(good, text):
    if not good:
        raise SettingsError(text)


def check_policy(policy):
    """Raise SettingsError with the reason unless a Client would take the policy."""
    try:
        fields = dict(policy)
        _take_int(fields, "sum", 0, _MAX_SUM - 1)
        _take_int(fields, "squares", 0, _MAX_SQUARES - 1)
        _take_int(fields, "epsilon", EPSILON_MIN, EPSILON_MAX)
        for rule in _take_tuple(fields, "rules"):
            _take_choice({"rules": rule}, "rules", _RULES)
        names = _take_tuple(fields, "experiments")
        for name in names:
            _take_name({"experiments": name}, "experiments")
        if not len(set([_key(name) for name in names])) == len(names) <= _MAX_ENTRIES:
            raise ExperimentRefused("experiments must be at most 64, each once")
        _take_no_more(fields)
    except (ExperimentRefused, TypeError, ValueError) as e:
        raise SettingsError("policy: %s" % e)


def _take_tuple(fields, name):
    value = _take(fields, name)
    if type(value) not in (tuple, list):  # in the str ("bath"), a forgotten comma, "at" would be found
        raise ExperimentRefused(name + " must be a tuple of str")
    return value


def _key(name):
    """How the ledger calls an experiment. Two names with one key would share a line, not split it."""
    return hashlib.sha256(name.encode()).digest()[:4]


class Client:
    """One board: its experiments, its budget, its unsent reports.

    policy        what this firmware allows, whatever a server asks:
                  sum, squares: reports go on while the life's sum of epsilon <= sum, or that of
                  epsilon**2 <= squares; epsilon: the most one report may cost; rules, experiments:
                  names that may be asked for
    storage       a folder, or an object with read(slot) and write(slot, data), slots 0 to 3
    device_id     1 to 32 of a-z, 0-9 and -; new whenever the board is provisioned, never a MAC
    key           the device's 32-byte key; None in an open fleet
    announce_key  the fleet's 32-byte key for signed experiments; it needs fleet
    fleet         the fleet's name

    rng is the source of all randomness in reports, an object with bernoulli and below; only tests and
    simulations replace it. Raises SettingsError and EntropyError. A ledger that is missing or damaged
    raises nothing: the client is locked (status() says why) and the application goes on.
    """

    def __init__(
        self, policy, storage: object = "/ldp", device_id=None, key=None, announce_key=None, fleet=None
    ):
        check_policy(policy)
        _need(_valid_name(device_id, _DEVICE_CHARS), "device_id must be 1 to 32 of a-z, 0-9 and -")
        for k in (key, announce_key):
            good = k is None or (type(k) is bytes and len(k) == 32)
            _need(good, "key and announce_key must be 32 bytes, or None")
        good = (fleet is None and announce_key is None) or _valid_name(fleet, _NAME_CHARS)
        _need(good, "fleet" + _NAME_TEXT)
        self._policy = policy
        self._storage = _storage(storage)
        self.device_id = device_id
        self.fleet = fleet
        self._device_key = key
        self._announce_key = announce_key
        self._experiments = {}
        self._refusals = {}
        self._error = None
        self._locked = None
        self._state = _State(bytes(_SEED_BYTES))
        self._late = ()  # reports older than the state's pending one: the outbox slots' content
        self._load()
        seed = _entropy(_ENTROPY_BYTES) + self._state.seed + _unique_id()
        self._drbg = DRBG(seed + device_id.encode())
        self.rng: object = self._drbg

    def _load(self):
        try:
            self._ledger, self._outbox = _open(self._storage)
        except OSError as e:
            self._locked = "locked: %s" % _storage_failed(e)
            return
        body = self._ledger.body
        if body is not None:
            self._state = _State.decode(self._ledger.count, body)
            # Reports that opting out was to drop, and a power cut left, are not loaded.
            body = (self._outbox.body or b"") if self._state.enabled else b""
            at = 0
            while at < len(body):
                self._late += (body[at + 1 : at + 1 + body[at]],)
                at += 1 + body[at]
        elif self._ledger.found:
            self._locked = "locked: the ledger is damaged; provision again"
        else:
            self._locked = "locked: no ledger; provision this board"

    def _commit(self, state):
        count, body = state.encode()
        self._ledger.commit(count, body)
        self._state = state

    def _keep(self, reports):
        """Make reports the outbox slots' content."""
        self._outbox.commit(0, b"".join([bytes((len(r),)) + r for r in reports]))
        self._late = reports

    # Experiments

    def enroll(self, payload):
        """Take part in a retained experiment, signed or not; returns the Experiment.

        Raises ExperimentRefused with the reason, which status() shows as well; a version that is
        refused changes nothing.
        """
        payload = bytes(payload)
        end = payload.find(b"\x00")
        body = payload if end < 0 else payload[:end]
        tag = b"" if end < 0 else payload[end + 1 :]
        name = ""
        try:
            exp = Experiment.parse(body)
            if exp.name not in self._policy["experiments"]:
                raise ExperimentRefused(exp.name + " is not in the policy")
            name = exp.name
            self._check(exp, body, tag)
        except ExperimentRefused as e:
            self._refusals[name] = str(e)
            raise
        self._refusals.pop(name, None)
        self._experiments[name] = exp
        return exp

    def _check(self, exp, body, tag):
        if self._announce_key is not None:
            topic = "hushmote/v1/%s/experiment/%s" % (self.fleet, exp.name)
            right = _hmac(self._announce_key, topic.encode(), b"\x00", body)[:16]
            # Compared as HMACs of their own, so that the time taken tells nothing about the right one.
            if _hmac(self._announce_key, tag) != _hmac(self._announce_key, right):
                raise ExperimentRefused("its signature is missing or wrong")
        if exp.epsilon > self._policy["epsilon"]:
            raise ExperimentRefused("epsilon is above the policy's %d" % self._policy["epsilon"])
        if exp.rule not in self._policy["rules"]:
            raise ExperimentRefused("the policy has no budget rule " + exp.rule)
        entry = self._state.entries.get(_key(exp.name))
        if entry is not None:
            if exp.rule != entry.rule:
                raise ExperimentRefused("its budget rule was pinned as " + entry.rule)
            if exp.rule == "count" and exp.epsilon != entry.spent:
                raise ExperimentRefused("under count its epsilon was pinned as %d" % entry.spent)

    def withdraw(self, name):
        """Take part no longer. What was spent stays spent; unsent reports stay in the outbox."""
        self._experiments.pop(name, None)
        self._refusals.pop(name, None)

    # Reports

    def report(self, name, value):
        """Randomize a reading; returns a report to publish, already debited, or None.

        None: the coin of `every` said no, the budget is spent, the outbox is full, the experiment is
        not there, the client is disabled or locked, or the storage failed (status() says which).
        Which of these it is never depends on the value. Raises TypeError for a value of the wrong
        type and EntropyError for a stuck random source; then nothing was spent.
        """
        exp = self._experiments.get(name)
        if exp is None:
            return None
        self._drbg.reseed(_entropy(_RESEED_BYTES))
        silent = exp.every > 1 and self.rng.below(exp.every) != 0  # before the value is looked at
        index = exp.bucket(value)
        state = self._state
        if silent or self._locked or not state.enabled or self._left(exp) < 1:
            return None
        if len(self._late) + (1 if state.pending else 0) >= _OUTBOX_REPORTS:
            return None
        key = _key(name)
        entry = state.entries.get(key) or _Entry(0, exp.rule, exp.cap, 0)
        code = exp.randomize(index, self.rng)
        report = self._encode(exp, entry.number + 1, code)
        new = state.copy()
        spent = exp.epsilon if exp.rule == "count" else entry.spent
        if exp.rule == "sum" or exp.rule == "squares":
            spent += exp.cost()
        new.entries[key] = _Entry(entry.number + 1, entry.rule, entry.cap, spent)
        new.sum += exp.epsilon
        new.squares += exp.epsilon * exp.epsilon
        new.seed = self._drbg.generate(_SEED_BYTES)
        new.pending = report
        try:
            if state.pending and state.pending not in self._late:
                # An outage. The older report is in both places until the commit, in one afterwards.
                self._keep(self._late + (state.pending,))
            self._commit(new)
        except LedgerError as e:
            self._error = str(e)
            return None
        self._error = None
        return report

    def _left(self, exp):
        """How many more reports at this epsilon keep every bound, the experiment's and the board's for life.

        For each bound that is the largest n with spent + n * cost <= cap.
        """
        state = self._state
        epsilon = exp.epsilon
        square = epsilon * epsilon
        number = spent = 0
        cap = exp.cap
        entry = state.entries.get(_key(exp.name))
        if entry is not None:
            number = entry.number
            spent = number if exp.rule == "count" else entry.spent
            cap = min(entry.cap, cap)
        elif len(state.entries) >= _MAX_ENTRIES:
            return 0
        # For life: while the sum is within its bound, or the squares are within theirs.
        left = (self._policy["sum"] - state.sum) // epsilon
        left = max(left, (self._policy["squares"] - state.squares) // square)
        if exp.rule != "unlimited":
            left = min(left, (cap - spent) // exp.cost())
        # And no more than the ledger's fields can hold.
        left = min(left, (_MAX_SUM - 1 - state.sum) // epsilon, (_MAX_SQUARES - 1 - state.squares) // square)
        return max(min(left, _MAX_UINT32 - number), 0)

    def _encode(self, exp, number, code):
        report = b"\x10" if self._device_key is None else b"\x11"
        report += exp.digest + number.to_bytes(4, "big") + code.to_bytes(exp.code_bytes, "big")
        if self._device_key is not None:
            report += _hmac(self._device_key, self.device_id.encode(), b"\x00", exp.sha256, report)[:8]
        return report

    def outbox(self):
        """Reports that no broker has acknowledged, oldest first; send them again as they are."""
        if self._locked or not self._state.enabled:
            return []
        reports = list(self._late)
        if self._state.pending and self._state.pending not in reports:
            reports.append(self._state.pending)
        return reports

    def sent(self, report):
        """Drop a report that the broker acknowledged. Raises LedgerError where the storage fails:
        the report then stays, and a second copy of it does no harm."""
        if report in self._late:
            self._keep(tuple([r for r in self._late if r != report]))
        if report and report == self._state.pending:
            new = self._state.copy()
            new.pending = b""
            self._commit(new)

    # Opt-out and status

    @property
    def enabled(self):
        """Whether this board reports at all. Kept in flash; setting False drops unsent reports.

        Setting it raises LedgerError where the ledger is locked or cannot be written; after a failed
        False the client is silent all the same until it is started again.
        """
        return self._state.enabled

    @enabled.setter
    def enabled(self, value):
        if self._locked:
            raise LedgerError(self._locked)
        new = self._state.copy()
        new.enabled = bool(value)
        new.pending = b"" if not value else new.pending
        if value and not self._state.enabled:
            _clear(self._outbox)  # a power cut while opting out may have left it
        if not value:
            self._state.enabled = False
            self._state.pending = b""
            self._late = ()
        self._commit(new)
        if not value:
            self._commit(new)  # both slots: dropped reports must not come back when one is damaged
            _clear(self._outbox)

    def status(self):
        """What this board does and why, as a dict of plain values.

        locked, error: None or a line of text; enabled; pending: unsent reports; sum, squares: spent
        in the board's life; experiments: name -> state (reporting, spent, refused, absent), reports
        made, left (reports the budget still holds), digest, epsilon, reason (of a refusal); refused:
        why the last experiment that is not among these was refused, or None.
        """
        experiments = {}
        for name in self._policy["experiments"]:
            exp = self._experiments.get(name)
            entry = self._state.entries.get(_key(name))
            line = {"state": "absent", "reports": entry.number if entry else 0, "left": None}
            line["reason"] = self._refusals.get(name)
            if exp is not None:
                line["left"] = 0 if self._locked else self._left(exp)
                line["state"] = "reporting" if line["left"] else "spent"
                line["digest"] = binascii.hexlify(exp.digest).decode()
                line["epsilon"] = exp.epsilon
            elif line["reason"]:
                line["state"] = "refused"
            experiments[name] = line
        return {
            "locked": self._locked,
            "error": self._error,
            "enabled": self._state.enabled,
            "pending": len(self.outbox()),
            "sum": self._state.sum,
            "squares": self._state.squares,
            "experiments": experiments,
            "refused": self._refusals.get(""),
        }
