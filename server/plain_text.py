"""Make untrusted text safe for a terminal or a log: no control characters or passwords."""

import re
import unicodedata
from typing import Literal

from ..device.ldp_client import is_plain

CsvDialect = Literal["plain", "excel-eu"]
"""The dialects of CSV files; Tables.to_csv() describes them."""

# Control characters except line feed and tab, and marks that change direction or end a line.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_COMMON_NAMES = {"\\": "backslash", "\t": "tab", "\n": "line break", "\ufeff": "byte-order mark"}
# Up to the last @, which a password may contain.
_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+@")

_NUMBER = r"[-+]?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?"
_NUMBERS = re.compile(rf"{_NUMBER}( to {_NUMBER}| and above)?")


def bracketed(host: str) -> str:
    """Return a host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def visible(text: str) -> str:
    r"""Return a text with its control characters written as escapes, such as \\x1b."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def unusable_character(text: str) -> str | None:
    """Return the first invisible character, which boards refuse, such as "U+0009 (tab)", or None."""
    for character in text.replace("\\", ""):
        if not is_plain(character.encode(errors="surrogatepass")):
            return describe_character(character)
    return None


def describe_character(character: str) -> str:
    """Return a character's code point and its name, such as "U+0009 (tab)"."""
    unnamed = "a byte that is not UTF-8" if "\udc80" <= character <= "\udcff" else "a control character"
    name = _COMMON_NAMES.get(character) or unicodedata.name(character, "").lower() or unnamed
    return f"U+{ord(character):04X} ({name})"


def one_line(text: str) -> str:
    """Return a text as one line without control characters, with passwords in URLs replaced by ***."""
    return visible(_PASSWORD.sub(r"\1***@", " ".join(text.split())))


def cell(value: object) -> object:
    """Escape a CSV cell, so that no text acts as a formula or contains control characters.

    Numbers, and ranges of numbers such as "-10 to -6", are unchanged. Other text that starts like a formula,
    with or without leading blanks, is prefixed with an apostrophe, which marks it as text in spreadsheets.
    """
    if not isinstance(value, str) or _NUMBERS.fullmatch(value):
        return value
    text = visible(value).replace("\n", "\\n").replace("\t", "\\t")
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@＝＋－＠") else text


def shorten(text: str, max_width: int) -> str:
    """Shorten a text to at most `max_width` columns of a terminal, with … in place of the rest."""
    from rich.cells import cell_len, set_cell_size  # imported lazily so that commands start fast

    return text if cell_len(text) <= max_width else f"{set_cell_size(text, max_width - 1)}…"
