"""What a study of ranges found: fits, verdicts and sentences for each figure, computed from its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ...device.ldp_client import Level
from .daily import Daily
from .flawed import CORRECT, THESIS, FlawedStructure, Flaws, true_epsilon
from .laplace import noise_variance
from .ranges import BINS, FAMILIES, Row, Study, starts

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
class Verdict:
    """How one curve's points, all ε and lengths of a structure over some days, agree with theory.

    lowest, highest: of measured / predicted RMSE; worst: deviations of the point that is farthest off.
    """

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


def curve(rows: Sequence[Row]) -> tuple[list[float], list[float], list[float]]:
    """ε, and measured and predicted RMSE over all lengths, by falling ε."""
    epsilons = sorted({row.epsilon for row in rows}, reverse=True)
    by = [[row for row in rows if row.epsilon == e] for e in epsilons]
    return epsilons, [rms([r.rmse for r in b]) for b in by], [rms([r.predicted for r in b]) for b in by]


def exponent(epsilons: Sequence[float], errors: Sequence[float]) -> float:
    """Exponent of ε in the power law nearest to the errors."""
    return float(np.polyfit(np.log(epsilons), np.log(errors), 1)[0])


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """Slope, intercept and R² of the least squares line."""
    slope, intercept = np.polyfit(x, y, 1)
    left = np.asarray(y) - slope * np.asarray(x) - intercept
    spread = np.asarray(y) - np.mean(y)
    return float(slope), float(intercept), float(1 - left @ left / (spread @ spread))


def groups(rows: Sequence[Row]) -> dict[tuple[str, int, str, str, int], list[Row]]:
    """Rows by family, fanout, neighbours, flaws and days."""
    found: dict[tuple[str, int, str, str, int], list[Row]] = {}
    for row in rows:
        found.setdefault((row.family, row.fanout, row.neighbours, row.flaws, row.days), []).append(row)
    return found


def fits(rows: Sequence[Row]) -> list[Fit]:
    """Fits of every structure's curve over ε; none where there are fewer than three ε."""
    result = []
    for key, group in groups(rows).items():
        epsilons, measured, predicted = curve(group)
        if len(epsilons) < 3:
            continue
        slope, intercept, r2 = line([1 / e for e in epsilons], measured)
        r2_square = line([1 / e**2 for e in epsilons], measured)[2]
        exponents = exponent(epsilons, measured), exponent(epsilons, predicted)
        result.append(Fit(*key, *exponents, r2, r2_square, slope, intercept))
    return result


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """How every curve agrees with theory."""
    result = []
    for key, group in groups(rows).items():
        ratios = [row.rmse / row.predicted for row in group]
        worst = max((row.deviations for row in group), key=abs)
        beyond = sum(abs(row.deviations) > DISAGREES for row in group)
        numbers = (len(group), float(np.mean(ratios)), min(ratios), max(ratios), worst, beyond)
        result.append(Verdict(*key, *numbers))
    return result


# --- Sentences ------------------------------------------------------------------------------------


