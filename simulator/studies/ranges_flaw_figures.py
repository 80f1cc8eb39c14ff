"""The figures of a study of ranges on its runs with flaws: three surprises, and the ε really spent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.ticker import NullFormatter

from ...server.answers.figure import COLOURS, TRUTH, figure, style
from . import ranges_findings as findings
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws, true_epsilon
from .ranges import RangeStudy
from .ranges_cell import starts
from .ranges_design import flaw_lengths
from .ranges_figures import legend_below, plain_ticks, thousands

_CASES = {
    "correct": (CORRECT, COLOURS[0]),
    "lie from all cells (not ε-LDP)": (Flaws(lie=True), COLOURS[1]),
    "no hashing": (Flaws(no_hash=True), COLOURS[2]),
    "root level": (Flaws(root=True), COLOURS[4]),
    "no consistency": (Flaws(inconsistent=True), COLOURS[5]),
    "the thesis: all four (not ε-LDP)": (THESIS, COLOURS[6]),
}


def flat(study: RangeStudy, path: Path) -> None:
    """Surprise 1: flat's error against length; correct, without hashing, and the thesis's."""
    days = study.design.flaw_days
    epsilons = (study.design.middle, min(study.design.epsilons))
    series = findings.flaw_series(study)
    with figure(path, 2) as (drawing, panels):
        for axes, e in zip(panels, epsilons, strict=True):
            for name, flaws, colour in (
                ("correct", CORRECT, COLOURS[0]),
                ("no hashing", Flaws(no_hash=True), COLOURS[2]),
                ("the thesis (not ε-LDP)", Flaws(lie=True, no_hash=True), COLOURS[6]),
            ):
                structure = FlawedStructure(0, flaws)
                points = study.select_flawed(flaws=str(flaws), family="local flat", epsilon=e)
                at = np.unique(np.linspace(1, days - 1, 25).astype(int))
                theory = []
                for r in at:
                    lo = starts(days, int(r), 20)
                    theory.append(structure.law(series.counts, e, lo, lo + r).rmse)
                axes.plot(at, theory, "-", color=colour, linewidth=1.6)
                axes.plot(
                    [r.length for r in points],
                    [r.rmse for r in points],
                    "o",
                    color=colour,
                    markersize=5,
                    label=name,
                )
                lone = theory[0] * np.sqrt(at)
                label = "if days were independent" if name == "correct" else None
                axes.plot(at, lone, ":", color=colour, linewidth=1.3, label=label)
            axes.set_ylim(0, None)
            thousands(axes)
            style(
                axes,
                f"ε = {e:g}",
                f"{days} days; dots measured, lines theory",
                "length, days",
                "RMSE, records",
            )
        legend_below(drawing, panels[0], 4, 10)


def exponents(study: RangeStudy, path: Path) -> None:
    """Surprise 2: the hierarchy's error against 1/ε, one flaw at a time; and by fanout."""
    fanout = min(study.design.flaw_fanouts)
    with figure(path, 2) as (drawing, (left, right)):
        for name, (flaws, colour) in _CASES.items():
            points = study.select_flawed(flaws=str(flaws), fanout=fanout)
            x, measured, predicted = findings.curve(points)
            inverse = [1 / e for e in x]
            power = findings.exponent(x, measured)
            left.plot(inverse, predicted, "-", color=colour, linewidth=1.6)
            left.plot(inverse, measured, "o", color=colour, markersize=4.5, label=f"{name}: ε^{power:.2f}")
            errors = findings.flaw_fanout_errors(study, flaws)
            first = errors[fanout]
            mark = "o--" if flaws == Flaws(lie=True) else "o-"  # it lies on the correct one
            right.plot(list(errors), [e / first for e in errors.values()], mark, color=colour, markersize=4.5)
        start = findings.curve(study.select_flawed(flaws=str(CORRECT), fanout=fanout))[1][0] * 1.6
        span = np.array([1 / max(study.design.epsilons), 1 / min(study.design.epsilons)])
        left.plot(
            span, start * (span / span[0]) ** 2, ":", color="#777777", linewidth=1.6, label="1/ε² would be"
        )
        left.set_xscale("log")
        left.set_yscale("log")
        plain_ticks([0.5, 1, 2, 5] if span[1] > 4 else [0.5, 1, 2], left.set_xticks)
        left.xaxis.set_minor_formatter(NullFormatter())
        thousands(left)
        style(
            left,
            f"Against 1/ε, fanout {fanout}",
            f"{study.design.flaw_days} days; dots measured, lines theory",
            "1/ε (nominal)",
            "RMSE, records",
        )
        right.set_xscale("log", base=2)
        plain_ticks(list(study.design.flaw_fanouts), right.set_xticks)
        right.xaxis.set_minor_formatter(NullFormatter())
        style(
            right,
            "By fanout",
            f"theory, ε = {study.design.middle:g}",
            "fanout",
            f"RMSE, 1 at fanout {fanout}",
        )
        legend_below(drawing, left, 4, 9.5)


