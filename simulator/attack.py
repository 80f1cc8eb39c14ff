"""Fake devices: the codes they send, and their theoretical effect on an estimate.

Estimates are linear in a stratum's shares of codes, so the expected gain is known exactly: a forged report
adds the weight of its code, an honest one the truth. With a single value as the target and an attacker who
draws stratum and run (level and seed) as boards do, this is the maximal gain attack of Cao, Jia, Gong, "Data
Poisoning Attacks to Local Differential Privacy Protocols", USENIX Security 2021, sections 4 and 5.
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
from ..server.typed_numbers import typed_float, typed_share
from ..server.wire.experiments import reports_in_budget

Kind = Literal["random", "promote", "shift", "flood"]


class AttackError(HushmoteError):
    """Raised for an attack or a share that cannot be simulated; the message lists valid ones."""


@dataclass(frozen=True)
class Attack:
    """The codes that fake devices send, and the value that they promote.

    Attributes:
        kind: "random": codes drawn evenly from all. "promote", "shift": level and seed drawn as boards do,
            then the code that raises the target's share most. "flood": always the single best code.
        low, high: The target is the half-open range of these indices; "random" has no target, and the range
            is empty.
        target: The target's name.
        share: Share of devices that are fake, above 0 and below 1.
    """

    kind: Kind
    low: int
    high: int
    target: str
    share: float = 0.05

    def weights(self, experiment: Experiment) -> Floats:
        """Return an array of shape (domain,) that is 1.0 at each index of the target."""
        index = np.arange(experiment.domain)
        return ((index >= self.low) & (index < self.high)).astype(np.float64)


@dataclass(frozen=True)
class AttackOutcome:
    """An attack's results, all shares from 0 to 1.

    Attributes:
        kind: The attack's kind.
        target: The value whose share is compared; for "random", the most common value.
        fake_devices: Number of fake devices; each sends a report at every call, until it reaches its cap.
        forged, reports: Number of forged reports, and of all reports.
        truth: The target's share among honest devices.
        honest, attacked: The share's estimate from honest reports alone, and from all reports.
        theory: The expected gain; the measured gain is attacked - honest.
        uncapped: The expected gain if the server accepted a report for every call of a device.
        plausibility: The result of the histogram's plausibility check.
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
        """Share of all reports that is forged."""
        return self.forged / self.reports

    @property
    def gain(self) -> float:
        """Amount by which the forged reports raised the target's estimate."""
        return self.attacked - self.honest

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
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
    """Add fake devices' reports to an honest histogram; return the outcome and the new histogram.

    Fake devices ignore `every`: each sends a report at every call until it reaches its cap, beyond which the
    server refuses its reports.

    Args:
        experiment: The experiment under attack.
        attack: The codes that fake devices send.
        fake_devices: Number of fake devices.
        calls: Number of times that each could report.
        honest: Histogram of the honest reports, shape (code_count,).
        truth: Shares among honest devices, shape (domain,).
        rng: The source of the fake devices' codes.

    Raises:
        EstimateError: If the honest reports alone are too few for an estimate.
    """
    max_reports = reports_in_budget(experiment)
    reports_each = calls if max_reports is None else min(calls, max_reports)
    forgeries = forged_histogram(experiment, attack, fake_devices * reports_each, rng)
    counts = honest + forgeries
    target, name = attack.weights(experiment), attack.target
    if attack.kind == "random":
        index = int(np.argmax(truth))
        target[index], name = 1.0, range_name(experiment, index, index + 1)
    reports, forgery_count = int(counts.sum()), int(forgeries.sum())
    all_calls = fake_devices * calls
    outcome = AttackOutcome(
        attack.kind,
        name,
        fake_devices,
        forgery_count,
        reports,
        float(truth @ target),
        float(estimate(experiment, honest).frequencies @ target),
        float(estimate(experiment, counts).frequencies @ target),
        gain(experiment, attack, forgery_count / reports, truth, target),
        gain(experiment, attack, all_calls / (reports - forgery_count + all_calls), truth, target),
        plausibility.check(experiment, counts),
    )
    return outcome, counts


