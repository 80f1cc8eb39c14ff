"""Readings of a simulated fleet's devices: distributions, explicit weights, or a CSV file's column.

A `Population` samples readings for devices (the faithful path) and gives index probabilities (the vectorised
path), both from one distribution. Numbers are in an experiment's unit, such as degrees.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..planning.readings_file import ColumnType, Reading, is_blank, read_readings
from ..planning.tables import CsvTable, ListTable, Table
from ..planning.written_numbers import ReadingRules
from ..server.errors import HushmoteError
from ..server.experiments import units
from ..server.mechanisms.views.factors import parts_of
from ..server.typed_numbers import typed_float
from ..server.wire.experiments import is_own_type, log_edges, value_count


class PopulationError(HushmoteError):
    """Raised for a population that is invalid or does not fit the experiment."""


class Population(ABC):
    """A distribution over readings."""

    @abstractmethod
    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        """Return n independent readings for `Client.report`; None means no reading.

        Raises:
            PopulationError: If the population does not fit the experiment.
        """

    @abstractmethod
    def probabilities(self, experiment: Experiment) -> np.ndarray:
        """Return the probability of each index and, last, of no reading, shape (domain + 1,).

        Raises:
            PopulationError: If the population does not fit the experiment.
        """

    def indices(self, experiment: Experiment) -> Sequence[int] | None:
        """Return the indices of probabilities() if the domain is too large for an array, otherwise None."""
        return None

    def of_group(self, index: int) -> "Population":
        """Return the readings of boards whose value of the open group has this index; all are equal here."""
        return self


@dataclass(frozen=True)
class ByGroup(Population):
    """Readings that depend on the board's value of the open group.

    Attributes:
        everyone: The readings of boards whose value is not in `by_index`.
        by_index: A value's index in the experiment -> the readings of boards with this value.
        shares: Share of boards with each value, if a file has them; otherwise empty.
    """

    everyone: Population
    by_index: Mapping[int, Population] = field(default_factory=dict)
    shares: tuple[float, ...] = ()

    def of_group(self, index: int) -> Population:
        return self.by_index.get(index, self.everyone)

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        return self.everyone.sample(experiment, n, rng)

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        return self.everyone.probabilities(experiment)

    def indices(self, experiment: Experiment) -> Sequence[int] | None:
        return self.everyone.indices(experiment)

    def map(self, function: Callable[[Population], Population]) -> "ByGroup":
        """Return the population with a function applied to each group's readings."""
        by_index = {i: function(people) for i, people in self.by_index.items()}
        return replace(self, everyone=function(self.everyone), by_index=by_index)


