"""Tables for the terminal, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..device.ldp_client import Experiment
from .answer import Row

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


def shares(title: str, heading: str, rows: Sequence[Row]) -> Table:
    """A histogram or a list of ranges: shares in percent with 95 % intervals, and the truth where known."""
    most = max([row.value for row in rows] + [0.0])
    result = _answer_table(title, (heading, "true %", "est. %"), rows)
    result.add_column("", no_wrap=True, overflow="crop", style="blue")
    for row in rows:
        interval = f"{row.low * 100:6.2f} to {row.high * 100:6.2f}"
        cells = _answer_cells(row, rows, f"{row.value * 100:.2f}", interval, lambda x: f"{x * 100:.2f}")
        result.add_row(*cells, _bar(row.value, most))
    return result


def quantiles(title: str, unit: str, rows: Sequence[Row]) -> Table:
    """Quantiles in the reading's own unit with 95 % intervals, and the truth where known."""
    headings = ("quantile", f"true {unit}".strip(), f"estimate {unit}".strip())
    result = _answer_table(title, headings, rows)
    for row in rows:
        interval = f"{row.low:g} to {row.high:g}"
        result.add_row(*_answer_cells(row, rows, f"{row.value:g}", interval, lambda x: f"{x:g}"))
    return result


def _truth_known(rows: Sequence[Row]) -> bool:
    return any(row.truth is not None for row in rows)


def _answer_table(title: str, headings: tuple[str, str, str], rows: Sequence[Row]) -> Table:
    """Columns for name, truth where known, value, interval, and whether it holds the truth."""
    name, truth, value = headings
    known = _truth_known(rows)
    columns = [name, *([truth] if known else []), value, "95 % interval", *(["truth in it"] if known else [])]
    result = table(title)
    for column in columns:
        result.add_column(column, justify="right", no_wrap=True)
    return result


def _answer_cells(
    row: Row, rows: Sequence[Row], value: str, interval: str, write: Callable[[float], str]
) -> list[str | Text]:
    if not _truth_known(rows):
        return [row.name, value, interval]
    truth = "" if row.truth is None else write(row.truth)
    return [row.name, truth, value, interval, "" if row.covered is None else _mark(row)]


def answers(
    experiment: Experiment, unit: str, histogram: Sequence[Row], ranges: Sequence[Row], points: Sequence[Row]
) -> None:
    """Print the tables of an answer."""
    heading = unit or experiment.name
    out.print(shares("share of the fleet", heading, histogram))
    if ranges:
        out.print(shares("ranges", heading, ranges))
    if points:
        out.print(quantiles("quantiles", unit, points))


def mechanism(experiment: Experiment) -> str:
    """A mechanism and its numbers in a few words."""
    if experiment.mechanism == "olh":
        return f"olh, {experiment.levels[0].g} cells"
    if experiment.mechanism == "hh":
        return f"hh, fanout {experiment.fanout}, cells {' '.join(str(x.g) for x in experiment.levels)}"
    return experiment.mechanism


def budget(experiment: Experiment) -> str:
    """What one board may spend on the experiment, in words."""
    thinned = "" if experiment.every == 1 else f"; one call in {experiment.every} reports"
    if experiment.rule == "unlimited":
        return "no cap of its own" + thinned
    if experiment.rule == "count":
        return f"at most {experiment.cap} reports for life{thinned}"
    reports = experiment.cap // experiment.cost()
    if experiment.rule == "sum":
        return f"Σε at most {experiment.cap / 1e6:g} for life: {reports} reports{thinned}"
    return f"Σε² at most {experiment.cap / 1e12:g} for life: {reports} reports{thinned}"


def plot(path: Path, experiment: Experiment, reports: int, rows: Sequence[Row], unit: str = "") -> None:
    """Write rows of a histogram as a PNG."""
    from .plot import histogram  # matplotlib takes a second to load: only those who plot wait for it

    truths = [row.truth for row in rows]
    histogram(
        path,
        [row.name for row in rows],
        np.array([row.value for row in rows]),
        np.array([(row.low, row.high) for row in rows]),
        title=f"{experiment.name}: {reports:,} private reports",
        subtitle=f"{mechanism(experiment)}, ε = {experiment.epsilon / 1e6:g} per report; 95 % intervals",
        xlabel=unit or experiment.name,
        truth=None if None in truths else np.array(truths, float),
    )
