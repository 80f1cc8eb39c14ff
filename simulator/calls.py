"""The number of reports that result from a fleet's calls to report(), given `every` and the budget."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..device.ldp_client import Experiment
from ..server import special
from ..server.wire.experiments import reports_in_budget
from .population import PopulationError

MAX_REPORTS = 1_000_000_000
MAX_CALLS = 1_000_000
_USUAL_REPORTS = 10  # default maximum per device, if the number of calls is not given


@dataclass(frozen=True)
class Reporting:
    """The result of a fleet's calls.

    Attributes:
        calls: Number of calls to report() by each device.
        calls_are_fixed: Whether `calls` was requested; otherwise each device calls until it has made all its
            reports, and `calls` is the average number that this takes.
        reporting_devices: Number of devices that made at least one report.
        spent: Number of devices that used up their budget; 0 if they have no limit.
    """

    devices: int
    calls: int
    calls_are_fixed: bool
    reports: int
    reporting_devices: int
    spent: int

    @property
    def readings(self) -> int:
        """Total number of calls, each with a reading."""
        return max(self.reports, self.devices * self.calls)


def usual_reports(experiment: Experiment) -> int:
    """Return the default number of reports per device, which is what its budget allows but at most 10."""
    return min(reports_in_budget(experiment) or 1, _USUAL_REPORTS)


def usual_calls(experiment: Experiment, group: int) -> int:
    """Return the number of calls that result in usual_reports() on average.

    Args:
        experiment: The experiment.
        group: Index of the device's value of the open group.
    """
    return usual_reports(experiment) * experiment.every_of(group)


def expected_reports(experiment: Experiment, calls: int, group: int = 0) -> float:
    """Return a device's expected number of reports after these calls, given `every` and its budget.

    Args:
        experiment: The experiment.
        calls: Number of calls.
        group: Index of the device's value of the open group.
    """
    max_reports, every = min(reports_in_budget(experiment) or calls, calls), experiment.every_of(group)
    if max_reports == calls:
        return calls / every
    return float(special.bdtrc(np.arange(max_reports), calls, 1 / every).sum())


def draw(
    experiment: Experiment, devices: int, calls: int | None, rng: np.random.Generator, group: int = 0
) -> Reporting:
    """Draw the number of reports that devices make in `calls` calls each, or None for the usual number.

    Each call makes a report with probability 1/every until the budget is used up.

    Args:
        experiment: The experiment.
        devices: Number of devices.
        calls: Number of calls.
        rng: Source of the draws.
        group: Index of the devices' value of the open group.

    Raises:
        PopulationError: If there are more than 1,000,000,000 reports, or 1,000,000 calls per device.
    """
    max_reports = reports_in_budget(experiment)
    if calls is None:
        reports_each = usual_reports(experiment)
        check_reports(devices * reports_each)
        spent = devices if reports_each == max_reports else 0
        return Reporting(
            devices, usual_calls(experiment, group), False, devices * reports_each, devices, spent
        )
    if not 1 <= calls <= MAX_CALLS:
        raise PopulationError(f"--calls must be from 1 to {MAX_CALLS:,}, not {calls}")
    every = experiment.every_of(group)
    check_reports(devices * min(calls / every, max_reports or calls))
    devices_by_reports = _draw_report_counts(devices, min(max_reports or calls, calls), calls, every, rng)
    spent = (
        int(devices_by_reports[max_reports])
        if max_reports is not None and max_reports < len(devices_by_reports)
        else 0
    )
    return Reporting(
        devices,
        calls,
        True,
        int(devices_by_reports @ np.arange(len(devices_by_reports))),
        devices - int(devices_by_reports[0]),
        spent,
    )


def total(parts: Sequence[Reporting]) -> Reporting:
    """Return the result of the calls of several parts of a fleet, at least one."""
    devices = sum(part.devices for part in parts)
    calls = round(sum(part.devices * part.calls for part in parts) / devices)
    reports, reporting_devices, spent = (
        sum(getattr(part, name) for part in parts) for name in ("reports", "reporting_devices", "spent")
    )
    return Reporting(devices, calls, parts[0].calls_are_fixed, reports, reporting_devices, spent)


def check_reports(reports: float) -> None:
    """Raise PopulationError for more reports than can be drawn."""
    if reports > MAX_REPORTS:
        raise PopulationError(
            f"that would be about {reports:,.0f} reports, and the limit is {MAX_REPORTS:,}; "
            "use fewer devices or calls"
        )


def _draw_report_counts(
    devices: int, max_reports: int, calls: int, every: int, rng: np.random.Generator
) -> np.ndarray:
    """Return the number of devices that make 0, 1, ..., max_reports reports, shape (max_reports + 1,)."""
    # scipy.stats has this distribution too, but takes longer to load than most simulations take to run.
    below = special.bdtr(np.arange(max_reports), calls, 1 / every)
    chances = np.diff(below, prepend=0.0, append=1.0)
    return rng.multinomial(devices, chances / chances.sum())
