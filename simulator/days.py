"""Simulate some days of a fleet and fill a store as if its boards had reported.

Each board calls report() at a fixed interval from a random start; `every` determines which calls make a
report, until the budget is used up. The store receives what an aggregator would write: histograms by window
of arrival, and each device's report numbers.
"""

import datetime
import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.rows import Row
from ..server.arrays import Counts, Floats
from ..server.errors import UsageError
from ..server.experiments.definition import Definition
from ..server.store.number_set import NumberSet
from ..server.store.store import Store
from ..server.wire.experiments import every_by_index, group_values, reports_in_budget
from ..server.wire.topics import SIMULATED_PREFIX
from . import vectorised
from .calls import check_reports
from .drift import shift_population
from .faithful import random_ids
from .known_truth import Tally, estimate_with_truth
from .population import Population, PopulationError
from .rollout import default_shares, reports_per_call, stages_of, values_at

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
        shares: Shares of the open group's values by day, see rollout; default: default_shares().
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
    shares: Floats | None = None

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
        reports_per_board = (
            self.days * self.calls_per_day * reports_per_call(self.experiment, self.group_shares)
        )
        check_reports(
            self.devices * (reports_per_board if max_reports is None else min(max_reports, reports_per_board))
        )
        assert len(self.chances) == len(self.group_shares) == self.days

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment as it is published."""
        return self.definition.experiment()

    @cached_property
    def group_shares(self) -> Floats:
        """The shares of the open group's values by day, shape (days, values)."""
        return default_shares(self.experiment, self.days, self.people) if self.shares is None else self.shares

    @cached_property
    def chances(self) -> list[list[Floats]]:
        """For each day and value of the open group, the probabilities of each index and, last, of no reading.

        Their shape is (domain + 1,).
        """
        values = range(self.group_shares.shape[1])
        groups = [self.people.of_group(i) for i in values]
        distinct = {id(people): people for people in groups}
        result: list[list[Floats]] = []
        for day in range(self.days):
            chances = {
                key: shift_population(people, self.experiment, self.drift * day).probabilities(
                    self.experiment
                )
                for key, people in distinct.items()
            }
            result.append([chances[id(people)] for people in groups])
        return result

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


def usual_calls(experiment: Experiment, shares: Floats) -> float:
    """Return the daily calls that use two thirds of the boards' budgets over the days, or 1 without a budget.

    Args:
        experiment: The experiment.
        shares: The shares of the open group's values by day, shape (days, values).
    """
    max_reports, days = reports_in_budget(experiment), len(shares)
    reports = float(days) if max_reports is None else _USED * max_reports
    return float(f"{reports / reports_per_call(experiment, shares) / days:.2g}")


def draw_report_times(
    course: Course, n: int, rng: np.random.Generator
) -> Iterator[tuple[Counts, Counts, Floats]]:
    """Yield boards (of n) that make a report, their group's values, and when, in days from the start.

    A board is yielded once for each of its reports, in order. The number of calls between two reports is
    geometric, as if each call made a report independently; where a board's value changes, the count begins
    again, which does not change the distribution.
    """
    experiment, shares = course.experiment, course.group_shares
    every = np.array(every_by_index(experiment))
    max_reports = reports_in_budget(experiment)
    phase = rng.random(n)
    positions = rng.random(n) if len(every) > 1 else np.zeros(n)
    numbers = np.zeros(n, np.int64)
    for first_day, end_day, day_shares in stages_of(shares):
        groups = values_at(day_shares, positions)
        # The index of each board's last call before this stage, then that of its last report.
        calls = np.ceil(first_day * course.calls_per_day - phase) - 1
        active_boards = np.arange(n)
        while len(active_boards):
            if max_reports is not None:
                active_boards = active_boards[numbers[active_boards] < max_reports]
            calls[active_boards] += rng.geometric(1 / every[groups[active_boards]])
            days = (calls[active_boards] + phase[active_boards]) / course.calls_per_day
            is_in_time = days < end_day
            active_boards = active_boards[is_in_time]
            numbers[active_boards] += 1
            if len(active_boards):
                yield active_boards, groups[active_boards], days[is_in_time]


@dataclass(frozen=True)
class WindowTruth:
    """A statistic in one window, or in all: the estimate, and the truth among the reports.

    Attributes:
        group: Value of the open group to which it is limited, or "".
    """

    window: str
    reports: int
    statistic: str
    row: Row
    group: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        head = {"window": self.window, "reports": self.reports, "statistic": self.statistic}
        head |= {"group": self.group} if self.group else {}
        return head | {key: value for key, value in self.row.to_dict().items() if key != "name"}


@dataclass(frozen=True)
class FilledFleet:
    """A filled store: the boards that reported or used up their budget, windows, truth.

    Attributes:
        truths: Truths for the first window, the last, each value of the open group, and all combined, if
            there are enough reports.
        groups: Number of reports by value of the open group; empty without a group.
    """

    course: Course
    reporting_devices: int
    spent: int
    windows: dict[str, int]
    truths: tuple[WindowTruth, ...]
    groups: dict[str, int]

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
            **({"groups": self.groups} if self.groups else {}),
            "truths": [truth.to_dict() for truth in self.truths],
        }


