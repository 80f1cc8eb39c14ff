"""A store as it would be if boards had reported for some days: their windows, report numbers and budgets.

Each board calls report() on a fixed rhythm from a moment of its own, the coin of `every` decides which calls
make a report, and the budget ends them. What is written is what an aggregator would have: histograms by
window of arrival, and each device's report numbers.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.pairs import ROWS
from ..server.answers.rows import Row
from ..server.arrays import Counts, Floats
from ..server.errors import UsageError
from ..server.estimate.estimate import estimate
from ..server.estimate.statistic import EstimateError
from ..server.experiments.asking import answers_of
from ..server.experiments.cells import groups
from ..server.experiments.definition import Definition
from ..server.experiments.units import bin_edges, index_names
from ..server.ingest.clock import SIMULATED
from ..server.mechanisms.views.factors import parts_of
from ..server.store.number_set import NumberSet
from ..server.store.store import Store
from ..server.wire.experiments import parse_experiment
from . import vectorised
from .calls import check_reports, most_of_a_board
from .drift import moved
from .faithful import random_ids
from .population import Population, reported_shares
from .texts import text_shares

FLEET = "simulated"
MOST_DAYS = 3660
_USED = 2 / 3  # of a board's budget, over the days, at the usual rhythm
_CHUNK = 50_000  # boards drawn and written together


class SimulatedFleetError(UsageError):
    """A fleet that simulated reports must not be written to, or cannot be."""


@dataclass(frozen=True)
class Course:
    """How a fleet goes through its days.

    people: what boards hold on the first day; it moves by drift each day, see drift.moved(). calls_per_day:
    of one board, above 0; 0.1 is a call every ten days. The days are whole, UTC, the last one before `today`.
    """

    devices: int
    people: Population
    days: int
    calls_per_day: float
    drift: float
    today: datetime.date

    @property
    def dates(self) -> list[datetime.date]:
        """The days, oldest first."""
        return [self.today - datetime.timedelta(days=n) for n in range(self.days, 0, -1)]


@dataclass(frozen=True)
class WindowTruth:
    """One statistic of a window, or of all: what is estimated, beside the truth among its reports."""

    window: str
    reports: int
    statistic: str
    row: Row

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        head = {"window": self.window, "reports": self.reports, "statistic": self.statistic}
        return head | {key: value for key, value in self.row.to_dict().items() if key != "name"}


@dataclass(frozen=True)
class FilledFleet:
    """What was written: boards that spoke and that have spent their budget, reports by window, the truth.

    truths: of the first window, the last one, and all together, where there are enough reports.
    """

    experiment: Experiment
    fleet: str
    course: Course
    spoke: int
    spent: int
    windows: dict[str, int]
    truths: tuple[WindowTruth, ...]

    @property
    def reports(self) -> int:
        """All reports."""
        return sum(self.windows.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "experiment": self.experiment.name,
            "fleet": self.fleet,
            "devices": self.course.devices,
            "days": self.course.days,
            "calls_per_day": self.course.calls_per_day,
            "drift_per_day": self.course.drift,
            "spoke": self.spoke,
            "spent": self.spent,
            "reports": self.reports,
            "windows": self.windows,
            "truths": [one.to_dict() for one in self.truths],
        }


def usual_calls(experiment: Experiment, days: int) -> float:
    """Calls a day that use two thirds of a board's budget in these days; a report a day without a budget."""
    most = most_of_a_board(experiment)
    reports = float(days) if most is None else _USED * most
    return float(f"{reports * experiment.every / days:.2g}")


@dataclass(frozen=True)
class Script:
    """What is to be written, checked: for which fleet, the experiment as published, readings by the day.

    chances: of each index, and last of no reading, one array for each day, shape (domain + 1,). of: the
    indices that they are of, where there are more than an array holds.
    """

    fleet: str
    definition: Definition
    payload: bytes
    course: Course
    chances: tuple[Floats, ...]
    of: Sequence[int] | None = None


