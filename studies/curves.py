"""Composition theorems as curves: ε per report, the total cost of reports, the number of reports."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ..server.accounting import AccountingError, Basic, History, Odometer, Optimal, Theorem, ZcdpFilter
from ..server.accounting.compare import TITLES, theorems
from ..server.accounting.errors import whole_number
from ..server.epsilon import MICRO, micro_nats
from ..server.plain import plain
from ..server.words.text_table import TextTable
from .frame import RunContext, StudyParameters, StudyResult

FIGURE_THEOREMS = ("basic", "zcdp", "optimal", "advanced")
"""The theorems that figures compare; tables list more."""
_POINTS = 40
_HEADINGS = {"epsilon": "reports", "spent": "reports", "reports": "ε per report"}
_ANSWERS = {"epsilon": "ε per report", "spent": "ε of all", "reports": "reports"}


class CurvesParameters(StudyParameters):
    """The axes of the curves, and their ranges."""

    show: Literal["epsilon", "spent", "reports"] = Field(
        "epsilon", description="epsilon per report, what reports spent, or how many reports there are."
    )
    totals: tuple[float, ...] = Field((1, 2, 5, 10), description="Totals in nats, each with a panel.")
    delta: float = Field(1e-6, description="δ of (total, δ)-LDP; 0: only theorems that need none.")
    epsilon: float = Field(0.1, description="With --show spent: ε of each report, nats.")
    reports: int = Field(100, description="How many reports the curves reach.")


@dataclass(frozen=True)
class Curve:
    """A curve: x is a number of reports or an ε; y is NaN where nothing is allowed.

    Attributes:
        total: The total in nats; None for curves without one.
    """

    total: float | None
    theorem: str
    label: str
    x: Sequence[float]
    y: Sequence[float]


def run(parameters: CurvesParameters, context: RunContext) -> StudyResult:
    """Compute the curves."""
    if parameters.show == "spent":
        curves = list(
            spent_curves(
                micro_nats(parameters.epsilon, AccountingError), parameters.delta, parameters.reports
            )
        )
    else:
        of_total = {
            "epsilon": lambda total: epsilon_curves(total, parameters.delta, parameters.reports),
            "reports": lambda total: report_curves(total, parameters.delta),
        }[parameters.show]
        curves = [curve for total in parameters.totals for curve in of_total(total)]
    rows = [
        ("" if c.total is None else f"{c.total:g}", c.label, f"{x:g}", "none" if np.isnan(y) else f"{y:,.6g}")
        for c in curves
        for x, y in zip((c.x[0], c.x[-1]), (c.y[0], c.y[-1]), strict=True)
    ]
    headings = ("total", "theorem", _HEADINGS[parameters.show], _ANSWERS[parameters.show])
    table = TextTable(f"both ends of each curve, δ = {parameters.delta:g}", headings, rows, (0, 1))
    json = [plain(c) | {"y": [None if np.isnan(y) else y for y in c.y]} for c in curves]
    return StudyResult(
        {"show": parameters.show, "delta": parameters.delta, "curves": json}, (table,), (parameters, curves)
    )


def epsilon_curves(total: float, delta: float, max_reports: int) -> Iterator[Curve]:
    """Yield ε per report for 1 to `max_reports` reports, for each theorem in figures."""
    numbers = _numbers(max_reports)
    for theorem in _figure_theorems(total, delta):
        yield _curve(total, theorem, numbers, [(theorem.most_epsilon(n) or 0) / MICRO for n in numbers])


def report_curves(total: float, delta: float) -> Iterator[Curve]:
    """Yield, for each theorem, the number of reports that a total allows against their ε."""
    epsilons = np.unique(np.geomspace(total / 100, total, _POINTS).clip(0.001).round(3)).tolist()
    for theorem in _figure_theorems(total, delta):
        counts = [float(theorem.most_reports(round(e * MICRO)) or np.nan) for e in epsilons]
        yield _curve(total, theorem, epsilons, counts)


def spent_curves(epsilon: int, delta: float, max_reports: int) -> Iterator[Curve]:
    """Yield the cost in nats of 1 to `max_reports` reports of epsilon micro-nats, by theorem and odometer."""
    numbers = _numbers(max_reports)
    rules: list[Theorem] = [Basic(1.0)]
    if delta:
        rules += [ZcdpFilter(1.0, delta), Optimal(1.0, delta)]
    for theorem in rules:
        spent = [theorem.spent(History.equal(epsilon, n)).epsilon for n in numbers]
        yield _curve(None, theorem, numbers, spent)
    if delta:
        sharpest = ZcdpFilter(1.0, delta).spent(History.equal(epsilon, numbers[-1])).epsilon
        meter, totals = Odometer(delta, sharpest=sharpest), []
        for n in numbers:
            meter.history = History.equal(epsilon, n)
            totals.append(meter.spent().epsilon)
        yield Curve(None, "odometer", "odometer, at any moment: (ε, δ)-LDP", numbers, totals)


def _figure_theorems(total: float, delta: float) -> list[Theorem]:
    return [theorem for theorem in theorems(total, delta) if theorem.name in FIGURE_THEOREMS]


def _curve(total: float | None, theorem: Theorem, x: Sequence[float], y: Sequence[float]) -> Curve:
    label = f"{TITLES.get(theorem.name, theorem.name)}: {theorem.kind}"
    return Curve(total, theorem.name, label, x, y)


def _numbers(max_reports: int) -> list[int]:
    """Return numbers from 1 to max_reports: the first twenty, then about forty, including the last."""
    whole_number("the number of reports", max_reports, low=2)
    small_counts = np.arange(1, min(max_reports, 20) + 1)
    large_counts = np.geomspace(1, max_reports, 60).astype(int)
    return np.unique(np.concatenate((small_counts, large_counts, [max_reports]))).tolist()


# --- The figure -----------------------------------------------------------------------------------


def line_style(theorem: str) -> dict[str, Any]:
    """Return a theorem's colour and width; optimal is wide because other lines cover it."""
    from .drawing import COLOURS

    # The odometer has the colour of advanced composition.
    colour = COLOURS[FIGURE_THEOREMS.index(theorem) if theorem in FIGURE_THEOREMS else 3]
    width = 4.0 if theorem == "optimal" else 1.9
    return {"color": colour, "lw": width, "zorder": 7 - width}


