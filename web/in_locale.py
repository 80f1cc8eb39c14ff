"""English sentences with a reader's numbers and dates: what the command line says, as the page writes it."""

from __future__ import annotations

import datetime
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reader import Reader

# A day, a number with commas, a number with a point; what belongs to a word, version or setting stays.
_NUMBERS = re.compile(
    r"(?<![\w.,=-])(\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d{4,})(?![\w-]|[.,]\d)"
)


def in_locale(text: str, reader: Reader) -> str:
    """The text with its days and numbers as the reader writes them; numbers keep all their digits."""
    return _NUMBERS.sub(lambda match: _written(match[1], reader), text)


def _written(number: str, reader: Reader) -> str:
    if "-" in number:
        try:
            return reader.day(datetime.date.fromisoformat(number))
        except ValueError:
            return number
    plain = number.replace(",", "")
    return reader.number(float(plain), len(plain.partition(".")[2]))