def number(x: float) -> str:
    """Three digits, thousands with commas."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def shown_days(study: Study) -> int:
    """The domain that figures show where they show one: the longest up to 512 days."""
    sizes = sorted(study.design.lengths)
    return max((n for n in sizes if n <= 512), default=sizes[0])


def one(rows: Sequence[Row]) -> Row:
    """The only row there is."""
    (row,) = rows
    return row


def lengths_finding(study: Study) -> str:
    """The four structures on the longest domain."""
    days, e = max(study.design.lengths), study.design.middle
    text = []
    for family in FAMILIES:
        rows = study.select(days=days, epsilon=e, family=family, fanout=0, neighbours="replaced")
        text.append(f"{family} {number(min(r.rmse for r in rows))} to {number(max(r.rmse for r in rows))}")
    series = next(s for s in study.series if len(s.counts) == days)
    first, last = study.design.lengths[days][0], study.design.lengths[days][-1]
    return (
        f"Over {days:,} days ({series.counts.sum():,} records) at ε = {e:g}, ranges of {first} to {last} "
        f"days are off by (RMSE, records): {'; '.join(text)}."
    )


def wins(study: Study, side: str) -> list[tuple[int, int, float]]:
    """Days, length and RMSE of hierarchy over flat, fanout chosen, at the middle ε."""
    neighbours = "added" if side == "central" else "replaced"
    found = []
    for days, lengths in study.design.lengths.items():
        for length in lengths:
            wanted = {"days": days, "epsilon": study.design.middle, "fanout": 0, "length": length}
            tree = one(study.select(family=f"{side} hierarchy", neighbours=neighbours, **wanted))
            flat = one(study.select(family=f"{side} flat", neighbours=neighbours, **wanted))
            found.append((days, length, tree.rmse / flat.rmse))
    return found


def hierarchy_finding(study: Study) -> str:
    """Where the hierarchy beats flat."""
    text = []
    for side in ("central", "local"):
        found = wins(study, side)
        won = [(days, length) for days, length, ratio in found if ratio < 1]
        lost = [length for _, length, ratio in found if ratio >= 1]
        best = min(found, key=lambda x: x[2])
        sentence = (
            f"{side.capitalize()}: the hierarchy has the smaller error in {len(won)} of {len(found)} cases"
        )
        if lost:
            sentence += f", flat in those with ranges of up to {max(lost)} days"
        sentence += f"; at best ({best[0]} days, ranges of {best[1]}) it errs {1 / best[2]:.1f} times less."
        text.append(sentence)
    return " ".join(text)


def epsilon_finding(study: Study) -> str:
    """Exponents of ε."""
    days = shown_days(study)
    found = {(f.family, f.neighbours): f for f in fits(study.rows) if f.days == days and f.fanout == 0}
    picked = [found[k] for k in ((FAMILIES[0], "added"), (FAMILIES[1], "added"))]
    picked += [found[k] for k in ((FAMILIES[2], "replaced"), (FAMILIES[3], "replaced"))]
    text = ", ".join(f"{f.family} {f.exponent:.2f} (theory {f.predicted_exponent:.2f})" for f in picked)
    worst = min(f.r2_inverse for f in picked)
    top = max(study.design.epsilons)
    gain = math.sqrt(noise_variance(1, top) * top * top / 2)
    return (
        f"RMSE falls as a power of ε with exponent {text}; a + b/ε explains at least {100 * worst:.1f} % of "
        f"the variance of each curve. Discrete noise errs less than the textbook's √(2r)/ε: {gain:.2f} of "
        f"it at ε = {top:g}."
    )


def fanout_errors(study: Study, side: str, days: int) -> dict[int, tuple[float, float]]:
    """Measured and predicted RMSE over all lengths at the middle ε, by fanout."""
    neighbours = "added" if side == "central" else "replaced"
    wanted = {"days": days, "epsilon": study.design.middle, "neighbours": neighbours}
    found = {}
    for fanout in study.design.fanouts:
        rows = study.select(family=f"{side} hierarchy", fanout=fanout, **wanted)
        found[fanout] = rms([r.rmse for r in rows]), rms([r.predicted for r in rows])
    return found


def fanout_finding(study: Study) -> str:
    """The best fanouts, by theory: many differ by less than 25 runs can tell."""
    text = []
    for side in ("central", "local"):
        best, losses = [], {f: [] for f in study.design.fanouts}
        for days in study.design.lengths:
            errors = {f: predicted for f, (_, predicted) in fanout_errors(study, side, days).items()}
            least = min(errors, key=lambda f: errors[f])
            best.append(least)
            for fanout, error in errors.items():
                losses[fanout].append(error / errors[least] - 1)
        sizes = ", ".join(f"{b} ({n} days)" for b, n in zip(best, study.design.lengths, strict=True))
        ends = [min(losses), max(losses)]
        worst = ", ".join(f"fanout {f} costs up to {100 * max(losses[f]):.0f} %" for f in ends)
        text.append(f"{side.capitalize()}: the least error is at fanout {sizes}; {worst} more.")
    return " ".join(text)


def price(study: Study) -> list[tuple[int, int, float, float]]:
    """Days, records, and RMSE of local over central for flat and for hierarchy, neighbours replaced."""
    result = []
    for series in study.series:
        days = len(series.counts)
        wanted = {"days": days, "epsilon": study.design.middle, "fanout": 0, "neighbours": "replaced"}
        e = {f: rms([r.rmse for r in study.select(family=f, **wanted)]) for f in FAMILIES}
        flat, tree = e["local flat"] / e["central flat"], e["local hierarchy"] / e["central hierarchy"]
        result.append((days, int(series.counts.sum()), flat, tree))
    return result


def price_finding(study: Study) -> str:
    """What trusting nobody costs."""
    found = price(study)
    (_, n0, flat0, tree0), (_, n1, flat1, tree1) = found[0], found[-1]
    roots = [tree / math.sqrt(n) for _, n, _, tree in found]
    return (
        f"Without a curator the error is {number(flat0)} (flat) and {number(tree0)} (hierarchy) times "
        f"larger for {n0:,} records, {number(flat1)} and {number(tree1)} times for {n1:,}: between "
        f"{min(roots):.2f} and {max(roots):.2f} times the square root of the number of records for the "
        "hierarchy. As a share of the records both errors fall: more records are what local privacy is "
        "bought with."
    )


def noise_finding(study: Study) -> str:
    """Noise and standardised errors against their laws."""
    expected = noise_variance(1, study.design.middle)
    found = float(np.var(study.noise))
    middle = (BINS[:-1] + BINS[1:]) / 2
    beyond = []
    for family in FAMILIES:
        counts = study.standardised[family]
        beyond.append(f"{family} {100 * counts[np.abs(middle) > 2.1].sum() / counts.sum():.1f} %")
    return (
        f"Left: {len(study.noise):,} draws for single counts have variance {found:.3f}, discrete Laplace "
        f"noise {expected:.3f}. Right: errors divided by their predicted standard deviation are farther out "
        f"than 2 in {', '.join(beyond)}; a normal law says 3.6 %."
    )


def example_finding(study: Study) -> str:
    """Single days against the sum of all."""
    truth = study.example["counts"]
    days = len(truth)
    text = [f"{f} {number(rms((study.example[f] - truth).tolist()))}" for f in FAMILIES]
    total = study.example["local flat"].sum() - truth.sum()
    return (
        f"One day of {days} holds {number(float(truth.mean()))} records on average; RMSE of single days at "
        f"ε = {study.design.middle:g}: {', '.join(text)}. Local noise drowns one day while the sum of all "
        f"days is off by {100 * abs(total) / truth.sum():.2f} % (local flat) and 0 % (local hierarchy)."
    )


def agreement_finding(study: Study) -> str:
    """How many points agree."""
    rows = [*study.rows, *study.flawed]
    z = np.array([row.deviations for row in rows])
    beyond = int(np.sum(np.abs(z) > DISAGREES))
    found = [*verdicts(study.rows), *verdicts(study.flawed)]
    agree = sum(v.agrees for v in found)
    return (
        f"{agree} of {len(found)} curves agree with theory: of {len(rows):,} points {beyond} are more than "
        f"{DISAGREES:g} standard deviations off, the farthest {z[np.argmax(np.abs(z))]:+.1f}; the "
        f"deviations have mean {z.mean():+.2f} and standard deviation {z.std():.2f} (0 and 1 by theory)."
    )


# --- The three surprises --------------------------------------------------------------------------


def hash_inputs(level: Level) -> int:
    """How many values a level's hash tells apart, at least its domain; the domain where there is no hash."""
    return level.seeds + 1 if level.t else level.domain


