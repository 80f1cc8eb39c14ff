"""`hushmote demo --health`: a simulated fleet that answers the standard questions, and its page.

The questions share each device's budget at the rate of their plan. Two weeks ago, a release began to crash
more often, so that the findings have something to say.
"""

import datetime
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from ..planning import library
from ..planning.lifetime import DAY_S, Rhythm
from ..planning.question_set import SetPlan, set_question
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.answers.store_reader import StoreReader
from ..server.arrays import Floats
from ..server.epsilon import nats
from ..server.errors import UsageError
from ..server.experiments.definition import Definition, parse
from ..server.store.store import Store
from . import days
from .deployment import DemoError, Place, process
from .faithful import random_ids
from .population import Population, exponential, normal, weighted

DEVICES = 200_000
MIN_DEVICES = 1_000
DAYS = 60
RHYTHM = Rhythm(3600, 365 * DAY_S)
"""The demo's devices spend their budget in a year, so that 60 days show something."""

_READINGS: dict[str, tuple[Population, float]] = {
    "crashed": (weighted([0.98, 0.02]), 0.0),
    "update": (weighted([0.93, 0.02, 0.01, 0.03, 0.01, 0], 0.2), 0.0),
    "days_behind": (exponential(20), 0.1),
    "unreachable": (weighted([0.95, 0.05]), 0.0),
    "signal": (normal(-66, 9), 0.0),
    "boot_time": (normal(9, 3), 0.0),
    "battery_life": (normal(210, 60), -0.5),
    "restart": (weighted([0.5, 0.03, 0.04, 0.02, 0.4, 0.01]), 0.0),
    "uptime": (exponential(300), -1.0),
}
"""Each question's readings on the first day, and their drift per day."""
_AFTER_RELEASE = {"crashed": weighted([0.88, 0.12])}
_DAYS_SINCE_RELEASE = 14


@dataclass(frozen=True)
class _Course(days.Course):
    """A fleet's days with other readings since a release; None without a difference."""

    after: Population | None = None

    @cached_property
    def chances(self) -> list[list[Floats]]:
        chances = super().chances
        if self.after is None:
            return chances
        later = [self.after.probabilities(self.experiment)]
        return chances[:-_DAYS_SINCE_RELEASE] + [later] * _DAYS_SINCE_RELEASE


@dataclass(frozen=True)
class HealthDemo:
    """A filled store, its plan, and each question's finding."""

    store: str
    plan: SetPlan
    reports: dict[str, int]
    findings: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "store": self.store,
            "devices": self.plan.devices,
            "days": DAYS,
            "every": self.plan.every,
            "reports": self.reports,
            "findings": self.findings,
        }


def run(place: Place, devices: int | None) -> HealthDemo:
    """Fill a store with the questions of all packs, and return the findings.

    Raises:
        DemoError: If there are too few devices, or the store exists.
        StoreError: If the store cannot be written.
    """
    devices = DEVICES if devices is None else devices
    if devices < MIN_DEVICES:
        raise DemoError(f"--devices must be at least {MIN_DEVICES:,} with --health, not {devices:,}")
    output_folder(place.folder)
    path = place.folder / "health.sqlite"
    if path.exists():
        raise UsageError(f"{path} exists: delete it, or choose another folder with --out")
    names = [name for pack in library.PACKS.values() for name in pack]
    plan = SetPlan(tuple(set_question(library.question(name)) for name in names), devices, rhythm=RHYTHM)
    today = datetime.datetime.now(datetime.UTC).date()
    if not place.quiet:
        show.out.print("Hushmote demo: the health of a fleet, from private reports\n", style="bold")
        budget = f"Each has ε = {nats(plan.budget.epsilon)} for a year"
        place.say("fleet", f"{devices:,} simulated devices. {budget}: {plan.shared.reports_in_life} reports.")
        place.say(
            "questions",
            f"{', '.join(names)}: the packs {', '.join(library.PACKS)}. For each question, one call in "
            f"{plan.every:,} makes a report.",
        )
    url, reports = f"sqlite:///{path}", {}
    rng = np.random.default_rng()
    ids = random_ids(devices, rng)
    with Store(url) as store, place.progress("reporting", len(names)) as advance:
        for name in names:
            readings, drift = _READINGS[name]
            definition, after = _definition(name, plan, today), _AFTER_RELEASE.get(name)
            course = _Course(days.FLEET, definition, devices, readings, DAYS, 24.0, drift, today, after=after)
            reports[name] = days.fill(store, course, rng, advance, ids).reports
    with StoreReader(url) as reader:
        fleet = reader.fleet()
        findings = {name: fleet.experiment(name).finding.sentence for name in names}
    return HealthDemo(url, plan, reports, findings)


def _definition(name: str, plan: SetPlan, today: datetime.date) -> Definition:
    expires = today + datetime.timedelta(days=365)
    return parse(library.customize(name, owner="demo@example.org", expires=expires, every=plan.every))


def show_outcome(outcome: HealthDemo) -> None:
    """Print the findings, and the commands that continue."""
    total = sum(outcome.reports.values())
    show.out.print(f"\n{total:,} reports in {DAYS} days. What they show:\n")
    for name, finding in outcome.findings.items():
        show.out.print(f"{library.question(name).purpose}\n  {finding}", soft_wrap=False)
    show.out.print(
        f"\nnext\n  hushmote page --store {outcome.store}\n  hushmote questions\n"
        f"  hushmote plan --pack release --devices {outcome.plan.devices}",
        soft_wrap=True,
    )


def serve(place: Place, outcome: HealthDemo, on_open: Callable[[str], object]) -> NoReturn:
    """Show the store in a page until KeyboardInterrupt; call on_open with its address.

    Raises:
        DemoError: If the page ends.
    """
    from .live_demo import page_address  # needs what the page needs

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = ("page", "--store", outcome.store, "--http", page_address())
    with process(options, {}, place.folder / "page.log", "http") as (page, line):
        on_open(line.split()[-1])
        page.wait()
        raise DemoError(f"the page ended; its log in {place.folder} says why")