def fill(
    store: Store,
    course: Course,
    rng: np.random.Generator,
    advance: Callable[[float], object] = lambda more: None,
    ids: Sequence[str] = (),
) -> FilledFleet:
    """Add the experiment and write the days into the store, in one transaction.

    Args:
        store: The store to fill.
        course: The fleet and its days.
        rng: Source of the readings and codes.
        advance: Called with the share of the work done since the last call.
        ids: The boards' ids, the same for several experiments of a fleet; by default new ones.

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
    slots = np.zeros((course.days * hours, course.group_shares.shape[1]), np.int64)
    max_reports = reports_in_budget(experiment)
    reporting_devices = spent = 0
    windows: dict[str, int] = {}
    ends: list[tuple[str, str, Tally]] = []
    totals: dict[int, Tally] = {}
    with store.ingest() as transaction:
        ids = sorted(ids or random_ids(course.devices, rng))
        for start in range(0, course.devices, _CHUNK):
            chunk = ids[start : start + _CHUNK]
            report_counts = np.zeros(len(chunk), np.int64)
            for boards, groups, times in draw_report_times(course, len(chunk), rng):
                report_counts[boards] += 1
                places = (times * hours).astype(np.int64) * slots.shape[1] + groups
                slots += np.bincount(places, minlength=slots.size).reshape(slots.shape)
            reporting_devices += int(np.count_nonzero(report_counts))
            spent += 0 if max_reports is None else int(np.count_nonzero(report_counts == max_reports))
            sets = [NumberSet(n) for n in range(int(report_counts.max()) + 1)]
            numbers = zip(chunk, report_counts.tolist(), strict=True)
            transaction.write(
                {(fleet, experiment.name, device): sets[n] for device, n in numbers if n}, {}, {}
            )
            advance(len(chunk) / course.devices / 2)
        for window, readings in _windows(course, slots, hours, rng):
            tallies = {i: _tally(course, n, rng) for i, n in readings.items()}
            for i, tally in tallies.items():
                codes = np.flatnonzero(tally.codes)
                rows = zip(codes.tolist(), tally.codes[codes].tolist(), strict=True)
                transaction.write({}, {(version.id, window, i, code): n for code, n in rows}, {})
                totals[i] = totals[i] + tally if i in totals else tally
            sum_of_window = functools.reduce(operator.add, tallies.values())
            windows[window] = sum_of_window.reports
            ends[1:] = [(window, "", sum_of_window)]
            advance(0.5 / len(slots))
    names = group_values(experiment)
    by_value = [("all", names[i], totals[i]) for i in sorted(totals)] if experiment.group else []
    if totals:
        by_value.append(("all", "", functools.reduce(operator.add, totals.values())))
    return FilledFleet(
        course,
        reporting_devices,
        spent,
        windows,
        _truths(course, [*(ends if len(ends) > 1 else []), *by_value]),
        {names[i]: totals[i].reports for i in sorted(totals)} if experiment.group else {},
    )


def _windows(
    course: Course, slots: Counts, per_day: int, rng: np.random.Generator
) -> Iterator[tuple[str, dict[int, Counts]]]:
    """Yield each window and, for each value of the open group with reports, its number of reports by index.

    The number without a reading is last; the arrays' shape is (domain + 1,).
    """
    totals: dict[int, Counts] = {}
    for i, reports in enumerate(slots.tolist()):
        chances = course.chances[i // per_day]
        readings = {g: rng.multinomial(n, chances[g]) for g, n in enumerate(reports) if n}
        if course.experiment.window == "all":
            for g, more in readings.items():
                totals[g] = totals.get(g, 0) + more
        elif readings:
            day = course.dates[i // per_day].isoformat()
            yield (f"{day}T{i % per_day:02d}" if per_day > 1 else day), readings
    if totals:
        yield "all", totals


def _tally(course: Course, readings: Counts, rng: np.random.Generator) -> Tally:
    """Draw the codes of reports, given the number of reports by index and, last, without a reading."""
    codes = vectorised.histogram(
        course.experiment, readings[:-1], rng, no_reading=int(readings[-1]), of=course.indices
    )
    return Tally(readings, codes)


def _truths(course: Course, tallies: Sequence[tuple[str, str, Tally]]) -> tuple[WindowTruth, ...]:
    """Return the truth and the estimate of one statistic for each window and group with enough reports."""
    e, truths = course.experiment, list[WindowTruth]()
    for window, group, tally in tallies:
        match = estimate_with_truth(e, course.people, course.definition.unit, tally)
        if match is not None:
            truths.append(WindowTruth(window, tally.reports, *match, group))
    return tuple(truths)
