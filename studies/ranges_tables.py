"""The tables of the study of ranges and of its page, from what was found and from theory."""

from collections.abc import Sequence

from . import ranges_findings as findings
from .daily import Daily
from .flawed import FlawedStructure, Flaws
from .frame import StudyTable
from .ranges_run import FAMILIES, Point, RangeDesign, flaw_lengths, predicted, select


def markdown(table: StudyTable) -> str:
    """A table in Markdown."""
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def agreement(found: Sequence[findings.Verdict]) -> StudyTable:
    """How the curves of each structure agree with their laws; one line for each, all days together."""
    lines: dict[str, list[findings.Verdict]] = {}
    for verdict in found:
        lines.setdefault(_named(verdict), []).append(verdict)
    rows = []
    for name, together in lines.items():
        points = sum(v.points for v in together)
        mean = sum(v.mean_ratio * v.points for v in together) / points
        span = f"{min(v.lowest for v in together):.2f} to {max(v.highest for v in together):.2f}"
        worst = max((v.worst for v in together), key=abs)
        agree = f"{sum(v.agrees for v in together)} of {len(together)}"
        rows.append((name, f"{points:,}", f"{mean:.3f}", span, f"{worst:+.1f}", agree))
    off = "farthest, in standard deviations"
    headings = ("structure", "points", "measured / predicted, mean", "all", off, "curves that agree")
    return StudyTable("curves beside theory", headings, rows)


def _named(verdict: findings.Verdict) -> str:
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
    sides = [(f, n) for n in ("added", "replaced") for f in FAMILIES if n == "replaced" or "central" in f]
    for family, neighbours in sides:
        cells = []
        for days in sizes:
            here = select(points, family=family, neighbours=neighbours, days=days, epsilon=epsilon, fanout=0)
            fanout = here[0].plan.partition(",")[0].removeprefix("fanout ")
            chosen = f" [{fanout}]" if family.endswith("hierarchy") else ""
            cells.append(findings.number(findings.measured_rms(here)) + chosen)
        rows.append((f"{family} ({neighbours})" if "central" in family else family, *cells))
    title = f"RMSE in records at ε = {epsilon:g}, over all lengths; in brackets the fanout that is chosen"
    return StudyTable(title, ("structure", *(f"{days:,} days" for days in sizes)), rows)


def lengths(found: Sequence[findings.LengthFit]) -> StudyTable:
    """R² of three laws of the length, by structure and days."""
    replaced = [fit for fit in found if fit.neighbours == "replaced"]
    sizes = sorted({fit.days for fit in replaced})
    of = {
        (f.family, f.days): " / ".join(f"{x:.2f}" for x in (f.r2_root, f.r2_log, f.r2_line)) for f in replaced
    }
    rows = [(family, *(of[family, days] for days in sizes)) for family in FAMILIES]
    title = "R² of three laws of the length r: √r, ln r and r itself"
    return StudyTable(title, ("√r / ln r / r", *(f"{days:,} days" for days in sizes)), rows)


def even(rows: Sequence[findings.BreakEven]) -> StudyTable:
    """Where local hierarchies begin to beat flat."""
    headings = ("fanout B", "days D", "2 B ⌈log_B D⌉²", "exact, summed", "exact, consistent", "measured")
    cells = [tuple("never" if x is None else f"{x:,}" for x in vars(r).values()) for r in rows]
    return StudyTable("days from which on a local hierarchy errs less than flat", headings, cells)


def flaws(design: RangeDesign, series: Daily) -> StudyTable:
    """One flaw at a time: true ε, exponents of ε, fanouts and break-even, all by theory."""
    low, middle, far = min(design.epsilons), design.middle, design.flaw_days / 20
    first, *others = design.flaw_fanouts
    upper = sorted(design.epsilons)[-2:]
    rows = []
    for case, flaws in findings.CASES.items():

        def error(epsilon: float, fanout: int = first, shortest: float = 0, flaws: Flaws = flaws) -> float:
            """RMSE by theory over all lengths from `shortest` on."""
            tree, lengths = FlawedStructure(fanout, flaws), flaw_lengths(design.flaw_days)
            return findings.rms(
                predicted(tree, series, epsilon, r, design.ranges) for r in lengths if r >= shortest
            )

        at = {fanout: error(middle, fanout, far) for fanout in design.flaw_fanouts}
        from_days = findings.break_even(middle, flaws, first, series)
        rows.append(
            (
                findings.labelled(case),
                f"{FlawedStructure(first, flaws).true_epsilon(design.flaw_days, low):.2f}",
                f"ε^{findings.exponent(design.epsilons, list(map(error, design.epsilons))):.2f}",
                f"ε^{findings.exponent(upper, list(map(error, upper))):.2f}",
                *(f"{at[fanout] / at[first]:.2f}" for fanout in others),
                "never" if from_days is None else f"{from_days} days",
            )
        )
    headings = ("switched on", f"true ε at nominal {low:g}", "RMSE goes like")
    headings += (f"steepest, near ε = {max(design.epsilons):g}", *(f"fanout {fanout}" for fanout in others))
    return StudyTable("one flaw at a time", (*headings, "beats flat from"), rows)
