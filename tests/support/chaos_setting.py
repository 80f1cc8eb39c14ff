"""What a chaos run disturbs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nats_sites import SiteServers

from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers


class Database(Protocol):
    """A database server that can be killed, with a database for this run."""

    port: int

    def kill(self) -> None: ...
    def start(self) -> None: ...
    def url(self, database: str, *, port: int | None = None) -> str: ...


@dataclass(frozen=True)
class Setting:
    """What is disturbed.

    boards publish every gap_s seconds in the mean, each; every fifth runs the client that is shipped.
    in_flight, hold_s: see Board. options: of `hushmote serve`. share: name of the group, for several
    aggregators on one store. broker_settings: further lines of mosquitto.conf, or of each NATS server's
    configuration. cluster: three NATS servers in place of mosquitto; sync: how often they sync; sites: on
    networks and disks of their own, see SiteServers; limits: they keep each report for a time, whoever has
    seen it. between: at most so many reports between two faults of servers that wait for some. program: what
    Python is told to run with the arguments of `hushmote`. least: reports that boards were told of before it
    ends, on a slow machine too.
    """

    boards: int = 30
    gap_s: float = 0.02
    in_flight: int = 16
    hold_s: float | None = None
    aggregators: int = 1
    share: str | None = None
    options: Sequence[str] = ("--batch", "50", "--batch", "0.05s")
    broker_settings: tuple[str, ...] = ()
    cluster: bool = False
    limits: bool = False
    between: int = 8000
    sites: bool = False
    sync: str = "2m"
    program: Sequence[str] = ("-m", "hushmote")
    least: int = 0

    def broker(self) -> MosquittoBroker | NatsServers:
        """The broker, not started."""
        if self.sites:
            return SiteServers(sync=self.sync)
        if self.cluster:
            return NatsServers(settings=self.broker_settings, sync=self.sync)
        return MosquittoBroker(settings=self.broker_settings)
