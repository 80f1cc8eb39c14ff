"""Tables for the terminal, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .answer import Row

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_BAR_CELLS = 18


def _bar(share: float, most: float) -> str:
    """A horizontal bar in eighths of a cell."""
    eighths = max(0, round(share / most * _BAR_CELLS * 8)) if most > 0 else 0
    full, rest = divmod(min(eighths, _BAR_CELLS * 8), 8)
    return "█" * full + ("" if rest == 0 else " ▏▎▍▌▋▊▉"[rest])


def _mark(row: Row) -> Text:
    return Text("yes", style="green") if row.covered else Text("no", style="red")


def table(title: str | None = None) -> Table:
    """A table in the project's one style."""
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 1))


def shares(title: str, heading: str, rows: Sequence[Row]) -> Table:
    """A histogram or a list of ranges: shares in percent with 95 % intervals, and the truth where known."""
    known = any(row.truth is not None for row in rows)
    most = max([row.value for row in rows] + [0.0])
    result = table(title)
    result.add_column(heading, justify="right", no_wrap=True)
    if known:
        result.add_column("true %", justify="right")
    result.add_column("estimate %", justify="right")
    result.add_column("95 % interval", justify="right", no_wrap=True)
    if known:
        result.add_column("holds truth", justify="right")
    result.add_column("", no_wrap=True, style="blue")
    for row in rows:
        cells: list[str | Text] = [row.name]
        if known:
            cells.append("" if row.truth is None else f"{row.truth * 100:.2f}")
        cells += [f"{row.value * 100:.2f}", f"{row.low * 100:6.2f} to {row.high * 100:6.2f}"]
        if known:
            cells.append("" if row.covered is None else _mark(row))
        result.add_row(*cells, _bar(row.value, most))
    return result


def quantiles(title: str, unit: str, rows: Sequence[Row]) -> Table:
    """Quantiles in the reading's own unit with 95 % intervals, and the truth where known."""
    known = any(row.truth is not None for row in rows)
    result = table(title)
    result.add_column("quantile", justify="right", no_wrap=True)
    if known:
        result.add_column(f"true {unit}".strip(), justify="right")
    result.add_column(f"estimate {unit}".strip(), justify="right")
    result.add_column("95 % interval", justify="right", no_wrap=True)
    if known:
        result.add_column("holds truth", justify="right")
    for row in rows:
        cells: list[str | Text] = [row.name]
        if known:
            cells.append("" if row.truth is None else f"{row.truth:g}")
        cells += [f"{row.value:g}", f"{row.low:g} to {row.high:g}"]
        if known:
            cells.append("" if row.covered is None else _mark(row))
        result.add_row(*cells)
    return result
