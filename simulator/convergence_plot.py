"""Plot a fleet's convergence: shares, a number's quantiles, and the error against theory."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from ..server.answers.figure import (
    COLOURS,
    add_heading,
    as_title,
    figure,
    start_at_zero,
    style_axes,
    use_plain_ticks,
)
from ..server.answers.rows import Row
from ..server.arrays import Floats
from ..server.plain_text import shorten
from .convergence import Convergence

_LONGEST_NAME = 18  # characters in a line's label
# Neighbours differ in lightness as well as in hue.
_LINES = (COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[6], COLOURS[5])


def plot(growth: Convergence, path: Path | None = None, purpose: str = "") -> Figure:
    """Draw the picture and return it; if a path is given, also write it as PNG, PDF or SVG, by its suffix."""
    steps, unit = growth.steps, growth.unit or growth.experiment.name
    name = f"{growth.experiment.name}, {growth.unit}" if growth.unit else growth.experiment.name
    reports = np.array([step.reports for step in steps], float)
    with_quantiles = bool(steps[-1].quantiles)
    note = f"bands: {growth.confidence * 100:g}% intervals; dashed lines: truth"
    with figure(path, columns=3 if with_quantiles else 2) as (drawing, panels):
        head = f"{name}: estimates as {steps[-1].reports:,} reports arrive"
        add_heading(drawing, as_title(purpose) or head)
        _lines(panels[0], reports, [[_percent(row) for row in step.shares] for step in steps])
        style_axes(panels[0], "Shares", note, "reports", "share of devices, %")
        start_at_zero(panels[0].yaxis)
        if with_quantiles:
            _lines(panels[1], reports, [step.quantiles for step in steps])
            style_axes(panels[1], "Quantiles", note, "reports", unit)
        errors = panels[-1]
        errors.plot(reports, [100 * step.predicted for step in steps], color=COLOURS[6], label="theory")
        measured = [100 * step.error for step in steps]
        errors.plot(reports, measured, "o", color=COLOURS[1], markersize=4.5, label="this fleet")
        errors.set_yscale("log")
        errors.yaxis.set_major_locator(_ticks())
        use_plain_ticks(errors.yaxis)
        _counts(errors, reports)
        errors.legend(frameon=False)
        style_axes(
            errors, "Error", "root mean square over the histogram's rows", "reports", "RMS error, points"
        )
    return drawing


def _percent(row: Row) -> Row:
    truth = None if row.truth is None else 100 * row.truth
    return Row(row.name, 100 * row.value, 100 * row.low, 100 * row.high, truth)


def _lines(axes: Axes, reports: Floats, steps: Sequence[Sequence[Row]]) -> None:
    """Draw a line per row, its interval as a band, its truth dashed; the legend lists the highest first."""
    ends: list[tuple[float, Line2D]] = []
    for rows, colour in zip(zip(*steps, strict=True), _LINES, strict=False):
        low, high = [row.low for row in rows], [row.high for row in rows]
        axes.fill_between(reports, low, high, color=colour, alpha=0.16, linewidth=0)
        name = shorten(rows[-1].name, _LONGEST_NAME)
        values = [row.value for row in rows]
        ends += (
            (values[-1], line) for line in axes.plot(reports, values, color=colour, linewidth=1.5, label=name)
        )
        truth = rows[-1].truth
        if truth is not None:
            axes.axhline(truth, color=colour, linewidth=1, linestyle="--")
    _counts(axes, reports)
    later = [row for step in steps[len(steps) // 3 :] for row in step]  # earlier rows may leave the panel
    truths = [row.truth for row in steps[-1] if row.truth is not None]
    bottom, top = min([row.low for row in later] + truths), max([row.high for row in later] + truths)
    margin = 0.04 * (top - bottom) or 1.0
    axes.set_ylim(bottom - margin, top + margin)
    named = [line for _, line in sorted(ends, key=lambda end: -end[0])]
    axes.legend(handles=named, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.0)


def _counts(axes: Axes, reports: Floats) -> None:
    axes.set_xscale("log")
    is_wide = reports[-1] >= 100_000  # otherwise labels would overlap
    axes.xaxis.set_major_locator(LogLocator() if is_wide else _ticks())
    use_plain_ticks(axes.xaxis, lambda x: f"{x:,.0f}")
    axes.set_xlim(reports[0], reports[-1])


def _ticks() -> LogLocator:
    """Return ticks at 1, 2, 5, 10, 20, ..., or at every other one if they would be too dense."""
    return LogLocator(subs=(1, 2, 5), numticks=10)
