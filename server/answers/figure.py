"""The style of all figures, in colours that people with any type of colour vision can tell apart.

Figures are created without pyplot, and matplotlib's settings are changed only while a figure is created or
drawn, so a notebook's or program's settings are not affected.
"""

from __future__ import annotations

import datetime
import io
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter

from ..errors import UsageError, refusing
from ..local_days import UTC_DAYS, Calendar
from ..plain_text import shorten, visible
from .period_names import days_of_group

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Okabe and Ito's palette in order of use, without the yellow, which is invisible on white paper.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
BAR, ERROR, TRUTH, QUIET = "#9ec3e6", "#1f3b57", "#d1495b", "#888888"

LINE_ROWS = 40
"""Above this number, points are drawn as a line with a band, because error bars would overlap."""

_LONGEST_NAME = 32  # characters in a row's label

_INSTALLED_FONTS = frozenset(font.name for font in fontManager.ttflist)
_FURTHER_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Noto Emoji")
_FURTHER_FONTS += ("Hiragino Sans", "PingFang SC", "Arial Unicode MS", "Microsoft YaHei", "Segoe UI Emoji")

STYLE: dict[RcKeyType, Any] = {
    "font.family": "sans-serif",
    # Characters that the first font lacks come from the first of the others that has them.
    "font.sans-serif": ["DejaVu Sans", *(name for name in _FURTHER_FONTS if name in _INSTALLED_FONTS)],
    "font.size": 10.0,
    "axes.titlesize": 13.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.0,
    "axes.labelcolor": "#333333",
    "axes.edgecolor": "#888888",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 1.8,
    "errorbar.capsize": 3.0,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "text.parse_math": False,
}
"""Matplotlib's settings while a figure is created or drawn; the caller's other settings are not affected."""

_POINTS_PER_INCH = 72
_TITLE, _SUBTITLE = 13.0, 9.5  # points
_LETTER = {_TITLE: 0.7, _SUBTITLE: 0.6}  # letter width as a fraction of the size; titles are bold
_PANEL_MARGIN = 0.9  # inches for an axis, its tick labels and its name
_MAX_NAMES = 45  # rows that have enough space for a label each
_MAX_WIDTH = 1_600  # pixels of a picture
_LONGEST_QUESTION = 90  # characters in a title
_EVERY_DAYS, _MAX_DATES = (1, 2, 7, 14, 28), 8


class Picture(Figure):
    """A figure that a notebook displays when it is a cell's last expression, as with pyplot's figures.

    Text is drawn literally: a label with two $ is not a formula, and control characters are escaped.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure in the project's style."""
        # rc_context() because matplotlib creates ticks while drawing.
        with rc_context(STYLE), warnings.catch_warnings():
            # If no installed font has a character, the figure shows a box in its place.
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            for text in self.findobj(Text):
                text.set(parse_math=False, text=visible(text.get_text()))
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=90)
        return image.getvalue()


def _wrap(text: str, size: float, inches: float) -> str:
    letters = int(inches * _POINTS_PER_INCH / (size * _LETTER[size]))
    return "\n".join(line for part in text.splitlines() for line in textwrap.wrap(part, letters))


def add_heading(fig: Figure, title: str) -> None:
    """Add a title above all panels."""
    text = _wrap(title, _TITLE, 0.96 * fig.get_figwidth())
    fig.suptitle(text, x=0.02, ha="left", fontsize=_TITLE, fontweight="bold")


