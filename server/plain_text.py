"""Make untrusted text safe for a terminal or a log: no control characters, no passwords."""

import re

# Control characters except line feed and tab, and marks that change direction or end a line.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Up to the last @, which a password may contain.
_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+@")

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


def visible(text: str) -> str:
    r"""Return a text with its control characters written as escapes, such as \\x1b."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return a text as one line without control characters; passwords in URLs become ***."""
    return visible(_PASSWORD.sub(r"\1***@", " ".join(text.split())))


def cell(value: object) -> object:
    """Return a value for a CSV file, so that no text acts as a formula or as control characters.

    Numbers are not changed. A text that starts like a formula, with or without leading blanks, gets an
    apostrophe in front, which tells spreadsheets that it is text.
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    text = visible(value).replace("\n", "\\n").replace("\t", "\\t")
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@＝＋－＠") else text


def shorten(text: str, most: int) -> str:
    """Return a text of at most `most` characters, with … in place of its end if it was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
