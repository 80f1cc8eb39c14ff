"""The figures of a study of ranges, FIGURES; each takes the study and writes one PNG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..server.answers.figure import COLOURS, TRUTH, figure, legend_below, log_log, panels, plain, style
from ..server.arrays import Counts
from . import ranges_findings as findings
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws, true_epsilon
from .noise import noise_variance
from .ranges_design import flaw_lengths
from .ranges_run import BINS, FAMILIES, RangeStudy, starts

COLOUR: dict[str, str] = dict(zip(FAMILIES, (COLOURS[4], COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))


_FLAT_THESIS = Flaws(lie=True, no_hash=True)
_CASES = {
    "correct": (CORRECT, COLOURS[0]),
    "lie from all cells (not ε-LDP)": (Flaws(lie=True), COLOURS[1]),
    "no hashing": (Flaws(no_hash=True), COLOURS[2]),
    "root level": (Flaws(root=True), COLOURS[4]),
    "no consistency": (Flaws(inconsistent=True), COLOURS[5]),
    "the thesis: all four (not ε-LDP)": (THESIS, COLOURS[6]),
}


def _ticks(axis: Axis, values: Iterable[float]) -> None:
    """Set an axis's ticks at these values, written as plain numbers."""
    shown = list(values)
    axis.set_ticks(shown, labels=[f"{v:g}" for v in shown])
    axis.set_minor_formatter(NullFormatter())


def _thousands(axes: Axes) -> None:
    plain(axes.yaxis, lambda x: f"{x:,.0f}" if x >= 1 else f"{x:g}")


def _normal_law(axes: Axes) -> None:
    x = np.linspace(-5, 5, 200)
    axes.plot(x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), "--", color="#000000", label="normal law")


def _curve(
    axes: Axes,
    x: Sequence[float],
    predicted: Sequence[float],
    measured: Sequence[float],
    colour: str,
    label: str,
) -> None:
    """Measured points over the predicted line."""
    axes.plot(x, predicted, "-", color=colour, linewidth=1.6)
    axes.plot(x, measured, "o", color=colour, markersize=4.5, label=label)


def lengths(study: RangeStudy, path: Path) -> None:
    """RMSE against length, a panel for each number of days."""
    sizes = list(study.design.lengths)
    with panels(path, len(sizes), 3) as (drawing, drawn):
        for axes, days in zip(drawn, sizes, strict=True):
            for family in FAMILIES:
                points = study.select(
                    days=days, epsilon=study.design.middle, family=family, fanout=0, neighbours="replaced"
                )
                x, predicted = [r.length for r in points], [r.predicted for r in points]
                _curve(axes, x, predicted, [r.rmse for r in points], COLOUR[family], family)
            records = next(s.counts.sum() for s in study.series if len(s.counts) == days)
            axes.set_yscale("log")
            _thousands(axes)
            style(
                axes, f"{days:,} days", f"{records:,} records", "length of the range, days", "RMSE, records"
            )
        legend_below(drawing, drawn[0], 4, 11)


def hierarchy(study: RangeStudy, path: Path) -> None:
    """RMSE of the hierarchy over flat's, against length."""
    with figure(path, 2) as (drawing, drawn):
        for axes, side in zip(drawn, ("central", "local"), strict=True):
            ratios = findings.wins(study, side)
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                points = [(length / days, ratio) for n, length, ratio in ratios if n == days]
                axes.plot(
                    *zip(*points, strict=True), "o-", color=colour, label=f"{days:,} days", markersize=4
                )
            axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            _ticks(axes.yaxis, (t for t in (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3) if low <= t <= high))
            note = "below the dashed line the hierarchy wins"
            style(axes, side.capitalize(), note, "length / days", "RMSE of hierarchy / flat")
        legend_below(drawing, drawn[0], 6, 11)


