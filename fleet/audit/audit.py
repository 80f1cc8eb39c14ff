"""Empirical privacy audit: a lower bound of ε from counts of a randomizer's outputs on two inputs.

Under an ε-LDP randomizer, no event is more than e^ε times as probable under one input as under another.
Counts of an event under two inputs, each with its Clopper-Pearson bound, bound ε from below:
ln(lower bound of one / upper bound of the other). An audit can show that a randomizer is *not* ε-LDP; only
enumerating its branches can show that it is.

The event is chosen before the counts are tested: once from the exact channel (the codes that are likelier
under one input), and once from the first half of the draws, in case the randomizer is not what it claims
to be.
Clopper, Pearson, "The use of confidence or fiducial limits", Biometrika 1934; Ding, Wang, Wang, Zhang,
Kifer, "Detecting Violations of Differential Privacy", CCS 2018, for the choice of events on held-out draws.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ...server import special
from ...server.arrays import Floats
from ...server.errors import HushmoteError
from ...server.mechanisms import mechanism_of
from ...server.mechanisms.custom import own_code
from ...server.wire.experiments import parse_experiment

Tally = Mapping[int, int]
Tallied = tuple[Tally, Tally]  # for the first and the second input

SILENCE = -1  # the "code" of a call that made no report
_BOUNDS = 4  # two directions, two ways to choose the event
_MAX_VALUES = 1 << 24
_ROUNDING = 1e-12  # tolerance for float rounding in an exact ε
_MIN_EXPECTED = 20  # minimum expected draws per cell when comparing with the exact channel


class AuditError(HushmoteError):
    """Raised if an audit could not be run; the message says why."""


@dataclass(frozen=True)
class Subject:
    """The experiment to audit, without its budget, and the function to call: randomize() or report().

    Attributes:
        payload: JSON for the runtime: budget unlimited; every at most 2 with report(), 1 with randomize().
        readings: The two most distinguishable inputs, as the application would pass them.
        indices: The index of each input.
    """

    experiment: Experiment
    payload: bytes
    whole: bool
    readings: tuple[Any, Any]
    indices: tuple[int, int]

    @property
    def path(self) -> str:
        """The function whose outputs are counted."""
        return "report()" if self.whole else "randomize()"

    @property
    def nominal(self) -> float:
        """The experiment's ε per report, in nats."""
        return self.experiment.epsilon / 1e6


def subject(payload: bytes, whole: bool) -> Subject:
    """Return an audit's subject, with two inputs that differ on every level.

    An open group is left out, because it does not take part in the randomization that an audit covers.

    Args:
        payload: The experiment's JSON.
        whole: Audit report() instead of randomize().

    Raises:
        ExperimentRefused: If the payload is not an experiment.
        AuditError: If the experiment has too many values to compute the exact probabilities of its codes.
    """
    every = min(parse_experiment(payload).every, 2) if whole else 1
    fields = json.loads(payload) | {"budget": {"rule": "unlimited"}, "every": every}
    fields = {name: value for name, value in fields.items() if name not in ("group", "groups")}
    free = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    experiment = parse_experiment(free)
    if experiment.domain > _MAX_VALUES:
        raise AuditError(
            f"{experiment.name} has {experiment.domain:,} values, but an audit supports at most "
            f"{_MAX_VALUES:,}: audit the same mechanism with fewer slots or prefixes"
        )
    readings = _ends(experiment)
    first, last = map(experiment.bucket, readings)
    assert first is not None
    assert last is not None
    return Subject(experiment, free, whole, readings, (first, last))


def _ends(reading: Any) -> tuple[Any, Any]:
    """Return the two readings that are farthest apart, for an experiment or for one part of a pair."""
    if reading.type == "bool":
        return False, True
    if reading.type == "choice":
        other = "other"
        while other in reading.labels:
            other += "_"
        return reading.labels[0], other
    if reading.type == "pair":
        parts = [_ends(part) for part in reading.parts]
        return tuple(first for first, _ in parts), tuple(last for _, last in parts)
    if reading.type == "text":
        return "0", next(
            text for text in map(str, itertools.count(1)) if _differ_everywhere(reading, "0", text)
        )
    # Use integers beyond both ends, which are the same on boards with single-precision floats.
    return reading.low // 1000 - 1, reading.high // 1000 + 1


