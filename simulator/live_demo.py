"""`hushmote demo --page`: fleets that go on reporting, and the page over what is counted of them.

Three fleets: `simulated` has a month behind it, `airports` are real clients with real readings that join one
after the other, and `visitors` are whoever opens the board in a browser.
"""

from __future__ import annotations

import datetime
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from ..server.answers.files import output_folder
from ..server.experiments import definition
from ..server.ingest.broker_url import BrokerAddress, NatsAddress
from ..server.provisioning import master_key
from ..server.service.bounded_http import listen, parse_endpoint
from ..server.store.store import Store
from ..server.wire import keys, topics
from . import days, demo, server_process
from .broker import Broker
from .demo_fleet import FLEET, DemoError, Progress, gateways_to, retained
from .faithful import Delivery, SimulatedFleet
from .gateway import GatewayError, Gateways
from .nats_servers import NatsServers
from .open_broker import open_broker
from .population import Reading, normal

VISITORS = "visitors"
PER_S = 100.0  # reports a second of the airports' devices
AT_ONCE = 2_000  # of them come before the page opens
HISTORY_DAYS = 30
HISTORY_BOARDS = 200_000
_EXPIRES = "expires = 9999-12-31"  # made a year ahead when the demo starts
_HISTORY = f"""
name = "room_temp"
purpose = "How warm are rooms, and does it change?"
owner = "demo@example.org"
{_EXPIRES}
type = "number"
unit = "°C"
low = 8
high = 32
bins = 96
epsilon = 2.0
every = 15
statistics = "ranges"
[budget]
rule = "sum"
cap = 8.0
"""
_VISITED = (
    f"""
name = "room_now"
purpose = "How warm is it where you are?"
owner = "demo@example.org"
{_EXPIRES}
type = "number"
unit = "°C"
low = 12
high = 32
bins = 20
epsilon = 2.0
statistics = "frequencies"
[budget]
rule = "sum"
cap = 8.0
""",
    f"""
name = "slept_well"
purpose = "Did you sleep well?"
owner = "demo@example.org"
{_EXPIRES}
type = "bool"
epsilon = 1.0
[budget]
rule = "sum"
cap = 4.0
""",
    f"""
name = "breakfast"
purpose = "What did you have for breakfast?"
owner = "demo@example.org"
{_EXPIRES}
type = "choice"
labels = ["bread", "cereal", "eggs", "fruit", "nothing"]
epsilon = 2.0
[budget]
rule = "sum"
cap = 6.0
""",
)


@dataclass(frozen=True)
class Opened:
    """What runs: the page's URL, the store's, the broker's description, the process ids of its servers."""

    page: str
    store: str
    broker: str
    servers: tuple[int, ...] = ()


def run(
    broker_choice: str | BrokerAddress | NatsAddress,
    folder: Path,
    http: str,
    opened: Callable[[Opened], object],
    progress: Progress,
) -> NoReturn:
    """Run until KeyboardInterrupt; opened: told once the page can be looked at.

    Raises DemoError, EndpointError, BrokerError, GatewayError, ServerProcessError and StoreError with one
    line.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the processes below would outlive it
    listen(*parse_endpoint(http)).close()  # a port that is taken is said now, not after all the work
    readings = demo.temperatures()
    output_folder(folder)
    for old in folder.glob("page.sqlite*"):
        old.unlink()
    key_file = folder / "page-master.key"
    key_file.unlink(missing_ok=True)
    fleet_keys = master_key.create_keys(key_file)
    url = f"sqlite:///{folder / 'page.sqlite'}"
    with open_broker(broker_choice) as broker, Store(url) as store:
        _fill(store)
        at_http = f"127.0.0.1:{_free_port()}"
        log = folder / "aggregator.log"
        with server_process.aggregator(broker, url, key_file, log, ("--http", at_http)) as counting:
            fleet = _Joining(broker, fleet_keys, readings)
            with progress("reporting", AT_ONCE) as advance:
                fleet.at_once(AT_ONCE, advance)
            options = ("--http", http, "--aggregator", f"http://{at_http}")
            environment = server_process.broker_of(broker)
            with server_process.page(url, folder / "page.log", options, environment) as (page, where):
                opened(Opened(where, url, broker.description, _pids(broker)))
                fleet.go_on(lambda: counting.poll() is None and page.poll() is None)
                ended = "page" if counting.poll() is None else "aggregator"
                raise DemoError(f"the {ended} ended: its log in {folder} says why")


def _pids(broker: Broker) -> tuple[int, ...]:
    if not isinstance(broker, NatsServers):
        return ()
    return tuple(pid for number in range(len(broker.nodes)) if (pid := broker.pid(number)) is not None)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def _fill(store: Store) -> None:
    """Put a month of simulated boards into a store, and ask the other fleets."""
    today = datetime.datetime.now(datetime.UTC).date()
    in_a_year = f"expires = {today + datetime.timedelta(days=365)}"

    def parsed(text: str) -> definition.Definition:
        return definition.parse(text.replace(_EXPIRES, in_a_year))

    asked = parsed(_HISTORY)
    course = days.Course(HISTORY_BOARDS, normal(19, 3), HISTORY_DAYS, 1.0, 0.1, today)
    script = days.prepare(days.FLEET, asked, course)
    days.fill(store, script, np.random.default_rng())
    store.add_fleet(FLEET, keyed=True)
    store.add_fleet(VISITORS, keyed=False)
    temperatures = parsed(demo.DEFINITION.replace('window = "all"', 'window = "day"'))
    for fleet, one in [(FLEET, temperatures), *((VISITORS, parsed(v)) for v in _VISITED)]:
        store.add_experiment(fleet, one.payload(), one.expires, description=one.description())


class _Joining:
    """Devices of the airports' fleet, each with its own client, that join and report once."""

    def __init__(self, broker: Broker, fleet_keys: keys.FleetKeys, readings: list[Reading]) -> None:
        self._broker, self._keys, self._readings = broker, fleet_keys, readings
        self._rng = np.random.default_rng()
        self._announced = retained(broker, topics.experiment_topic(FLEET, demo.NAME))

    def at_once(self, devices: int, advance: Callable[[float], object]) -> None:
        """Let this many report; raises GatewayError."""
        with self._gateways() as gateways:
            fleet = self._fleet(devices)
            gateways.deliver(fleet, self._reports(fleet), advance)

    def go_on(self, alive: Callable[[], bool]) -> None:
        """Let PER_S a second report while alive() holds; a broker that is away is waited for."""
        while alive():
            try:
                with self._gateways() as gateways:
                    while alive():
                        fleet = self._fleet(int(PER_S))
                        gateways.deliver(fleet, _paced(self._reports(fleet)))
            except GatewayError:
                time.sleep(1.0)

    def _gateways(self) -> Gateways:
        return gateways_to(self._broker)

    def _fleet(self, devices: int) -> SimulatedFleet:
        return SimulatedFleet(
            FLEET,
            [self._announced],
            size=devices,
            rng=self._rng,
            device_key=lambda device: keys.device_key(self._keys.masters[0], FLEET, device),
            announce_key=keys.public_key_bytes(self._keys.signing),
        )

    def _reports(self, fleet: SimulatedFleet) -> Iterator[Delivery]:
        drawn = self._rng.integers(len(self._readings), size=len(fleet))
        return fleet.round({demo.NAME: [self._readings[i] for i in drawn]})


def _paced(deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
    """The same, no faster than PER_S a second."""
    began_s = time.monotonic()
    for n, delivery in enumerate(deliveries):
        if (early_s := began_s + n / PER_S - time.monotonic()) > 0:
            time.sleep(early_s)
        yield delivery
