"""English sentences with a reader's numbers and dates: the command line's sentences on the page."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reader import Reader

# A day, a number with commas, a number with a point; parts of words, versions or settings stay.
_NUMBERS = re.compile(
    r"(?<![\w.,=-])(\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d{4,})(?![\w-]|[.,]\d)"
)

_PERCENT = re.compile(r"(?<=\d)%")


def in_locale(text: str, reader: Reader) -> str:
    """Return a text with its days, numbers and percent signs in the reader's format.

    Numbers keep all their digits.
    """
    text = _NUMBERS.sub(lambda match: _localize(match[1], reader), text)
    return percent_signs(text, reader)


def percent_signs(text: str, reader: Reader) -> str:
    """Return a text with the reader's percent signs; its numbers are in the reader's format already."""
    return _PERCENT.sub(reader.percent_sign, text)


def _localize(number: str, reader: Reader) -> str:
    if "-" in number:
        try:
            return reader.day(datetime.date.fromisoformat(number))
        except ValueError:
            return number
    plain = number.replace(",", "")
    return reader.number(float(plain), len(plain.partition(".")[2]))
