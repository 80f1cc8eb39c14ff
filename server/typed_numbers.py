"""Numbers as people type them, such as 100,000, 5%, 1 in 20, −3, 20k, 1e6 and 10^6.

Options, the fields of a Question, the page's addresses and the numbers inside an option's text, such as a
range's ends, are all read here.
"""

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

_GROUPING = " \u00a0\u2009\u202f'’"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−]?)(?P<digits>(?:[1-9]\d{{0,2}}(?P<group>[,{_GROUPING}])\d{{3}}(?:(?P=group)\d{{3}})*|\d+)"
    r"(?:\.\d*)?|\.\d+)(?:[eE](?P<power>[-+−]?\d{1,4})|(?P<scale>[kKM]))?",
    re.ASCII,
)
_POINTS = re.compile(r"\s*(?:±|\+/-)?\s*(\S*?)\s*(?:%|points?)?\s*", re.ASCII)
_POWER_OF_TEN = re.compile(r"(?P<digits>(?:\d[\d.]*)\s*[·×*]\s*)?10\^(?P<power>[-−]?\d{1,4})", re.ASCII)
_PERCENT = re.compile(r"(.*?)\s*(?:%|percent|points?)", re.DOTALL)
_RATIO = re.compile(r"(.*?)(?:/|\s(?:in|of)\s)(.*)", re.DOTALL)
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
    return text if re.fullmatch(r"[^eEkKM^]*\.[^eEkKM^]*", text) else f"{int(number)}"


def plain_share(text: str) -> str:
    """Return a typed share as plain_number() does, with 5%, 5 points and 1 in 20 as 0.05."""
    share = None if _read(text) is not None else _read_share(text)
    return plain_number(text) if share is None else repr(float(share))


def plain_quantile(text: str) -> str:
    """Return a typed quantile's level as plain_share() does, with median as 0.5."""
    return "0.5" if text.strip().lower() == "median" else plain_share(text)


def typed_float(text: str) -> float:
    """Return a typed number; raise ValueError for any other text."""
    return float(plain_number(text))


def typed_share(text: str) -> float:
    """Return a typed share, such as 0.05, 5% or 1 in 20; raise ValueError for any other text."""
    return float(plain_share(text))


def plain_points(text: str) -> str:
    """Return typed points or percent, such as ±3, 3% or 3 points, as plain_number() does."""
    match = _POINTS.fullmatch(text)
    return plain_number(match[1] if match else text)


def typed_fraction(text: str) -> Fraction:
    """Return a typed share or ratio exactly, such as 1/4 or 25%; raise ValueError for any other text."""
    share = _read_share(text)
    return Fraction(text.strip()) if share is None else share  # Fraction() also reads 1e400


def share_field(value: Any) -> Any:
    """Return the value of a model's field, with a typed share, or each of several, as a number's text."""
    return map_texts(plain_share, value)


def quantile_field(value: Any) -> Any:
    """Return the value of a model's field as share_field() does, with median as 0.5."""
    return map_texts(plain_quantile, value)


def number_field(value: Any) -> Any:
    """Return the value of a model's field, with a typed number as a number's text."""
    return map_texts(plain_number, value)


def whole_number_field(value: Any) -> Any:
    """Return the value of a model's field, with a typed whole number as an integer's text.

    Raises:
        ValueError: If the value is ambiguous, as 20.000 is in a TOML file.
    """
    if isinstance(value, Decimal) and value.is_finite() and value.as_tuple().exponent == -3:
        thousands = str(value).replace(".", "")
        raise ValueError(f"must be a whole number, not {value}: write {int(value)} or {thousands}")
    return map_texts(plain_whole_number, value)


def map_texts(read: Callable[[str], str], value: Any) -> Any:
    """Return a text, or a list or tuple of texts, as `read` returns it, and any other value unchanged."""
    if isinstance(value, str):
        return read(value)
    if isinstance(value, list | tuple):
        return type(value)(map_texts(read, item) for item in cast(Sequence[Any], value))
    return value


def _read(text: str) -> Decimal | None:
    plain = _POWER_OF_TEN.sub(lambda m: f"{(m['digits'] or '1').rstrip(' ·×*')}e{m['power']}", text.strip())
    match = _NUMBER.fullmatch(plain)
    if match is None:
        return None
    sign = "-" if match["sign"] in ("-", "−") else ""
    power = (match["power"] or f"{_SCALES.get(match['scale'] or '', 0)}").replace("−", "-")
    number = Decimal(f"{sign}{re.sub(f'[,{_GROUPING}]', '', match['digits'])}e{power}")
    return number if math.isfinite(float(number)) else None


def _read_share(text: str) -> Fraction | None:
    """Return a number, percentage or ratio exactly, or None."""
    stripped = text.strip()
    number, divisor = _read(stripped), Fraction(1)
    if percent := _PERCENT.fullmatch(stripped):
        number, divisor = _read(percent[1]), Fraction(100)
    elif ratio := _RATIO.fullmatch(stripped):
        number, divisor = _read(ratio[1]), Fraction(_read(ratio[2]) or 0)
    return Fraction(number) / divisor if number is not None and divisor else None
