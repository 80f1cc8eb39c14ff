"""The time that all boards in a region need to reconnect at once, with and without a random delay."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ..server.words.text_table import TextTable
from .fleet_needs import MOSQUITTO, NATS
from .fleet_needs import server as broker
from .frame import RunContext, StudyParameters, StudyResult
from .power_cut import Arrival, Boards, simulate, spread_for


class ArrivalParameters(StudyParameters):
    """The boards, and the broker to which they reconnect."""

    boards: int = Field(20_000, ge=1, description="Number of boards that reconnect at once.")
    broker: Literal["mosquitto", "nats"] = Field(
        "mosquitto", description="One mosquitto, or three nats servers."
    )
    cores: int = Field(1, ge=1, description="Total cores of all servers; mosquitto uses one.")
    spread: int | None = Field(
        None, ge=1, description="The boards' spread_s, seconds; default: enough for 80% load."
    )
    backoff: int = Field(2, ge=1, description="The boards' backoff_s, seconds.")


def run(parameters: ArrivalParameters, context: RunContext) -> StudyResult:
    """Simulate both ways of reconnecting."""
    server = broker(NATS if parameters.broker == "nats" else MOSQUITTO, parameters.cores)
    enough = spread_for(parameters.boards, server)
    wait_s = enough if parameters.spread is None else parameters.spread
    shipped = Boards(parameters.boards, backoff_s=parameters.backoff)
    settings = {
        f"at once, within {parameters.backoff} s": shipped,
        f"spread_s = {wait_s}": replace(shipped, spread_s=wait_s),
    }
    runs = {
        label: simulate(way, server, context.seed, advance=lambda more: context.advance(more / 2))
        for label, way in settings.items()
    }
    numbers = {label: numbers_of(run) for label, run in runs.items()}
    rows = []
    for label, n in numbers.items():
        back = ("never" if s is None else f"{s:,.0f}" for s in (n["half_s"], n["all_s"]))
        most = f"{n['peak_tried']:,}"
        rows.append((label, *back, f"{n['attempts']:.2f}", most, f"{100 * n['wasted']:.0f}%"))
    headings = ("boards try", "half back, s", "all back, s", "attempts", "peak per second", "wasted work")
    title = f"{parameters.boards:,} boards, a broker that accepts {server.per_s:,.0f} per second"
    sentence = f"spread_s = {enough} keeps the broker at 80% of its capacity"
    json = [{"way": label} | n for label, n in numbers.items()]
    document = {"per_s": server.per_s, "enough_s": enough, "ways": json}
    return StudyResult(document, (TextTable(title, headings, rows), "", sentence), runs)


def numbers_of(run: Arrival) -> dict[str, Any]:
    """Return a table row's numbers; None for a time that was not reached."""
    half_s, all_s = (s if math.isfinite(s) else None for s in (run.share_s(0.5), run.all_s))
    return {
        "boards": run.boards.count,
        "spread_s": run.boards.spread_s,
        "half_s": half_s,
        "all_s": all_s,
        "attempts": float(run.attempts.mean()),
        "peak_tried": int(run.tries.max()),
        "peak_taken": int(run.connections.max()),
        "wasted": run.wasted,
        "most_open": run.most_open,
    }


def draw(path: Path, runs: Mapping[str, Arrival]) -> None:
    """Write attempts per second and the share of connected boards over time."""
    from .drawing import COLOURS, figure, panel

    first, *_ = runs.values()
    count, per_s = first.boards.count, first.server.per_s
    last = max(len(run.tries) for run in runs.values())
    step, time = max(last // 150, 1), "seconds after power returns"
    with figure(path, columns=2) as (_, (left_axes, right_axes)):
        for (label, run), colour in zip(runs.items(), COLOURS, strict=False):
            for values, line in ((run.tries, "-"), (run.connections, ":")):
                rate = np.append(values, np.zeros(-len(values) % step)).reshape(-1, step).mean(axis=1)
                at = (np.arange(len(rate)) + 0.5) * step
                left_axes.plot(at, np.maximum(rate, 0.3), line, color=colour, lw=1.7)
            connected = np.cumsum(run.connections) / count
            right_axes.plot(
                np.arange(1, len(connected) + 1), 100 * connected, color=colour, lw=1.9, label=label
            )
        left_axes.axhline(per_s, color="#888888", lw=1, ls="--")
        font = {"textcoords": "offset points", "ha": "right", "color": "#555555", "fontsize": 9}
        left_axes.annotate(f"capacity: {per_s:,.0f}", (0.98 * last, per_s), (0, 4), **font)
        note = "solid: attempts, dotted: new connections"
        panel(left_axes, (f"{count:,} boards at one broker", note, time, "per second"), "y", y="{:,g}")
        left_axes.set_ylim(bottom=max(per_s / 300, 0.3))
        wasted = " / ".join(f"{100 * run.wasted:.0f}%" for run in runs.values())
        words = "Connected boards", f"the broker's wasted work: {wasted}", time, "%"
        panel(right_axes, words, loc="best")  # one legend for both panels, which use the same colours
        right_axes.set_ylim(0, 104)
