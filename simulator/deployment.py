"""A broker, a store, an aggregator that counts into it, and a keyed fleet of real clients that report.

Every step works as in production: the experiment is published signed and retained; devices receive it from
the broker, randomize, debit, and report over MQTT with tags; the aggregator counts in its own process.
"""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np

from ..device.ldp_client import Experiment
from ..fleet.provisioning import master_key
from ..server.answers import tables as show
from ..server.answers.files import output_folder
from ..server.errors import HushmoteError
from ..server.ingest.broker_url import BrokerAddress, NatsAddress, is_nats
from ..server.service.process import READY
from ..server.store.store import Store
from ..server.wire import keys, topics
from .broker import Broker
from .faithful import SimulatedFleet
from .gateway import gateways_at
from .open_broker import open_broker
from .population import Reading

FLEET = "airports"
_START_S = 120.0
_STOP_S = 10.0
_COUNT_S = 120.0
# Accepts a label and a total; yields a function to call with each increment.
Progress = Callable[[str, float | None], AbstractContextManager[Callable[[float], object]]]


class DemoError(HushmoteError):
    """Raised if a part of a demo failed to start; the message says which one and why."""


@dataclass(frozen=True)
class Place:
    """A demo's settings: broker, folder, whether to print its steps, and how to show progress."""

    broker: str | BrokerAddress | NatsAddress
    folder: Path
    quiet: bool = False
    progress: Progress = lambda _doing, _total: nullcontext(lambda _: None)

    def say(self, label: str, text: str) -> None:
        """Print a step, unless the demo is quiet."""
        if not self.quiet:
            show.out.print(f"{label:<10}" + "\n          ".join(textwrap.wrap(text, 68)))


@dataclass(frozen=True)
class ReportedFleet:
    """A fleet whose reports are all counted, with the seconds spent on reporting and then on counting.

    Attributes:
        duplicates: Reports that arrived a second time and were not counted again.
    """

    fleet: SimulatedFleet
    fleet_s: float
    count_s: float
    duplicates: int

    @property
    def report_bytes(self) -> int:
        """Size of a report in bytes."""
        return len(next(iter(self.fleet.acknowledged.values())))


@dataclass(frozen=True)
class Deployment:
    """The running parts, and FLEET's keys; `url` is the store's URL."""

    place: Place
    broker: Broker
    store: Store
    url: str
    process: subprocess.Popen[str]
    fleet_keys: keys.FleetKeys

    def retained(self, name: str) -> bytes:
        """Return the broker's retained experiment of FLEET; raise DemoError if there is none."""
        topic = topics.experiment_topic(FLEET, name)
        with gateways_at(self.broker) as gateways:
            announced = gateways.retained(topic, _START_S)
        if announced is None:
            raise DemoError(f"the broker has no retained message on {topic}")
        return announced

    def fleet(self, announced: bytes, devices: int, rng: np.random.Generator) -> SimulatedFleet:
        """Return this many devices of FLEET, enrolled in an experiment."""
        return SimulatedFleet(
            FLEET,
            [announced],
            size=devices,
            rng=rng,
            device_key=lambda device: keys.device_key(self.fleet_keys.masters[0], FLEET, device),
            announce_key=self.fleet_keys.announce_key,
        )

    def report(self, experiment: Experiment, readings: Sequence[Reading]) -> ReportedFleet:
        """Have a separate device report each reading, and return once all are counted.

        Raises:
            DemoError: If the broker has no retained experiment, or not all reports are counted in time.
            GatewayError: If a device cannot connect to the broker or its reports are not acknowledged.
            StoreError: If the store fails.
        """
        name, place = experiment.name, self.place
        announced = self.retained(name)
        start_s = time.monotonic()
        fleet = self.fleet(announced, len(readings), np.random.default_rng())
        reports = fleet.make_reports({name: readings})
        with gateways_at(self.broker) as gateways, place.progress("reporting", len(readings)) as advance:
            gateways.deliver(fleet, reports, advance)
        reported_s = time.monotonic()
        expected = len(fleet.acknowledged)
        self._wait_until_counted(experiment, expected)
        count_s = time.monotonic() - reported_s
        duplicates = self.store.rejects().get(FLEET, {}).get("duplicate", 0)
        return ReportedFleet(fleet, reported_s - start_s, count_s, duplicates)

    def _wait_until_counted(self, experiment: Experiment, expected: int) -> None:
        end, before = time.monotonic() + _COUNT_S, 0
        with self.place.progress("counting", expected) as advance:
            while True:
                counted = int(self.store.histogram(FLEET, experiment.digest).sum())
                advance(counted - before)
                before = counted
                if counted >= expected:
                    return
                if self.process.poll() is not None or time.monotonic() > end:
                    raise DemoError(f"only {counted} of {expected} reports were counted; see aggregator.log")
                time.sleep(0.1)


