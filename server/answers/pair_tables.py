"""A pair's statistics: tables of linear statistics, ratios and differences of ratios."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..errors import UsageError
from ..estimate.conditional import Ratio, RatioDifference, paired_difference, ratios
from ..estimate.estimate import Estimates
from ..estimate.statistic import Statistic
from ..experiments import cells
from ..experiments.cells import CellCondition
from ..experiments.units import bin_middles
from ..hints import option
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import value_count
from .question import PairQuestion
from .rows import SHARE_OF_FLEET, Quantity

MAX_CELLS = 40
"""Joint tables with more cells than this are not shown by default."""
_MAX_JOINT = 4_096  # cells
_MAX_ROWS = 1_000  # rows of conditional shares and means


@dataclass(frozen=True)
class PairStatistic:
    """A statistic: a sum of cells, its ratio to a condition, or the difference between two such ratios.

    Attributes:
        name: The row's name.
        of: Weights of the cells of the joint table, shape (domain,).
        condition: The cells whose share is the denominator, or None.
        versus: For a difference, the other condition, otherwise None.
        cell: For a cell of the joint table, the name and value of each part.
    """

    name: str
    of: Floats
    condition: CellCondition | None = None
    versus: CellCondition | None = None
    cell: tuple[tuple[str, str], ...] = ()

    def of_truth(self, truth: Floats) -> float | None:
        """Return the true value, given a population's shares, or None if no device meets a condition."""
        if self.condition is None:
            return float(truth @ self.of)
        values: list[float] = []
        for condition in (self.condition, self.versus) if self.versus else (self.condition,):
            below = float(truth @ condition.cells)
            if not below:
                return None
            values.append(float(truth @ (condition.cells * self.of)) / below)
        return values[0] - values[1] if self.versus else values[0]


@dataclass(frozen=True)
class PairTable:
    """Statistics of one kind that are shown together.

    Attributes:
        mean_of: The name of the part whose means the statistics are, or "" if they are shares.
    """

    kind: Literal["joint", "marginal", "conditional", "difference"]
    title: str
    statistics: tuple[PairStatistic, ...]
    mean_of: str = ""

    @property
    def quantity(self) -> Quantity:
        """Whether the statistics are shares or readings."""
        return "reading" if self.mean_of else "share"


def statistics(estimates: Estimates, pair_statistics: Sequence[PairStatistic]) -> list[Statistic]:
    """Estimate statistics, which must all be of the same kind.

    Raises:
        EstimateError: If they cannot be estimated from the reports.
    """
    numerators = np.stack([statistic.of for statistic in pair_statistics], axis=1)
    if pair_statistics[0].condition is None:
        estimated = estimates.linear_many(numerators)
        return [estimated[i] for i in range(len(pair_statistics))]
    condition_cells = np.stack(
        [statistic.condition.cells for statistic in pair_statistics if statistic.condition], axis=1
    )
    if pair_statistics[0].versus is None:
        return list(ratios(estimates, numerators * condition_cells, condition_cells))
    sides = [
        (statistic.of[:, None], statistic.condition, statistic.versus)
        for statistic in pair_statistics
        if statistic.condition and statistic.versus
    ]
    both = [(of, np.stack([first.cells, second.cells], axis=1)) for of, first, second in sides]
    return [paired_difference(estimates, of * two, two) for of, two in both]


def denominators(one: PairStatistic, statistic: Statistic) -> list[tuple[CellCondition, Ratio]]:
    """Return a statistic's denominators: each condition with its ratio."""
    if isinstance(statistic, Ratio) and one.condition:
        return [(one.condition, statistic)]
    if isinstance(statistic, RatioDifference) and one.condition and one.versus:
        return [(one.condition, statistic.first), (one.versus, statistic.second)]
    return []


def joint(experiment: Experiment, rows: int) -> PairTable:
    """Return the share of each cell.

    Args:
        experiment: The experiment.
        rows: The maximum number of ranges for a number.

    Raises:
        UsageError: If there are too many cells.
    """
    names = [part.name for part in parts_of(experiment)]
    if (count := joint_cells(experiment, rows)) > _MAX_JOINT:
        raise UsageError(f"the joint table has {count:,} cells; ask for some of them with {_option_names()}")
    pair_statistics: list[PairStatistic] = []
    for cell in product(*(cells.groups(experiment, part, rows) for part in range(len(names)))):
        values = (condition.text.partition("=")[2] for condition in cell)
        weights = np.prod([condition.cells for condition in cell], axis=0)
        text = ", ".join(condition.text for condition in cell)
        pair_statistics.append(PairStatistic(text, weights, cell=tuple(zip(names, values, strict=True))))
    return PairTable("joint", f"{SHARE_OF_FLEET}: {' and '.join(names)}", tuple(pair_statistics))


