"""Simulate some days of a fleet and fill a store as if its boards had reported.

Each board calls report() at a fixed interval from a random start; `every` determines which calls make a
report, until the budget is used up. The store receives what an aggregator would write: histograms by window
of arrival, and each device's report numbers.
"""

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.pairs import ROWS
from ..server.answers.rows import Row
from ..server.arrays import Counts, Floats
from ..server.errors import UsageError
from ..server.estimate.estimate import estimate
from ..server.estimate.readings import among_readings
from ..server.estimate.statistic import EstimateError
from ..server.experiments.answerable import answerable_questions
from ..server.experiments.cells import groups
from ..server.experiments.definition import Definition
from ..server.experiments.units import bin_middles, index_names
from ..server.mechanisms.views.factors import parts_of
from ..server.store.number_set import NumberSet
from ..server.store.store import Store
from ..server.wire.experiments import reports_in_budget
from ..server.wire.topics import SIMULATED_PREFIX
from . import vectorised
from .calls import check_reports
from .drift import shift_population
from .faithful import random_ids
from .population import Population, PopulationError, reported_shares, shares_with_reading
from .texts import is_text_type, text_shares

FLEET = "simulated"
MAX_DAYS = 3660
MAX_CALLS = 86_400
_USED = 2 / 3  # share of a board's budget that the default call interval uses over the days
_CHUNK = 50_000  # number of boards drawn and written at once


class SimulatedFleetError(UsageError):
    """Raised for a fleet to which simulated reports must not or cannot be written."""


@dataclass(frozen=True)
class Course:
    """A fleet's days.

    Attributes:
        people: Population on the first day; it moves by `drift` each day, see drift.shift_population().
        calls_per_day: Calls per board and day, above 0; 0.1 is a call every ten days.
        today: The date in UTC; the simulated days are whole days and end the day before.

    Raises:
        SimulatedFleetError: If the fleet's name does not begin with "sim".
        DefinitionError: If the experiment has expired.
        PopulationError: If readings do not fit, or there are too many reports, days or calls.
    """

    fleet: str
    definition: Definition
    devices: int
    people: Population
    days: int
    calls_per_day: float
    drift: float
    today: datetime.date

    def __post_init__(self) -> None:
        if not self.fleet.startswith(SIMULATED_PREFIX):
            raise SimulatedFleetError(
                f"simulated reports need a fleet whose name begins with {SIMULATED_PREFIX}, such as "
                f"{FLEET}, not {self.fleet}: otherwise they could not be distinguished from real ones"
            )
        if not 1 <= self.days <= MAX_DAYS:
            raise PopulationError(f"--days must be from 1 to {MAX_DAYS:,}, not {self.days}")
        if not 0 < self.calls_per_day <= MAX_CALLS:
            raise PopulationError(
                f"--calls a day must be above 0 and at most {MAX_CALLS}, not {self.calls_per_day:g}"
            )
        self.definition.check_not_expired()
        max_reports = reports_in_budget(self.experiment)
        reports_per_board = self.days * self.calls_per_day / self.experiment.every
        check_reports(
            self.devices * (reports_per_board if max_reports is None else min(max_reports, reports_per_board))
        )
        assert len(self.chances) == self.days

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment as it is published."""
        return self.definition.experiment()

    @cached_property
    def chances(self) -> list[Floats]:
        """For each day, the probabilities of each index and, last, of no reading, shape (domain + 1,)."""
        populations = (
            shift_population(self.people, self.experiment, self.drift * day) for day in range(self.days)
        )
        return [people.probabilities(self.experiment) for people in populations]

    @cached_property
    def indices(self) -> Sequence[int] | None:
        """Indices to which `chances` refers, if the domain is too large for an array."""
        return self.people.indices(self.experiment)

    @property
    def dates(self) -> list[datetime.date]:
        """The days, oldest first."""
        return [self.today - datetime.timedelta(days=n) for n in range(self.days, 0, -1)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"experiment": self.experiment.name, "fleet": self.fleet, "devices": self.devices}


def usual_calls(experiment: Experiment, days: int) -> float:
    """Return the daily calls that use two thirds of a board's budget over the days, or 1 without a budget."""
    max_reports = reports_in_budget(experiment)
    reports = float(days) if max_reports is None else _USED * max_reports
    return float(f"{reports * experiment.every / days:.2g}")


