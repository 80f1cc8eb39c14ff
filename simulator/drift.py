"""Populations that move from day to day, and default populations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.readings_file import ColumnType, read_readings
from ..planning.tables import CsvTable, split_source
from ..planning.written_numbers import ReadingRules
from ..server.experiments.definition import Definition
from ..server.wire.experiments import OTHER
from . import pairs, texts
from .population import (
    ByGroup,
    Continuous,
    Population,
    PopulationError,
    Reading,
    Recorded,
    parse,
    reading_in,
)

_SPAN_MOVED = 8  # the default drift moves a number by this fraction of its range (1/8) over all days
_SHARE_MOVED = 0.2  # share of a fleet that the default drift moves to one label


@dataclass(frozen=True)
class Mixed(Population):
    """A population in which a share, 0 to 1, has moved to one index."""

    before: Population
    index: int
    share: float

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        has_moved, reading = rng.random(n) < self.share, reading_in(experiment, self.index)
        readings = self.before.sample(experiment, n, rng)
        return [
            reading if moved else before for moved, before in zip(has_moved.tolist(), readings, strict=True)
        ]

    def indices(self, experiment: Experiment) -> Sequence[int] | None:
        return self.before.indices(experiment)

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        chances = (1 - self.share) * self.before.probabilities(experiment)
        chances[self.index] += self.share
        return chances


def choose_population(
    definition: Definition, spec: str | None, rules: ReadingRules | None = None
) -> tuple[Population, str]:
    """Return a population and its spec, such as "normal:21:3"; without a spec, that of default_spec().

    file:FILE:COLUMN samples recorded readings with replacement; if the file also has a column with the name
    of the experiment's open group, it samples them for each of the group's values. file:FILE is a table of
    texts, or of a pair's readings, each with its share or count.

    Raises:
        PopulationError: If the population does not fit the experiment.
    """
    spec_text = spec or default_spec(definition)
    kind, _, file = spec_text.partition(":")
    path, column = split_source(file)
    if definition.of is not None:
        parts = [ColumnType(part.name, part.type, part.labels or ()) for part in definition.of]
        return pairs.parse(spec_text, parts, rules), spec_text
    if kind == "file" and path:
        return _read_file(path, column, definition, rules), spec_text
    if kind == "file" and not texts.is_text_type(definition.type):
        raise PopulationError(
            f"for recorded readings, write file:FILE:COLUMN, such as file:weather.csv:temp, not {spec_text}"
        )
    if texts.is_text_type(definition.type):
        return texts.parse(spec_text, definition.type), spec_text
    return parse(spec_text), spec_text


def _read_file(path: str, column: str, definition: Definition, rules: ReadingRules | None) -> Population:
    """Return the readings of a file's column, by the open group's value if the file has a column for it."""
    group = definition.group
    table = CsvTable(path, (column, group or column), PopulationError)
    columns = [ColumnType(column, definition.type, definition.labels or ())]
    if group is None or group not in table.names:
        result = read_readings(table, columns, rules)
        return Recorded(result.columns[0], notes=result.notes)
    names = (*definition.groups, OTHER)
    result = read_readings(table, [*columns, ColumnType(group, "text", names)], rules)
    everyone, cells = Recorded(result.columns[0], notes=result.notes), result.columns[1]
    indices = [names.index(cell) if cell in names else len(definition.groups) for cell in cells]
    readings: dict[int, list[Reading]] = {}
    for index, reading in zip(indices, everyone.readings, strict=True):
        readings.setdefault(index, []).append(reading)
    shares = np.bincount(indices, minlength=len(names)) / len(indices)
    by_index: dict[int, Population] = {i: Recorded(tuple(of_value)) for i, of_value in readings.items()}
    return ByGroup(everyone, by_index, tuple(shares.tolist()))


def default_spec(definition: Definition) -> str:
    """Return the default spec: numbers around the scale's middle, 30% "yes", Zipf for everything else."""
    if definition.type == "number":
        assert definition.low is not None
        assert definition.high is not None
        low, high = float(definition.low), float(definition.high)
        if definition.scale:
            return f"lognormal:{math.sqrt(low * high):g}:{math.log(high / low) / 16:g}"
        return f"normal:{(low + high) / 2:g}:{(high - low) / 16:g}"
    return "weights:7:3" if definition.type == "bool" else "zipf:1"


def default_drift(definition: Definition, people: Population, days: int) -> float:
    """Return a daily drift that is visible after these days; 0 if the population has no unit to move in."""
    if isinstance(people, ByGroup):
        return default_drift(definition, people.everyone, days)
    if texts.is_text_type(definition.type) and not isinstance(people, texts.Texts):
        return 0.0
    if definition.type != "number":
        return float(f"{_SHARE_MOVED / days:.2g}")
    if not isinstance(people, Continuous | Recorded):
        return 0.0
    assert definition.low is not None
    assert definition.high is not None
    low, high = float(definition.low), float(definition.high)
    moved = (high - low) / _SPAN_MOVED
    if definition.scale:
        moved = math.sqrt(low * high) * ((high / low) ** (1 / _SPAN_MOVED) - 1)
    return float(f"{moved / days:.2g}")


def shift_population(people: Population, experiment: Experiment, by: float) -> Population:
    """Return a population whose readings have moved.

    Args:
        people: The population before the move.
        experiment: The experiment whose readings move.
        by: The shift of a number in its unit; otherwise the share of the fleet, 0 to 1, that has moved to
            "yes", the first label or the first text.

    Raises:
        PopulationError: If the population cannot move in this way.
    """
    if isinstance(people, ByGroup):
        return people.map(lambda readings: shift_population(readings, experiment, by))
    if not by:
        return people
    if not math.isfinite(by):
        raise PopulationError(f"a drift must be a finite number, not {by:g}")
    if experiment.type != "number":
        if not 0 <= by <= 1:
            raise PopulationError(
                f"the drift of a {experiment.type} is the share of the fleet that moves to one label each "
                "day: from 0 to 1 over all days"
            )
        if isinstance(people, texts.Texts):
            return people.move_to_first(by)
        if texts.is_text_type(experiment.type):
            raise PopulationError("recorded texts cannot drift; omit --drift, or use --population zipf:1")
        return Mixed(people, int(experiment.type == "bool"), by)
    if isinstance(people, Continuous):
        draw, cdf = people.draw, people.cdf
        return replace(people, draw=lambda rng, n: draw(rng, n) + by, cdf=lambda x: cdf(x - by))
    if isinstance(people, Recorded):
        return Recorded(tuple(None if r is None else float(cast(float, r)) + by for r in people.readings))
    raise PopulationError(
        "only a population in the reading's unit, such as normal:21:3, can drift; omit --drift"
    )


def shift_groups(people: Population, experiment: Experiment, shifts: Mapping[int, float]) -> Population:
    """Return a population in which the readings of boards with some values of the open group have moved.

    Args:
        people: The population before the move.
        experiment: The experiment whose readings move.
        shifts: A value's index -> the change, see shift_population().

    Raises:
        PopulationError: If the population cannot move in this way.
    """
    if not shifts:
        return people
    by_index = {i: shift_population(people.of_group(i), experiment, by) for i, by in shifts.items()}
    if isinstance(people, ByGroup):
        return replace(people, by_index={**people.by_index, **by_index})
    return ByGroup(people, by_index)
