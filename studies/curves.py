"""Composition theorems as curves: ε per report, what reports spend together, how many reports there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from ..server.accounting import AccountingError, Basic, History, Odometer, Optimal, Theorem, ZcdpFilter
from ..server.accounting.compare import TITLES, theorems
from ..server.accounting.errors import whole
from ..server.epsilon import MICRO, micro_nats
from .frame import Running, StudyParameters, StudyResult, StudyTable, plain

SHOWN = ("basic", "zcdp", "optimal", "advanced")
"""The theorems that pictures compare; of the others tables tell, and of majority a study of its own."""
_POINTS = 40
_HEADINGS = {"epsilon": "reports", "spent": "reports", "reports": "ε per report"}
_ANSWERS = {"epsilon": "ε per report", "spent": "ε of all", "reports": "reports"}


class CurvesParameters(StudyParameters):
    """What is drawn against what."""

    show: Literal["epsilon", "spent", "reports"] = Field(
        "epsilon", description="epsilon per report, what reports spent, or how many reports there are."
    )
    totals: tuple[float, ...] = Field((1, 2, 5, 10), description="Totals in nats, each with a panel.")
    delta: float = Field(1e-6, description="δ of (total, δ)-LDP; 0: only theorems that need none.")
    epsilon: float = Field(0.1, description="With show=spent: ε of each report, nats.")
    reports: int = Field(100, description="How many reports the curves reach.")


@dataclass(frozen=True)
class Curve:
    """One line: x is a number of reports or an ε, NaN of y where nothing is allowed.

    total: nats, None where curves have none.
    """

    total: float | None
    theorem: str
    label: str
    x: Sequence[float]
    y: Sequence[float]


def run(asked: CurvesParameters, running: Running) -> StudyResult:
    """Work out the curves."""
    if asked.show == "spent":
        curves = list(spent_curves(micro_nats(asked.epsilon, AccountingError), asked.delta, asked.reports))
    else:
        by_reports = asked.show == "epsilon"
        curves = [
            curve
            for total in asked.totals
            for curve in (
                epsilon_curves(total, asked.delta, asked.reports)
                if by_reports
                else report_curves(total, asked.delta)
            )
        ]
    rows = [
        ("" if c.total is None else f"{c.total:g}", c.label, f"{x:g}", "none" if np.isnan(y) else f"{y:,.6g}")
        for c in curves
        for x, y in zip((c.x[0], c.x[-1]), (c.y[0], c.y[-1]), strict=True)
    ]
    headings = ("total", "theorem", _HEADINGS[asked.show], _ANSWERS[asked.show])
    table = StudyTable(f"both ends of each curve, δ = {asked.delta:g}", headings, rows, (0, 1))
    json = [plain(c) | {"y": [None if np.isnan(y) else y for y in c.y]} for c in curves]
    return StudyResult({"show": asked.show, "delta": asked.delta, "curves": json}, (table,), (asked, curves))


def epsilon_curves(total: float, delta: float, most: int) -> Iterator[Curve]:
    """ε per report for 1 to most reports under each theorem that is shown."""
    numbers = _numbers(most)
    for theorem in _drawn(total, delta):
        yield _curve(total, theorem, numbers, [(theorem.most_epsilon(n) or 0) / MICRO for n in numbers])


def report_curves(total: float, delta: float) -> Iterator[Curve]:
    """The number of reports that total allows under each theorem, against their ε."""
    epsilons = np.unique(np.geomspace(total / 100, total, _POINTS).clip(0.001).round(3)).tolist()
    for theorem in _drawn(total, delta):
        counts = [float(theorem.most_reports(round(e * MICRO)) or np.nan) for e in epsilons]
        yield _curve(total, theorem, epsilons, counts)


def spent_curves(epsilon: int, delta: float, most: int) -> Iterator[Curve]:
    """The nats that 1 to most reports of epsilon micro-nats cost under theorems and the odometer."""
    numbers = _numbers(most)
    rules: list[Theorem] = [Basic(1.0)]
    if delta:
        rules += [ZcdpFilter(1.0, delta), Optimal(1.0, delta)]
    for theorem in rules:
        spent = [theorem.spent(History.equal(epsilon, n)).epsilon for n in numbers]
        yield _curve(None, theorem, numbers, spent)
    if delta:
        sharpest = ZcdpFilter(1.0, delta).spent(History.equal(epsilon, numbers[-1])).epsilon
        meter, shown = Odometer(delta, sharpest=sharpest), []
        for n in numbers:
            meter.history = History.equal(epsilon, n)
            shown.append(meter.spent().epsilon)
        yield Curve(None, "odometer", "odometer, at any moment: (ε, δ)-LDP", numbers, shown)


def _drawn(total: float, delta: float) -> list[Theorem]:
    return [theorem for theorem in theorems(total, delta) if theorem.name in SHOWN]


def _curve(total: float | None, theorem: Theorem, x: Sequence[float], y: Sequence[float]) -> Curve:
    label = f"{TITLES.get(theorem.name, theorem.name)}: {theorem.kind}"
    return Curve(total, theorem.name, label, x, y)


def _numbers(most: int) -> list[int]:
    """1 to most: all of the first twenty, then some forty, the last among them."""
    whole("the number of reports", most, low=2)
    few, many = np.arange(1, min(most, 20) + 1), np.geomspace(1, most, 60).astype(int)
    return np.unique(np.concatenate((few, many, [most]))).tolist()
