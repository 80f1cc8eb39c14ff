"""Composition theorems as curves, one panel for each total."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..server.answers.figure import COLOURS, heading, legend_below, log_log, panels, plain, style
from .curves import SHOWN, Curve, CurvesParameters

COLOUR: dict[str, str] = dict(zip((*SHOWN, "odometer"), (*COLOURS[:4], COLOURS[3]), strict=True))


def look(theorem: str) -> dict[str, Any]:
    """Colour and width: others lie on optimal's line, and all must be seen."""
    width = 4.0 if theorem == "optimal" else 1.9
    return {"color": COLOUR[theorem], "lw": width, "zorder": 7 - width}


def draw(path: Path, found: tuple[CurvesParameters, list[Curve]]) -> None:
    """Write the curves."""
    asked, curves = found
    totals = list(dict.fromkeys(curve.total for curve in curves))
    title, xlabel, ylabel = {
        "epsilon": ("The largest ε of each of n reports", "number of reports n", "ε of each report, nats"),
        "spent": ("What reports cost together", f"number of reports of ε = {asked.epsilon:g}", "spent, nats"),
        "reports": (
            "How many reports until the budget is spent",
            "ε of each report, nats",
            "number of reports",
        ),
    }[asked.show]
    with panels(path, len(totals)) as (made, drawn):
        for total, axes in zip(totals, drawn, strict=True):
            here = [curve for curve in curves if curve.total == total]
            for c in here:
                line = (0, (4, 2)) if c.theorem == "odometer" else "-"
                axes.plot(c.x, c.y, label=c.label, ls=line, **look(c.theorem))
            if asked.show == "spent":
                axes.set_ylim(0, 1.15 * max(float(np.max(c.y)) for c in here if c.theorem == "basic"))
            elif asked.show == "reports":
                log_log(axes)
                plain(axes.xaxis)
                plain(axes.yaxis, "{:,g}".format)
            else:
                axes.set_yscale("log")
                plain(axes.yaxis)
            style(axes, "" if total is None else f"total {total:g}", xlabel=xlabel, ylabel=ylabel)
        heading(made, f"{title} (δ = {asked.delta:g})")
        legend_below(made, drawn[0], 2)