FLAT_CASES = {
    "correct": CORRECT,
    "no hashing": Flaws(no_hash=True),
    "the thesis (not ε-LDP)": Flaws(lie=True, no_hash=True),
}


@dataclass(frozen=True)
class Fall:
    """Where flat's error is largest, by theory, and by how much less it is at the last length.

    inputs: how many values the hash tells apart, G.
    """

    case: str
    epsilon: float
    inputs: int
    most_at: int
    last: int
    less: float


def falls(study: Study) -> list[Fall]:
    """Flat's error over length, correct and with flaws, at the middle and the smallest ε."""
    days, result = study.design.flaw_days, []
    for e in (study.design.middle, min(study.design.epsilons)):
        for case, flaws in FLAT_CASES.items():
            rows = study.select_flawed(flaws=str(flaws), family="local flat", epsilon=e)
            top, last = max(rows, key=lambda r: r.predicted), max(rows, key=lambda r: r.length)
            inputs = hash_inputs(FlawedStructure(0, flaws).believed(days, e).levels[0])
            less = 1 - last.predicted / top.predicted
            result.append(Fall(case, e, inputs, top.length, last.length, less))
    return result


def flat_finding(study: Study) -> str:
    """Surprise 1: the error of flat stops growing and falls."""
    days, e = study.design.flaw_days, min(study.design.epsilons)
    correct, no_hash, thesis = (f for f in falls(study) if f.epsilon == e)
    return (
        f"Correct theory, no flaw's doing: over {days} days at ε = {e:g} the correct structure errs most at "
        f"{correct.most_at} days and {100 * correct.less:.0f} % less at {correct.last}, without hashing "
        f"most at {no_hash.most_at} and {100 * no_hash.less:.0f} % less, the thesis's alike "
        f"({thesis.most_at}, {100 * thesis.less:.0f} %). A report adds to some days what it takes from "
        "others, so the errors of days are negatively correlated and cancel over a whole domain: the "
        "variance of r days goes like r(1 - r/G), where G = D without hashing and the g^t ≥ D inputs of "
        "the hash with it. Without hashing the error is largest at half of the domain, always; with "
        "hashing it falls where G is hardly more than D and flattens elsewhere. Adding up variances, as if "
        "days were independent (dotted), predicts √r without end."
    )


