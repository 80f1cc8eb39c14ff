"""What strikes in a chaos run, and when: a plan is drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

# SIGKILLs of a process; the rest disturbs in other ways.
KILLS = (
    "kill aggregator",
    "kill aggregator as it commits",
    "kill aggregator between acknowledging and committing",
    "kill aggregator as it starts",
    "kill broker",
    "kill broker while connected",
    "kill database",
    "kill node",
    "kill two nodes",
    "kill all nodes",
    "kill nodes with no aggregator",
    "wipe node",
    "unplug node",
    "unplug two nodes",
    "unplug all nodes",
)
FAULTS = (
    *KILLS,
    "stop aggregator",
    "pause aggregator",
    "stop broker",
    "cut database",
    "swallow database",
    "cut aggregators",
    "swallow aggregators",
    "cut boards",
    "swallow boards",
    "swallow answers to boards",
    "board dies",
    "stop node",
    "stop all nodes",
    "pause node",
    "pause two nodes",
    "cut node",
    "cut two nodes",
    "fill node",
    "fill all nodes",
)


@dataclass(frozen=True)
class Fault:
    """kind: one of FAULTS. after_s: since the fault before. lasts_s: until what was disturbed works again."""

    kind: str
    after_s: float
    lasts_s: float


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
