"""`hushmote simulate --store URL --days N`: a store that can be asked at once, and what its truth is."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np

from ...device.ldp_client import Experiment
from ...server.answers import tables as show
from ...server.experiments.definition import Definition, load
from ...server.store.store import Store
from ...simulator import drift as moving
from ...simulator.days import FLEET, MOST_DAYS, Course, FilledFleet, fill, prepare, usual_calls
from ...simulator.population import PopulationError
from .. import tables
from ..options import DEFAULT_STORE, print_json
from ..progress import progress

DAYS = 30


def course_of(
    definition: Definition,
    devices: int,
    population: str | None,
    file: str | None,
    days: int | None,
    calls_per_day: float | None,
    drift: float | None,
) -> tuple[Course, str]:
    """The days of a fleet, and what its boards hold, in words; PopulationError for what cannot be."""
    days = DAYS if days is None else days
    if not 1 <= days <= MOST_DAYS:
        raise PopulationError(f"--days must be from 1 to {MOST_DAYS:,}, not {days}")
    if calls_per_day is not None and not 0 < calls_per_day <= 86_400:
        raise PopulationError(f"--calls-per-day must be above 0 and at most 86400, not {calls_per_day:g}")
    people, said = moving.chosen(definition, population, file)
    calls = usual_calls(definition.experiment(), days) if calls_per_day is None else calls_per_day
    by = moving.usual_drift(definition, people, days) if drift is None else drift
    today = datetime.datetime.now(datetime.UTC).date()
    return Course(devices, people, days, calls, by, today), said


def fill_store(
    file: Path,
    url: str,
    fleet: str | None,
    devices: int,
    population: str | None,
    input: str | None,
    days: int | None,
    calls_per_day: float | None,
    drift: float | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Write the days into the store; print what was written, the truth, and what to type next."""
    definition = load(file)
    course, said = course_of(definition, devices, population, input, days, calls_per_day, drift)
    script = prepare(fleet or FLEET, definition, course)
    with Store(url) as store, progress("simulating", 2 * devices) as advance:
        filled = fill(store, script, np.random.default_rng(seed), advance)
        only = len(store.fleets()) == 1
    if as_json:
        print_json({"seed": seed} | filled.to_dict())
        return
    _show(definition, filled, said)
    _show_next(filled, url, only)


def _show(definition: Definition, filled: FilledFleet, said: str) -> None:
    e, course = filled.experiment, filled.course
    first, last = course.dates[0], course.dates[-1]
    print_ = show.out.print
    print_(
        f"{e.name}: {filled.reports:,} simulated reports are in fleet {filled.fleet}, as if", soft_wrap=True
    )
    print_(f"{course.devices:,} boards had reported from {first} to {last} (UTC).", soft_wrap=True)
    print_(f"boards    {calls(course.calls_per_day)}; {_reporting(e)}", soft_wrap=True)
    spent = "" if e.rule == "unlimited" else f", {filled.spent:,} have used up their budget"
    print_(f"          {filled.spoke:,} of them reported{spent}")
    print_(
        f"readings  {said}{in_unit(definition)} on the first day; {drifting(definition, course)}",
        soft_wrap=True,
    )
    if filled.truths:
        print_()
        print_(_truths(definition, filled))


def calls(per_day: float) -> str:
    """How often a board calls report(), in words."""
    if per_day >= 1:
        return (
            f"each calls report() {per_day:g} times a day"
            if per_day > 1
            else "each calls report() once a day"
        )
    return f"each calls report() every {1 / per_day:.3g} days"


def _reporting(experiment: Experiment) -> str:
    if experiment.every == 1:
        return "each call makes a report"
    return f"one call in {experiment.every} makes a report"


def in_unit(definition: Definition) -> str:
    """The reading's unit behind a number, or nothing."""
    return f" {definition.unit}" if definition.unit else ""


def drifting(definition: Definition, course: Course) -> str:
    """How the truth moves, in words."""
    if not course.drift:
        return "the truth does not move"
    if definition.type == "number":
        return f"the truth moves by {course.drift:g}{in_unit(definition)} a day"
    label = "yes" if definition.type == "bool" else (definition.labels or ("",))[0]
    return f"{100 * course.drift:g} % of the boards turn to {label} each day"


def _truths(definition: Definition, filled: FilledFleet) -> object:
    number = definition.type == "number"
    what = filled.truths[0].statistic
    scale, unit = (1.0, definition.unit) if number else (100.0, "%")
    table = tables.table(
        f"{what}{f', {unit}' if unit else ''}", ("window", "reports", "truth", "estimate", "95 % interval"), 1
    )
    for one in filled.truths:
        row = one.row
        value, low, high = (f"{scale * x:.2f}" for x in (row.value, row.low, row.high))
        true = "-" if row.truth is None else f"{scale * row.truth:.2f}"
        table.add_row(one.window, f"{one.reports:,}", true, value, f"{low} to {high}")
    return table


def _show_next(filled: FilledFleet, url: str, only_fleet: bool) -> None:
    fleet = "" if only_fleet else f" --fleet {filled.fleet}"
    name, windows = filled.experiment.name, list(filled.windows)
    commands = [] if url == DEFAULT_STORE else [f"export HUSHMOTE_STORE='{url}'"]
    commands.append(f"hushmote estimate {name}{fleet}")
    if len(windows) > 1:
        commands.append(f"hushmote estimate {name}{fleet} --trend")
        commands.append(
            f"hushmote estimate {name}{fleet} --window {windows[-1]} --against-window {windows[0]}"
        )
    commands.append(f"hushmote ledger{fleet}")
    show.out.print("\nnext")
    for line in commands:
        show.out.print(f"  {line}", soft_wrap=True)
