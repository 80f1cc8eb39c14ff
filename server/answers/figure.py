"""The project's one style of plot; colours that readers with any colour vision tell apart.

Figures are made without pyplot: nothing that a notebook or a program has set in matplotlib is touched.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, NullFormatter

from ..errors import UsageError, refusing

# Okabe and Ito's, without the yellow that white paper swallows; the order is the order of use.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
BAR, ERROR, TRUTH = "#9ec3e6", "#1f3b57", "#d1495b"


class Picture(Figure):
    """A figure that a notebook shows where a cell ends with it; those of pyplot it knows, others not.

    Its texts are shown as they are: a label with two $ is no formula.
    """

    def draw(self, renderer: RendererBase) -> None:
        """Draw it."""
        with rc_context({"text.parse_math": False}):  # for ticks, which are made while they are drawn
            for text in self.findobj(Text):
                assert isinstance(text, Text)
                text.set_parse_math(False)
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=90)
        return image.getvalue()


def style(axes: Axes, title: str = "", subtitle: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Give axes their headings, a quiet grid and no box."""
    axes.set_axisbelow(True)
    axes.grid(color="#dddddd", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if title:
        pad = 26 if subtitle else 8
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=pad)
    if subtitle:
        axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9.5, color="#444444")


def plain(axis: Axis, text: Callable[[float], str] = "{:g}".format) -> None:
    """Write an axis's ticks as plain numbers, 0.1 and not 10⁻¹."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def log_log(axes: Axes) -> None:
    """Give both axes a logarithmic scale."""
    axes.set_xscale("log")
    axes.set_yscale("log")


def heading(drawing: Figure, title: str) -> None:
    """Write one title above all panels."""
    drawing.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold")


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
def figure(path: Path | None, columns: int = 1, rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a new figure and its axes, row by row; write it to path, if any (PNG, PDF or SVG by its name).

    Raises UsageError where it cannot be written.
    """
    size = (9.5 * max(1.0, 0.62 * columns), 5.2 * max(1.0, 0.8 * rows))
    made = Picture(figsize=size, dpi=150, layout="constrained")
    if path is not None and path.suffix[1:].lower() not in made.canvas.get_supported_filetypes():
        raise UsageError(f"a picture is a .png, .pdf or .svg file, not {path.name}")
    axes = made.subplots(rows, columns, squeeze=False)
    yield made, list(axes.flat)
    if path is None:
        return
    with refusing(UsageError, f"write {path}"):
        made.savefig(path)