def epsilon(study: RangeStudy, path: Path) -> None:
    """RMSE against ε and against 1/ε with its lines."""
    days = findings.shown_days(study)
    with figure(path, 2) as (drawing, (left, right)):
        for family in FAMILIES:
            neighbours = "added" if family.startswith("central") else "replaced"
            points = study.select(days=days, family=family, fanout=0, neighbours=neighbours)
            epsilons, measured, predicted = findings.curve(points)
            power = findings.exponent(epsilons, measured)
            _curve(left, epsilons, predicted, measured, COLOUR[family], f"{family}: ε^{power:.2f}")
            inverse = [1 / e for e in epsilons]
            slope, intercept, _ = findings.line(inverse, measured)
            x = np.linspace(0, max(inverse), 20)
            scale = measured[-1]
            right.plot(x, (slope * x + intercept) / scale, "-", color=COLOUR[family], linewidth=1.3)
            right.plot(inverse, np.array(measured) / scale, "o", color=COLOUR[family], markersize=4.5)
        log_log(left)
        _ticks(left.xaxis, (e for e in study.design.epsilons if e not in (1.2, 0.8)))
        _thousands(left)
        right.set_ylim(bottom=0)
        smallest = min(study.design.epsilons)
        style(left, f"Against ε, {days:,} days", "dots measured, lines theory", "ε", "RMSE over all lengths")
        style(right, "Against 1/ε", "lines fitted: a + b/ε", "1/ε", f"RMSE, 1 at ε = {smallest:g}")
        legend_below(drawing, left, 4, 10)


def fanouts(study: RangeStudy, path: Path) -> None:
    """RMSE by fanout, relative to the best one."""
    with figure(path, 2) as (drawing, drawn):
        for axes, side in zip(drawn, ("central", "local"), strict=True):
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                errors = findings.fanout_errors(study, side, days)
                least = min(predicted for _, predicted in errors.values())
                measured = [m / least for m, _ in errors.values()]
                axes.plot(list(errors), [p / least for _, p in errors.values()], "-", color=colour)
                axes.plot(list(errors), measured, "o", color=colour, markersize=4.5, label=f"{days:,} days")
            axes.set_xscale("log", base=2)
            _ticks(axes.xaxis, study.design.fanouts)
            note = f"ε = {study.design.middle:g}, all lengths; dots measured, lines theory"
            style(axes, f"{side.capitalize()} hierarchy", note, "fanout", "RMSE, 1 for the best by theory")
        legend_below(drawing, drawn[0], 6, 11)


def price(study: RangeStudy, path: Path) -> None:
    """RMSE of local over central against the number of records."""
    prices = findings.price(study)
    records = [n for _, n, _, _ in prices]
    with figure(path) as (_, (axes,)):
        axes.plot(records, [f for *_, f, _ in prices], "o-", color=COLOURS[5], label="flat")
        axes.plot(records, [t for *_, t in prices], "o-", color=COLOURS[1], label="hierarchy")
        scale = prices[0][3] / math.sqrt(records[0])
        x = np.geomspace(records[0], records[-1], 20) if len(records) > 1 else np.array(records, float)
        axes.plot(x, scale * np.sqrt(x), "--", color="#777777", linewidth=1.2, label="√records")
        log_log(axes)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        _thousands(axes)
        plain(axes.xaxis, lambda records: f"{records:,.0f}")
        axes.legend(frameon=False, fontsize=10)
        note = f"the same neighbours, ε = {study.design.middle:g}, fanouts chosen by theory"
        style(axes, "What trusting nobody costs", note, "records", "RMSE of local / central")


def noise(study: RangeStudy, path: Path) -> None:
    """Noise of single counts, and errors of ranges, against their laws."""
    e = study.design.middle
    with figure(path, 2) as (_, (left, right)):
        reach = 10
        values = np.arange(-reach, reach + 1)
        counts = np.array([(study.noise == v).mean() for v in values])
        a = math.exp(-e)
        left.bar(values, counts, color=COLOURS[4], label="drawn")
        left.plot(
            values, (1 - a) / (1 + a) * a ** np.abs(values), "o", color="#000000", markersize=3.5, label="law"
        )
        left.set_yscale("log")
        plain(left.yaxis)
        left.legend(frameon=False, fontsize=10)
        title = "Central noise of one count"
        style(left, title, f"ε = {e:g}, variance {noise_variance(1, e):.3f}", "noise", "share of the draws")
        middle, width = (BINS[:-1] + BINS[1:]) / 2, BINS[1] - BINS[0]
        for family in FAMILIES:
            counts = study.standardised[family]
            right.step(middle, counts / counts.sum() / width, where="mid", color=COLOUR[family], label=family)
        _normal_law(right)
        right.legend(frameon=False, fontsize=9)
        note = "all days, ε and lengths pooled"
        style(right, "Errors / predicted deviation", note, "standard deviations", "density")


