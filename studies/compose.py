"""The guarantee of a list of releases of different ε, some with a δ, under every theorem."""

import csv
import math
from pathlib import Path

import numpy as np
from pydantic import Field

from ..server.accounting import History, Kind, ReportCost
from ..server.accounting.errors import AccountingError, whole_number
from ..server.epsilon import MICRO, micro_nats
from ..server.errors import UsageError, refusing
from ..server.words.epsilon import belief, rounded_up
from ..server.words.text_table import TextTable
from .curves import FIGURE_THEOREMS, line_style
from .frame import RunContext, StudyParameters, StudyResult
from .mixed_list import TITLES, ComposedRow, compose

_NEXT_TO_NOTHING = 0.5  # a guarantee with at least this δ is worthless
_LDP = (Kind.PURE, Kind.APPROXIMATE)
_PREFIXES, _FEW_PREFIXES = 40, 10  # points to draw with up to, and with more than, _MANY different ε
_MANY = 50
_SLACKS = np.geomspace(1e-12, 0.3, 13)


class ComposeParameters(StudyParameters):
    """Releases from a list, a file, or both."""

    releases: tuple[str, ...] = Field(
        (), description="EPSILON[:DELTA][xCOUNT], in order: 0.5x1000,1,0.5:0.01x20."
    )
    delta: float = Field(1e-6, description="What a theorem may add to the releases' own δ; 0: nothing.")
    input: Path | None = Field(
        None, description="Releases from a .csv file: columns epsilon, delta and count."
    )
    all: bool = Field(False, description="List the theorems that do not hold here, too; JSON always does.")


def run(parameters: ComposeParameters, context: RunContext) -> StudyResult:
    """Compose the releases under every theorem."""
    runs = [release(text) for text in parameters.releases]
    runs += _read(parameters.input) if parameters.input else []
    if not runs:
        raise UsageError(
            "say what was released: hushmote study compose --releases 0.5x1000,1x1000,0.5:0.01x1000"
        )
    history = History(tuple(runs))
    rows = compose(history, parameters.delta)
    own_delta = float(history.delta)
    releases = [
        {"epsilon": cost.epsilon / MICRO, "delta": cost.delta, "count": n} for cost, n in history.runs
    ]
    json = {"releases": releases, "count": history.count, "sum": history.sum / MICRO, "sum_delta": own_delta}
    usable = [row for row in rows if not row.refused]
    table = TextTable(
        f"{history.count:,} releases, Σε = {history.sum / MICRO:,g}"
        f"{f', Σδ = {own_delta:g}' if own_delta else ''}: "
        "together they are",
        ("theorem", "ε", "δ", "each ε is"),
        [_cells(row) for row in (rows if parameters.all else usable)],
        (0, 3),
    )
    refused = [row for row in rows if row.refused]
    notes = [f"{_title(row)}: {row.refused}." for row in refused]
    if refused and not parameters.all:
        notes = [f"Not valid here: {', '.join(map(_title, refused))}. --all shows why."]
    output = (*_answer(history, rows), "", table, *notes, _meaning(own_delta))
    figure_data = (history, parameters.delta)
    return StudyResult(json | {"theorems": [row.to_dict() for row in rows]}, output, figure_data)


def release(text: str) -> tuple[ReportCost, int]:
    """Parse EPSILON[:DELTA][xCOUNT], in nats, into releases of one kind; raise UsageError for other text."""
    head, cross, count = text.replace("×", "x").partition("x")
    epsilon, colon, delta = head.partition(":")
    try:
        return _run(float(epsilon), float(delta) if colon else 0.0, int(count) if cross else 1)
    except ValueError:
        raise UsageError(
            f"a release is EPSILON[:DELTA][xCOUNT], as 0.5, 0.5:0.01 or 0.5:0.01x1000, not {text}"
        ) from None


def _read(file: Path) -> list[tuple[ReportCost, int]]:
    runs: list[tuple[ReportCost, int]] = []
    with refusing(UsageError, f"read {file}"), file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines)
        if "epsilon" not in (rows.fieldnames or ()):
            raise UsageError(f"{file} needs a column epsilon, and may have delta and count")
        for row in rows:
            try:
                count = int(row.get("count") or 1)
                runs.append(_run(float(row["epsilon"]), float(row.get("delta") or 0), count))
            except (ValueError, TypeError):
                line = f"{file}, line {rows.line_num}"
                raise UsageError(f"{line}: epsilon, delta and count are numbers") from None
    return runs


def _run(epsilon: float, delta: float, count: int) -> tuple[ReportCost, int]:
    return ReportCost(micro_nats(epsilon, AccountingError), delta), whole_number(
        "the number of releases", count
    )