@dataclass(frozen=True)
class Continuous(Population):
    """A distribution of numbers: `draw(rng, n)` samples it, `cdf(x)` is the probability of x or less."""

    name: str
    draw: Callable[[np.random.Generator, int], np.ndarray]
    cdf: Callable[[float], float]

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        _require_number(self.name, experiment)
        return self.draw(rng, n).tolist()

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        _require_number(self.name, experiment)
        low, span, bins = experiment.low, experiment.high - experiment.low, value_count(experiment)
        # A board rounds to the nearest milli-unit first, so bin i starts half a milli-unit before its edge.
        starts = log_edges(experiment)[1:-1] or (low - (-span * i // bins) for i in range(1, bins))
        below = [0.0, *(self.cdf((start - 0.5) / 1000) for start in starts), 1.0]
        return _add_missing(experiment, np.diff(below) / np.sum(np.diff(below)), 0.0)


@dataclass(frozen=True)
class Weighted(Population):
    """Values of an experiment, each with its weight: `weights(values)` returns them, shape (values,).

    Attributes:
        missing: Share of devices without a reading, 0 to 1.
    """

    name: str
    weights: Callable[[int], np.ndarray]
    missing: float = 0.0

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        chosen = rng.choice(experiment.domain + 1, n, p=self.probabilities(experiment))
        readings = [reading_in(experiment, i) for i in range(experiment.domain)] + [None]
        return [readings[i] for i in chosen.tolist()]

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        weights = self.weights(value_count(experiment))
        return _add_missing(experiment, weights / weights.sum() * (1 - self.missing), self.missing)


@dataclass(frozen=True)
class Recorded(Population):
    """Recorded readings, None for no reading; a sample draws from them with replacement.

    Attributes:
        weights: Weight of each reading; if empty, all weights are 1.
        notes: Sentences on what was assumed about their file, and on what was left out.
    """

    readings: tuple[Reading, ...]
    weights: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        self.counts(experiment)  # raises if they do not fit
        if self.weights:
            chosen = rng.choice(len(self.readings), n, p=np.array(self.weights) / sum(self.weights))
        else:
            chosen = rng.integers(0, len(self.readings), n)
        return [self.readings[i] for i in chosen.tolist()]

    def counts(self, experiment: Experiment) -> np.ndarray:
        """Return the number of readings with each index and, last, of missing ones, shape (domain + 1,).

        Raises:
            PopulationError: If the readings do not fit the experiment's type.
        """
        weighted_readings = (
            zip(self.readings, self.weights, strict=True) if self.weights else Counter(self.readings).items()
        )
        counts = np.zeros(experiment.domain + 1, float if self.weights else np.int64)
        try:
            for reading, count in weighted_readings:
                index = experiment.bucket(reading)
                counts[experiment.domain if index is None else index] += count
        except TypeError as e:
            raise PopulationError(str(e)) from None
        return counts

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        counts = self.counts(experiment)
        return counts / counts.sum()


def _add_missing(experiment: Experiment, values: np.ndarray, missing: float) -> np.ndarray:
    """Return shares in the order of probabilities(), whether or not "no reading" has an index."""
    if value_count(experiment) < experiment.domain:
        return np.append(values, [missing, 0.0])
    return np.append(values, missing)


def shares_with_reading(experiment: Experiment, shares: np.ndarray) -> np.ndarray:
    """Return the shares of the values among those with a reading, from those of the indices.

    They are unchanged for a pair, or if "no reading" does not have an index.
    """
    values = shares[: value_count(experiment)] if len(shares) == experiment.domain else shares
    if len(values) == len(shares):
        return shares
    return values / values.sum() if values.sum() > 0 else values


@dataclass(frozen=True)
class FileRows:
    """The rows of a file of readings.

    Attributes:
        count: Number of rows.
        blank: Number of rows without a reading; for a pair, in either part.
        notes: Sentences on what was assumed, and on what was left out.
    """

    count: float
    blank: float
    notes: tuple[str, ...] = ()


def rows_of(people: Population) -> FileRows | None:
    """Return a recorded population's total and blank row counts; None for other populations."""
    if isinstance(people, ByGroup):
        return rows_of(people.everyone)
    if not isinstance(people, Recorded):
        return None
    weights = people.weights or (1,) * len(people.readings)
    blank = sum(n for reading, n in zip(people.readings, weights, strict=True) if is_blank(reading))
    return FileRows(sum(weights), blank, people.notes)


def reported_shares(index_counts: np.ndarray, missing: int) -> np.ndarray:
    """Return the shares of the indices among reports, shape (domain,).

    The `missing` reports without a reading are reported as a uniform index, so their share is spread evenly.
    """
    return (index_counts + missing / len(index_counts)) / max(1, index_counts.sum() + missing)


def reading_in(experiment: units.Reading, index: int) -> Reading:
    """Return a reading with this index: a bin's middle, a label, a bool, None, or a tuple of these.

    Raises:
        PopulationError: If no reading has this index, such as a bin narrower than a milli-unit.
    """
    if value_count(experiment) <= index < experiment.domain:
        return None
    if experiment.type == "bool":
        return index == 1
    if experiment.type == "pair":
        part_indices = np.unravel_index(index, [part.domain for part in parts_of(experiment)])
        return tuple(
            reading_in(part, int(i)) for part, i in zip(parts_of(experiment), part_indices, strict=True)
        )
    if experiment.type == "text" or is_own_type(experiment.type):
        raise PopulationError(f"{experiment.name} is about texts; list them with zipf:1.1:FILE or file:FILE")
    if experiment.type == "choice":
        label = experiment.labels[index] if index < len(experiment.labels) else "other"
        while index == len(experiment.labels) and label in experiment.labels:
            label += "?"
        return label
    edges, span = log_edges(experiment), experiment.high - experiment.low
    milli = experiment.low + (2 * index + 1) * span // (2 * value_count(experiment))
    if edges:
        milli = (edges[index] + edges[index + 1]) // 2
    reading = milli / 1000
    if experiment.bucket(reading) != index:
        raise PopulationError(
            f"bin {index} of {experiment.name} is narrower than 0.001, so no reading falls into it"
        )
    return reading


def _require_number(name: str, experiment: Experiment) -> None:
    if experiment.type != "number":
        raise PopulationError(
            f"{name} supports only number experiments; {experiment.name} is a {experiment.type}"
        )


# --- Named distributions --------------------------------------------------------------------------


def uniform(low: float, high: float) -> Continuous:
    """Return the uniform distribution between low and high."""
    _require(low < high, "uniform:low:high needs low below high")
    return Continuous(
        "uniform",
        lambda rng, n: rng.uniform(low, high, n),
        lambda x: min(max((x - low) / (high - low), 0.0), 1.0),
    )


def normal(mean: float, deviation: float) -> Continuous:
    """Return a normal distribution."""
    _require(deviation > 0, "normal:mean:deviation needs a deviation above 0")
    return Continuous(
        "normal", lambda rng, n: rng.normal(mean, deviation, n), lambda x: _phi((x - mean) / deviation)
    )


def lognormal(median: float, deviation: float) -> Continuous:
    """Return a lognormal distribution; `deviation` is that of the natural logarithm."""
    _require(median > 0 < deviation, "lognormal:median:deviation needs numbers above 0")
    return Continuous(
        "lognormal",
        lambda rng, n: rng.lognormal(math.log(median), deviation, n),
        lambda x: _phi(math.log(x / median) / deviation) if x > 0 else 0.0,
    )


def exponential(mean: float) -> Continuous:
    """Return an exponential distribution."""
    _require(mean > 0, "exponential:mean needs a mean above 0")
    return Continuous(
        "exponential", lambda rng, n: rng.exponential(mean, n), lambda x: -math.expm1(-max(x, 0.0) / mean)
    )


def bimodal(mean: float, deviation: float, mean2: float, deviation2: float, share: float = 0.5) -> Continuous:
    """Return a mixture of two normal distributions; `share` is the first one's share."""
    _require(deviation > 0 < deviation2, "bimodal:mean:deviation:mean2:deviation2 needs deviations above 0")
    _require(0 <= share <= 1, "bimodal's share, the last number, must be from 0 to 1")

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        first = rng.random(n) < share
        return np.where(first, rng.normal(mean, deviation, n), rng.normal(mean2, deviation2, n))

    def cdf(x: float) -> float:
        return share * _phi((x - mean) / deviation) + (1 - share) * _phi((x - mean2) / deviation2)

    return Continuous("bimodal", draw, cdf)


def constant(value: float) -> Continuous:
    """Return the same number for every device."""
    return Continuous("constant", lambda _, n: np.full(n, value), lambda x: float(x > value))


def _phi(z: float) -> float:
    return math.erfc(-z / math.sqrt(2)) / 2


def even() -> Weighted:
    """Return equal weights for all indices."""
    return Weighted("even", np.ones)


def zipf(exponent: float) -> Weighted:
    """Return a weight of (i + 1)^-exponent for index i."""
    _require(exponent >= 0, "zipf:exponent needs an exponent of 0 or more")
    return Weighted("zipf", lambda domain: np.arange(1.0, domain + 1) ** -exponent)


def concentrated(share: float, index: int = 0) -> Weighted:
    """Return the given share for one index, and equal shares for all others."""
    _require(0 <= share <= 1, "concentrated:share needs a share from 0 to 1")

    def weights(domain: int) -> np.ndarray:
        _require(0 <= index < domain, f"concentrated: index {index} must be in range({domain})")
        out = np.full(domain, (1 - share) / (domain - 1))
        out[index] = share
        return out

    return Weighted("concentrated", weights)


def weighted(weights: Sequence[float], missing: float = 0.0) -> Weighted:
    """Return weights[i] for value i; there must be one for each value of the experiment.

    Args:
        weights: Numbers of 0 or more, not all 0.
        missing: Share of devices without a reading, 0 to 1.
    """
    values = np.array(weights, float)
    is_valid = values.ndim == 1 and np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0
    _require(bool(is_valid), "weights must be numbers of 0 or more, not all 0")

    def check(domain: int) -> np.ndarray:
        _require(
            len(values) == domain, f"{len(values)} weights do not fit an experiment with {domain} indices"
        )
        return values

    return Weighted("weights", check, missing)


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise PopulationError(text)


# name -> minimum and maximum count of numbers, form, constructor
_SPECS: dict[str, tuple[int, int, str, Callable[..., Population]]] = {
    "uniform": (2, 2, "uniform, or uniform:low:high", uniform),
    "normal": (2, 2, "normal:mean:deviation", normal),
    "lognormal": (2, 2, "lognormal:median:deviation of the natural logarithm", lognormal),
    "exponential": (1, 1, "exponential:mean", exponential),
    "bimodal": (4, 5, "bimodal:mean:deviation:mean2:deviation2[:share]", bimodal),
    "constant": (1, 1, "constant:value", constant),
    "zipf": (1, 1, "zipf:exponent", zipf),
    "concentrated": (1, 2, "concentrated:share[:index]", concentrated),
    "weights": (2, 1 << 24, "weights:w0:w1:...", lambda *weights: weighted(weights)),
}


def parse(spec: str) -> Population:
    """Return the population of a spec such as "normal:21:3", "zipf:1.2" or "weights:1:2:7".

    uniform:low:high, normal, lognormal, exponential, bimodal and constant are for numbers, in the
    experiment's unit; uniform alone, zipf, concentrated and weights are over the indices of any experiment.

    Raises:
        PopulationError: If the distribution is unknown or its numbers are invalid; the message is one line.
    """
    name, *texts = spec.split(":")
    if name not in _SPECS:
        raise PopulationError(f"unknown distribution {name!r}; choose from {', '.join(_SPECS)}")
    min_count, max_count, form, construct = _SPECS[name]
    try:
        numbers = [typed_float(text) for text in texts]
    except ValueError:
        numbers = [math.nan]
    if spec == "uniform":
        return even()
    if not (min_count <= len(numbers) <= max_count and all(math.isfinite(x) for x in numbers)):
        raise PopulationError(f"{spec!r} must have the form {form}, with finite numbers")
    if name == "concentrated" and len(numbers) == 2:
        _require(numbers[1] == int(numbers[1]), f"{spec!r}: the index must be a whole number")
        return concentrated(numbers[0], int(numbers[1]))
    return construct(*numbers)


# --- Recorded readings ----------------------------------------------------------------------------


def read_csv(
    path: Path | str,
    column: str,
    type: str = "number",
    labels: Sequence[str] = (),
    rules: ReadingRules | None = None,
) -> Recorded:
    """Return the readings in a CSV file's column; raise PopulationError if they cannot be read."""
    return _record(CsvTable(path, (column,), PopulationError), ColumnType(column, type, tuple(labels)), rules)


def record(
    readings: Iterable[Any], type: str, labels: Sequence[str] = (), rules: ReadingRules | None = None
) -> Recorded:
    """Return the readings in a list, an array or a data frame's column as a population.

    Raises:
        PopulationError: If they cannot be read, or do not have the type.
    """
    return _record(ListTable(readings, PopulationError), ColumnType(0, type, tuple(labels)), rules)


def _record(table: Table, column: ColumnType, rules: ReadingRules | None) -> Recorded:
    result = read_readings(table, [column], rules)
    return Recorded(result.columns[0], notes=result.notes)
