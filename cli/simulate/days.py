"""`hushmote simulate` over days: into a store that can be asked at once, or through a broker."""

from __future__ import annotations

import datetime
import shlex
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...device.ldp_client import Experiment
from ...server.answers import tables as show
from ...server.experiments.definition import Definition, load
from ...server.ingest.broker_url import BrokerAddress
from ...server.ingest.clock import DAY_S
from ...server.store.store import Store
from ...server.wire.experiments import parse_experiment
from ...simulator import drift as moving
from ...simulator.days import (
    FLEET,
    MOST_DAYS,
    Course,
    FilledFleet,
    Script,
    WindowTruth,
    fill,
    known_truth,
    prepare,
    usual_calls,
)
from ...simulator.population import PopulationError
from .. import tables
from ..options import DEFAULT_STORE, print_json
from ..progress import progress

DAYS, PUBLISHED_DAYS = 30, 8
DEVICES, PUBLISHED_DEVICES = 100_000, 20_000


@dataclass(frozen=True)
class AskedDays:
    """What was asked for; None where it was left out."""

    file: Path
    fleet: str | None
    devices: int | None
    population: str | None
    input: str | None
    days: int | None
    calls_per_day: float | None
    drift: float | None
    seed: int | None
    as_json: bool

    def script(self, usual_days: int, usual_devices: int) -> tuple[Script, str]:
        """What is to be simulated, and what boards hold, in words; raises as prepare()."""
        days = usual_days if self.days is None else self.days
        if not 1 <= days <= MOST_DAYS:
            raise PopulationError(f"--days must be from 1 to {MOST_DAYS:,}, not {days}")
        calls = self.calls_per_day
        if calls is not None and not 0 < calls <= 86_400:
            raise PopulationError(f"--calls-per-day must be above 0 and at most 86400, not {calls:g}")
        definition = load(self.file)
        people, said = moving.chosen(definition, self.population, self.input)
        calls = usual_calls(definition.experiment(), days) if calls is None else calls
        by = moving.usual_drift(definition, people, days) if self.drift is None else self.drift
        today = datetime.datetime.now(datetime.UTC).date()
        course = Course(self.devices or usual_devices, people, days, calls, by, today)
        return prepare(self.fleet or FLEET, definition, course), said


def fill_store(asked: AskedDays, url: str) -> None:
    """Write the days into the store; print what was written, the truth, and what to type next."""
    script, said = asked.script(DAYS, DEVICES)
    with Store(url) as store, progress("simulating", 2 * script.course.devices) as advance:
        filled = fill(store, script, np.random.default_rng(asked.seed), advance)
        only = len(store.fleets()) == 1
    if asked.as_json:
        print_json({"seed": asked.seed} | filled.to_dict())
        return
    e, course = filled.experiment, filled.course
    first, last = course.dates[0], course.dates[-1]
    show.out.print(f"{e.name}: {filled.reports:,} simulated reports are in fleet {filled.fleet}, as if")
    show.out.print(f"{course.devices:,} boards had reported from {first} to {last} (UTC).")
    _show_boards(script, e, said)
    spent = "" if e.rule == "unlimited" else f", {filled.spent:,} have used up their budget"
    show.out.print(f"          {filled.spoke:,} of them reported{spent}")
    if filled.truths:
        show.out.print()
        show.out.print(_truths(script.definition, filled))
    _show_next(filled, url, only)


def publish_days(asked: AskedDays, address: BrokerAddress, tls: ssl.SSLContext | None) -> None:
    """Publish the days through a broker; print what was sent, the truth, and what to type next."""
    from ...simulator.gateway import Gateways  # paho loads for a tenth of a second
    from ...simulator.publishing import check_announced, publish

    script, said = asked.script(PUBLISHED_DAYS, PUBLISHED_DEVICES)
    e, course = parse_experiment(script.payload), script.course
    user, password = address.username, address.password
    with Gateways(
        address.host, address.port, username=user, password=password, tls=tls, others=address.others
    ) as gateways:
        check_announced(gateways, script)
        if not asked.as_json:
            show.out.print(
                f"{e.name}: {course.devices:,} boards of fleet {script.fleet} publish {course.days} days, "
                f"each in {DAY_S:g} s."
            )
            _show_boards(script, e, said)
            show.out.print(
                f"Only a serve --simulated-days {course.days} that waits for them counts by their days;\n"
                "any other counts all of it in today's window."
            )
        with progress("publishing", 1.0) as advance:
            sent = publish(gateways, script, np.random.default_rng(asked.seed), advance)
    days = [
        {"day": str(day), "reports": one.reports, "truth": known_truth(e, one.truth, course.people)[1]}
        for day, one in zip(course.dates, sent.days, strict=True)
    ]
    statistic, _ = known_truth(e, sent.days[0].truth, course.people)
    if asked.as_json:
        head = {"experiment": e.name, "fleet": script.fleet, "devices": course.devices, "seed": asked.seed}
        print_json(head | {"reports": sent.reports, "statistic": statistic, "days": days})
        return
    number = e.type == "number"
    unit = script.definition.unit if number else "%"
    table = tables.table(
        f"what was sent: {statistic}{f', {unit}' if unit else ''}", ("day", "reports", "truth"), 1
    )
    for one in days:
        table.add_row(one["day"], f"{one['reports']:,}", f"{one['truth'] * (1 if number else 100):.2f}")
    show.out.print()
    show.out.print(table)
    if sent.behind_s > DAY_S / 4:
        late = f"{sent.behind_s:.0f} s late: take fewer --devices, so that days are not counted as the next"
        show.out.print(f"The broker had the last report {late}.")
    text = f" --range {shlex.quote(statistic)}" if e.type == "text" else ""
    show.out.print(
        f"\nnext\n  hushmote estimate {e.name} --fleet {script.fleet}{text} --trend", soft_wrap=True
    )


def _show_boards(script: Script, experiment: Experiment, said: str) -> None:
    definition, course = script.definition, script.course
    show.out.print(f"boards    {calls(course.calls_per_day)}; {_reporting(experiment)}")
    held = f"{said}{in_unit(definition)} on the first day; {drifting(definition, course)}"
    show.out.print(f"readings  {held}")


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
    if definition.of is not None:
        firsts = ((part.labels or ("no" if part.type == "bool" else "lowest",))[0] for part in definition.of)
        held = ", ".join(f"{part.name}={first}" for part, first in zip(definition.of, firsts, strict=True))
        return f"{100 * course.drift:g} % of the boards turn to {held} each day"
    label = "yes" if definition.type == "bool" else (definition.labels or ("the first text",))[0]
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


def _named(experiment: Experiment, truths: Sequence[WindowTruth]) -> str:
    """The text to ask about, of an experiment of texts, as an option."""
    return f" --range {shlex.quote(truths[0].statistic)}" if experiment.type == "text" and truths else ""


def _show_next(filled: FilledFleet, url: str, only_fleet: bool) -> None:
    fleet = "" if only_fleet else f" --fleet {filled.fleet}"
    name, windows = filled.experiment.name, list(filled.windows)
    commands = [] if url == DEFAULT_STORE else [f"export HUSHMOTE_STORE='{url}'"]
    asked = f"hushmote estimate {name}{fleet}{_named(filled.experiment, filled.truths)}"
    commands.append(asked)
    if len(windows) > 1 and filled.truths:
        commands.append(f"{asked} --trend")
        commands.append(f"{asked} --window {windows[-1]} --against {windows[0]}")
    commands.append(f"hushmote ledger{fleet}")
    show.out.print("\nnext")
    for line in commands:
        show.out.print(f"  {line}", soft_wrap=True)
