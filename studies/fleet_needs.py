"""A model of the resources that n boards need: connections, processors, memory, disks and network.

Every constant is measured: scale.csv, which benchmarks/scale.py writes from the benchmarks' results, lists
each with its source. Assumptions are in Machine and Fleet. Demand grows with the number of boards. Parts that
cannot be divided among machines (a single-threaded broker, a log on which servers agree, a single writer, a
database) are limits; if demand exceeds a limit, the set-up is too small.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ..server.errors import HushmoteError
from .power_cut import Server

DAY_S = 86_400.0
YEAR_S = 365 * DAY_S
MAX_BOARDS = 10**10
GIB = 2.0**30
TB = 1e12
_IP_TCP = 40  # header bytes in a packet, IPv4 without options
_TLS_RECORD = 29  # overhead bytes in a TLS 1.2 record with AES-GCM: header, nonce, tag
_OPEN_PACKETS = 12  # TCP and TLS packets until both ends have finished the handshake
_CONNECTED_S = 5.0  # time for which a sleeping board stays connected to send its reports, once Wi-Fi is up

MOSQUITTO, NATS = "mosquitto", "nats 3"
SQLITE, POSTGRESQL = "sqlite", "postgresql"


class ScaleError(HushmoteError):
    """The model does not cover this fleet; the message says what was expected."""


@dataclass(frozen=True)
class Constant:
    """A measured number with its unit, its source file, and the conditions of the measurement."""

    value: float
    unit: str
    source: str
    conditions: str


@cache
def constants() -> Mapping[str, Constant]:
    """Return the model's measured constants by name."""
    text = Path(__file__).with_name("scale.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {r["name"]: Constant(float(r["value"]), r["unit"], r["source"], r["conditions"]) for r in rows}


def values() -> dict[str, float]:
    """Return the constants' values by name."""
    return {name: constant.value for name, constant in constants().items()}


@dataclass(frozen=True)
class Machine:
    """A server, as assumed rather than measured.

    Attributes:
        load: Share of each resource that may be used at the peak.
    """

    cores: int = 16
    memory_gib: float = 64.0
    network_mbit: float = 10_000.0
    disk_tb: float = 4.0
    load: float = 0.5


@dataclass(frozen=True)
class Fleet:
    """Boards and their behaviour.

    Attributes:
        every_s: Mean time between a board's reports.
        stays: Whether boards stay connected; otherwise they wake, report and sleep, and connect at least
            every refresh_s.
        reconnect_s: Duration of a board's connection if it stays connected.
        region: Share of the boards that reconnect over spread_s after a power cut.
        peak: Rate in the busiest second, relative to the average.
        codes, days: Dimensions of the stored histogram.
    """

    boards: int
    every_s: float
    stays: bool = False
    refresh_s: float = DAY_S
    keepalive_s: float = 60.0
    reconnect_s: float = DAY_S
    region: float = 0.1
    spread_s: float = 600.0
    peak: float = 3.0
    experiments: int = 1
    codes: int = 1024
    days: int = 365

    @property
    def reports_per_s(self) -> float:
        """Reports per second, on average."""
        return self.boards / self.every_s


@dataclass(frozen=True)
class Setup:
    """The servers of a deployment.

    Attributes:
        grouped: Whether several aggregators share the reports.
    """

    name: str
    broker: str
    store: str
    grouped: bool


ONE = Setup("mosquitto, one aggregator, SQLite", MOSQUITTO, SQLITE, False)
GROUP = Setup("mosquitto, a group, PostgreSQL", MOSQUITTO, POSTGRESQL, True)
CLUSTER = Setup("NATS cluster, a group, PostgreSQL", NATS, POSTGRESQL, True)
SETUPS = (ONE, GROUP, CLUSTER)


@dataclass(frozen=True)
class Limit:
    """A limit that more machines do not raise, and its load: 1 is full load."""

    what: str
    load: float
    then: str


@dataclass(frozen=True)
class Needs:
    """The resources that a fleet needs at its peak, in cores, GiB, Mbit/s and TB, before regions are split.

    Attributes:
        arriving: New connections per second at the peak.
        standing: Number of simultaneous connections.
        divided_gib: Memory that is divided among the brokers.
        every_gib: Memory that each broker needs for all boards.
        limits: All limits, highest load first.
    """

    fleet: Fleet
    setup: Setup
    machine: Machine
    reports_per_s: float
    standing: float
    arriving: float
    broker_cores: float
    divided_gib: float
    every_gib: float
    aggregator_cores: float
    database_cores: float
    store_tb: float
    network_mbit: float
    limits: tuple[Limit, ...]

    @property
    def first(self) -> Limit:
        """The limit that is reached first."""
        return self.limits[0]

    @property
    def regions(self) -> int:
        """Number of regions, each with its own store, into which the fleet is divided."""
        return max(math.ceil(self.first.load), 1)

    @property
    def brokers(self) -> int:
        """Number of machines with a broker, over all regions."""
        m = self.machine
        most = max(self.broker_cores / m.cores, self.network_mbit / m.network_mbit) / m.load
        free_gib = m.memory_gib * m.load - self.every_gib / self.regions
        least = max(
            math.ceil(self.divided_gib / self.regions / free_gib), 3 if self.setup.broker == NATS else 1
        )
        return max(math.ceil(most), least * self.regions)

    @property
    def broker_gib(self) -> float:
        """Total memory of all brokers."""
        return self.divided_gib + self.every_gib * self.brokers / self.regions

    @property
    def aggregators(self) -> int:
        """Number of `hushmote serve` processes, each using at most one core."""
        return max(math.ceil(self.aggregator_cores / self.machine.load), self.regions)

    @property
    def machines(self) -> int:
        """Total number of machines: brokers, aggregators, and one database per region."""
        if self.setup is ONE:
            return self.regions
        aggregators = max(math.ceil(self.aggregators / self.machine.cores), 1)
        return self.brokers + aggregators + self.regions


def needs(fleet: Fleet, setup: Setup, machine: Machine = Machine()) -> Needs:
    """Return the resources that a fleet needs with a set-up; raise ScaleError."""
    if not 1 <= fleet.boards <= MAX_BOARDS:
        raise ScaleError(f"the model supports 1 to {MAX_BOARDS:,} boards, not {fleet.boards:,}")
    if min(fleet.every_s, fleet.refresh_s, fleet.spread_s) < 1:
        raise ScaleError("the time between reports, and between connections, must be at least a second")
    constant = values()
    kind = setup.broker
    report = fleet.peak * fleet.reports_per_s
    if fleet.stays:
        standing = float(fleet.boards)
        arriving = max(
            fleet.boards / fleet.reconnect_s * fleet.peak, fleet.boards * fleet.region / fleet.spread_s
        )
        pings = 2 * fleet.boards / fleet.keepalive_s
    else:
        # A board connects for each report, and in addition about once per refresh_s.
        arriving = fleet.peak * fleet.boards * (1 / fleet.every_s + 1 / fleet.refresh_s)
        standing = arriving * _CONNECTED_S
        pings = 0.0
    opened = (
        constant[f"{kind} connect"]
        + constant[f"{kind} subscribe"] * fleet.experiments
        + constant[f"{kind} status"]
    )
    broker_us = arriving * opened + pings * constant[f"{kind} ping"] + report * constant[f"{kind} report"]
    broker_us += report * constant.get(f"{kind} deliver", 0.0)
    divided, every = standing * constant[f"{kind} connection"], 0.0
    if kind == NATS:  # each of three servers stores a status and a list entry for every board
        every = fleet.boards * (constant[f"{kind} retained"] / 3 + constant["nats listed"])
    else:
        divided += fleet.boards * constant[f"{kind} retained"]
    aggregator_us = report * constant[f"aggregator {setup.broker} {setup.store}"]
    database_us = report * constant[f"database {setup.store}"]
    store = fleet.boards * fleet.experiments * constant[f"{setup.store} device"]
    store += fleet.experiments * fleet.codes * fleet.days * constant[f"{setup.store} bin"]
    packet = _IP_TCP + _TLS_RECORD
    bytes_per_s = report * (constant["publish"] + constant["puback"] + 2 * packet)
    bytes_per_s += arriving * (
        constant["handshake up"] + constant["handshake down"] + _OPEN_PACKETS * _IP_TCP + 10 * packet
    )
    bytes_per_s += pings * 2 * (2 + packet)
    amounts = {
        "reports_per_s": report,
        "standing": standing,
        "arriving": arriving,
        "broker_cores": broker_us / 1e6,
        "divided_gib": divided / GIB,
        "every_gib": every / GIB,
        "aggregator_cores": aggregator_us / 1e6,
        "database_cores": database_us / 1e6,
        "store_tb": store / TB,
        "network_mbit": bytes_per_s * 8 / 1e6,
    }
    limits = sorted(_limits(setup, machine, amounts, constant), key=lambda limit: -limit.load)
    return Needs(fleet, setup, machine, limits=tuple(limits), **amounts)


def smallest(fleet: Fleet, machine: Machine = Machine()) -> Needs:
    """Return the needs with the first sufficient set-up, else with the last in regions; raise ScaleError."""
    for setup in SETUPS:
        least = needs(fleet, setup, machine)
        if least.regions == 1:
            return least
    return least


def breaks_at(fleet: Fleet, setup: Setup, machine: Machine = Machine()) -> tuple[int, Limit] | None:
    """Return the smallest number of boards that is too large and its limit, or None."""
    low, high = 1, MAX_BOARDS + 1
    while low < high:
        middle = (low + high) // 2
        if needs(replace(fleet, boards=middle), setup, machine).first.load > 1:
            high = middle
        else:
            low = middle + 1
    return None if low > MAX_BOARDS else (low, needs(replace(fleet, boards=low), setup, machine).first)


def _limits(
    setup: Setup, machine: Machine, amounts: Mapping[str, float], constant: Mapping[str, float]
) -> list[Limit]:
    """Return the load on each part that cannot be divided among machines; 1 is full load."""
    load, cores = machine.load, machine.cores
    memory = machine.memory_gib * load
    limits = {
        "disk of the store": (amounts["store_tb"] / (machine.disk_tb * load), "regions, or seal old windows")
    }
    if setup.broker == MOSQUITTO:
        limits["mosquitto's one thread"] = amounts["broker_cores"] / load, "NATS servers"
        limits["mosquitto's memory"] = amounts["divided_gib"] / memory, "NATS servers"
    else:
        log_cores = amounts["reports_per_s"] * constant["nats 3 log"] / 1e6
        limits["the one log of reports"] = log_cores / load, "regions"
        all_cores = _MAX_SERVERS * cores * load
        limits["processors of the brokers"] = amounts["broker_cores"] / all_cores, "regions"
        # Each server stores the list of all boards and their statuses.
        every, connections = amounts["every_gib"], amounts["divided_gib"] / _MAX_SERVERS
        memory_load = (every + connections) / memory
        if every > connections:
            limits["memory for the list of boards and their statuses"] = memory_load, "regions"
        else:
            limits["memory for connections"] = memory_load, "regions, or boards that sleep"
    if setup.store == SQLITE:
        limits["the one aggregator"] = amounts["aggregator_cores"] / load, "a group on PostgreSQL"
    else:
        limits["the database's processors"] = amounts["database_cores"] / (cores * load), "regions"
    return [Limit(what, share, then) for what, (share, then) in limits.items()]


_MAX_SERVERS = 9  # in one cluster: each server has a connection to every other, and a list of all boards


def throughput(broker: str, store: str, members: int, cores: int) -> float:
    """Return the reports per second that aggregators drain from one broker, all on this many cores.

    An aggregator waits for its database, so the two take turns. SQLite commits one transaction at a time,
    and mosquitto has one thread.
    """
    constant = values()
    aggregator, database = constant[f"aggregator {broker} {store}"], constant[f"database {store}"]
    deliver = constant[f"{broker} deliver"]
    rates = [members * 1e6 / (aggregator + database), cores * 1e6 / (aggregator + database + deliver)]
    if store == SQLITE:
        rates.append(1e6 / constant[f"commit {store}"])
    if broker == MOSQUITTO:
        rates.append(1e6 / deliver)
    return min(rates)


def server(broker: str, cores: float) -> Server:
    """Return a broker for power_cut.py, based on the same constants.

    mosquitto has one thread and accepts connections from a backlog of 100.

    Args:
        broker: MOSQUITTO or NATS.
        cores: Total cores of all its servers.
    """
    constant = values()
    hello, plain = constant[f"{broker} hello"], constant[f"{broker} plain connect"]
    finish = constant[f"{broker} connect"] - hello - plain
    steps = (hello, finish, plain, constant[f"{broker} subscribe"], constant[f"{broker} status"])
    if broker == MOSQUITTO:
        return Server(*(step / 1e6 for step in steps), cores=min(cores, 1), backlog=100)
    return Server(*(step / 1e6 for step in steps), cores=cores)
