"""The C client as a shared library, wrapped in a board with the interface of ldp_client.Client."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from c_core import CORE, WITH_LOG, Config, Entropy, Reading, compile_c, reading

OTHERS = ("check", "fuzz")
"""Programs beside the core."""

RULES = ("unlimited", "sum", "squares", "count")
CODES = {
    "BAD_SETTINGS": -1,
    "BAD_ENTROPY": -2,
    "STORAGE": -3,
    "LOCKED": -4,
    "EXISTS": -5,
    "BUSY": -6,
    "WRONG_TYPE": -7,
    "UNKNOWN": -8,
    "WORN_OUT": -9,
    "NO_LEDGER": -10,
    "ANOTHER": -11,
    "NO_IDENTITY": -12,
    "IDENTITY_OTHER": -13,
    "IDENTITY_NEWER": -14,
    "IDENTITY_DAMAGED": -15,
    "REFUSED": -16,
    "REFUSED_POLICY": -17,
    "REFUSED_PINNED": -18,
    "REFUSED_SIGNATURE": -19,
    "REFUSED_SERIAL": -20,
    "REFUSED_MISSING": -21,
    "REFUSED_ROOM": -22,
    "REFUSED_SMALL_EPSILON": -23,
    "REFUSED_UNASKED": -24,
    "REFUSED_GROUP": -25,
    "REFUSED_BROKER": -26,
    "REFUSED_NO_PROOF": -27,
    "REFUSED_PROOF": -28,
    "REFUSED_LOG": -29,
    "REFUSED_WITNESSES": -30,
    "REFUSED_EVERY": -31,
}
NAMES = {code: name for name, code in CODES.items()}

REPORT_BYTES = 21

READ = ctypes.CFUNCTYPE(ctypes.c_long, c_void_p, c_int, POINTER(c_uint8), c_size_t)
WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, POINTER(c_uint8), c_size_t)
LOCK = ctypes.CFUNCTYPE(ctypes.c_bool, c_void_p)
UNLOCK = ctypes.CFUNCTYPE(None, c_void_p)
WRITE_TEXT = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)


class Group(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("value", c_char_p))


class Log(ctypes.Structure):
    _fields_ = (
        ("origin", c_char_p),
        ("keys", POINTER(c_char_p)),
        ("key_count", c_uint8),
        ("need", c_uint8),
        ("check", c_void_p),
    )


class Proof(ctypes.Structure):
    """struct hushmote_proof."""

    _fields_ = (("data", c_char_p), ("bytes", c_size_t), ("leaf", c_uint32))


class Policy(ctypes.Structure):
    _fields_ = (
        ("sum", c_uint64),
        ("squares", c_uint64),
        ("epsilon", c_uint32),
        ("rules", c_uint8),
        ("consent", c_uint8),
        ("name_count", c_uint8),
        ("names", POINTER(c_char_p)),
        ("group_count", c_uint8),
        ("groups", POINTER(Group)),
        ("log", POINTER(Log)),
    )


class Status(ctypes.Structure):
    _fields_ = (
        ("locked", c_int),
        ("error", c_int),
        ("consent", c_int),
        ("pending", c_uint),
        ("sum", c_uint64),
        ("squares", c_uint64),
    )


class Line(ctypes.Structure):
    _fields_ = (
        ("enrolled", ctypes.c_bool),
        ("refused", c_int),
        ("reports", c_uint32),
        ("left", c_uint32),
        ("epsilon", c_uint32),
        ("digest", c_uint8 * 4),
        ("group", POINTER(Group)),
    )


class Last(ctypes.Structure):
    """struct hushmote_last."""

    class Report(ctypes.Structure):
        _fields_ = (("at", c_uint32), ("bytes", c_uint8), ("report", c_uint8 * REPORT_BYTES))

    _fields_ = (("count", c_uint8), ("reports", Report * 8))


@functools.cache
def library() -> Any:
    """Return the core as a shared library that aborts on undefined behaviour."""
    sources = [path.stem for path in sorted(CORE.glob("*.c")) if path.stem not in OTHERS]
    flags = ["-shared", "-fPIC", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    flags.append(WITH_LOG)
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(__file__).with_suffix(".c")
        shared_library = ctypes.CDLL(str(compile_c(Path(folder) / "hushmote.so", [*sources, beside], *flags)))
    shared_library.hushmote_text.restype = c_char_p
    shared_library.hushmote_report.argtypes = [c_void_p, c_char_p, Reading, c_char_p]
    shared_library.hushmote_report_as.argtypes = [c_void_p, c_char_p, Reading, c_char_p, c_char_p]
    shared_library.hushmote_preview.argtypes = [c_void_p, c_char_p, Reading, c_char_p, c_void_p, c_size_t]
    shared_library.hushmote_describe.restype = None
    shared_library.hushmote_enroll.argtypes = shared_library.hushmote_enroll_kept.argtypes = [
        c_void_p,
        c_char_p,
        c_size_t,
    ]
    shared_library.hushmote_withdraw.argtypes = [c_void_p, c_char_p, c_char_p, c_size_t]
    shared_library.test_milli.argtypes = [ctypes.c_double, c_int]
    shared_library.test_milli.restype = c_int64
    shared_library.test_serial.restype = c_uint32
    return shared_library


def pointer(function: Any) -> c_void_p:
    """Return a callback's pointer; keep the callback alive as long as C may call it."""
    return ctypes.cast(function, c_void_p)