def draw_report_times(
    course: Course, n: int, rng: np.random.Generator
) -> Iterator[tuple[int, Counts, Floats]]:
    """Yield, for report 1, 2, 3, ..., the boards (of n) that make it, and when, in days from the start.

    The number of calls between two reports is geometric, as if each call made a report independently.
    """
    phase = rng.random(n)
    calls = np.full(n, -1.0)  # index of the last call of a board that made a report
    active_boards = np.arange(n)
    max_reports, number = reports_in_budget(course.experiment), 0
    while max_reports is None or number < max_reports:
        calls[active_boards] += rng.geometric(1 / course.experiment.every, len(active_boards))
        days = (calls[active_boards] + phase[active_boards]) / course.calls_per_day
        is_in_time = days < course.days
        active_boards, days, number = active_boards[is_in_time], days[is_in_time], number + 1
        if not len(active_boards):
            return
        yield number, active_boards, days


def known_truth(course: Course, truth: Floats) -> tuple[str, float]:
    """Return the name and value of the true statistic shown: a number's mean, or the share of one value.

    The value is "yes", the first label or text, or the first value of a pair's first part. `truth` has the
    shares of the values among those with a reading; for a text, it is the share of all texts in its slot.
    """
    experiment = course.experiment
    if experiment.type == "pair":
        first = groups(experiment, 0, ROWS)[0]
        return first.text, float(truth @ first.cells)
    if experiment.type == "number":
        return "mean", float(truth @ bin_middles(experiment))
    if course.indices is not None:
        return next(iter(text_shares(course.people) or ())), float(truth[0])
    if is_text_type(experiment.type):
        text = next(iter(text_shares(course.people) or ()), "")
        return text, float(truth[experiment.bucket(text) or 0])
    index = int(experiment.type == "bool")
    return index_names(experiment)[index], float(truth[index])


@dataclass(frozen=True)
class WindowTruth:
    """A statistic in one window, or in all: the estimate, and the truth among the reports."""

    window: str
    reports: int
    statistic: str
    row: Row

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        head = {"window": self.window, "reports": self.reports, "statistic": self.statistic}
        return head | {key: value for key, value in self.row.to_dict().items() if key != "name"}


