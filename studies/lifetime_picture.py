"""Errors against the budget of a life, and what splitting it costs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.ticker import FuncFormatter

from ..server.answers.figure import COLOURS, figure, plain, style
from .lifetime import LIFETIMES, SPLITS, WAYS, LifetimeStudy

_LABELS = {
    "once": "one report for life, a day",
    "once, 31 days": "the same, 31 days pooled",
    "coin": "the same by the coin of `every`, a day",
    "basic": "365 small reports, basic",
    "optimal": "365 small reports, optimal, δ = 1e-6",
}


def draw(path: Path, study: LifetimeStudy) -> None:
    """Write errors against the lifetime budget, and what splitting it costs."""
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
