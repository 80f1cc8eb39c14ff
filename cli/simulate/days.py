"""`hushmote simulate --to`: fill a store with several days of a simulated fleet's reports."""

import datetime
import shlex
import textwrap

import numpy as np

from ...device.ldp_client import Experiment
from ...server.answers import tables as show
from ...server.arrays import Floats
from ...server.experiments.definition import Definition
from ...server.store.store import Store
from ...server.wire.experiments import group_values
from ...server.words.numbers import counted
from ...simulator import drift as moving
from ...simulator.days import FLEET, Course, FilledFleet, fill, usual_calls
from ...simulator.population import rows_of
from ...simulator.rollout import default_shares, parse_shares, parse_shifts, stages_of
from ..options import DEFAULT_STORE, load_experiment, print_json
from ..progress import progress
from .options import SimulateOptions
from .words import budget_in_words, describe_every, truth_table

DAYS = 30
DEVICES = 100_000


def _course(options: SimulateOptions) -> tuple[Course, list[str]]:
    days = DAYS if options.days is None else options.days
    definition = load_experiment(options.file)
    readings, population = moving.choose_population(definition, options.population, options.rules)
    experiment = definition.experiment()
    readings = moving.shift_groups(readings, experiment, parse_shifts(experiment, options.shifts or ()))
    if options.groups:
        shares = parse_shares(experiment, options.groups, max(1, days))
    else:
        shares = default_shares(experiment, max(1, days), readings)
    calls = usual_calls(experiment, shares) if options.calls is None else options.calls
    drift = (
        moving.default_drift(definition, readings, max(1, days)) if options.drift is None else options.drift
    )
    today = datetime.datetime.now(datetime.UTC).date()
    devices = options.devices or DEVICES
    fleet = options.fleet or FLEET
    course = Course(fleet, definition, devices, readings, days, calls, drift, today, shares)
    unit = f" {definition.unit}" if definition.unit else ""
    return course, [
        f"devices   {_describe_calls(calls)}; {describe_every(experiment)}",
        f"readings  {population}{unit} on the first day; {_describe_drift(definition, drift)}",
        *_describe_groups(experiment, shares),
        *(rows.notes if (rows := rows_of(readings)) else ()),
    ]


def _describe_groups(experiment: Experiment, shares: Floats) -> list[str]:
    """Return a line for each value of the open group that boards have, with its share in each stage."""
    lines: list[str] = []
    if not experiment.group:
        return lines
    stages = np.array([share for _, _, share in stages_of(shares)])
    for value, of_value in zip(group_values(experiment), stages.T, strict=True):
        if of_value.any():
            label = "" if lines else "groups"
            percents = ", ".join(f"{100 * share:.3g}%" for share in of_value.tolist())
            lines.append(f"{label:<10}{experiment.group} {value} on {percents} of the devices")
    return lines


def fill_store(options: SimulateOptions, url: str) -> None:
    """Write the days into the store; print a summary, the truth, and the next commands."""
    course, lines = _course(options)
    with Store(url) as store, progress("simulating", 1.0) as advance:
        filled = fill(store, course, np.random.default_rng(options.seed), advance)
        is_only_fleet = len(store.fleets()) == 1
    if options.as_json:
        print_json({"seed": options.seed} | filled.to_dict())
        return
    e = course.experiment
    show.out.print(f"{e.name}: fleet {course.fleet} has {counted(filled.reports, 'simulated report')}, as if")
    first, last = course.dates[0], course.dates[-1]
    show.out.print(f"{counted(course.devices, 'device')} had reported from {first} to {last} (UTC).")
    for line in lines:
        show.out.print("\n".join(textwrap.wrap(line, 80, subsequent_indent=" " * 10)))
    spent = "" if e.rule == "unlimited" else f", {filled.spent:,} have used up their budget"
    show.out.print(f"          {filled.reporting_devices:,} of them reported{spent}")
    if filled.truths:
        rows = [
            (", ".join(filter(None, (truth.window, truth.group))), truth.reports, truth.row)
            for truth in filled.truths
        ]
        truth_table("window", filled.truths[0].statistic, e, course.definition.unit, rows)
    _show_next(filled, url, is_only_fleet)


def _describe_calls(per_day: float) -> str:
    if per_day == 1:
        return "each calls report() once a day"
    if per_day > 1:
        return f"each calls report() {per_day:g} times a day"
    return f"each calls report() every {1 / per_day:.3g} days"


def _describe_drift(definition: Definition, drift: float) -> str:
    if not drift:
        return "the truth does not change"
    if definition.type == "number":
        return f"the truth changes by {drift:g}{f' {definition.unit}' if definition.unit else ''} a day"
    if definition.of is not None:
        firsts = ((part.labels or ("no" if part.type == "bool" else "lowest",))[0] for part in definition.of)
        label = ", ".join(f"{part.name}={first}" for part, first in zip(definition.of, firsts, strict=True))
    else:
        label = "yes" if definition.type == "bool" else (definition.labels or ("the first text",))[0]
    return f"{100 * drift:g}% of the devices change to {label} each day"


def _show_next(filled: FilledFleet, url: str, only_fleet: bool) -> None:
    course, windows = filled.course, list(filled.windows)
    fleet = "" if only_fleet else f" --fleet {course.fleet}"
    text = ""
    if course.definition.type == "text" and filled.truths:  # estimate needs a text to look for
        text = f" --range {shlex.quote(filled.truths[0].statistic)}"
    estimate = f"hushmote estimate {course.definition.name}{fleet}{text}"
    commands = [] if url == DEFAULT_STORE else [f"export HUSHMOTE_STORE='{url}'"]
    commands.append(estimate)
    if len(windows) > 1 and filled.truths:
        commands.append(f"{estimate} --trend")
        commands.append(f"{estimate} --window {windows[-1]} --against {windows[0]}")
    listed = [value for value in course.experiment.groups if filled.groups.get(value)]
    if len(windows) > 1 and len(listed) > 1:
        new, old = shlex.quote(listed[-1]), shlex.quote(listed[-2])
        commands.append(f"hushmote release {new}{fleet} --against {old}")
    commands.append(f"hushmote ledger{fleet}")
    show.out.print(f"\nPrivacy: {budget_in_words(course.experiment)}")
    show.out.print("Next:\n" + "\n".join(f"  {line}" for line in commands), soft_wrap=True)
