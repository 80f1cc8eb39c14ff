"""Every mechanism for a question, beside mechanisms of the field that are not here.

All errors are for one population, so that they can be compared: nobody holds the values that are asked for
one by one, and for ranges, quantiles and means all values are equally common. The choice of a mechanism
uses the same population.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from ..device.ldp_client import DRBG, Experiment, LDPError
from ..server.arrays import Floats
from ..server.epsilon import MICRO
from ..server.experiments.payload import experiment_over, payload
from ..server.mechanisms import MECHANISMS, Mechanism, class_of, mechanism_of
from ..server.mechanisms.about import About, about
from ..server.mechanisms.choice import Choice
from ..server.mechanisms.choose import choose, designs
from ..server.mechanisms.peers import PEERS, Asked, Peer
from ..server.mechanisms.workload import (
    ALL_RANGES,
    FREQUENCIES,
    MEAN,
    PREFIXES,
    Workload,
    WorkloadError,
    positions,
)
from ..server.wire.experiments import parse_experiment
from ..server.wire.report import TAG_BYTES, encode
from .devices import PlanError, Z
from .expected_error import ANSWERS

_WORKLOADS: dict[Asked, Workload] = {
    "frequency": FREQUENCIES,
    "range": ALL_RANGES,
    "quantile": PREFIXES,
    "mean": MEAN,
    "labels": FREQUENCIES,
    "pairs": Workload("tables"),
}

_NEEDS: dict[str, str] = {**ANSWERS, "labels": "frequencies"}
_MOST_PREFIXES = 128

SLOTS = 65_536
"""Of texts that nobody listed, where nothing else is said."""

ASKED: dict[Asked, str] = {
    "frequency": "Share of one value",
    "range": "Share of a range of values",
    "quantile": "Quantiles",
    "mean": "The mean, as a part of the readings' range",
    "labels": "Shares of texts that nobody listed, hashed into slots",
    "pairs": "Shares of two readings, of each by itself and of both together",
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
        """Its word in an experiment."""
        return self.experiment.mechanism

    @cached_property
    def mechanism(self) -> Mechanism:
        """The mechanism for estimates."""
        return mechanism_of(self.experiment)

    @property
    def about(self) -> About:
        """What its file says about it."""
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
        """Random numbers that a device draws for a report."""
        rng = _CountedDraws(b"the same for all")
        self.experiment.randomize(0, rng)
        return rng.drawn

    @cached_property
    def decode_seconds(self) -> float:
        """Seconds from a histogram to the answer, on this machine, now."""
        mechanism = self.mechanism
        counts = np.ones(self.codes, np.int64)
        begin = time.perf_counter()
        decoded = mechanism.decode(counts)
        if "frequencies" in mechanism.answers:
            assert decoded.frequencies.size
        else:
            decoded.value(np.linspace(0, 1, mechanism.domain)[:, None])
        return time.perf_counter() - begin


class _CountedDraws(DRBG):
    """The board's generator, which counts its draws."""

    drawn = 0

    def bernoulli(self, threshold: int) -> bool:
        self.drawn += 1
        return super().bernoulli(threshold)

    def below(self, n: int) -> int:
        self.drawn += 1
        return super().below(n)


@dataclass(frozen=True)
class Listing:
    """The answers to a question about range(domain) at ε micro-nats, the least error first.

    auto     the one that "auto" in an experiment file takes
    """

    asked: Asked
    domain: int
    epsilon: int
    listed: tuple[Listed, ...]
    auto: Listed
    peers: tuple[Peer, ...]

    @property
    def title(self) -> str:
        """The question, and the number of values."""
        return f"{ASKED[self.asked]}: {self.counted}"

    @property
    def counted(self) -> str:
        """How many values there are."""
        what = {"labels": "slots", "pairs": "values each"}.get(self.asked, "values")
        return f"{self.domain:,} {what}"

    @property
    def why(self) -> str:
        """Why auto takes it, in a sentence."""
        best = self.listed[0]
        if self.auto.variance <= best.variance * (1 + 1e-9):
            return f"auto takes {self.auto.word}: it has the least error of those here."
        less = 1 - math.sqrt(best.variance / self.auto.variance)
        errs = f"errs by only {100 * less:.2g} % less" if less >= 5e-4 else "errs as little"
        if type(best.mechanism).generation > type(self.auto.mechanism).generation:
            also = "boards of older firmware lack it"
        else:
            longer = best.report_bytes - self.auto.report_bytes
            also = f"its reports are {longer} {'byte' if longer == 1 else 'bytes'} longer"
        return f"auto takes {self.auto.word}: {best.word} {errs}, and {also}."

    def peer_variance(self, peer: Peer) -> float:
        """Times reports, of the same population."""
        return peer.variance(population(self.asked, self.domain), self.epsilon / MICRO)

    @property
    def optimum(self) -> float:
        """The least variance of all, here or not."""
        return min([self.listed[0].variance, *map(self.peer_variance, self.peers)])