def short(study: RangeStudy, path: Path) -> None:
    """Surprise 3: hierarchy over flat against length, one flaw at a time."""
    days, e, fanout = study.design.flaw_days, study.design.middle, min(study.design.flaw_fanouts)
    with figure(path) as (_, (axes,)):
        cases = dict(_CASES)
        cases["no hashing, no consistency"] = (Flaws(no_hash=True, inconsistent=True), COLOURS[3])
        for name, (flaws, colour) in cases.items():
            below = Flaws(lie=flaws.lie, no_hash=flaws.no_hash)
            trees = study.select_flawed(flaws=str(flaws), fanout=fanout, epsilon=e)
            flats = study.select_flawed(flaws=str(below), fanout=0, epsilon=e)
            x = [r.length for r in trees]
            pairs = list(zip(trees, flats, strict=True))
            axes.plot(x, [t.predicted / f.predicted for t, f in pairs], "-", color=colour, linewidth=1.6)
            axes.plot(x, [t.rmse / f.rmse for t, f in pairs], "o", color=colour, markersize=4.5, label=name)
        axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")
        table = study.design.lengths.get(days)
        if table:
            axes.axvspan(
                min(table), max(table), color="#eeeeee", zorder=0, label="lengths of the study's table"
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks([r for i, r in enumerate(flaw_lengths(days)) if i not in (5, 7, 8)], axes.set_xticks)
        axes.xaxis.set_minor_formatter(NullFormatter())
        plain_ticks([0.2, 0.3, 0.5, 1, 2, 3], axes.set_yticks)
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False, fontsize=9, ncols=2)
        style(
            axes,
            "Hierarchy against flat",
            f"{days} days, fanout {fanout}, ε = {e:g}; below the dashed line the hierarchy wins",
            "length, days",
            "RMSE of hierarchy / flat",
        )


def spent(study: RangeStudy, path: Path) -> None:
    """What the flawed oracle spends, and its error against that."""
    days = study.design.flaw_days
    series = findings.flaw_series(study)
    length = flaw_lengths(days)[4]
    lo = starts(days, length, 20)
    with figure(path, 2) as (_, (left, right)):
        x = np.linspace(0.05, 2.2, 60)
        for colour, cells in zip(COLOURS, (2, 4, days), strict=False):
            left.plot(x, [true_epsilon(v, cells) for v in x], color=colour, label=f"{cells} cells")
        left.plot(x, x, "--", color="#000000", linewidth=1.1, label="nominal")
        left.legend(frameon=False, fontsize=10)
        left.set_ylim(0, None)
        left.set_xlim(0, None)
        style(left, "What a report really spends", "lie from all cells: not ε-LDP", "nominal ε", "true ε")
        grid = np.geomspace(min(study.design.epsilons), 2.6, 20)
        flaws = Flaws(lie=True, no_hash=True)
        honest = FlawedStructure(0, Flaws(no_hash=True))
        theory = [honest.law(series.counts, float(e), lo, lo + length).rmse for e in grid]
        right.plot(grid, theory, "-", color=COLOURS[2], label="correct, no hashing (theory)")
        hashed = [
            FlawedStructure(0, CORRECT).law(series.counts, float(e), lo, lo + length).rmse for e in grid
        ]
        right.plot(grid, hashed, "-", color=COLOURS[0], label="correct (theory)")
        points = study.select_flawed(flaws=str(flaws), family="local flat", length=length)
        right.plot(
            [r.epsilon for r in points],
            [r.rmse for r in points],
            "x",
            color=COLOURS[6],
            label="flawed, at its nominal ε",
        )
        right.plot(
            [r.true_epsilon for r in points],
            [r.rmse for r in points],
            "o",
            color=COLOURS[6],
            label="flawed, at its true ε",
        )
        right.set_xscale("log")
        right.set_yscale("log")
        plain_ticks(
            [e for e in (0.2, 0.4, 0.6, 1, 1.4, 2) if e >= min(study.design.epsilons)], right.set_xticks
        )
        right.xaxis.set_minor_formatter(NullFormatter())
        thousands(right)
        right.legend(frameon=False, fontsize=9)
        style(right, "Flat, at equal privacy", f"{days} days, ranges of {length}", "ε", "RMSE, records")
