"""Fake devices: which codes they send, and what that moves an estimate by, in theory.

Estimates are linear in a level's shares of codes, so that the gain is known exactly in the mean: a forged
report counts for what its code weighs, an honest one for the truth. With one value as the target and an
attacker who draws level and seed as boards do, it is the maximal gain attack of Cao, Jia, Gong, "Data
Poisoning Attacks to Local Differential Privacy Protocols", USENIX Security 2021, sections 4 and 5.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..device.ldp_client import Experiment
from ..server.errors import HushmoteError
from ..server.estimate import plausibility
from ..server.estimate.estimate import estimate
from ..server.estimate.plausibility import Plausibility
from ..server.experiments.units import UnitsError, index_names, parse_range, range_name
from ..server.mechanisms import choose as oracle
from ..server.mechanisms import local_hashing as decode
from ..server.mechanisms import tree as hierarchy

Kind = Literal["random", "promote", "shift", "flood"]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_HOW = "an attack is random, promote:VALUE, shift:LOW:HIGH or flood:VALUE"


class AttackError(HushmoteError):
    """An attack or a share of attackers that cannot be simulated; the text says what can."""


@dataclass(frozen=True)
class Attack:
    """What fake devices do, and whom it is for.

    kind    "random": codes drawn evenly from all. "promote", "shift": level and seed drawn as boards do, then
            the cell that raises the target's share most. "flood": always the one code that does.
    low     the target's indices low to high, half-open; of random nothing is promoted and they are empty
    high
    target  their name
    """

    kind: Kind
    low: int
    high: int
    target: str

    def weights(self, experiment: Experiment) -> Floats:
        """1.0 for each index of the target, shape (domain,)."""
        index = np.arange(experiment.domain)
        return ((index >= self.low) & (index < self.high)).astype(np.float64)


@dataclass(frozen=True)
class Outcome:
    """What an attack came to, all shares from 0 to 1.

    kind           of the attack
    target         whose share is looked at: of random, the most common value
    fake_devices   how many there are; each sends a report at every call, until its cap
    forged         forged reports, and reports in all
    reports
    truth          the target's share among honest devices
    honest         its estimate from their reports alone, and from all
    attacked
    theory         the gain in the mean; the measured one is attacked - honest
    uncapped       the same if the server took as many reports of a device as it has calls
    plausibility   what the checks of the histogram say
    """

    kind: Kind
    target: str
    fake_devices: int
    forged: int
    reports: int
    truth: float
    honest: float
    attacked: float
    theory: float
    uncapped: float
    plausibility: Plausibility

    @property
    def share(self) -> float:
        """Of all reports, how many are forged."""
        return self.forged / self.reports

    @property
    def gain(self) -> float:
        """What the forged reports added to the target's estimate."""
        return self.attacked - self.honest

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {
            "share": self.share,
            "gain": self.gain,
            "plausibility": self.plausibility.to_dict(),
        }


