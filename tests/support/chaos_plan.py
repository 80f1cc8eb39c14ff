"""The faults of a chaos run, their targets and times, drawn from a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nats_sites import SiteServers

from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers


@dataclass(frozen=True)
class Setting:
    """The system under test.

    boards: each publishes every gap_s seconds on average; every fifth runs the shipped client. in_flight,
    hold_s: see Board. options: options for `hushmote serve`. share: the group's name, for several aggregators
    on one store. broker_settings: further lines for mosquitto.conf, or for each NATS server's configuration.
    cluster: use three NATS servers instead of mosquitto; sync: their sync interval; sites: run them on
    separate networks and disks, see SiteServers; limits: keep each report for a fixed time, even if all
    consumers have seen it. between: the maximum number of reports between two server faults that wait for
    reports. program: the Python arguments that run `hushmote`. min_reports: the minimum number of confirmed
    reports before the run ends, even on a slow machine.
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
    min_reports: int = 0

    def broker(self) -> MosquittoBroker | NatsServers:
        """Return the broker without starting it."""
        if self.sites:
            return SiteServers(sync=self.sync)
        if self.cluster:
            return NatsServers(settings=self.broker_settings, sync=self.sync)
        return MosquittoBroker(settings=self.broker_settings)


@dataclass(frozen=True)
class Fault:
    """A fault to inject.

    kind: a verb and its target: "kill aggregator", "cut boards", "swallow answers to boards".

    after_s: seconds since the previous fault. lasts_s: seconds until recovery.
    """

    kind: str
    after_s: float
    lasts_s: float


def is_kill(kind: str) -> bool:
    """Return whether a fault kills a process with SIGKILL."""
    return kind.startswith(("kill", "wipe", "unplug"))


def plan(seed: int, weights: Mapping[str, float], count: int, *, gap_s: float = 0.5) -> list[Fault]:
    """Draw `count` faults, gap_s apart on average; some come in bursts a few milliseconds apart."""
    rng = np.random.default_rng(seed)
    share = np.array(list(weights.values())) / sum(weights.values())
    faults = []
    for kind in rng.choice(list(weights), count, p=share).tolist():
        after_s = rng.uniform(0, 0.02) if rng.random() < 0.2 else rng.exponential(gap_s)
        lasts_s = float(rng.choice((0.0, 0.0, rng.uniform(0, 0.3), rng.uniform(0.3, 1.5))))
        faults.append(Fault(kind, after_s, lasts_s))
    return faults
