"""A table of text cells, rendered by answers.tables."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """A table of text cells.

    Attributes:
        title: The line above it, or "".
        headings: The headings of its columns.
        rows: The cells; a row whose first cell begins with "> " is the best one.
        text_columns: The indices of left-aligned columns of words; the others contain numbers.
        notes: The lines below it; without rows, only these are shown.
    """

    title: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    text_columns: Sequence[int] = (0,)
    notes: Sequence[str] = ()
