"""Sets of report numbers: all numbers from 1 to some number, and a few beyond the first gap.

Boards do not skip numbers. A number that is missing below a device's highest is lost, still in transit, or
held by an absent aggregator of a group, which may hold any of the device's reports. So any gap may still be
filled, and no gap is closed while a set is small. But 80,000 arbitrary numbers below 2^32 need 170 KB in any
encoding, and a forger may send any numbers. So a set keeps at most MAX_BYTES and MAX_CONTAINERS beyond its
first gap; a container holds the numbers with the same upper 16 bits, needs 10 to 8,200 bytes, and takes time
to process. Above these limits the lowest gaps are closed, and a report that would fill one is too late. The
two highest containers are always kept. They contain an honest board's report as long as the board has made
fewer than 65,536 reports since, which is 45 days at one report a minute. This is the same for a single
aggregator and for a group, and both can share a store.
"""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left
from dataclasses import dataclass, field

from pyroaring import BitMap, FrozenBitMap

MAX_BYTES = 19_000
MAX_CONTAINERS = 512

_NONE = FrozenBitMap()
_CONTAINER = 1 << 16  # numbers per container
_SHORT = 32  # longest cached text in characters; nearly all devices have one of a few short sets
# Older versions wrote several intervals, and a bitmap of interval bounds for the newest numbers.
_TEXT = re.compile(r"([0-9]+~)?([0-9]+-[0-9]+(,[0-9]+-[0-9]+)*)?(\+[0-9]+:[0-9a-f]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NumberSet:
    """An immutable set of report numbers: 1 to `whole`, and those in `beyond`, which are all above whole + 1.

    Its length is the number of counted reports.

    Attributes:
        whole: The number up to which all numbers are in the set.
        beyond: The numbers beyond the first gap.
        late: The number of members that were never counted and never will be.
    """

    whole: int = 0
    beyond: FrozenBitMap = field(default=_NONE, hash=False)  # equal bitmaps have different hashes
    late: int = 0

    def __contains__(self, number: int) -> bool:
        """Return whether a report with this number must not be counted: it was counted or is too late."""
        return number <= self.whole or number in self.beyond

    def __len__(self) -> int:
        """Return how many numbers were counted."""
        return self.whole + len(self.beyond) - self.late

    @property
    def highest(self) -> int:
        """The highest number in the set, or 0 if it is empty."""
        return self.beyond.max() if self.beyond else self.whole

    def add(self, number: int) -> NumberSet:
        """Return the set with this number added, or the same object if it already contains the number."""
        if number == self.whole + 1 and not self.beyond:  # the next number, as in nearly all cases
            return NumberSet(number, self.beyond, self.late)
        if number in self:
            return self
        return _set(self.whole, self.beyond | FrozenBitMap((number,)), self.late)

    def union(self, other: NumberSet) -> NumberSet:
        """Return the union; its late numbers are the late numbers of both sets."""
        return _set(max(self.whole, other.whole), self.beyond | other.beyond, self.late + other.late)

    def seal(self) -> NumberSet:
        """Return the set with all numbers up to its highest; uncounted numbers become too late."""
        return self.close(self.highest)

    def narrow(self) -> NumberSet:
        """Return the set with its lowest gaps closed if it is too large; their numbers become too late."""
        self.beyond.run_optimize()
        containers = self.beyond.get_statistics()["n_containers"]
        if containers <= MAX_CONTAINERS and len(self.beyond.serialize()) <= MAX_BYTES:
            return self
        lowest = self.beyond.min()
        for _ in range(containers // 8 + 1):  # more at once if there are many
            lowest = self.beyond.next_set_bit(lowest - lowest % _CONTAINER + _CONTAINER)
        return self.close(lowest - lowest % _CONTAINER - 1).narrow()

    def close(self, whole: int) -> NumberSet:
        """Return the set with all numbers from 1 to `whole` added; new numbers are too late."""
        wider = _set(max(whole, self.whole), self.beyond, 0)
        return NumberSet(wider.whole, wider.beyond, len(wider) - len(self))

    def encode(self) -> tuple[str, bytes | None]:
        """Return the stored form of the narrowed set: a text, and the numbers beyond its first gap.

        The text is like "1-57", or "3~1-57" with 3 late numbers. The numbers are a portable roaring bitmap,
        or None if there are none.
        """
        if not self.beyond:
            return _text(self), None
        narrowed = self.narrow()
        return _text(narrowed), narrowed.beyond.serialize()

    @classmethod
    def decode(cls, text: str, beyond: bytes | None = None) -> NumberSet:
        """Return the set that this or an older version's encode() wrote.

        Raises:
            ValueError: If the arguments are not such a set.
        """
        return _decode_cached(text) if beyond is None and len(text) <= _SHORT else _decode(text, beyond)


def _set(whole: int, beyond: FrozenBitMap, late: int) -> NumberSet:
    """Build a set of all numbers from 1 to `whole` and those in `beyond`, which may overlap."""
    if not beyond or beyond.min() > whole + 1:
        return NumberSet(whole, beyond, late)
    candidates = range(whole + 1, beyond.max() + 1)
    added_count = bisect_left(candidates, True, key=lambda n: not beyond.contains_range(candidates[0], n + 1))
    rest = BitMap(beyond)
    rest.remove_range(0, whole + added_count + 1)
    return NumberSet(whole + added_count, FrozenBitMap(rest), late)


def _text(numbers: NumberSet) -> str:
    whole = f"1-{numbers.whole}" if numbers.whole else ""
    return f"{numbers.late}~{whole}" if numbers.late else whole


def _decode(text: str, beyond: bytes | None = None) -> NumberSet:
    if _TEXT.fullmatch(text) is None:
        raise ValueError("not a set of report numbers")
    late, _, text = text.rpartition("~")
    text, _, bits = text.partition("+")
    bounds: list[int] = []
    for pair in text.split(",") if text else ():
        first, _, last = pair.partition("-")
        bounds += (int(first), int(last) + 1)
    if bits:
        first, _, digits = bits.partition(":")
        lowest = int(first)
        bounds += [lowest + i for i, bit in enumerate(f"{int(digits, 16):b}"[::-1]) if bit == "1"]
    if len(bounds) % 2 or any(a >= b for a, b in itertools.pairwise(bounds)):
        raise ValueError("not a set of report numbers in ascending order")
    if bounds and not 0 < bounds[0] < bounds[-1] <= 1 << 32:
        raise ValueError("not a set of report numbers, which must be 1 to 4294967295")
    whole = bounds[1] - 1 if bounds and bounds[0] == 1 else 0
    others = BitMap.deserialize(beyond) if beyond else BitMap()
    if others and others.min() <= (bounds[-1] if bounds else 1):
        raise ValueError("not a set of report numbers: there is no gap before the numbers beyond it")
    further = bounds[2:] if whole else bounds
    for start, end in zip(further[::2], further[1::2], strict=True):
        others.add_range(start, end)
    if late and int(late) >= whole + len(others):
        raise ValueError("not a set of report numbers: it has more late numbers than numbers")
    return NumberSet(whole, FrozenBitMap(others), int(late or 0))


_decode_cached = functools.lru_cache(maxsize=4096)(_decode)
