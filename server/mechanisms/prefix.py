"""prefix: levels of a text's beginnings, each hashed into slots that pgr reports, to discover unknown texts.

An index is a slot for each level, slots**levels of them: far more than any array holds. What has that size is
made for small domains alone (law, weights, lift); of real ones a histogram tells level by level, and which
texts are behind the slots is found by estimate/discovery.py.

Privacy: of pgr over one level's slots; the level is drawn without looking at the reading. Utility: each level's
slots are estimated without bias; how often slots of two levels come together no report tells. Cost: codes of
all levels; decoding is a butterfly for each.
Citation: Wang, Li, Jha, "Locally Differentially Private Heavy Hitter Identification", IEEE TDSC 2021;
Feldman, Nelson, Nguyen, Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Counts, Floats
from .channel import Channel
from .decoded import Decoded
from .mechanism import Mechanism, Weights
from .pgr import PointsCode, draw_points
from .supports import SupportMechanism

_TEXT = {"type": "text", "salt": "s", "mechanism": "prefix"}


@dataclass(frozen=True)
class SlotShares:
    """What a level's reports say of its slots.

    shares   of each slot, shape (slots,), unbiased
    reports  of the level; channel: how often one supports a slot
    """

    shares: Floats
    reports: int
    channel: Channel

    def variance(self, share: float) -> float:
        """Variance of the estimate of a slot of this share, the sampling of the population included."""
        support = self._support(share)
        return support * (1 - support) / (self.channel.p - self.channel.q) ** 2 / self.reports

    def skew(self, share: float) -> float:
        """How much it grows as the share grows by one."""
        return (1 - 2 * self._support(share)) / (self.channel.p - self.channel.q) / self.reports

    def _support(self, share: float) -> float:
        return min(max(self.channel.q + (self.channel.p - self.channel.q) * share, 0.0), 1.0)


class SlotCode(PointsCode):
    """A level's codes; its nodes are the slots that an index has there."""

    def node_sums(self, values: Floats) -> Floats:
        return values.reshape(-1, self.level.domain, 1 << self.level.shift, *values.shape[1:]).sum(
            axis=(0, 2)
        )

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        return nodes[np.arange(domain) >> self.level.shift & (self.level.domain - 1)]


class Prefix(SupportMechanism):
    """The mechanism prefix."""

    answers: ClassVar[frozenset[str]] = frozenset()
    parameters: ClassVar[tuple[str, ...]] = ("q", "weights")
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        _TEXT | {"slots": 4, "prefixes": [1, 2, 2], "q": 2, "weights": [1, 2, 3]},
        _TEXT | {"slots": 8, "prefixes": [1, 1], "q": 3},
    )

    def __init__(self, experiment: Experiment):
        super().__init__(experiment)
        fields = vars(experiment)  # which device/ldp_text.py has set
        self.salt: bytes = fields["salt"]
        self.slots: int = fields["slots"]
        self.lengths: tuple[int, ...] = fields["prefixes"]

    def _codes(self, experiment: Experiment) -> tuple[SlotCode, ...]:
        return tuple(SlotCode(level) for level in experiment.levels)

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        """As ever, of a statistic that is a sum of numbers for each level's slots; ValueError for another."""
        mean = statistic.mean(axis=0)
        share = self.experiment.levels[0].domain / self.domain
        nodes = [code.node_sums(statistic) * share - mean for code in self.codes]
        left = (
            statistic
            - mean
            - sum(code.spread_out(part, self.domain) for code, part in zip(self.codes, nodes, strict=True))
        )
        if np.abs(left).max() > 1e-9 * np.abs(statistic).max():
            raise ValueError("no report tells how often slots of two levels come together")
        constant = mean + sum(code.constant(part) for code, part in zip(self.codes, nodes, strict=True))
        parts = zip(self.codes, nodes, reports, strict=True)
        return (code.weights(part) if n else None for code, part, n in parts), constant

    def lacks(self, reports: Sequence[int]) -> str:
        return "" if min(reports) > 1 else "each level needs at least 2 reports: wait for more"

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        shifts = [level.shift for level in self.experiment.levels]
        slots = indices[:, None] >> np.array(shifts, np.uint32) & np.uint32(self.experiment.slots - 1)
        return self.draw_slots(slots, rng)

    def draw_slots(self, slots: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        """A code for each row of slots, shape (n, levels), of a domain of any size."""
        ends = np.cumsum([level.weight for level in self.experiment.levels])
        level_of = np.searchsorted(ends, rng.integers(0, ends[-1], len(slots)), side="right")
        out = np.empty(len(slots), np.uint32)
        for number, code in enumerate(self.codes):
            at = np.flatnonzero(level_of == number)
            out[at] = code.level.offset + draw_points(code.level, slots[at, number], rng)
        return out

    def decode(self, counts: Counts) -> Decoded:
        return Decoded(self, self.collapse(counts))

    def slot_shares(self, counts: Counts) -> list[SlotShares]:
        """What a histogram of codes, shape (code_count,), tells of each level's slots."""
        levels: list[SlotShares] = []
        for code, part in zip(self.codes, self.collapse(counts), strict=True):
            reports = int(part.sum())
            mean = code.class_supports(part) / max(reports, 1)
            levels.append(SlotShares((mean - code.channel.q) * code.scale, reports, code.channel))
        return levels

    def fields(self) -> dict[str, Any]:
        levels = self.experiment.levels
        return super().fields() | {"q": levels[0].q, "weights": [level.weight for level in levels]}

    def words(self) -> str:
        levels = self.experiment.levels
        return f"prefix, {len(levels)} levels, q {levels[0].q}"
