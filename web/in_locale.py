"""Converts numbers and dates in the command line's English sentences to a reader's formats for the page."""

from __future__ import annotations

import calendar
import datetime
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reader import Reader

_MONTHS = list(calendar.month_abbr)
_MONTH = "|".join(_MONTHS[1:])
_LEAP_YEAR = 2000  # has all days that a year may have
# A day or days such as 28 Oct to 3 Nov 2026, a day such as 2026-11-03, a number with commas or a point, or a
# number of at least 4 digits, but not a part of a word, version or setting, a version's digits, or a label in
# quotes.
_NUMBERS = re.compile(
    r"(?<![\w.,='-])(?<![Vv]ersion )"
    rf"(?:(?:(?P<from>\d\d?)(?: (?P<from_month>{_MONTH}))? to )?"
    rf"(?P<day>\d\d?) (?P<month>{_MONTH})(?: (?P<year>\d{{4}}))?"
    r"|\d{4}-\d\d-\d\d|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d{4,})(?![\w-]|[.,]\d)"
)

_PERCENT = re.compile(r"(?<=\d)%")


def in_locale(text: str, reader: Reader) -> str:
    """Return a text with its days, numbers and percent signs in the reader's format.

    Numbers keep all their digits.
    """
    text = _NUMBERS.sub(lambda match: _localize(match, reader), text)
    return percent_signs(text, reader)


def percent_signs(text: str, reader: Reader) -> str:
    """Return a text with the reader's percent signs; its numbers are already in the reader's format."""
    return _PERCENT.sub(reader.percent_sign, text)


def _localize(match: re.Match[str], reader: Reader) -> str:
    number = match[0]
    if match["day"]:
        try:
            return _localize_days(match, reader)
        except ValueError:
            return number
    if "-" in number:
        try:
            return reader.day(datetime.date.fromisoformat(number))
        except ValueError:
            return number
    plain = number.replace(",", "")
    return reader.number(float(plain), len(plain.partition(".")[2]))


def _localize_days(match: re.Match[str], reader: Reader) -> str:
    """Return a day or days in the reader's format; raise ValueError for days that do not exist."""
    month, year = _MONTHS.index(match["month"]), int(match["year"] or _LEAP_YEAR)
    last = first = datetime.date(year, month, int(match["day"]))
    if match["from"]:
        first_month = _MONTHS.index(match["from_month"]) if match["from_month"] else month
        first = datetime.date(year - (first_month > month), first_month, int(match["from"]))
    return reader.days(first, last, bool(match["year"]))
