"""Messages for values that a pydantic model rejects, such as "must be a number, not 'abc'".

This module also has messages for lines that are not TOML.
"""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# By the start of an error type's name; the first match counts.
_MUST_BE = {
    "string_pattern_mismatch": "must be {allowed}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have {max_length} characters or fewer",
    "string": "must be a text",
    "int": "must be a whole number",
    "float": "must be a number",
    "decimal": "must be a number",
    "finite_number": "must be a number",
    "bool": "must be true or false",
    "date": "must be a date such as 2027-12-31",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be {ge} or more",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be {le} or less",
    "less_than": "must be below {lt}",
    "tuple": "must be a list",
    "dict": "must be a table of fields",
    "model": "must be a table of fields",
    "dataclass": "must be a table of fields",
    "too_short": "must have {min_length} or more",
    "invalid_key": "has a name that is not a text",
    "path": "must be a file's path",
    "missing": "is missing",
    "extra_forbidden": "is not a field",
    "unexpected_keyword_argument": "is not a field",
}
_TOML = {
    r"= *[-+]?\d{1,3}(,\d{3})+\b": "write a number without commas, such as 100000 or 100_000",
    r"= *\d[\d.]* ?%": "write a share as a number, such as 0.05",
    r"= *−": "write a minus sign as -",
    r"= *[-+]?\d[\d.]*[kKM]\b": "write a number in full, such as 20_000",
    r"= *[-+]?\d+,\d": "write a number with a point, such as 1.0",
    r"= *\d{1,2}[./]\d{1,2}[./]\d|= *\d{4}[./]\d": "write a date as 2027-12-31",
    r"(?i)= *(true|yes|on|false|no|off)\b": "write true or false",
    r"= *[^\W\d]": 'put a text into quotes, such as "room_temp"',
    r"^\w+ *:": "write = in place of the colon",
    r"^\{": 'write TOML, not JSON: name = "room_temp"',
}
_PATTERNS = {"^[a-z0-9_-]{1,32}$": "1 to 32 of a-z, 0-9, _ and -"}


def wrong_value(error: ErrorDetails, include_value: bool = True) -> str:
    """Describe what a value must be, without its field's name.

    Args:
        error: The error.
        include_value: Whether to add the value.
    """
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return error["msg"].removeprefix("Value error, ")
    words = next((text for start, text in _MUST_BE.items() if kind.startswith(start)), "is not valid")
    pattern = context.get("pattern", "")
    text = words.format(**context, allowed=_PATTERNS.get(pattern, f"a text that matches {pattern}"))
    shows = include_value and words.startswith("must be")  # not for missing, empty or too long values
    return text + _received_value(error["input"]) + _number_hint(words, error["input"]) if shows else text


def wrong_toml(text: str, error: ValueError) -> str:
    """Describe why a text is not valid TOML, and what to write instead if the line shows it."""
    place = re.search(r"at line (\d+)", str(error))
    line = text.split("\n")[int(place[1]) - 1].strip() if place else ""
    hint = next((words for pattern, words in _TOML.items() if re.search(pattern, line)), "")
    # Leave out the line itself, which may contain a password.
    return f"not TOML at line {place[1]}: {hint}" if place and hint else f"not TOML: {error}"


def _number_hint(words: str, value: Any) -> str:
    """Return a hint on how to write a share in percent, or a number with a comma."""
    if words != "must be a number" or not isinstance(value, str):
        return ""
    if percent := re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value):
        return f": write {float(percent[1]) / 100:.12g}"
    if comma := re.fullmatch(r"([-+]?\d+),(\d+)", value):
        return f": write {comma[1]}.{comma[2]}"
    return ""


def _received_value(value: Any) -> str:
    """Return the received value as ", not ...", or "" if it is not worth showing."""
    if isinstance(value, str):
        return f", not {value if len(value) <= 40 else value[:39] + '…'!r}"
    if isinstance(value, bool):
        return f", not {'true' if value else 'false'}"
    if isinstance(value, int | float | Decimal | datetime.date):
        return f", not {value!s:.40}"
    names = {type(None): "nothing", list: "a list", tuple: "a list", dict: "a table"}
    return f", not {names[type(value)]}" if type(value) in names else ""