@contextmanager
def deploy(
    place: Place, name: str, fill: Callable[[Store], object], options: Sequence[str] = ()
) -> Iterator[Deployment]:
    """Yield a deployment with a new store, NAME.sqlite in the place's folder.

    Args:
        place: Broker and folder.
        name: The store's file name, without suffix.
        fill: Called to add fleets and experiments to the store before the aggregator starts.
        options: Options for `hushmote serve`.

    Raises:
        DemoError: If the aggregator does not start.
        BrokerError: If the broker does not start, or the choice of broker is invalid.
        StoreError: If the store cannot be created.
    """
    folder, key_file = place.folder, place.folder / f"{name}.key"
    url = f"sqlite:///{folder / f'{name}.sqlite'}"
    is_new = not folder.exists()
    output_folder(folder)
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(open_broker(place.broker))
        except BaseException:  # nothing was written yet, and an earlier run's files are kept
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        for old in (*folder.glob(f"{name}.sqlite*"), key_file):
            old.unlink(missing_ok=True)
        fleet_keys = master_key.create_keys(key_file)
        store = stack.enter_context(Store(url))
        place.say("broker", broker.description)
        fill(store)
        # The URL can contain a password, which must not be visible in the process list.
        environment = {"HUSHMOTE_BROKER": broker.url, "HUSHMOTE_CLIENT_ID": "hushmote-demo"}
        if not is_nats(broker.url):
            environment["HUSHMOTE_PROTOCOL"] = broker.protocol
        command = ["serve", "--store", url, "--master-key", str(key_file), *options]
        with process(command, environment, folder / "aggregator.log", READY) as (aggregator, _):
            yield Deployment(place, broker, store, url, aggregator, fleet_keys)


@contextmanager
def process(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    ready: str,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a `hushmote` command as a process; yield it and its first line, which must contain `ready`.

    Args:
        arguments: The command's arguments.
        environment: Additional environment variables.
        log: File for standard error.
        ready: Text that the first line must contain.

    Raises:
        DemoError: If the first line is different or arrives too late.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    with open(log, "w", encoding="utf-8") as output:
        command_process = subprocess.Popen(
            [sys.executable, "-m", "hushmote", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=inherited | dict(environment),
        )
    try:
        line = _first_line(command_process)
        if ready not in line:
            log_lines = log.read_text(encoding="utf-8").strip().splitlines() or ["it printed nothing"]
            raise DemoError(f"hushmote {arguments[0]} did not start: {line or log_lines[-1]}")
        yield command_process, line
    finally:
        command_process.terminate()
        try:
            command_process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            command_process.kill()
            command_process.wait()


def _first_line(command_process: subprocess.Popen[str]) -> str:
    stream = command_process.stdout
    assert stream is not None
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        lines.put(stream.readline().strip())
        for _ in stream:  # otherwise a full pipe would stop the process
            pass

    Thread(target=read, daemon=True).start()
    try:
        return lines.get(timeout=_START_S)
    except Empty:
        return "it took too long"
