"""The server side of hcms: Apple's Hadamard count mean sketch. The board side is sketch_board.py."""

from functools import cached_property
from pathlib import Path

import numpy as np
import sketch_board
from scipy import linalg, sparse

from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism
from hushmote.server.mechanisms.decoded_histogram import IMPLIED_SHARE, Decoded, Spread

_MAX_EXACT = 1 << 25  # pairs of values times hash functions, each of which takes about 10 ns


def hadamard(values):
    """Return the unscaled Hadamard transform along the last axis, whose length is a power of 2."""
    values = np.asarray(values, float)
    width = values.shape[-1]
    high = 1 << (width.bit_length() - 1) // 2
    low = width // high
    grid = values.reshape(*values.shape[:-1], high, low)
    return (linalg.hadamard(high) @ grid @ linalg.hadamard(low)).reshape(values.shape)


class Sketch:
    """Hash functions, each with a row of `width` cells; a report reveals a bit of one row."""

    def __init__(self, hashes, width, threshold):
        self.hashes, self.width = hashes, width
        self.truth = threshold / ONE
        self.scale = 1 / (2 * self.truth - 1)  # Apple's c: (e^ε + 1) / (e^ε - 1)
        self.codes = 2 * hashes * width
        self._polynomials = np.array([sketch_board.coefficients(i) for i in range(hashes)], np.uint64)

    def cells(self, items, row):
        """Return each item's cell under one hash function."""
        a, b, c = self._polynomials[row]
        x, prime = np.asarray(items, np.uint64), np.uint64(sketch_board.PRIME)
        return ((((a * x + b) % prime * x + c) % prime) & np.uint64(self.width - 1)).astype(np.int64)

    def law(self, items, shares):
        """Return each code's probability if items have these shares, shape (items, n) to (codes, n)."""
        total = shares.sum(axis=0)
        rows = []
        for row in range(self.hashes):
            cell_shares = np.zeros((self.width, shares.shape[1]))
            np.add.at(cell_shares, self.cells(items, row), shares)
            tilt = (2 * self.truth - 1) * hadamard(cell_shares.T).T
            rows.append(np.stack([total + tilt, total - tilt], axis=1))
        return np.concatenate(rows).reshape(self.codes, -1) / self.codes

    def weights(self, items, statistic):
        """Return each code's weight in a sum of items' shares, shape (items, n) to (codes, n)."""
        return (self.law(items, statistic) * self.codes - statistic.sum(axis=0)) * (
            self.scale**2 * self.width / (self.width - 1)
        )

    def bias(self, items, statistic):
        """Return the bias of sums of items' shares if every device holds one item, shape (items, n)."""
        cell_sums = np.zeros(statistic.shape)
        for row in range(self.hashes):
            entries = self.cells(items, row), np.arange(len(items))
            membership = sparse.csr_array((np.ones(len(items)), entries), shape=(self.width, len(items)))
            cell_sums += membership.T @ (membership @ statistic)
        excess = cell_sums / self.hashes - statistic.sum(axis=0) / self.width
        return excess * (self.width / (self.width - 1)) - statistic

    def constant(self, statistic):
        """Return the correction for items that share a cell."""
        return -statistic.sum(axis=0) / (self.width - 1)

    def shares(self, counts, items):
        """Return Apple's estimate of each item's share, from the number of reports of each code."""
        rows_of_bits = counts.reshape(self.hashes, self.width, 2)
        rows = hadamard(rows_of_bits[..., 0] - rows_of_bits[..., 1])
        means = np.zeros(len(items))
        for row in range(self.hashes):
            means += rows[row][self.cells(items, row)]
        means *= self.scale / max(counts.sum(), 1)
        return (means - 1 / self.width) * self.width / (self.width - 1)

    def draw(self, items, rng):
        """Return a code for each item, as the board draws it."""
        row = rng.integers(0, self.hashes, len(items))
        cell = rng.integers(0, self.width, len(items))
        a, b, c = self._polynomials[row].T
        x, prime = np.asarray(items, np.uint64), np.uint64(sketch_board.PRIME)
        bits = (((a * x + b) % prime * x + c) % prime).astype(np.int64) & cell
        for shift in (16, 8, 4, 2, 1):
            bits ^= bits >> shift
        lies = rng.integers(0, ONE, len(items)) >= round(self.truth * ONE)
        return (row * self.width + cell) * 2 + ((bits & 1) ^ lies)


class HadamardSketch(Mechanism):
    """One sketch of all values.

    Its estimates are unbiased over random hash functions, but these are fixed: values that happen
    to share cells more often than others bias each other's estimates slightly, however many reports arrive.
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
    """All shares, read from each row's transform at the values' cells."""

    @cached_property
    def frequencies(self):
        return self.mechanism.sketch.shares(self.counts[0], np.arange(self.mechanism.domain))

    @cached_property
    def frequency_spread(self):
        sketch, reports = self.mechanism.sketch, self.reports[0]
        if sketch.hashes * self.mechanism.domain**2 <= _MAX_EXACT:
            return super().frequency_spread
        # For every value, a report's weight is the same up to its sign.
        weight = sketch.scale * sketch.width / (sketch.width - 1)
        bias, mean_square = self._collisions()
        mean = (1 - IMPLIED_SHARE) * self.frequencies + IMPLIED_SHARE * (self.implied + bias)
        mean += 1 / (sketch.width - 1)
        noise = (weight**2 - mean**2) / reports
        return Spread.of(noise + bias**2 + mean_square, -2 * mean * noise / reports)

    def _collisions(self):
        """Return each share's bias in the implied population, and its mean square over other hash functions.

        The second adds the contribution of the actual hash functions: the squared shares of the values in the
        same cell.
        """
        sketch, shares = self.mechanism.sketch, self.implied
        items, hashes, width = np.arange(len(shares)), sketch.hashes, sketch.width
        cell_sums, squares = np.zeros(len(shares)), np.zeros(len(shares))
        for row in range(hashes):
            cells = sketch.cells(items, row)
            cell_sums += np.bincount(cells, shares, width)[cells]
            squares += np.bincount(cells, shares**2, width)[cells] - shares**2
        scale = width / (width - 1)
        bias = (cell_sums / hashes - 1 / width) * scale - shares
        return bias, squares * (scale / hashes) ** 2 + (shares @ shares) / (hashes * (width - 1))
