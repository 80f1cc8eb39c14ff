"""One statistic of simulated reports next to its true value."""

from dataclasses import dataclass, replace

from ..device.ldp_client import Experiment
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.pairs import ROWS
from ..server.answers.rows import Row
from ..server.arrays import Counts, Floats
from ..server.estimate.estimate import estimate
from ..server.estimate.readings import among_readings
from ..server.estimate.statistic import EstimateError
from ..server.experiments.answerable import answerable_questions
from ..server.experiments.cells import groups
from ..server.experiments.units import bin_middles, index_names
from ..server.mechanisms.views.factors import parts_of
from .population import Population, reported_shares, shares_with_reading
from .texts import is_text_type, text_shares


@dataclass(frozen=True)
class Tally:
    """Some reports.

    Attributes:
        readings: Number of reports with each index and, last, without a reading, shape (domain + 1,).
        codes: Histogram of their codes, shape (code_count,).
    """

    readings: Counts
    codes: Counts

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.readings + other.readings, self.codes + other.codes)

    @property
    def reports(self) -> int:
        """Total number of reports."""
        return int(self.codes.sum())


def known_truth(experiment: Experiment, people: Population, truth: Floats) -> tuple[str, float]:
    """Return the name and value of the true statistic shown: a number's mean, or the share of one value.

    The value is "yes", the first label or text, or the first value of a pair's first part.

    Args:
        experiment: The experiment.
        people: The population from which the readings come.
        truth: Shares of the values among those with a reading; for a text, that of all texts in its slot.
    """
    if experiment.type == "pair":
        first = groups(experiment, 0, ROWS)[0]
        return first.text, float(truth @ first.cells)
    if experiment.type == "number":
        return "mean", float(truth @ bin_middles(experiment))
    if people.indices(experiment) is not None:
        return next(iter(text_shares(people) or ())), float(truth[0])
    if is_text_type(experiment.type):
        text = next(iter(text_shares(people) or ()), "")
        return text, float(truth[experiment.bucket(text) or 0])
    index = int(experiment.type == "bool")
    return index_names(experiment)[index], float(truth[index])


def estimate_with_truth(
    experiment: Experiment, people: Population, unit: str, tally: Tally
) -> tuple[str, Row] | None:
    """Return one statistic's name, and its estimate and truth among some reports.

    The result is None if there are too few reports, or if the experiment discovers texts.

    Args:
        experiment: The experiment.
        people: The population from which the readings come.
        unit: The unit of the readings.
        tally: The reports.
    """
    if "discovery" in answerable_questions(experiment):
        return None
    index_counts, missing = tally.readings[:-1], int(tally.readings[-1])
    truth = shares_with_reading(experiment, reported_shares(index_counts, missing))
    try:
        fleet = FleetEstimate(among_readings(estimate(experiment, tally.codes)), unit=unit, truth=truth)
        name, true = known_truth(experiment, people, truth)
        if experiment.type == "pair":
            answer = fleet.pairs.marginal(parts_of(experiment)[0].name, ROWS)
        else:
            answer = fleet.mean() if experiment.type == "number" else fleet.share(name)
    except EstimateError:
        return None
    return name, replace(answer.rows[0], truth=true)