def example(study: RangeStudy, path: Path) -> None:
    """Counts of days beside one estimate of each structure."""
    truth = study.example["counts"]
    days = np.arange(len(truth))
    with figure(path, 2, 2) as (_, drawn):
        for axes, family in zip(drawn, FAMILIES, strict=True):
            axes.bar(days, study.example[family], color=COLOUR[family], width=1.0, label="estimate")
            axes.step(days, truth, where="mid", color="#000000", linewidth=1.2, label="counts")
            off = findings.rms((study.example[family] - truth).tolist())
            note = f"one day is off by {findings.number(off)} records (RMSE)"
            style(axes, family.capitalize(), note, "day", "records")
            low, high = axes.get_ylim()
            axes.set_ylim(low, high + 0.15 * (high - low))
            axes.legend(frameon=False, fontsize=9, loc="upper right", ncols=2)


def agreement(study: RangeStudy, path: Path) -> None:
    """Measured over predicted RMSE, and the deviations against a normal law."""
    with figure(path, 2) as (_, (left, right)):
        for family in FAMILIES:
            points = study.select(family=family)
            x, y = [r.predicted for r in points], [r.rmse / r.predicted for r in points]
            left.plot(x, y, ".", color=COLOUR[family], markersize=4, label=family)
        x, y = [r.predicted for r in study.flawed], [r.rmse / r.predicted for r in study.flawed]
        left.plot(x, y, ".", color="#999999", markersize=3, zorder=1, label="runs with flaws")
        left.axhline(1, color="#000000", linewidth=0.9)
        left.set_xscale("log")
        left.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else f"{v:g}"))
        left.set_ylim(0.5, 1.8)
        left.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", markerscale=2)
        style(left, "Measured / predicted", "every point of the study", "predicted RMSE, records", "ratio")
        z = np.array([r.deviations for r in [*study.points, *study.flawed]])
        right.hist(z, BINS.tolist(), density=True, color=COLOURS[4])
        _normal_law(right)
        right.legend(frameon=False, fontsize=10)
        style(right, "Deviation from theory", f"{len(z):,} points", "standard deviations", "density")


# --- Runs with flaws ------------------------------------------------------------------------------


def _theory(structure: FlawedStructure, counts: Counts, epsilon: float, length: int) -> float:
    lo = starts(len(counts), length, 20)
    return structure.law(counts, epsilon, lo, lo + length).rmse


def flat(study: RangeStudy, path: Path) -> None:
    """Surprise 1: flat's error against length; correct, without hashing, and the thesis's."""
    days = study.design.flaw_days
    epsilons = (study.design.middle, min(study.design.epsilons))
    series = findings.flaw_series(study)
    with figure(path, 2) as (drawing, drawn):
        for axes, e in zip(drawn, epsilons, strict=True):
            for name, flaws, colour in (
                ("correct", CORRECT, COLOURS[0]),
                ("no hashing", Flaws(no_hash=True), COLOURS[2]),
                ("the thesis (not ε-LDP)", _FLAT_THESIS, COLOURS[6]),
            ):
                structure = FlawedStructure(0, flaws)
                points = study.select_flawed(flaws=str(flaws), family="local flat", epsilon=e)
                at = np.unique(np.linspace(1, days - 1, 25).astype(int))
                theory = [_theory(structure, series.counts, e, int(r)) for r in at]
                axes.plot(at, theory, "-", color=colour, linewidth=1.6)
                x, measured = [r.length for r in points], [r.rmse for r in points]
                axes.plot(x, measured, "o", color=colour, markersize=5, label=name)
                lone = theory[0] * np.sqrt(at)
                label = "if days were independent" if name == "correct" else None
                axes.plot(at, lone, ":", color=colour, linewidth=1.3, label=label)
            axes.set_ylim(0, None)
            _thousands(axes)
            note = f"{days} days; dots measured, lines theory"
            style(axes, f"ε = {e:g}", note, "length, days", "RMSE, records")
        legend_below(drawing, drawn[0], 4, 10)


