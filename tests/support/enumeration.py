"""Exact output distributions: run code once per branch of its two random primitives, add up Fractions."""

from collections.abc import Callable, Hashable, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from hushmote.device.ldp_client import ONE


class BranchingRng:
    """The two primitives as scripted choices; `distribution` walks through every script."""

    def __init__(self) -> None:
        self._choices: list[int] = []
        self._sizes: list[int] = []
        self._at = 0
        self.numerator = 1
        self.denominator = 1

    def _choose(self, n: int) -> int:
        at = self._at
        self._at += 1
        if at == len(self._choices):
            self._choices.append(0)
            self._sizes.append(n)
        assert self._sizes[at] == n, "the code under enumeration is not a function of its choices"
        return self._choices[at]

    def bernoulli(self, threshold: int) -> bool:
        assert 0 < threshold < ONE
        truth = self._choose(2) == 0
        self.numerator *= threshold if truth else ONE - threshold
        self.denominator *= ONE
        return truth

    def below(self, n: int) -> int:
        assert 1 <= n <= 2**24
        self.denominator *= n
        return self._choose(n)

    def advance(self) -> bool:
        """Go to the next script; False after the last."""
        while self._choices and self._choices[-1] == self._sizes[-1] - 1:
            self._choices.pop()
            self._sizes.pop()
        if not self._choices:
            return False
        self._choices[-1] += 1
        self._at = 0
        self.numerator = 1
        self.denominator = 1
        return True


def distribution(run: Callable[[BranchingRng], Hashable]) -> dict[Any, Fraction]:
    """Exact probability of every output of run(rng), which is called once per branch."""
    rng = BranchingRng()
    weights: dict[tuple[Hashable, int], int] = {}
    while True:
        output = run(rng)
        key = (output, rng.denominator)
        weights[key] = weights.get(key, 0) + rng.numerator
        if not rng.advance():
            break
    exact: dict[Any, Fraction] = {}
    for (output, denominator), numerator in weights.items():
        exact[output] = exact.get(output, Fraction(0)) + Fraction(numerator, denominator)
    return exact


def exp_below(epsilon: int) -> Fraction:
    """A rational below e^epsilon, short of it by less than 1e-55 of it; epsilon in micro-nats."""
    with localcontext() as context:
        context.prec = 60
        nearest = (Decimal(epsilon) / 1_000_000).exp()
    return Fraction(nearest) * (1 - Fraction(1, 10**56))


def worst_ratio(distributions: Mapping[Any, Mapping[Any, Fraction]]) -> Fraction | None:
    """Largest ratio of an output's probabilities under two inputs; None where it is unbounded.

    distributions: input -> output -> probability. Checks that every distribution sums to exactly 1.
    """
    assert distributions
    for value, outputs in distributions.items():
        assert sum(outputs.values()) == 1, f"probabilities for {value!r} do not sum to 1"
    worst = Fraction(1)
    for output in set().union(*distributions.values()):
        chances = [outputs.get(output, Fraction(0)) for outputs in distributions.values()]
        if min(chances) == 0:
            return None
        worst = max(worst, max(chances) / min(chances))
    return worst


def assert_private(distributions: Mapping[Any, Mapping[Any, Fraction]], epsilon: int) -> Fraction:
    """Return the worst ratio; AssertionError where it is above e^epsilon (micro-nats)."""
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
    """Four slots in memory: what a client needs of a flash."""

    def __init__(self, slots: Mapping[int, bytes] | None = None) -> None:
        self.slots: dict[int, bytes] = dict(slots or {})

    def read(self, slot: int) -> bytes | None:
        return self.slots.get(slot)

    def write(self, slot: int, data: bytes) -> None:
        self.slots[slot] = bytes(data)


def memory(slots: Mapping[int, bytes] | None = None) -> Any:
    """A MemoryStorage, of the type Any: Client says nothing of its storage but the default, a folder."""
    return MemoryStorage(slots)
