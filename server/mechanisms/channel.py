"""A level's randomized response: the probabilities that reports support values and that codes occur.

Every level of rr, grr, olh and hh draws a seed, uses it to hash the node into one of g cells, and keeps or
changes the cell. A class of codes is therefore more likely for the nodes that it supports than for all
others, always by the same ratio, the odds.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...device.ldp_client import ONE, Level
from ..arrays import Array, Counts, Floats
from .hashing import butterfly, fourier
from .points import lines


@dataclass(frozen=True)
class Channel:
    """The probabilities that a report supports a value: p for its own value, q for any other value.

    Attributes:
        domain: The number of values.
        g: The number of cells.
        p: The probability of reporting the true cell, threshold / ONE on the board.
        collision: The probability that two different values share a cell; 0 if every value has its own cell.
    """

    domain: int
    g: int
    p: float
    collision: float

    @property
    def ratio(self) -> float:
        """The number of codes (for one seed, if the level has seeds) per code that supports a given value."""
        return self.g

    @property
    def lie(self) -> float:
        """The probability of each cell other than the true one."""
        return (1 - self.p) / (self.ratio - 1)

    @property
    def odds(self) -> float:
        """A code's probability given a value that it supports, divided by that given any other value."""
        return self.p * (self.ratio - 1) / (1 - self.p)

    @property
    def q(self) -> float:
        """The probability that a report supports a value other than its own."""
        return self.p * self.collision + (1 - self.collision) * self.lie

    @property
    def variance(self) -> float:
        """The variance of the frequency of a value that no device has, times the number of reports."""
        return self.q * (1 - self.q) / (self.p - self.q) ** 2

    @property
    def off_line(self) -> float:
        """The probability that three values that are not collinear in digit space share a cell."""
        size = self.g ** lines.digits(self.domain, self.g)
        return max(size / self.g**2 - 1, 0.0) / (size - 1)

    @property
    def collinear(self) -> int:
        """The number of ordered collinear triples of distinct values; they collide as often as pairs."""
        return lines.affine(self.domain, self.g)

    @property
    def on_line(self) -> float:
        """The probability that a third value, of all that the digits distinguish, is collinear with two."""
        return (self.g - 2) / (self.g ** lines.digits(self.domain, self.g) - 2)

    @property
    def third_collides(self) -> float:
        """The mean probability that a third value shares the cell of two colliding values.

        A value that is collinear with the two always does. The mean is over all values that the digits
        distinguish. It is 0 if no values collide.
        """
        if not self.collision:
            return 0.0
        return self.on_line + (1 - self.on_line) * self.off_line / self.collision

    @property
    def both_supported(self) -> float:
        """The probability that a report supports two values, neither of which is its own."""
        third = self.third_collides
        return self.collision * (third * self.p + (1 - third) * self.lie)

    def node_variance(self, share: float) -> float:
        """Return a value's variance minus its covariance with others, times the number of reports.

        This is half the variance of the difference between two values with this share, including population
        sampling, and is all that matters if the sum of all values is known. If `domain` is not a power of g,
        it is averaged over pairs of values.
        """
        support = self.q + (self.p - self.q) * share
        neither_own = self.both_supported
        both = neither_own + 2 * share * (self.collision * self.p - neither_own)
        return (support - both) / (self.p - self.q) ** 2

    @property
    def even(self) -> float:
        """The node_variance in a uniform population."""
        return self.node_variance(1 / self.domain)

    @property
    def assumed(self) -> float:
        """The variance of a node that least squares over a tree assumes, times the number of reports.

        It lies between the variances for a rare value and for a uniform population, so it suits both
        concentrated and spread-out populations.
        """
        return math.sqrt(self.variance * self.even)


