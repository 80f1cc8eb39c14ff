"""What is drawn on one pair of axes: numbers and dates to scale, names in rows, intervals as bars."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from ..plain_text import shortened

# Okabe and Ito's, without the yellow that white paper swallows; the order is the order of use.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
BAR, ERROR, TRUTH, QUIET = "#9ec3e6", "#1f3b57", "#d1495b", "#888888"

LINE_ROWS = 40
"""More points than these are a line in a band: as many error bars cannot be told apart."""

HEADING = "heading"
"""Marks the texts above a panel, which are made to fit its width."""

_LONGEST_NAME = 32  # characters of a name beside a row


def style(axes: Axes, title: str = "", subtitle: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Give axes their headings, a quiet grid and no box."""
    axes.set_axisbelow(True)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if title:
        pad = 26 if subtitle else 8
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=pad, gid=HEADING)
    if subtitle:
        where = {"transform": axes.transAxes, "gid": HEADING}
        axes.text(0, 1.02, subtitle, fontsize=9.5, color="#444444", **where)


def plain(axis: Axis, text: Callable[[float], str] = "{:g}".format) -> None:
    """Write an axis's ticks as plain numbers, 0.1 and not 10⁻¹."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def log_log(axes: Axes) -> None:
    """Give both axes a logarithmic scale."""
    axes.set_xscale("log")
    axes.set_yscale("log")


def number_axis(axis: Axis, ticks: int = 10, whole: bool = False) -> None:
    """Give a linear axis at most so many ticks at round numbers, thousands apart: 20,000."""
    axis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10], integer=whole))
    plain(axis, lambda value: f"{value:,.10g}")


def date_axis(axis: Axis, ticks: int = 5) -> None:
    """Give an axis of dates at least so many ticks, at round dates, each with what is new in it."""
    locator = AutoDateLocator(minticks=ticks)
    axis.set_major_locator(locator)
    axis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
            zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
            offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
        )
    )


def moments_of(windows: Sequence[str]) -> list[datetime.datetime] | None:
    """When windows such as 2026-11-21 or 2026-11-21T14 begin; None where one is no time."""
    try:
        return [datetime.datetime.fromisoformat(window) for window in windows]
    except ValueError:
        return None


def named_rows(axes: Axes, names: Sequence[str]) -> npt.NDArray[np.int_]:
    """Write names beside rows from the top down, long ones shortened; return the rows' places."""
    at = np.arange(len(names))[::-1]
    shown = ["\n".join(shortened(line, _LONGEST_NAME) for line in name.splitlines()) for name in names]
    axes.set_yticks(at, shown)
    axes.set_ylim(-0.7, len(names) - 0.3)
    return at


def lines_and_band(
    axes: Axes,
    x: npt.ArrayLike | Sequence[datetime.datetime],
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    colour: str = COLOURS[0],
    label: str = "",
    band_label: str = "",
    marker: str = "",
) -> None:
    """Draw a line through values in the band of their intervals; all of one shape, x numbers or dates.

    marker: matplotlib's, at each value: gaps between them then show.
    """
    axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0, label=band_label or None)  # type: ignore[arg-type]
    axes.plot(
        np.asarray(x), value, color=colour, linewidth=1.6, label=label or None, marker=marker, markersize=5
    )


def intervals(
    axes: Axes,
    x: npt.ArrayLike | Sequence[datetime.datetime],
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    colour: str = COLOURS[0],
    label: str = "",
) -> None:
    """Draw values in their order along x with error bars, or, more than LINE_ROWS, as lines_and_band()."""
    values = np.asarray(value)
    if values.size > LINE_ROWS:
        lines_and_band(axes, x, values, low, high, colour, label, marker=".")
        return
    errors = np.maximum([values - np.asarray(low), np.asarray(high) - values], 0)
    style = {"fmt": "o-", "markersize": 5, "capsize": 3, "linewidth": 1.4}
    axes.errorbar(x, values, errors, color=colour, label=label or None, **style)  # type: ignore[arg-type]
