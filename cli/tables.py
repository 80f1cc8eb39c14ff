"""Tables whose first columns are words and whose others are numbers."""

from collections.abc import Iterable

from rich.table import Table

from ..server.answers import tables as show


def table(title: str | None, headings: Iterable[str], words: int = 0, no_wrap: bool = False) -> Table:
    """An empty table; words: how many columns stand to the left; no_wrap: numbers keep to one line."""
    made = show.table(title)
    for i, heading in enumerate(headings):
        numbers = i >= words
        made.add_column(heading, justify="right" if numbers else "left", no_wrap=no_wrap and numbers)
    return made
