"""The findings of the ranges study: fits over ε, verdicts, and the effect of flaws."""

import bisect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from ..server.arrays import Floats
from .daily import Daily
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws
from .frame import Row
from .ranges_run import FAMILIES, Point, RangeStudy, predicted, select
from .structures import Structure

# A point at least this far from its prediction, in standard deviations, disagrees; by chance, 1 in 1.7
# million points does.
DISAGREES = 5.0

_RANGES = 47  # ranges per length if only theory is used; a prime, so that they do not align with a tree

# Flaws to find each surprise's cause: one at a time, and all together, as in the thesis.
CASES = {
    "all correct": CORRECT,
    "lie from all cells": Flaws(lie=True),
    "root level": Flaws(root=True),
    "no consistency": Flaws(inconsistent=True),
    "no hashing": Flaws(no_hash=True),
    "no hashing, no consistency": Flaws(no_hash=True, inconsistent=True),
    "thesis": THESIS,
}


# --- Curves ---------------------------------------------------------------------------------------


def rms(values: Iterable[float]) -> float:
    """Return the root mean square."""
    squares = [v * v for v in values]
    return math.sqrt(sum(squares) / len(squares))


def measured_rms(points: Sequence[Point]) -> float:
    """Return the measured RMSE over all points."""
    return rms(point.rmse for point in points)


def predicted_rms(points: Sequence[Point]) -> float:
    """Return the predicted RMSE over all points."""
    return rms(point.predicted for point in points)


def curve(points: Sequence[Point]) -> tuple[list[float], list[float], list[float]]:
    """Return ε, and measured and predicted RMSE over all lengths, in order of falling ε."""
    epsilons = sorted({point.epsilon for point in points}, reverse=True)
    points_by_epsilon = [select(points, epsilon=e) for e in epsilons]
    return epsilons, list(map(measured_rms, points_by_epsilon)), list(map(predicted_rms, points_by_epsilon))


def exponent(epsilons: Sequence[float], errors: Sequence[float]) -> float:
    """Return the exponent of ε in the power law that best fits the errors."""
    return float(np.polyfit(np.log(epsilons), np.log(errors), 1)[0])


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Return slope, intercept and R² of the least squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept), explained(y, slope * np.asarray(x) + intercept)


def explained(y: Sequence[float], fitted: Floats) -> float:
    """Return R², the share of the variance of y that a fit explains."""
    residuals, spread = np.asarray(y) - fitted, np.asarray(y) - np.mean(y)
    return float(1 - residuals @ residuals / (spread @ spread))


_CURVE = ("family", "fanout", "neighbours", "flaws", "days")


def groups(points: Sequence[Point]) -> Iterator[tuple[Row, list[Point]]]:
    """Yield each curve's key and points: all ε and lengths for one number of days."""
    curves: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        curves.setdefault(tuple(getattr(point, name) for name in _CURVE), []).append(point)
    return ((dict(zip(_CURVE, key, strict=True)), group) for key, group in curves.items())


def fits(points: Sequence[Point]) -> list[Row]:
    """Fit each structure's curve of RMSE against ε, if it has at least three ε.

    In a row, exponent and predicted_exponent are those of ε in the power law that best fits the measured and
    the predicted curve, by least squares of logarithms. r2_inverse and r2_square are the shares of the
    variance that a + b / ε and a + b / ε² explain. slope and intercept are b and a of a + b / ε.
    """
    result = []
    for row, group in groups(points):
        epsilons, measured, by_theory = curve(group)
        if len(epsilons) >= 3:
            slope, intercept, r2 = line([1 / e for e in epsilons], measured)
            r2_square = line([1 / e**2 for e in epsilons], measured)[2]
            row |= {"exponent": exponent(epsilons, measured)}
            row |= {"predicted_exponent": exponent(epsilons, by_theory)}
            row |= {"r2_inverse": r2, "r2_square": r2_square, "slope": slope, "intercept": intercept}
            result.append(row)
    return result


