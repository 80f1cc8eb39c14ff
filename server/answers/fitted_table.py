"""Tables that fit a terminal of at least LEAST_WIDTH columns and never cut a number.

Where room is short, headings break first, then bars go, then labels are shortened and texts break. A
table whose numbers need more room than that goes beyond the terminal's edge.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from ..plain_text import visible

_GAP = 2  # columns of a terminal between two columns of a table
_LEAST = 8  # what a shortened label or a broken text keeps
_LONG_WORD = 20  # a longer word of a text may be broken
_WIDEST = 100_000
LEAST_WIDTH = 60
"""The narrowest terminal that tables are fitted to, in columns."""


def plain(text: str) -> Text:
    """A text that is shown as it is on any console, also one that reads markup."""
    return Text(visible(text))


class FittedTable(Table):
    """A table whose texts are shown as they are, and which fits the console's width.

    A right-justified column has numbers, which are never cut or broken. One with no_wrap has labels, which
    are shortened with …; others have texts, which break at spaces. One with overflow="crop" has bars.
    """

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        """Add a column with a heading."""
        super().add_column(plain(header) if isinstance(header, str) else header, *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it, fitted to the console's width."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        fitted = _fitted(columns, max(options.max_width, LEAST_WIDTH))
        width = max(options.max_width, _total([width for _, width in fitted]))
        yield from self._plain(fitted).__rich_console__(console, options.update_width(width))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return its natural width, and the least to which it can be fitted."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        widest, least = (_total([getattr(c, name) for c in columns]) for name in ("natural", "least"))
        return Measurement(least, widest).with_maximum(options.max_width)

    def _plain(self, fitted: Sequence[tuple[_Measured, int]]) -> Table:
        table = Table(
            title=self.title,
            title_justify=self.title_justify,
            title_style=self.title_style,
            box=None,
            pad_edge=False,
            padding=(0, 1),
            show_header=self.show_header,
        )
        for measured, width in fitted:
            column = measured.column
            shortened = not measured.number and column.no_wrap
            header = column.header
            if (
                shortened and width and isinstance(header, Text)
            ):  # headings break, also where cells are shortened
                header = Text("\n".join(textwrap.wrap(header.plain, width)))
            table.add_column(
                header,
                justify=column.justify,
                style=column.style,
                overflow="ellipsis" if shortened else "fold",
                no_wrap=shortened,
                width=width,
            )
        for cells in zip(*(measured.column.cells for measured, _ in fitted), strict=True):
            table.add_row(*cells)
        return table


class _Measured:
    """A column with its widths: natural, with its heading broken, and the least that loses no number."""

    def __init__(self, console: Console, column: Column, header: bool) -> None:
        self.column = column
        self.number = column.justify == "right"
        self.bar = column.overflow == "crop"
        options = console.options.update_width(_WIDEST)
        cells = [Measurement.get(console, options, cell) for cell in column.cells]
        head = Measurement.get(console, options, column.header) if header else Measurement(0, 0)
        body = max((cell.maximum for cell in cells), default=0)
        self.natural = max(body, head.maximum)
        self.broken = max(body, head.minimum)
        if self.number:
            self.least = self.broken
        elif column.no_wrap:
            self.least = min(self.broken, max(_LEAST, head.minimum))
        else:
            words = max([cell.minimum for cell in cells] + [head.minimum], default=0)
            self.least = min(self.broken, max(min(words, _LONG_WORD), _LEAST))


def _total(widths: Sequence[int]) -> int:
    """Return the width of a table whose columns have these widths."""
    return sum(widths) + _GAP * max(0, len(widths) - 1)


def _fitted(columns: Sequence[_Measured], room: int) -> list[tuple[_Measured, int]]:
    """Return the columns to show, with widths that fit the room unless their numbers need more."""
    without_bars = [column for column in columns if not column.bar]
    for chosen in (columns, without_bars):
        for widths in ([c.natural for c in chosen], [c.broken for c in chosen]):
            if _total(widths) <= room:
                return list(zip(chosen, widths, strict=True))
    widths = [column.broken for column in without_bars]
    while _total(widths) > room:
        over = [i for i, column in enumerate(without_bars) if widths[i] > column.least]
        if not over:
            break
        widths[max(over, key=lambda i: widths[i])] -= 1  # the widest label or text gives way first
    return list(zip(without_bars, widths, strict=True))
