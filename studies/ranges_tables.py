"""The tables of the study of ranges and of its page, from a study's points and from theory."""

from __future__ import annotations

from collections.abc import Sequence

from . import ranges_findings as findings
from .daily import Daily
from .flawed import FlawedStructure, Flaws
from .frame import StudyTable
from .ranges_design import RangeDesign, flaw_lengths
from .ranges_findings import BreakEven, LengthFit, Verdict, number, rms
from .ranges_run import Point, starts

_STRUCTURES = (
    ("central flat", "added"),
    ("central hierarchy", "added"),
    ("central flat", "replaced"),
    ("central hierarchy", "replaced"),
    ("local flat", "replaced"),
    ("local hierarchy", "replaced"),
)
_CASES = {
    "nothing: all correct": "all correct",
    "lie from all cells (not ε-LDP)": "lie from all cells",
    "root level": "root level",
    "no consistency": "no consistency",
    "no hashing": "no hashing",
    "no hashing, no consistency": "no hashing, no consistency",
    "the thesis: all four (not ε-LDP)": "thesis",
}


def markdown(table: StudyTable) -> str:
    """A table in Markdown."""
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def agreement(verdicts: Sequence[Verdict]) -> StudyTable:
    """How the curves of each structure agree with their laws; one line for each, all days together."""
    lines: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        lines.setdefault(_named(verdict), []).append(verdict)
    rows = []
    for name, together in lines.items():
        points = sum(v.points for v in together)
        mean = sum(v.mean_ratio * v.points for v in together) / points
        span = f"{min(v.lowest for v in together):.2f} to {max(v.highest for v in together):.2f}"
        worst = max((v.worst for v in together), key=abs)
        agree = f"{sum(v.agrees for v in together)} of {len(together)}"
        rows.append((name, f"{points:,}", f"{mean:.3f}", span, f"{worst:+.1f}", agree))
    headings = (
        "structure",
        "points",
        "measured / predicted, mean",
        "all",
        "farthest, in standard deviations",
    )
    return StudyTable("curves beside theory", (*headings, "curves that agree"), rows)


def _named(verdict: Verdict) -> str:
    if verdict.kind == "flawed":
        return "runs with flaws, see below"
    if verdict.family == "local flat":
        return verdict.family
    if verdict.fanout:
        return f"{verdict.family}, fanout {verdict.fanout}"
    chosen = ", chosen" if verdict.family.endswith("hierarchy") else ""
    return f"{verdict.family}{chosen}" + (f" ({verdict.neighbours})" if "central" in verdict.family else "")


def results(points: Sequence[Point], epsilon: float) -> StudyTable:
    """RMSE over all lengths at one ε, by structure and days; in brackets the fanout that theory chooses."""
    sizes = sorted({point.days for point in points})
    rows = []
    for family, neighbours in _STRUCTURES:
        cells = []
        for days in sizes:
            wanted = (family, neighbours, days, epsilon, 0)
            here = [p for p in points if (p.family, p.neighbours, p.days, p.epsilon, p.fanout) == wanted]
            fanout = here[0].plan.partition(",")[0].removeprefix("fanout ")
            chosen = f" [{fanout}]" if family.endswith("hierarchy") else ""
            cells.append(number(rms([p.rmse for p in here])) + chosen)
        rows.append((f"{family} ({neighbours})" if "central" in family else family, *cells))
    title = f"RMSE in records at ε = {epsilon:g}, over all lengths; in brackets the fanout that is chosen"
    return StudyTable(title, ("structure", *(f"{days:,} days" for days in sizes)), rows)


def length_laws(fits: Sequence[LengthFit]) -> StudyTable:
    """R² of three laws of the length, by structure and days."""
    sizes = sorted({fit.days for fit in fits})
    rows = []
    for family in dict.fromkeys(family for family, _ in _STRUCTURES):
        cells = []
        for days in sizes:
            (fit,) = (f for f in fits if (f.family, f.neighbours, f.days) == (family, "replaced", days))
            cells.append(" / ".join(f"{x:.2f}" for x in (fit.r2_root, fit.r2_log, fit.r2_line)))
        rows.append((family, *cells))
    title = "R² of three laws of the length r: √r, ln r and r itself"
    return StudyTable(title, ("√r / ln r / r", *(f"{days:,} days" for days in sizes)), rows)


def even(rows: Sequence[BreakEven]) -> StudyTable:
    """Where local hierarchies begin to beat flat."""
    headings = ("fanout B", "days D", "2 B ⌈log_B D⌉²", "exact, summed", "exact, consistent", "measured")
    cells = [tuple("never" if x is None else f"{x:,}" for x in vars(r).values()) for r in rows]
    return StudyTable("days from which on a local hierarchy errs less than flat", headings, cells)


def flaws(design: RangeDesign, series: Daily) -> StudyTable:
    """One flaw at a time: true ε, exponents of ε, fanouts and break-even, all by theory."""
    low, middle = min(design.epsilons), design.middle
    first, *others = design.flaw_fanouts
    upper = sorted(design.epsilons)[-2:]
    rows = []
    for name, case in _CASES.items():
        switched = findings.CASES[case]
        curve = [_error(design, series, switched, first, e) for e in design.epsilons]
        steep = [_error(design, series, switched, first, e) for e in upper]
        far = design.flaw_days / 20
        at = {f: _error(design, series, switched, f, middle, far) for f in design.flaw_fanouts}
        wins = findings.break_even(middle, switched, first, series)
        rows.append(
            (
                name,
                f"{FlawedStructure(first, switched).true_epsilon(design.flaw_days, low):.2f}",
                f"ε^{findings.exponent(design.epsilons, curve):.2f}",
                f"ε^{findings.exponent(upper, steep):.2f}",
                *(f"{at[fanout] / at[first]:.2f}" for fanout in others),
                "never" if wins is None else f"{wins} days",
            )
        )
    relative = (f"fanout {fanout}" for fanout in others)
    headings = (
        f"true ε at nominal {low:g}",
        "RMSE goes like",
        f"steepest, near ε = {max(design.epsilons):g}",
    )
    return StudyTable("one flaw at a time", ("switched on", *headings, *relative, "beats flat from"), rows)


def _error(
    design: RangeDesign, series: Daily, switched: Flaws, fanout: int, epsilon: float, shortest: float = 0
) -> float:
    """RMSE by theory over all lengths from `shortest` on."""
    structure, counts = FlawedStructure(fanout, switched), series.counts
    errors = []
    for length in flaw_lengths(design.flaw_days):
        if length >= shortest:
            lo = starts(len(counts), length, design.ranges)
            errors.append(structure.law(counts, epsilon, lo, lo + length).rmse)
    return rms(errors)
