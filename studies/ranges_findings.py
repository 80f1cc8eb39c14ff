"""What a study of ranges found, from its points: fits over ε, verdicts on theory, what flaws change."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..server.arrays import Floats
from .daily import Daily
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws
from .ranges_run import FAMILIES, Point, RangeStudy, starts

# A point this far from its prediction disagrees: by chance once in 1.7 million points.
DISAGREES = 5.0

_RANGES = 47  # of a length, where only theory is asked; a prime, so that they do not fall in step with a tree

# What is switched on to find a surprise's cause: one at a time, and as the thesis had them.
CASES = {
    "all correct": CORRECT,
    "lie from all cells": Flaws(lie=True),
    "root level": Flaws(root=True),
    "no consistency": Flaws(inconsistent=True),
    "no hashing": Flaws(no_hash=True),
    "no hashing, no consistency": Flaws(no_hash=True, inconsistent=True),
    "thesis": THESIS,
}


@dataclass(frozen=True)
class Fit:
    """How a curve of RMSE depends on ε.

    exponent  of ε in the power law that fits best, by least squares of logarithms; of the measured curve
    predicted_exponent  the same of the predicted curve
    r2_inverse, r2_square  share of the variance that a + b / ε and a + b / ε² explain
    slope, intercept  b and a of a + b / ε
    """

    family: str
    fanout: int
    neighbours: str
    flaws: str
    days: int
    exponent: float
    predicted_exponent: float
    r2_inverse: float
    r2_square: float
    slope: float
    intercept: float


@dataclass(frozen=True)
class LengthFit:
    """Share of the variance of a curve of RMSE over lengths that four laws explain, at the middle ε.

    r2_root, r2_log, r2_line: of a + b √r, a + b ln r and a + b r, r the length in days; r2_quadratic: of
    a + b r + c r², which has one more number to fit and so is never below the line's.
    """

    family: str
    neighbours: str
    days: int
    r2_root: float
    r2_log: float
    r2_line: float
    r2_quadratic: float


@dataclass(frozen=True)
class BreakEven:
    """The length in days from which on a local hierarchy errs less than flat; None where never.

    formula     2 B ceil(log_B D)², for fanout B and D days: flat pays r variances for a range of r days, the
                hierarchy 2 B nodes on each of ceil(log_B D) levels, among which reports are divided (Cormode,
                Kulkarni, Srivastava, VLDB 2019, section 4)
    summed      by the exact law, ranges added up from the fewest nodes as the formula has it
    consistent  by the exact law of what is shipped: least squares, the total known
    measured    as it was measured; this and the two before are the first of EVEN_LENGTHS
    """

    fanout: int
    days: int
    formula: int
    summed: int | None
    consistent: int | None
    measured: int | None


@dataclass(frozen=True)
class Verdict:
    """How one curve's points, all ε and lengths of a structure over some days, agree with theory.

    kind: "correct" for the structures that are compared, "flawed" for the runs with flaws. lowest, highest:
    of measured / predicted RMSE; worst: deviations of the point that is farthest off.
    """

    kind: str
    family: str
    fanout: int
    neighbours: str
    flaws: str
    days: int
    points: int
    mean_ratio: float
    lowest: float
    highest: float
    worst: float
    beyond: int

    @property
    def agrees(self) -> bool:
        """Whether no point is farther off than chance explains."""
        return self.beyond == 0


def rms(values: Sequence[float]) -> float:
    """Root mean square."""
    return math.sqrt(sum(v * v for v in values) / len(values))


def curve(points: Sequence[Point]) -> tuple[list[float], list[float], list[float]]:
    """ε, and measured and predicted RMSE over all lengths, by falling ε."""
    epsilons = sorted({point.epsilon for point in points}, reverse=True)
    by = [[point for point in points if point.epsilon == e] for e in epsilons]
    return epsilons, [rms([r.rmse for r in b]) for b in by], [rms([r.predicted for r in b]) for b in by]


def exponent(epsilons: Sequence[float], errors: Sequence[float]) -> float:
    """Exponent of ε in the power law nearest to the errors."""
    return float(np.polyfit(np.log(epsilons), np.log(errors), 1)[0])


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Slope, intercept and R² of the least squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    return float(slope), float(intercept), explained(y, slope * np.asarray(x) + intercept)


def explained(y: Sequence[float], fitted: Floats) -> float:
    """R²: the share of the variance of y that a fit explains."""
    left, spread = np.asarray(y) - fitted, np.asarray(y) - np.mean(y)
    return float(1 - left @ left / (spread @ spread))


def groups(points: Sequence[Point]) -> dict[tuple[str, int, str, str, int], list[Point]]:
    """Points by family, fanout, neighbours, flaws and days."""
    curves: dict[tuple[str, int, str, str, int], list[Point]] = {}
    for point in points:
        key = (point.family, point.fanout, point.neighbours, point.flaws, point.days)
        curves.setdefault(key, []).append(point)
    return curves


def fits(points: Sequence[Point]) -> list[Fit]:
    """Fits of every structure's curve over ε; none where there are fewer than three ε."""
    result = []
    for key, group in groups(points).items():
        epsilons, measured, predicted = curve(group)
        if len(epsilons) < 3:
            continue
        slope, intercept, r2 = line([1 / e for e in epsilons], measured)
        r2_square = line([1 / e**2 for e in epsilons], measured)[2]
        exponents = exponent(epsilons, measured), exponent(epsilons, predicted)
        result.append(Fit(*key, *exponents, r2, r2_square, slope, intercept))
    return result


