"""The plot of `hushmote ledger`: reports a day, counted and forecast; boards that can still report."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.ticker import PercentFormatter

from ...server.answers.figure import COLOURS, figure, heading, legend_below, style
from ...server.planning.forecast import DRY
from ...server.planning.remaining import Remaining

_POINTS = 300
_DASHED = (0, (4, 2))
_NEVER_DAYS = 365.0  # how far the plot looks where nothing ever runs dry


def plot(path: Path, title: str, lines: Sequence[Remaining], today: datetime.date) -> None:
    """Write how a fleet's reports were and will be; PNG, PDF or SVG. Without a rate there is no forecast."""
    ends = [x.forecast.days_until(DRY / 5) for x in lines if x.forecast]
    horizon = 1.05 * max([end for end in ends if end], default=_NEVER_DAYS)
    days = np.linspace(0, max(horizon, 1.0), _POINTS)
    start = float(date2num(today))
    with figure(path, columns=2) as (made, axes):
        for line, colour in zip(lines, COLOURS * 10, strict=False):
            past = line.budget.days
            if past:
                at = [float(date2num(day)) + 0.5 for day in past]
                axes[0].plot(at, list(past.values()), ".", color=colour, ms=4.5, alpha=0.75)
            if line.forecast:
                name = line.budget.experiment.name
                axes[0].plot(start + days, line.forecast.reports_a_day(days), color=colour, label=name, lw=2)
                axes[1].plot(start + days, line.forecast.able(days), color=colour, label=name, lw=2)
        axes[0].plot([], [], ".", color="#444444", label="counted")
        style(axes[0], ylabel="reports a day")
        axes[0].set_ylim(bottom=0)
        style(axes[1], ylabel="boards that can still report")
        axes[1].set_ylim(0, 1.02)
        axes[1].yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[1].axhline(DRY, color="#888888", lw=1, ls=_DASHED)
        axes[1].annotate(
            f"dry: {DRY * 100:g} %", (1, DRY), xycoords=("axes fraction", "data"), xytext=(0, 3),
            textcoords="offset points", ha="right", fontsize=9, color="#555555",
        )  # fmt: skip
        for panel in axes:
            locator = AutoDateLocator(minticks=4, maxticks=8)
            panel.xaxis.set_major_locator(locator)
            panel.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        heading(made, title)
        legend_below(made, axes[0], 4)
