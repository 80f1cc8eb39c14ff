"""A histogram's exact δ, by enumerating all histograms of a few reports."""

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import mechanism_of


def code_chances(experiment: Experiment) -> NDArray[np.float64]:
    """Return the probability of each code (rows) for each value (columns), as boards draw them."""
    mechanism = mechanism_of(experiment)
    return np.stack([mechanism.code_law(unit) for unit in np.eye(experiment.domain)], axis=1)


class Histograms:
    """All histograms of 0 to n reports, and the transitions when a report is added."""

    def __init__(self, codes: int, reports: int):
        sizes = [
            list(itertools.combinations_with_replacement(range(codes), size)) for size in range(reports + 1)
        ]
        numbers = [{histogram: i for i, histogram in enumerate(size)} for size in sizes]
        self._next = [
            np.array([[numbers[m + 1][tuple(sorted((*h, c)))] for c in range(codes)] for h in sizes[m]])
            for m in range(reports)
        ]

    def law(self, of_reports: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return the histograms' probabilities for independent reports with these code distributions."""
        law = np.ones(1)
        for m, chances in enumerate(of_reports):
            after = np.zeros(self._next[m].max() + 1)
            np.add.at(after, self._next[m], law[:, None] * chances)
            law = after
        return law


def exact_delta(chances: NDArray[np.float64], reports: int, epsilon: float, own: int = 1) -> float:
    """Return the smallest δ that holds for a board with `own` reports, whatever the readings are.

    chances: the probability of each code for each value. The board's readings are all equal to one of two
    values.
    """
    histograms = Histograms(len(chances), reports)
    values = range(chances.shape[1])
    worst = 0.0
    for others in itertools.combinations_with_replacement(values, reports - own):
        laws = [histograms.law([chances[:, v] for v in (*others, *[a] * own)]) for a in values]
        for first_law, second_law in itertools.permutations(laws, 2):
            worst = max(worst, float(np.maximum(first_law - math.exp(epsilon) * second_law, 0).sum()))
    return worst
