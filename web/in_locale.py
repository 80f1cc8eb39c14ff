"""Converts numbers and dates in the command line's English sentences to a reader's formats for the page."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reader import Reader

# A day, a number with commas or a point, or a number of at least 4 digits, but not a part of a word, version
# or setting, a version's digits, or a label in quotes.
_NUMBERS = re.compile(
    r"(?<![\w.,='-])(?<![Vv]ersion )"
    r"(\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d{4,})(?![\w-]|[.,]\d)"
)

_PERCENT = re.compile(r"(?<=\d)%")


def in_locale(text: str, reader: Reader) -> str:
    """Return a text with its days, numbers and percent signs in the reader's format.

    Numbers keep all their digits.
    """
    text = _NUMBERS.sub(lambda match: _localize(match[1], reader), text)
    return percent_signs(text, reader)


def percent_signs(text: str, reader: Reader) -> str:
    """Return a text with the reader's percent signs; its numbers are already in the reader's format."""
    return _PERCENT.sub(reader.percent_sign, text)


def _localize(number: str, reader: Reader) -> str:
    if "-" in number:
        try:
            return reader.day(datetime.date.fromisoformat(number))
        except ValueError:
            return number
    plain = number.replace(",", "")
    return reader.number(float(plain), len(plain.partition(".")[2]))