def joint_cells(experiment: Experiment, rows: int) -> int:
    """Return the number of cells in the joint table, with at most `rows` ranges for a number."""
    return math.prod(
        min(rows, value_count(p)) + p.domain - value_count(p) if p.type == "number" else p.domain
        for p in parts_of(experiment)
    )


def marginal(experiment: Experiment, part: str, rows: int) -> PairTable:
    """Return the share of each of a part's values, grouped into at most `rows` ranges if it is a number.

    If the part sets `missing`, the shares of values are relative to devices with a reading, and the share
    without a reading is relative to all devices.
    """
    number = cells.part_number(experiment, part)
    conditions = cells.groups(experiment, number, rows)
    pair_statistics = tuple(PairStatistic(c.text, c.cells) for c in conditions)
    if not cells.having(experiment, (number,)).all():
        everybody = CellCondition(f"a reading of {part}", (), np.ones(experiment.domain))
        pair_statistics = tuple(
            PairStatistic(c.text, c.cells, _with_reading(experiment, everybody, c)) for c in conditions
        )
    return PairTable("marginal", f"{SHARE_OF_FLEET}: {part}", pair_statistics)


def conditional(experiment: Experiment, of: str, given: str, rows: int) -> PairTable:
    """Return the statistics of `of` among the devices that meet each condition of `given`.

    Args:
        experiment: The experiment.
        of: A condition or a part; by default the last part.
        given: A condition or a part; by default the first part that does not appear in `of`.
        rows: The maximum number of ranges for a number.

    Raises:
        UnitsError: If the experiment has no such part or value.
        UsageError: If the conditions already determine the answer, or there are too many rows.
    """
    targets, mean_of = _targets(experiment, of, given)
    conditions, text = _conditions(experiment, given, targets, rows)
    if "=" in given:
        _check_undetermined(targets, conditions)
    if len(targets) * len(conditions) > _MAX_ROWS:
        raise UsageError(
            f"the table would exceed {_MAX_ROWS:,} rows; ask for one of them with {_option_names('or')}"
        )
    is_single = len(targets) == 1
    pair_statistics = tuple(
        PairStatistic(
            c.text if is_single else f"{target.text} given {c.text}",
            target.cells,
            _with_reading(experiment, c, target),
        )
        for c in conditions
        for target in targets
    )
    target_name = targets[0].text if is_single else _part_of(experiment, targets[0])
    return PairTable("conditional", f"{target_name} given {text}", pair_statistics, mean_of)


def difference(experiment: Experiment, of: str, versus: tuple[str, str]) -> tuple[PairTable, PairTable]:
    """Return the statistic of `of` under each of two conditions, and the first minus the second."""
    first, second = (cells.parse(experiment, text) for text in versus)
    if np.array_equal(first.cells, second.cells):
        raise UsageError(f"both conditions of {option('given')} are {first.text}; name two different ones")
    targets, mean_of = _targets(experiment, of, "", first.parts + second.parts)
    if len(targets) > 1:
        name, quoted = f"a value of {_part_of(experiment, targets[0])}", f'"{targets[0].text}"'
        raise UsageError(f"a difference compares a single share; name {name}, as in {option('of', quoted)}")
    _check_undetermined(targets, (first, second))
    (one,) = targets
    first, second = (_with_reading(experiment, side, one) for side in (first, second))
    title = f"{one.text} given"
    sides = tuple(PairStatistic(side.text, one.cells, side) for side in (first, second))
    less = PairStatistic(f"{first.text} less {second.text}", one.cells, first, second)
    return (
        PairTable("conditional", title, sides, mean_of),
        PairTable("difference", f"{one.text}: {less.name}", (less,), mean_of),
    )


