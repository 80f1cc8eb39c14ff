"""Exact output distributions of the shipped code, and a client held entirely in memory."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from hushmote.simulator.contract.exact import BranchingRng as BranchingRng
from hushmote.simulator.contract.exact import Distributions, exp_below, worst
from hushmote.simulator.contract.exact import distribution as distribution


def worst_ratio(distributions: Distributions) -> Fraction | None:
    """Return the ratio from worst(), or None if it is unbounded."""
    return worst(distributions).ratio


def assert_private(distributions: Distributions, epsilon: int) -> Fraction:
    """Return the worst ratio; raise AssertionError if it exceeds e^epsilon (micro-nats)."""
    assert distributions
    ratio = worst_ratio(distributions)
    assert ratio is not None, "an output is possible for one input and impossible for another"
    assert ratio <= exp_below(epsilon), f"ratio {float(ratio)} is above e^{epsilon / 1e6}"
    return ratio


POLICY = {
    "sum": 2**47,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ("sum", "squares", "count", "unlimited"),
    "experiments": ("e", "f", "g"),
}


class MemoryStorage:
    """In-memory slots that replace a client's flash."""

    def __init__(self, slots: Mapping[int, bytes] | None = None) -> None:
        self.slots: dict[int, bytes] = dict(slots or {})

    def read(self, slot: int) -> bytes | None:
        return self.slots.get(slot)

    def write(self, slot: int, data: bytes) -> None:
        self.slots[slot] = bytes(data)


def memory(slots: Mapping[int, bytes] | None = None) -> Any:
    """Return a MemoryStorage as Any, because Client declares only its default storage, a folder."""
    return MemoryStorage(slots)