def prepare(fleet: str, definition: Definition, course: Course) -> Script:
    """Check what needs no store.

    Raises SimulatedFleetError for a fleet whose name does not begin with "sim", DefinitionError for an
    expired experiment, PopulationError for readings that do not fit or more reports than are drawn.
    """
    if not fleet.startswith(SIMULATED):
        raise SimulatedFleetError(
            f"simulated reports go to a fleet whose name begins with {SIMULATED}, such as {FLEET}, "
            f"not to {fleet}: they could never be told from real ones again"
        )
    definition.check_not_expired()
    payload = definition.payload()
    experiment = parse_experiment(payload)
    most = most_of_a_board(experiment)
    wanted = course.days * course.calls_per_day / experiment.every
    check_reports(course.devices * (wanted if most is None else min(most, wanted)))
    held = (moved(course.people, experiment, course.drift * day) for day in range(course.days))
    chances = tuple(people.probabilities(experiment) for people in held)
    return Script(fleet, definition, payload, course, chances, course.people.indices(experiment))


def fill(
    store: Store,
    script: Script,
    rng: np.random.Generator,
    advance: Callable[[float], None] = lambda more: None,
) -> FilledFleet:
    """Add the experiment and write the days into the store, all of them or none.

    advance: told how much more of twice the number of devices is done. Raises SimulatedFleetError for a keyed
    fleet, or one that has reports of the experiment already, and StoreError.
    """
    fleet, definition, course = script.fleet, script.definition, script.course
    experiment = parse_experiment(script.payload)
    if store.fleets().get(fleet):
        raise SimulatedFleetError(f"fleet {fleet} is keyed: simulated reports go to an open or a new fleet")
    if experiment.name in store.participation(fleet):
        raise SimulatedFleetError(
            f"fleet {fleet} has reports of {experiment.name} already: take another name, such as "
            f"--fleet {SIMULATED}-2, or another --store"
        )
    store.add_fleet(fleet, keyed=False)
    described = definition.description()
    store.add_experiment(fleet, script.payload, definition.expires, description=described)
    versions = store.experiments(fleet)
    version = next(v for v in versions if v.experiment.digest == experiment.digest)
    hours = 24 if experiment.window == "hour" else 1
    slots = np.zeros(course.days * hours, np.int64)
    most = most_of_a_board(experiment)
    spoke = spent = 0
    with store.ingest() as transaction:
        ids = sorted(random_ids(course.devices, rng))
        for start in range(0, course.devices, _CHUNK):
            some = ids[start : start + _CHUNK]
            made = np.zeros(len(some), np.int64)
            for number, boards, times in speaking(experiment, course, len(some), rng):
                made[boards] = number
                slots += np.bincount((times * hours).astype(np.int64), minlength=len(slots))
            spoke += int(np.count_nonzero(made))
            spent += 0 if most is None else int(np.count_nonzero(made == most))
            sets = [NumberSet(n) for n in range(int(made.max()) + 1)]
            numbers = zip(some, made.tolist(), strict=True)
            transaction.write(
                {(fleet, experiment.name, device): sets[n] for device, n in numbers if n}, {}, {}
            )
            advance(len(some))
        indices = len(script.chances[0]) - 1
        tally = _Tally(experiment, course.people, definition.unit, indices)
        for window, readings in _windows(experiment, script, slots, hours, rng):
            none = int(readings[-1])
            counts = vectorised.histogram(experiment, readings[:-1], rng, no_reading=none, of=script.of)
            codes = np.flatnonzero(counts)
            rows = zip(codes.tolist(), counts[codes].tolist(), strict=True)
            transaction.write({}, {(version.id, window, code): n for code, n in rows}, {})
            tally.add(window, readings, counts)
            advance(course.devices / len(slots))
    return FilledFleet(experiment, fleet, course, spoke, spent, tally.windows, tally.truths())


