"""Storage that fails like flash, an independent record parser, and an observer of a board's reports."""

import struct
import zlib
from typing import Any

from enumeration import MemoryStorage


class PowerCut(BaseException):
    """A power cut, after which the board executes nothing."""


class FailingStorage(MemoryStorage):
    """In-memory storage in which one chosen write fails.

    fault: raise | raise-after | lost | torn | cut-before | cut-after | torn-cut | full;
    at: the failing write's index, from 0; keep: bytes that a torn write stores; forever: whether later
    writes fail too.
    """

    def __init__(self, slots=None, fault=None, at=0, keep=0, forever=False) -> None:
        super().__init__(slots)
        self.fault = fault
        self.at = at
        self.keep = keep
        self.forever = forever
        self.writes: list[tuple[int, bytes]] = []
        self.dead = False  # after a power cut

    def write(self, slot: int, data: bytes) -> None:
        self.writes.append((slot, bytes(data)))
        count = len(self.writes) - 1
        if self.dead:
            raise PowerCut
        if self.fault is None or not (count == self.at or (self.forever and count > self.at)):
            super().write(slot, data)
            return
        if self.fault in ("raise-after", "cut-after"):
            super().write(slot, data)
        if self.fault in ("torn", "torn-cut"):
            super().write(slot, data[: self.keep])
        if self.fault == "full":
            raise OSError(28, "ENOSPC")
        if self.fault in ("raise", "raise-after", "torn"):
            raise OSError(5)
        if self.fault != "lost":
            self.dead = True
            raise PowerCut


def newest_record(slots: dict[int, bytes]) -> dict[str, Any]:
    """Return the current ledger, parsed by the documented format rather than the client's code."""
    records = [parse_record(slots[slot]) for slot in (0, 1) if slot in slots]
    return max((r for r in records if r is not None), key=lambda r: r["sequence"])


def parse_record(data: bytes) -> Any:
    """Return a ledger record's fields as a dict, or None if its CRC-32 is wrong."""
    if len(data) < 40 or zlib.crc32(data[:-4]) != struct.unpack(">I", data[-4:])[0]:
        return None
    form, count, sequence, seed, sum_high, sum_low, squares = struct.unpack(">BBI16sHIQ", data[:36])
    assert 0x4E <= form <= 0x50
    entries = {}
    for i in range(count):
        key, number, pinned, spent = struct.unpack(">4sI7s7s", data[36 + 22 * i : 58 + 22 * i])
        word = int.from_bytes(pinned, "big")
        rule = ("unlimited", "sum", "squares", "count")[word >> 54]
        entries[key] = (number, rule, word & (2**54 - 1), int.from_bytes(spent, "big"))
    reports, rest = [], data[36 + 22 * count : -4]
    while rest:
        reports.append(rest[1 : 1 + rest[0]])
        rest = rest[1 + rest[0] :]
    return {
        "consent": (None, False, True)[form - 0x4E],
        "sequence": sequence,
        "seed": seed,
        "sum": sum_high << 32 | sum_low,
        "squares": squares,
        "entries": entries,
        "unsent": reports,
    }


class Witness:
    """An observer of the board's output, such as a broker or attacker, that remembers every report."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str | bytes, int], bytes] = {}
        self.names: dict[bytes, str] = {}

    def see(self, report: bytes | None) -> None:
        """Check that a number is never reused with different bytes, even across experiment versions."""
        if report is None:
            return
        digest = report[1:5]
        key = (self.names.get(digest, digest), int.from_bytes(report[5:9], "big"))
        assert self.seen.setdefault(key, report) == report, "a report number was reused with other bytes"

    def see_all(self, reports: list[bytes]) -> None:
        for report in reports:
            self.see(report)
