"""A table of texts, whatever it is of; answers.tables draws it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    title      stands above it, or ""
    headings   of its columns
    rows       the cells; a row that begins with "> " is the best one
    text_columns  the columns of words, which stand to the left; the others are numbers
    notes      lines below it; of a table without rows only these are shown
    """

    title: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    text_columns: Sequence[int] = (0,)
    notes: Sequence[str] = ()