def summary(experiment: Experiment, rows: int) -> list[PairTable]:
    """Return the joint table if it is small, a table for each part, and the last part given the first."""
    is_small = joint_cells(experiment, rows) <= MAX_CELLS
    tables = [joint(experiment, rows)] if is_small else []
    tables += [marginal(experiment, part.name, rows) for part in parts_of(experiment)]
    if is_small or parts_of(experiment)[-1].type != "choice":
        tables.append(conditional(experiment, "", "", rows))
    return tables


def tables(experiment: Experiment, question: PairQuestion, rows: int) -> list[PairTable]:
    """Return all tables that a question asks for, in display order."""
    if question.joint and (question.of or question.given or question.versus):
        raise UsageError(
            f"{option('joint')} shows every cell, {_option_names()} only some; omit one or the other"
        )
    if question.versus and question.given:
        raise UsageError("versus already names two conditions; omit either versus or given")
    if not question:
        return summary(experiment, rows)
    if question.joint:
        return [joint(experiment, rows)]
    if question.versus:
        return [*difference(experiment, question.of, question.versus)]
    return [conditional(experiment, question.of, question.given, rows)]


def _option_names(word: str = "and") -> str:
    return f"{option('of')} {word} {option('given')}"


def _targets(
    experiment: Experiment, of: str, given: str, condition_parts: tuple[int, ...] = ()
) -> tuple[list[CellCondition], str]:
    """Return the targets: a condition's cells, those of each value of a part, or a number's bin midpoints.

    The second result is the part's name for midpoints, otherwise "".

    Args:
        experiment: The experiment.
        of: A condition or a part; by default the last part that is neither `given` nor in `condition_parts`.
        given: The part or condition that the statistics are conditional on.
        condition_parts: The parts that appear in the conditions.
    """
    if "=" in of:
        return [cells.parse(experiment, of)], ""
    if not of:
        condition_parts = condition_parts or (cells.parts_in(experiment, given) if given else ())
        other_parts = [part for part in range(len(parts_of(experiment))) if part not in condition_parts]
        if not other_parts:
            raise UsageError(
                f"the conditions use every part; name the share that you want with {option('of')}"
            )
    part = cells.part_number(experiment, of) if of else other_parts[-1]
    reading = parts_of(experiment)[part]
    if reading.type == "number":
        midpoints = np.zeros(reading.domain)
        midpoints[: value_count(reading)] = bin_middles(reading)
        middles = cells.indicator(experiment, part, midpoints)
        return [CellCondition(f"mean {reading.name}", (part,), middles)], reading.name
    targets = cells.values(experiment, part)
    return targets[1:] if reading.type == "bool" else targets, ""


def _with_reading(experiment: Experiment, condition: CellCondition, of: CellCondition) -> CellCondition:
    """Restrict a condition to devices with a reading of the target, unless the target is "no reading"."""
    having = cells.having(experiment, of.parts)
    if (of.cells * (1 - having)).any():
        return condition
    return replace(condition, cells=condition.cells * having)


def _conditions(
    experiment: Experiment, given: str, targets: Sequence[CellCondition], rows: int
) -> tuple[list[CellCondition], str]:
    """Return the conditions that `given` names, and a name for the whole set."""
    if "=" in given:
        condition = cells.parse(experiment, given)
        return [condition], condition.text
    other_parts = [part for part in range(len(parts_of(experiment))) if part not in targets[0].parts]
    if not given and not other_parts:
        raise UsageError(f"{option('of')} uses every part, which leaves none to condition on; omit one")
    part = cells.part_number(experiment, given) if given else other_parts[0]
    if part in targets[0].parts:
        raise UsageError(
            f"{_option_names()} both name {parts_of(experiment)[part].name}; name two different parts"
        )
    return cells.groups(experiment, part, rows), f"each {parts_of(experiment)[part].name}"


def _check_undetermined(targets: Sequence[CellCondition], conditions: Sequence[CellCondition]) -> None:
    """Raise UsageError if a condition already determines the target."""
    for condition in conditions:
        for target in targets if len(targets) == 1 else ():
            inside = target.cells[condition.cells > 0]
            if inside.min() == inside.max():
                raise UsageError(
                    f"{condition.text} already determines {target.text}; name a condition on another part "
                    f"with {option('given')}"
                )


def _part_of(experiment: Experiment, condition: CellCondition) -> str:
    return parts_of(experiment)[condition.parts[0]].name
