"""A level's randomized response in numbers: how often a report supports a value, and the law of its codes.

Every level of rr, grr, olh and hh draws a seed, hashes the node under it into g cells and keeps or changes
the cell. So a class of codes is likelier for the nodes that it supports than for all others, by one ratio,
the odds.
"""

import math
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import ONE, Level
from ..arrays import Floats
from . import butterfly, fourier


@dataclass(frozen=True)
class Channel:
    """How often a report supports a value: its own with probability p, any other with probability q.

    domain     number of values
    g          cells
    p          probability that the truth is kept, threshold / ONE as the board has it
    collision  probability that two different values share a cell; 0 where the value is the cell
    """

    domain: int
    g: int
    p: float
    collision: float

    @property
    def lie(self) -> float:
        """Probability of each cell but the true one."""
        return (1 - self.p) / (self.g - 1)

    @property
    def odds(self) -> float:
        """How much likelier a code is for a value that it supports than for another."""
        return self.p * (self.g - 1) / (1 - self.p)

    @property
    def q(self) -> float:
        """Probability that a report supports a value that is not its own."""
        return self.p * self.collision + (1 - self.collision) * self.lie

    @property
    def variance(self) -> float:
        """Variance, times the number of reports, of the frequency of a value that nobody holds."""
        return self.q * (1 - self.q) / (self.p - self.q) ** 2

    @property
    def third_collides(self) -> float:
        """Probability that a third value shares the cell of two that collide, a mean over third values.

        On one line with the two in the space of digits it does so always. Where the domain is no power of g
        the mean is over all vectors of digits. 0 where nothing collides.
        """
        if not self.collision:
            return 0.0
        size = self.g
        while size < self.domain:
            size *= self.g
        on_line = (self.g - 2) / (size - 2)
        return on_line + (1 - on_line) * (size // self.g**2 - 1) / (size // self.g - 1)

    @property
    def both_supported(self) -> float:
        """Probability that a report supports two values, neither of which is its own."""
        third = self.third_collides
        return self.collision * (third * self.p + (1 - third) * self.lie)

    def node_variance(self, share: float) -> float:
        """Variance of a value less its covariance with others, times reports, where all hold this share.

        Half the variance of a difference of two such values, the sampling of the population included: all
        that matters where the sum of all values is known. Where domain is no power of g, it is a mean over
        pairs of values.
        """
        support = self.q + (self.p - self.q) * share
        other = self.both_supported
        both = other + 2 * share * (self.collision * self.p - other)
        return (support - both) / (self.p - self.q) ** 2

    @property
    def even(self) -> float:
        """node_variance of a population that holds all values equally often."""
        return self.node_variance(1 / self.domain)

    @property
    def assumed(self) -> float:
        """What least squares over a tree takes for the variance of a node, times reports.

        Between those of a rare value and of an even population, so that neither a population on few values
        nor one on all of them is served badly.
        """
        return math.sqrt(self.variance * self.even)


def level_channel(level: Level) -> Channel:
    """Channel of an experiment's level."""
    seeds = level.seeds if level.t else 0
    collision = ((seeds + 1) // level.g - 1) / seeds if seeds else 0.0
    return Channel(level.domain, level.g, level.threshold / ONE, collision)


class LevelCode:
    """A level as a linear map from shares of values to chances of its classes of codes, and its transpose.

    level    as boards have it
    channel  its numbers
    """

    def __init__(self, level: Level):
        self.level = level
        self.channel = level_channel(level)
        # A class has g - 1 codes, each under a seed of its own.
        self._seed = (level.g - 1) / level.seeds if level.t else 1.0

    def node_sums(self, values: Floats) -> Floats:
        """Sums over the neighbouring values of each of the level's nodes, (domain, ...) to (nodes, ...)."""
        width = self.level.width
        return values if width == 1 else np.add.reduceat(values, np.arange(0, len(values), width), axis=0)

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        """Each value's node's number, shape (nodes,) to (domain,)."""
        return np.repeat(nodes, self.level.width)[:domain] if self.level.width > 1 else nodes

    def law(self, nodes: Floats) -> Floats:
        """Chance of each class from the nodes' shares, shape (nodes,) or (nodes, n); linear."""
        chances = self._class_weights(nodes)
        chances *= self._seed * (self.channel.p - self.channel.lie)
        chances += self._seed * self.channel.lie * nodes.sum(axis=0)
        return chances

    def law_transposed(self, numbers: Floats) -> Floats:
        """Mean of a number for each class over the reports of each node, shape (nodes,)."""
        supported = butterfly.class_supports(self.level, numbers)
        lie = self.channel.lie
        return self._seed * (lie * float(numbers.sum()) + (self.channel.p - lie) * supported)

    @property
    def scale(self) -> float:
        """Change of a node's estimate for one unit of mean support."""
        return 1 / (self.channel.p - self.channel.q)

    def weights(self, nodes: Floats) -> Floats:
        """Weights on classes whose mean, with constant(), estimates the weighted sum of the nodes' shares."""
        return self._class_weights(nodes * self.scale)

    def _class_weights(self, nodes: Floats) -> Floats:
        if self.level.t > 1 and self.level.g > 2:
            return fourier.class_weights(self.level.g, self.level.t, nodes)
        return butterfly.class_weights(self.level, nodes)

    def constant(self, nodes: Floats) -> Floats:
        """What a report weighs beside that, whatever its code."""
        return -self.channel.q * self.scale * nodes.sum(axis=0)
