"""Both bounds on the belief in a possible world against ε, one panel for each statistic."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ..server.answers.figure import COLOURS, heading, legend_below, panels, style
from .lee_clifton import EpsilonChoice

_RISK = "#555555"
_PAIRS = ((COLOURS[1], COLOURS[0]), (COLOURS[5], COLOURS[2]), (COLOURS[3], COLOURS[4]), (COLOURS[6],) * 2)
"""Colours of the upper and of the tight bound, universe by universe."""


def draw(path: Path, found: tuple[list[tuple[str, list[EpsilonChoice]]], float]) -> None:
    """Write both bounds on the posterior against ε, one panel for each statistic, with the risk's line.

    universes: each with its name and what was found for the same statistics; each has its colour.
    """
    universes, risk = found
    statistics = universes[0][1]
    with panels(path, len(statistics)) as (made, axes):
        for place, panel in enumerate(axes):
            _central(panel, [(name, choices[place]) for name, choices in universes], risk)
        heading(made, f"Belief in a possible world after one answer (risk {risk:.4g})")
        legend_below(made, axes[0], 2 if len(universes) > 1 else 4)


def _central(axes: Axes, universes: Sequence[tuple[str, EpsilonChoice]], risk: float) -> None:
    ends = [e for _, c in universes for e in (c.upper_epsilon, c.tight_epsilon) if e is not None]
    most = max(5.0, 1.2 * max(ends, default=0.0))
    grid = np.linspace(0, most, 201)[1:]
    for (name, choice), colours in zip(universes, cycle(_PAIRS), strict=False):
        named = f"{name}: " if len(universes) > 1 else ""
        bounds = [choice.upper(e) for e in grid]
        axes.plot(grid, bounds, color=colours[0], lw=1.6, ls=(0, (4, 2)), label=f"{named}upper bound")
        if choice.all is not None:
            tight = [choice.all.tight(e) for e in grid]
            axes.plot(grid, tight, color=colours[1], lw=2, label=f"{named}tight bound")
        for epsilon, left in ((choice.upper_epsilon, True), (choice.tight_epsilon, False)):
            if epsilon is not None:
                axes.plot([epsilon], [risk], "o", color=colours[not left], ms=6, zorder=5)
                place, end = ((-7, 8), "right") if left else ((7, -15), "left")  # so that two do not meet
                text = f"ε = {epsilon:.4g}" if len(universes) == 1 else " "
                font = {"color": colours[not left], "fontsize": 9.5, "ha": end}
                axes.annotate(text, (epsilon, risk), place, textcoords="offset points", **font)
    axes.axhline(risk, color=_RISK, lw=1.2, ls=(0, (5, 3)), label="risk")
    axes.set_xlim(0, most)
    axes.set_ylim(0, 1.02 if axes.get_ylim()[1] > 0.8 else None)
    style(axes, universes[0][1].query, "", "ε, nats", "belief, at most")
