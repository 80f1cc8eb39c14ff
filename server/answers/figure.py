"""The one style of all pictures; colours that readers with any colour vision tell apart.

Figures are made without pyplot, and settings of matplotlib hold only while one is made or drawn: nothing that
a notebook or a program has set there is touched. axes.py has what is drawn on one pair of axes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from ..errors import UsageError, refusing
from .axes import (
    BAR,
    COLOURS,
    ERROR,
    HEADING,
    LINE_ROWS,
    QUIET,
    TRUTH,
    date_axis,
    intervals,
    lines_and_band,
    log_log,
    moments_of,
    named_rows,
    number_axis,
    plain,
    style,
)
from .headline import headline, span

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

__all__ = [
    "BAR",
    "COLOURS",
    "ERROR",
    "LINE_ROWS",
    "QUIET",
    "STYLE",
    "TRUTH",
    "date_axis",
    "figure",
    "heading",
    "headline",
    "intervals",
    "legend_below",
    "lines_and_band",
    "log_log",
    "moments_of",
    "named_rows",
    "number_axis",
    "panels",
    "plain",
    "span",
    "style",
]

STYLE: dict[RcKeyType, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
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
"""Matplotlib's settings while a figure is made or drawn; whatever else a caller has set there stays."""

_GAP = 4.0  # pixels at least between two labels of an axis
_LEAST_FONT = 7.0  # points


class Picture(Figure):
    """A figure that a notebook shows where a cell ends with it; those of pyplot it knows, others not.

    Its texts are shown as they are: a label with two $ is no formula. No two labels of an axis collide:
    where all have no room, every second, third, ... is shown. A heading wider than its panel becomes smaller.
    """

    _drawing = False

    def draw(self, renderer: RendererBase) -> None:
        """Draw it."""
        if self._drawing:  # the layout is worked out by drawing without ink
            super().draw(renderer)
            return
        with rc_context(STYLE):  # for ticks, which are made while they are drawn
            for text in self.findobj(Text):
                assert isinstance(text, Text)
                text.set_parse_math(False)
            self._drawing = True
            hidden: list[Text] = []
            try:
                layout = self.get_layout_engine()
                if layout is not None:
                    layout.execute(self)
                for text in self.texts:
                    _fit(text, self.bbox.width * 0.96, renderer)
                for axes in self.axes:
                    _fit_headings(axes, renderer)
                hidden = [label for axes in self.axes for label in _too_many(axes, renderer)]
                for label in hidden:
                    label.set_visible(False)
                super().draw(renderer)
            finally:
                self._drawing = False
                for label in hidden:
                    label.set_visible(True)

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=90)
        return image.getvalue()


def _fit_headings(axes: Axes, renderer: RendererBase) -> None:
    """Make headings smaller that would reach beyond the panel's right end."""
    room = axes.get_window_extent(renderer).width
    for text in (text for text in axes.findobj(Text) if text.get_gid() == HEADING):
        assert isinstance(text, Text)
        _fit(text, room, renderer)


def _fit(text: Text, room: float, renderer: RendererBase) -> None:
    """Make a heading so small that it has room, in pixels."""
    # Glyphs are set to whole pixels: a text's width is not quite in proportion to its size.
    while text.get_gid() == HEADING and (size := float(text.get_fontsize())) > _LEAST_FONT:
        width = text.get_window_extent(renderer).width
        if width <= room:
            break
        text.set_fontsize(max(_LEAST_FONT, size * min(0.98, room / width)))


def _too_many(axes: Axes, renderer: RendererBase) -> list[Text]:
    """Labels of both axes that have no room beside the others."""
    if not axes.get_visible():
        return []
    both: tuple[Axis, Axis] = (axes.xaxis, axes.yaxis)
    return [label for axis in both for label in _thinned(axis.get_majorticklabels(), renderer)]


def _thinned(labels: Sequence[Text], renderer: RendererBase) -> list[Text]:
    shown = [label for label in labels if label.get_visible() and label.get_text()]
    boxes = [label.get_window_extent(renderer) for label in shown]
    for step in range(1, len(shown) + 1):
        kept = boxes[::step]
        if not any(_collide(a, b) for a, b in pairwise(kept)):
            return [label for i, label in enumerate(shown) if i % step]
    return []


def _collide(a: Bbox, b: Bbox) -> bool:
    apart_x = max(a.x0, b.x0) - min(a.x1, b.x1)
    apart_y = max(a.y0, b.y0) - min(a.y1, b.y1)
    # Labels of a vertical axis may touch from above, those of a horizontal one need a gap.
    return apart_x < _GAP and apart_y < 0


def heading(drawing: Figure, title: str) -> None:
    """Write one title above all panels."""
    drawing.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold", gid=HEADING)


def legend_below(drawing: Figure, axes: Axes, columns: int, size: float = 9.5) -> None:
    """Write one legend below all panels: that of these axes."""
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


@contextmanager
def panels(path: Path | None, count: int, in_row: int = 2) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a new figure, see figure(), with `count` axes, at most in_row of them side by side."""
    columns = min(in_row, count)
    with figure(path, columns, -(-count // columns)) as (made, axes):
        for empty in axes[count:]:
            empty.set_visible(False)
        yield made, axes[:count]


@contextmanager
def figure(
    path: Path | None, columns: int = 1, rows: int = 1, heights: Sequence[float] = ()
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a new figure and its axes, row by row; write it to path, if any (PNG, PDF or SVG by its name).

    heights: of the rows in inches, where they are not all alike. Raises UsageError where it cannot be
    written.
    """
    height = sum(heights) if heights else 5.2 * max(1.0, 0.8 * rows)
    with rc_context(STYLE):
        made = Picture(figsize=(9.5 * max(1.0, 0.62 * columns), height), dpi=150, layout="constrained")
        if path is not None and path.suffix[1:].lower() not in made.canvas.get_supported_filetypes():
            raise UsageError(f"a picture is a .png, .pdf or .svg file, not {path.name}")
        ratios = list(heights) or None
        axes = made.subplots(rows, columns, squeeze=False, height_ratios=ratios)
        yield made, list(axes.flat)
        if path is None:
            return
        with refusing(UsageError, f"write {path}"):
            made.savefig(path)
