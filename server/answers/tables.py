"""Tables for the terminal, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ...device.ldp_client import Experiment
from ..experiments import words
from .answer import Answer, ChangeRow, PostRow, Row, TopRow, TrendRow

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_BAR_CELLS = 14


def _bar(share: float, most: float) -> str:
    """A horizontal bar in eighths of a cell."""
    eighths = max(0, round(share / most * _BAR_CELLS * 8)) if most > 0 else 0
    full, rest = divmod(min(eighths, _BAR_CELLS * 8), 8)
    return "█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def _mark(row: Row) -> Text:
    return Text("yes", style="green") if row.covered else Text("no", style="red")


def table(title: str | None = None, header: bool = True) -> Table:
    """A table in the project's one style."""
    style = {"box": None, "pad_edge": False, "padding": (0, 1), "show_header": header}
    return Table(title=title, title_justify="left", title_style="bold", **style)


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


def answer(found: Answer, title: str = "") -> Table:
    """An answer's table: shares in percent or readings in their unit, with intervals; 80 columns or less."""
    share = found.quantity == "share"
    unit = "%" if share else found.unit
    number = _percent if share else _reading
    interval = f"{found.confidence * 100:g} % interval"
    rows = found.rows
    known = any(row.truth is not None for row in rows)
    kind = type(rows[0]) if rows else Row
    columns: list[tuple[str, Callable[[Any], str | Text]]] = [(_heading(found), lambda r: r.name)]
    if kind is TrendRow:
        columns.insert(0, ("window", lambda r: r.window))
        columns.append(("reports", lambda r: f"{r.reports:,}"))
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
        columns.append((f"{found.note.partition(':')[0]} %", lambda r: number(r.processed)))
    if kind is TopRow:
        columns.append(("belongs there", lambda r: f"{r.probability * 100:.0f} %"))
    if kind is ChangeRow:
        columns.append(("p", lambda r: _p_value(r.p_adjusted, 1 - found.confidence)))
    result = table(title or _TITLES[found.kind])
    for heading, _ in columns:
        result.add_column(heading, justify="right", no_wrap=True)
    bars = share and kind in (Row, PostRow)
    if bars:
        result.add_column("", no_wrap=True, overflow="crop", style="blue")
    most = max([row.value for row in rows] + [0.0])
    for row in rows:
        cells = [cell(row) for _, cell in columns]
        result.add_row(*cells, *([_bar(row.value, most)] if bars else []))
    return result


def _heading(found: Answer) -> str:
    if found.kind in ("histogram", "ranges", "cdf", "top", "change") and found.quantity == "share":
        return found.unit or found.experiment
    return ""


def _percent(x: float) -> str:
    return f"{x * 100:.2f}"


def _reading(x: float) -> str:
    return f"{x:.5g}"


def _p_value(p: float, level: float) -> Text:
    return Text("< 0.0001" if p < 1e-4 else f"{p:.4f}", style="green" if p < level else "")


def answers(found: Sequence[Answer]) -> None:
    """Print several answers' tables."""
    for number, one in enumerate(found):
        if number:
            out.print()
        out.print(answer(one))
        if one.note:
            out.print(one.note)


def plot(path: Path, experiment: Experiment, found: Answer, title: str = "") -> None:
    """Write an answer as a picture, the experiment's mechanism below its title."""
    title = title or f"{experiment.name}: {found.reports:,} private reports"
    subtitle = f"{words.mechanism(experiment)}, ε = {experiment.epsilon / 1e6:g} per report"
    found.plot(path, title, f"{subtitle}; {found.confidence * 100:g} % intervals")
