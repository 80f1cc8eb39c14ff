"""Helpers for the pictures of studies. Only draw() imports it: matplotlib takes a second to load."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import NullFormatter

from ..server.answers.figure import (
    COLOURS,
    TRUTH,
    figure,
    heading,
    legend_below,
    number_axis,
    panels,
    plain,
    style,
)

__all__ = ["COLOURS", "GREY", "TRUTH", "curve", "figure", "heading", "legend_below"]
__all__ += ["number_axis", "panel", "panels", "thousands"]

GREY = "#777777"
Ticks = str | Callable[[float], str] | Iterable[float] | None
"""How an axis's numbers are written, as "{:g}" or by a function; or the only ones that are written."""


def thousands(x: float) -> str:
    """Format a number as 20,000 from 1 on, and as 0.2 below."""
    return f"{x:,.0f}" if x >= 1 else f"{x:g}"


def panel(
    axes: Axes,
    words: tuple[str, str, str, str],
    log: str = "",
    x: Ticks = None,
    y: Ticks = None,
    **legend: Any,
) -> None:
    """Finish a panel whose lines are drawn.

    Args:
        axes: The panel.
        words: Its title, the text below it, and the names of both axes.
        log: The axes with a logarithmic scale, such as "xy".
        x: The ticks of the x axis.
        y: The ticks of the y axis.
        **legend: matplotlib's options of a legend within the panel; without any, there is no legend.
    """
    for name, axis, ticks in (("x", axes.xaxis, x), ("y", axes.yaxis, y)):
        if name in log:
            axes.set(**{f"{name}scale": "log"})
        _write(axis, ticks)
    style(axes, *words)
    if legend:
        axes.legend(**{"frameon": False} | legend)


def _write(axis: Axis, ticks: Ticks) -> None:
    if isinstance(ticks, str):
        plain(axis, ticks.format)
    elif callable(ticks):
        plain(axis, ticks)
    elif ticks is not None:
        values = list(ticks)
        axis.set_ticks(values, labels=[f"{v:g}" for v in values])
        axis.set_minor_formatter(NullFormatter())


def curve(
    axes: Axes,
    x: Sequence[float],
    predicted: Sequence[float],
    measured: Sequence[float],
    colour: str,
    label: str | None,
    size: float = 4.5,
) -> None:
    """Draw measured points over the predicted line."""
    axes.plot(x, predicted, "-", color=colour, linewidth=1.6)
    axes.plot(x, measured, "o", color=colour, markersize=size, label=label)
