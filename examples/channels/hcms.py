"""The server's side of hcms: Apple's Hadamard count mean sketch. The board's side is sketch_board.py."""

from functools import cached_property
from pathlib import Path

import numpy as np
import sketch_board
from scipy import linalg, sparse

from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism
from hushmote.server.mechanisms.decoded_histogram import IMPLIED_SHARE, Decoded, Spread

_MOST_EXACT = 1 << 25  # pairs of values times hash functions, about 10 ns each


def hadamard(values):
    """Return the Hadamard transform of the last axis, whose length is a power of 2; not scaled."""
    values = np.asarray(values, float)
    width = values.shape[-1]
    high = 1 << (width.bit_length() - 1) // 2
    low = width // high
    grid = values.reshape(*values.shape[:-1], high, low)
    return (linalg.hadamard(high) @ grid @ linalg.hadamard(low)).reshape(values.shape)


class Sketch:
    """Hash functions, each with a row of `width` cells; a report reveals a bit of one of them."""

    def __init__(self, hashes, width, threshold):
        self.hashes, self.width = hashes, width
        self.truth = threshold / ONE
        self.scale = 1 / (2 * self.truth - 1)  # Apple's c: (e^ε + 1) / (e^ε - 1)
        self.codes = 2 * hashes * width
        self._polynomials = np.array([sketch_board.coefficients(i) for i in range(hashes)], np.uint64)

    def cells(self, items, row):
        """Return the cell of each item under one hash function."""
        a, b, c = self._polynomials[row]
        x, prime = np.asarray(items, np.uint64), np.uint64(sketch_board.PRIME)
        return ((((a * x + b) % prime * x + c) % prime) & np.uint64(self.width - 1)).astype(np.int64)

    def law(self, items, shares):
        """Return the chance of each code if items have these shares, shape (items, n) to (codes, n)."""
        total = shares.sum(axis=0)
        rows = []
        for row in range(self.hashes):
            held = np.zeros((self.width, shares.shape[1]))
            np.add.at(held, self.cells(items, row), shares)
            lean = (2 * self.truth - 1) * hadamard(held.T).T
            rows.append(np.stack([total + lean, total - lean], axis=1))
        return np.concatenate(rows).reshape(self.codes, -1) / self.codes

    def weights(self, items, statistic):
        """Return the weight of each code in a sum of items' shares, shape (items, n) to (codes, n)."""
        return (self.law(items, statistic) * self.codes - statistic.sum(axis=0)) * (
            self.scale**2 * self.width / (self.width - 1)
        )

    def bias(self, items, statistic):
        """Return the bias of sums of items' shares if every device holds one item, shape (items, n)."""
        together = np.zeros(statistic.shape)
        for row in range(self.hashes):
            places = self.cells(items, row), np.arange(len(items))
            held = sparse.csr_array((np.ones(len(items)), places), shape=(self.width, len(items)))
            together += held.T @ (held @ statistic)
        off = together / self.hashes - statistic.sum(axis=0) / self.width
        return off * (self.width / (self.width - 1)) - statistic

    def constant(self, statistic):
        """Return what is subtracted for items that share a cell."""
        return -statistic.sum(axis=0) / (self.width - 1)

    def shares(self, counts, items):
        """Return Apple's estimate of the share of each item, from the reports of each code."""
        told = counts.reshape(self.hashes, self.width, 2)
        rows = hadamard(told[..., 0] - told[..., 1])
        means = np.zeros(len(items))
        for row in range(self.hashes):
            means += rows[row][self.cells(items, row)]
        means *= self.scale / max(counts.sum(), 1)
        return (means - 1 / self.width) * self.width / (self.width - 1)

    def draw(self, items, rng):
        """Return a code for each item, as the board draws it."""
        number = rng.integers(0, self.hashes, len(items))
        place = rng.integers(0, self.width, len(items))
        a, b, c = self._polynomials[number].T
        x, prime = np.asarray(items, np.uint64), np.uint64(sketch_board.PRIME)
        bits = (((a * x + b) % prime * x + c) % prime).astype(np.int64) & place
        for shift in (16, 8, 4, 2, 1):
            bits ^= bits >> shift
        lies = rng.integers(0, ONE, len(items)) >= round(self.truth * ONE)
        return (number * self.width + place) * 2 + ((bits & 1) ^ lies)


class HadamardSketch(Mechanism):
    """One sketch of all values.

    Its estimates are unbiased over the drawing of hash functions, which are fixed: for the ones there are,
    values that share cells more often than others take a little from each other, however many reports come.
    """

    board = Path(sketch_board.__file__)
    approximate = True
    parameters = ("hashes", "width")
    examples = (
        {"type": "bool", "hashes": 2, "width": 4},
        {"type": "text", "salt": "s", "slots": 32, "hashes": 3, "width": 8},
    )

    def __init__(self, experiment):
        super().__init__(experiment)
        self.sketch = Sketch(experiment.hashes, experiment.width, experiment.threshold)

    def fields(self):
        return super().fields() | {"hashes": self.sketch.hashes, "width": self.sketch.width}

    def words(self):
        return f"hcms, {self.sketch.hashes} hash functions of {self.sketch.width} cells"

    def law(self, shares):
        table = self.sketch.law(np.arange(self.domain), shares.reshape(self.domain, -1))
        return [table.reshape(-1, *shares.shape[1:])]

    def weights(self, statistic, reports):
        items = np.arange(self.domain)
        return [self.sketch.weights(items, statistic)], self.sketch.constant(statistic)

    def bias(self, statistic, reports):
        return self.sketch.bias(np.arange(self.domain), statistic)

    def decode(self, counts):
        return SketchDecoded(self, self.collapse(counts))

    def draw(self, indices, rng):
        return self.sketch.draw(indices, rng).astype(np.uint32)


class SketchDecoded(Decoded):
    """All shares at once, each row's transform read at the cells of the values."""

    @cached_property
    def frequencies(self):
        return self.mechanism.sketch.shares(self.counts[0], np.arange(self.mechanism.domain))

    @cached_property
    def frequency_spread(self):
        sketch, reports = self.mechanism.sketch, self.reports[0]
        if sketch.hashes * self.mechanism.domain**2 <= _MOST_EXACT:
            return super().frequency_spread
        # A report weighs plus or minus the same for every value.
        weight = sketch.scale * sketch.width / (sketch.width - 1)
        bias, chance = self._collisions()
        mean = (1 - IMPLIED_SHARE) * self.frequencies + IMPLIED_SHARE * (self.implied + bias)
        mean += 1 / (sketch.width - 1)
        noise = (weight**2 - mean**2) / reports
        return Spread.of(noise + bias**2 + chance, -2 * mean * noise / reports)

    def _collisions(self):
        """Return each share's bias in the implied population, and its mean square over other hash functions.

        The second adds the contribution of the value's own hash functions: the squares of what shares a cell
        with it.
        """
        sketch, held = self.mechanism.sketch, self.implied
        items, hashes, width = np.arange(len(held)), sketch.hashes, sketch.width
        together, squares = np.zeros(len(held)), np.zeros(len(held))
        for row in range(hashes):
            cells = sketch.cells(items, row)
            together += np.bincount(cells, held, width)[cells]
            squares += np.bincount(cells, held**2, width)[cells] - held**2
        wide = width / (width - 1)
        bias = (together / hashes - 1 / width) * wide - held
        return bias, squares * (wide / hashes) ** 2 + (held @ held) / (hashes * (width - 1))