def speaking(
    experiment: Experiment, course: Course, n: int, rng: np.random.Generator
) -> Iterator[tuple[int, Counts, Floats]]:
    """Yield 1, 2, 3, ...: which of n boards make a report of that number, and when, in days from the first.

    Between two reports a board is silent for a geometric number of calls, which is what a coin at each gives.
    """
    phase = rng.random(n)
    calls = np.full(n, -1.0)  # before a board's last one that made a report
    able = np.arange(n)
    most, number = most_of_a_board(experiment), 0
    while most is None or number < most:
        calls[able] += rng.geometric(1 / experiment.every, len(able))
        days = (calls[able] + phase[able]) / course.calls_per_day
        within = days < course.days
        able, days, number = able[within], days[within], number + 1
        if not len(able):
            return
        yield number, able, days


def _windows(
    experiment: Experiment,
    script: Script,
    slots: Counts,
    per_day: int,
    rng: np.random.Generator,
) -> Iterator[tuple[str, Counts]]:
    """Each window's readings by index, and last how many reports had none, shape (domain + 1,)."""
    together = np.zeros(len(script.chances[0]), np.int64)
    for i, reports in enumerate(slots.tolist()):
        readings = rng.multinomial(reports, script.chances[i // per_day])
        if experiment.window == "all":
            together += readings
        elif reports:
            day = script.course.dates[i // per_day].isoformat()
            yield (f"{day}T{i % per_day:02d}" if per_day > 1 else day), readings
    if together.any():
        yield "all", together


def known_truth(experiment: Experiment, truth: Floats, people: Population) -> tuple[str, float]:
    """What is shown beside estimates: a number's mean, the share of "yes", of the first label or text.

    Of a pair it is the share of its first part's first value. truth: shares of the indices, shape (domain,);
    of a text it is that of all texts in its slot.
    """
    if experiment.type == "pair":
        first = groups(experiment, 0, ROWS)[0]
        return first.text, float(truth @ first.cells)
    if experiment.type == "number":
        edges = bin_edges(experiment)
        return "mean", float(truth @ (edges[:-1] + edges[1:]) / 2)
    if experiment.type == "text":
        text = next(iter(text_shares(people) or ()), "")
        return text, float(truth[experiment.bucket(text) or 0])
    index = int(experiment.type == "bool")
    return index_names(experiment)[index], float(truth[index])


class _Tally:
    """Readings and codes of the first window, the last one, and all together."""

    def __init__(self, experiment: Experiment, people: Population, unit: str, indices: int) -> None:
        self._experiment = experiment
        self._people = people
        self._unit = unit
        self._ends: list[tuple[str, Counts, Counts]] = []
        self._all = np.zeros(indices + 1, np.int64), np.zeros(experiment.code_count, np.int64)
        self.windows: dict[str, int] = {}

    def add(self, window: str, readings: Counts, codes: Counts) -> None:
        """Count a window."""
        self.windows[window] = int(codes.sum())
        self._ends[1:] = [(window, readings, codes)]
        for total, more in zip(self._all, (readings, codes), strict=True):
            total += more

    def truths(self) -> tuple[WindowTruth, ...]:
        """What is true and what is estimated, where that can be: one statistic.

        Of texts that nobody listed there is none to ask about.
        """
        e = self._experiment
        if "discovery" in answers_of(e):
            return ()
        ends = self._ends if len(self._ends) > 1 else []
        truths: list[WindowTruth] = []
        for window, readings, codes in [*ends, ("all", *self._all)]:
            truth = reported_shares(readings[:-1], int(readings[-1]))
            with contextlib.suppress(EstimateError):  # too few reports to estimate anything
                fleet = FleetEstimate(estimate(e, codes), unit=self._unit, truth=truth)
                statistic, true = known_truth(e, truth, self._people)
                row = replace(_shown(fleet, statistic), truth=true)
                truths.append(WindowTruth(window, int(codes.sum()), statistic, row))
        return tuple(truths)


def _shown(fleet: FleetEstimate, statistic: str) -> Row:
    """The row of known_truth()'s statistic."""
    e = fleet.experiment
    if e.type == "pair":
        return fleet.pairs.marginal(parts_of(e)[0].name, ROWS).rows[0]
    return (fleet.mean() if e.type == "number" else fleet.share(statistic)).rows[0]