def level_channel(level: Level) -> Channel:
    """Return the channel of an experiment's level."""
    seeds = level.seeds if level.t else 0
    collision = ((seeds + 1) // level.g - 1) / seeds if seeds else 0.0
    return Channel(level.domain, level.g, level.threshold / ONE, collision)


class SupportCode(ABC):
    """Codes that support values: a linear map from value shares to class probabilities, and back.

    Args:
        level: The level as on boards, with its offset, code_count and weight.
        channel: The level's probabilities.
        seed: A class's fraction of the codes that support one value; for a hash, the probability of the
            class's seeds.
        runs: The number of equally long runs of codes that are equally likely for every value; for a hash,
            the number of seeds.
        even: Whether all codes support the same number of values.
    """

    def __init__(self, level: Any, channel: Channel, seed: float, runs: int, even: bool):
        self.level = level
        self.channel = channel
        self.runs = runs
        self.even = even
        self._seed = seed

    @abstractmethod
    def class_supports(self, classes: Array) -> Array:
        """Return sums over the classes that support each node, (classes,) to (nodes,); exact for integers."""

    @abstractmethod
    def class_weights(self, nodes: Floats) -> Floats:
        """Return sums over the nodes that each class supports, in a new array.

        Args:
            nodes: A number for each node, shape (nodes,) or (nodes, n).

        Returns:
            The sums, shape (classes,) or (classes, n).
        """

    @abstractmethod
    def least_supports(self, masses: Floats) -> Floats:
        """Return the smallest number of the classes that support each node, shape (classes,) to (nodes,)."""

    @property
    def class_count(self) -> int:
        """The number of classes."""
        return self.level.code_count

    def collapse(self, counts: Counts) -> Counts:
        """Sum a histogram of the codes over their classes."""
        return counts

    def expand(self, values: Array) -> Array:
        """Assign every code its class's value."""
        return values.copy()

    def node_sums(self, values: Floats) -> Floats:
        """Sum values over each node, shape (domain, ...) to (nodes, ...)."""
        return values

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        """Repeat each node's number for all of its values, shape (nodes,) to (domain,)."""
        return nodes

    def law(self, nodes: Floats) -> Floats:
        """Return each class's probability, linear in the nodes' shares, shape (nodes,) or (nodes, n)."""
        chances = self.class_weights(nodes)
        chances *= self._seed * (self.channel.p - self.channel.lie)
        chances += self._seed * self.channel.lie * nodes.sum(axis=0)
        return chances

    def law_transposed(self, numbers: Floats) -> Floats:
        """Return the mean of a per-class number over each node's reports, shape (nodes,)."""
        lie = self.channel.lie
        supported = self.class_supports(numbers)
        return self._seed * (lie * float(numbers.sum()) + (self.channel.p - lie) * supported)

    @property
    def scale(self) -> float:
        """The change in a node's estimate per unit of mean support."""
        return 1 / (self.channel.p - self.channel.q)

    def weights(self, nodes: Floats) -> Floats:
        """Return class weights whose mean plus constant() estimates the weighted sum of the nodes' shares."""
        return self.class_weights(nodes * self.scale)

    def constant(self, nodes: Floats) -> Floats:
        """Return the part of a report's weight that does not depend on its code."""
        return -self.channel.q * self.scale * nodes.sum(axis=0)


class LevelCode(SupportCode):
    """The codes of one level of rr, grr, olh or hh."""

    def __init__(self, level: Level):
        # A class has g - 1 codes, each with its own seed.
        seed = (level.g - 1) / level.seeds if level.t else 1.0
        even = not level.t or level.g**level.t == level.domain
        super().__init__(level, level_channel(level), seed, level.seeds, even)

    def class_supports(self, classes: Array) -> Array:
        return butterfly.class_supports(self.level, classes)

    def class_weights(self, nodes: Floats) -> Floats:
        if self.level.t > 1 and self.level.g > 2:
            return fourier.class_weights(self.level.g, self.level.t, nodes)
        return butterfly.class_weights(self.level, nodes)

    def least_supports(self, masses: Floats) -> Floats:
        return butterfly.least_supports(self.level, masses)

    @property
    def class_count(self) -> int:
        return butterfly.class_count(self.level)

    def collapse(self, counts: Counts) -> Counts:
        return butterfly.collapse(self.level, counts)

    def expand(self, values: Array) -> Array:
        return butterfly.expand(self.level, values)

    def node_sums(self, values: Floats) -> Floats:
        width = self.level.width
        return values if width == 1 else np.add.reduceat(values, range(0, len(values), width), axis=0)

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        return np.repeat(nodes, self.level.width)[:domain] if self.level.width > 1 else nodes
