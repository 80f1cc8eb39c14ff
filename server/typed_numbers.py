"""Numbers as people type them: as printed, such as 100,000, 5% and −3, and 20k or 1e6.

Options, the fields of a Question, the page's addresses and the numbers inside an option's text, such as a
range's ends, are all read here.
"""

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

_NUMBER = re.compile(
    r"(?P<sign>[-+−]?)(?P<digits>(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)"
    r"(?:[eE](?P<power>[-+]?\d{1,4})|(?P<scale>[kKM]))?",
    re.ASCII,
)
_POINTS = re.compile(r"\s*(?:±|\+/-)?\s*(\S*?)\s*(?:%|points?)?\s*", re.ASCII)
_SCALES = {"k": 3, "K": 3, "M": 6}


def plain_number(text: str) -> str:
    """Return a typed number in the form that float() reads, and any other text unchanged."""
    number = _read(text)
    return text if number is None else str(number)


def plain_whole_number(text: str) -> str:
    """Return a typed whole number in the form that int() reads, and any other text unchanged.

    A text with a point is a whole number only with a power or a scale, as in 1.5k: 20.000 is ambiguous.
    """
    number = _read(text)
    if number is None or abs(number) >= Decimal(10**20) or number != number.to_integral_value():
        return text
    return text if re.fullmatch(r"[^eEkKM]*\.[^eEkKM]*", text) else f"{int(number)}"


def plain_share(text: str) -> str:
    """Return a typed share as plain_number() does, with 5% as 0.05."""
    percent = _read(text.strip().removesuffix("%").rstrip()) if text.strip().endswith("%") else None
    return plain_number(text) if percent is None else str(percent / 100)


def typed_float(text: str) -> float:
    """Return a typed number; raise ValueError for any other text."""
    return float(plain_number(text))


def typed_share(text: str) -> float:
    """Return a typed share, such as 0.05 or 5%; raise ValueError for any other text."""
    return float(plain_share(text))


def plain_points(text: str) -> str:
    """Return typed points or percent, such as ±3, 3% or 3 points, as plain_number() does."""
    match = _POINTS.fullmatch(text)
    return plain_number(match[1] if match else text)


def typed_fraction(text: str) -> Fraction:
    """Return a typed share or ratio exactly, such as 1/4 or 25%; raise ValueError for any other text."""
    return Fraction(plain_share(text.strip()))


def share_field(value: Any) -> Any:
    """Return the value of a model's field, with a typed share, or each of several, as a number's text."""
    if isinstance(value, str):
        return plain_share(value)
    return tuple(map(share_field, value)) if isinstance(value, tuple | list) else value


def _read(text: str) -> Decimal | None:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    sign = "-" if match["sign"] in ("-", "−") else ""
    power = match["power"] or _SCALES.get(match["scale"] or "", 0)
    number = Decimal(f"{sign}{match['digits'].replace(',', '')}e{power}")
    return number if math.isfinite(float(number)) else None