def length_fits(points: Sequence[Point], epsilon: float) -> list[LengthFit]:
    """How the error of each structure, fanout chosen, grows with the length of the range at one ε."""
    result = []
    chosen = [point for point in points if point.fanout == 0 and point.epsilon == epsilon]
    for (family, _, neighbours, _, days), group in groups(chosen).items():
        r, errors = [float(point.length) for point in group], [point.rmse for point in group]
        laws = [math.sqrt(x) for x in r], [math.log(x) for x in r], r
        root, log, straight = (line(law, errors)[2] for law in laws)
        parabola = np.polyval(np.polyfit(r, errors, 2), r).astype(np.float64)
        fit = LengthFit(family, neighbours, days, root, log, straight, explained(errors, parabola))
        result.append(fit)
    return result


def all_verdicts(study: RangeStudy) -> list[Verdict]:
    """How every curve of a study agrees with theory."""
    return [*verdicts(study.points, "correct"), *verdicts(study.flawed, "flawed")]


def verdicts(points: Sequence[Point], kind: str) -> list[Verdict]:
    """How every curve agrees with theory."""
    result = []
    for key, group in groups(points).items():
        ratios = [point.rmse / point.predicted for point in group]
        worst = max((point.deviations for point in group), key=abs)
        beyond = sum(abs(point.deviations) > DISAGREES for point in group)
        numbers = (len(group), float(np.mean(ratios)), min(ratios), max(ratios), worst, beyond)
        result.append(Verdict(kind, *key, *numbers))
    return result


