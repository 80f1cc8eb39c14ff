"""What a pair says: its joint table, the table of each part, shares and means of one part given another.

Everything here is a ratio or a sum of cells of the joint table, in rows for an Answer; FleetEstimate makes the
answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from ...device.ldp_client import Experiment, Reading
from ..arrays import Floats
from ..errors import UsageError
from ..estimate.conditional import (
    Ratio,
    RatioDifference,
    difference_of_two,
    ratios,
    reports_needed,
)
from ..estimate.estimate import Estimates
from ..estimate.statistic import EstimateError, Statistic
from ..experiments import cells
from ..experiments.cells import Condition
from ..experiments.units import edges_between
from .answer import CellRow, DifferenceRow, Row

MOST_CELLS = 40
"""Cells of a joint table that is shown unasked."""
_MOST_JOINT = 4_096  # that is shown at all


@dataclass(frozen=True)
class PairQuestion:
    """What is asked of one part given others; all empty for what a pair says unasked.

    of      a condition such as "crashed=yes", or a part: of a bool that it is yes, of a number its mean
    given   a part, of which each value gets a row, or a condition
    versus  two conditions whose difference is asked for, instead of given
    joint   whether the joint table is asked for
    """

    of: str = ""
    given: str = ""
    versus: tuple[str, str] | None = None
    joint: bool = False

    def __bool__(self) -> bool:
        return bool(self.of or self.given or self.versus or self.joint)

    def arguments(self) -> list[str]:
        """The options of the command `estimate` that ask the same."""
        asked = [f"--of={self.of}"] if self.of else []
        asked += [f"--given={self.given}"] if self.given else []
        asked += ["--versus", *self.versus] if self.versus else []
        return asked + (["--joint"] if self.joint else [])


@dataclass(frozen=True)
class Wanted:
    """What is asked for, given anything: a share of cells, or the mean of a number.

    weights: a number for each cell of the joint table, shape (domain,); parts: those that it is told by
    """

    text: str
    quantity: Literal["share", "reading"]
    weights: Floats
    parts: tuple[int, ...]


@dataclass(frozen=True)
class PairTable:
    """Rows of a table and what is said with them."""

    kind: Literal["joint", "marginal", "conditional", "difference"]
    title: str
    rows: tuple[Row, ...]
    quantity: Literal["share", "reading"] = "share"
    note: str = ""


def wanted(experiment: Experiment, of: str) -> tuple[Wanted, ...]:
    """What `of` names: a condition, or a part; without any the last part. UnitsError for what does not fit."""
    if "=" in of:
        condition = cells.parse(experiment, of)
        return (Wanted(condition.text, "share", condition.cells, condition.parts),)
    part = cells.part_number(experiment, of) if of else len(experiment.parts) - 1
    reading = experiment.parts[part]
    if reading.type == "number":
        edges = edges_between(reading.low, reading.high, reading.domain)
        middles = cells.indicator(experiment, part, (edges[:-1] + edges[1:]) / 2)
        return (Wanted(f"mean {reading.name}", "reading", middles, (part,)),)
    shown = cells.values(experiment, part)
    chosen = shown[1:] if reading.type == "bool" else shown
    return tuple(Wanted(c.text, "share", c.cells, c.parts) for c in chosen)


def conditions(
    experiment: Experiment, given: str, of: Sequence[int], rows: int
) -> tuple[str, list[Condition]]:
    """What `given` is called, and its conditions: one, or each value of a part; without any the first part
    that `of` does not tell of. UnitsError for what does not fit."""
    if "=" in given:
        condition = cells.parse(experiment, given)
        return condition.text, [condition]
    others = [part for part in range(len(experiment.parts)) if part not in of]
    if not given and not others:
        raise UsageError("--of names all parts: what is it given? Leave a part out of it")
    part = cells.part_number(experiment, given) if given else others[0]
    return f"each {experiment.parts[part].name}", cells.groups(experiment, part, rows)


class PairEstimates:
    """The tables of a pair's estimates.

    truth: shares of the indices, shape (domain,), where they are known. Methods raise EstimateError for what
    the reports do not tell, UnitsError for what the experiment does not have.
    """

    def __init__(self, estimates: Estimates, confidence: float, truth: Floats | None = None):
        self.estimates = estimates
        self.experiment = estimates.experiment
        self.confidence = confidence
        self.truth = truth
        self.shape = cells.shape(estimates.experiment)

    def joint(self, rows: int = 16) -> PairTable:
        """The share of every cell, a number's values in at most so many ranges."""
        names = [part.name for part in self.experiment.parts]
        by_part = [cells.groups(self.experiment, part, rows) for part in range(len(self.shape))]
        shown = list(product(*by_part))
        if len(shown) > _MOST_JOINT:
            raise UsageError(f"the joint table has {len(shown):,} cells: ask for some, with --of and --given")
        weights = np.stack([np.prod([c.cells for c in cell], axis=0) for cell in shown], axis=1)
        shares = self.estimates.linear_many(weights)
        made = []
        for i, cell in enumerate(shown):
            row = self._row(", ".join(c.text for c in cell), shares[i], self._true(weights[:, i]))
            values = (c.text.partition("=")[2] for c in cell)
            made.append(CellRow(**vars(row), cell=tuple(zip(names, values, strict=True))))
        return PairTable("joint", " and ".join(names), tuple(made))

    def marginal(self, part: str, rows: int) -> PairTable:
        """The share of each value of a part, a number's in at most so many rows."""
        number = cells.part_number(self.experiment, part)
        shown = cells.groups(self.experiment, number, rows)
        shares = self.estimates.linear_many(np.stack([c.cells for c in shown], axis=1))
        made = [self._row(c.text, shares[i], self._true(c.cells)) for i, c in enumerate(shown)]
        return PairTable("marginal", part, tuple(made))

    def conditional(self, of: str = "", given: str = "", rows: int = 16) -> PairTable:
        """Shares, or the mean, of what `of` names among those of each condition that `given` names."""
        asked = wanted(self.experiment, of)
        told = tuple({part for one in asked for part in one.parts})
        text, shown = conditions(self.experiment, given, told, rows)
        pairs = [(one, condition) for condition in shown for one in asked]
        found = self._ratios(pairs)
        single = len(asked) == 1
        made, lost = list[Row](), list[tuple[Condition, Ratio]]()
        for (one, condition), ratio in zip(pairs, found, strict=True):
            if not ratio.known:
                lost += [(condition, ratio)] if one is asked[0] else []
                continue
            name = condition.text if single else f"{one.text} given {condition.text}"
            made.append(self._row(name, ratio, self._true_ratio(one, condition)))
        if not made:
            raise EstimateError(self._too_few(lost))
        what = asked[0].text if single else self.experiment.parts[asked[0].parts[0]].name
        note = f"Left out: {self._too_few(lost)}." if lost else ""
        return PairTable("conditional", f"{what} given {text}", tuple(made), asked[0].quantity, note)

    def difference(self, of: str, first: str, second: str) -> tuple[PairTable, PairTable]:
        """What `of` names among those of each of two conditions, and the first less the second."""
        asked = wanted(self.experiment, of)
        if len(asked) > 1:
            name = self.experiment.parts[asked[0].parts[0]].name
            raise UsageError(f"a difference is of one share: say which, --of {asked[0].text} for one of {name}")
        sides = [cells.parse(self.experiment, text) for text in (first, second)]
        pairs = [(asked[0], side) for side in sides]
        found = self.ratio_difference(asked[0], sides[0], sides[1])
        lost = [(c, r) for c, r in zip(sides, (found.first, found.second), strict=True) if not r.known]
        if lost:
            raise EstimateError(self._too_few(lost))
        truths = [self._true_ratio(*pair) for pair in pairs]
        ratios_of = zip(sides, (found.first, found.second), truths, strict=True)
        rows = tuple(self._row(c.text, ratio, true) for c, ratio, true in ratios_of)
        text = f"{asked[0].text} given {sides[0].text} less that given {sides[1].text}"
        known = [t for t in truths if t is not None]
        row = self._row("difference", found, known[0] - known[1] if len(known) == 2 else None)
        both = {"first": found.first.value, "second": found.second.value, "p": found.p}
        quantity = asked[0].quantity
        return (
            PairTable("conditional", asked[0].text, rows, quantity),
            PairTable("difference", text, (DifferenceRow(**vars(row), **both),), quantity),
        )

    def ratio_difference(self, of: Wanted, first: Condition, second: Condition) -> RatioDifference:
        """What is wanted among those of one condition, less that of another."""
        below = np.stack([first.cells, second.cells], axis=1)
        return difference_of_two(self.estimates, of.weights[:, None] * below, below)

    def summary(self, rows: int) -> list[PairTable]:
        """The joint table if it is small, that of each part, and the last part given the first."""
        tables, missing = list[PairTable](), ""
        small = math.prod(_rows_of(part, rows) for part in self.experiment.parts) <= MOST_CELLS
        if small:
            try:
                tables.append(self.joint(rows))
            except EstimateError as e:
                missing = f"No joint table: {e}."
        for part in self.experiment.parts:
            tables.append(self.marginal(part.name, rows))
        last = self.experiment.parts[-1]
        if last.type != "choice" or small:
            try:
                tables.append(self.conditional(rows=rows))
            except EstimateError as e:
                missing = missing or f"Nothing of {last.name} given the other part: {e}."
        if missing:
            tables[-1] = replace(tables[-1], note=f"{tables[-1].note}\n{missing}".strip())
        return tables

    def _ratios(self, pairs: Sequence[tuple[Wanted, Condition]]) -> list[Ratio]:
        below = np.stack([condition.cells for _, condition in pairs], axis=1)
        above = np.stack([one.weights * condition.cells for one, condition in pairs], axis=1)
        return ratios(self.estimates, above, below)

    def _too_few(self, lost: Sequence[tuple[Condition, Ratio]]) -> str:
        """Which conditions hold too few boards, and how many reports would do."""
        shares = (
            f"{condition.text} ({100 * ratio.below.value:.2g} ± {196 * ratio.below.stderr:.2g} %)"
            for condition, ratio in lost
        )
        needed = reports_needed(self.estimates.reports, [ratio for _, ratio in lost])
        two_digits = float(f"{needed:.2g}")
        return f"too few boards have {', '.join(shares)} to divide by; it takes about {two_digits:,.0f} reports"

    def _true(self, weights: Floats) -> float | None:
        return None if self.truth is None else float(self.truth @ weights)

    def _true_ratio(self, one: Wanted, condition: Condition) -> float | None:
        below = self._true(condition.cells)
        above = self._true(condition.cells * one.weights)
        return above / below if above is not None and below else None

    def _row(self, name: str, statistic: Statistic, truth: float | None) -> Row:
        return Row(name, statistic.value, *statistic.interval(self.confidence), truth)


def _rows_of(part: Reading, rows: int) -> int:
    return min(rows, part.domain) if part.type == "number" else part.domain
