"""Sets of report numbers as intervals: numbers have no gaps, so a device's set is nearly always one."""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_right
from dataclasses import dataclass

_SHORT = 32  # characters of a set that is remembered: nearly all devices have one of a few short ones
_TEXT = re.compile(r"([0-9]+-[0-9]+(,[0-9]+-[0-9]+)*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NumberSet:
    """An immutable set of report numbers; bounds are start, end, start, end, ..., half-open and ascending."""

    bounds: tuple[int, ...] = ()

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    def __len__(self) -> int:
        return sum(self.bounds[1::2]) - sum(self.bounds[::2])

    @property
    def intervals(self) -> int:
        """Number of intervals: one more than there are gaps."""
        return len(self.bounds) // 2

    def add(self, number: int) -> NumberSet:
        """Return the set with number in it as well."""
        bounds = self.bounds
        if bounds and bounds[-1] == number:  # the next one, as nearly always
            return NumberSet((*bounds[:-1], number + 1))
        i = bisect_right(bounds, number)
        if i % 2:
            return self
        left = i - 1 if i and bounds[i - 1] == number else i
        right = i + 1 if i < len(bounds) and bounds[i] == number + 1 else i
        between = (() if left < i else (number,)) + (() if right > i else (number + 1,))
        return NumberSet(bounds[:left] + between + bounds[right:])

    def encode(self) -> str:
        """Return the set as text, both ends included: "1-57,60-60"."""
        if len(self.bounds) == 2:
            return f"{self.bounds[0]}-{self.bounds[1] - 1}"
        pairs = zip(self.bounds[::2], self.bounds[1::2], strict=True)
        return ",".join(f"{start}-{end - 1}" for start, end in pairs)

    @classmethod
    def decode(cls, text: str) -> NumberSet:
        """Return the set in a text from encode(); raises ValueError for any other."""
        return _remembered(text) if len(text) <= _SHORT else _decode(text)


def _decode(text: str) -> NumberSet:
    if _TEXT.fullmatch(text) is None:
        raise ValueError("not a set of report numbers")
    bounds: list[int] = []
    for pair in text.split(",") if text else ():
        first, _, last = pair.partition("-")
        bounds += (int(first), int(last) + 1)
    if any(a >= b for a, b in itertools.pairwise(bounds)):
        raise ValueError("not a set of report numbers in ascending order")
    return NumberSet(tuple(bounds))


_remembered = functools.lru_cache(maxsize=4096)(_decode)
