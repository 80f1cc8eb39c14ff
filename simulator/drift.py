"""Populations that move from day to day, and what a fleet holds where nobody says it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from ..device.ldp_client import Experiment
from ..server.experiments.definition import Definition
from . import pairs, texts
from .population import (
    Continuous,
    Population,
    PopulationError,
    Reading,
    Recorded,
    parse,
    read_csv,
    reading_in,
)

_SPAN_MOVED = 8  # the usual drift moves a number by this part of its range, over all days
_SHARE_MOVED = 0.2  # and this share of a fleet to one label


@dataclass(frozen=True)
class Mixed(Population):
    """A population of which a share, 0 to 1, has turned to one index."""

    before: Population
    index: int
    share: float

    def sample(self, experiment: Experiment, n: int, rng: np.random.Generator) -> list[Reading]:
        turned, reading = rng.random(n) < self.share, reading_in(experiment, self.index)
        held = self.before.sample(experiment, n, rng)
        return [reading if now else before for now, before in zip(turned.tolist(), held, strict=True)]

    def indices(self, experiment: Experiment) -> Sequence[int] | None:
        return self.before.indices(experiment)

    def probabilities(self, experiment: Experiment) -> np.ndarray:
        chances = (1 - self.share) * self.before.probabilities(experiment)
        chances[self.index] += self.share
        return chances


def chosen(definition: Definition, spec: str | None) -> tuple[Population, str]:
    """Return what devices hold, and the spec that says it, such as "normal:21:3"; without one usual()'s.

    file:FILE:COLUMN are readings that were made, drawn from with replacement; file:FILE is a table of texts
    or of a pair's readings, each with its share or count. Raises PopulationError for one that does not fit.
    """
    said = spec or usual(definition)
    kind, _, file = said.partition(":")
    path, _, column = file.rpartition(":")
    if definition.of is not None:
        return pairs.parse(said, [(part.name, part.type) for part in definition.of]), said
    if kind == "file" and path:
        return read_csv(path, column, definition.type), said
    if kind == "file" and not texts.of_texts(definition.type):
        raise PopulationError(f"readings are in file:FILE:COLUMN, such as file:weather.csv:temp, not {said}")
    return texts.parse(said, definition.type) if texts.of_texts(definition.type) else parse(said), said


def usual(definition: Definition) -> str:
    """What devices hold where nobody says it: numbers around the middle, 3 of 10 "yes", all else by Zipf."""
    if definition.type == "number":
        assert definition.low is not None
        assert definition.high is not None
        low, high = float(definition.low), float(definition.high)
        return f"normal:{(low + high) / 2:g}:{(high - low) / 16:g}"
    return "weights:7:3" if definition.type == "bool" else "zipf:1"


def usual_drift(definition: Definition, people: Population, days: int) -> float:
    """Return a daily movement that shows after these days; 0 if the population has no unit to move in."""
    if texts.of_texts(definition.type) and not isinstance(people, texts.Texts):
        return 0.0
    if definition.type != "number":
        return float(f"{_SHARE_MOVED / days:.2g}")
    if not isinstance(people, Continuous | Recorded):
        return 0.0
    assert definition.low is not None
    assert definition.high is not None
    return float(f"{float(definition.high - definition.low) / _SPAN_MOVED / days:.2g}")


def moved(people: Population, experiment: Experiment, by: float) -> Population:
    """A population whose readings have moved.

    by: of a number, in its unit; otherwise the share of the fleet, 0 to 1, that has turned to "yes", to the
    first label or to the first text. Raises PopulationError where it cannot move so.
    """
    if not by:
        return people
    if not math.isfinite(by):
        raise PopulationError(f"a drift is a number, not {by:g}")
    if experiment.type != "number":
        if not 0 <= by <= 1:
            raise PopulationError(
                f"the drift of a {experiment.type} is the share of the fleet that turns to one label each "
                "day: over all days from 0 to 1"
            )
        if isinstance(people, texts.Texts):
            return people.turned(by)
        if texts.of_texts(experiment.type):
            raise PopulationError(
                "recorded texts cannot drift: leave --drift out, or take --population zipf:1"
            )
        return Mixed(people, int(experiment.type == "bool"), by)
    if isinstance(people, Continuous):
        draw, cdf = people.draw, people.cdf
        return replace(people, draw=lambda rng, n: draw(rng, n) + by, cdf=lambda x: cdf(x - by))
    if isinstance(people, Recorded):
        return Recorded(tuple(None if r is None else float(cast(float, r)) + by for r in people.readings))
    raise PopulationError(
        "only a population in the reading's unit can drift, such as normal:21:3; leave --drift out"
    )
