"""The case that an experiment's file was planned for: the planned error compared with the measured one."""

import math
from dataclasses import dataclass

import numpy as np

from ..planning.devices import Z, check_sizes
from ..planning.expected_error import MeanPopulation, Places, Question, question_places
from ..planning.question_set import set_question
from ..planning.sentences import describe_question
from ..server.arrays import Floats
from ..server.estimate.estimate import Estimates
from ..server.experiments.definition import Definition
from ..server.experiments.planned_case import PlannedCase
from .calls import expected_reports
from .population import Population, weighted

_MAX_PLACES = 256  # places in the measured error's root mean square


@dataclass(frozen=True)
class PlannedError:
    """Half-widths of 95% intervals: shares of the devices or, for a mean, fractions of the range.

    Attributes:
        question: The statistic, in words.
        planned: The planned half-width, for the actual number of reports.
        measured: The half-width of the interval from these reports.
        missed: The difference between estimate and truth.
    """

    question: str
    mean: bool
    planned: float
    measured: float
    missed: float


@dataclass(frozen=True)
class PlannedFleet:
    """A planned case: its question and its file's design."""

    definition: Definition
    planned: PlannedCase
    question: Question
    places: Places | MeanPopulation

    @property
    def _place(self) -> int:
        """The place whose error is nearest to the planned one, which is the mean over all places."""
        return int(np.argmin(np.abs(self.places.variance - self.places.variance.mean())))

    @property
    def population(self) -> Population:
        """Population with the planned share at one place, and the rest spread evenly."""
        shares = self.places.population(self._values, self._place).tolist()
        return weighted(shares, float(self.planned.missing or 0))

    @property
    def _values(self) -> int:
        return self.definition.domain - self.definition.missing

    @property
    def words(self) -> str:
        """Description of the population for `hushmote simulate`."""
        if isinstance(self.places, MeanPopulation):
            return "the values that the plan assumed"
        return f"the values that the plan assumed, {100 * self.places.share:.3g}% of them in question"

    def error(self, estimates: Estimates, truth: Floats, has_other_population: bool) -> PlannedError:
        """Return the planned error together with the measured one.

        Args:
            estimates: Estimates from the reports.
            truth: Shares among the devices, shape (domain,).
            has_other_population: Whether the readings are from a population other than the planned one.
        """
        domain = self._values
        weights = np.stack(
            [self.places.statistic(domain, i) for i in self._places_to_compare(truth, has_other_population)],
            axis=1,
        )
        estimated = estimates.linear_many(weights)
        planned = self.planned.devices * expected_reports(estimates.experiment, self.planned.calls)
        return PlannedError(
            describe_question(self.question),
            self.question.kind == "mean",
            float(self.planned.error) * math.sqrt(planned / estimates.reports),
            Z * _root_mean_square(estimated.stderr),
            _root_mean_square(estimated.value - truth @ weights),
        )

    def _places_to_compare(self, truth: Floats, has_other_population: bool) -> list[int]:
        """Return the places to compare: the planned place or, for other populations, the quantile or all."""
        if not has_other_population or isinstance(self.places, MeanPopulation):
            return [self._place if not has_other_population else 0]
        count = len(self.places.low)
        if self.question.kind == "quantile":
            return [int(np.argmin(np.abs(np.cumsum(truth)[:count] - self.places.share)))]
        return np.unique(np.linspace(0, count - 1, min(count, _MAX_PLACES)).round().astype(int)).tolist()


def case_of(definition: Definition) -> PlannedFleet | None:
    """Return the case that a file was planned for, or None; raise PlanError if it is invalid."""
    planned = definition.planned
    if planned is None:
        return None
    asked = set_question(definition)
    check_sizes(asked.question, planned.devices, asked.design.domain)
    return PlannedFleet(definition, planned, asked.question, question_places(asked.design, asked.question))


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
