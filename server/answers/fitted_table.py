"""Tables that fit any width and never cut a number.

Where room is short, headings break first, then bars go, then labels are shortened and texts break. Where that
is not enough, a table is shown in parts, each with the first column again.
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
        """Show it, in as many parts as it takes."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        for number, part in enumerate(_parts(columns, options.max_width)):
            if number:
                yield ""
            yield from self._part(part, number == 0).__rich_console__(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """How wide it is, and how narrow it can be without being shown in parts."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        gaps = _GAP * max(0, len(columns) - 1)
        widest = gaps + sum(column.natural for column in columns)
        narrowest = gaps + sum(column.least for column in columns)
        return Measurement(narrowest, widest).with_maximum(options.max_width)

    def _part(self, part: Sequence[tuple[_Measured, int]], first: bool) -> Table:
        style = {"box": None, "pad_edge": False, "padding": (0, 1), "show_header": self.show_header}
        title = {"title": self.title, "title_justify": self.title_justify, "title_style": self.title_style}
        table = Table(**style, **(title if first else {}))  # type: ignore[arg-type]
        for measured, width in part:
            column = measured.column
            shortened = not measured.number and column.no_wrap
            header = column.header
            if shortened and isinstance(header, Text):  # headings break, also where cells are shortened
                header = Text("\n".join(textwrap.wrap(header.plain, width)))
            table.add_column(
                header,
                justify=column.justify,
                style=column.style,
                overflow="ellipsis" if shortened else "fold",
                no_wrap=shortened,
                width=width,
            )
        for cells in zip(*(measured.column.cells for measured, _ in part), strict=True):
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


_Part = list[tuple[_Measured, int]]


def _parts(columns: Sequence[_Measured], room: int) -> list[_Part]:
    """The columns with their widths, in one part or in more, none of which is wider than the room."""
    for chosen in (columns, [column for column in columns if not column.bar]):
        room_for_columns = room - _GAP * (len(chosen) - 1)
        for widths in ([c.natural for c in chosen], [c.broken for c in chosen]):
            if sum(widths) <= room_for_columns:
                return [list(zip(chosen, widths, strict=True))]
    chosen = [column for column in columns if not column.bar]
    if sum(column.least for column in chosen) + _GAP * (len(chosen) - 1) <= room:
        return [_shrunk(chosen, room)]
    return [_shrunk(part, room) for part in _split(chosen, room)]


def _shrunk(columns: Sequence[_Measured], room: int) -> _Part:
    """Widths that fit: the widest labels and texts give way first."""
    left = room - _GAP * (len(columns) - 1)
    widths = [column.broken for column in columns]
    while sum(widths) > left:
        over = [i for i, column in enumerate(columns) if widths[i] > column.least]
        if not over:  # one number alone is wider than the terminal: it goes on in the next line
            return [(column, min(width, max(1, left))) for column, width in zip(columns, widths, strict=True)]
        widths[max(over, key=lambda i: widths[i])] -= 1
    return list(zip(columns, widths, strict=True))


def _split(columns: Sequence[_Measured], room: int) -> list[list[_Measured]]:
    """Parts that fit, each with the first column, if that leaves room for another."""
    first, others = columns[0], columns[1:]
    parts: list[list[_Measured]] = []
    used = room + 1
    for column in others:
        if used + _GAP + column.least > room:
            alone = first.least + _GAP + column.least > room
            parts.append([column] if alone else [first, column])
            used = sum(c.least for c in parts[-1]) + _GAP * (len(parts[-1]) - 1)
        else:
            parts[-1].append(column)
            used += _GAP + column.least
    return parts or [[first]]
