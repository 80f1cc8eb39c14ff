"""The figures of a study of ranges on the correct structures; each takes the study and writes one PNG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ...server.answers.figure import COLOURS, TRUTH, figure, style
from . import ranges_findings as findings
from .laplace import noise_variance
from .ranges import RangeStudy
from .ranges_cell import BINS, FAMILIES, Point

COLOUR: dict[str, str] = dict(zip(FAMILIES, (COLOURS[4], COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))


def plain_ticks(axis_values: Sequence[float], set_ticks: Callable[..., object]) -> None:
    """Set an axis's ticks at these values, written as plain numbers."""
    set_ticks(list(axis_values), labels=[f"{v:g}" for v in axis_values])


def thousands(axes: Axes) -> None:
    """Write large numbers of the vertical axis with commas."""
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def legend_below(drawing: Figure, axes: Axes, columns: int, size: float) -> None:
    """One legend for all panels, below them."""
    handles, labels = axes.get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


def _normal_law(axes: Axes) -> None:
    x = np.linspace(-5, 5, 200)
    axes.plot(x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), "--", color="#000000", label="normal law")


def _curve(axes: Axes, x: Sequence[float], points: Sequence[Point], colour: str, label: str) -> None:
    """Measured points over the predicted line."""
    axes.plot(x, [r.predicted for r in points], "-", color=colour, linewidth=1.6)
    axes.plot(x, [r.rmse for r in points], "o", color=colour, markersize=4.5, label=label)


def lengths(study: RangeStudy, path: Path) -> None:
    """RMSE against length, a panel for each number of days."""
    sizes = list(study.design.lengths)
    columns = min(3, len(sizes))
    rows = -(-len(sizes) // columns)
    with figure(path, columns, rows) as (drawing, panels):
        for axes, days in zip(panels, sizes, strict=False):
            for family in FAMILIES:
                points = study.select(
                    days=days, epsilon=study.design.middle, family=family, fanout=0, neighbours="replaced"
                )
                _curve(axes, [r.length for r in points], points, COLOUR[family], family)
            records = next(s.counts.sum() for s in study.series if len(s.counts) == days)
            axes.set_yscale("log")
            thousands(axes)
            style(
                axes, f"{days:,} days", f"{records:,} records", "length of the range, days", "RMSE, records"
            )
        for axes in panels[len(sizes) :]:
            axes.set_visible(False)
        legend_below(drawing, panels[0], 4, 11)


def hierarchy(study: RangeStudy, path: Path) -> None:
    """RMSE of the hierarchy over flat's, against length."""
    with figure(path, 2) as (drawing, panels):
        for axes, side in zip(panels, ("central", "local"), strict=True):
            ratios = findings.wins(study, side)
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                points = [(length / days, ratio) for n, length, ratio in ratios if n == days]
                axes.plot(
                    *zip(*points, strict=True), "o-", color=colour, label=f"{days:,} days", markersize=4
                )
            axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")
            axes.set_yscale("log")
            ticks = [0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3]
            low, high = axes.get_ylim()
            plain_ticks([t for t in ticks if low <= t <= high], axes.set_yticks)
            axes.yaxis.set_minor_formatter(NullFormatter())
            note = "below the dashed line the hierarchy wins"
            style(axes, side.capitalize(), note, "length / days", "RMSE of hierarchy / flat")
        legend_below(drawing, panels[0], 6, 11)


def epsilon(study: RangeStudy, path: Path) -> None:
    """RMSE against ε and against 1/ε with its lines."""
    days = findings.shown_days(study)
    with figure(path, 2) as (drawing, (left, right)):
        for family in FAMILIES:
            neighbours = "added" if family.startswith("central") else "replaced"
            points = study.select(days=days, family=family, fanout=0, neighbours=neighbours)
            epsilons, measured, predicted = findings.curve(points)
            power = findings.exponent(epsilons, measured)
            label = f"{family}: ε^{power:.2f}"
            left.plot(epsilons, predicted, "-", color=COLOUR[family], linewidth=1.6)
            left.plot(epsilons, measured, "o", color=COLOUR[family], markersize=4.5, label=label)
            inverse = [1 / e for e in epsilons]
            slope, intercept, _ = findings.line(inverse, measured)
            x = np.linspace(0, max(inverse), 20)
            scale = measured[-1]
            right.plot(x, (slope * x + intercept) / scale, "-", color=COLOUR[family], linewidth=1.3)
            right.plot(inverse, np.array(measured) / scale, "o", color=COLOUR[family], markersize=4.5)
        left.set_xscale("log")
        left.set_yscale("log")
        plain_ticks([e for e in study.design.epsilons if e not in (1.2, 0.8)], left.set_xticks)
        left.xaxis.set_minor_formatter(NullFormatter())
        thousands(left)
        right.set_ylim(bottom=0)
        smallest = min(study.design.epsilons)
        style(left, f"Against ε, {days:,} days", "dots measured, lines theory", "ε", "RMSE over all lengths")
        style(right, "Against 1/ε", "lines fitted: a + b/ε", "1/ε", f"RMSE, 1 at ε = {smallest:g}")
        legend_below(drawing, left, 4, 10)


def fanouts(study: RangeStudy, path: Path) -> None:
    """RMSE by fanout, relative to the best one."""
    with figure(path, 2) as (drawing, panels):
        for axes, side in zip(panels, ("central", "local"), strict=True):
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                errors = findings.fanout_errors(study, side, days)
                least = min(predicted for _, predicted in errors.values())
                measured = [m / least for m, _ in errors.values()]
                axes.plot(list(errors), [p / least for _, p in errors.values()], "-", color=colour)
                axes.plot(list(errors), measured, "o", color=colour, markersize=4.5, label=f"{days:,} days")
            axes.set_xscale("log", base=2)
            plain_ticks(list(study.design.fanouts), axes.set_xticks)
            axes.xaxis.set_minor_formatter(NullFormatter())
            note = f"ε = {study.design.middle:g}, all lengths; dots measured, lines theory"
            style(axes, f"{side.capitalize()} hierarchy", note, "fanout", "RMSE, 1 for the best by theory")
        legend_below(drawing, panels[0], 6, 11)


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
        axes.set_xscale("log")
        axes.set_yscale("log")
        thousands(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
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
    with figure(path, 2, 2) as (_, panels):
        for axes, family in zip(panels, FAMILIES, strict=True):
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