def run(
    experiment: Experiment,
    attack: Attack,
    fake_devices: int,
    calls: int,
    honest: Counts,
    truth: Floats,
    rng: np.random.Generator,
) -> tuple[Outcome, Counts]:
    """Add fake devices' reports to an honest histogram; returns what came of it and the new histogram.

    Fake devices toss no coin of `every`: each sends a report at every call until it reaches its cap, beyond
    which the server refuses them. honest: shape (code_count,); truth: shares among honest devices, shape
    (domain,). Raises EstimateError where the honest reports alone allow no estimate.
    """
    each = calls if experiment.rule == "unlimited" else min(calls, experiment.cap // experiment.cost())
    forgeries = forged(experiment, attack, fake_devices * each, rng)
    counts = honest + forgeries
    target, name = attack.weights(experiment), attack.target
    if attack.kind == "random":
        index = int(np.argmax(truth))
        target[index], name = 1.0, _name(experiment, index)
    reports, added = int(counts.sum()), int(forgeries.sum())
    all_calls = fake_devices * calls
    outcome = Outcome(
        attack.kind,
        name,
        fake_devices,
        added,
        reports,
        float(truth @ target),
        float(estimate(experiment, honest).frequencies @ target),
        float(estimate(experiment, counts).frequencies @ target),
        gain(experiment, attack, added / reports, truth, target),
        gain(experiment, attack, all_calls / (reports - added + all_calls), truth, target),
        plausibility.check(experiment, counts),
    )
    return outcome, counts


def parse(experiment: Experiment, text: str) -> Attack:
    """Read an attack: random, promote:VALUE, shift:LOW:HIGH or flood:VALUE; VALUE in the reading's unit.

    Raises AttackError for another text or a value that the experiment does not have.
    """
    kind, colon, rest = text.partition(":")
    if kind == "random" and not colon:
        return Attack("random", 0, 0, "nothing")
    if kind not in ("promote", "shift", "flood") or not rest:
        raise AttackError(f"{_HOW}, not {text}")
    if kind == "shift":
        try:
            found = parse_range(experiment, rest)
        except UnitsError as e:
            raise AttackError(str(e)) from None
        return Attack(kind, found.low, found.high, found.text)
    index = _index(experiment, rest)
    return Attack("promote" if kind == "promote" else "flood", index, index + 1, _name(experiment, index))


def forged(experiment: Experiment, attack: Attack, reports: int, rng: np.random.Generator) -> Counts:
    """The histogram of so many forged reports, shape (code_count,)."""
    out = np.zeros(experiment.code_count, dtype=np.int64)
    if attack.kind in ("random", "flood"):
        out[:] = rng.multinomial(reports, _distribution(experiment, attack))
        return out
    weights = [level.weight / experiment.weight_sum for level in experiment.levels]
    for level, n, cells in zip(
        experiment.levels, rng.multinomial(reports, weights), _best_cells(experiment, attack), strict=True
    ):
        seeds = rng.multinomial(n, np.full(level.seeds, 1 / level.seeds))
        out[level.offset : level.offset + level.code_count] = rng.multinomial(seeds, cells).reshape(-1)
    return out


def gain(experiment: Experiment, attack: Attack, share: float, truth: Floats, target: Floats) -> float:
    """What forgers add to the mean estimate of a weighted sum of shares, in theory.

    share: of all reports that are forged, 0 to below 1; truth: shares of the values among honest devices,
    shape (domain,); target: weights of the sum, shape (domain,).
    """
    codes = _distribution(experiment, attack)
    of_level = [float(codes[x.offset : x.offset + x.code_count].sum()) for x in experiment.levels]
    drawn = [level.weight / experiment.weight_sum for level in experiment.levels]
    mixed = [(1 - share) * h + share * f for h, f in zip(drawn, of_level, strict=True)]
    total = 0.0
    for level, r, f, m in zip(
        experiment.levels, _level_weights(experiment, target, mixed), of_level, mixed, strict=True
    ):
        if not f:
            continue
        channel = oracle.level_channel(level)
        part = codes[level.offset : level.offset + level.code_count] / f
        supported = float(part @ decode.code_weights(level, r))
        worth = (supported - channel.q * r.sum()) / (channel.p - channel.q)
        nodes = np.add.reduceat(truth, np.arange(0, experiment.domain, level.width))
        total += share * f / m * (worth - float(r @ nodes))
    return total


def _level_weights(experiment: Experiment, target: Floats, shares: list[float]) -> list[Floats]:
    """How much each level's estimates weigh in the target's, levels having these shares of the reports."""
    if not experiment.fanout:
        return [target]
    assumed = [
        oracle.level_channel(level).assumed / share if share else np.inf
        for level, share in zip(experiment.levels, shares, strict=True)
    ]
    tree = hierarchy.tree(experiment.domain, experiment.fanout, assumed)
    return hierarchy.transpose(tree, target)[0]


def _code_weights(experiment: Experiment, attack: Attack) -> list[Floats]:
    """How much each code of each level raises the target's estimate, less a constant, shape (seeds, g)."""
    shares = [level.weight / experiment.weight_sum for level in experiment.levels]
    weights = _level_weights(experiment, attack.weights(experiment), shares)
    return [
        decode.code_weights(level, r).reshape(level.seeds, level.g)
        for level, r in zip(experiment.levels, weights, strict=True)
    ]


def _best_cells(experiment: Experiment, attack: Attack) -> list[Floats]:
    """For each level and seed the chances of the cells that promote the target most, shape (seeds, g)."""
    found = []
    for weights in _code_weights(experiment, attack):
        best = weights >= weights.max(axis=1, keepdims=True) - 1e-9
        found.append(best / best.sum(axis=1, keepdims=True))
    return found


def _distribution(experiment: Experiment, attack: Attack) -> Floats:
    """How often a forger sends each code, shape (code_count,)."""
    if attack.kind == "random":
        return np.full(experiment.code_count, 1 / experiment.code_count)
    out = np.zeros(experiment.code_count)
    if attack.kind == "flood":
        # A report moves its level's mean the more, the fewer the level has.
        scores = []
        for level, weights in zip(experiment.levels, _code_weights(experiment, attack), strict=True):
            channel = oracle.level_channel(level)
            share = level.weight / experiment.weight_sum
            scale = 1 / ((channel.p - channel.q) * share) if share else 0.0
            scores.append(weights.reshape(-1) * scale)
        out[int(np.argmax(np.concatenate(scores)))] = 1.0
        return out
    for level, cells in zip(experiment.levels, _best_cells(experiment, attack), strict=True):
        share = level.weight / experiment.weight_sum / level.seeds
        out[level.offset : level.offset + level.code_count] = cells.reshape(-1) * share
    return out


def _index(experiment: Experiment, text: str) -> int:
    if experiment.type != "number":
        names = index_names(experiment)
        if text not in names:
            raise AttackError(f"{experiment.name} has no value {text}; it has {', '.join(names)}")
        return names.index(text)
    try:
        reading = float(text)
    except ValueError:
        raise AttackError(
            f"{experiment.name} is a number: promote a reading such as 21.5, not {text}"
        ) from None
    if not np.isfinite(reading):
        raise AttackError(f"a reading must be finite, not {text}")
    index = experiment.bucket(reading)
    assert index is not None
    return index


def _name(experiment: Experiment, index: int) -> str:
    return range_name(experiment, index, index + 1)
