"""Text from elsewhere made fit for a terminal or a log: nothing steers it, and no password stands in it."""

import re

# All control characters but line feed and tab, and what turns the direction of writing or ends a line.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Up to the last @: a password may hold one.
_PASSWORD = re.compile(r"(://[^:/@\s]*:)\S+@")

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")


def visible(text: str) -> str:
    """Return a text whose control characters are written as escapes, such as \\x1b."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return a text as one visible line, in which the passwords of URLs are ***."""
    return visible(_PASSWORD.sub(r"\1***@", " ".join(text.split())))


def cell(value: object) -> object:
    """Return what a CSV file says of a value: no text is a formula in a spreadsheet or steers a terminal.

    Numbers stay numbers. A text that begins as a formula does, with or without blanks before it, gets an
    apostrophe in front, which spreadsheets take as "this is text".
    """
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    text = visible(value).replace("\n", "\\n").replace("\t", "\\t")
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@＝＋－＠") else text


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, with … where its end was."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
