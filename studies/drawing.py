"""Helpers for figures. Only draw() functions import them, because matplotlib is slow to load."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import NullFormatter

from ..server.answers.figure import (
    COLOURS,
    TRUTH,
    add_heading,
    add_legend_below,
    figure,
    number_axis,
    panels,
    style_axes,
    use_plain_ticks,
)

__all__ = ["COLOURS", "GREY", "TRUTH", "add_heading", "add_legend_below", "curve", "figure"]
__all__ += ["number_axis", "panel", "panels", "thousands"]

GREY = "#777777"
Ticks = str | Callable[[float], str] | Iterable[float] | None
"""The format of an axis's numbers, such as "{:g}" or a function; or the only numbers to show."""


def thousands(x: float) -> str:
    """Format a number as 20,000 if it is 1 or more, and as 0.2 otherwise."""
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
        words: The title, the subtitle, and the labels of both axes.
        log: The axes with a logarithmic scale, such as "xy".
        x: The ticks of the x axis.
        y: The ticks of the y axis.
        **legend: matplotlib's options for a legend within the panel; without any, there is no legend.
    """
    for name, axis, ticks in (("x", axes.xaxis, x), ("y", axes.yaxis, y)):
        if name in log:
            axes.set(**{f"{name}scale": "log"})
        _write(axis, ticks)
    style_axes(axes, *words)
    if legend:
        axes.legend(**{"frameon": False} | legend)


def _write(axis: Axis, ticks: Ticks) -> None:
    if isinstance(ticks, str):
        use_plain_ticks(axis, ticks.format)
    elif callable(ticks):
        use_plain_ticks(axis, ticks)
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
