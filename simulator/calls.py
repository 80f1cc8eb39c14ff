"""How many reports a fleet makes from its calls to report(): the coin of `every`, and its budgets."""

from dataclasses import dataclass

import numpy as np

from ..device.ldp_client import Experiment
from ..server import special
from ..server.wire.experiments import reports_in_budget
from .population import PopulationError

MOST_REPORTS = 1_000_000_000
MOST_CALLS = 1_000_000
_USUAL_REPORTS = 10  # of a device at most, if nobody says how often devices are called


@dataclass(frozen=True)
class Reporting:
    """What a fleet's calls led to.

    calls: to report() of each device; given: whether that was asked for, otherwise each device calls until it
    has made `each` reports, which takes this many calls on average. spoke: devices that made a report, spent:
    devices that made as many as their budget holds, 0 where nothing bounds them.
    """

    devices: int
    calls: int
    given: bool
    reports: int
    spoke: int
    spent: int

    @property
    def readings(self) -> int:
        """All calls together, each with a reading."""
        return max(self.reports, self.devices * self.calls)


def usual_reports(experiment: Experiment) -> int:
    """Return a device's reports if nobody says how often it calls: all that its budget holds, up to 10."""
    return min(reports_in_budget(experiment) or 1, _USUAL_REPORTS)


def usual_calls(experiment: Experiment) -> int:
    """Return the calls that make usual_reports() on average."""
    return usual_reports(experiment) * experiment.every


def expected_reports(experiment: Experiment, calls: int) -> float:
    """Return a device's average reports after these calls, with the coin of `every` and its budget."""
    most = min(reports_in_budget(experiment) or calls, calls)
    if most == calls:
        return calls / experiment.every
    return float(special.bdtrc(np.arange(most), calls, 1 / experiment.every).sum())


def draw(experiment: Experiment, devices: int, calls: int | None, rng: np.random.Generator) -> Reporting:
    """Draw how many reports devices make from this many calls each; None: from as many as it takes.

    Each call makes a report with probability 1/every until the budget is spent. Raises PopulationError for
    more than 1,000,000,000 reports or 1,000,000 calls of a device.
    """
    most = reports_in_budget(experiment)
    if calls is None:
        each = usual_reports(experiment)
        check_reports(devices * each)
        spent = devices if each == most else 0
        return Reporting(devices, usual_calls(experiment), False, devices * each, devices, spent)
    if not 1 <= calls <= MOST_CALLS:
        raise PopulationError(f"--calls must be from 1 to {MOST_CALLS:,}, not {calls}")
    check_reports(devices * min(calls / experiment.every, most or calls))
    made = _made(experiment, devices, min(most or calls, calls), calls, rng)
    spent = int(made[most]) if most is not None and most < len(made) else 0
    return Reporting(devices, calls, True, int(made @ np.arange(len(made))), devices - int(made[0]), spent)


def check_reports(reports: float) -> None:
    """Raise PopulationError for more reports than can be drawn."""
    if reports > MOST_REPORTS:
        raise PopulationError(
            f"that makes about {reports:,.0f} reports, more than the {MOST_REPORTS:,} that are drawn "
            "at most: take fewer devices or calls"
        )


def _made(
    experiment: Experiment, devices: int, most: int, calls: int, rng: np.random.Generator
) -> np.ndarray:
    """Return how many devices make 0, 1, ..., most reports, shape (most + 1,)."""
    # scipy.stats knows the law too, but takes longer to load than most simulations take to run.
    below = special.bdtr(np.arange(most), calls, 1 / experiment.every)
    chances = np.diff(below, prepend=0.0, append=1.0)
    return rng.multinomial(devices, chances / chances.sum())
