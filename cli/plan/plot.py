"""Plots of plans: the error by devices and by epsilon, and the spending of a lifetime budget."""

from pathlib import Path

import numpy as np
from matplotlib.ticker import LogLocator

from ...planning.devices import EPSILON_STEP, Plan, PlanError, Z, best_design, half_width
from ...planning.expected_error import variance
from ...planning.lifetime import LifetimePlan
from ...planning.sentences import describe_question, unit_of
from ...server.answers.figure import (
    COLOURS,
    add_legend_below,
    figure,
    number_axis,
    style_axes,
    use_log_scales,
    use_plain_ticks,
)
from ...server.epsilon import MICRO
from ...server.words.numbers import MAX_HALF_WIDTH, counted, length, points

_POINTS = 25
_HALF_WIDTH = "half-width of 95% interval, "


def plot(path: Path, plan: Plan | LifetimePlan) -> None:
    """Plot a plan as PNG, PDF or SVG; raise PlanError for a horizon below two days."""
    plot_plan(path, plan) if isinstance(plan, Plan) else plot_lifetime(path, plan)


def plot_plan(path: Path, plan: Plan) -> None:
    """Plot the error against devices and against epsilon, around a plan, as PNG, PDF or SVG."""
    question, design = plan.question, plan.design
    with figure(path, columns=2) as (drawing, (left_axes, right_axes)):
        devices = np.geomspace(max(2, plan.devices / 100), plan.devices * 100, 50)
        for colour, factor in zip(COLOURS, (0.5, 1, 2), strict=False):
            epsilon = round(design.epsilon * factor / EPSILON_STEP) * EPSILON_STEP
            if not EPSILON_STEP <= epsilon <= 16 * MICRO:
                continue
            v = variance(best_design(design.domain, epsilon, question), question)
            label = f"ε = {epsilon / MICRO:g}"
            left_axes.plot(devices, 100 * Z * np.sqrt(v / devices), color=colour, label=label, lw=1.8)
        style_axes(
            left_axes,
            "Error by devices",
            f"{design.domain:,} values",
            "devices",
            _HALF_WIDTH + unit_of(question),
        )
        epsilons = np.unique(np.geomspace(100, 16_000, _POINTS).astype(int)) * EPSILON_STEP
        for colour, factor in zip(COLOURS, (0.1, 1, 10), strict=False):
            count = max(2, round(plan.devices * factor))
            errors = [
                half_width(count, best_design(design.domain, int(e), question), question) for e in epsilons
            ]
            right_axes.plot(
                epsilons / MICRO, 100 * np.array(errors), color=colour, label=f"{count:,} devices", lw=1.8
            )
        style_axes(
            right_axes, "Error by ε", f"question: {describe_question(question)}", "ε of the report, nats", ""
        )
        for axes, x in ((left_axes, plan.devices), (right_axes, plan.epsilon)):
            axes.plot([x], [100 * plan.error], "o", color="black", ms=7, zorder=5)
            text = points(plan.error, unit_of(question))
            axes.annotate(text, (x, 100 * plan.error), (-9, -15), textcoords="offset points", ha="right")
            use_log_scales(axes)
            use_plain_ticks(axes.xaxis, "{:,g}".format)
            use_plain_ticks(axes.yaxis)
            axes.legend(frameon=False)
        drawing.align_labels()


def plot_lifetime(path: Path, lifetime: LifetimePlan) -> None:
    """Plot the ways to spend a budget, and the best one over the horizon, as PNG, PDF or SVG."""
    windows = lifetime.windows()
    if lifetime.rhythm.days < 2:
        raise PlanError("nothing to plot, because the horizon is shorter than two days")
    best = lifetime.best
    with figure(path, columns=2) as (drawing, (left_axes, right_axes)):
        names = []
        for row, s in enumerate(lifetime.spendings):
            for colour, days in zip(COLOURS, windows.values(), strict=False):
                error = 100 * lifetime.error(s, days)
                left_axes.plot([error], [row], "o", color=colour, ms=9 if s is best else 6, zorder=3)
            mark = "*" if s.composition == "optimal" else ""
            names.append(f"{s.cap:,} × {s.epsilon / MICRO:.3g}{mark}")
        chosen = lifetime.spendings.index(best)
        left_axes.axhspan(chosen - 0.4, chosen + 0.4, color="#eef3f8", zorder=0)
        left_axes.set_yticks(range(len(names)), names)
        left_axes.set_ylim(len(names) - 0.5, -0.5)
        left_axes.set_xscale("log")
        left_axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        use_plain_ticks(left_axes.xaxis)
        left_axes.axvline(100 * MAX_HALF_WIDTH, color="#888888", lw=1, ls="--")
        style_axes(
            left_axes,
            "Ways to spend the budget",
            f"{describe_question(lifetime.question)}; beyond the dashed line, estimates are useless",
            f"{_HALF_WIDTH}{unit_of(lifetime.question)}, at the end",
            "reports per lifetime × ε each" + (" (* optimal composition)" if lifetime.budget.delta else ""),
        )
        ends = np.unique(np.geomspace(1, max(2.0, lifetime.rhythm.days), 120).round().astype(int))
        ends = np.unique(np.append(np.linspace(1, lifetime.rhythm.days, 60).round().astype(int), ends))
        ends = ends[ends <= lifetime.rhythm.days]
        for colour, (name, days) in zip(COLOURS, windows.items(), strict=False):
            days_of_ends = ends[ends >= days]
            errors = [100 * _error_until(lifetime, days, int(end)) for end in days_of_ends]
            right_axes.plot(days_of_ends, errors, color=colour, label=name, lw=2)
        right_axes.set_ylim(bottom=0)
        right_axes.set_xlim(0, lifetime.rhythm.days)
        number_axis(right_axes.xaxis)
        number_axis(right_axes.yaxis)
        style_axes(
            right_axes,
            f"{counted(best.cap)} of ε = {best.epsilon / MICRO:g} in a lifetime",
            f"{lifetime.devices:,} devices, {length(lifetime.rhythm.horizon_s)}; 1 call in {best.every:,}",
            "day on which the window ends",
            _HALF_WIDTH + unit_of(lifetime.question),
        )
        add_legend_below(drawing, right_axes, 3)


def _error_until(lifetime: LifetimePlan, days: float, end: int) -> float:
    """Return the half-width of the window that ends on a day of the horizon."""
    best = lifetime.best
    calls = min(max(1, round(lifetime.rhythm.calls_in(end))), lifetime.rhythm.calls)
    reports = lifetime.devices * lifetime.rhythm.in_window(days, best.every, best.cap, calls)
    return half_width(reports, best.design, lifetime.question)
