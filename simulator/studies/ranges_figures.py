"""The figures of a study of ranges; each takes the study and writes one PNG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from ...server.answers.figure import COLOURS, TRUTH, figure, style
from . import ranges_findings as findings
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws, true_epsilon
from .laplace import noise_variance
from .ranges import BINS, FAMILIES, Row, Study, flaw_lengths, starts

COLOUR: dict[str, str] = dict(zip(FAMILIES, (COLOURS[4], COLOURS[0], COLOURS[5], COLOURS[1]), strict=True))
_FLAW_COLOUR = {
    "correct": (CORRECT, COLOURS[0]),
    "lie from all cells (not ε-LDP)": (Flaws(lie=True), COLOURS[1]),
    "no hashing": (Flaws(no_hash=True), COLOURS[2]),
    "root level": (Flaws(root=True), COLOURS[4]),
    "no consistency": (Flaws(inconsistent=True), COLOURS[5]),
    "the thesis: all four (not ε-LDP)": (THESIS, COLOURS[6]),
}


def _plain(axis_values: Sequence[float], set_ticks: Callable[..., object]) -> None:
    set_ticks(list(axis_values), labels=[f"{v:g}" for v in axis_values])


def _thousands(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 else f"{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _curve(axes: Axes, x: Sequence[float], rows: Sequence[Row], colour: str, label: str) -> None:
    """Measured points over the predicted line."""
    axes.plot(x, [r.predicted for r in rows], "-", color=colour, linewidth=1.6)
    axes.plot(x, [r.rmse for r in rows], "o", color=colour, markersize=4.5, label=label)


def lengths(study: Study, path: Path) -> None:
    """RMSE against length, a panel for each number of days."""
    sizes = list(study.design.lengths)
    columns = min(3, len(sizes))
    rows = -(-len(sizes) // columns)
    with figure(path, columns, rows) as (made, panels):
        for axes, days in zip(panels, sizes, strict=False):
            for family in FAMILIES:
                points = study.select(
                    days=days, epsilon=study.design.middle, family=family, fanout=0, neighbours="replaced"
                )
                _curve(axes, [r.length for r in points], points, COLOUR[family], family)
            records = next(s.counts.sum() for s in study.series if len(s.counts) == days)
            axes.set_yscale("log")
            _thousands(axes)
            style(
                axes, f"{days:,} days", f"{records:,} records", "length of the range, days", "RMSE, records"
            )
        for axes in panels[len(sizes) :]:
            axes.set_visible(False)
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=11)


def hierarchy(study: Study, path: Path) -> None:
    """RMSE of the hierarchy over flat's, against length."""
    with figure(path, 2) as (made, panels):
        for axes, side in zip(panels, ("central", "local"), strict=True):
            found = findings.wins(study, side)
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                points = [(length / days, ratio) for n, length, ratio in found if n == days]
                axes.plot(
                    *zip(*points, strict=True), "o-", color=colour, label=f"{days:,} days", markersize=4
                )
            axes.axhline(1, color=TRUTH, linewidth=1.2, linestyle="--")
            axes.set_yscale("log")
            ticks = [0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3]
            low, high = axes.get_ylim()
            _plain([t for t in ticks if low <= t <= high], axes.set_yticks)
            axes.yaxis.set_minor_formatter(NullFormatter())
            note = "below the dashed line the hierarchy wins"
            style(axes, side.capitalize(), note, "length / days", "RMSE of hierarchy / flat")
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=11)


def epsilon(study: Study, path: Path) -> None:
    """RMSE against ε and against 1/ε with its lines."""
    days = findings.shown_days(study)
    with figure(path, 2) as (made, (left, right)):
        for family in FAMILIES:
            neighbours = "added" if family.startswith("central") else "replaced"
            rows = study.select(days=days, family=family, fanout=0, neighbours=neighbours)
            epsilons, measured, predicted = findings.curve(rows)
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
        _plain([e for e in study.design.epsilons if e not in (1.2, 0.8)], left.set_xticks)
        left.xaxis.set_minor_formatter(NullFormatter())
        _thousands(left)
        right.set_ylim(bottom=0)
        smallest = min(study.design.epsilons)
        style(left, f"Against ε, {days:,} days", "dots measured, lines theory", "ε", "RMSE over all lengths")
        style(right, "Against 1/ε", "lines fitted: a + b/ε", "1/ε", f"RMSE, 1 at ε = {smallest:g}")
        handles, labels = left.get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)


