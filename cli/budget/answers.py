"""The sentence or two that each `hushmote budget` command prints before its tables."""

from collections.abc import Sequence

from ...planning.privacy.histogram import SHUFFLE, HistogramRow
from ...server.accounting import Kind
from ...server.accounting.compare import TITLES, TheoremRow
from ...server.epsilon import LEAST, MICRO
from ...server.words.epsilon import ALL_REPORTS, belief, rounded_down, rounded_up
from ...server.words.numbers import counted


def bounds_all_reports(row: TheoremRow) -> bool:
    """Return whether a theorem gives an LDP guarantee for all reports together."""
    return row.kind in (Kind.PURE, Kind.APPROXIMATE)


def incomparable_shuffle(delta: float, devices: int | None, mechanism: object | None) -> TheoremRow:
    """Return a row for shuffling without numbers; its words list the options that are missing."""
    needs = {
        "--delta": delta or None,
        "--devices": devices,
        "--domain (or --experiment FILE)": mechanism,
    }
    options = ", ".join(option for option, value in needs.items() if value is None)
    words = f"not compared: {SHUFFLE}; add {options}"
    return TheoremRow(SHUFFLE, Kind.SHUFFLED, "", "count", 0, None, None, None, words)


def largest_epsilon(rows: Sequence[TheoremRow], reports: int, total: float) -> str:
    """Describe the largest ε that each of a number of reports can have."""
    best, basic = _best(rows, "epsilon"), rows[0]
    each = counted(reports)
    if best.epsilon is None or best.epsilon * MICRO < LEAST:
        return f"No device makes reports that small: a total of {total:g} is too little for {each}."
    take = "Take" if reports == 1 else "For each take"
    text = f"{take} ε = {rounded_down(best.epsilon)}: {_guarantee_words(each, best)}."
    if best is not basic and basic.epsilon:
        text += f" Without a δ, by basic, it is {rounded_down(basic.epsilon)}."
    return f"{text}\n{_belief(best, best.epsilon, total)}"


def most_reports(rows: Sequence[TheoremRow], epsilon: float, total: float) -> str:
    """Describe the largest number of reports at an ε."""
    best, basic = _best(rows, "reports"), rows[0]
    if not best.reports:
        return f"No report of ε = {epsilon:g} fits into a total of {total:g}: take a smaller ε."
    most = f"A device may make {counted(best.reports)} of ε = {epsilon:g} in its lifetime"
    text = f"{most}: {_guarantee_words('they', best)}."
    if best is not basic:
        text += f" Without a δ, by basic, it is {basic.reports or 0:,}."
    return f"{text}\n{_belief(best, epsilon, total)}"


def _best(rows: Sequence[TheoremRow], what: str) -> TheoremRow:
    """Return the row that allows most; the first of equal ones, so basic wins a tie."""
    return max((row for row in rows if bounds_all_reports(row)), key=lambda row: getattr(row, what) or 0)


def _guarantee_words(reports: str, row: TheoremRow) -> str:
    return f"{reports} are {row.guarantee} together, by {TITLES.get(row.theorem, row.theorem)}"


def _belief(row: TheoremRow, epsilon: float, total: float) -> str:
    one = belief(epsilon)
    return (
        f"{one}\n{belief(total, reports=ALL_REPORTS)}" if row.kind == Kind.PURE and row.reports != 1 else one
    )


def for_histogram(rows: Sequence[HistogramRow], devices: int, target: float, delta: float) -> str:
    """Describe the largest ε of a report that keeps the histogram at a target ε."""
    able = [row for row in rows if row.local is not None]
    if not able:
        return f"No ε of a report keeps the histogram at ε = {target:g}: take more devices or a larger ε."
    best = max(able, key=lambda row: row.local or 0)
    local = best.local or 0
    return (
        f"Take ε = {rounded_down(local)} per report, with {best.described}: the histogram of {devices:,} "
        f"devices then stays at ε = {target:g} (δ = {delta:g}).\n{_against_the_broker(local)}"
    )


def for_reports(rows: Sequence[HistogramRow], devices: int, local: float, delta: float) -> str:
    """Describe the ε of the histogram for an ε of a report."""
    able = [row for row in rows if row.histogram is not None]
    if not able:
        return f"No mechanism has ε = {local:g} here: take a larger one."
    best = min(able, key=lambda row: row.histogram or 0)
    return (
        f"The histogram of {devices:,} devices has ε = {rounded_up(best.histogram or 0)} (δ = {delta:g}, "
        f"{best.described}), where a report has {local:g}.\n{_against_the_broker(local)}"
    )


def _against_the_broker(local: float) -> str:
    return f"Against the broker the ε of a report counts. {belief(local)}"
