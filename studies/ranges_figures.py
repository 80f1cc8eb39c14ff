"""The figures of the ranges study, FIGURES; each function writes one PNG."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from . import ranges_findings as findings
from .drawing import COLOURS, GREY, TRUTH, add_legend_below, curve, figure, panel, panels, thousands
from .flawed import CORRECT, FlawedStructure, Flaws, true_epsilon
from .noise import noise_variance
from .ranges_run import BINS, FAMILIES, RangeStudy, flaw_lengths, predicted, select

COLOUR: dict[str, str] = dict(zip(FAMILIES, (COLOURS[4], COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))

_FLAT_THESIS = Flaws(lie=True, no_hash=True)
_CASES = dict(
    zip(
        ("all correct", "lie from all cells", "no hashing", "root level", "no consistency", "thesis"),
        (*COLOURS[:3], *COLOURS[4:7]),
        strict=True,
    )
)


def _case_label(case: str) -> str:
    return "correct" if case == "all correct" else findings.case_label(case)


def _normal_law(axes: Axes) -> None:
    x = np.linspace(-5, 5, 200)
    axes.plot(x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), "--", color="#000000", label="normal law")


def _mark_break_even(axes: Axes) -> None:
    axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")


def lengths(study: RangeStudy, path: Path) -> None:
    """Draw RMSE against length, with a panel for each number of days."""
    selection = select(study.points, epsilon=study.design.middle, fanout=0, neighbours="replaced")
    with panels(path, len(study.series), 3) as (drawing, all_axes):
        for axes, series in zip(all_axes, study.series, strict=True):
            days, records = len(series.counts), series.counts.sum()
            for family in FAMILIES:
                points = select(selection, days=days, family=family)
                x, theory = [p.length for p in points], [p.predicted for p in points]
                curve(axes, x, theory, [p.rmse for p in points], COLOUR[family], family)
            axes_words = "length of the range, days", "RMSE, records"
            panel(axes, (f"{days:,} days", f"{records:,} records", *axes_words), "y", y=thousands)
        add_legend_below(drawing, all_axes[0], 4, 11)


def hierarchy(study: RangeStudy, path: Path) -> None:
    """Draw the ratio of the hierarchy's RMSE to flat's against length."""
    with figure(path, 2) as (drawing, all_axes):
        for axes, side in zip(all_axes, ("central", "local"), strict=True):
            ratios = findings.wins(study, side)
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                x, y = zip(*((length / days, ratio) for n, length, ratio in ratios if n == days), strict=True)
                axes.plot(x, y, "o-", color=colour, label=f"{days:,} days", markersize=4)
            _mark_break_even(axes)
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            ticks = (t for t in (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3) if low <= t <= high)
            note = "below the dashed line the hierarchy wins"
            panel(axes, (side.capitalize(), note, "length / days", "RMSE of hierarchy / flat"), y=ticks)
        add_legend_below(drawing, all_axes[0], 6, 11)


def epsilon(study: RangeStudy, path: Path) -> None:
    """Draw RMSE against ε, and against 1/ε with fitted lines."""
    days, epsilons = findings.figure_days(study), study.design.epsilons
    with figure(path, 2) as (drawing, (left_axes, right_axes)):
        for family, colour in COLOUR.items():
            points = select(
                study.points,
                days=days,
                family=family,
                fanout=0,
                neighbours=findings.default_neighbours(family),
            )
            x, measured, theory = findings.curve(points)
            power = findings.exponent(x, measured)
            curve(left_axes, x, theory, measured, colour, f"{family}: ε^{power:.2f}")
            inverse = [1 / e for e in x]
            slope, intercept, _ = findings.line(inverse, measured)
            to, scale = np.linspace(0, max(inverse), 20), measured[-1]
            right_axes.plot(to, (slope * to + intercept) / scale, "-", color=colour, linewidth=1.3)
            right_axes.plot(inverse, np.array(measured) / scale, "o", color=colour, markersize=4.5)
        ticks = (e for e in epsilons if e not in (1.2, 0.8))
        words = f"Against ε, {days:,} days", "dots measured, lines theory", "ε", "RMSE over all lengths"
        panel(left_axes, words, "xy", ticks, thousands)
        right_axes.set_ylim(bottom=0)
        panel(
            right_axes, ("Against 1/ε", "lines fitted: a + b/ε", "1/ε", f"RMSE, 1 at ε = {min(epsilons):g}")
        )
        add_legend_below(drawing, left_axes, 4, 10)


def fanouts(study: RangeStudy, path: Path) -> None:
    """Draw RMSE by fanout, relative to the best one."""
    with figure(path, 2) as (drawing, all_axes):
        for axes, side in zip(all_axes, ("central", "local"), strict=True):
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                errors = findings.fanout_errors(study, side, days)
                measured, theory = np.array(list(errors.values())).T
                least = theory.min()
                axes.plot(list(errors), theory / least, "-", color=colour)
                axes.plot(
                    list(errors), measured / least, "o", color=colour, markersize=4.5, label=f"{days:,} days"
                )
            axes.set_xscale("log", base=2)
            note = f"ε = {study.design.middle:g}, all lengths; dots measured, lines theory"
            words = f"{side.capitalize()} hierarchy", note, "fanout", "RMSE, 1 for the best by theory"
            panel(axes, words, x=study.design.fanouts)
        add_legend_below(drawing, all_axes[0], 6, 11)


def price(study: RangeStudy, path: Path) -> None:
    """Draw the ratio of local to central RMSE against the number of records."""
    records, flats, trees = (list(column) for column in zip(*findings.price(study), strict=True))
    with figure(path) as (_, (axes,)):
        axes.plot(records, flats, "o-", color=COLOURS[5], label="flat")
        axes.plot(records, trees, "o-", color=COLOURS[1], label="hierarchy")
        x = np.geomspace(records[0], records[-1], 20) if len(records) > 1 else np.array(records, float)
        root = trees[0] / math.sqrt(records[0]) * np.sqrt(x)
        axes.plot(x, root, "--", color=GREY, linewidth=1.2, label="√records")
        note = f"the same neighbours, ε = {study.design.middle:g}, fanouts chosen by theory"
        words = "What trusting nobody costs", note, "records", "RMSE of local / central"
        panel(axes, words, "xy", "{:,.0f}", thousands, fontsize=10)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def noise(study: RangeStudy, path: Path) -> None:
    """Draw the noise of single counts and the errors of ranges, compared with their laws."""
    e = study.design.middle
    with figure(path, 2) as (_, (left_axes, right_axes)):
        values = np.arange(-10, 11)
        a = math.exp(-e)
        left_axes.bar(values, [(study.noise == v).mean() for v in values], color=COLOURS[4], label="drawn")
        law = (1 - a) / (1 + a) * a ** np.abs(values)
        left_axes.plot(values, law, "o", color="#000000", markersize=3.5, label="law")
        note = f"ε = {e:g}, variance {noise_variance(1, e):.3f}"
        words = "Central noise of one count", note, "noise", "share of the draws"
        panel(left_axes, words, "y", y="{:g}", fontsize=10)
        middle, width = (BINS[:-1] + BINS[1:]) / 2, BINS[1] - BINS[0]
        for family, colour in COLOUR.items():
            counts = study.standardised[family]
            right_axes.step(middle, counts / counts.sum() / width, where="mid", color=colour, label=family)
        _normal_law(right_axes)
        note = "all days, ε and lengths pooled"
        panel(
            right_axes, ("Errors / predicted deviation", note, "standard deviations", "density"), fontsize=9
        )


def example(study: RangeStudy, path: Path) -> None:
    """Draw daily counts and one estimate by each structure."""
    truth = study.example["counts"]
    days = np.arange(len(truth))
    edges = np.arange(len(truth) + 1) - 0.5
    with figure(path, 2, 2) as (_, all_axes):
        for axes, (family, colour) in zip(all_axes, COLOUR.items(), strict=True):
            # Drawing bars instead would take ten times as long.
            axes.stairs(study.example[family], edges, fill=True, color=colour, label="estimate")
            axes.step(days, truth, where="mid", color="#000000", linewidth=1.2, label="counts")
            off = findings.number(findings.rms(study.example[family] - truth))
            low, high = axes.get_ylim()
            axes.set_ylim(low, high + 0.15 * (high - low))
            words = family.capitalize(), f"one day is off by {off} records (RMSE)", "day", "records"
            panel(axes, words, fontsize=9, loc="upper right", ncols=2)


def agreement(study: RangeStudy, path: Path) -> None:
    """Draw measured over predicted RMSE, and the deviations against a normal law."""
    with figure(path, 2) as (_, (left_axes, right_axes)):
        for family, colour in COLOUR.items():
            points = select(study.points, family=family)
            x, y = [p.predicted for p in points], [p.rmse / p.predicted for p in points]
            left_axes.plot(x, y, ".", color=colour, markersize=4, label=family)
        x, y = [p.predicted for p in study.flawed], [p.rmse / p.predicted for p in study.flawed]
        left_axes.plot(x, y, ".", color="#999999", markersize=3, zorder=1, label="runs with flaws")
        left_axes.axhline(1, color="#000000", linewidth=0.9)
        left_axes.set_ylim(0.5, 1.8)
        words = "Measured / predicted", "every point of the study", "predicted RMSE, records", "ratio"
        panel(left_axes, words, "x", thousands, fontsize=9, ncols=2, loc="upper center", markerscale=2)
        z = np.array([p.deviations for p in [*study.points, *study.flawed]])
        right_axes.hist(z, BINS.tolist(), density=True, color=COLOURS[4])
        _normal_law(right_axes)
        words = "Deviation from theory", f"{len(z):,} points", "standard deviations", "density"
        panel(right_axes, words, fontsize=10)


# --- Runs with flaws ------------------------------------------------------------------------------


def flat(study: RangeStudy, path: Path) -> None:
    """Draw surprise 1: flat's error against length; correct, without hashing, and the thesis's."""
    days, series = study.design.flaw_days, study.flaw_series
    at = np.unique(np.linspace(1, days - 1, 25).astype(int))
    lines = {
        "correct": (CORRECT, COLOURS[0]),
        "no hashing": (Flaws(no_hash=True), COLOURS[2]),
        "the thesis (not ε-LDP)": (_FLAT_THESIS, COLOURS[6]),
    }
    with figure(path, 2) as (drawing, all_axes):
        for axes, e in zip(all_axes, (study.design.middle, min(study.design.epsilons)), strict=True):
            for name, (flaws, colour) in lines.items():
                points = select(study.flawed, flaws=str(flaws), family="local flat", epsilon=e)
                theory = [predicted(FlawedStructure(0, flaws), series, e, int(r), 20) for r in at]
                axes.plot(at, theory, "-", color=colour, linewidth=1.6)
                x, measured = [p.length for p in points], [p.rmse for p in points]
                axes.plot(x, measured, "o", color=colour, markersize=5, label=name)
                label = "if days were independent" if name == "correct" else None
                axes.plot(at, theory[0] * np.sqrt(at), ":", color=colour, linewidth=1.3, label=label)
            axes.set_ylim(0, None)
            note = f"{days} days; dots measured, lines theory"
            panel(axes, (f"ε = {e:g}", note, "length, days", "RMSE, records"), y=thousands)
        add_legend_below(drawing, all_axes[0], 4, 10)


def exponents(study: RangeStudy, path: Path) -> None:
    """Draw surprise 2: the hierarchy's error against 1/ε, one flaw at a time; and by fanout."""
    design = study.design
    fanout = min(design.flaw_fanouts)
    span = np.array([1 / max(design.epsilons), 1 / min(design.epsilons)])
    start = 0.0
    with figure(path, 2) as (drawing, (left_axes, right_axes)):
        for case, colour in _CASES.items():
            flaws = findings.CASES[case]
            x, measured, theory = findings.curve(select(study.flawed, flaws=str(flaws), fanout=fanout))
            start = start or measured[0] * 1.6
            name = f"{_case_label(case)}: ε^{findings.exponent(x, measured):.2f}"
            curve(left_axes, [1 / e for e in x], theory, measured, colour, name)
            errors = findings.flaw_fanout_errors(study, flaws)
            mark = "o--" if flaws == Flaws(lie=True) else "o-"  # it coincides with the correct curve
            relative = [e / errors[fanout] for e in errors.values()]
            right_axes.plot(list(errors), relative, mark, color=colour, markersize=4.5)
        square = start * (span / span[0]) ** 2
        left_axes.plot(span, square, ":", color=GREY, linewidth=1.6, label="1/ε² would be")
        note = f"{design.flaw_days} days; dots measured, lines theory"
        words = f"Against 1/ε, fanout {fanout}", note, "1/ε (nominal)", "RMSE, records"
        panel(left_axes, words, "xy", [0.5, 1, 2, 5] if span[1] > 4 else [0.5, 1, 2], thousands)
        right_axes.set_xscale("log", base=2)
        words = "By fanout", f"theory, ε = {design.middle:g}", "fanout", f"RMSE, 1 at fanout {fanout}"
        panel(right_axes, words, x=design.flaw_fanouts)
        add_legend_below(drawing, left_axes, 4, 9.5)


