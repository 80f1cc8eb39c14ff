"""The plot of `hushmote ledger`: counted and forecast reports per day, and devices that can still report."""

import datetime
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.dates import date2num
from matplotlib.ticker import PercentFormatter

from ...server.answers.figure import (
    COLOURS,
    add_heading,
    add_legend_below,
    date_axis,
    figure,
    number_axis,
    style_axes,
)
from ...server.budgets.forecast import SPENT_SHARE
from ...server.budgets.remaining import Remaining, picture_horizons

_POINTS = 300
_DASHED = (0, (4, 2))


def plot(path: Path, title: str, lines: Sequence[Remaining], today: datetime.date) -> None:
    """Plot a fleet's past and forecast reports as PNG, PDF or SVG; without a rate, there is no forecast."""
    soon, horizon = picture_horizons(lines, today)
    start = float(date2num(today))
    with figure(path, columns=2) as (drawing, axes):
        for line, colour in zip(lines, COLOURS * 10, strict=False):
            days = line.budget.days
            if days:
                positions = [float(date2num(day)) + 0.5 for day in days]
                axes[0].plot(positions, list(days.values()), ".", color=colour, ms=4.5, alpha=0.75)
            if line.forecast:
                name = line.budget.experiment.name
                near, far = np.linspace(0, soon, _POINTS), np.linspace(0, horizon, _POINTS)
                axes[0].plot(start + near, line.forecast.reports_a_day(near), color=colour, label=name, lw=2)
                axes[1].plot(
                    start + far, line.forecast.share_able_to_report(far), color=colour, label=name, lw=2
                )
        axes[0].plot([], [], ".", color="#444444", label="counted")
        style_axes(axes[0], ylabel="reports a day")
        axes[0].set_ylim(bottom=0)
        number_axis(axes[0].yaxis)
        style_axes(axes[1], ylabel="devices that can still report")
        axes[1].set_ylim(0, 1.02)
        axes[1].yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[1].axhline(SPENT_SHARE, color="#888888", lw=1, ls=_DASHED)
        axes[1].annotate(
            f"{SPENT_SHARE:.0%} of the devices",
            (1, SPENT_SHARE),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points", ha="right", fontsize=9, color="#555555",
        )  # fmt: skip
        for panel in axes:
            panel.xaxis_date()
            date_axis(panel.xaxis)
        add_heading(drawing, title)
        add_legend_below(drawing, axes[0], 4)
