"""What many releases give away, and when a budget is spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ..server.accounting import optimal_total
from ..server.answers.figure import COLOURS, figure, log_log, plain, style
from ..server.epsilon import MICRO
from .composition import TUTORIAL, Composition, View, advanced, misprint

YES, NO = COLOURS[0], COLOURS[1]
LINES = {
    "basic": ("basic: ε-LDP", COLOURS[0], "-"),
    "zcdp": ("zCDP filter: (ε, δ)-LDP", COLOURS[1], "-"),
    "optimal": ("optimal: (ε, δ)-LDP", COLOURS[2], "-"),
    "advanced": ("advanced: (ε, δ)-LDP", COLOURS[3], "-"),
    "misprint": ("misprint: no theorem", COLOURS[6], ":"),
}


def draw(path: Path, composition: Composition) -> None:
    """Write the views, the reports until the budget is spent, and the tutorial's example."""
    with figure(path, columns=2, rows=2) as (_, axes):
        for panel, view in zip(axes, composition.views, strict=False):
            _view(panel, view)
        _until_spent(axes[2], composition)
        _tutorial(axes[3])


def _view(axes: Axes, view: View) -> None:
    n = view.releases
    seen = np.arange(n + 1)
    for probabilities, colour, name in ((view.given_no, NO, "no"), (view.given_yes, YES, "yes")):
        if n <= 30:
            shift = -0.2 if name == "no" else 0.2
            axes.bar(seen + shift, probabilities, 0.4, color=colour, label=f"the value is {name}")
            axes.set_xticks(seen)
        else:
            kept = probabilities > probabilities.max() * 1e-4
            axes.plot(seen[kept], probabilities[kept], color=colour, label=f"the value is {name}", lw=1.9)
            axes.fill_between(seen[kept], probabilities[kept], color=colour, alpha=0.25)
    axes.set_ylim(0, 1.35 * float(view.given_yes.max()))
    title = f"{n:,} releases of ε = {view.epsilon / MICRO:g}"
    subtitle = f"the best guess of the value is right in {100 * view.right:.2f} % of cases"
    style(axes, title, subtitle, "how often an adversary sees yes", "probability")
    axes.legend(frameon=False, loc="upper right", ncols=2)


def _until_spent(axes: Axes, composition: Composition) -> None:
    epsilons = [row.epsilon / MICRO for row in composition.spent]
    for name, (label, colour, line) in LINES.items():
        counts = np.array([float(getattr(row, name)) for row in composition.spent])
        counts[counts == 0] = np.nan
        axes.plot(epsilons, counts, line, marker="o", ms=4, color=colour, label=label, lw=1.8)
    log_log(axes)
    plain(axes.xaxis)
    plain(axes.yaxis, "{:,g}".format)
    subtitle = f"total {composition.total:g}, δ = {composition.delta:g}"
    style(axes, "Reports until the budget is spent", subtitle, "ε of each report, nats", "reports")
    axes.legend(frameon=False)


def _tutorial(axes: Axes) -> None:
    epsilon, most, delta = TUTORIAL
    reports = np.unique(np.linspace(1, most, 50).astype(int))
    lines = {
        "basic": [epsilon / MICRO * int(k) for k in reports],
        "optimal": [optimal_total(epsilon / MICRO, int(k), delta) for k in reports],
        "advanced": [advanced(epsilon, int(k), delta) for k in reports],
        "misprint": [misprint(epsilon, int(k), delta) for k in reports],
    }
    for name, spent in lines.items():
        label, colour, line = LINES[name]
        axes.plot(reports, spent, line, color=colour, label=label, lw=1.8)
        if name in ("advanced", "misprint"):
            axes.annotate(f"{spent[-1]:.2f}", (most, spent[-1]), (5, -4), textcoords="offset points")
    subtitle = f"a tutorial's example: ε = {epsilon / MICRO:g}, δ = {delta:g}"
    axes.set_xlim(right=1.17 * most)
    style(axes, "What k reports cost", subtitle, "number of reports k", "spent, nats")
    axes.legend(frameon=False)
