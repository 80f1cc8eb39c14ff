"""prefix: discovers unknown texts; each report gives the slot of a prefix of random length through pgr.

An index has a slot for each level, so the domain has slots**levels indices, far too many for an array. Arrays
of that size are used only for small domains (law, weights, lift); real histograms are decoded level by level,
and estimate/discovery.py finds the texts behind the slots.

Privacy:
    Provided by pgr over one level's slots; the level is drawn independently of the reading.

Utility:
    Estimates of each level's slots are unbiased; reports do not reveal how often slots on two levels occur
    together.

Cost:
    The codes of all levels; decoding is one butterfly per level.

Auto:
    discovering texts that are not known in advance.

Citation:
    Wang, Li, Jha, "Locally Differentially Private Heavy Hitter Identification", IEEE TDSC 2021; Feldman,
    Nelson, Nguyen, Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from ....device.ldp_client import Experiment, ExperimentRefused
from ....device.ldp_pgr import Points
from ...arrays import Counts, Floats
from ..channel import Channel
from ..choice import Choice
from ..decoded_histogram import Decoded
from ..hashing.choice import MAX_CODES, primes
from ..mechanism import Weights
from ..support_mechanisms import SupportMechanism
from ..workload import Workload
from .pgr import PointsCode, draw_points, points_channel

_LARGEST_Q = 251  # for every ε; a larger q would need too many codes for several levels
_TEXT = {"type": "text", "salt": "s", "mechanism": "prefix"}


@dataclass(frozen=True)
class SlotShares:
    """Estimates for one level's slots.

    Attributes:
        shares: The unbiased estimate of each slot's share, shape (slots,).
        reports: The number of reports on the level.
        channel: The probabilities that a report supports a slot.
    """

    shares: Floats
    reports: int
    channel: Channel

    def variance(self, share: float) -> float:
        """Return the variance of a slot's estimate at this share, including population sampling."""
        support = self._support(share)
        return support * (1 - support) / (self.channel.p - self.channel.q) ** 2 / self.reports

    def skew(self, share: float) -> float:
        """Return the derivative of the variance with respect to the share."""
        return (1 - 2 * self._support(share)) / (self.channel.p - self.channel.q) / self.reports

    def _support(self, share: float) -> float:
        return min(max(self.channel.q + (self.channel.p - self.channel.q) * share, 0.0), 1.0)


class SlotCode(PointsCode):
    """A level's codes, whose nodes are the level's slots."""

    def __init__(self, points: Points):
        super().__init__(points)
        self.shift: int = vars(points)["shift"]

    def node_sums(self, values: Floats) -> Floats:
        return values.reshape(-1, self.level.domain, 1 << self.shift, *values.shape[1:]).sum(axis=(0, 2))

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        return nodes[np.arange(domain) >> self.shift & (self.level.domain - 1)]


