"""Tables for the terminal and for notebooks.

They fit a terminal of at least MIN_WIDTH columns and never truncate a number. If space is short, headings
wrap first, then bars are dropped, then labels are truncated and texts wrap. A table whose numbers need more
space extends beyond the terminal's edge.
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
    """A console that prints text literally, without [markup] or :emoji:, and escapes control characters."""

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
        # Without force_jupyter=False, rich would print into a notebook's cell directly.
        console = Console(file=text, width=80, color_system=None, highlight=False, force_jupyter=False)
        console.print(self, crop=False)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    __repr__ = __str__


_GAP = 2  # characters between two columns of a table
_MIN_WIDTH = 8  # minimum width of a truncated label or a wrapped text, in characters
_LONG_WORD = 20  # characters; longer words in a text may be broken
_UNLIMITED_WIDTH = 100_000
MIN_WIDTH = 60
"""The width of the narrowest terminal that tables fit, in columns."""


def plain(text: str) -> Text:
    """Return text that any console shows unchanged, even one that interprets markup."""
    return Text(visible(text))


class FittedTable(Table):
    """A table that shows text literally and fits the console's width.

    Right-justified columns contain numbers, which are never truncated or wrapped. Columns with no_wrap
    contain labels, which are truncated with …; columns with overflow="crop" contain bars; all others contain
    text, which wraps at spaces.
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
        fitted = _fit_columns(columns, max(options.max_width, MIN_WIDTH))
        width = max(options.max_width, _total([width for _, width in fitted]))
        yield from self._plain(fitted).__rich_console__(console, options.update_width(width))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Return the table's natural width, and the smallest width that it can be fitted to."""
        columns = [_Measured(console, column, self.show_header) for column in self.columns]
        widest, narrowest = (
            _total([getattr(c, name) for c in columns]) for name in ("natural_width", "min_width")
        )
        return Measurement(narrowest, widest).with_maximum(options.max_width)

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
    """A column and its widths: natural, with a wrapped heading, and the smallest that keeps numbers whole."""

    def __init__(self, console: Console, column: Column, header: bool) -> None:
        self.column = column
        self.number = column.justify == "right"
        self.bar = column.overflow == "crop"
        options = console.options.update_width(_UNLIMITED_WIDTH)
        cells = [Measurement.get(console, options, cell) for cell in column.cells]
        head = Measurement.get(console, options, column.header) if header else Measurement(0, 0)
        body = max((cell.maximum for cell in cells), default=0)
        self.natural_width = max(body, head.maximum)
        self.broken_width = max(body, head.minimum)
        if self.number:
            self.min_width = self.broken_width
        elif column.no_wrap:
            self.min_width = min(self.broken_width, max(_MIN_WIDTH, head.minimum))
        else:
            words = max([cell.minimum for cell in cells] + [head.minimum], default=0)
            self.min_width = min(self.broken_width, max(min(words, _LONG_WORD), _MIN_WIDTH))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * max(0, len(widths) - 1)


