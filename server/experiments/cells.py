"""Conditions that select cells of a pair's table, such as "version=1.2" or "crashed=yes&version!=1.2"."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..mechanisms.views import factors
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import value_count
from .units import NO_READING, Reading, UnitsError, bin_edges, index_names, parse_range, range_name

EXAMPLE = (
    'a condition must be part=value, such as "version=1.2", "version=1.2|1.3", "delay=15:" or "version!=1.2"'
)


@dataclass(frozen=True)
class CellCondition:
    """A condition on cells of the joint table.

    Attributes:
        text: The condition's name.
        parts: The indices of the parts that it depends on, ascending.
        cells: 1 for cells that satisfy it and 0 for all others, shape (domain,).
    """

    text: str
    parts: tuple[int, ...]
    cells: Floats


def shape(experiment: Experiment) -> tuple[int, ...]:
    """Return each part's number of values.

    Raises:
        UnitsError: If the type is not a pair.
    """
    if experiment.type != "pair":
        raise UnitsError(f"{experiment.name} is a {experiment.type}, and only a pair has parts")
    return tuple(part.domain for part in parts_of(experiment))


def part_number(experiment: Experiment, name: str) -> int:
    """Return a part's index by its name.

    Raises:
        UnitsError: If the part does not exist; the message lists the parts.
    """
    shape(experiment)
    names = [part.name for part in parts_of(experiment)]
    if name not in names:
        raise UnitsError(f"{experiment.name} has no part {name}; it has {', '.join(names)}")
    return names.index(name)


def parts_in(experiment: Experiment, text: str) -> tuple[int, ...]:
    """Return the indices of the parts in a condition, or of the named part.

    Raises:
        UnitsError: If a part does not exist.
    """
    return parse(experiment, text).parts if "=" in text else (part_number(experiment, text),)


def where(part: Reading, name: str) -> str:
    """Return a part and its value as a condition, such as "version=1.2"."""
    return f"{part.name}={name}"


def indicator(experiment: Experiment, part: int, selection: Floats) -> Floats:
    """Expand numbers for a part's values, (values,) or (values, n), to numbers for the table's cells."""
    return factors.spread_out(selection, shape(experiment), (part,))


def values(experiment: Experiment, part: int) -> list[CellCondition]:
    """Return each of a part's values as a condition, in order, without a missing reading."""
    reading = parts_of(experiment)[part]
    identity = np.eye(reading.domain)
    return [
        CellCondition(where(reading, name), (part,), indicator(experiment, part, identity[i]))
        for i, name in enumerate(index_names(reading))
    ]


def having(experiment: Experiment, parts: Sequence[int]) -> Floats:
    """Return 1 for cells in which all these parts have a reading, else 0, shape (domain,)."""
    result = np.ones(experiment.domain)
    for part in parts:
        reading = parts_of(experiment)[part]
        selection = (np.arange(reading.domain) < value_count(reading)).astype(float)
        result = result * indicator(experiment, part, selection)
    return result


def groups(experiment: Experiment, part: int, max_groups: int) -> list[CellCondition]:
    """Return a part's values as conditions, in at most `max_groups` ranges of equal width for a number.

    The last condition is a missing reading, if the part sets `missing`.
    """
    reading = parts_of(experiment)[part]
    count = value_count(reading)
    if count == reading.domain:
        return _value_groups(experiment, part, max_groups)
    missing = CellCondition(where(reading, NO_READING), (part,), 1 - having(experiment, (part,)))
    return [*_value_groups(experiment, part, max_groups), missing]


def _value_groups(experiment: Experiment, part: int, max_groups: int) -> list[CellCondition]:
    reading = parts_of(experiment)[part]
    count = value_count(reading)
    width = math.ceil(count / max_groups) if reading.type == "number" else 1
    if width == 1:
        return values(experiment, part)
    edges, result = bin_edges(reading), []
    for first in range(0, count, width):
        last = min(first + width, count)
        selection = np.zeros(reading.domain)
        selection[first:last] = 1
        text = where(reading, range_name(reading, first, last, edges))
        result.append(CellCondition(text, (part,), indicator(experiment, part, selection)))
    return result


def parse(experiment: Experiment, text: str) -> CellCondition:
    """Return the cells that a condition selects.

    A condition is "part=value" or "part!=value"; | separates several values, and & several parts. A number's
    values are ranges low:high in its unit, moved to the nearest bin edges, or "below 5", "5 to 10", "10 and
    above". "no reading" is a value of a part that sets `missing`; "!=" never includes it.

    Raises:
        UnitsError: If the condition does not fit the experiment.
    """
    cells, part_numbers, clauses = np.ones(experiment.domain), set[int](), list[str]()
    shape(experiment)
    for clause in text.split("&"):
        name, equals, alternatives = clause.partition("=")
        is_negated = name.endswith("!")
        name = name.removesuffix("!").strip()
        if not equals:
            raise UnitsError(f"{EXAMPLE}, not {clause.strip() or 'nothing'}")
        part = part_number(experiment, name)
        reading = parts_of(experiment)[part]
        selection, words = np.zeros(reading.domain), []
        for alternative in alternatives.split("|"):
            value = alternative.strip()
            if value == NO_READING and value_count(reading) < reading.domain:
                selection[-1] = 1
                words.append(value)
                continue
            r = parse_range(reading, value)
            selection[r.low : r.high] = 1
            words.append(r.text)
        if is_negated:
            selection = (np.arange(reading.domain) < value_count(reading)) * (1 - selection)
        cells = cells * indicator(experiment, part, selection)
        part_numbers.add(part)
        clauses.append(f"{name}{'!=' if is_negated else '='}{'|'.join(words)}")
    if not cells.any():
        raise UnitsError(f"{text} selects no cell, as the conditions exclude each other")
    return CellCondition(" & ".join(clauses), tuple(sorted(part_numbers)), cells)
