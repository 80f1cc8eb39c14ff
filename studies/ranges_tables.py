"""The tables of the ranges study and its page, from findings and theory."""

from collections.abc import Sequence

from ..server.words.text_table import TextTable
from . import ranges_findings as findings
from .daily import Daily
from .flawed import FlawedStructure, Flaws
from .frame import Row, table
from .ranges_run import FAMILIES, Point, RangeDesign, flaw_lengths, predicted, select


def markdown(table: TextTable) -> str:
    """Format a table as Markdown."""
    lines = [table.headings, ["---"] * len(table.headings), *table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def agreement(verdicts: Sequence[Row]) -> TextTable:
    """Return a table of each structure's agreement with its law, over all days."""
    lines: dict[str, list[Row]] = {}
    for verdict in verdicts:
        lines.setdefault(_row_name(verdict), []).append(verdict)
    rows: list[Row] = []
    for name, group in lines.items():
        columns = {key: [verdict[key] for verdict in group] for key in group[0]}
        points, ratio_sum = sum(columns["points"]), sum(v["mean_ratio"] * v["points"] for v in group)
        row: Row = {"name": name, "points": points, "mean": ratio_sum / points, "curves": len(group)}
        row |= {"low": min(columns["lowest"]), "high": max(columns["highest"])}
        row |= {"worst": max(columns["worst"], key=abs), "agree": sum(columns["agrees"])}
        rows.append(row)
    headings = "structure | points | measured / predicted, mean | all | farthest, in standard deviations"
    cells = "{name} | {points:,} | {mean:.3f} | {low:.2f} to {high:.2f} | {worst:+.1f} | {agree} of {curves}"
    return table("curves compared with theory", f"{headings} | curves that agree", cells, rows)


def _row_name(verdict: Row) -> str:
    family, neighbours = verdict["family"], verdict["neighbours"]
    if verdict["kind"] == "flawed":
        return "runs with flaws, see below"
    if family == "local flat":
        return family
    if verdict["fanout"]:
        return f"{family}, fanout {verdict['fanout']}"
    chosen = ", chosen" if family.endswith("hierarchy") else ""
    return f"{family}{chosen}" + (f" ({neighbours})" if "central" in family else "")


def results(points: Sequence[Point], epsilon: float) -> TextTable:
    """Return a table of RMSE over all lengths at one ε, by structure and days, with the theory's fanout."""
    sizes = sorted({point.days for point in points})
    rows = []
    variants = [(f, n) for n in ("added", "replaced") for f in FAMILIES if n == "replaced" or "central" in f]
    for family, neighbours in variants:
        cells = []
        for days in sizes:
            selection = select(
                points, family=family, neighbours=neighbours, days=days, epsilon=epsilon, fanout=0
            )
            fanout = selection[0].plan.partition(",")[0].removeprefix("fanout ")
            chosen = f" [{fanout}]" if family.endswith("hierarchy") else ""
            cells.append(findings.number(findings.measured_rms(selection)) + chosen)
        rows.append((f"{family} ({neighbours})" if "central" in family else family, *cells))
    title = f"RMSE in records at ε = {epsilon:g}, over all lengths, and the chosen fanout in brackets"
    return TextTable(title, ("structure", *(f"{days:,} days" for days in sizes)), rows)


def lengths(fits: Sequence[Row]) -> TextTable:
    """Return a table of R² for three laws of the error's growth with the length, by structure and days."""
    cell = "{r2_root:.2f} / {r2_log:.2f} / {r2_line:.2f}"
    cells = {(f["family"], f["days"]): cell.format_map(f) for f in fits if f["neighbours"] == "replaced"}
    sizes = sorted({days for _, days in cells})
    rows = [(family, *(cells[family, days] for days in sizes)) for family in FAMILIES]
    title = "R² if the error grows as √r, ln r or r with the length r"
    return TextTable(title, ("√r / ln r / r", *(f"{days:,} days" for days in sizes)), rows)


def break_even(rows: Sequence[Row]) -> TextTable:
    """Return a table of the shortest lengths at which local hierarchies beat flat."""
    headings = ("fanout B", "days D", "2 B ⌈log_B D⌉²", "exact, summed", "exact, consistent", "measured")
    cells = [tuple("never" if x is None else f"{x:,}" for x in row.values()) for row in rows]
    return TextTable(
        "shortest length in days at which a local hierarchy has a smaller error than flat", headings, cells
    )


def flaws(design: RangeDesign, series: Daily) -> TextTable:
    """Return a table with one flaw per row: true ε, exponents of ε, fanouts and break-even, all by theory."""
    low, middle, far = min(design.epsilons), design.middle, design.flaw_days / 20
    first, *others = design.flaw_fanouts
    upper = sorted(design.epsilons)[-2:]
    rows = []
    for case, flaws in findings.CASES.items():

        def error(epsilon: float, fanout: int = first, shortest: float = 0, flaws: Flaws = flaws) -> float:
            """Return the theoretical RMSE over all lengths of at least `shortest`."""
            tree, lengths = FlawedStructure(fanout, flaws), flaw_lengths(design.flaw_days)
            return findings.rms(
                predicted(tree, series, epsilon, r, design.ranges) for r in lengths if r >= shortest
            )

        at = {fanout: error(middle, fanout, far) for fanout in design.flaw_fanouts}
        from_days = findings.break_even(middle, flaws, first, series)
        rows.append(
            (
                findings.case_label(case),
                f"{FlawedStructure(first, flaws).true_epsilon(design.flaw_days, low):.2f}",
                f"ε^{findings.exponent(design.epsilons, list(map(error, design.epsilons))):.2f}",
                f"ε^{findings.exponent(upper, list(map(error, upper))):.2f}",
                *(f"{at[fanout] / at[first]:.2f}" for fanout in others),
                "never" if from_days is None else f"{from_days} days",
            )
        )
    headings = ("switched on", f"true ε at nominal {low:g}", "RMSE goes like")
    headings += (f"steepest, near ε = {max(design.epsilons):g}", *(f"fanout {fanout}" for fanout in others))
    return TextTable("one flaw at a time", (*headings, "beats flat from"), rows)