def flaw_exponents(study: Study) -> dict[str, Fit]:
    """Fits of the smallest fanout's curves, by flaws."""
    fanout = min(study.design.flaw_fanouts)
    return {f.flaws: f for f in fits(study.flawed) if f.fanout == fanout}


def local_exponent(study: Study, flaws: Flaws) -> float:
    """The steepest exponent between neighbouring ε."""
    rows = study.select_flawed(flaws=str(flaws), fanout=min(study.design.flaw_fanouts))
    epsilons, _, predicted = curve(rows)
    steps = np.diff(np.log(predicted)) / np.diff(np.log(epsilons))
    return float(steps.min())


def exponent_finding(study: Study) -> str:
    """Surprise 2, first half: how the error grows."""
    every = {flaws: fit.exponent for flaws, fit in flaw_exponents(study).items()}
    steepest = min(every.values())
    no_hash = Flaws(no_hash=True)
    return (
        "True of the squared error of the correct structure, whose RMSE goes like "
        f"ε^{every[str(CORRECT)]:.2f}; missing hashing steepens the RMSE to ε^{every[str(no_hash)]:.2f}, "
        f"and nothing reaches ε^-2 (steepest of all: ε^{steepest:.2f}). Without hashing the RMSE of a level "
        "of D nodes is √D/(e^ε - 1) instead of 1/sinh(ε/2), like 1/ε² only near the largest ε "
        f"(ε^{local_exponent(study, no_hash):.1f} there). The lie from all cells makes the curve flatter "
        f"(ε^{every[str(Flaws(lie=True))]:.2f}; all flaws together ε^{every[str(THESIS)]:.2f}), since the "
        "true ε hardly falls with the nominal one. Root and consistency change the height alone. If the "
        "study's RMSE grew like 1/ε², an estimator did it that these flaws do not include."
    )


def flaw_fanout_errors(study: Study, flaws: Flaws) -> dict[int, float]:
    """Predicted RMSE at the middle ε, by fanout, over lengths from a twentieth of the days on."""
    result = {}
    for fanout in study.design.flaw_fanouts:
        rows = study.select_flawed(flaws=str(flaws), fanout=fanout, epsilon=study.design.middle)
        result[fanout] = rms([r.predicted for r in rows if r.length >= study.design.flaw_days / 20])
    return result


def flaw_fanout_finding(study: Study) -> str:
    """Surprise 2, second half: the smallest fanout is best."""
    least, most = min(study.design.flaw_fanouts), max(study.design.flaw_fanouts)

    def loss(flaws: Flaws) -> float:
        errors = flaw_fanout_errors(study, flaws)
        return 100 * (errors[most] / errors[least] - 1)

    cases = (CORRECT, Flaws(no_hash=True), Flaws(root=True), Flaws(lie=True), THESIS)
    correct, no_hash, root, lie, thesis = (loss(flaws) for flaws in cases)
    return (
        f"The smallest fanout: at ε = {study.design.middle:g} fanout {most} errs {correct:.0f} % more than "
        f"{least} when all is correct, {no_hash:.0f} % without hashing, {root:.0f} % with the root level, "
        f"{lie:.0f} % with the lie alone, {thesis:.0f} % with all. Without hashing the variance of a level "
        "grows with its nodes, and a small fanout needs few nodes of the large levels; the root takes 1/(h "
        "+ 1) of the reports, least of a tall tree."
    )


