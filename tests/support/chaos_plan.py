"""What a chaos run disturbs, what strikes in it, and when: a plan is drawn from a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nats_sites import SiteServers

from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers


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
        """Return the broker, not started."""
        if self.sites:
            return SiteServers(sync=self.sync)
        if self.cluster:
            return NatsServers(settings=self.broker_settings, sync=self.sync)
        return MosquittoBroker(settings=self.broker_settings)


@dataclass(frozen=True)
class Fault:
    """kind: a verb, and whom it strikes: "kill aggregator", "cut boards", "swallow answers to boards".

    after_s: since the fault before. lasts_s: until what was disturbed works again.
    """

    kind: str
    after_s: float
    lasts_s: float


def is_kill(kind: str) -> bool:
    """Whether a fault is the SIGKILL of a process; the others disturb in other ways."""
    return kind.startswith(("kill", "wipe", "unplug"))


def plan(seed: int, weights: Mapping[str, float], count: int, *, gap_s: float = 0.5) -> list[Fault]:
    """Draw count faults; gap_s is the mean time between two, some come in volleys of a few milliseconds."""
    rng = np.random.default_rng(seed)
    share = np.array(list(weights.values())) / sum(weights.values())
    faults = []
    for kind in rng.choice(list(weights), count, p=share).tolist():
        after_s = rng.uniform(0, 0.02) if rng.random() < 0.2 else rng.exponential(gap_s)
        lasts_s = float(rng.choice((0.0, 0.0, rng.uniform(0, 0.3), rng.uniform(0.3, 1.5))))
        faults.append(Fault(kind, after_s, lasts_s))
    return faults
