"""Enumerate the UTF-8 byte sequences of texts over given characters, padded with zeros at the end."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..arrays import Ints
from .statistic import EstimateError

PRINTABLE = "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""Printable ASCII."""
_BETWEEN_CHARACTERS, _AFTER_END = 0, 1


def characters(text: str) -> str:
    """Expand an alphabet such as "a-z0-9_-" to its characters.

    A hyphen between two digits, or between two letters of the same kind, forms a range; elsewhere it is a
    literal hyphen.

    Raises:
        EstimateError: If the alphabet is empty, a range is reversed, or a character is not printable.
    """
    letters: set[str] = set()
    i = 0
    while i < len(text):
        first, separator, last = text[i], text[i + 1 : i + 2], text[i + 2 : i + 3]
        kind = unicodedata.category(first)
        if (
            separator == "-"
            and last
            and kind in ("Ll", "Lu", "Lo", "Nd")
            and kind == unicodedata.category(last)
        ):
            if last < first:
                raise EstimateError(f"a range in an alphabet must ascend: {last}-{first}, not {first}-{last}")
            letters.update(map(chr, range(ord(first), ord(last) + 1)))
            i += 3
        else:
            letters.add(first)
            i += 1
    if not letters:
        raise EstimateError('an alphabet needs at least one character, such as "a-z0-9._-"')
    if not all(c.isprintable() for c in letters):
        raise EstimateError("an alphabet may contain only printable characters")
    return "".join(sorted(letters))


@dataclass(frozen=True)
class Beginnings:
    """Beginnings of texts, all of the same length.

    Attributes:
        rows: Each beginning's bytes, shape (n, length).
        states: Whether each ends between characters, after the text's end or within a character, shape (n,).
        origin: The index of the shorter beginning that was extended, shape (n,).
    """

    rows: npt.NDArray[np.uint8]
    states: Ints
    origin: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Ints | slice) -> Beginnings:
        return Beginnings(self.rows[index], self.states[index], self.origin[index])


EMPTY_BEGINNING = Beginnings(np.zeros((1, 0), np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
"""The beginning of every text."""


class Alphabet:
    """A set of characters as UTF-8 bytes, with zeros after a text's end."""

    def __init__(self, letters: str = PRINTABLE):
        """Create an alphabet from `letters`, which are single characters rather than ranges."""
        self._next: list[dict[int, int]] = [{0: _AFTER_END}, {0: _AFTER_END}]
        for character in letters:
            state = _BETWEEN_CHARACTERS
            *first, last = character.encode()
            for byte in first:
                if byte not in self._next[state]:
                    self._next[state][byte] = len(self._next)
                    self._next.append({})
                state = self._next[state][byte]
            self._next[state][last] = _BETWEEN_CHARACTERS

    def count_extensions(self, states: Ints, length: int) -> Ints:
        """Return the number of possible extensions of each beginning.

        Args:
            states: Each beginning's state, as in Beginnings.
            length: The number of additional bytes.
        """
        count = np.ones(len(self._next))
        for _ in range(length):  # use floats, because the counts may overflow an integer
            count = np.array([sum(count[to] for to in following.values()) for following in self._next])
        return np.minimum(count, 2.0**53).astype(np.int64)[states]

    def extend(self, beginnings: Beginnings, length: int) -> Beginnings:
        """Return all extensions of these beginnings by `length` bytes."""
        current = Beginnings(beginnings.rows, beginnings.states, np.arange(len(beginnings)))
        for _ in range(length):
            parts: list[Beginnings] = []
            for state, following in enumerate(self._next):
                shorter = current[np.flatnonzero(current.states == state)]
                count = len(following)
                rows = np.repeat(shorter.rows, count, axis=0)
                last_bytes = np.tile(np.array([*following], np.uint8), len(shorter))
                states = np.tile(np.array([*following.values()], np.int64), len(shorter))
                rows = np.column_stack([rows, last_bytes])
                parts.append(Beginnings(rows, states, np.repeat(shorter.origin, count)))
            fields = zip(*((p.rows, p.states, p.origin) for p in parts), strict=True)
            current = Beginnings(*(np.concatenate(field) for field in fields))
        return current
