"""The figures that a function would write to a file, without the time that writing takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


def saved_figure(monkeypatch: pytest.MonkeyPatch, draw: Callable[..., object], *arguments: Any) -> Figure:
    """Return the figure that `draw` would save; None among its arguments stands for the path."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _path: figures.append(figure))
    draw(*(Path("figure.png") if argument is None else argument for argument in arguments))
    (figure,) = figures
    return figure


def labelled_line(axes: Axes, label: str) -> Line2D:
    """Return a panel's only line whose label begins with this text."""
    (match,) = (line for line in axes.lines if str(line.get_label()).startswith(label))
    return match


def points(line: Line2D) -> tuple[list[float], list[float]]:
    """Return the coordinates x and y of a line's points."""
    x, y = (np.asarray(values, float).tolist() for values in line.get_data())
    return x, y