def exponents(study: RangeStudy, path: Path) -> None:
    """Surprise 2: the hierarchy's error against 1/ε, one flaw at a time; and by fanout."""
    fanout = min(study.design.flaw_fanouts)
    with figure(path, 2) as (drawing, (left, right)):
        for name, (flaws, colour) in _CASES.items():
            points = study.select_flawed(flaws=str(flaws), fanout=fanout)
            x, measured, predicted = findings.curve(points)
            inverse = [1 / e for e in x]
            power = findings.exponent(x, measured)
            _curve(left, inverse, predicted, measured, colour, f"{name}: ε^{power:.2f}")
            errors = findings.flaw_fanout_errors(study, flaws)
            first = errors[fanout]
            mark = "o--" if flaws == Flaws(lie=True) else "o-"  # it lies on the correct one
            right.plot(list(errors), [e / first for e in errors.values()], mark, color=colour, markersize=4.5)
        start = findings.curve(study.select_flawed(flaws=str(CORRECT), fanout=fanout))[1][0] * 1.6
        span = np.array([1 / max(study.design.epsilons), 1 / min(study.design.epsilons)])
        square = start * (span / span[0]) ** 2
        left.plot(span, square, ":", color="#777777", linewidth=1.6, label="1/ε² would be")
        log_log(left)
        _ticks(left.xaxis, [0.5, 1, 2, 5] if span[1] > 4 else [0.5, 1, 2])
        _thousands(left)
        note = f"{study.design.flaw_days} days; dots measured, lines theory"
        style(left, f"Against 1/ε, fanout {fanout}", note, "1/ε (nominal)", "RMSE, records")
        right.set_xscale("log", base=2)
        _ticks(right.xaxis, study.design.flaw_fanouts)
        note = f"theory, ε = {study.design.middle:g}"
        style(right, "By fanout", note, "fanout", f"RMSE, 1 at fanout {fanout}")
        legend_below(drawing, left, 4, 9.5)


def short(study: RangeStudy, path: Path) -> None:
    """Surprise 3: hierarchy over flat against length, one flaw at a time."""
    days, e, fanout = study.design.flaw_days, study.design.middle, min(study.design.flaw_fanouts)
    with figure(path) as (_, (axes,)):
        more = {"no hashing, no consistency": (Flaws(no_hash=True, inconsistent=True), COLOURS[3])}
        for name, (flaws, colour) in (_CASES | more).items():
            below = Flaws(lie=flaws.lie, no_hash=flaws.no_hash)
            trees = study.select_flawed(flaws=str(flaws), fanout=fanout, epsilon=e)
            flats = study.select_flawed(flaws=str(below), fanout=0, epsilon=e)
            x = [r.length for r in trees]
            pairs = list(zip(trees, flats, strict=True))
            predicted = [t.predicted / f.predicted for t, f in pairs]
            _curve(axes, x, predicted, [t.rmse / f.rmse for t, f in pairs], colour, name)
        axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")
        table = study.design.lengths.get(days)
        if table:
            label = "lengths of the study's table"
            axes.axvspan(min(table), max(table), color="#eeeeee", zorder=0, label=label)
        log_log(axes)
        _ticks(axes.xaxis, (r for i, r in enumerate(flaw_lengths(days)) if i not in (5, 7, 8)))
        _ticks(axes.yaxis, (0.2, 0.3, 0.5, 1, 2, 3))
        axes.legend(frameon=False, fontsize=9, ncols=2)
        note = f"{days} days, fanout {fanout}, ε = {e:g}; below the dashed line the hierarchy wins"
        style(axes, "Hierarchy against flat", note, "length, days", "RMSE of hierarchy / flat")


def spent(study: RangeStudy, path: Path) -> None:
    """What the flawed oracle spends, and its error against that."""
    days = study.design.flaw_days
    counts = findings.flaw_series(study).counts
    length = flaw_lengths(days)[4]
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
        for flaws, colour, name in (
            (Flaws(no_hash=True), COLOURS[2], "correct, no hashing (theory)"),
            (CORRECT, COLOURS[0], "correct (theory)"),
        ):
            theory = [_theory(FlawedStructure(0, flaws), counts, float(e), length) for e in grid]
            right.plot(grid, theory, "-", color=colour, label=name)
        points = study.select_flawed(flaws=str(_FLAT_THESIS), family="local flat", length=length)
        measured = [r.rmse for r in points]
        nominal, real = [r.epsilon for r in points], [r.true_epsilon for r in points]
        right.plot(nominal, measured, "x", color=COLOURS[6], label="flawed, at its nominal ε")
        right.plot(real, measured, "o", color=COLOURS[6], label="flawed, at its true ε")
        log_log(right)
        _ticks(right.xaxis, (e for e in (0.2, 0.4, 0.6, 1, 1.4, 2) if e >= min(study.design.epsilons)))
        _thousands(right)
        right.legend(frameon=False, fontsize=9)
        style(right, "Flat, at equal privacy", f"{days} days, ranges of {length}", "ε", "RMSE, records")


FIGURES: dict[str, Callable[[RangeStudy, Path], None]] = {
    draw.__name__: draw
    for draw in (
        *(lengths, hierarchy, epsilon, fanouts, price, noise, example, agreement),
        *(flat, exponents, short, spent),
    )
}