def _fit_columns(columns: Sequence[_Measured], space: int) -> list[tuple[_Measured, int]]:
    """Return the columns to show and their widths, which fit the space unless numbers need more."""
    without_bars = [column for column in columns if not column.bar]
    for columns_to_fit in (columns, without_bars):
        for widths in ([c.natural_width for c in columns_to_fit], [c.broken_width for c in columns_to_fit]):
            if _total(widths) <= space:
                return list(zip(columns_to_fit, widths, strict=True))
    widths = [column.broken_width for column in without_bars]
    while _total(widths) > space:
        over = [i for i, column in enumerate(without_bars) if widths[i] > column.min_width]
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
        text_columns: The indices of columns that contain words; all others contain numbers.
        header: Whether to show the headings.
    """
    style = {"box": None, "pad_edge": False, "padding": (0, 1), "show_header": header}
    result = FittedTable(
        title=plain(title) if title else None, title_justify="left", title_style="bold", **style
    )
    for number, heading in enumerate(headings):
        result.add_column(heading, justify="left" if number in text_columns else "right")
    return result


def text_table(text: TextTable) -> RenderableType:
    """Render a TextTable with its notes."""
    result = table("", text.headings, text.text_columns)
    for row in text.rows:
        result.add_row(*row, style="bold" if row[0].startswith("> ") else "")
    title = [Text(visible(text.title), style="bold")] if text.title else []
    return Group(*([*title, result] if text.rows else []), *map(plain, text.notes))


def facts_table(facts: Iterable[tuple[str, str]]) -> FittedTable:
    """Return a table of named facts; a fact without a name continues the previous one."""
    result = table(header=False)
    result.add_column(style="bold", no_wrap=True)
    result.add_column()
    for fact in facts:
        result.add_row(*fact)
    return result


def sheet(
    lines: Iterable[str], facts: Iterable[tuple[str, str]], sections: Iterable[TextTable]
) -> RenderableType:
    """Return sentences, facts and tables, separated by empty lines."""
    parts: list[RenderableType] = [*map(plain, lines)]
    if rows := list(facts):
        parts += ["", facts_table(rows)]
    for section in sections:
        parts += ["", text_table(section)] if section.rows else [text_table(section)]
    return Group(*parts)


def facts_html(lines: Iterable[str], facts: Iterable[tuple[str, str]]) -> str:
    """Return lines and facts as HTML for a notebook."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts)
    return f"{''.join(f'<p>{escape(line)}</p>' for line in lines)}<table>{''.join(rows)}</table>"


_BAR_CELLS = 14
_BLOCKS = "▁▂▃▄▅▆▇█"
DEVIATION = "standard deviation"
TOO_FEW = "too few reports"
"""Shown in place of an interval that would be too wide to be useful."""


def sparkline(values: Sequence[float | None], low: float | None = None) -> str:
    """Return values as a line of block characters, or "" if there are no values.

    Args:
        values: The values; the largest becomes a full block, and None a space.
        low: The value of the lowest block; by default, the smallest value.
    """
    numbers = [value for value in values if value is not None]
    lowest = min(numbers, default=0.0) if low is None else low
    extent = max(numbers, default=0.0) - lowest
    if not numbers or (extent <= 0 and low is not None):
        return ""
    scale = (len(_BLOCKS) - 1) / extent if extent > 0 else 0.0
    return "".join(
        " " if value is None else _BLOCKS[round(max(value - lowest, 0.0) * scale)] for value in values
    )


def trend_table(table_of: AnswerRows) -> FittedTable:
    """Return a trend table with one line per statistic: first value, sparkline and last value.

    A sparkline has a space for a window without a value, so all of them show the same windows.
    """
    number = _number(table_of)
    unit = "%" if table_of.quantity == "share" else f" {table_of.unit}".rstrip()
    result = table(table_of.heading)
    for heading in ("", "first", "", "last"):
        result.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    windows = sorted({row.window for row in table_of.rows if isinstance(row, TrendRow)})
    for name in dict.fromkeys(row.name for row in table_of.rows):
        rows = [row for row in table_of.rows if row.name == name]
        exact_rows = [row for row in rows if table_of.tells(row)]
        ends = (
            [f"{number(row.value)}{unit}" for row in (exact_rows[0], exact_rows[-1])]
            if exact_rows
            else [TOO_FEW, ""]
        )
        values = {row.window: row.value for row in exact_rows if isinstance(row, TrendRow)}
        result.add_row(name, ends[0], sparkline([values.get(window) for window in windows]), ends[1])
    return result


def _bar(share: float, max_share: float) -> str:
    """Return a horizontal bar with a resolution of an eighth of a character."""
    eighths = max(0, round(share / max_share * _BAR_CELLS * 8)) if max_share > 1e-9 else 0
    full, remainder = divmod(min(eighths, _BAR_CELLS * 8), 8)
    return "█" * full + ("" if remainder == 0 else " ▏▎▍▌▋▊▉"[remainder])