def short(study: RangeStudy, path: Path) -> None:
    """Draw surprise 3: hierarchy over flat against length, one flaw at a time."""
    days, e, fanout = study.design.flaw_days, study.design.middle, min(study.design.flaw_fanouts)
    selection = select(study.flawed, epsilon=e)
    with figure(path) as (_, (axes,)):
        for case, colour in (_CASES | {"no hashing, no consistency": COLOURS[3]}).items():
            tree = FlawedStructure(fanout, findings.CASES[case])
            trees = select(selection, flaws=str(tree.flaws), fanout=fanout)
            flats = select(selection, flaws=str(tree.flat_counterpart.flaws), fanout=0)
            pairs = list(zip(trees, flats, strict=True))
            theory, measured = (
                [t.predicted / f.predicted for t, f in pairs],
                [t.rmse / f.rmse for t, f in pairs],
            )
            curve(axes, [t.length for t in trees], theory, measured, colour, _case_label(case))
        _mark_break_even(axes)
        table = study.design.lengths.get(days)
        if table:
            label = "lengths of the study's table"
            axes.axvspan(min(table), max(table), color="#eeeeee", zorder=0, label=label)
        note = f"{days} days, fanout {fanout}, ε = {e:g}; below the dashed line the hierarchy wins"
        words = "Hierarchy against flat", note, "length, days", "RMSE of hierarchy / flat"
        ticks = (r for i, r in enumerate(flaw_lengths(days)) if i not in (5, 7, 8))
        panel(axes, words, "xy", ticks, (0.2, 0.3, 0.5, 1, 2, 3), fontsize=9, ncols=2)