def length_fits(points: Sequence[Point], epsilon: float) -> list[Row]:
    """Fit the error of each structure, fanout chosen, against the length r of the range in days, at one ε.

    In a row, r2_root, r2_log and r2_line are the shares of the variance that a + b √r, a + b ln r and a + b r
    explain; r2_quadratic is that of a + b r + c r², which has one more number to fit and so is never below
    the line's.
    """
    result = []
    for key, group in groups(select(points, fanout=0, epsilon=epsilon)):
        r, errors = [float(point.length) for point in group], [point.rmse for point in group]
        laws = {"r2_root": np.sqrt(r).tolist(), "r2_log": np.log(r).tolist(), "r2_line": r}
        row: Row = {name: key[name] for name in ("family", "neighbours", "days")}
        row |= {name: line(law, errors)[2] for name, law in laws.items()}
        parabola = np.polyval(np.polyfit(r, errors, 2), r).astype(np.float64)
        result.append(row | {"r2_quadratic": explained(errors, parabola)})
    return result


def all_verdicts(study: RangeStudy) -> list[Row]:
    """Return the agreement of all curves of a study with theory."""
    return [*verdicts(study.points, "correct"), *verdicts(study.flawed, "flawed")]


def verdicts(points: Sequence[Point], kind: str) -> list[Row]:
    """Return the agreement of curves with theory: whether chance explains the farthest point.

    In the result, lowest and highest are those of measured / predicted RMSE; worst is the deviation of the
    point that is farthest off.

    Args:
        points: The curves' points.
        kind: "correct" for the structures that are compared, "flawed" for the runs with flaws.
    """
    result = []
    for row, group in groups(points):
        ratios = [point.rmse / point.predicted for point in group]
        off = [point.deviations for point in group]
        beyond = sum(abs(z) > DISAGREES for z in off)
        facts = {"points": len(group), "mean_ratio": float(np.mean(ratios)), "lowest": min(ratios)}
        facts |= {"highest": max(ratios), "worst": max(off, key=abs), "beyond": beyond, "agrees": not beyond}
        result.append({"kind": kind} | row | facts)
    return result


# --- Comparisons ----------------------------------------------------------------------------------


def figure_days(study: RangeStudy) -> int:
    """Return the domain for figures that show only one: the longest of at most 512 days."""
    return max((n for n in study.design.lengths if n <= 512), default=min(study.design.lengths))


def default_neighbours(side: str) -> str:
    """Return the neighbour relation with which to show one side, central or local, on its own."""
    return "added" if side.startswith("central") else "replaced"


def wins(study: RangeStudy, side: str) -> list[tuple[int, int, float]]:
    """Return days, length and the RMSE ratio of hierarchy to flat, fanout chosen, at the middle ε."""
    selection = select(
        study.points, epsilon=study.design.middle, fanout=0, neighbours=default_neighbours(side)
    )
    # Both by days and length.
    pairs = zip(
        select(selection, family=f"{side} hierarchy"), select(selection, family=f"{side} flat"), strict=True
    )
    return [(tree.days, tree.length, tree.rmse / flat.rmse) for tree, flat in pairs]


def fanout_errors(study: RangeStudy, side: str, days: int) -> dict[int, tuple[float, float]]:
    """Return measured and predicted RMSE over all lengths at the middle ε, by fanout."""
    criteria = {"days": days, "epsilon": study.design.middle, "neighbours": default_neighbours(side)}
    selection = select(study.points, family=f"{side} hierarchy", **criteria)
    points_by_fanout = {fanout: select(selection, fanout=fanout) for fanout in study.design.fanouts}
    return {
        fanout: (measured_rms(points), predicted_rms(points)) for fanout, points in points_by_fanout.items()
    }


def price(study: RangeStudy) -> list[tuple[int, float, float]]:
    """Return records, and the RMSE ratio of local to central for flat and hierarchy, neighbours replaced."""
    result = []
    selection = select(study.points, epsilon=study.design.middle, fanout=0, neighbours="replaced")
    for days, points in groupby(selection, key=attrgetter("days")):
        day_points = list(points)
        central_flat, central_tree, flat, tree = (
            measured_rms(select(day_points, family=f)) for f in FAMILIES
        )
        records = next(int(s.counts.sum()) for s in study.series if len(s.counts) == days)
        result.append((records, flat / central_flat, tree / central_tree))
    return result


def flaw_fanout_errors(study: RangeStudy, flaws: Flaws) -> dict[int, float]:
    """Return predicted RMSE at the middle ε, by fanout, over lengths of at least a twentieth of the days."""
    selection = select(study.flawed, flaws=str(flaws), epsilon=study.design.middle)
    long = [point for point in selection if point.length >= study.design.flaw_days / 20]
    return {fanout: predicted_rms(select(long, fanout=fanout)) for fanout in study.design.flaw_fanouts}


