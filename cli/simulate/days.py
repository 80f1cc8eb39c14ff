"""`hushmote simulate --to`: fill a store with several days of a simulated fleet's reports."""

import datetime
import shlex
from typing import Any

import numpy as np

from ...server.answers import tables as show
from ...server.experiments.definition import Definition, load
from ...server.store.store import Store
from ...server.words.numbers import decimals
from ...simulator import drift as moving
from ...simulator.days import FLEET, Course, FilledFleet, fill, usual_calls
from ..options import DEFAULT_STORE, print_json
from ..progress import progress
from .options import SimulateOptions
from .words import budget_in_words

DAYS = 30
DEVICES = 100_000


def _course(options: SimulateOptions) -> tuple[Course, list[str]]:
    days = DAYS if options.days is None else options.days
    definition = load(options.file)
    readings, population = moving.choose_population(definition, options.population)
    calls = usual_calls(definition.experiment(), max(1, days)) if options.calls is None else options.calls
    drift = (
        moving.default_drift(definition, readings, max(1, days)) if options.drift is None else options.drift
    )
    today = datetime.datetime.now(datetime.UTC).date()
    devices = options.devices or DEVICES
    course = Course(options.fleet or FLEET, definition, devices, readings, days, calls, drift, today)
    every = course.experiment.every
    reporting = "each call makes a report" if every == 1 else f"one call in {every} makes a report"
    unit = f" {definition.unit}" if definition.unit else ""
    return course, [
        f"devices   {_describe_calls(calls)}; {reporting}",
        f"readings  {population}{unit} on the first day; {_describe_drift(definition, drift)}",
    ]


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
    show.out.print(f"{e.name}: {filled.reports:,} simulated reports are in fleet {course.fleet}, as if")
    first, last = course.dates[0], course.dates[-1]
    show.out.print(f"{course.devices:,} devices had reported from {first} to {last} (UTC).")
    show.out.print("\n".join(lines))
    spent = "" if e.rule == "unlimited" else f", {filled.spent:,} have used up their budget"
    show.out.print(f"          {filled.reporting_devices:,} of them reported{spent}")
    if filled.truths:
        rows = [
            (
                window_truth.window,
                window_truth.reports,
                window_truth.row.truth,
                window_truth.row.value,
                window_truth.row.low,
                window_truth.row.high,
            )
            for window_truth in filled.truths
        ]
        _table(filled.truths[0].statistic, course.definition, rows)
    _show_next(filled, url, is_only_fleet)


def _table(title: str, definition: Definition, rows: list[tuple[Any, ...]]) -> None:
    scale, unit = (1.0, definition.unit) if definition.type == "number" else (100.0, "%")
    headings = ("window", "reports", "truth", "estimate", "95% interval")
    heading = f"{title}{f', {unit}' if unit else ''}"
    table = show.table(heading, headings)
    intervals = [(row[4], row[5]) for row in rows if row[4] is not None]
    narrowest = min((high - low for low, high in intervals if high > low), default=0.0)
    places = decimals(0.0, scale * narrowest)
    for window, reports, *values in rows:
        numbers = ("-" if value is None else f"{scale * value:.{places}f}" for value in values)
        truth, estimate, low, high = numbers
        table.add_row(str(window), f"{reports:,}", truth, estimate, f"{low} to {high}")
    show.out.print()
    show.out.print(table)


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
    commands.append(f"hushmote ledger{fleet}")
    show.out.print(f"\nPrivacy: {budget_in_words(course.experiment)}")
    show.out.print("Next:\n" + "\n".join(f"  {line}" for line in commands), soft_wrap=True)
