"""A mechanism's example experiments, each at several ε, with cached results."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ...device.ldp_client import EPSILON_MAX, EPSILON_MIN, Experiment, ExperimentRefused
from ...server.arrays import Counts, Floats
from ...server.epsilon import MICRO
from ...server.errors import HushmoteError
from ...server.experiments.payload import payload
from ...server.mechanisms import Mechanism, class_of, mechanism_of
from ...server.wire.experiments import CustomCodeRefused, parse_experiment
from .. import vectorised
from .exact import MAX_BRANCHES, BranchingRng, distribution

EPSILONS = (500_000, 2_000_000)
"""The per-report ε, in micro-nats, at which each example is checked."""

FURTHER_EPSILONS = (EPSILON_MIN, 4_000_000, 8_000_000, EPSILON_MAX)
"""Further ε at which privacy is proven if boards accept the example; thresholds are rounded more at these."""


_EXAMPLES_HINT = 'add the fields of small experiments to the class, as examples = ({"type": "bool"},)'


class ContractError(HushmoteError):
    """Raised if a mechanism cannot be checked; the message says what is missing."""


class Case:
    """An experiment, and the exact distributions of codes that the board's program draws for it.

    Attributes:
        exact: Index (or None for no reading) -> code -> probability.
        draws: The same inputs -> the sequences of draws -> probability.
    """

    def __init__(self, experiment: Experiment, published: bytes):
        self.experiment = experiment
        self.published = published
        self.indices = range(experiment.domain)

    def __str__(self) -> str:
        e = self.experiment
        return f"{e.mechanism}-{e.domain}-{e.epsilon / MICRO:g}"

    @property
    def label(self) -> str:
        """The case's name in messages."""
        return f"{self.experiment.domain} values, ε = {self.experiment.epsilon / MICRO:g}"

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.experiment)

    @cached_property
    def _branches(self) -> dict[int | None, dict[Any, Fraction]]:
        def run(index: int | None, rng: BranchingRng) -> tuple[Any, Any]:
            return self.experiment.randomize(index, rng), tuple(rng.calls)

        inputs = (None, *self.indices)
        return {i: distribution(lambda rng, i=i: run(i, rng), MAX_BRANCHES) for i in inputs}

    @cached_property
    def exact(self) -> dict[int | None, dict[Any, Fraction]]:
        return {index: _summed(chances, 0) for index, chances in self._branches.items()}

    @cached_property
    def draws(self) -> dict[int | None, dict[Any, Fraction]]:
        return {index: _summed(chances, 1) for index, chances in self._branches.items()}

    @cached_property
    def channel(self) -> Floats:
        """Probability of each code by index, no reading last, shape (code_count, domain + 1)."""
        chances = np.zeros((self.experiment.code_count, self.experiment.domain + 1))
        for index, codes in self.exact.items():
            for code, chance in codes.items():
                chances[code, self.experiment.domain if index is None else index] = float(chance)
        return chances

    @cached_property
    def statistics(self) -> Floats:
        """Statistics whose linear combinations the mechanism can answer, shape (domain, n)."""
        return self.mechanism.answered_statistics()

    @cached_property
    def shares(self) -> Floats:
        """A population with common and rare values, shape (domain,)."""
        shares = np.arange(1, self.experiment.domain + 1, dtype=float)
        return shares / shares.sum()

    def fleet(self, reports: int, seed: int) -> Counts:
        """Return the histogram of a fleet drawn from the population."""
        rng = np.random.default_rng(seed)
        return vectorised.histogram(self.experiment, rng.multinomial(reports, self.shares), rng)


def _summed(chances: Mapping[Any, Fraction], part: int) -> dict[Any, Fraction]:
    sums: dict[Any, Fraction] = {}
    for output, chance in chances.items():
        sums[output[part]] = sums.get(output[part], Fraction(0)) + chance
    return sums


def cases(word: str) -> tuple[Case, ...]:
    """Return the experiments that a mechanism lists, at each of EPSILONS.

    Args:
        word: A name in the registry, or package.module:Class.

    Raises:
        ContractError: If the mechanism has no usable examples.
        MechanismError: If no mechanism has this name.
    """
    all_cases = tuple(_cases(word, EPSILONS, must_be_accepted=True))
    if not all_cases:
        raise ContractError(f"{word} has no examples: {_EXAMPLES_HINT}")
    return all_cases


def further_cases(word: str) -> tuple[Case, ...]:
    """Return the same experiments at those of FURTHER_EPSILONS that boards accept."""
    return tuple(_cases(word, FURTHER_EPSILONS, must_be_accepted=False))


def _cases(word: str, epsilons: tuple[int, ...], must_be_accepted: bool) -> Iterator[Case]:
    for number, example in enumerate(_examples(word), 1):
        fields = {"mechanism": word} | dict(example)
        if fields["mechanism"] != word:  # a class may serve several words
            continue
        for epsilon in epsilons:
            try:
                published = payload("example", fields, {}, epsilon)
                yield Case(parse_experiment(published), published)
            except (ExperimentRefused, TypeError) as e:  # TypeError: a value that JSON cannot represent
                is_refusal = isinstance(e, ExperimentRefused) and not isinstance(e, CustomCodeRefused)
                if must_be_accepted or not is_refusal:
                    raise ContractError(f"{word}: boards reject its example {number}: {e}") from None


def _examples(word: str) -> Sequence[Mapping[str, Any]]:
    examples: object = class_of(word).examples
    if not (isinstance(examples, Sequence) and all(isinstance(example, Mapping) for example in examples)):
        raise ContractError(f"{word} has examples that are not a sequence of dictionaries: {_EXAMPLES_HINT}")
    return examples
