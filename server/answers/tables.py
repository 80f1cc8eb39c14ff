"""Tables for the terminal, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...device.ldp_client import Experiment
from ..epsilon import rounded_up
from ..experiments import words
from ..plain_text import visible
from .answer import Answer, ChangeRow, PostRow, Row, TopRow, TrendRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PlainConsole(Console):
    """A console on which text is text: no [markup], no :emoji:, and control characters as escapes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return what rich prints for a text."""
        return super().render_str(visible(text), **options)


out = PlainConsole()
err = PlainConsole(stderr=True)

_BAR_CELLS = 14


def _bar(share: float, most: float) -> str:
    """A horizontal bar in eighths of a cell."""
    eighths = max(0, round(share / most * _BAR_CELLS * 8)) if most > 0 else 0
    full, rest = divmod(min(eighths, _BAR_CELLS * 8), 8)
    return "█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def plain(text: str) -> Text:
    """A text that is shown as it is on any console, also one that reads markup."""
    return Text(visible(text))


class PlainTable(Table):
    """A table whose texts are shown as they are on any console."""

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        """Add a column with a heading."""
        super().add_column(plain(header) if isinstance(header, str) else header, *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row."""
        super().add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def _mark(row: Row) -> Text:
    return Text("yes", style="green") if row.covered else Text("no", style="red")


def table(title: str | None = None, header: bool = True) -> Table:
    """A table in the project's one style."""
    style = {"box": None, "pad_edge": False, "padding": (0, 1), "show_header": header}
    shown = None if title is None else plain(title)
    return PlainTable(title=shown, title_justify="left", title_style="bold", **style)


_TITLES = {
    "histogram": "share of the fleet",
    "ranges": "ranges",
    "cdf": "share of the fleet below",
    "quantiles": "quantiles",
    "moments": "mean and spread",
    "top": "most common",
    "change": "what changed",
    "trend": "over time",
}


Column = tuple[str, Callable[[Any], str | Text]]  # a heading, and what of a row stands below it


def answer(table_of: Answer, title: str = "") -> Table:
    """An answer's table: shares in percent or readings in their unit, with intervals; 80 columns or less."""
    columns = _columns(table_of)
    result = table(title or _TITLES[table_of.kind])
    for heading, _ in columns:
        result.add_column(heading, justify="right", no_wrap=True)
    bars = table_of.quantity == "share" and _row_class(table_of) in (Row, PostRow)
    if bars:
        result.add_column("", no_wrap=True, overflow="crop", style="blue")
    most = max([row.value for row in table_of.rows] + [0.0])
    for row in table_of.rows:
        cells = [cell(row) for _, cell in columns]
        result.add_row(*cells, *([_bar(row.value, most)] if bars else []))
    return result


def html(table_of: Answer) -> str:
    """The same table for a notebook."""
    columns = _columns(table_of)
    headings = "".join(f"<th>{escape(heading)}</th>" for heading, _ in columns)
    rows = (
        "<tr>" + "".join(f"<td>{escape(str(cell(row)))}</td>" for _, cell in columns) + "</tr>"
        for row in table_of.rows
    )
    caption = f"<caption>{escape(_TITLES[table_of.kind])}</caption>"
    note = f"<p>{escape(table_of.note)}</p>" if table_of.note else ""
    return f"<table>{caption}<thead><tr>{headings}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"


def _row_class(table_of: Answer) -> type[Row]:
    return type(table_of.rows[0]) if table_of.rows else Row


def _columns(table_of: Answer) -> list[Column]:
    share = table_of.quantity == "share"
    unit = "%" if share else table_of.unit
    number = _percent if share else _reading
    interval = f"{table_of.confidence * 100:g} % interval"
    known = any(row.truth is not None for row in table_of.rows)
    kind = _row_class(table_of)
    columns: list[Column] = [(_heading(table_of), lambda r: r.name)]
    if kind is TrendRow:
        columns.insert(0, ("window", lambda r: r.window))
        columns.append(("reports", lambda r: f"{r.reports:,}"))
    if any(row.histogram_epsilon is not None for row in table_of.rows if isinstance(row, TrendRow)):
        columns.append(("ε", lambda r: rounded_up(r.histogram_epsilon)))
    if kind is ChangeRow:
        columns += [("before", lambda r: number(r.before)), ("after", lambda r: number(r.after))]
    if known:
        columns.append((f"true {unit}".strip(), lambda r: "" if r.truth is None else number(r.truth)))
    value = "change" if kind is ChangeRow else "est."
    columns.append((f"{value} {unit}".strip(), lambda r: number(r.value)))
    columns.append((interval, lambda r: f"{number(r.low)} to {number(r.high)}"))
    if known:
        columns.append(("truth in it", lambda r: "" if r.covered is None else _mark(r)))
    if kind is PostRow:
        columns.append((f"{table_of.note.partition(':')[0]} %", lambda r: number(r.processed)))
    if kind is TopRow:
        columns.append(("belongs there", lambda r: f"{r.probability * 100:.0f} %"))
    if kind is ChangeRow:
        columns.append(("p", lambda r: _p_value(r.p_adjusted, 1 - table_of.confidence)))
    return columns


def _heading(table_of: Answer) -> str:
    if table_of.quantity == "share" and table_of.kind in ("histogram", "ranges", "cdf", "top", "change"):
        return table_of.unit or table_of.experiment
    return ""


def _percent(x: float) -> str:
    return f"{x * 100:.2f}"


def _reading(x: float) -> str:
    return f"{x:.5g}"


def _p_value(p: float, level: float) -> Text:
    return Text("< 0.0001" if p < 1e-4 else f"{p:.4f}", style="green" if p < level else "")


def answers(tables: Sequence[Answer]) -> None:
    """Print several answers' tables."""
    out.print(stacked(tables))


def stacked(tables: Sequence[Answer]) -> Group:
    """Several answers' tables, each with its note below it and an empty line between two."""
    parts: list[RenderableType] = []
    for number, one in enumerate(tables):
        parts += ["", answer(one)] if number else [answer(one)]
        parts += [plain(one.note)] if one.note else []
    return Group(*parts)


def plot(path: Path | None, experiment: Experiment, pictured: Answer) -> Figure:
    """Draw an answer, the experiment's mechanism below its title, and write it to path, if any."""
    title = f"{experiment.name}: {pictured.reports:,} private reports"
    subtitle = f"{words.mechanism(experiment)}, ε = {experiment.epsilon / 1e6:g} per report"
    return pictured.plot(path, title, f"{subtitle}; {pictured.confidence * 100:g} % intervals")
