"""Give boards a value of an experiment's open group, such as a firmware version, on each day.

The shares of the values are an array of shape (days, values): a row for each day, summing to 1, and a column
for each listed value and, last, for "other"; without a group there is one column. Boards are updated in a
fixed order: a value whose share grows gains the next boards and loses none, and one whose share falls, as
when a release is rolled back, loses those that got it last.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.readings_file import Reading
from ..server.arrays import Counts, Floats
from ..server.typed_numbers import typed_float, typed_share
from ..server.wire.experiments import every_by_index, group_values
from .population import ByGroup, Population, PopulationError

STAGES = (0.01, 0.05, 0.25, 1.0)
"""Default shares of the newest value, each for an equal part of the days."""
_ONE_DAY = (0.05,)  # the same if there are too few days for stages
_ROUNDING = 1e-9


def default_shares(experiment: Experiment, days: int, people: Population | None = None) -> Floats:
    """Return the shares of a file, or those while the last listed value rolls out in STAGES.

    All other boards have the value listed before it, or "other" if it is the only one.

    Args:
        experiment: The experiment.
        days: Number of days.
        people: The population, which has shares if its file has a column for the group.

    Returns:
        The shares, shape (days, values).
    """
    if isinstance(people, ByGroup) and people.shares:
        return np.tile(people.shares, (days, 1))
    if not experiment.group:
        return np.ones((days, 1))
    return _staged(
        experiment, {len(experiment.groups) - 1: STAGES if days >= len(STAGES) else _ONE_DAY}, days
    )


def parse_shares(experiment: Experiment, texts: Sequence[str], days: int) -> Floats:
    """Return the shares by day of texts such as "2.4.0=0.05" or, in stages, "2.4.0=0.01,0.05,0.25,1".

    Each stage lasts an equal part of the days. Boards without a listed share have the newest value that is
    not in the texts.

    Raises:
        PopulationError: If a text has another form, or the shares of a day are more than 1.
    """
    stages: dict[int, Sequence[float]] = {}
    for text in texts:
        example = "2.4.0=0.05 or, in stages, 2.4.0=0.01,0.25,1"
        index, numbers = _parse_value(experiment, text, example, typed_share)
        if not all(0 <= number <= 1 for number in numbers):
            raise PopulationError(f"a group's shares must be from 0 to 1, not {text}")
        if index in stages:
            raise PopulationError(f"the shares of group {group_values(experiment)[index]} are given twice")
        if len(numbers) > days:
            advice = "give one share, or add --to" if days == 1 else "use more --days"
            raise PopulationError(f"{text} has more stages than days ({days}); {advice}")
        stages[index] = numbers
    return _staged(experiment, stages, days)


def parse_shifts(experiment: Experiment, texts: Sequence[str]) -> dict[int, float]:
    """Return the change of readings by the group value's index, from texts such as "2.4.0=0.03".

    Raises:
        PopulationError: If a text has another form.
    """
    shifts: dict[int, float] = {}
    for text in texts:
        index, numbers = _parse_value(experiment, text, "2.4.0=0.03", typed_float)
        if len(numbers) != 1:
            raise PopulationError(f"a group's readings change by one number, such as 2.4.0=0.03, not {text}")
        shifts[index] = numbers[0]
    return shifts


def stages_of(shares: Floats) -> Iterator[tuple[int, int, Floats]]:
    """Yield the first day, the day after the last, and the shares of each run of equal days."""
    starts = [0, *(np.flatnonzero((shares[1:] != shares[:-1]).any(axis=1)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(shares)], strict=True):
        yield start, end, shares[start]


def values_at(shares: Floats, positions: Floats) -> Counts:
    """Return the index of each board's value.

    Args:
        shares: The shares of a day, shape (values,).
        positions: Each board's place in the order of updates, from 0 to below 1, shape (boards,).
    """
    order = _newest_first(len(shares))
    ends = np.cumsum(shares[order])
    last = np.flatnonzero(shares[order])[-1]  # rounding may leave the sum slightly below 1
    return order[np.minimum(np.searchsorted(ends, positions, side="right"), last)]


def draw_values(experiment: Experiment, shares: Floats, n: int, rng: np.random.Generator) -> list[str]:
    """Return n boards' values of the open group, drawn from a day's shares, shape (values,)."""
    values = group_values(experiment) or ("",)
    return [values[i] for i in values_at(shares, rng.random(n)).tolist()]


def sample_by_group(
    people: Population, experiment: Experiment, values: Counts, rng: np.random.Generator
) -> list[Reading]:
    """Return one reading for each board, given the index of its value of the open group, shape (boards,)."""
    readings: list[Reading] = [None] * len(values)
    for i in np.unique(values).tolist():
        boards = np.flatnonzero(values == i)
        samples = people.of_group(i).sample(experiment, len(boards), rng)
        for board, reading in zip(boards.tolist(), samples, strict=True):
            readings[board] = reading
    return readings


def reports_per_call(experiment: Experiment, shares: Floats) -> float:
    """Return the mean number of reports that a call makes, over all boards and days."""
    rates = 1 / np.array(every_by_index(experiment))
    return float(shares.mean(axis=0) @ rates)


def _parse_value(
    experiment: Experiment, text: str, example: str, typed: Callable[[str], float]
) -> tuple[int, list[float]]:
    """Return the index and the numbers of VALUE=NUMBER,NUMBER."""
    values = group_values(experiment)
    if not experiment.group:
        raise PopulationError(f"{experiment.name} has no open group; omit {text}")
    value, _, numbers = text.rpartition("=")
    if value not in values:
        raise PopulationError(
            f"write a value of group {experiment.group} and a number, such as {example}, not {text}; "
            f"its values are {', '.join(values)}"
        )
    try:
        return values.index(value), [typed(number) for number in numbers.split(",")]
    except ValueError:
        raise PopulationError(f"write a number after {value}=, such as {example}, not {text}") from None


def _staged(experiment: Experiment, stages: Mapping[int, Sequence[float]], days: int) -> Floats:
    shares = np.zeros((days, len(experiment.groups) + 1))
    for index, numbers in stages.items():
        shares[:, index] = np.array(numbers)[np.arange(days) * len(numbers) // days]
    rest = 1 - shares.sum(axis=1)
    unlisted = [i for i in _newest_first(shares.shape[1]).tolist() if i not in stages]
    least, most = (-_ROUNDING, math.inf if unlisted else _ROUNDING)
    for missing in (float(rest.min()), float(rest.max())):
        if not least <= missing <= most:
            raise PopulationError(
                f"the shares of group {experiment.group} add up to {1 - missing:g}, not to 1"
            )
    if unlisted:
        shares[:, unlisted[0]] = np.maximum(rest, 0)
    return shares / shares.sum(axis=1, keepdims=True)


def _newest_first(values: int) -> Counts:
    """Return the indices of a number of values in the order of updates, "other" last."""
    return np.append(np.arange(values - 1)[::-1], values - 1)