def _cells(row: ComposedRow) -> tuple[str, ...]:
    epsilon = "not valid" if row.epsilon is None else f"{row.epsilon:,.6f}"
    delta = "" if row.delta is None else "0" if row.delta == 0 else f"{row.delta:.7g}"
    return _title(row), epsilon, delta, row.when


def _title(row: ComposedRow) -> str:
    return TITLES.get(row.theorem, row.theorem)


def _answer(history: History, rows: list[ComposedRow]) -> list[str]:
    """Summarize the releases by the theorem with the best guarantee."""

    def worth(row: ComposedRow) -> tuple[bool, float]:
        """Return a sort key for theorems: lower is better, and a δ must save at least 1% of ε."""
        epsilon = row.epsilon or 0.0
        return ((row.delta or 0) >= _NEXT_TO_NOTHING, epsilon * (1 if row.delta == history.delta else 1.01))

    valid = [
        row for row in rows if row.kind in _LDP and row.epsilon is not None and math.isfinite(row.epsilon)
    ]
    best = min(valid, key=worth, default=None)
    number = "This release" if history.count == 1 else f"These {history.count:,} releases"
    if best is None or best.epsilon is None or (best.delta or 0) >= _NEXT_TO_NOTHING:
        return [f"{number} promise next to nothing together: their own δ add up to {float(history.delta):g}."]
    epsilon, delta = rounded_up(best.epsilon), best.delta or 0.0
    kind = f"({epsilon}, {rounded_up(delta)})-LDP" if delta else f"{epsilon}-LDP"
    answer = [f"{number} {'is' if history.count == 1 else 'are'} {kind} together, by {_title(best)}."]
    if not history.delta:
        sentence = belief(history.sum / MICRO, reports="All of them together")
        answer.append(f"By adding up, which cannot fail, {sentence[0].lower()}{sentence[1:]}")
    return answer


def _meaning(own_delta: float) -> str:
    if own_delta:
        return (
            "(ε, δ): no event is likelier under one course of readings than e^ε times its chance under "
            "another, plus δ. The odds may pass e^ε more often than δ."
        )
    return (
        "zCDP, Rogers, advanced: the odds pass e^ε with probability at most δ. closed form, optimal: no "
        "event is likelier than e^ε times its chance under other readings, plus δ."
    )


def draw(path: Path, figure_data: tuple[History, float]) -> None:
    """Write the guarantee for the first n releases, n up to all, and the δ of theorems against ε of all."""
    from .drawing import add_legend_below, figure, number_axis, panel

    history, slack = figure_data
    points = _PREFIXES if len(history.epsilons) <= _MANY else _FEW_PREFIXES
    counts = np.unique(np.linspace(1, history.count, points).astype(int)).tolist()
    so_far = _spent([compose(first_releases(history, count), slack) for count in counts])
    exchange = _spent([compose(history, float(s)) for s in _SLACKS])
    total = history.sum / MICRO
    with figure(path, columns=2) as (drawing, (left_axes, right_axes)):
        for name, spent in so_far.items():
            nothing = ": promises nothing in the end" if np.isnan(spent[-1]) else ""
            left_axes.plot(counts, spent, label=TITLES.get(name, name) + nothing, **line_style(name))
            if name != "basic":
                right_axes.plot(exchange[name], _SLACKS, **line_style(name))
        note = f"each theorem adds δ = {slack:g}"
        panel(left_axes, ("As the list goes on", note, "releases so far", "ε of all so far, nats"))
        left_axes.set_ylim(0, 1.3 * total)
        number_axis(left_axes.xaxis, whole=True)
        right_axes.axvline(total, color=line_style("basic")["color"], lw=1.2, ls=(0, (4, 2)))
        note = f"all {history.count:,} releases, Σδ = {float(history.delta):g} of their own; dashed: Σε"
        words = "δ against ε", note, "ε of all, nats", "δ that the theorem adds"
        panel(right_axes, words, "y", y="{:g}")
        add_legend_below(drawing, left_axes, 4)


def first_releases(history: History, count: int) -> History:
    """Return the first releases of a history."""
    runs, remaining = [], count
    for cost, n in history.runs:
        if remaining > 0:
            runs.append((cost, min(n, remaining)))
        remaining -= n
    return History(tuple(runs))


def _spent(steps: list[list[ComposedRow]]) -> dict[str, list[float]]:
    """Return each plotted theorem's ε at each step; NaN if it guarantees nothing."""
    return {
        rows[0].theorem: [
            math.nan if row.epsilon is None or math.isinf(row.epsilon) else row.epsilon for row in rows
        ]
        for rows in zip(*steps, strict=True)
        if rows[0].theorem in FIGURE_THEOREMS
    }
