"""Name the most common value, or a few candidates, if the reports allow it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .estimate import Estimates
from .top_k import top

CONFIDENCE = 0.95
"""The probability that the most common value is among the named ones."""
MIN_CHANCE = 0.5
"""If the likeliest value's probability is below this, no value is named."""
MAX_NAMED = 3


@dataclass(frozen=True)
class Leaders:
    """A set of values that includes the most common one with probability CONFIDENCE.

    Attributes:
        indices: The values, likeliest first, at most MAX_NAMED; empty if no value leads yet.
        chance: The probability that the likeliest value is the most common, whether or not it is named.
    """

    indices: tuple[int, ...]
    chance: float

    @property
    def has_single_leader(self) -> bool:
        """Whether a single value is named as the most common."""
        return len(self.indices) == 1


def leaders(estimate: Estimates) -> Leaders:
    """Return the values to name as the most common.

    The probabilities come from top_k.top(). Equally common values share the probability, so none of them is
    named alone, regardless of the number of reports.

    Raises:
        EstimateError: If the frequencies cannot be estimated.
    """
    return leaders_from_chances(top(estimate, 1).probabilities)


def leaders_from_chances(chances: npt.ArrayLike) -> Leaders:
    """Return the values to name.

    Args:
        chances: Each value's probability of being the most common, shape (domain,), with sum 1.
    """
    probabilities = np.asarray(chances, float)
    order = np.argsort(-probabilities, kind="stable")[:MAX_NAMED]
    first, total = float(probabilities[order[0]]), np.cumsum(probabilities[order])
    if first < MIN_CHANCE or total[-1] < CONFIDENCE:
        return Leaders((), first)
    count = int(np.argmax(total >= CONFIDENCE)) + 1
    return Leaders(tuple(order[:count].tolist()), first)