def _differ_everywhere(reading: Any, first: str, second: str) -> bool:
    """Return whether two texts have different slots on every level."""
    a, b = reading.bucket(first), reading.bucket(second)
    for _ in range(max(1, len(reading.prefixes))):
        if a % reading.slots == b % reading.slots:
            return False
        a, b = a // reading.slots, b // reading.slots
    return True


def exact_epsilon(experiment: Experiment) -> float:
    """Return the thresholds' actual ε, in nats: the largest log ratio over codes and input pairs."""
    mechanism = mechanism_of(experiment)
    with own_code(experiment.mechanism, "law"):
        return math.log(mechanism.odds)


def channel(experiment: Experiment, index: int) -> Floats:
    """Return the probability of every code for an index, shape (code_count,), from the experiment alone."""
    mechanism = mechanism_of(experiment)
    with own_code(experiment.mechanism, "law"):
        return mechanism.code_law(np.eye(1, experiment.domain, index)[0])


def lower_bound(
    hits: npt.ArrayLike, misses: npt.ArrayLike, draws: tuple[int, int], alpha: float
) -> npt.NDArray[Any]:
    """Return ln(lower bound of the first probability / upper bound of the second), at least 0.

    Args:
        hits: How many times the event occurred under the input that favours it, any shape.
        misses: How many times it occurred under the other input, same shape.
        draws: Number of draws for each input.
        alpha: The highest acceptable probability that a Clopper-Pearson bound is wrong.
    """
    x, y = np.asarray(hits, float), np.asarray(misses, float)
    n, m = draws
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(x > 0, special.betaincinv(x, n - x + 1, alpha), 0.0)
        high = np.where(y < m, special.betainccinv(y + 1, m - y, alpha), 1.0)
        return np.maximum(np.log(low / high), 0.0)


def learn_event(favoured: Tally, other: Tally, draws: tuple[int, int], alpha: float) -> frozenset[int]:
    """Return the codes whose union gives the best lower bound on these counts."""
    codes = list(favoured)
    if not codes:
        return frozenset()
    x = np.array([favoured[code] for code in codes], float)
    y = np.array([other.get(code, 0) for code in codes], float)
    order = np.lexsort((-x, -np.log((x + 0.5) / (y + 0.5))))
    bounds = lower_bound(np.cumsum(x[order]), np.cumsum(y[order]), draws, alpha)
    return frozenset(codes[i] for i in order[: int(np.argmax(bounds)) + 1])


def likelier_codes(favoured: Floats, other: Floats) -> npt.NDArray[np.bool_]:
    """Return which codes are likelier under the favoured input.

    Codes that differ only by rounding are left out, because they would only dilute the event.
    """
    return favoured > other * (1 + 1e-9)


@dataclass(frozen=True)
class AuditResult:
    """The result of auditing one subject on one runtime; ε in nats.

    Attributes:
        draws: Number of draws for each input.
        exact: The ε of the mechanism's exact distribution, over all inputs and codes.
        lower: Lower bound of ε: the larger of the bounds from the exact channel's event and a learned event.
        fit: The p-value of the counts under the exact channel (chi-square over cells that expect 20 draws). A
            small value means that the randomizer is not the one it claims to be, whether private or not.
    """

    name: str
    mechanism: str
    path: str
    runtime: str
    indices: tuple[int, int]
    draws: int
    nominal: float
    exact: float
    lower_exact_event: float
    lower_learned_event: float
    fit: float

    @property
    def lower(self) -> float:
        return max(self.lower_exact_event, self.lower_learned_event)

    @property
    def private(self) -> bool:
        """True if neither the counts nor the exact channel exceed the nominal ε, which does not prove it."""
        return self.lower <= self.nominal and self.lawful

    @property
    def lawful(self) -> bool:
        """True if the exact channel does not exceed the nominal ε, except for floating-point rounding."""
        return self.exact <= self.nominal * (1 + _ROUNDING)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "experiment": self.name,
            "mechanism": self.mechanism,
            "path": self.path,
            "runtime": self.runtime,
            "indices": list(self.indices),
            "draws_per_input": self.draws,
            "nominal": self.nominal,
            "exact": self.exact if math.isfinite(self.exact) else None,
            "lower_bound": self.lower,
            "lower_bound_exact_event": self.lower_exact_event,
            "lower_bound_learned_event": self.lower_learned_event,
            "fit_p_value": self.fit,
            "private": self.private,
        }