def fanouts(study: Study, path: Path) -> None:
    """RMSE by fanout, relative to the best one."""
    with figure(path, 2) as (made, panels):
        for axes, side in zip(panels, ("central", "local"), strict=True):
            for colour, days in zip(COLOURS, study.design.lengths, strict=False):
                errors = findings.fanout_errors(study, side, days)
                least = min(predicted for _, predicted in errors.values())
                measured = [m / least for m, _ in errors.values()]
                axes.plot(list(errors), [p / least for _, p in errors.values()], "-", color=colour)
                axes.plot(list(errors), measured, "o", color=colour, markersize=4.5, label=f"{days:,} days")
            axes.set_xscale("log", base=2)
            _plain(list(study.design.fanouts), axes.set_xticks)
            axes.xaxis.set_minor_formatter(NullFormatter())
            note = f"ε = {study.design.middle:g}, all lengths; dots measured, lines theory"
            style(axes, f"{side.capitalize()} hierarchy", note, "fanout", "RMSE, 1 for the best by theory")
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, fontsize=11)


def price(study: Study, path: Path) -> None:
    """RMSE of local over central against the number of records."""
    found = findings.price(study)
    records = [n for _, n, _, _ in found]
    with figure(path) as (_, (axes,)):
        axes.plot(records, [f for *_, f, _ in found], "o-", color=COLOURS[5], label="flat")
        axes.plot(records, [t for *_, t in found], "o-", color=COLOURS[1], label="hierarchy")
        scale = found[0][3] / math.sqrt(records[0])
        x = np.geomspace(records[0], records[-1], 20) if len(records) > 1 else np.array(records, float)
        axes.plot(x, scale * np.sqrt(x), "--", color="#777777", linewidth=1.2, label="√records")
        axes.set_xscale("log")
        axes.set_yscale("log")
        _thousands(axes)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        axes.legend(frameon=False, fontsize=10)
        note = f"the same neighbours, ε = {study.design.middle:g}, fanouts chosen by theory"
        style(axes, "What trusting nobody costs", note, "records", "RMSE of local / central")


def noise(study: Study, path: Path) -> None:
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
            found = study.standardised[family]
            right.step(middle, found / found.sum() / width, where="mid", color=COLOUR[family], label=family)
        right.plot(
            middle,
            np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi),
            "--",
            color="#000000",
            label="normal law",
        )
        right.legend(frameon=False, fontsize=9)
        note = "all days, ε and lengths pooled"
        style(right, "Errors / predicted deviation", note, "standard deviations", "density")


def example(study: Study, path: Path) -> None:
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


def agreement(study: Study, path: Path) -> None:
    """Measured over predicted RMSE, and the deviations against a normal law."""
    with figure(path, 2) as (_, (left, right)):
        everything = {f: [r for r in study.rows if r.family == f] for f in FAMILIES}
        for family, rows in everything.items():
            x, y = [r.predicted for r in rows], [r.rmse / r.predicted for r in rows]
            left.plot(x, y, ".", color=COLOUR[family], markersize=4, label=family)
        x, y = [r.predicted for r in study.flawed], [r.rmse / r.predicted for r in study.flawed]
        left.plot(x, y, ".", color="#999999", markersize=3, zorder=1, label="runs with flaws")
        left.axhline(1, color="#000000", linewidth=0.9)
        left.set_xscale("log")
        left.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else f"{v:g}"))
        left.set_ylim(0.5, 1.8)
        left.legend(frameon=False, fontsize=9, ncols=2, loc="upper center", markerscale=2)
        style(left, "Measured / predicted", "every point of the study", "predicted RMSE, records", "ratio")
        z = np.array([r.deviations for r in [*study.rows, *study.flawed]])
        right.hist(z, BINS.tolist(), density=True, color=COLOURS[4])
        x = np.linspace(-5, 5, 200)
        right.plot(x, np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi), "--", color="#000000", label="normal law")
        right.legend(frameon=False, fontsize=10)
        style(right, "Deviation from theory", f"{len(z):,} points", "standard deviations", "density")