def break_even(epsilon: float, flaws: Flaws, fanout: int, series: Daily) -> int | None:
    """Return the length from which the hierarchy's theoretical error is below flat's, or None.

    Lengths go up to half of the days. All positions of a range are used, because with a sample, the ratio of
    both errors would jump from one length to the next.

    Args:
        epsilon: The reports' ε in nats.
        flaws: The runs' flaws.
        fanout: The hierarchy's fanout.
        series: The daily counts.
    """
    tree = FlawedStructure(fanout, flaws)
    lengths = range(1, len(series.counts) // 2 + 1)

    def is_better(length: int) -> bool:
        places = len(series.counts) - length + 1
        ours, flat = (predicted(s, series, epsilon, length, places) for s in (tree, tree.flat_counterpart))
        return ours < flat

    return _first_better(lengths, is_better) if is_better(lengths[-1]) else None


def _theory(structure: Structure, series: Daily, epsilon: float, length: int) -> float:
    return predicted(structure, series, epsilon, length, _RANGES)


def _first_better(lengths: Sequence[int], better: Callable[[int], bool]) -> int | None:
    """Return the first length from which all are better, or None; lengths must be ascending."""
    at = bisect.bisect_left(lengths, True, key=better)
    return lengths[at] if at < len(lengths) else None


def formula_length(fanout: int, days: int) -> int:
    """Return 2 B ceil(log_B D)², B = fanout, D = days."""
    levels = next(levels for levels in range(days) if fanout**levels >= days)
    return 2 * fanout * levels**2


def even_lengths(short: Sequence[Point], series_of: Sequence[Daily], epsilon: float) -> list[Row]:
    """Return rows with the length in days from which a local hierarchy's error is below flat's, or None.

    formula     2 B ceil(log_B D)², for fanout B and D days: flat pays r variances for a range of r days, the
                hierarchy 2 B nodes on each of ceil(log_B D) levels, among which reports are divided (Cormode,
                Kulkarni, Srivastava, VLDB 2019, section 4)
    summed      by the exact law, with ranges summed from the fewest nodes as in the formula
    consistent  by the exact law of the shipped estimator, with least squares and the known total
    measured    as measured; this and the previous two are the first such value in EVEN_LENGTHS

    Args:
        short: Points of local structures on short ranges, at that ε.
        series_of: The counts of each of their days.
        epsilon: The reports' ε in nats.
    """
    days_of = {len(series.counts): series for series in series_of}
    curves = sorted({(point.days, point.fanout) for point in short if point.fanout})
    return [_even(short, days_of[days], fanout, epsilon) for days, fanout in curves if days in days_of]


def _even(short: Sequence[Point], series: Daily, fanout: int, epsilon: float) -> Row:
    days = len(series.counts)
    flat = {point.length: point for point in select(short, days=days, family="local flat")}
    trees = {point.length: point for point in select(short, days=days, fanout=fanout)}
    sums = FlawedStructure(fanout, Flaws(inconsistent=True))
    return {
        "fanout": fanout,
        "days": days,
        "formula": formula_length(fanout, days),
        "summed": _first_better(
            sorted(flat), lambda r: _theory(sums, series, epsilon, r) < flat[r].predicted
        ),
        "consistent": _always_better_from(
            {r: tree.predicted < flat[r].predicted for r, tree in trees.items()}
        ),
        "measured": _always_better_from({r: tree.rmse < flat[r].rmse for r, tree in trees.items()}),
    }


def _always_better_from(better: Mapping[int, bool]) -> int | None:
    """Return the first length from which all are better, or None."""
    last_worse = max((length for length in better if not better[length]), default=0)
    return min((length for length in better if length > last_worse), default=None)


def flaw_break_even(study: RangeStudy) -> dict[str, int | None]:
    """Return break_even() of the smallest fanout for some flaws, by flaw."""
    middle, fanout = study.design.middle, min(study.design.flaw_fanouts)
    return {name: break_even(middle, flaws, fanout, study.flaw_series) for name, flaws in CASES.items()}


# --- Words ----------------------------------------------------------------------------------------


def number(x: float) -> str:
    """Format a number with three digits, thousands with commas."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def case_label(case: str) -> str:
    """Return the label of a case of CASES in tables and figures."""
    named = {"all correct": "nothing: all correct", "thesis": "the thesis: all four"}.get(case, case)
    return f"{named} (not ε-LDP)" if CASES[case].lie else named
