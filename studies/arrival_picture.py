"""The figure of boards that come back at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..server.answers.figure import COLOURS, figure, plain, style
from .power_cut import Arrival


def draw(path: Path, arrivals: Sequence[tuple[str, Arrival]]) -> None:
    """Write attempts a second and the share of boards that are there, over time."""
    boards, server = arrivals[0][1].boards, arrivals[0][1].server
    last = max(len(arrival.tried) for _, arrival in arrivals)
    step = max(last // 150, 1)
    with figure(path, columns=2) as (_, (left, right)):
        for (label, arrival), colour in zip(arrivals, COLOURS, strict=False):
            for values, line in ((arrival.tried, "-"), (arrival.taken, ":")):
                at, rate = _rate(values, step)
                left.plot(
                    at,
                    np.maximum(rate, 0.3),
                    line,
                    color=colour,
                    lw=1.7,
                    label=label if line == "-" else None,
                )
            there = np.cumsum(arrival.taken) / boards.count
            right.plot(np.arange(1, len(there) + 1), 100 * there, color=colour, lw=1.9, label=label)
        left.axhline(server.per_s, color="#888888", lw=1, ls="--")
        left.annotate(f"all it can take: {server.per_s:,.0f}", (0.98 * last, server.per_s), (0, 4),
                      textcoords="offset points", ha="right", color="#555555", fontsize=9)  # fmt: skip
        left.set_yscale("log")
        left.set_ylim(bottom=max(server.per_s / 300, 0.3))
        plain(left.yaxis, "{:,g}".format)
        subtitle = "lines: attempts, dotted: boards that get in"
        style(
            left,
            f"{boards.count:,} boards at one broker",
            subtitle,
            "seconds after the power is back",
            "a second",
        )
        nothing = " / ".join(f"{100 * arrival.wasted:.0f} %" for _, arrival in arrivals)
        subtitle = f"work of the broker for nothing: {nothing}"
        style(right, "Boards that are connected", subtitle, "seconds after the power is back", "%")
        right.set_ylim(0, 104)
        right.legend(frameon=False, loc="best")  # for both: the colours are the same


def _rate(values: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Means of so many seconds each, and their middles."""
    whole = np.append(values, np.zeros(-len(values) % step))
    rate = whole.reshape(-1, step).mean(axis=1)
    return (np.arange(len(rate)) + 0.5) * step, rate