def flat(study: Study, path: Path) -> None:
    """Surprise 1: flat's error against length; correct, without hashing, and the thesis's."""
    days = study.design.flaw_days
    epsilons = (study.design.middle, min(study.design.epsilons))
    series = findings.flaw_series(study)
    with figure(path, 2) as (made, panels):
        for axes, e in zip(panels, epsilons, strict=True):
            for name, flaws, colour in (
                ("correct", CORRECT, COLOURS[0]),
                ("no hashing", Flaws(no_hash=True), COLOURS[2]),
                ("the thesis (not ε-LDP)", Flaws(lie=True, no_hash=True), COLOURS[6]),
            ):
                structure = FlawedStructure(0, flaws)
                rows = study.select_flawed(flaws=str(flaws), family="local flat", epsilon=e)
                at = np.unique(np.linspace(1, days - 1, 25).astype(int))
                theory = []
                for r in at:
                    lo = starts(days, int(r), 20)
                    theory.append(structure.law(series.counts, e, lo, lo + r).rmse)
                axes.plot(at, theory, "-", color=colour, linewidth=1.6)
                axes.plot(
                    [r.length for r in rows],
                    [r.rmse for r in rows],
                    "o",
                    color=colour,
                    markersize=5,
                    label=name,
                )
                lone = theory[0] * np.sqrt(at)
                label = "if days were independent" if name == "correct" else None
                axes.plot(at, lone, ":", color=colour, linewidth=1.3, label=label)
            axes.set_ylim(0, None)
            _thousands(axes)
            style(
                axes,
                f"ε = {e:g}",
                f"{days} days; dots measured, lines theory",
                "length, days",
                "RMSE, records",
            )
        handles, labels = panels[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)


def exponents(study: Study, path: Path) -> None:
    """Surprise 2: the hierarchy's error against 1/ε, one flaw at a time; and by fanout."""
    fanout = min(study.design.flaw_fanouts)
    with figure(path, 2) as (made, (left, right)):
        for name, (flaws, colour) in _FLAW_COLOUR.items():
            rows = study.select_flawed(flaws=str(flaws), fanout=fanout)
            x, measured, predicted = findings.curve(rows)
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
        _plain([0.5, 1, 2, 5] if span[1] > 4 else [0.5, 1, 2], left.set_xticks)
        left.xaxis.set_minor_formatter(NullFormatter())
        _thousands(left)
        style(
            left,
            f"Against 1/ε, fanout {fanout}",
            f"{study.design.flaw_days} days; dots measured, lines theory",
            "1/ε (nominal)",
            "RMSE, records",
        )
        right.set_xscale("log", base=2)
        _plain(list(study.design.flaw_fanouts), right.set_xticks)
        right.xaxis.set_minor_formatter(NullFormatter())
        style(
            right,
            "By fanout",
            f"theory, ε = {study.design.middle:g}",
            "fanout",
            f"RMSE, 1 at fanout {fanout}",
        )
        handles, labels = left.get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)


def short(study: Study, path: Path) -> None:
    """Surprise 3: hierarchy over flat against length, one flaw at a time."""
    days, e, fanout = study.design.flaw_days, study.design.middle, min(study.design.flaw_fanouts)
    with figure(path) as (_, (axes,)):
        cases = dict(_FLAW_COLOUR)
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
        _plain([r for i, r in enumerate(flaw_lengths(days)) if i not in (5, 7, 8)], axes.set_xticks)
        axes.xaxis.set_minor_formatter(NullFormatter())
        _plain([0.2, 0.3, 0.5, 1, 2, 3], axes.set_yticks)
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False, fontsize=9, ncols=2)
        style(
            axes,
            "Hierarchy against flat",
            f"{days} days, fanout {fanout}, ε = {e:g}; below the dashed line the hierarchy wins",
            "length, days",
            "RMSE of hierarchy / flat",
        )


def spent(study: Study, path: Path) -> None:
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
        rows = study.select_flawed(flaws=str(flaws), family="local flat", length=length)
        right.plot(
            [r.epsilon for r in rows],
            [r.rmse for r in rows],
            "x",
            color=COLOURS[6],
            label="flawed, at its nominal ε",
        )
        right.plot(
            [r.true_epsilon for r in rows],
            [r.rmse for r in rows],
            "o",
            color=COLOURS[6],
            label="flawed, at its true ε",
        )
        right.set_xscale("log")
        right.set_yscale("log")
        _plain([e for e in (0.2, 0.4, 0.6, 1, 1.4, 2) if e >= min(study.design.epsilons)], right.set_xticks)
        right.xaxis.set_minor_formatter(NullFormatter())
        _thousands(right)
        right.legend(frameon=False, fontsize=9)
        style(right, "Flat, at equal privacy", f"{days} days, ranges of {length}", "ε", "RMSE, records")
