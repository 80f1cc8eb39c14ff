"""Tables for the terminal and for notebooks.

They fit a terminal of at least LEAST_WIDTH columns and never cut a number. If room is short, headings break
first, then bars are dropped, then labels are shortened and texts break. A table whose numbers need more room
than that extends beyond the terminal's edge.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from ..plain_text import visible
from ..words.epsilon import rounded_up
from ..words.numbers import decimals
from ..words.text_table import TextTable
from .rows import AnswerRows, CandidateRow, CellRow, ChangeRow, DifferenceRow, PostRow, Row, TopRow, TrendRow


class PlainConsole(Console):
    """A console that prints texts literally: no [markup], no :emoji:, and control characters escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)
        if not self.width:  # COLUMNS=0; any other width may change while the program runs
            self.width = 80

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:
        """Print whole lines, even if they are wider than the console."""
        super().print(*objects, crop=crop, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich prints it."""
        return super().render_str(visible(text), **options)


out = PlainConsole()
err = PlainConsole(stderr=True)


class Printable:
    """A result that prints as a table of 80 columns, and as HTML in a notebook."""

    def __rich__(self) -> RenderableType:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError

    def __str__(self) -> str:
        text = io.StringIO()
        # Without force_jupyter=False, rich would print into a notebook's cell by itself.
        console = Console(file=text, width=80, color_system=None, highlight=False, force_jupyter=False)
        console.print(self, crop=False)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__


_GAP = 2  # characters between two columns of a table
_LEAST = 8  # fewest characters of a shortened label or a broken text
_LONG_WORD = 20  # longer words of a text may be broken
_WIDEST = 100_000
LEAST_WIDTH = 60
"""The width of the narrowest terminal that tables fit, in columns."""


def plain(text: str) -> Text:
    """Return a text that any console shows unchanged, even one that interprets markup."""
    return Text(visible(text))


class FittedTable(Table):
    """A table that shows its texts literally and fits the console's width.

    A right-justified column has numbers, which are never cut or broken. A column with no_wrap has labels,
    which are shortened with …; others have texts, which break at spaces. A column with overflow="crop" has
    bars.
    """

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        """Add a column with a heading."""
        super().add_column(plain(header) if isinstance(header, str) else header, *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **options)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, fitted to the console's width."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        fitted = _fitted(columns, max(options.max_width, LEAST_WIDTH))
        width = max(options.max_width, _total([width for _, width in fitted]))
        yield from self._plain(fitted).__rich_console__(console, options.update_width(width))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the table's natural width, and the smallest one to which it can be fitted."""
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
            # A heading breaks, even if the cells below it are shortened.
            if shortened and width and isinstance(header, Text):
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
    """A column with its widths: natural, with a broken heading, and the smallest that cuts no number."""

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
    return sum(widths) + _GAP * max(0, len(widths) - 1)


def _fitted(columns: Sequence[_Measured], width: int) -> list[tuple[_Measured, int]]:
    """Return the columns to show, with widths that fit this width unless their numbers need more."""
    without_bars = [column for column in columns if not column.bar]
    for chosen in (columns, without_bars):
        for widths in ([c.natural for c in chosen], [c.broken for c in chosen]):
            if _total(widths) <= width:
                return list(zip(chosen, widths, strict=True))
    widths = [column.broken for column in without_bars]
    while _total(widths) > width:
        over = [i for i, column in enumerate(without_bars) if widths[i] > column.least]
        if not over:
            break
        widths[max(over, key=lambda i: widths[i])] -= 1  # the widest label or text is narrowed first
    return list(zip(without_bars, widths, strict=True))


def table(
    title: str = "", headings: Iterable[str] = (), text_columns: Sequence[int] = (0,), *, header: bool = True
) -> FittedTable:
    """Return an empty table in the project's style.

    Args:
        title: The title.
        headings: The headings of the columns.
        text_columns: The indices of columns with words; all others have numbers.
        header: Whether to show the headings.
    """
    style = {"box": None, "pad_edge": False, "padding": (0, 1), "show_header": header}
    result = FittedTable(
        title=plain(title) if title else None, title_justify="left", title_style="bold", **style
    )
    for number, heading in enumerate(headings):
        result.add_column(heading, justify="left" if number in text_columns else "right")
    return result


def text_table(of: TextTable) -> RenderableType:
    """Return a table of texts with its notes."""
    result = table("", of.headings, of.text_columns)
    for row in of.rows:
        result.add_row(*row, style="bold" if row[0].startswith("> ") else "")
    title = [Text(visible(of.title), style="bold")] if of.title else []
    return Group(*([*title, result] if of.rows else []), *map(plain, of.notes))


def named(facts: Iterable[tuple[str, str]]) -> FittedTable:
    """Return a table of facts and their names; a fact without a name continues the previous one."""
    result = table(header=False)
    result.add_column(style="bold", no_wrap=True)
    result.add_column()
    for fact in facts:
        result.add_row(*fact)
    return result


def sheet(
    lines: Iterable[str], facts: Iterable[tuple[str, str]], sections: Iterable[TextTable]
) -> RenderableType:
    """Return sentences, facts and tables, with empty lines between."""
    parts: list[RenderableType] = [*map(plain, lines), "", named(facts)]
    for section in sections:
        parts += ["", text_table(section)] if section.rows else [text_table(section)]
    return Group(*parts)


def facts_html(lines: Iterable[str], facts: Iterable[tuple[str, str]]) -> str:
    """Return lines and facts for a notebook."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
    return f"{''.join(f'<p>{escape(line)}</p>' for line in lines)}<table>{''.join(rows)}</table>"


_BAR_CELLS = 14
_BLOCKS = "▁▂▃▄▅▆▇█"
DEVIATION = "standard deviation"
TOO_FEW = "too few reports"
"""Shown in place of an interval that would include nearly everything."""


def blocks(values: Sequence[float], low: float | None = None) -> str:
    """Return values as one line of blocks, or "" if there are none.

    Args:
        values: The values; the largest is a full block.
        low: The value of the lowest block; by default the smallest value.
    """
    least = min(values, default=0.0) if low is None else low
    most = max(values, default=0.0)
    if most <= least:
        return _BLOCKS[0] * len(values) if values and low is None else ""
    heights = ((max(value, least) - least) / (most - least) for value in values)
    return "".join(_BLOCKS[round(height * (len(_BLOCKS) - 1))] for height in heights)


def over_time(table_of: AnswerRows) -> FittedTable:
    """Return a trend with a line for each statistic: first value, sparkline, last value."""
    number = _number(table_of)
    unit = "%" if table_of.quantity == "share" else f" {table_of.unit}".rstrip()
    result = table(table_of.heading)
    for heading in ("", "first", "", "last"):
        result.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for name in dict.fromkeys(row.name for row in table_of.rows):
        of = [row for row in table_of.rows if row.name == name]
        exact_rows = [row for row in of if table_of.tells(row)]
        ends = (
            [f"{number(row.value)}{unit}" for row in (exact_rows[0], exact_rows[-1])]
            if exact_rows
            else [TOO_FEW, ""]
        )
        result.add_row(name, ends[0], blocks([row.value for row in exact_rows]), ends[1])
    return result


def _bar(share: float, most: float) -> str:
    """Return a horizontal bar in eighths of a character."""
    eighths = max(0, round(share / most * _BAR_CELLS * 8)) if most > 1e-9 else 0
    full, rest = divmod(min(eighths, _BAR_CELLS * 8), 8)
    return "█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def _mark(row: Row) -> Text:
    return Text("yes", style="green") if row.covered else Text("no", style="red")


@dataclass(frozen=True)
class _Column:
    """A heading, and how to get its cell from a row: a number, which is never cut, or words.

    Attributes:
        shortened: Whether words are cut if room is short; otherwise they continue on the next line.
    """

    heading: str
    cell: Callable[[Any], str | Text]
    words: bool = False
    shortened: bool = False


def answer(table_of: AnswerRows, title: str = "") -> FittedTable:
    """Return an answer's table: shares in percent or readings in their unit, with intervals."""
    table_of = table_of.limit_rows()
    columns = _columns(table_of)
    result = table(title or table_of.heading)
    for column in columns:
        result.add_column(
            column.heading, justify="left" if column.words else "right", no_wrap=column.shortened
        )
    barred = (Row, PostRow, CandidateRow, CellRow)
    bars = table_of.quantity == "share" and _row_class(table_of) in barred
    if bars:
        result.add_column("", no_wrap=True, overflow="crop", style="blue")
    most = max([row.value for row in table_of.rows if table_of.tells(row)] + [0.0])
    for row in table_of.rows:
        cells = [column.cell(row) for column in columns]
        result.add_row(*cells, *([_bar(row.value if table_of.tells(row) else 0.0, most)] if bars else []))
    return result


def html(table_of: AnswerRows) -> str:
    """Return the same table for a notebook."""
    table_of = table_of.limit_rows()
    columns = _columns(table_of)
    headings = "".join(f"<th>{escape(column.heading)}</th>" for column in columns)
    rows = (
        "<tr>" + "".join(f"<td>{escape(str(column.cell(row)))}</td>" for column in columns) + "</tr>"
        for row in table_of.rows
    )
    caption = f"<caption>{escape(table_of.heading)}</caption>"
    notes = "".join(f"<p>{escape(note)}</p>" for note in table_of.notes)
    return f"<table>{caption}<thead><tr>{headings}</tr></thead><tbody>{''.join(rows)}</tbody></table>{notes}"


def _row_class(table_of: AnswerRows) -> type[Row]:
    return type(table_of.rows[0]) if table_of.rows else Row


def _columns(table_of: AnswerRows) -> list[_Column]:
    kind = _row_class(table_of)
    share = table_of.quantity == "share"
    unit = "%" if share else table_of.unit
    number = _number(table_of)
    has_truth, level = any(row.truth is not None for row in table_of.rows), 1 - table_of.confidence
    # A range of numbers must not be shortened like a label.
    words = all(row.upper is None for row in table_of.rows)
    columns = [_Column(_heading(table_of), lambda r: r.name, words, words and share)]
    if kind is TrendRow:
        reports = _Column("reports", lambda r: f"{r.reports:,}")
        columns = [_Column("window", lambda r: r.window), *columns, reports]
    if any(row.histogram_epsilon is not None for row in table_of.rows if isinstance(row, TrendRow)):
        columns.append(_Column("ε", lambda r: rounded_up(r.histogram_epsilon)))
    if kind is ChangeRow:
        before, after = (lambda r: number(r.before)), (lambda r: number(r.after))
        columns += [_Column("before", before), _Column("after", after)]
    if has_truth:
        columns.append(_Column(f"true {unit}".strip(), lambda r: "" if r.truth is None else number(r.truth)))
    value, unit = ("change", "points" if share else unit) if kind is ChangeRow else ("est.", unit)

    def format_value(row: Row) -> str:
        if not table_of.tells(row):
            return "–"
        # A spread of which only an upper bound is known.
        at_most = not share and row.low == 0 < row.value and row.name == DEVIATION
        return f"at most {number(row.high)}" if at_most else number(row.value)

    def between(row: Row) -> str:
        return f"{number(row.low)} to {number(row.high)}" if table_of.tells(row) else TOO_FEW

    columns.append(_Column(f"{value} {unit}".strip(), format_value))
    columns.append(_Column(table_of.interval_heading, between))
    if has_truth:
        columns.append(_Column("truth in it", lambda r: "" if r.covered is None else _mark(r)))
    if kind is PostRow:
        columns.append(_Column(f"{table_of.post} %", lambda r: number(r.processed)))
    if kind is TopRow:
        columns.append(_Column("belongs there", lambda r: f"{r.probability * 100:.0f}%"))
    if kind is DifferenceRow:
        columns.append(_Column("p-value", lambda r: _p_value(r.p, level)))
    if kind in (ChangeRow, CandidateRow):
        columns.append(_Column("p-value", lambda r: _p_value(r.p_adjusted, level)))
    return columns


_HEADED = ("histogram", "ranges", "cdf", "top", "ties", "change", "candidates", "discovery")


def _heading(table_of: AnswerRows) -> str:
    headed = table_of.quantity == "share" and table_of.kind in _HEADED
    return table_of.unit or table_of.experiment if headed else ""


def _number(table_of: AnswerRows) -> Callable[[float], str]:
    """Return a formatter of numbers, shares in percent, with the decimals of the narrowest interval shown."""
    scale = 100 if table_of.quantity == "share" else 1
    halves = [scale * row.half_width for row in table_of.telling().rows if row.high > row.low]
    places = decimals(0.0, 2 * min(halves, default=0.0))
    return lambda x: f"{round(scale * x, places) + 0.0:.{places}f}"  # no -0.00


def _p_value(p: float | None, level: float) -> Text:
    if p is None:
        return Text()
    return Text("< 0.0001" if p < 1e-4 else f"{p:.4f}", style="green" if p < level else "")


def answers(tables: Sequence[AnswerRows], draw: Callable[[AnswerRows], FittedTable] = answer) -> None:
    """Print several answers' tables, each made by `draw`."""
    out.print(stacked(tables, draw))


def stacked(tables: Sequence[AnswerRows], draw: Callable[[AnswerRows], FittedTable] = answer) -> Group:
    """Return several answers' tables, each note once below its table, and an empty line between two."""
    parts: list[RenderableType] = []
    notes = set[str]()
    for number, one in enumerate(tables):
        parts += ["", draw(one)] if number else [draw(one)]
        parts += [plain(note) for note in one.notes if note not in notes]
        notes.update(one.notes)
    return Group(*parts)
