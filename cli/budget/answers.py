"""The sentence or two that each `hushmote budget` command prints before its tables."""

from collections.abc import Sequence

from ...planning.privacy.histogram import SHUFFLE, HistogramRow
from ...server.accounting import Kind
from ...server.accounting.compare import TITLES, TheoremRow, incomparable
from ...server.epsilon import LEAST, MICRO
from ...server.words.epsilon import ALL_REPORTS, belief, rounded_down, rounded_up
from ...server.words.numbers import counted


def bounds_all_reports(row: TheoremRow) -> bool:
    """Return whether a theorem gives an LDP guarantee across all reports."""
    return bool(row.guarantee) and row.kind in (Kind.PURE, Kind.APPROXIMATE)


def incomparable_shuffle(delta: float, devices: int | None, mechanism: object | None) -> TheoremRow:
    """Return a shuffling row without numbers, whose text lists the missing options."""
    settings = {
        "--delta": delta or None,
        "--devices": devices,
        "--domain (or --experiment FILE)": mechanism,
    }
    options = ", ".join(option for option, value in settings.items() if value is None)
    return incomparable(SHUFFLE, Kind.SHUFFLED, f"add {options}")


def largest_epsilon(rows: Sequence[TheoremRow], reports: int, total: float) -> str:
    """Describe the largest ε per report for a given number of reports."""
    best, basic = _best(rows, "epsilon"), rows[0]
    reports_text = counted(reports)
    if best.epsilon is None or best.epsilon * MICRO < LEAST:
        return f"A total of {total:g} is too small for {reports_text}: no report can have such a small ε."
    verb = "Use" if reports == 1 else "For each report, use"
    text = f"{verb} ε = {rounded_down(best.epsilon)}: {_guarantee_words(reports, reports_text, best)}."
    if best is not basic and basic.epsilon:
        text += f" Without a δ, basic composition allows {rounded_down(basic.epsilon)}."
    return f"{text}\n{_belief(best, best.epsilon, total)}"


def most_reports(rows: Sequence[TheoremRow], epsilon: float, total: float) -> str:
    """Describe the largest number of reports at a given ε."""
    best, basic = _best(rows, "reports"), rows[0]
    if not best.reports:
        return f"A report at ε = {epsilon:g} does not fit into a total of {total:g}; use a smaller ε."
    pronoun = "it" if best.reports == 1 else "they"
    start = f"A device may make {counted(best.reports)} of ε = {epsilon:g} in its lifetime"
    text = f"{start}: {_guarantee_words(best.reports, pronoun, best)}."
    if best is not basic:
        text += f" Without a δ, basic composition allows {basic.reports or 0:,}."
    return f"{text}\n{_belief(best, epsilon, total)}"


def _best(rows: Sequence[TheoremRow], attribute: str) -> TheoremRow:
    """Return the row that allows the most; if several do, the earliest one, so basic comes first."""
    return max((row for row in rows if bounds_all_reports(row)), key=lambda row: getattr(row, attribute) or 0)


def _guarantee_words(reports: int, subject: str, row: TheoremRow) -> str:
    verb, together = ("is", "") if reports == 1 else ("are", " together")
    return f"{subject} {verb} {row.guarantee}{together}, by {TITLES.get(row.theorem, row.theorem)}"


def _belief(row: TheoremRow, epsilon: float, total: float) -> str:
    sentence = belief(epsilon)
    if row.kind == Kind.PURE and row.reports != 1:
        sentence += f"\n{belief(total, reports=ALL_REPORTS)}"
    return sentence


def for_histogram(rows: Sequence[HistogramRow], devices: int, target: float, delta: float) -> str:
    """Describe the largest per-report ε that keeps the histogram at a target ε."""
    feasible = [row for row in rows if row.local is not None]
    if not feasible:
        return f"No per-report ε keeps the histogram at ε = {target:g}; use more devices or a larger ε."
    best = max(feasible, key=lambda row: row.local or 0)
    local = best.local or 0
    return (
        f"Use ε = {rounded_down(local)} per report, with {best.described}: the histogram of {devices:,} "
        f"devices then has ε = {target:g} (δ = {delta:g}).\n{_against_the_broker(local)}"
    )


def for_reports(rows: Sequence[HistogramRow], devices: int, local: float, delta: float) -> str:
    """Describe the histogram's ε for a given ε per report."""
    feasible = [row for row in rows if row.histogram is not None]
    if not feasible:
        return f"No mechanism supports ε = {local:g} here; use a larger ε."
    best = min(feasible, key=lambda row: row.histogram or 0)
    return (
        f"The histogram of {devices:,} devices has ε = {rounded_up(best.histogram or 0)} (δ = {delta:g}, "
        f"{best.described}), compared with {local:g} for one report.\n{_against_the_broker(local)}"
    )


def _against_the_broker(local: float) -> str:
    return f"Against the broker, only the per-report ε counts. {belief(local)}"
