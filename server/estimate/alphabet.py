"""The possible byte sequences of UTF-8 texts made of given characters, padded with zeros at the end."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..arrays import Ints
from .statistic import EstimateError

PRINTABLE = "".join(map(chr, range(ord(" "), ord("~") + 1)))
"""Printable ASCII."""
_BETWEEN, _ENDED = 0, 1


def characters(text: str) -> str:
    """Return the characters of an alphabet written like "a-z0-9_-".

    A hyphen between two digits or two letters of the same kind makes a range; elsewhere it stands for itself.

    Raises:
        EstimateError: If there are no characters, a range falls, or a character cannot be printed.
    """
    letters: set[str] = set()
    i = 0
    while i < len(text):
        first, between, last = text[i], text[i + 1 : i + 2], text[i + 2 : i + 3]
        kind = unicodedata.category(first)
        if (
            between == "-"
            and last
            and kind in ("Ll", "Lu", "Lo", "Nd")
            and kind == unicodedata.category(last)
        ):
            if last < first:
                raise EstimateError(f"a range in an alphabet rises: {last}-{first}, not {first}-{last}")
            letters.update(map(chr, range(ord(first), ord(last) + 1)))
            i += 3
        else:
            letters.add(first)
            i += 1
    if not letters:
        raise EstimateError('an alphabet needs a character, such as "a-z0-9._-"')
    if not all(c.isprintable() for c in letters):
        raise EstimateError("an alphabet has only characters that can be printed")
    return "".join(sorted(letters))


@dataclass(frozen=True)
class Beginnings:
    """Beginnings of texts, all of one length.

    Attributes:
        rows: Their bytes, shape (n, length).
        states: The position of each: between two characters, after the end, or within a character; shape
            (n,).
        origin: The index of the shorter beginning that each was extended from, shape (n,).
    """

    rows: npt.NDArray[np.uint8]
    states: Ints
    origin: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, which: Ints | slice) -> Beginnings:
        return Beginnings(self.rows[which], self.states[which], self.origin[which])


NOTHING = Beginnings(np.zeros((1, 0), np.uint8), np.zeros(1, np.int64), np.zeros(1, np.int64))
"""The beginning of every text."""


class Alphabet:
    """The bytes of some characters, and zeros after a text's end."""

    def __init__(self, letters: str = PRINTABLE):
        """Create the alphabet of `letters`, which are single characters without ranges."""
        self._next: list[dict[int, int]] = [{0: _ENDED}, {0: _ENDED}]
        for character in letters:
            state = _BETWEEN
            *first, last = character.encode()
            for byte in first:
                if byte not in self._next[state]:
                    self._next[state][byte] = len(self._next)
                    self._next.append({})
                state = self._next[state][byte]
            self._next[state][last] = _BETWEEN

    def ways(self, states: Ints, length: int) -> Ints:
        """Return the number of ways in which a beginning can continue.

        Args:
            states: The position of each beginning, as in Beginnings.
            length: The number of further bytes.
        """
        count = np.ones(len(self._next))
        for _ in range(length):  # floats, because the numbers may overflow an integer
            count = np.array([sum(count[to] for to in following.values()) for following in self._next])
        return np.minimum(count, 2.0**53).astype(np.int64)[states]

    def extend(self, beginnings: Beginnings, length: int) -> Beginnings:
        """Return all extensions of these beginnings by `length` bytes."""
        now = Beginnings(beginnings.rows, beginnings.states, np.arange(len(beginnings)))
        for _ in range(length):
            parts: list[Beginnings] = []
            for state, following in enumerate(self._next):
                here = now[np.flatnonzero(now.states == state)]
                many = len(following)
                rows = np.repeat(here.rows, many, axis=0)
                added = np.tile(np.array([*following], np.uint8), len(here))
                states = np.tile(np.array([*following.values()], np.int64), len(here))
                rows = np.column_stack([rows, added])
                parts.append(Beginnings(rows, states, np.repeat(here.origin, many)))
            fields = zip(*((p.rows, p.states, p.origin) for p in parts), strict=True)
            now = Beginnings(*(np.concatenate(field) for field in fields))
        return now
