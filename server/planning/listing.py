"""Every mechanism there is for a question, beside those of the field that are not here.

All errors are of one population, so that they can be compared: values that are asked for one by one are held
by nobody, and for ranges, quantiles and means all values are equally common. It is what the choice of a
mechanism goes by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from ...device.ldp_client import DRBG, Experiment
from ..arrays import Floats
from ..epsilon import MICRO
from ..experiments.payload import experiment_over
from ..mechanisms import MECHANISMS, Mechanism, mechanism_of
from ..mechanisms.about import About, about
from ..mechanisms.choice import Choice
from ..mechanisms.choose import choose, designs
from ..mechanisms.peers import PEERS, Asked, Peer
from ..mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload, WorkloadError
from ..wire.report import TAG_BYTES, encode
from .devices import PlanError, Z

WORKLOADS: dict[Asked, Workload] = {
    "frequency": FREQUENCIES,
    "range": ALL_RANGES,
    "quantile": PREFIXES,
    "mean": MEAN,
    "labels": FREQUENCIES,
}
"""What the choice is told of each question."""

SLOTS = 65_536
"""Of texts that nobody listed, where nothing else is said."""

ASKED: dict[Asked, str] = {
    "frequency": "Share of one value",
    "range": "Share of a range of values",
    "quantile": "Quantiles",
    "mean": "The mean, as a part of the readings' range",
    "labels": "Shares of texts that nobody listed, hashed into slots",
}
"""What is asked, in words."""


@dataclass(frozen=True)
class Listed:
    """A mechanism with its best parameters for a question.

    variance  times reports
    """

    experiment: Experiment
    variance: float

    @property
    def word(self) -> str:
        """As an experiment has it."""
        return self.experiment.mechanism

    @cached_property
    def mechanism(self) -> Mechanism:
        """What estimates are made with."""
        return mechanism_of(self.experiment)

    @property
    def about(self) -> About:
        """What its file says of it."""
        return about(type(self.mechanism))

    @property
    def codes(self) -> int:
        """Number of codes."""
        return self.experiment.code_count

    @property
    def report_bytes(self) -> int:
        """Of a report in a keyed fleet."""
        return len(encode(self.experiment, 1, 0)) + TAG_BYTES

    @cached_property
    def draws(self) -> int:
        """Random numbers that a board draws for a report."""
        rng = _Counted(b"the same for all")
        self.experiment.randomize(0, rng)
        return rng.drawn

    @cached_property
    def decode_seconds(self) -> float:
        """Time from a histogram to what is asked, on this machine, now."""
        mechanism = self.mechanism
        counts = np.ones(self.codes, np.int64)
        begin = time.perf_counter()
        decoded = mechanism.decode(counts)
        if "frequencies" in mechanism.answers:
            assert decoded.frequencies.size
        else:
            decoded.value(np.linspace(0, 1, mechanism.domain)[:, None])
        return time.perf_counter() - begin


class _Counted(DRBG):
    """The board's generator, which counts how often it is asked."""

    drawn = 0

    def bernoulli(self, threshold: int) -> bool:
        self.drawn += 1
        return super().bernoulli(threshold)

    def below(self, n: int) -> int:
        self.drawn += 1
        return super().below(n)


@dataclass(frozen=True)
class Listing:
    """What answers a question about range(domain) at ε micro-nats, the least error first.

    auto     the one that an experiment file's "auto" takes
    """

    asked: Asked
    domain: int
    epsilon: int
    listed: tuple[Listed, ...]
    auto: Listed
    peers: tuple[Peer, ...]

    @property
    def title(self) -> str:
        """What is asked, and of how many values."""
        return f"{ASKED[self.asked]}: {self.domain:,} {'slots' if self.asked == 'labels' else 'values'}"

    @property
    def why(self) -> str:
        """Why auto takes it, in a sentence."""
        best = self.listed[0]
        if self.auto.variance <= best.variance * (1 + 1e-9):
            return f"auto takes {self.auto.word}: it has the least error of those here."
        more = math.sqrt(self.auto.variance / best.variance) - 1
        return (
            f"auto takes {self.auto.word}: its error is {more:.1%} above that of {best.word}, and it has"
            f" {self.auto.codes:,} codes instead of {best.codes:,}."
        )

    def peer_variance(self, peer: Peer) -> float:
        """Times reports, of the same population."""
        return peer.variance(population(self.asked, self.domain), self.epsilon / MICRO)

    @property
    def optimum(self) -> float:
        """The least variance of all, here or not."""
        return min([self.listed[0].variance, *map(self.peer_variance, self.peers)])


def population(asked: Asked, domain: int) -> Floats:
    """That all errors are of: nobody holds value 0, the others are alike; or all are."""
    shares = np.ones(domain)
    if asked in ("frequency", "labels", "pairs"):
        shares[0] = 0
    return shares / shares.sum()


def half_width(variance: float, devices: int) -> float:
    """Half-width of the 95 % interval."""
    return Z * math.sqrt(variance / devices)


@lru_cache(maxsize=256)
def listing(asked: Asked, domain: int, epsilon: int) -> Listing:
    """All mechanisms of the registry that answer a question. Raises PlanError where none does."""
    workload = WORKLOADS[asked]
    try:
        auto = choose(domain, epsilon, workload)
        best: dict[str, Choice] = {auto.mechanism: auto}
        for choice in designs(domain, epsilon, workload):
            if choice.variance < best.setdefault(choice.mechanism, choice).variance:
                best[choice.mechanism] = choice
    except (ValueError, WorkloadError) as e:
        raise PlanError(str(e)) from None
    # A text's slot is shared by chance with others, which are taken off.
    more = (domain / (domain - 1)) ** 2 if asked == "labels" else 1.0
    listed = [
        Listed(experiment_over(domain, epsilon, choice.fields()), choice.variance * more)
        for choice in best.values()
    ]
    listed.sort(key=lambda one: one.variance)
    chosen = next(one for one in listed if one.word == auto.mechanism)
    peers = sorted((p for p in PEERS if p.asked == asked), key=_least_first(asked, domain, epsilon))
    return Listing(asked, domain, epsilon, tuple(listed), chosen, tuple(peers))


def besides(found: Sequence[Listing]) -> dict[str, str]:
    """The words of the registry that no listing has, with what each is."""
    shown = {one.word for each in found for one in each.listed}
    return {word: about(mechanism).what for word, mechanism in MECHANISMS.items() if word not in shown}


def _least_first(asked: Asked, domain: int, epsilon: int) -> Any:
    shares = population(asked, domain)
    return lambda peer: peer.variance(shares, epsilon / MICRO)
