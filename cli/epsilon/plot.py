"""Plots of beliefs against ε, with the risk as a line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ...device.ldp_client import Experiment, ExperimentRefused
from ...planning.privacy.beliefs import fixed_mechanism, posterior_bound, worst_posterior, worst_posteriors
from ...planning.privacy.questions import Attacker, EpsilonBeliefs, RiskEpsilons
from ...server.answers.figure import COLOURS, figure, legend_below, style
from ...server.epsilon import MICRO
from ...server.experiments.payload import NoMechanism
from ...server.words import experiment as words

_LINE = "#555555"


def plot(path: Path, attacker: Attacker, answer: RiskEpsilons | EpsilonBeliefs) -> None:
    """Write the belief against ε: any mechanism's bound, and the exact one; PNG, PDF or SVG by its name.

    For a risk, the belief is in the target that sets the limit, exact for the chosen cells at every ε. For an
    ε, it is the first belief, with that ε marked.
    """
    with figure(path) as (drawing, (axes,)):
        if isinstance(answer, RiskEpsilons):
            about = _plot_risk(axes, attacker, answer)
        else:
            about = _plot_epsilon(axes, attacker, answer)
        title = f"What an attacker can come to believe: {about}"
        style(axes, title, "the highest belief that any report can cause", "ε, nats", "belief")
        legend_below(drawing, axes, 2)


def _plot_risk(axes: Axes, attacker: Attacker, choice: RiskEpsilons) -> str:
    """Plot the curves for a risk, with the risk as a line; return the target of the belief."""
    if choice.mechanism is not None:
        attacker = replace(attacker, at=fixed_mechanism(choice.mechanism))
    limit, ceiling = (choice.allowed.total or 0) / MICRO, choice.allowed.ceiling
    most = min(16.0, 2 * max((e for e in (choice.exact, limit) if e), default=4.0))
    _plot_curves(axes, attacker, choice.mechanism, choice.allowed.prior, most)
    axes.axhline(ceiling, color=_LINE, lw=1.2, ls=(0, (5, 3)), label=f"risk: {ceiling:.4g}")
    if limit:
        _mark(axes, limit, ceiling, above=True)
    if choice.exact is not None and choice.exact < 16:
        reached = _belief(attacker, round(choice.exact * MICRO), choice.allowed.prior)
        _mark(axes, choice.exact, reached, above=False)
    return choice.allowed.target


def _plot_epsilon(axes: Axes, attacker: Attacker, view: EpsilonBeliefs) -> str:
    """Plot the curves for an ε, which is marked; return the target of the belief."""
    epsilon, first = view.experiment.epsilon / MICRO, view.beliefs[0]
    attacker = replace(attacker, at=fixed_mechanism(view.experiment))
    _plot_curves(axes, attacker, view.experiment, first.prior, max(5.0, min(16.0, 1.5 * epsilon)))
    _mark(axes, epsilon, first.bound, above=True, text=f"{first.bound:.4g} at ε = {epsilon:g}")
    if first.posterior < first.bound * (1 - 1e-3):
        _mark(axes, epsilon, first.posterior, above=False, text=f"{first.posterior:.4g}")
    return first.name


def _plot_curves(
    axes: Axes, attacker: Attacker, chosen: Experiment | None, before: float, most: float
) -> None:
    """Plot the bound for any mechanism and the exact belief after one report, from ε = 0 to `most`."""
    grid = np.linspace(0.001, most, 160).round(6)
    exact = np.array([_belief(attacker, round(e * MICRO), before) for e in grid])
    label = "any ε-LDP mechanism, or all reports together"
    bound = [posterior_bound(before, e) for e in grid]
    axes.plot(grid, bound, color=COLOURS[1], lw=4, label=label)  # wide, as the exact curve may lie on it
    axes.plot(grid, exact, color=COLOURS[0], lw=2)
    if chosen is not None:
        axes.lines[1].set_label(f"one report by {words.mechanism(chosen)}, exact")
    axes.axhline(before, color=_LINE, lw=1, ls=(0, (1, 2)), label=f"before any report: {before:.4g}")
    axes.set_xlim(0, most)
    axes.set_ylim(0, None)


def _belief(attacker: Attacker, epsilon: int, before: float) -> float:
    """Return the highest belief in a target with this prior, or NaN if the mechanism has no such ε."""
    prior, targets = attacker.prior, attacker.targets
    try:
        experiment = attacker.at(epsilon)
    except (ExperimentRefused, NoMechanism):
        return np.nan
    if targets is None:
        after = worst_posteriors(experiment, prior)
        return float(after[np.isclose(prior, before, rtol=1e-12, atol=0)].max())
    alike = [t for t in targets if np.isclose(t.prior(prior), before, rtol=1e-12, atol=0)]
    return max(worst_posterior(experiment, prior, t) for t in alike)


def _mark(axes: Axes, epsilon: float, belief: float, above: bool, text: str = "") -> None:
    """Mark a point with its ε or a text: above left or below right, so that two labels do not overlap."""
    colour = COLOURS[1 if above else 0]
    axes.plot([epsilon], [belief], "o", color=colour, ms=6, zorder=5)
    axes.annotate(
        text or f"ε = {epsilon:.4g}",
        (epsilon, belief),
        (-7, 8) if above else (7, -15),
        textcoords="offset points",
        ha="right" if above else "left",
        color=colour,
        fontsize=9.5,
    )
