"""Exact output distributions: run code once per branch of its two random primitives and sum Fractions."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from ...device.ldp_client import ONE
from ...server.errors import HushmoteError

MAX_BRANCHES = 1 << 18  # for one input; about a second in CPython


class EnumerationError(HushmoteError):
    """Raised for code that cannot be enumerated: an unsupported draw, too many branches, or hidden state."""


class BranchingRng:
    """The two random primitives with scripted results; `distribution` runs every script.

    Attributes:
        calls: The calls in the current branch, in order: "bernoulli", or ("below", n).
    """

    def __init__(self) -> None:
        self._choices: list[int] = []
        self._sizes: list[int] = []
        self._at = 0
        self.numerator = 1
        self.denominator = 1
        self.calls: list[Hashable] = []

    def _choose(self, n: int) -> int:
        at = self._at
        self._at += 1
        if at == len(self._choices):
            self._choices.append(0)
            self._sizes.append(n)
        if self._sizes[at] != n:
            raise EnumerationError("the code depends on more than the index and the draws")
        return self._choices[at]

    def bernoulli(self, threshold: int) -> bool:
        if type(threshold) is not int or not 0 < threshold < ONE:
            raise EnumerationError(
                f"bernoulli requires an integer from 1 to {ONE - 1}, not {threshold!r:.40}"
            )
        self.calls.append("bernoulli")
        truth = self._choose(2) == 0
        self.numerator *= threshold if truth else ONE - threshold
        self.denominator *= ONE
        return truth

    def below(self, n: int) -> int:
        if type(n) is not int or not 1 <= n <= 1 << 24:
            raise EnumerationError(f"below requires an integer from 1 to {1 << 24}, not {n!r:.40}")
        self.calls.append(("below", n))
        self.denominator *= n
        return self._choose(n)

    def advance(self) -> bool:
        """Move to the next script; return False after the last."""
        if self._at != len(self._choices):
            raise EnumerationError("the code depends on more than the index and the draws")
        while self._choices and self._choices[-1] == self._sizes[-1] - 1:
            self._choices.pop()
            self._sizes.pop()
        self._at = 0
        self.numerator = 1
        self.denominator = 1
        self.calls = []
        if not self._choices:
            return False
        self._choices[-1] += 1
        return True


def distribution(
    run: Callable[[BranchingRng], Hashable], max_branches: int | None = None
) -> dict[Any, Fraction]:
    """Return the exact probability of every output of run(rng), which is called once per branch.

    Args:
        run: The function to enumerate.
        max_branches: Largest number of branches, None for any number.

    Raises:
        EnumerationError: If there are more branches, or for a draw that boards do not support.
    """
    rng = BranchingRng()
    weights: dict[tuple[Hashable, int], int] = {}
    branches = 0
    while True:
        output = run(rng)
        key = (output, rng.denominator)
        weights[key] = weights.get(key, 0) + rng.numerator
        branches += 1
        if not rng.advance():
            break
        if branches == max_branches:
            raise EnumerationError(
                f"the code has more than {max_branches:,} branches; use examples with fewer codes"
            )
    exact: dict[Any, Fraction] = {}
    for (output, denominator), numerator in weights.items():
        exact[output] = exact.get(output, Fraction(0)) + Fraction(numerator, denominator)
    return exact


def exp_below(epsilon: int) -> Fraction:
    """Return a rational just below e^epsilon (relative difference under 1e-55); epsilon is in micro-nats."""
    with localcontext() as context:
        context.prec = 60
        nearest = (Decimal(epsilon) / 1_000_000).exp()
    return Fraction(nearest) * (1 - Fraction(1, 10**56))


def log(ratio: Fraction) -> Decimal:
    """Return the natural logarithm of a ratio, at least 1, to 40 digits."""
    with localcontext() as context:
        context.prec = 60
        value = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        context.prec = 40
        return +value


Distributions = Mapping[Any, Mapping[Any, Fraction]]
"""Input -> output -> probability."""


@dataclass(frozen=True)
class Worst:
    """The largest ratio of an output's probabilities under two inputs.

    Attributes:
        ratio: None if the output is possible for one input and impossible for the other.
    """

    ratio: Fraction | None
    output: Any
    likeliest: Any
    least_likely: Any


def worst(distributions: Distributions) -> Worst:
    """Return the output that reveals most about the input.

    Raises:
        EnumerationError: If the probabilities for an input do not sum to 1.
    """
    for value, outputs in distributions.items():
        if sum(outputs.values()) != 1:
            raise EnumerationError(f"probabilities for {value!r} do not sum to 1")
    largest = None
    for output in dict.fromkeys(output for outputs in distributions.values() for output in outputs):
        chances = {value: outputs.get(output, Fraction(0)) for value, outputs in distributions.items()}
        high, low = max(chances, key=chances.__getitem__), min(chances, key=chances.__getitem__)
        if not chances[low]:
            return Worst(None, output, high, low)
        ratio = chances[high] / chances[low]
        if largest is None or largest.ratio is None or ratio > largest.ratio:
            largest = Worst(ratio, output, high, low)
    if largest is None:
        raise EnumerationError("there is nothing to compare")
    return largest
