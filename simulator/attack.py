"""Fake devices: the codes that they send, and how far that moves an estimate, in theory.

Estimates are linear in a stratum's shares of codes, so that the gain is known exactly in the mean: a forged
report counts for what its code weighs, an honest one for the truth. With one value as the target and an
attacker who draws stratum and run (level and seed) as boards do, it is the maximal gain attack of Cao, Jia,
Gong, "Data Poisoning Attacks to Local Differential Privacy Protocols", USENIX Security 2021, sections 4, 5.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..device.ldp_client import Experiment
from ..server.arrays import Counts, Floats
from ..server.errors import HushmoteError
from ..server.estimate import plausibility
from ..server.estimate.estimate import estimate
from ..server.estimate.plausibility import Plausibility
from ..server.experiments.units import UnitsError, index_names, parse_range, range_name
from ..server.mechanisms import Mechanism, Stratum, mechanism_of
from ..server.wire.experiments import reports_in_budget

Kind = Literal["random", "promote", "shift", "flood"]


class AttackError(HushmoteError):
    """An attack or a share of attackers cannot be simulated; the text says which can."""


@dataclass(frozen=True)
class Attack:
    """The codes that fake devices send, and the value that they promote.

    kind    "random": codes drawn evenly from all. "promote", "shift": level and seed drawn as boards do, then
            the cell that raises the target's share most. "flood": always the one code that does.
    low     the target's indices low to high, half-open; of random nothing is promoted and they are empty
    high
    target  their name
    share   of the devices that are fake, above 0 and below 1
    """

    kind: Kind
    low: int
    high: int
    target: str
    share: float = 0.05

    def weights(self, experiment: Experiment) -> Floats:
        """1.0 for each index of the target, shape (domain,)."""
        index = np.arange(experiment.domain)
        return ((index >= self.low) & (index < self.high)).astype(np.float64)


@dataclass(frozen=True)
class AttackOutcome:
    """An attack's results, all shares from 0 to 1.

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
        """Part of all reports that is forged."""
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
) -> tuple[AttackOutcome, Counts]:
    """Add fake devices' reports to an honest histogram; returns the outcome and the new histogram.

    Fake devices toss no coin of `every`: each sends a report at every call until it reaches its cap, beyond
    which the server refuses them. honest: shape (code_count,); truth: shares among honest devices, shape
    (domain,). Raises EstimateError where the honest reports alone allow no estimate.
    """
    most = reports_in_budget(experiment)
    each = calls if most is None else min(calls, most)
    forgeries = forged(experiment, attack, fake_devices * each, rng)
    counts = honest + forgeries
    target, name = attack.weights(experiment), attack.target
    if attack.kind == "random":
        index = int(np.argmax(truth))
        target[index], name = 1.0, range_name(experiment, index, index + 1)
    reports, added = int(counts.sum()), int(forgeries.sum())
    all_calls = fake_devices * calls
    outcome = AttackOutcome(
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
    """Read an attack: random:SHARE, promote:VALUE:SHARE, shift:LOW:HIGH:SHARE or flood:VALUE:SHARE.

    VALUE, LOW, HIGH: in the reading's unit. SHARE: of the devices that are fake. Raises AttackError for
    another text, or a value that the experiment does not have.
    """
    how = "an attack is random:SHARE, promote:VALUE:SHARE, shift:LOW:HIGH:SHARE or flood:VALUE:SHARE"
    asked, _, last = text.rpartition(":")
    kind, _, rest = asked.partition(":")
    try:
        share = float(last)
    except ValueError:
        share = 0.0
    if kind not in get_args(Kind) or bool(rest) == (kind == "random"):
        raise AttackError(f"{how}, not {text}")
    if not 0 < share < 1:
        raise AttackError(f"SHARE, of the devices that are fake, is above 0 and below 1, not {last}: {how}")
    if kind == "random":
        return Attack("random", 0, 0, "nothing", share)
    if kind == "shift":
        try:
            wanted = parse_range(experiment, rest)
        except UnitsError as e:
            raise AttackError(str(e)) from None
        return Attack("shift", wanted.low, wanted.high, wanted.text, share)
    index = _index(experiment, rest)
    name = range_name(experiment, index, index + 1)
    return Attack("promote" if kind == "promote" else "flood", index, index + 1, name, share)


def forged(experiment: Experiment, attack: Attack, reports: int, rng: np.random.Generator) -> Counts:
    """Return the histogram of n forged reports, shape (code_count,)."""
    mechanism = mechanism_of(experiment)
    out = np.zeros(experiment.code_count, dtype=np.int64)
    if attack.kind in ("random", "flood"):
        out[:] = rng.multinomial(reports, _distribution(mechanism, attack))
        return out
    for stratum, n, chances in zip(
        mechanism.strata,
        rng.multinomial(reports, mechanism.stratum_chances),
        _best_codes(mechanism, attack),
        strict=True,
    ):
        runs = rng.multinomial(n, np.full(stratum.runs, 1 / stratum.runs))
        out[_codes(stratum)] = rng.multinomial(runs, chances).reshape(-1)
    return out


def gain(experiment: Experiment, attack: Attack, share: float, truth: Floats, target: Floats) -> float:
    """Return how much forgers add to the mean estimate of a weighted sum of shares, in theory.

    share: of all reports that are forged, 0 to below 1; truth: shares of the values among honest devices,
    shape (domain,); target: weights of the sum, shape (domain,).
    """
    mechanism = mechanism_of(experiment)
    codes = _distribution(mechanism, attack)
    of_stratum = [float(codes[_codes(s)].sum()) for s in mechanism.strata]
    mixed = [(1 - share) * h + share * f for h, f in zip(mechanism.stratum_chances, of_stratum, strict=True)]
    weights = _weights(mechanism, target, mixed)
    worth = mechanism.expand(weights)
    total = 0.0
    parts = zip(mechanism.strata, of_stratum, mixed, weights, mechanism.law(truth), strict=True)
    for stratum, f, m, w, law in parts:
        if f:
            total += share / m * (float(codes[_codes(stratum)] @ worth[_codes(stratum)]) - f * float(law @ w))
    return total


def _codes(stratum: Stratum) -> slice:
    return slice(stratum.first, stratum.first + stratum.codes)


def _weights(mechanism: Mechanism, target: Floats, reports: Sequence[float]) -> list[Floats]:
    """How much each class raises the target's estimate, less a constant; reports: of the strata."""
    weights, _ = mechanism.weights(target[:, None], reports)
    return [
        np.zeros(len(size)) if w is None else w[:, 0]
        for w, size in zip(weights, mechanism.class_sizes, strict=True)
    ]


def _best_codes(mechanism: Mechanism, attack: Attack) -> list[Floats]:
    """For each stratum and run the chances of the codes that promote the target most, shape (runs, codes)."""
    target = attack.weights(mechanism.experiment)
    worth = mechanism.expand(_weights(mechanism, target, mechanism.stratum_chances))
    weights = [worth[_codes(s)].reshape(s.runs, -1) for s in mechanism.strata]
    best = [w >= w.max(axis=1, keepdims=True) - 1e-9 for w in weights]
    return [b / b.sum(axis=1, keepdims=True) for b in best]


def _distribution(mechanism: Mechanism, attack: Attack) -> Floats:
    """How often a forger sends each code, shape (code_count,)."""
    codes = mechanism.experiment.code_count
    if attack.kind == "random":
        return np.full(codes, 1 / codes)
    out = np.zeros(codes)
    if attack.kind == "flood":
        # The fewer reports a stratum has, the more a report moves its mean.
        weights = _weights(mechanism, attack.weights(mechanism.experiment), mechanism.stratum_chances)
        parts = zip(weights, mechanism.stratum_chances, strict=True)
        scores = mechanism.expand([w / chance if chance else w for w, chance in parts])
        out[int(np.argmax(scores >= scores.max() * (1 - 1e-12)))] = 1.0
        return out
    for stratum, chances in zip(mechanism.strata, _best_codes(mechanism, attack), strict=True):
        out[_codes(stratum)] = chances.reshape(-1) * (stratum.chance / stratum.runs)
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
