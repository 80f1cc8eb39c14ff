"""ε as a list of releases goes on, and what a δ buys."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ..server.accounting import ComposedRow, History, compose
from ..server.accounting.compare import TITLES
from ..server.answers.figure import figure, legend_below, number_axis, plain, style
from ..server.epsilon import MICRO
from .curves import SHOWN
from .curves_picture import look

_PREFIXES, _FEW_PREFIXES = 40, 10  # the fewer where there are more than _MANY different ε
_MANY = 50
_SLACKS = np.geomspace(1e-12, 0.3, 13)


def draw(path: Path, found: tuple[History, float]) -> None:
    """Write what the first n releases are, n up to all, and the δ that theorems add against ε of all."""
    history, slack = found
    with figure(path, columns=2) as (made, (left, right)):
        points = _PREFIXES if len(history.epsilons) <= _MANY else _FEW_PREFIXES
        counts = np.unique(np.linspace(1, history.count, points).astype(int)).tolist()
        _curves(left, counts, [compose(first, slack) for first in _prefixes(history, counts)])
        title = "As the list goes on"
        style(left, title, f"each theorem adds δ = {slack:g}", "releases so far", "ε of all so far, nats")
        left.set_ylim(0, 1.3 * history.sum / MICRO)
        number_axis(left.xaxis, whole=True)
        _exchange(right, [compose(history, float(s)) for s in _SLACKS])
        right.axvline(history.sum / MICRO, color=look("basic")["color"], lw=1.2, ls=(0, (4, 2)))
        subtitle = f"all {history.count:,} releases, Σδ = {float(history.delta):g} of their own; dashed: Σε"
        style(right, "δ against ε", subtitle, "ε of all, nats", "δ that the theorem adds")
        legend_below(made, left, 4)


def _prefixes(history: History, counts: Sequence[int]) -> Iterator[History]:
    for count in counts:
        runs, left = [], count
        for cost, n in history.runs:
            if left > 0:
                runs.append((cost, min(n, left)))
            left -= n
        yield History(tuple(runs))


def _curves(axes: Axes, counts: Sequence[int], steps: Sequence[list[ComposedRow]]) -> None:
    """ε under each theorem against the number of releases; no line from where it promises nothing."""
    for place, first in enumerate(steps[0]):
        if first.theorem not in SHOWN:
            continue
        spent = [_finite(rows[place].epsilon) for rows in steps]
        name = first.theorem
        label = TITLES.get(name, name)
        if np.isnan(spent[-1]):
            label += ": promises nothing in the end"
        axes.plot(counts, spent, label=label, **look(name))


def _exchange(axes: Axes, curves: Sequence[list[ComposedRow]]) -> None:
    """The δ that each theorem adds against ε of all, where it holds."""
    for place, first in enumerate(curves[0]):
        if first.theorem == "basic" or first.theorem not in SHOWN:
            continue
        axes.plot([_finite(rows[place].epsilon) for rows in curves], _SLACKS, **look(first.theorem))
    axes.set_yscale("log")
    plain(axes.yaxis)


def _finite(value: float | None) -> float:
    return math.nan if value is None or math.isinf(value) else value
