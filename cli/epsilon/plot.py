"""Plots of beliefs against ε, with the risk as a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ...device.ldp_client import Experiment, ExperimentRefused
from ...server.answers.figure import COLOURS, figure, legend_below, style
from ...server.epsilon import MICRO
from ...server.experiments.payload import NoMechanism
from ...server.privacy.beliefs import (
    ByEpsilon,
    Floats,
    Target,
    fixed,
    posterior_bound,
    worst_posterior,
    worst_posteriors,
)
from ...server.privacy.questions import Chosen, Seen
from ...server.words import experiment as words

_RISK = "#555555"


def local_curves(
    path: Path, mechanism: ByEpsilon, prior: Floats, targets: Sequence[Target] | None, choice: Chosen
) -> None:
    """Write the belief in the target that sets the limit against ε: any mechanism's bound, and the exact one.

    Exact for the cells that were chosen, at every ε.
    """
    mechanism = fixed(choice.mechanism) if choice.mechanism is not None else mechanism
    ends = [e for e in (choice.exact, (choice.allowed.total or 0) / MICRO) if e]
    most = min(16.0, 2 * max(ends, default=4.0))
    before, ceiling = choice.allowed.prior, choice.allowed.ceiling
    with figure(path) as (made, (axes,)):
        _local(axes, mechanism, choice.mechanism, prior, targets, before, most)
        axes.axhline(ceiling, color=_RISK, lw=1.2, ls=(0, (5, 3)), label=f"risk: {ceiling:.4g}")
        if choice.allowed.total:
            _mark(axes, choice.allowed.total / MICRO, ceiling, left=True)
        if choice.exact is not None and choice.exact < 16:
            reached = _belief(mechanism, round(choice.exact * MICRO), prior, targets, before)
            _mark(axes, choice.exact, reached, left=False)
        _about(axes, choice.allowed.target)
        legend_below(made, axes, 2)


def loss_curve(path: Path, prior: Floats, targets: Sequence[Target] | None, view: Seen) -> None:
    """Write what a report of any ε can make an attacker believe, with the ε that was asked about marked."""
    mechanism, epsilon, first = fixed(view.experiment), view.experiment.epsilon / MICRO, view.beliefs[0]
    with figure(path) as (made, (axes,)):
        _local(
            axes, mechanism, view.experiment, prior, targets, first.prior, max(5.0, min(16.0, 1.5 * epsilon))
        )
        _mark(axes, epsilon, first.bound, left=True, text=f"{first.bound:.4g} at ε = {epsilon:g}")
        if first.posterior < first.bound * (1 - 1e-3):
            _mark(axes, epsilon, first.posterior, left=False, text=f"{first.posterior:.4g}")
        _about(axes, first.name)
        legend_below(made, axes, 2)


def _local(
    axes: Axes,
    mechanism: ByEpsilon,
    chosen: Experiment | None,
    prior: Floats,
    targets: Sequence[Target] | None,
    before: float,
    most: float,
) -> None:
    """The bound for any mechanism and the exact belief of one report, from ε = 0 to `most`."""
    grid = np.linspace(0.001, most, 160).round(6)
    exact = np.array([_belief(mechanism, round(e * MICRO), prior, targets, before) for e in grid])
    bound = [posterior_bound(before, e) for e in grid]
    label = "any ε-LDP mechanism, or all reports together"
    axes.plot(grid, bound, color=COLOURS[1], lw=4, label=label)  # the exact one may lie on it
    axes.plot(grid, exact, color=COLOURS[0], lw=2)
    if chosen is not None:
        axes.lines[1].set_label(f"one report by {words.mechanism(chosen)}, exact")
    axes.axhline(before, color=_RISK, lw=1, ls=(0, (1, 2)), label=f"before any report: {before:.4g}")
    axes.set_xlim(0, most)
    axes.set_ylim(0, None)


def _about(axes: Axes, target: str) -> None:
    title, subtitle = "What an attacker can come to believe: ", "the highest belief that any report can cause"
    style(axes, title + target, subtitle, "ε, nats", "belief")


def _belief(
    mechanism: ByEpsilon, epsilon: int, prior: Floats, targets: Sequence[Target] | None, before: float
) -> float:
    """The highest belief in what had the limit's prior; NaN where the mechanism has no such ε."""
    try:
        experiment = mechanism(epsilon)
    except (ExperimentRefused, NoMechanism):
        return np.nan
    if targets is None:
        after = worst_posteriors(experiment, prior)
        return float(after[np.isclose(prior, before, rtol=1e-12, atol=0)].max())
    alike = [t for t in targets if np.isclose(t.prior(prior), before, rtol=1e-12, atol=0)]
    return max(worst_posterior(experiment, prior, t) for t in alike)


def _mark(axes: Axes, epsilon: float, belief: float, left: bool, text: str = "", colour: str = "") -> None:
    """A point with its ε, or a text: above to the left, or below to the right, so that two do not meet."""
    colour = colour or COLOURS[1 if left else 0]
    axes.plot([epsilon], [belief], "o", color=colour, ms=6, zorder=5)
    axes.annotate(
        text or f"ε = {epsilon:.4g}",
        (epsilon, belief),
        (-7, 8) if left else (7, -15),
        textcoords="offset points",
        ha="right" if left else "left",
        color=colour,
        fontsize=9.5,
    )