def draw(path: Path, figure_data: tuple[CurvesParameters, list[Curve]]) -> None:
    """Write the curves, a panel for each total."""
    from .drawing import add_heading, add_legend_below, panel, panels

    parameters, curves = figure_data
    totals = list(dict.fromkeys(curve.total for curve in curves))
    title, x, y = {
        "epsilon": ("The largest ε of each of n reports", "number of reports n", "ε of each report, nats"),
        "spent": (
            "What reports cost together",
            f"number of reports of ε = {parameters.epsilon:g}",
            "spent, nats",
        ),
        "reports": (
            "How many reports until the budget is spent",
            "ε of each report, nats",
            "number of reports",
        ),
    }[parameters.show]
    scales: dict[str, Any] = {
        "epsilon": {"log": "y", "y": "{:g}"},
        "spent": {},
        "reports": {"log": "xy", "x": "{:g}", "y": "{:,g}"},
    }[parameters.show]
    with panels(path, len(totals)) as (drawing, all_axes):
        for total, axes in zip(totals, all_axes, strict=True):
            total_curves = [curve for curve in curves if curve.total == total]
            for c in total_curves:
                line = (0, (4, 2)) if c.theorem == "odometer" else "-"
                axes.plot(c.x, c.y, label=c.label, ls=line, **line_style(c.theorem))
            if parameters.show == "spent":
                axes.set_ylim(0, 1.15 * max(float(np.max(c.y)) for c in total_curves if c.theorem == "basic"))
            panel(axes, ("" if total is None else f"total {total:g}", "", x, y), **scales)
        add_heading(drawing, f"{title} (δ = {parameters.delta:g})")
        add_legend_below(drawing, all_axes[0], 2)
