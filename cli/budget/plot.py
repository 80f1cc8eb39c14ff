"""Plots of composition theorems: ε per report, what reports spend, how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ...server.accounting import (
    Basic,
    History,
    Odometer,
    Optimal,
    Theorem,
    ZcdpFilter,
    majority_envelope,
    majority_epsilon,
)
from ...server.accounting.compare import TITLES, theorems
from ...server.accounting.errors import whole
from ...server.answers.figure import COLOURS, heading, legend_below, log_log, panels, plain, style
from ...server.epsilon import MICRO

SHOWN = ("basic", "zcdp", "optimal", "advanced")
"""The theorems that pictures compare; of the others tables tell, and of majority a picture of its own."""
COLOUR: dict[str, str] = dict(zip(SHOWN, COLOURS, strict=False))
DASHED = (0, (4, 2))
_POINTS = 40


class Curve(NamedTuple):
    """One line of a plot."""

    label: str
    colour: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    dashed: bool = False
    width: float = 1.9


def epsilon_by_reports(path: Path, totals: Sequence[float], delta: float, most: int) -> None:
    """Write ε per report against the number of reports, 1 to most, one panel for each total in nats."""
    drawn = [list(epsilon_curves(total, delta, most)) for total in totals]
    with panels(path, len(totals)) as (made, axes):
        for total, curves, panel in zip(totals, drawn, axes, strict=True):
            _draw(panel, curves)
            panel.set_yscale("log")
            plain(panel.yaxis)
            style(panel, f"total {total:g}", xlabel="number of reports n", ylabel="ε of each report, nats")
        heading(made, f"The largest ε of each of n reports (δ = {delta:g})")
        legend_below(made, axes[0], 2)


def majority_by_reports(path: Path, totals: Sequence[float], most: int) -> None:
    """Write the majority rule's raw curve and its envelope, 1 to most reports, one panel for each total."""
    numbers = np.arange(1, whole("the number of reports", most, low=2) + 1)
    drawn = [(majority_epsilon(numbers, total), majority_envelope(numbers, total)) for total in totals]
    with panels(path, len(totals)) as (made, axes):
        for total, (raw, envelope), panel in zip(totals, drawn, axes, strict=True):
            _draw(
                panel,
                (
                    Curve("envelope: the largest ε of as many or more", COLOURS[0], numbers, envelope),
                    Curve("raw curve: a tie counts for the attacker", COLOURS[1], numbers, raw, width=1.1),
                ),
            )
            subtitle = f"n = {most:,}: raw {raw[-1]:.4f}, envelope {envelope[-1]:.4f}"
            panel.set_ylim(0, 1.15 * float(envelope[min(2, most - 1)]))  # one report has the total itself
            style(panel, f"total {total:g}", subtitle, "number of reports n", "ε of each report, nats")
        heading(made, "Majority: guessing one fixed bit, not LDP")
        legend_below(made, axes[0], 2)


def reports_by_epsilon(path: Path, totals: Sequence[float], delta: float) -> None:
    """Write how many reports a total allows against their ε, one panel for each total in nats."""
    drawn = [list(report_curves(total, delta)) for total in totals]
    with panels(path, len(totals)) as (made, axes):
        for total, curves, panel in zip(totals, drawn, axes, strict=True):
            _draw(panel, curves)
            log_log(panel)
            plain(panel.xaxis)
            plain(panel.yaxis, "{:,g}".format)
            style(panel, f"total {total:g}", xlabel="ε of each report, nats", ylabel="number of reports")
        heading(made, f"How many reports until the budget is spent (δ = {delta:g})")
        legend_below(made, axes[0], 2)


def spent_by_reports(path: Path, epsilon: int, delta: float, most: int) -> None:
    """Write what n reports of epsilon micro-nats cost together, n from 1 to most, under each theorem."""
    curves = list(spent_curves(epsilon, delta, most))
    with panels(path, 1) as (made, axes):
        _draw(axes[0], curves)
        top = 1.15 * max(float(np.max(c.y)) for c in curves if c.label.startswith("basic"))
        axes[0].set_ylim(0, top)
        style(axes[0], xlabel=f"number of reports of ε = {epsilon / MICRO:g}", ylabel="spent, nats")
        heading(made, f"What reports cost together (δ = {delta:g})")
        legend_below(made, axes[0], 2)


def epsilon_curves(total: float, delta: float, most: int) -> Iterable[Curve]:
    """ε per report for 1 to most reports under each theorem that is shown."""
    numbers = _numbers(most)
    for theorem in _drawn(total, delta):
        values = [(theorem.most_epsilon(int(n)) or 0) / MICRO for n in numbers]
        yield _curve(theorem, numbers, values)


def report_curves(total: float, delta: float) -> Iterable[Curve]:
    """The number of reports that total allows under each theorem, against their ε."""
    epsilons = np.unique(np.geomspace(total / 100, total, _POINTS).clip(0.001).round(3))
    for theorem in _drawn(total, delta):
        counts = np.array([float(theorem.most_reports(round(e * MICRO)) or 0) for e in epsilons])
        yield _curve(theorem, epsilons, np.where(counts > 0, counts, np.nan))


def spent_curves(epsilon: int, delta: float, most: int) -> Iterable[Curve]:
    """The nats that 1 to most reports of epsilon micro-nats cost under theorems and the odometer."""
    numbers = _numbers(most)
    last = History.equal(epsilon, int(numbers[-1]))
    basic = Basic(1.0)
    rules: list[Theorem] = [basic]
    if delta:
        rules += [ZcdpFilter(1.0, delta), Optimal(1.0, delta)]
    for theorem in rules:
        spent = [theorem.spent(History.equal(epsilon, int(n))).epsilon for n in numbers]
        yield _curve(theorem, numbers, spent)
    if delta:
        sharpest = ZcdpFilter(1.0, delta).spent(last).epsilon
        meter, shown = Odometer(delta, sharpest=sharpest), []
        for n in numbers:
            meter.history = History.equal(epsilon, int(n))
            shown.append(meter.spent().epsilon)
        yield Curve("odometer, at any moment: (ε, δ)-LDP", COLOURS[3], numbers, shown, dashed=True)


def _drawn(total: float, delta: float) -> list[Theorem]:
    return [theorem for theorem in theorems(total, delta) if theorem.name in SHOWN]


def _curve(theorem: Theorem, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> Curve:
    label = f"{TITLES.get(theorem.name, theorem.name)}: {theorem.kind}"
    width = 4.0 if theorem.name == "optimal" else 1.9  # basic lies on it for few reports, and must be seen
    return Curve(label, COLOUR[theorem.name], x, y, width=width)


def _numbers(most: int) -> np.ndarray:
    """1 to most: all of the first twenty, then some forty, the last among them."""
    whole("the number of reports", most, low=2)
    return np.unique(
        np.concatenate((np.arange(1, min(most, 20) + 1), np.geomspace(1, most, 60).astype(int), [most]))
    )


def _draw(axes: Axes, curves: Iterable[Curve]) -> None:
    for curve in curves:
        line, behind = DASHED if curve.dashed else "-", 7 - curve.width
        axes.plot(
            curve.x, curve.y, color=curve.colour, label=curve.label, ls=line, lw=curve.width, zorder=behind
        )