@dataclass(frozen=True)
class FilledFleet:
    """A filled store: the boards that reported or used up their budget, windows, truth.

    Attributes:
        truths: Truths for the first window, the last, and all combined, if there are enough reports.
    """

    course: Course
    reporting_devices: int
    spent: int
    windows: dict[str, int]
    truths: tuple[WindowTruth, ...]

    @property
    def reports(self) -> int:
        """Total number of reports."""
        return sum(self.windows.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        course = self.course
        return course.to_dict() | {
            "days": course.days,
            "calls_per_day": course.calls_per_day,
            "drift_per_day": course.drift,
            "spoke": self.reporting_devices,
            "spent": self.spent,
            "reports": self.reports,
            "windows": self.windows,
            "truths": [truth.to_dict() for truth in self.truths],
        }


def fill(
    store: Store,
    course: Course,
    rng: np.random.Generator,
    advance: Callable[[float], object] = lambda more: None,
) -> FilledFleet:
    """Add the experiment and write the days into the store, in one transaction.

    Args:
        store: The store to fill.
        course: The fleet and its days.
        rng: Source of the readings and codes.
        advance: Called with the share of the work done since the last call.

    Raises:
        SimulatedFleetError: If the fleet is keyed or already has reports for the experiment.
        StoreError: If the store cannot be written.
    """
    fleet, definition, experiment = course.fleet, course.definition, course.experiment
    if store.fleets().get(fleet):
        raise SimulatedFleetError(f"fleet {fleet} is keyed; simulated reports need an open or a new fleet")
    if experiment.name in store.participation(fleet):
        raise SimulatedFleetError(
            f"fleet {fleet} already has reports of {experiment.name}; use another name, such as "
            f"--fleet {SIMULATED_PREFIX}-2, or another store"
        )
    store.add_fleet(fleet, keyed=False)
    described = definition.description()
    store.add_experiment(fleet, definition.payload(), definition.expires, description=described)
    version = next(v for v in store.experiments(fleet) if v.experiment.digest == experiment.digest)
    hours = 24 if experiment.window == "hour" else 1
    slots = np.zeros(course.days * hours, np.int64)
    max_reports = reports_in_budget(experiment)
    reporting_devices = spent = 0
    windows: dict[str, int] = {}
    ends: list[tuple[str, Counts, Counts]] = []
    totals = np.zeros(len(course.chances[0]), np.int64), np.zeros(experiment.code_count, np.int64)
    with store.ingest() as transaction:
        ids = sorted(random_ids(course.devices, rng))
        for start in range(0, course.devices, _CHUNK):
            chunk = ids[start : start + _CHUNK]
            report_counts = np.zeros(len(chunk), np.int64)
            for number, boards, times in draw_report_times(course, len(chunk), rng):
                report_counts[boards] = number
                slots += np.bincount((times * hours).astype(np.int64), minlength=len(slots))
            reporting_devices += int(np.count_nonzero(report_counts))
            spent += 0 if max_reports is None else int(np.count_nonzero(report_counts == max_reports))
            sets = [NumberSet(n) for n in range(int(report_counts.max()) + 1)]
            numbers = zip(chunk, report_counts.tolist(), strict=True)
            transaction.write(
                {(fleet, experiment.name, device): sets[n] for device, n in numbers if n}, {}, {}
            )
            advance(len(chunk) / course.devices / 2)
        for window, readings in _windows(course, slots, hours, rng):
            missing = int(readings[-1])
            counts = vectorised.histogram(
                experiment, readings[:-1], rng, no_reading=missing, of=course.indices
            )
            codes = np.flatnonzero(counts)
            rows = zip(codes.tolist(), counts[codes].tolist(), strict=True)
            transaction.write({}, {(version.id, window, 0, code): n for code, n in rows}, {})
            windows[window] = int(counts.sum())
            ends[1:] = [(window, readings, counts)]
            for total, more in zip(totals, (readings, counts), strict=True):
                total += more
            advance(0.5 / len(slots))
    truths = _truths(course, [*(ends if len(ends) > 1 else []), ("all", *totals)])
    return FilledFleet(course, reporting_devices, spent, windows, truths)


def _windows(
    course: Course, slots: Counts, per_day: int, rng: np.random.Generator
) -> Iterator[tuple[str, Counts]]:
    """Yield each window's reading counts by index, no reading last, shape (domain + 1,)."""
    totals = np.zeros(len(course.chances[0]), np.int64)
    for i, reports in enumerate(slots.tolist()):
        readings = rng.multinomial(reports, course.chances[i // per_day])
        if course.experiment.window == "all":
            totals += readings
        elif reports:
            day = course.dates[i // per_day].isoformat()
            yield (f"{day}T{i % per_day:02d}" if per_day > 1 else day), readings
    if totals.any():
        yield "all", totals


def _truths(course: Course, windows: Sequence[tuple[str, Counts, Counts]]) -> tuple[WindowTruth, ...]:
    """Return the truth and the estimate of one statistic in each window that has enough reports.

    Each window has its readings and codes. Experiments that discover texts have no such statistic.
    """
    e, truths = course.experiment, list[WindowTruth]()
    for window, readings, codes in [] if "discovery" in answerable_questions(e) else windows:
        truth = shares_with_reading(e, reported_shares(readings[:-1], int(readings[-1])))
        with contextlib.suppress(EstimateError):  # too few reports for an estimate
            fleet = FleetEstimate(
                among_readings(estimate(e, codes)), unit=course.definition.unit, truth=truth
            )
            statistic, true = known_truth(course, truth)
            if e.type == "pair":
                answer = fleet.pairs.marginal(parts_of(e)[0].name, ROWS)
            else:
                answer = fleet.mean() if e.type == "number" else fleet.share(statistic)
            row = replace(answer.rows[0], truth=true)
            truths.append(WindowTruth(window, int(codes.sum()), statistic, row))
    return tuple(truths)