def break_even(study: Study, flaws: Flaws, fanout: int, series: Daily) -> int | None:
    """The shortest length from which on, by theory, the hierarchy errs less than flat; None where never.

    At the middle ε, for lengths up to half of the days.
    """
    counts = series.counts
    flat = FlawedStructure(0, Flaws(lie=flaws.lie, no_hash=flaws.no_hash))
    tree = FlawedStructure(fanout, flaws)

    def better(length: int) -> bool:
        lo = starts(len(counts), length, _RANGES)
        e = study.design.middle
        return tree.law(counts, e, lo, lo + length).mse < flat.law(counts, e, lo, lo + length).mse

    low, high = 1, len(counts) // 2
    if not better(high):
        return None
    while low < high:
        half = (low + high) // 2
        low, high = (low, half) if better(half) else (half + 1, high)
    return low


def flaw_series(study: Study) -> Daily:
    """The counts of the runs with flaws."""
    return next(s for s in study.series if len(s.counts) == study.design.flaw_days)


@lru_cache(maxsize=4)
def flaw_break_even(study: Study) -> dict[str, int | None]:
    """break_even() of the smallest fanout for some flaws, by what is wrong."""
    fanout, series = min(study.design.flaw_fanouts), flaw_series(study)
    return {name: break_even(study, flaws, fanout, series) for name, flaws in CASES.items()}


def single_days(study: Study) -> tuple[float, float]:
    """RMSE of hierarchy over flat for one day, smallest fanout, middle ε: correct, and the thesis's."""
    fanout, e = min(study.design.flaw_fanouts), study.design.middle

    def rmse(flaws: Flaws, fanout: int) -> float:
        return one(study.select_flawed(flaws=str(flaws), fanout=fanout, epsilon=e, length=1)).rmse

    thesis_flat = Flaws(lie=True, no_hash=True)
    return rmse(CORRECT, fanout) / rmse(CORRECT, 0), rmse(THESIS, fanout) / rmse(thesis_flat, 0)


def short_finding(study: Study) -> str:
    """Surprise 3: the hierarchy beats flat on short ranges."""
    days, points = study.design.flaw_days, flaw_break_even(study)
    table = min(study.design.lengths.get(days, (days // 10,)))
    correct, thesis = single_days(study)
    at = {name: "no length" if point is None else str(point) for name, point in points.items()}
    return (
        f"Not on truly short ones: for a single day the hierarchy errs {correct:.1f} times as much as flat "
        f"when all is correct and {thesis:.1f} times in the thesis's form; it wins from {at['all correct']} "
        f"and {at['thesis']} days on, while the study's table starts at {table} (of {days} days, fanout "
        f"{min(study.design.flaw_fanouts)}). Without consistency a hashed hierarchy wins only from "
        f"{at['no consistency']} on; leaving out the hash as well, which harms flat most, brings that down "
        f"to {at['no hashing, no consistency']}. So the table's lengths and the missing hash make the "
        "surprise in the thesis's form, and consistency makes it true of the correct one. The lie (from "
        f"{at['lie from all cells']} on when alone) and the root ({at['root level']}) hardly matter."
    )


def true_epsilon_finding(study: Study) -> str:
    """What the flawed oracle spends."""
    e0, e1 = min(study.design.epsilons), max(study.design.epsilons)
    days = study.design.flaw_days
    flat = FlawedStructure(0, Flaws(lie=True, no_hash=True))
    series, r = flaw_series(study), study.design.flaw_days // 4
    lo = starts(days, r, _RANGES)
    flawed = flat.law(series.counts, e0, lo, lo + r).rmse
    honest = replace(flat, flaws=Flaws(no_hash=True))
    same = honest.law(series.counts, flat.true_epsilon(days, e0), lo, lo + r).rmse
    fair = honest.law(series.counts, e0, lo, lo + r).rmse
    return (
        f"Not ε-LDP: at a nominal ε of {e0:g} the flawed oracle spends {true_epsilon(e0, 2):.2f} on 2 cells "
        f"and {true_epsilon(e0, days):.2f} on {days}; at {e1:g} it spends {true_epsilon(e1, 2):.2f} and "
        f"{true_epsilon(e1, days):.2f}. All it seems to gain is this: its flat error at ε = {e0:g} is "
        f"{flawed / fair:.2f} of the correct one's without hashing, and {flawed / same:.3f} of it at the "
        "same true ε."
    )