def population(asked: Asked, domain: int) -> Floats:
    """Return the population behind all errors: nobody holds value 0, the others are alike; or all are."""
    shares = np.ones(domain)
    if asked in ("frequency", "labels"):
        shares[0] = 0
    return shares / shares.sum()


def half_width(variance: float, devices: int) -> float:
    """Half-width of the 95 % interval."""
    return Z * math.sqrt(variance / devices)


@lru_cache(maxsize=256)
def listing(asked: Asked, domain: int, epsilon: int, own: tuple[str, ...] = ()) -> Listing:
    """Return all mechanisms that answer a question: of the registry, and your own, package.module:Class.

    Raises PlanError if none does, and MechanismError if one of your own cannot be loaded.
    """
    workload, values = workload_of(asked, domain)
    # Other texts may share a text's slot by chance; the estimate subtracts them.
    more = (domain / (domain - 1)) ** 2 if asked == "labels" else 1.0
    try:
        auto = choose(values, epsilon, workload)
        offered = [auto, *designs(values, epsilon, workload)]
        for word in own:
            says = [*class_of(word).designs(values, epsilon, workload)]
            offered += says or _plain(word, asked, domain, epsilon)
    except (ValueError, WorkloadError) as e:
        raise PlanError(str(e)) from None
    best: dict[str, Choice] = {}
    for choice in offered:
        if choice.variance < best.setdefault(choice.mechanism, choice).variance:
            best[choice.mechanism] = choice
    listed = [
        Listed(_experiment(asked, domain, epsilon, choice), choice.variance * more)
        for choice in best.values()
    ]
    listed.sort(key=lambda one: one.variance)
    chosen = next(one for one in listed if one.word == auto.mechanism)
    shares = population(asked, domain)
    peers = (peer for peer in PEERS if peer.asked == asked)
    by_error = sorted(peers, key=lambda peer: peer.variance(shares, epsilon / MICRO))
    return Listing(asked, domain, epsilon, tuple(listed), chosen, tuple(by_error))


def _plain(word: str, asked: Asked, domain: int, epsilon: int) -> Iterator[Choice]:
    """Yield your own without parameters that says nothing about its errors: by its law and weights."""
    statistics = _statistics(asked, domain)
    if statistics is None or class_of(word).parameters:
        return
    choice = Choice(word, (), 0.0)
    try:
        mechanism = mechanism_of(experiment_over(domain, epsilon, choice.fields()))
    except LDPError:  # more values than it takes
        return
    if _NEEDS[asked] in mechanism.answers:
        variances = mechanism.variances(statistics, population(asked, domain))
        yield replace(choice, variance=float(variances.mean()))


def _statistics(asked: Asked, domain: int) -> Floats | None:
    """Return the question as weights of values, shape (domain, n); None if that would be too many."""
    if asked == "mean":
        return positions(domain)[:, None]
    if asked in ("frequency", "labels"):
        return np.eye(domain, 1)
    if asked == "pairs" or domain > _MOST_PREFIXES:
        return None
    below = np.tri(domain + 1, domain, -1).T  # shape (domain, domain + 1)
    if asked == "quantile":
        return below[:, 1:]
    low, high = np.triu_indices(domain + 1, 1)
    return below[:, high] - below[:, low]


def workload_of(asked: Asked, domain: int) -> tuple[Workload, int]:
    """Return a question's workload, and its number of values; domain: for pairs that of each part."""
    workload = _WORKLOADS[asked]
    return (replace(workload, shape=(domain, domain)), domain**2) if asked == "pairs" else (workload, domain)


def _experiment(asked: Asked, domain: int, epsilon: int, choice: Choice) -> Experiment:
    if asked != "pairs":
        return experiment_over(domain, epsilon, choice.fields())
    part = {"type": "number", "low": 0, "high": 1000 * domain, "bins": domain}
    reading = {"type": "pair", "of": [{"name": name, **part} for name in ("a", "b")]}
    return parse_experiment(payload("pair", reading, choice.fields(), epsilon))


def besides(listings: Sequence[Listing], own: Sequence[str] = ()) -> dict[str, str]:
    """Return the words of the registry and of your own that no listing has, with a description of each."""
    shown = {one.word for each in listings for one in each.listed}
    return {word: about(class_of(word)).what for word in (*MECHANISMS, *own) if word not in shown}
