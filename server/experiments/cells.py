"""Conditions that select cells of a pair's table: "version=1.2", "delay=15:", "crashed=yes&version!=1.2"."""

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
    'a condition reads part=value, such as "version=1.2", "version=1.2|1.3", "delay=15:" or "version!=1.2"'
)


@dataclass(frozen=True)
class CellCondition:
    """A condition on cells of the joint table.

    Attributes:
        text: Its name.
        parts: The numbers of the parts that it depends on, rising.
        cells: 1 for the cells that fulfil it and 0 for all others, shape (domain,).
    """

    text: str
    parts: tuple[int, ...]
    cells: Floats


def shape(experiment: Experiment) -> tuple[int, ...]:
    """Return the number of values of each part.

    Raises:
        UnitsError: If the type is not a pair.
    """
    if experiment.type != "pair":
        raise UnitsError(f"{experiment.name} is a {experiment.type}: only a pair has parts")
    return tuple(part.domain for part in parts_of(experiment))


def part_number(experiment: Experiment, name: str) -> int:
    """Return the number of a part by its name.

    Raises:
        UnitsError: If there is no such part; the message lists the parts.
    """
    shape(experiment)
    names = [part.name for part in parts_of(experiment)]
    if name not in names:
        raise UnitsError(f"{experiment.name} has no part {name}; it has {', '.join(names)}")
    return names.index(name)


def parts_in(experiment: Experiment, text: str) -> tuple[int, ...]:
    """Return the numbers of the parts in a condition or in a part's name.

    Raises:
        UnitsError: If there is no such part.
    """
    return parse(experiment, text).parts if "=" in text else (part_number(experiment, text),)


def where(part: Reading, name: str) -> str:
    """Return a part and its value in words: "version=1.2"."""
    return f"{part.name}={name}"


def _as_range(text: str) -> str:
    """Return a range as named in tables, "5 to 10", in the notation 5:10, and any other text unchanged."""
    if text.startswith("below "):
        return f":{text.removeprefix('below ')}"
    if text.endswith(" and above"):
        return f"{text.removesuffix(' and above')}:"
    return text.replace(" to ", ":")


def indicator(experiment: Experiment, part: int, own: Floats) -> Floats:
    """Return numbers for a part's values, (values,) or (values, n), as numbers for the table's cells."""
    return factors.spread_out(own, shape(experiment), (part,))


def values(experiment: Experiment, part: int) -> list[CellCondition]:
    """Return each value of a part as a condition, in order, without a missing reading."""
    reading = parts_of(experiment)[part]
    alone = np.eye(reading.domain)
    return [
        CellCondition(where(reading, name), (part,), indicator(experiment, part, alone[i]))
        for i, name in enumerate(index_names(reading))
    ]


def having(experiment: Experiment, parts: Sequence[int]) -> Floats:
    """Return 1 for the cells in which all these parts have a reading, and 0 for others, shape (domain,)."""
    result = np.ones(experiment.domain)
    for part in parts:
        reading = parts_of(experiment)[part]
        own = (np.arange(reading.domain) < value_count(reading)).astype(float)
        result = result * indicator(experiment, part, own)
    return result


def groups(experiment: Experiment, part: int, most: int) -> list[CellCondition]:
    """Return a part's values as conditions, those of a number in at most `most` ranges of equal width.

    The last condition is a missing reading, if the part sets `missing`.
    """
    reading = parts_of(experiment)[part]
    count = value_count(reading)
    if count == reading.domain:
        return _value_groups(experiment, part, most)
    missing = CellCondition(where(reading, NO_READING), (part,), 1 - having(experiment, (part,)))
    return [*_value_groups(experiment, part, most), missing]


def _value_groups(experiment: Experiment, part: int, most: int) -> list[CellCondition]:
    reading = parts_of(experiment)[part]
    count = value_count(reading)
    width = math.ceil(count / most) if reading.type == "number" else 1
    if width == 1:
        return values(experiment, part)
    edges, result = bin_edges(reading), []
    for first in range(0, count, width):
        last = min(first + width, count)
        own = np.zeros(reading.domain)
        own[first:last] = 1
        text = where(reading, range_name(reading, first, last, edges))
        result.append(CellCondition(text, (part,), indicator(experiment, part, own)))
    return result


def parse(experiment: Experiment, text: str) -> CellCondition:
    """Return the cells of a condition.

    A condition is "part=value" or "part!=value", with several values separated by | and several parts by &. A
    number's values are ranges low:high in its unit, moved to the nearest edges of its bins, or "below 5", "5
    to 10", "10 and above". "no reading" is a value of a part that sets `missing`; "!=" never includes it.

    Raises:
        UnitsError: If the condition does not fit the experiment.
    """
    cells, part_numbers, clauses = np.ones(experiment.domain), set[int](), list[str]()
    shape(experiment)
    for clause in text.split("&"):
        name, equals, alternatives = clause.partition("=")
        others = name.endswith("!")
        name = name.removesuffix("!").strip()
        if not equals:
            raise UnitsError(f"{EXAMPLE}; not {clause.strip() or 'nothing'}")
        part = part_number(experiment, name)
        reading = parts_of(experiment)[part]
        own, words = np.zeros(reading.domain), []
        for one in alternatives.split("|"):
            value = one.strip()
            if value == NO_READING and value_count(reading) < reading.domain:
                own[-1] = 1
                words.append(value)
                continue
            r = parse_range(reading, _as_range(value) if reading.type == "number" else value)
            own[r.low : r.high] = 1
            words.append(r.text if reading.type == "number" else value)
        if others:
            own = (np.arange(reading.domain) < value_count(reading)) * (1 - own)
        cells = cells * indicator(experiment, part, own)
        part_numbers.add(part)
        clauses.append(f"{name}{'!=' if others else '='}{'|'.join(words)}")
    if not cells.any():
        raise UnitsError(f"{text} holds no cell: nothing can be both")
    return CellCondition(" & ".join(clauses), tuple(sorted(part_numbers)), cells)