def add_legend_below(fig: Figure, axes: Axes, columns: int, size: float = 9.5) -> None:
    """Add these axes' legend below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


@contextmanager
def panels(path: Path | None, count: int, in_row: int = 2) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a new figure with `count` axes, at most `in_row` per row; see figure()."""
    columns = min(in_row, count)
    with figure(path, columns, -(-count // columns)) as (fig, axes):
        for empty in axes[count:]:
            empty.set_visible(False)
        yield fig, axes[:count]


@contextmanager
def figure(
    path: Path | None, columns: int = 1, rows: int = 1, heights: Sequence[float] = ()
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a new figure and its axes, row by row, and save it to `path` if given.

    Args:
        path: The file to write; its suffix selects PNG, PDF or SVG.
        columns: The number of axes side by side.
        rows: The number of rows of axes.
        heights: The heights of the rows in inches, if they differ.

    Raises:
        UsageError: If the file cannot be written.
    """
    height = sum(heights) if heights else 5.2 * max(1.0, 0.8 * rows)
    width = 9.5 * max(1.0, 0.62 * columns)
    with rc_context(STYLE):
        fig = Picture(figsize=(width, height), dpi=min(150, _MAX_WIDTH / width), layout="constrained")
        if path is not None and path.suffix[1:].lower() not in fig.canvas.get_supported_filetypes():
            raise UsageError(f"the file name of a picture must end in .png, .pdf or .svg, not {path.name}")
        ratios = list(heights) or None
        axes = fig.subplots(rows, columns, squeeze=False, height_ratios=ratios)
        yield fig, list(axes.flat)
        if path is None:
            return
        with refusing(UsageError, f"write {path}"):
            fig.savefig(path)


def style_axes(axes: Axes, title: str = "", subtitle: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Give axes their headings, a light grid and no frame."""
    axes.grid(visible=True)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    subplot_spec = axes.get_subplotspec()
    columns = subplot_spec.get_gridspec().ncols if subplot_spec else 1
    inches = axes.figure.bbox.width / axes.figure.dpi / columns - _PANEL_MARGIN
    below = _wrap(subtitle, _SUBTITLE, inches)
    if title:
        pad = 8 + 1.3 * _SUBTITLE * len(below.splitlines()) + 4 * bool(below)
        axes.set_title(_wrap(title, _TITLE, inches), pad=pad)
    if below:
        placement = {"xytext": (0, 6), "textcoords": "offset points", "xycoords": "axes fraction"}
        annotation = axes.annotate(
            below, (0, 1), fontsize=_SUBTITLE, color="#444444", va="bottom", **placement
        )
        annotation.set_in_layout(False)  # the title's padding leaves space for it


def use_plain_ticks(axis: Axis, text: Callable[[float], str] = "{:g}".format) -> None:
    """Label an axis's ticks with plain numbers, such as 0.1 instead of 10⁻¹."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def use_log_scales(axes: Axes) -> None:
    """Give both axes a logarithmic scale."""
    axes.set_xscale("log")
    axes.set_yscale("log")


def number_axis(axis: Axis, ticks: int = 10, whole: bool = False) -> None:
    """Give a linear axis at most `ticks` steps between round numbers with thousands separators (20,000)."""
    axis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10], integer=whole))
    use_plain_ticks(axis, lambda value: f"{value:,.10g}")


def log_axis(axes: Axes) -> None:
    """Give the horizontal axis a logarithmic scale, with plain numbers such as 1 and 1,000 at its ticks."""
    axes.set_xscale("log")
    use_plain_ticks(axes.xaxis, lambda value: f"{value:,.10g}")


def as_title(question: str) -> str:
    """Return a question as a figure's title: on one line, shortened if necessary."""
    return shorten(" ".join(question.split()), _LONGEST_QUESTION)


def start_at_zero(axis: Axis) -> None:
    """Start an axis of shares at 0, even if estimates and intervals extend below it."""
    low, high = axis.get_view_interval()
    if low < 0 < high:
        axis.axes.set_xlim(left=0) if axis is axis.axes.xaxis else axis.axes.set_ylim(bottom=0)


def date_axis(axis: Axis, ticks: int = 5) -> None:
    """Give an axis of dates at least `ticks` ticks at round dates.

    Each tick shows only the part of the date that changed. Daily ticks are evenly spaced, even across month
    boundaries.
    """
    first, last = axis.get_view_interval()
    step = next((days for days in _EVERY_DAYS if last - first <= days * _MAX_DATES), 0)
    use_days = step and last - first >= 2
    locator = (
        FixedLocator(np.arange(np.ceil(first), last, step).tolist())
        if use_days
        else AutoDateLocator(minticks=ticks)
    )
    axis.set_major_locator(locator)
    axis.set_major_formatter(
        ConciseDateFormatter(
            locator,
            formats=["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"],
            zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"],
            offset_formats=["", "%Y", "%Y", "%d %b %Y", "%d %b %Y", "%d %b %Y"],
        )
    )


def window_starts(windows: Sequence[str], calendar: Calendar = UTC_DAYS) -> list[datetime.datetime] | None:
    """Return when windows such as 2026-11-21, 2026-W47 or 2026-11-21T14 start, or None if one has no time.

    Args:
        windows: The windows.
        calendar: The experiment's calendar.
    """
    days = {w: ends[0] for w in windows if "W" in w and (ends := days_of_group(w, calendar))}
    try:
        return [datetime.datetime.fromisoformat(f"{days.get(window, window)}") for window in windows]
    except ValueError:
        return None


def label_rows(axes: Axes, names: Sequence[str]) -> npt.NDArray[np.int_]:
    """Label rows from top to bottom, shortening long names, and return the rows' positions.

    If there is not enough space for all names, only every second, third, etc. is shown.
    """
    positions = np.arange(len(names))[::-1]
    labels = [
        "\n".join(shorten(visible(line), _LONGEST_NAME) for line in name.splitlines()) for name in names
    ]
    step = -(-len(names) // _MAX_NAMES)
    axes.set_yticks(positions[::step], labels[::step])
    axes.set_ylim(-0.7, len(names) - 0.3)
    return positions


def draw_lines_and_band(
    axes: Axes,
    x: npt.ArrayLike | Sequence[datetime.datetime],
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    colour: str = COLOURS[0],
    band_label: str = "",
    **line: Any,
) -> None:
    """Draw a line through the values, and a band for their intervals.

    Args:
        axes: The axes to draw on.
        x: Numbers or dates; x, value, low and high have the same shape.
        value: The values.
        low: The lower bounds of the intervals.
        high: The upper bounds of the intervals.
        colour: The colour of the line and the band.
        band_label: The band's name in the legend, if it has one.
        line: Matplotlib options for the line, such as a label, or a marker at each value, which makes gaps
            visible.
    """
    axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0, label=band_label or None)  # type: ignore[arg-type]
    axes.plot(np.asarray(x), value, color=colour, linewidth=1.6, markersize=5, **line)


def draw_intervals(
    axes: Axes,
    x: npt.ArrayLike | Sequence[datetime.datetime],
    value: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    colour: str = COLOURS[0],
    label: str = "",
) -> None:
    """Draw values with error bars, or with draw_lines_and_band() if there are more than LINE_ROWS."""
    values = np.asarray(value)
    if values.size > LINE_ROWS:
        draw_lines_and_band(axes, x, values, low, high, colour, label=label or None, marker=".")
        return
    errors = np.maximum([values - np.asarray(low), np.asarray(high) - values], 0)
    style = {"fmt": "o-", "markersize": 5, "capsize": 3, "linewidth": 1.4}
    axes.errorbar(x, values, errors, color=colour, label=label or None, **style)  # type: ignore[arg-type]
