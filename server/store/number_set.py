"""Sets of report numbers as intervals: numbers have no gaps, so a device's set is nearly always one."""

from __future__ import annotations

import functools
import itertools
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

# Boards skip no number, so a set has one interval, and a gap more for what was lost for good: reports that
# waited when a board opted out, or that a broker lost. What is still to come is near the newest: at most 16
# reports wait on a board and the oldest are sent first. Of a group's aggregators one may be away and keep any
# part of a device's reports: whoever narrows sets must not be in a group.
MOST_INTERVALS = 32  # of older numbers; a forger's row grows no further
NEWEST = 512  # numbers among which there may be any gaps

_SHORT = 32  # characters of a set that is remembered: nearly all devices have one of a few short ones
_TEXT = re.compile(r"([0-9]+~)?([0-9]+-[0-9]+(,[0-9]+-[0-9]+)*)?(\+[0-9]+:[0-9a-f]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NumberSet:
    """An immutable set of report numbers; bounds are start, end, start, end, ..., half-open and ascending.

    late: how many of the numbers within the bounds were never counted, and are not to be any more. The length
    is that of the others: how many reports were counted.
    """

    bounds: tuple[int, ...] = ()
    late: int = 0

    def __contains__(self, number: int) -> bool:
        """Whether a report of that number is not to be counted: it was before, or it is too late."""
        return bisect_right(self.bounds, number) % 2 == 1

    def __len__(self) -> int:
        return sum(self.bounds[1::2]) - sum(self.bounds[::2]) - self.late

    @property
    def intervals(self) -> int:
        """Number of intervals: one more than there are gaps."""
        return len(self.bounds) // 2

    def add(self, number: int) -> NumberSet:
        """Return the set with number in it as well."""
        bounds = self.bounds
        if bounds and bounds[-1] == number:  # the next one, as nearly always
            return NumberSet((*bounds[:-1], number + 1), self.late)
        i = bisect_right(bounds, number)
        if i % 2:
            return self
        left = i - 1 if i and bounds[i - 1] == number else i
        right = i + 1 if i < len(bounds) and bounds[i] == number + 1 else i
        between = (() if left < i else (number,)) + (() if right > i else (number + 1,))
        return NumberSet(bounds[:left] + between + bounds[right:], self.late)

    def narrow(self) -> NumberSet:
        """Return the set with its lowest gaps closed where it has too many: what is in them is too late."""
        more = self.intervals - MOST_INTERVALS
        if more <= 0:
            return self
        bounds = self.bounds
        last = min(2 * more, self._newest() - 2)  # index of the last interval that is joined to the first
        if last < 2:
            return self
        gaps = sum(bounds[2 : last + 1 : 2]) - sum(bounds[1:last:2])
        return NumberSet(bounds[:1] + bounds[last + 1 :], self.late + gaps)

    def seal(self) -> NumberSet:
        """Return the set with all from 1 to its highest in it: what was not counted is too late."""
        if not self.bounds:
            return self
        first, end = min(1, self.bounds[0]), self.bounds[-1]
        return NumberSet((first, end), end - first - len(self))

    def _newest(self) -> int:
        """Index in bounds of the first interval that lies among the newest numbers."""
        i = bisect_left(self.bounds, self.bounds[-1] - NEWEST)
        return i + i % 2

    def encode(self) -> str:
        """Return the set as text, both ends included: "1-57,60-60"; with 3 late ones "3~1-57,60-60".

        Of many intervals the newest are bits, counted from the lowest, one for each start and each end:
        "+60:d" has 60 and 62 in it.
        """
        bounds, bits = self.bounds, ""
        if len(bounds) == 2 and not self.late:
            return f"{bounds[0]}-{bounds[1] - 1}"
        if self.intervals > MOST_INTERVALS:
            i = self._newest()
            bounds, newest = bounds[:i], bounds[i:]
            first = newest[0]
            digits = bytearray(b"0" * (newest[-1] - first + 1))
            for bound in newest:
                digits[first - bound - 1] = 49  # "1", from the right
            bits = f"+{first}:{int(digits, 2):x}"
        pairs = zip(bounds[::2], bounds[1::2], strict=True)
        late = f"{self.late}~" if self.late else ""
        return late + ",".join(f"{start}-{end - 1}" for start, end in pairs) + bits

    @classmethod
    def decode(cls, text: str) -> NumberSet:
        """Return the set in a text from encode(); raises ValueError for any other."""
        return _remembered(text) if len(text) <= _SHORT else _decode(text)


def _decode(text: str) -> NumberSet:
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
    numbers = NumberSet(tuple(bounds))
    if not late:
        return numbers
    if int(late) >= len(numbers):
        raise ValueError("not a set of report numbers: more are late than there are")
    return replace(numbers, late=int(late))


_remembered = functools.lru_cache(maxsize=4096)(_decode)