class Prefix(SupportMechanism):
    """The mechanism prefix."""

    answers: ClassVar[frozenset[str]] = frozenset({"discovery"})
    parameters: ClassVar[tuple[str, ...]] = ("q", "weights")
    reads: ClassVar[Literal["", "pair", "prefixes"]] = "prefixes"
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        _TEXT | {"slots": 4, "prefixes": [1, 2, 2], "q": 2, "weights": [1, 2, 3]},
        _TEXT | {"slots": 8, "prefixes": [1, 1], "q": 3},
    )

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        """Return the q with the least variance for a slot on the last level, which measures shares.

        The last level gets twice as many reports as the others, and the first level, which has few prefixes,
        half as many.
        """
        if workload.kind != "texts":
            return
        levels = workload.levels
        slots = 1 << (domain.bit_length() - 1) // levels
        weights = (1, *[2] * (levels - 2), 4) if levels > 2 else (1,) * levels
        best: Choice | None = None
        for q in primes(_LARGEST_Q + 1):
            try:
                points = Points(epsilon, slots, q, 0, 1)
            except ExperimentRefused:
                continue
            channel = points_channel(points)
            if points.code_count * levels > MAX_CODES or channel.p <= channel.q:
                continue
            if best is None or channel.variance < best.variance:
                best = Choice("prefix", (("q", q), ("weights", weights)), channel.variance)
        if best is not None:
            yield replace(best, variance=best.variance * sum(weights) / weights[-1])

    def __init__(self, experiment: Experiment):
        super().__init__(experiment)
        fields = vars(experiment)  # set by device/ldp_text.py
        self.salt: bytes = fields["salt"]
        self.slots: int = fields["slots"]
        self.lengths: tuple[int, ...] = fields["prefixes"]

    def _codes(self, experiment: Experiment) -> tuple[SlotCode, ...]:
        return tuple(SlotCode(level) for level in cast(tuple[Any, ...], experiment.levels))

    @property
    def _levels(self) -> tuple[SlotCode, ...]:
        return cast(tuple[SlotCode, ...], self.codes)

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """Return weights as the base class does.

        Raises:
            ValueError: If the statistic is not a sum over levels.
        """
        mean = statistic.mean(axis=0)
        share = self.experiment.levels[0].domain / self.domain
        nodes = [code.node_sums(statistic) * share - mean for code in self.codes]
        remainder = (
            statistic
            - mean
            - sum(code.spread_out(part, self.domain) for code, part in zip(self.codes, nodes, strict=True))
        )
        if np.abs(remainder).max() > 1e-9 * np.abs(statistic).max():
            raise ValueError("reports do not reveal how often slots on two levels occur together")
        constant = mean + sum(code.constant(part) for code, part in zip(self.codes, nodes, strict=True))
        parts = zip(self.codes, nodes, reports, strict=True)
        return (code.weights(part) if n else None for code, part, n in parts), constant

    def lacks(self, reports: Sequence[int]) -> str:
        return "" if min(reports) > 1 else "each level needs at least 2 reports; wait for more"

    def drawable(self, indices: Sequence[int]) -> npt.NDArray[np.uint32]:
        """Return each index's slots, for domains of any size, shape (n, levels)."""
        rows = [[index >> level.shift & (self.slots - 1) for level in self._levels] for index in indices]
        return np.array(rows, np.uint32).reshape(len(rows), len(self.codes))

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """Return codes as the base class does; `indices` have shape (n,), or (n, levels) for slots."""
        slots = indices
        if indices.ndim == 1:
            shifts = np.array([level.shift for level in self._levels], np.uint32)
            slots = indices[:, None] >> shifts & np.uint32(self.slots - 1)
        ends = np.cumsum([level.weight for level in self.experiment.levels])
        level_of = np.searchsorted(ends, rng.integers(0, ends[-1], len(slots)), side="right")
        out = np.empty(len(slots), np.uint32)
        for i, code in enumerate(self.codes):
            at = np.flatnonzero(level_of == i)
            out[at] = code.level.offset + draw_points(code.level, slots[at, i], rng)
        return out

    def decode(self, counts: Counts) -> Decoded:
        return Decoded(self, self.collapse(counts))

    def slot_shares(self, counts: Counts) -> list[SlotShares]:
        """Return the estimates for each level's slots from a code histogram, shape (code_count,)."""
        levels: list[SlotShares] = []
        for code, part in zip(self.codes, self.collapse(counts), strict=True):
            reports = int(part.sum())
            mean = code.class_supports(part) / max(reports, 1)
            levels.append(SlotShares((mean - code.channel.q) * code.scale, reports, code.channel))
        return levels

    def fields(self) -> dict[str, Any]:
        levels = [code.level for code in self._levels]
        return super().fields() | {"q": levels[0].q, "weights": [level.weight for level in levels]}

    def words(self) -> str:
        return f"prefix, {len(self._levels)} levels, q {self._levels[0].level.q}"