def number(x: float) -> str:
    """Three digits, thousands with commas."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def shown_days(study: RangeStudy) -> int:
    """The domain that figures show where they show one: the longest up to 512 days."""
    sizes = sorted(study.design.lengths)
    return max((n for n in sizes if n <= 512), default=sizes[0])


def one(points: Sequence[Point]) -> Point:
    """The only point there is."""
    (point,) = points
    return point


def wins(study: RangeStudy, side: str) -> list[tuple[int, int, float]]:
    """Days, length and RMSE of hierarchy over flat, fanout chosen, at the middle ε."""
    neighbours = "added" if side == "central" else "replaced"
    ratios = []
    for days, lengths in study.design.lengths.items():
        for length in lengths:
            wanted = {"days": days, "epsilon": study.design.middle, "fanout": 0, "length": length}
            tree = one(study.select(family=f"{side} hierarchy", neighbours=neighbours, **wanted))
            flat = one(study.select(family=f"{side} flat", neighbours=neighbours, **wanted))
            ratios.append((days, length, tree.rmse / flat.rmse))
    return ratios


def fanout_errors(study: RangeStudy, side: str, days: int) -> dict[int, tuple[float, float]]:
    """Measured and predicted RMSE over all lengths at the middle ε, by fanout."""
    neighbours = "added" if side == "central" else "replaced"
    wanted = {"days": days, "epsilon": study.design.middle, "neighbours": neighbours}
    chosen = {f: study.select(family=f"{side} hierarchy", fanout=f, **wanted) for f in study.design.fanouts}
    return {f: (rms([p.rmse for p in ps]), rms([p.predicted for p in ps])) for f, ps in chosen.items()}


def price(study: RangeStudy) -> list[tuple[int, int, float, float]]:
    """Days, records, and RMSE of local over central for flat and for hierarchy, neighbours replaced."""
    result = []
    for series in study.series:
        days = len(series.counts)
        wanted = {"days": days, "epsilon": study.design.middle, "fanout": 0, "neighbours": "replaced"}
        e = {f: rms([r.rmse for r in study.select(family=f, **wanted)]) for f in FAMILIES}
        flat, tree = e["local flat"] / e["central flat"], e["local hierarchy"] / e["central hierarchy"]
        result.append((days, int(series.counts.sum()), flat, tree))
    return result


def flaw_series(study: RangeStudy) -> Daily:
    """The counts of the runs with flaws."""
    return next(s for s in study.series if len(s.counts) == study.design.flaw_days)


def flaw_fanout_errors(study: RangeStudy, flaws: Flaws) -> dict[int, float]:
    """Predicted RMSE at the middle ε, by fanout, over lengths from a twentieth of the days on."""
    result = {}
    for fanout in study.design.flaw_fanouts:
        points = study.select_flawed(flaws=str(flaws), fanout=fanout, epsilon=study.design.middle)
        result[fanout] = rms([p.predicted for p in points if p.length >= study.design.flaw_days / 20])
    return result


def break_even(epsilon: float, flaws: Flaws, fanout: int, series: Daily) -> int | None:
    """The shortest length from which on, by theory, the hierarchy errs less than flat; None where never.

    epsilon: nats; for lengths up to half of the days.
    """
    counts = series.counts
    flat = FlawedStructure(0, Flaws(lie=flaws.lie, no_hash=flaws.no_hash))
    tree = FlawedStructure(fanout, flaws)

    def better(length: int) -> bool:
        lo = starts(len(counts), length, _RANGES)
        ends = lo, lo + length
        return tree.law(counts, epsilon, *ends).mse < flat.law(counts, epsilon, *ends).mse

    low, high = 1, len(counts) // 2
    if not better(high):
        return None
    while low < high:
        half = (low + high) // 2
        low, high = (low, half) if better(half) else (half + 1, high)
    return low


def formula_length(fanout: int, days: int) -> int:
    """2 B ceil(log_B D)², B = fanout, D = days."""
    levels = 0
    while fanout**levels < days:
        levels += 1
    return 2 * fanout * levels**2


def even_lengths(short: Sequence[Point], series_of: Sequence[Daily], epsilon: float) -> list[BreakEven]:
    """Where local hierarchies begin to beat flat: by the formula, by exact laws, and as it was measured.

    short: points of local structures on short ranges, at that ε; series_of: the counts of each of their days.
    """
    result = []
    for series in series_of:
        days = len(series.counts)
        here = [point for point in short if point.days == days]
        flat = {point.length: point for point in here if point.family == "local flat"}
        for fanout in sorted({point.fanout for point in here if point.fanout}):
            tree = {point.length: point for point in here if point.fanout == fanout}
            consistent = _first_better(
                {r: point.predicted for r, point in tree.items()},
                {r: point.predicted for r, point in flat.items()},
            )
            measured = _first_better(
                {r: point.rmse for r, point in tree.items()}, {r: point.rmse for r, point in flat.items()}
            )
            summed = _summed(epsilon, fanout, series, flat)
            result.append(BreakEven(fanout, days, formula_length(fanout, days), summed, consistent, measured))
    return result


def _summed(epsilon: float, fanout: int, series: Daily, flat: dict[int, Point]) -> int | None:
    """The first of flat's lengths at which, by theory, sums of the fewest nodes err less."""
    tree = FlawedStructure(fanout, Flaws(inconsistent=True))
    days, tried = len(series.counts), sorted(flat)

    def better(length: int) -> bool:
        lo = starts(days, length, _RANGES)
        return tree.law(series.counts, epsilon, lo, lo + length).rmse < flat[length].predicted

    at = bisect.bisect_left(tried, True, key=better)
    return tried[at] if at < len(tried) else None


def _first_better(tree: dict[int, float], flat: dict[int, float]) -> int | None:
    """The first length from which on the tree errs less at every length."""
    worse = [length for length in tree if tree[length] >= flat[length]]
    better = [length for length in tree if length > max(worse, default=0)]
    return min(better, default=None)


def flaw_break_even(study: RangeStudy) -> dict[str, int | None]:
    """break_even() of the smallest fanout for some flaws, by what is wrong."""
    fanout, series = min(study.design.flaw_fanouts), flaw_series(study)
    return {name: break_even(study.design.middle, flaws, fanout, series) for name, flaws in CASES.items()}
