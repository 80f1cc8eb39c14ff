"""The figures of the composition study and of the study of a life of reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from ..server.accounting import optimal_total
from ..server.answers.figure import COLOURS, figure, log_log, plain, style
from ..server.epsilon import MICRO
from .composition import TUTORIAL, Composition, View, advanced, misprint
from .lifetime import LIFETIMES, SPLITS, WAYS, LifetimeStudy

YES, NO = COLOURS[0], COLOURS[1]
LINES = {
    "basic": ("basic: ε-LDP", COLOURS[0], "-"),
    "zcdp": ("zCDP filter: (ε, δ)-LDP", COLOURS[1], "-"),
    "optimal": ("optimal: (ε, δ)-LDP", COLOURS[2], "-"),
    "advanced": ("advanced: (ε, δ)-LDP", COLOURS[3], "-"),
    "misprint": ("misprint: no theorem", COLOURS[6], ":"),
}
_LABELS = {
    "once": "one report for life, a day",
    "once, 31 days": "the same, 31 days pooled",
    "coin": "the same by the coin of `every`, a day",
    "basic": "365 small reports, basic",
    "optimal": "365 small reports, optimal, δ = 1e-6",
}


def plot_composition(path: Path, composition: Composition) -> None:
    """Write the study's figure; PNG, PDF or SVG by its name."""
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


def plot_study(path: Path, study: LifetimeStudy) -> None:
    """Write errors against the lifetime budget, and what splitting it costs; PNG, PDF or SVG by its name."""
    devices = study.cells[0].devices
    with figure(path, columns=2) as (_, (left, right)):
        for way, colour in zip(WAYS, COLOURS, strict=False):
            cells = [c for c in study.cells if c.way == way and c.devices == devices]
            x = [c.lifetime for c in cells]
            left.plot(x, [100 * c.predicted for c in cells], color=colour, lw=1.6, label=_LABELS[way])
            left.plot(x, [100 * c.measured for c in cells], "o", color=colour, ms=5)
        left.set_xscale("log", base=2)
        left.set_yscale("log")
        plain(left.xaxis)
        plain(left.yaxis)
        low, high = left.get_ylim()
        left.set_ylim(low, high * 6)
        subtitle = f"{devices:,} devices, 64 frequencies; lines predicted, dots measured"
        style(
            left, "Few large reports, or many small", subtitle, "ε for life, nats", "RMSE of frequencies, %"
        )
        left.legend(frameon=False, fontsize=8.5, loc="upper right")
        for lifetime, colour in zip(LIFETIMES, COLOURS, strict=False):
            for number, s in enumerate(s for s in study.splits if s.lifetime == lifetime):
                label = f"ε = {lifetime} for life" if number == 0 else None
                right.plot(SPLITS, s.relative, "-o", color=colour, lw=1, ms=4, alpha=0.75, label=label)
        right.axhline(1, color="#888888", lw=1, ls="--")
        right.set_xticks(SPLITS)
        right.set_yscale("log", base=2)
        right.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        subtitle = "16, 64 and 256 values; frequency, range and quantile"
        style(right, "What splitting the budget costs", subtitle, "reports for life", "error, one report = 1")
        right.legend(frameon=False)
