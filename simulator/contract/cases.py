"""The small experiments of a mechanism, each at several ε, and what is computed of each once."""

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
from ...server.wire.experiments import OwnCodeRefused, parse_experiment
from .. import vectorised
from .exact import MOST_BRANCHES, BranchingRng, distribution

EPSILONS = (500_000, 2_000_000)
"""Of one report, in micro-nats: what each example is checked at."""

FURTHER_EPSILONS = (EPSILON_MIN, 4_000_000, 8_000_000, EPSILON_MAX)
"""What privacy is proven at besides, where boards take an example: thresholds are rounded more there."""


_GIVE = 'give the class fields of small experiments, as examples = ({"type": "bool"},)'


class ContractError(HushmoteError):
    """A mechanism that there is nothing to check of; the text says what it needs."""


class Case:
    """An experiment, and the exact distributions of the codes that the board's own code draws for it.

    exact: index, or None for no reading -> code -> chance. draws: the same inputs -> the sequences of draws
    -> chance.
    """

    def __init__(self, experiment: Experiment, published: bytes):
        self.experiment = experiment
        self.published = published
        self.indices = range(experiment.domain)

    def __str__(self) -> str:
        e = self.experiment
        return f"{e.mechanism}-{e.domain}-{e.epsilon / MICRO:g}"

    @property
    def where(self) -> str:
        """As people read it."""
        return f"{self.experiment.domain} values, ε = {self.experiment.epsilon / MICRO:g}"

    @cached_property
    def mechanism(self) -> Mechanism:
        return mechanism_of(self.experiment)

    @cached_property
    def _branches(self) -> dict[int | None, dict[Any, Fraction]]:
        def run(index: int | None, rng: BranchingRng) -> tuple[Any, Any]:
            return self.experiment.randomize(index, rng), tuple(rng.drawn)

        inputs = (None, *self.indices)
        return {i: distribution(lambda rng, i=i: run(i, rng), MOST_BRANCHES) for i in inputs}

    @cached_property
    def exact(self) -> dict[int | None, dict[Any, Fraction]]:
        return {index: _summed(chances, 0) for index, chances in self._branches.items()}

    @cached_property
    def draws(self) -> dict[int | None, dict[Any, Fraction]]:
        return {index: _summed(chances, 1) for index, chances in self._branches.items()}

    @cached_property
    def channel(self) -> Floats:
        """Chance of every code for every index, shape (code_count, domain), and for none: a column more."""
        chances = np.zeros((self.experiment.code_count, self.experiment.domain + 1))
        for index, codes in self.exact.items():
            for code, chance in codes.items():
                chances[code, self.experiment.domain if index is None else index] = float(chance)
        return chances

    @cached_property
    def asked(self) -> Floats:
        """Statistics that the mechanism answers, every combination of them; shape (domain, n)."""
        return self.mechanism.answered_statistics()

    @cached_property
    def shares(self) -> Floats:
        """A population with common and rare values, shape (domain,)."""
        shares = np.arange(1, self.experiment.domain + 1, dtype=float)
        return shares / shares.sum()

    def fleet(self, reports: int, seed: int) -> Counts:
        """The histogram of a fleet drawn from the population."""
        rng = np.random.default_rng(seed)
        return vectorised.histogram(self.experiment, rng.multinomial(reports, self.shares), rng)


def _summed(chances: Mapping[Any, Fraction], part: int) -> dict[Any, Fraction]:
    sums: dict[Any, Fraction] = {}
    for output, chance in chances.items():
        sums[output[part]] = sums.get(output[part], Fraction(0)) + chance
    return sums


def cases(word: str) -> tuple[Case, ...]:
    """The experiments that a mechanism names, at each of EPSILONS.

    word: of the registry, or package.module:Class. Raises ContractError or MechanismError in one line.
    """
    every = tuple(_cases(word, EPSILONS, all_taken=True))
    if not every:
        raise ContractError(f"{word} names no examples of it: {_GIVE}")
    return every


def further(word: str) -> tuple[Case, ...]:
    """The same experiments at those of FURTHER_EPSILONS at which boards take them."""
    return tuple(_cases(word, FURTHER_EPSILONS, all_taken=False))


def _cases(word: str, epsilons: tuple[int, ...], all_taken: bool) -> Iterator[Case]:
    for number, example in enumerate(_examples(word), 1):
        fields = {"mechanism": word} | dict(example)
        if fields["mechanism"] != word:  # a class may serve several words
            continue
        for epsilon in epsilons:
            try:
                published = payload("example", fields, {}, epsilon)
                yield Case(parse_experiment(published), published)
            except (ExperimentRefused, TypeError) as e:  # TypeError: what no JSON has
                if all_taken or not isinstance(e, ExperimentRefused) or isinstance(e, OwnCodeRefused):
                    raise ContractError(f"{word}: boards refuse its example {number}: {e}") from None


def _examples(word: str) -> Sequence[Mapping[str, Any]]:
    examples: object = class_of(word).examples
    if not (isinstance(examples, Sequence) and all(isinstance(example, Mapping) for example in examples)):
        raise ContractError(f"{word} has examples that are no sequence of dictionaries: {_GIVE}")
    return examples