def judge(audited: Subject, runtime: str, halves: tuple[Tallied, Tallied], error: float) -> AuditResult:
    """Return an audit's result, given its tallies.

    The exact channel's event is tested on all draws, the learned event only on the second half.

    Args:
        audited: The subject.
        runtime: Name of the runtime.
        halves: The tallies for each half of the draws, one per input.
        error: The highest acceptable probability that the lower bound exceeds the true ε. It is split among
            the four bounds (two directions, two events) and the two Clopper-Pearson bounds in each.
    """
    alpha = error / (2 * _BOUNDS)
    experiment = audited.experiment
    training, held_out = halves
    both = (Counter(training[0]) + Counter(held_out[0]), Counter(training[1]) + Counter(held_out[1]))
    chances = (channel(experiment, audited.indices[0]), channel(experiment, audited.indices[1]))
    bound_exact = bound_learned = 0.0
    for first, second in ((0, 1), (1, 0)):
        likelier = likelier_codes(chances[first], chances[second])
        exact = frozenset(c for c in {*both[0], *both[1]} if 0 <= c < experiment.code_count and likelier[c])
        bound_exact = max(bound_exact, _bound(exact, both[first], both[second], alpha))
        draws = sum(training[first].values()), sum(training[second].values())
        event = learn_event(training[first], training[second], draws, alpha)
        bound_learned = max(bound_learned, _bound(event, held_out[first], held_out[second], alpha))
    return AuditResult(
        name=experiment.name,
        mechanism=experiment.mechanism,
        path=audited.path,
        runtime=runtime,
        indices=audited.indices,
        draws=sum(both[0].values()),
        nominal=audited.nominal,
        exact=exact_epsilon(experiment),
        lower_exact_event=bound_exact,
        lower_learned_event=bound_learned,
        fit=_fit(experiment, chances, both),
    )


def _bound(event: frozenset[int], favoured: Tally, other: Tally, alpha: float) -> float:
    hits = sum(favoured.get(code, 0) for code in event)
    misses = sum(other.get(code, 0) for code in event)
    return float(lower_bound(hits, misses, (sum(favoured.values()), sum(other.values())), alpha))


def _fit(experiment: Experiment, chances: tuple[Floats, Floats], both: Tallied) -> float:
    """Return the p-value of Pearson's chi-square, with codes merged until each cell expects 20 draws."""
    statistic, freedom = 0.0, 0
    for chance, tally in zip(chances, both, strict=True):
        draws = sum(tally.values())
        # Silence first, then the codes. A code with probability 0 must not occur.
        expected = draws * np.concatenate([[1 - 1 / experiment.every], chance / experiment.every])
        counts = np.zeros(len(expected))
        for code, count in tally.items():
            if not (SILENCE <= code < experiment.code_count and expected[code + 1] > 0):
                return 0.0
            counts[code + 1] = count
        merged, merged_expected = _merge(counts, expected)
        statistic += float(((merged - merged_expected) ** 2 / merged_expected).sum())
        freedom += len(merged_expected) - 1
    return float(special.chdtrc(freedom, statistic)) if freedom else 1.0


def _merge(counts: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Return sums over runs of adjacent cells, where each run expects at least 20 draws."""
    coarse = np.floor((np.cumsum(expected) - expected) / _MIN_EXPECTED)
    starts = np.flatnonzero(np.diff(coarse, prepend=-1.0))
    begins, total = [0], 0.0
    for start, size in zip(starts, np.add.reduceat(expected, starts), strict=True):
        if total >= _MIN_EXPECTED:
            begins.append(int(start))
            total = 0.0
        total += size
    if total < _MIN_EXPECTED and len(begins) > 1:
        begins.pop()
    return np.add.reduceat(counts, begins), np.add.reduceat(expected, begins)
