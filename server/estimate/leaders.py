"""The most common value, or a few candidates for it, named only if the reports allow it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .estimate import Estimates
from .top_k import top

CONFIDENCE = 0.95
"""The probability that the most common value is among the named ones."""
LEAST_CHANCE = 0.5
"""If the first value has a smaller probability than this, no value is named."""
MOST_NAMED = 3


@dataclass(frozen=True)
class Leaders:
    """The values that include the most common one with probability CONFIDENCE.

    Attributes:
        indices: The values, likeliest first, at most MOST_NAMED; empty if no value leads yet.
        chance: The probability that the likeliest value is the most common, whether it is named or not.
    """

    indices: tuple[int, ...]
    chance: float

    @property
    def one_leads(self) -> bool:
        """Return whether one value alone is the most common."""
        return len(self.indices) == 1


def leaders(estimate: Estimates) -> Leaders:
    """Return the values to name as the most common.

    The probabilities are those of top_k.top(). Equally common values share the probability, so none of them
    is named alone, however many reports there are.

    Raises:
        EstimateError: If the frequencies cannot be estimated.
    """
    return leading(top(estimate, 1).probabilities)


def leading(chances: npt.ArrayLike) -> Leaders:
    """Return the values to name.

    Args:
        chances: The probability that each value is the most common, shape (domain,), with sum 1.
    """
    each = np.asarray(chances, float)
    order = np.argsort(-each, kind="stable")[:MOST_NAMED]
    first, together = float(each[order[0]]), np.cumsum(each[order])
    if first < LEAST_CHANCE or together[-1] < CONFIDENCE:
        return Leaders((), first)
    count = int(np.argmax(together >= CONFIDENCE)) + 1
    return Leaders(tuple(order[:count].tolist()), first)
