"""Plots of an attacker's belief against ε, with a line at the accepted risk."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from ...device.ldp_client import Experiment, ExperimentRefused
from ...planning.privacy.beliefs import fixed_mechanism, posterior_bound, worst_posterior, worst_posteriors
from ...planning.privacy.questions import Attacker, EpsilonBeliefs, RiskEpsilons
from ...server.answers.figure import COLOURS, add_legend_below, figure, style_axes
from ...server.epsilon import MICRO
from ...server.experiments.payload import NoMechanism
from ...server.words import experiment as words

_LINE = "#555555"


def plot(path: Path, attacker: Attacker, answer: RiskEpsilons | EpsilonBeliefs) -> None:
    """Plot an attacker's belief against ε as PNG, PDF or SVG: the exact value, and a bound for any mechanism.

    If the answer is about a risk, plot the belief in the target that limits ε; the exact curve uses the
    chosen cells at every ε. If the answer is about one ε, plot its first belief and mark that ε.
    """
    with figure(path) as (drawing, (axes,)):
        if isinstance(answer, RiskEpsilons):
            about = _plot_risk(axes, attacker, answer)
        else:
            about = _plot_epsilon(axes, attacker, answer)
        title = f"What an attacker may come to believe: {about}"
        style_axes(axes, title, "the highest belief that any report can cause", "ε, nats", "belief")
        add_legend_below(drawing, axes, 2)


def _plot_risk(axes: Axes, attacker: Attacker, choice: RiskEpsilons) -> str:
    """Plot the curves with a line at the risk; return the target's name."""
    if choice.mechanism is not None:
        attacker = replace(attacker, at=fixed_mechanism(choice.mechanism))
    limit, ceiling = (choice.allowed.total or 0) / MICRO, choice.allowed.ceiling
    max_epsilon = min(16.0, 2 * max((e for e in (choice.exact, limit) if e), default=4.0))
    _plot_curves(axes, attacker, choice.mechanism, choice.allowed.prior, max_epsilon)
    axes.axhline(ceiling, color=_LINE, lw=1.2, ls=(0, (5, 3)), label=f"risk: {ceiling:.4g}")
    if limit:
        _mark(axes, limit, ceiling, above=True)
    if choice.exact is not None and choice.exact < 16:
        reached = _belief(attacker, round(choice.exact * MICRO), choice.allowed.prior)
        _mark(axes, choice.exact, reached, above=False)
    return choice.allowed.target


def _plot_epsilon(axes: Axes, attacker: Attacker, view: EpsilonBeliefs) -> str:
    """Plot the curves and mark the ε; return the target's name."""
    epsilon, first = view.experiment.epsilon / MICRO, view.beliefs[0]
    attacker = replace(attacker, at=fixed_mechanism(view.experiment))
    _plot_curves(axes, attacker, view.experiment, first.prior, max(5.0, min(16.0, 1.5 * epsilon)))
    _mark(axes, epsilon, first.bound, above=True, text=f"{first.bound:.4g} at ε = {epsilon:g}")
    if first.posterior < first.bound * (1 - 1e-3):
        _mark(axes, epsilon, first.posterior, above=False, text=f"{first.posterior:.4g}")
    return first.name


def _plot_curves(
    axes: Axes, attacker: Attacker, experiment: Experiment | None, prior_belief: float, max_epsilon: float
) -> None:
    """Plot the bound for any mechanism and the exact belief after one report, from ε = 0 to `max_epsilon`."""
    grid = np.linspace(0.001, max_epsilon, 160).round(6)
    exact = np.array([_belief(attacker, round(e * MICRO), prior_belief) for e in grid])
    label = "any ε-LDP mechanism, or all reports together"
    bound = [posterior_bound(prior_belief, e) for e in grid]
    axes.plot(grid, bound, color=COLOURS[1], lw=4, label=label)  # wide, because the exact curve may cover it
    axes.plot(grid, exact, color=COLOURS[0], lw=2)
    if experiment is not None:
        axes.lines[1].set_label(f"one report by {words.mechanism(experiment)}, exact")
    axes.axhline(
        prior_belief, color=_LINE, lw=1, ls=(0, (1, 2)), label=f"before any report: {prior_belief:.4g}"
    )
    axes.set_xlim(0, max_epsilon)
    axes.set_ylim(0, None)


def _belief(attacker: Attacker, epsilon: int, prior_belief: float) -> float:
    """Return the highest belief in a target with this prior, or NaN if the mechanism has no such ε."""
    prior, targets = attacker.prior, attacker.targets
    try:
        experiment = attacker.at(epsilon)
    except (ExperimentRefused, NoMechanism):
        return np.nan
    if targets is None:
        posteriors = worst_posteriors(experiment, prior)
        return float(posteriors[np.isclose(prior, prior_belief, rtol=1e-12, atol=0)].max())
    matching_targets = [t for t in targets if np.isclose(t.prior(prior), prior_belief, rtol=1e-12, atol=0)]
    return max(worst_posterior(experiment, prior, t) for t in matching_targets)


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
