"""The case that an experiment's file was planned for, and the planned error beside the measured one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..planning.devices import Z, check_sizes
from ..planning.expected_error import Design, OfMean, Places, Question, asked
from ..planning.sentences import asked as in_words
from ..server.arrays import Floats
from ..server.estimate.estimate import Estimates
from ..server.experiments.definition import Definition
from ..server.experiments.planned import PlannedCase
from ..server.mechanisms.choice import Choice
from .calls import expected_reports
from .population import Population, weighted

_MOST_PLACES = 256  # of which the measured error is the root of the mean square


@dataclass(frozen=True)
class PlannedError:
    """Half-widths of 95 % intervals: shares of the devices, of a mean parts of the range.

    question: what they are of. planned: for as many reports as there are. measured: the interval's that the
    reports gave. missed: how far the estimate was from the truth.
    """

    question: str
    mean: bool
    planned: float
    measured: float
    missed: float


@dataclass(frozen=True)
class PlannedFleet:
    """A planned case: its question, in the design that its file has."""

    definition: Definition
    planned: PlannedCase
    question: Question
    places: Places | OfMean

    @property
    def _place(self) -> int:
        """The place whose error is nearest to the planned one, which is the mean of all places."""
        return int(np.argmin(np.abs(self.places.variance - self.places.variance.mean())))

    @property
    def population(self) -> Population:
        """What boards hold: the planned share at one place, the rest spread evenly."""
        shares = self.places.population(self._values, self._place).tolist()
        return weighted(shares, float(self.planned.missing or 0))

    @property
    def _values(self) -> int:
        """Number of values, no reading not among them."""
        return self.definition.domain - self.definition.missing

    @property
    def words(self) -> str:
        """What boards hold, as `hushmote simulate` says it."""
        if isinstance(self.places, OfMean):
            return "what the plan assumed"
        return f"what the plan assumed: {100 * self.places.share:.3g} % of them what it asks about"

    def error(self, estimates: Estimates, truth: Floats, given: bool) -> PlannedError:
        """The planned error beside the measured one; given: the population is another than planned."""
        domain = self._values
        weights = np.stack([self.places.statistic(domain, i) for i in self._asked(truth, given)], axis=1)
        estimated = estimates.linear_many(weights)
        planned = self.planned.devices * expected_reports(estimates.experiment, self.planned.calls)
        return PlannedError(
            in_words(self.question),
            self.question.kind == "mean",
            float(self.planned.error) * math.sqrt(planned / estimates.reports),
            Z * _root_mean_square(estimated.stderr),
            _root_mean_square(estimated.value - truth @ weights),
        )

    def _asked(self, truth: Floats, given: bool) -> list[int]:
        """The places that are asked for: the planned one, a quantile's, or of other readings all."""
        if not given or isinstance(self.places, OfMean):
            return [self._place if not given else 0]
        count = len(self.places.low)
        if self.question.kind == "quantile":
            return [int(np.argmin(np.abs(np.cumsum(truth)[:count] - self.places.share)))]
        return np.unique(np.linspace(0, count - 1, min(count, _MOST_PLACES)).round().astype(int)).tolist()


def case_of(definition: Definition) -> PlannedFleet | None:
    """The case that a file was planned for, None where it keeps none. Raises PlanError."""
    planned = definition.planned
    if planned is None:
        return None
    share, spread = (None if x is None else float(x) for x in (planned.share, planned.spread))
    values = definition.domain - definition.missing
    missing = float(planned.missing or 0) if definition.missing else None
    question = Question(planned.of, share, planned.width, planned.ranges, spread, missing)
    check_sizes(question, planned.devices, values)
    experiment = definition.experiment()
    fields = definition.mechanism_fields()
    choice = Choice(fields.pop("mechanism"), tuple((k, _frozen(v)) for k, v in fields.items()), 0.0)
    design = Design(values, experiment.epsilon, choice, missing)
    return PlannedFleet(definition, planned, question, asked(design, question))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
