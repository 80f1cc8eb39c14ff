"""The picture of a joint table: a cell for each pair of values, coloured by its share, with its error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from ..plain_text import shortened
from .figure import COLOURS, QUIET
from .rows import AnswerRows, CellRow

_COLOURS = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ec3e6", COLOURS[0], "#08306b"])
_MOST_WRITTEN = 12  # rows and columns whose numbers have room in their cells
_LONGEST_NAME = 16


def fits(answer: AnswerRows) -> bool:
    """Whether it is a table of two parts."""
    return all(isinstance(row, CellRow) and len(row.cell) == 2 for row in answer.rows)


def draw(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """Colour each cell by its share, and write the share and half its interval where there is room.

    In a larger table a small cross marks the cells whose interval holds 0. Returns the axes' labels.
    """
    cells = [row for row in answer.rows if isinstance(row, CellRow)]
    ((across, down),) = {tuple(part for part, _ in row.cell) for row in cells}
    columns = list(dict.fromkeys(row.cell[0][1] for row in cells))
    lines = list(dict.fromkeys(row.cell[1][1] for row in cells))
    shape = (len(columns), len(lines))
    shares = 100 * np.array([row.value for row in cells]).reshape(shape).T
    half = 50 * np.array([row.high - row.low for row in cells]).reshape(shape).T
    image = axes.pcolormesh(np.clip(shares, 0, None), cmap=_COLOURS, vmin=0, edgecolors="white", linewidth=1)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label("share of devices, %")
    _name(axes, columns, lines)
    if max(shape) <= _MOST_WRITTEN:
        _write(axes, shares, half)
    else:
        nothing = np.array([row.low <= 0 for row in cells]).reshape(shape).T
        y, x = np.nonzero(nothing)
        size = 200 / max(shape)
        axes.scatter(x + 0.5, y + 0.5, s=size, marker="x", linewidths=0.7, color=QUIET, label="may be 0")
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0, handletextpad=0.1)
    axes.invert_yaxis()
    return across, down


def half_width(answer: AnswerRows) -> float:
    """Half of the middle interval, in percentage points."""
    return float(np.median([50 * (row.high - row.low) for row in answer.rows]))


def _name(axes: Axes, columns: Sequence[str], lines: Sequence[str]) -> None:
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, lines)):
        axis.set_ticks(np.arange(len(names)) + 0.5, [shortened(name, _LONGEST_NAME) for name in names])
        axis.set_tick_params(length=0)
    if max(map(len, columns), default=0) * len(columns) > 70:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")


def _write(axes: Axes, shares: np.ndarray, half: np.ndarray) -> None:
    dark = np.nanmax(shares) * 0.55
    for (y, x), share in np.ndenumerate(shares):
        colour = "white" if share > dark else "#222222"
        text = f"{share + 0.0:.1f}\n±{half[y, x]:.1f}"
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8.5, color=colour)