def spent(study: RangeStudy, path: Path) -> None:
    """Draw the true ε of the flawed oracle, and its error against that."""
    days, least = study.design.flaw_days, min(study.design.epsilons)
    length = flaw_lengths(days)[4]
    with figure(path, 2) as (_, (left_axes, right_axes)):
        x = np.linspace(0.05, 2.2, 60)
        for colour, cells in zip(COLOURS, (2, 4, days), strict=False):
            left_axes.plot(x, [true_epsilon(v, cells) for v in x], color=colour, label=f"{cells} cells")
        left_axes.plot(x, x, "--", color="#000000", linewidth=1.1, label="nominal")
        left_axes.set(xlim=(0, None), ylim=(0, None))
        words = "What a report really spends", "lie from all cells: not ε-LDP", "nominal ε", "true ε"
        panel(left_axes, words, fontsize=10)
        grid = np.geomspace(least, 2.6, 20)
        for flaws, colour, name in (
            (Flaws(no_hash=True), COLOURS[2], "correct, no hashing (theory)"),
            (CORRECT, COLOURS[0], "correct (theory)"),
        ):
            flat = FlawedStructure(0, flaws)
            theory = [predicted(flat, study.flaw_series, float(e), length, 20) for e in grid]
            right_axes.plot(grid, theory, "-", color=colour, label=name)
        points = select(study.flawed, flaws=str(_FLAT_THESIS), family="local flat", length=length)
        measured = [p.rmse for p in points]
        nominal, real = [p.epsilon for p in points], [p.true_epsilon for p in points]
        right_axes.plot(nominal, measured, "x", color=COLOURS[6], label="flawed, at its nominal ε")
        right_axes.plot(real, measured, "o", color=COLOURS[6], label="flawed, at its true ε")
        words = "Flat, at equal privacy", f"{days} days, ranges of {length}", "ε", "RMSE, records"
        panel(
            right_axes,
            words,
            "xy",
            (e for e in (0.2, 0.4, 0.6, 1, 1.4, 2) if e >= least),
            thousands,
            fontsize=9,
        )


FIGURES: dict[str, Callable[[RangeStudy, Path], None]] = {
    draw.__name__: draw
    for draw in (
        *(lengths, hierarchy, epsilon, fanouts, price, noise, example, agreement),
        *(flat, exponents, short, spent),
    )
}
