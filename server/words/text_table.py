"""A table of texts, which answers.tables renders."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        title: The line above it, or "".
        headings: The headings of its columns.
        rows: The cells; a row that begins with "> " is the best one.
        text_columns: The columns of words, aligned to the left; the others are numbers.
        notes: The lines below it; a table without rows consists only of these.
    """

    title: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    text_columns: Sequence[int] = (0,)
    notes: Sequence[str] = ()