def _mark(row: Row) -> Text:
    return Text("yes", style="green") if row.covered else Text("no", style="red")


@dataclass(frozen=True)
class _Column:
    """A heading, and a function that returns a row's cell: a number, which is never truncated, or words.

    Attributes:
        has_words: Whether the cells contain words.
        is_shortened: Whether words are truncated if space is short; otherwise they wrap.
    """

    heading: str
    cell: Callable[[Any], str | Text]
    has_words: bool = False
    is_shortened: bool = False


def answer(table_of: AnswerRows, title: str = "") -> FittedTable:
    """Return an answer as a table: shares in percent or readings in their unit, with intervals."""
    table_of = table_of.limit_rows()
    columns = _columns(table_of)
    result = table(title or table_of.heading)
    for column in columns:
        result.add_column(
            column.heading, justify="left" if column.has_words else "right", no_wrap=column.is_shortened
        )
    classes_with_bars = (Row, PostRow, CandidateRow, CellRow)
    has_bars = table_of.quantity == "share" and _row_class(table_of) in classes_with_bars
    if has_bars:
        result.add_column("", no_wrap=True, overflow="crop", style="blue")
    max_share = max([row.value for row in table_of.rows if table_of.tells(row)] + [0.0])
    for row in table_of.rows:
        cells = [column.cell(row) for column in columns]
        result.add_row(
            *cells,
            *([_bar(row.value if table_of.tells(row) else 0.0, max_share)] if has_bars else []),
        )
    return result


def html(table_of: AnswerRows) -> str:
    """Return the same table as HTML for a notebook."""
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
    has_words = all(row.upper is None for row in table_of.rows)
    columns = [_Column(_heading(table_of), lambda r: r.name, has_words, has_words and share)]
    if kind is TrendRow:
        reports = _Column("reports", lambda r: f"{r.reports:,}")
        columns = [
            _Column("window", lambda r: f"{r.window} (part)" if r.partial else r.window),
            *columns,
            reports,
        ]
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
        # Only an upper bound of this standard deviation is known.
        at_most = not share and row.low == 0 < row.value and row.name == DEVIATION
        return f"at most {number(row.high)}" if at_most else number(row.value)

    def format_interval(row: Row) -> str:
        return f"{number(row.low)} to {number(row.high)}" if table_of.tells(row) else TOO_FEW

    columns.append(_Column(f"{value} {unit}".strip(), format_value))
    columns.append(_Column(table_of.interval_heading, format_interval))
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
    has_heading = table_of.quantity == "share" and table_of.kind in _HEADED
    return table_of.unit or table_of.experiment if has_heading else ""


def _number(table_of: AnswerRows) -> Callable[[float], str]:
    """Return a formatter (percent for shares) with the precision of the narrowest interval shown."""
    scale = 100 if table_of.quantity == "share" else 1
    halves = [scale * row.half_width for row in table_of.telling().rows if row.high > row.low]
    places = decimals(0.0, 2 * min(halves, default=0.0))
    return lambda x: f"{round(scale * x, places) + 0.0:.{places}f}"  # no -0.00


def _p_value(p: float | None, level: float) -> Text:
    if p is None:
        return Text()
    return Text("< 0.0001" if p < 1e-4 else f"{p:.4f}", style="green" if p < level else "")


def print_answers(tables: Sequence[AnswerRows], draw: Callable[[AnswerRows], FittedTable] = answer) -> None:
    """Print the tables of several answers, each created by `draw`."""
    out.print(stack_tables(tables, draw))


def stack_tables(tables: Sequence[AnswerRows], draw: Callable[[AnswerRows], FittedTable] = answer) -> Group:
    """Return the tables of several answers, separated by empty lines, with each note shown only once."""
    parts: list[RenderableType] = []
    notes = set[str]()
    for i, answer_rows in enumerate(tables):
        parts += ["", draw(answer_rows)] if i else [draw(answer_rows)]
        parts += [plain(note) for note in answer_rows.notes if note not in notes]
        notes.update(answer_rows.notes)
    return Group(*parts)
