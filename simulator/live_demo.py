"""`hushmote demo --page`: fleets that keep reporting, and the page that shows their counts.

There are three fleets: `simulated` has a month of reports; `airports` consists of real clients with real
readings that join one after the other; `visitors` are people who open the board in a browser.
"""

import datetime
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from ..server.experiments import definition
from ..server.experiments.definition import Definition
from ..server.service.bounded_http import EndpointError, listen
from ..server.store.store import Store
from . import days
from .broker import free_port
from .demo_data import DEFINITION, NAME, temperatures
from .deployment import FLEET, DemoError, Place, deploy, process
from .faithful import Delivery, SimulatedFleet
from .gateway import GatewayError, gateways_at
from .nats_servers import NatsServers
from .population import normal

VISITORS = "visitors"
PER_S = 100.0  # reports per second from the airports' devices
HOST, PORT = "127.0.0.1", 9419  # the page's address
INITIAL_DEVICES = 2_000  # airports' devices that report before the page opens
HISTORY_DAYS = 30
HISTORY_BOARDS = 200_000
_FILE = """
name = "{name}"
purpose = "{purpose}"
owner = "demo@example.org"
expires = {expires}
{more}
[budget]
rule = "sum"
cap = {cap}
"""
_ROOM = 'type = "number"\nunit = "°C"\nhigh = 32\nepsilon = 2.0\n'
_HISTORY_EXPERIMENT = {
    "name": "room_temp",
    "purpose": "How warm are rooms, and does it change?",
    "more": f'{_ROOM}low = 8\nbins = 96\nevery = 15\nstatistics = "ranges"',
    "cap": 8.0,
}
_VISITOR_EXPERIMENTS = (
    {
        "name": "room_now",
        "purpose": "How warm is it where you are?",
        "more": f'{_ROOM}low = 12\nbins = 20\nstatistics = "frequencies"',
        "cap": 8.0,
    },
    {
        "name": "slept_well",
        "purpose": "Did you sleep well?",
        "more": 'type = "bool"\nepsilon = 1.0',
        "cap": 4.0,
    },
    {
        "name": "breakfast",
        "purpose": "What did you have for breakfast?",
        "more": 'type = "choice"\nlabels = ["bread", "cereal", "eggs", "fruit", "nothing"]\nepsilon = 2.0',
        "cap": 6.0,
    },
)


@dataclass(frozen=True)
class RunningDemo:
    """A running demo: the page's and the store's URLs, the broker's description, its servers' process ids."""

    page: str
    store: str
    broker: str
    servers: tuple[int, ...] = ()


def run(place: Place, on_open: Callable[[RunningDemo], object]) -> NoReturn:
    """Run until KeyboardInterrupt; call on_open once the page can be opened, on PORT or a free port.

    Raises:
        DemoError, BrokerError, GatewayError, StoreError: If the aggregator, the broker, a device or the store
            fails; the message is one line.
    """
    # Otherwise the processes started below would outlive it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    readings = temperatures()
    http_address = f"{HOST}:{free_port()}"
    with deploy(place, "page", _fill, ("--http", http_address)) as deployment:
        rng, announced = np.random.default_rng(), deployment.retained(NAME)

        def joining(devices: int) -> tuple[SimulatedFleet, Iterator[Delivery]]:
            fleet = deployment.fleet(announced, devices, rng)
            positions = rng.integers(len(readings), size=devices)
            return fleet, fleet.make_reports({NAME: [readings[i] for i in positions]})

        with (
            gateways_at(deployment.broker) as gateways,
            place.progress("reporting", INITIAL_DEVICES) as advance,
        ):
            gateways.deliver(*joining(INITIAL_DEVICES), advance)
        options = (
            "--store",
            deployment.url,
            "--http",
            page_address(),
            "--aggregator",
            f"http://{http_address}",
        )
        environment = {"HUSHMOTE_BROKER": deployment.broker.url}
        with process(("page", *options), environment, place.folder / "page.log", "http") as (page, line):
            broker = deployment.broker
            servers = broker.pids if isinstance(broker, NatsServers) else ()
            on_open(RunningDemo(line.split()[-1], deployment.url, broker.description, servers))

            parts = {"page": page, "aggregator": deployment.process}
            while _ended_part(parts) is None:
                try:
                    with gateways_at(deployment.broker) as gateways:
                        while _ended_part(parts) is None:
                            fleet, reports = joining(int(PER_S))
                            gateways.deliver(fleet, _pace(reports))
                except GatewayError:  # wait for the broker to return
                    time.sleep(1.0)
            raise DemoError(f"the {_ended_part(parts)} ended; its log in {place.folder} says why")


def _ended_part(parts: Mapping[str, subprocess.Popen[str]]) -> str | None:
    """Return the name of a process that has ended, or None."""
    return next((name for name, part in parts.items() if part.poll() is not None), None)


def page_address() -> str:
    """Return the page's usual address, or one with a free port if it is taken."""
    try:
        listen(HOST, PORT).close()
    except EndpointError:
        return f"{HOST}:0"
    return f"{HOST}:{PORT}"


def _fill(store: Store) -> None:
    """Put a month of simulated boards into a store, and add the other fleets' experiments."""
    today = datetime.datetime.now(datetime.UTC).date()
    in_a_year = today + datetime.timedelta(days=365)

    def parse_question(values: dict[str, object]) -> Definition:
        return definition.parse(_FILE.format(expires=in_a_year, **values))

    question, people = parse_question(_HISTORY_EXPERIMENT), normal(19, 3)
    course = days.Course(days.FLEET, question, HISTORY_BOARDS, people, HISTORY_DAYS, 1.0, 0.1, today)
    days.fill(store, course, np.random.default_rng())
    store.add_fleet(FLEET, keyed=True)
    store.add_fleet(VISITORS, keyed=False)
    text = DEFINITION.replace('window = "all"', 'window = "day"')
    warmth = definition.parse(text.replace("9999-12-31", str(in_a_year)))
    for fleet, question in [(FLEET, warmth), *((VISITORS, parse_question(v)) for v in _VISITOR_EXPERIMENTS)]:
        store.add_experiment(fleet, question.payload(), question.expires, description=question.description())


def _pace(deliveries: Iterable[Delivery]) -> Iterator[Delivery]:
    """Yield the deliveries at no more than PER_S per second."""
    began_s = time.monotonic()
    for n, delivery in enumerate(deliveries):
        if (early_s := began_s + n / PER_S - time.monotonic()) > 0:
            time.sleep(early_s)
        yield delivery