class Source:
    """A deterministic random source; it returns a constant while `stuck` is set."""

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0
        self.stuck = False

    def __call__(self, n: int) -> bytes:
        self.calls += 1
        if self.stuck:
            return bytes(n)
        return hashlib.shake_128(b"%d %d" % (self.seed, self.calls)).digest(n)


class Refused(Exception):
    """A function of the C client returned a code below 0; its name is the argument."""


class CBoard:
    """One client in C over a storage with read(slot) and write(slot, data), in Python.

    during: called with "read", "write" or "entropy" in each callback. An exception other than OSError
    from storage, such as PowerCut, disables storage and is raised by the call.
    """

    def __init__(  # noqa: PLR0913 (the parameters of hushmote_begin())
        self,
        policy: dict[str, Any],
        storage: Any,
        device_id: str | None = "board-1",
        key: bytes | None = None,
        announce_key: bytes | None = None,
        fleet: str | None = None,
        *,
        entropy: Callable[[int], bytes],
        unsent: int = 16,
        record_bytes: int = 0,
        begin: bool = True,
    ) -> None:
        self.c = library()
        self.storage, self.entropy, self.policy = storage, entropy, policy
        self.during: Callable[[str], None] = lambda where: None
        self.cut: BaseException | None = None
        names = policy["experiments"]
        self.names = (c_char_p * len(names))(*(name.encode() for name in names))
        consent = 2 if policy.get("ask") == "each" else 0
        rules = sum(1 << RULES.index(rule) for rule in policy["rules"])
        groups = policy.get("groups", ())
        self.group_array = (Group * len(groups))(*(Group(name.encode()) for name in groups))
        self.rules = Policy(
            *(policy["sum"], policy["squares"], policy["epsilon"], rules, consent),
            *(len(names), self.names, len(groups), self.group_array),
        )
        if log := policy.get("log"):
            self.log_keys = (c_char_p * len(log["keys"]))(*(key.encode() for key in log["keys"]))
            check = ctypes.addressof(c_size_t.in_dll(self.c, "hushmote_log_check"))
            log = Log(log["origin"].encode(), self.log_keys, len(log["keys"]), log["need"], check)
            self.rules.log = ctypes.pointer(log)
        record_bytes = record_bytes or 40 + 22 * max(len(names), 2) + (1 + REPORT_BYTES) * unsent
        self.records = ctypes.create_string_buffer(2 * record_bytes)
        self.experiments = (
            c_uint64 * (c_size_t.in_dll(self.c, "test_experiment_bytes").value * len(names) // 8 + 1)
        )()
        self.callbacks = [READ(self._read), WRITE(self._write)]
        self.config = Config(
            read=pointer(self.callbacks[0]),
            write=pointer(self.callbacks[1]),
            entropy=Entropy(self._entropy),
            policy=ctypes.addressof(self.rules),
            device_id=None if device_id is None else device_id.encode(),
            fleet=None if fleet is None else fleet.encode(),
            key=key,
            announce_key=announce_key,
            experiments=ctypes.addressof(self.experiments),
            records=ctypes.addressof(self.records),
            record_bytes=record_bytes,
            unsent_max=unsent,
        )
        self.config_pointer = ctypes.byref(self.config)
        self.client = (c_uint64 * (c_size_t.in_dll(self.c, "test_client_bytes").value // 8 + 1))()
        self.begun = self._call("begin", ctypes.byref(self.config)) if begin else None

    # Callbacks. Exceptions cannot pass through C, so a power cut disables storage and is raised after the
    # call returns.

    def _guard(self, where: str, call: Callable[[], int]) -> int:
        if self.cut is not None:
            return -1
        try:
            self.during(where)
            return call()
        except OSError:
            return -1
        except BaseException as e:
            self.cut = e
            return -1

    def _read(self, _context: Any, slot: int, data: Any, size: int) -> int:
        def read() -> int:
            stored = self.storage.read(slot) or b""
            ctypes.memmove(data, stored, min(len(stored), size))
            return len(stored)

        return self._guard("read", read)

    def _write(self, _context: Any, slot: int, data: Any, size: int) -> int:
        return self._guard("write", lambda: self.storage.write(slot, ctypes.string_at(data, size)) or 0)

    def _entropy(self, _context: Any, data: Any, size: int) -> int:
        def draw() -> int:
            drawn = self.entropy(size)
            ctypes.memmove(data, drawn, size)
            return 0

        return self._guard("entropy", draw)

    def _call(self, name: str, *arguments: Any) -> int:
        return self._raise_error(getattr(self.c, "hushmote_" + name)(self.client, *arguments))

    def _raise_error(self, code: int) -> int:
        if self.cut is not None:
            cut, self.cut = self.cut, None
            raise cut
        return code

    def _call_checked(self, name: str, *arguments: Any) -> int:
        code = self._call(name, *arguments)
        if code < 0:
            raise Refused(NAMES[code])
        return code

    # The interface of Client

    def provision(self, replace: bool = False, consent: int = 0) -> int:
        return self._raise_error(self.c.hushmote_provision(ctypes.byref(self.config), replace, consent))

    def enroll(self, payload: bytes, verified: bool = False) -> None:
        self._call_checked("enroll_kept" if verified else "enroll", payload, len(payload))

    def withdraw(self, name: str, payload: bytes | None = None) -> None:
        self._call_checked("withdraw", name.encode(), payload, len(payload or b""))

    def reading(self, value: Any) -> Reading:
        """Build a reading as hushmote.h does, or as hushmote_float.h does for a float."""
        if isinstance(value, (list, tuple)):
            return reading([self.reading(part) for part in value])
        if isinstance(value, float):
            milli = self.c.test_milli(value, 0)
            return Reading(0) if milli == -(2**63) else Reading(3, milli)
        return reading(value)

    @property
    def groups(self) -> dict[str, str]:
        """The values of the policy's groups, as in Client."""
        return {group.name.decode(): group.value.decode() for group in self.group_array if group.value}

    @groups.setter
    def groups(self, values: dict[str, str]) -> None:
        for group in self.group_array:
            value = values.get(group.name.decode())
            group.value = None if value is None else value.encode()

    def report(self, name: str, value: Any, group: str | None = None) -> bytes | None:
        out = ctypes.create_string_buffer(b"\xa5" * REPORT_BYTES, REPORT_BYTES)
        try:
            if group is None:
                size = self._call("report", name.encode(), self.reading(value), out)
            else:
                size = self._call("report_as", name.encode(), self.reading(value), group.encode(), out)
        except BaseException:
            assert out.raw == b"\xa5" * REPORT_BYTES, "the report was written before the debit was in flash"
            raise
        assert out.raw[max(size, 0) :] == b"\xa5" * (REPORT_BYTES - max(size, 0))
        if size < 0:
            raise Refused(NAMES[size])
        return out.raw[:size] or None

    def gap(self, max_calls: int, groups: dict[str, str] | None = None) -> tuple[int, list[str]]:
        """Return the first call that reports, and the names that report in it, like gap.draw()."""
        drawn = c_uint64()
        names = self.policy["experiments"]
        if groups is None:
            calls = self._call("gap", c_uint(max_calls), ctypes.byref(drawn))
        else:
            values = (groups[name].encode() if name in groups else None for name in names)
            array = (c_char_p * len(names))(*values)
            calls = self._call("gap_as", c_uint(max_calls), array, ctypes.byref(drawn))
        return calls, [name for i, name in enumerate(names) if drawn.value >> i & 1]

    def preview(self, name: str, value: Any, group: str | None = None, size: int = 1_280) -> str:
        """Return what a report would contain, in words, as preview.preview() does."""
        out = ctypes.create_string_buffer(b"\xa5" * size, size)
        given = None if group is None else group.encode()
        self._call_checked("preview", name.encode(), self.reading(value), given, out, c_size_t(size))
        return out.value.decode()

    def describe(self, report: bytes) -> str:
        """Return a report in words, as preview.words() does."""
        out = ctypes.create_string_buffer(160)
        self._call("describe", report, c_size_t(len(report)), out, c_size_t(len(out)))
        return out.value.decode()

    def export(self, reports: Iterable[tuple[int, bytes]]) -> dict[str, Any]:
        """Return the export after some reports, each with its time in seconds since 1970."""
        last, pieces = Last(), list[bytes]()
        for at, report in reports:
            self.c.hushmote_remember(ctypes.byref(last), report, len(report), c_uint32(at))
        write = WRITE_TEXT(lambda _, text, size: pieces.append(ctypes.string_at(text, size)))
        self._call_checked("export", ctypes.byref(last), write, None)
        return json.loads(b"".join(pieces))

    def outbox(self) -> list[bytes]:
        reports, out = [], ctypes.create_string_buffer(REPORT_BYTES)
        while size := self._call("unsent", len(reports), out):
            reports.append(out.raw[:size])
        return reports

    def sent(self, report: bytes) -> None:
        self._call_checked("sent", report, len(report))

    @property
    def consent(self) -> bool | None:
        return (None, False, True)[self._call("consent")]

    @consent.setter
    def consent(self, value: bool) -> None:
        self._call_checked("set_consent", value)

    def busy(self) -> bool:
        """Return whether the state is unavailable because a call is in progress or the lock is held."""
        codes = [
            self.c.hushmote_status(self.client, ctypes.byref(Status())),
            self.c.hushmote_line(self.client, self.names[0], ctypes.byref(Line())),
        ]
        assert codes in ([0, 0], [CODES["BUSY"]] * 2)
        return codes != [0, 0]

    def status(self) -> dict[str, Any]:
        status, line = Status(), Line()
        self._call("status", ctypes.byref(status))
        fields: dict[str, Any] = {
            name: getattr(status, name) for name in (field[0] for field in Status._fields_)
        }
        fields["consent"] = (None, False, True)[status.consent]
        for word in ("locked", "error"):
            fields[word] = NAMES[fields[word]] if fields[word] else None
        fields["experiments"] = {}
        for name in self.policy["experiments"]:
            assert self._call("line", name.encode(), ctypes.byref(line)) == 0
            fields["experiments"][name] = {
                "enrolled": line.enrolled,
                "refused": NAMES[line.refused] if line.refused else None,
                "reports": line.reports,
                "left": line.left,
                "epsilon": line.epsilon,
                "digest": bytes(line.digest).hex(),
                "group": line.group.contents.name.decode() if line.group else "",
            }
        return fields

    def serial(self, name: str) -> int:
        return self.c.test_serial(ctypes.byref(self.experiments), self.policy["experiments"].index(name))