def parse(experiment: Experiment, text: str) -> Attack:
    """Read an attack: random:SHARE, promote:VALUE:SHARE, shift:LOW:HIGH:SHARE or flood:VALUE:SHARE.

    VALUE, LOW and HIGH are in the reading's unit; SHARE is the share of devices that are fake.

    Raises:
        AttackError: If the text has another form, or the experiment does not have the value.
    """
    form = "an attack must be random:SHARE, promote:VALUE:SHARE, shift:LOW:HIGH:SHARE or flood:VALUE:SHARE"
    value_text, _, last = text.rpartition(":")
    kind, _, details = value_text.partition(":")
    try:
        share = typed_share(last)
    except ValueError:
        share = 0.0
    if kind not in get_args(Kind) or bool(details) == (kind == "random"):
        raise AttackError(f"{form}, not {text}")
    if not 0 < share < 1:
        raise AttackError(f"SHARE, the share of fakes, must be above 0 and below 1, not {last}; {form}")
    if kind == "random":
        return Attack("random", 0, 0, "nothing", share)
    if kind == "shift":
        try:
            index_range = parse_range(experiment, details)
        except UnitsError as e:
            raise AttackError(str(e)) from None
        return Attack("shift", index_range.low, index_range.high, index_range.text, share)
    index = _index(experiment, details)
    name = range_name(experiment, index, index + 1)
    return Attack("promote" if kind == "promote" else "flood", index, index + 1, name, share)


def forged_histogram(
    experiment: Experiment, attack: Attack, reports: int, rng: np.random.Generator
) -> Counts:
    """Return the histogram of `reports` forged reports, shape (code_count,)."""
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
    """Return the amount that forged reports add to the expected estimate of a weighted sum of shares.

    Args:
        experiment: The experiment under attack.
        attack: The codes that fake devices send.
        share: Share of all reports that is forged, 0 to below 1.
        truth: Shares of the values among honest devices, shape (domain,).
        target: Weights of the sum, shape (domain,).
    """
    mechanism = mechanism_of(experiment)
    codes = _distribution(mechanism, attack)
    forged_shares = [float(codes[_codes(s)].sum()) for s in mechanism.strata]
    mixed = [
        (1 - share) * h + share * f for h, f in zip(mechanism.stratum_chances, forged_shares, strict=True)
    ]
    weights = _weights(mechanism, target, mixed)
    gains = mechanism.expand(weights)
    total = 0.0
    parts = zip(mechanism.strata, forged_shares, mixed, weights, mechanism.law(truth), strict=True)
    for stratum, f, m, w, law in parts:
        if f:
            total += share / m * (float(codes[_codes(stratum)] @ gains[_codes(stratum)]) - f * float(law @ w))
    return total


def _codes(stratum: Stratum) -> slice:
    return slice(stratum.first, stratum.first + stratum.codes)


def _weights(mechanism: Mechanism, target: Floats, reports: Sequence[float]) -> list[Floats]:
    """Return the amount by which each class raises the target's estimate, up to a constant.

    Args:
        mechanism: The experiment's mechanism.
        target: Weights of the sum, shape (domain,).
        reports: Number of reports of each stratum.
    """
    weights, _ = mechanism.weights(target[:, None], reports)
    return [
        np.zeros(len(size)) if w is None else w[:, 0]
        for w, size in zip(weights, mechanism.class_sizes, strict=True)
    ]


def _best_codes(mechanism: Mechanism, attack: Attack) -> list[Floats]:
    """Return the probabilities of the best codes for the target, per stratum: shape (runs, codes)."""
    target = attack.weights(mechanism.experiment)
    gains = mechanism.expand(_weights(mechanism, target, mechanism.stratum_chances))
    weights = [gains[_codes(s)].reshape(s.runs, -1) for s in mechanism.strata]
    best = [w >= w.max(axis=1, keepdims=True) - 1e-9 for w in weights]
    return [b / b.sum(axis=1, keepdims=True) for b in best]


def _distribution(mechanism: Mechanism, attack: Attack) -> Floats:
    """Return the probability that a forger sends each code, shape (code_count,)."""
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
        reading = typed_float(text)
    except ValueError:
        raise AttackError(
            f"{experiment.name} is a number; promote a reading such as 21.5, not {text}"
        ) from None
    if not np.isfinite(reading):
        raise AttackError(f"a reading must be finite, not {text}")
    index = experiment.bucket(reading)
    assert index is not None
    return index
