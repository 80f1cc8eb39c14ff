"""The peers' formulas compared with their channels as matrices, enumerated code by code."""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, linalg

from hushmote.server.arrays import Floats
from hushmote.server.mechanisms.choose import choose
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, PREFIXES

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import peer_errors  # pyright: ignore[reportMissingImports]
import peer_formulas as peers  # pyright: ignore[reportMissingImports]
from peer_formulas import PEERS, Peer  # pyright: ignore[reportMissingImports]

EPSILONS = (0.5, 1.0, 2.0, 4.0)
DOMAIN = 8
Formula = Callable[[Floats, float], float]
each_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)


@dataclass(frozen=True)
class Matrix:
    """A channel: the probability of codes by value, shape (codes, D), and each code's weight in an estimate.

    estimate: for n statistics, shape (codes, n). truth: each statistic of each value, shape (D, n).
    """

    chances: Floats
    estimate: Floats
    truth: Floats

    def check(self, epsilon: float) -> None:
        """Probabilities sum to 1, no code is likelier than ε allows, and the estimates are unbiased."""
        np.testing.assert_allclose(self.chances.sum(axis=0), 1, atol=1e-12)
        odds = self.chances.max(axis=1) / self.chances.min(axis=1)
        assert odds.max() <= math.exp(epsilon) * (1 + 1e-9)
        np.testing.assert_allclose(self.chances.T @ self.estimate, self.truth, atol=1e-9)

    def variances(self, shares: Floats) -> Floats:
        law = self.chances @ shares
        return law @ self.estimate**2 - (law @ self.estimate) ** 2


def bits_of(length: int) -> Floats:
    """Return every vector of bits, shape (2**length, length)."""
    return np.array(list(product((0.0, 1.0), repeat=length)))


def unary(p: float, q: float) -> Matrix:
    """Return a channel with one bit per value: 1 with probability p for the true value, q for others."""
    codes = bits_of(DOMAIN)
    chance = np.where(np.eye(DOMAIN, dtype=bool), p, q)  # for each bit, by value
    bit_laws = np.where(codes[:, :, None] > 0, chance, 1 - chance)
    return Matrix(bit_laws.prod(axis=1), (codes - q) / (p - q), np.eye(DOMAIN))


def sue(epsilon: float) -> Matrix:
    odds = math.exp(epsilon / 2)
    return unary(odds / (odds + 1), 1 / (odds + 1))


def the(epsilon: float) -> Matrix:
    """Use thresholds over a grid, with each probability an integral of the Laplace density."""

    def above(mean: float, threshold: float) -> float:
        def density(x: float) -> float:
            return epsilon / 4 * math.exp(-abs(x - mean) * epsilon / 2)

        return integrate.quad(density, threshold, 200, points=[max(mean, threshold)], limit=200)[0]

    p, q = peers.threshold(epsilon)
    at = -2 / epsilon * math.log(2 * q)
    assert 0.5 < at <= 1
    assert (above(1, at), above(0, at)) == pytest.approx((p, q), abs=1e-8)
    for other in np.linspace(0.5, 1, 9):
        one, zero = above(1, other), above(0, other)
        assert zero * (1 - zero) / (one - zero) ** 2 >= q * (1 - q) / (p - q) ** 2 - 1e-7
    return unary(p, q)


def subset_selection(epsilon: float) -> Matrix:
    k, _, _ = peers.subset(DOMAIN, epsilon)
    codes = np.array(
        [[v in chosen for v in range(DOMAIN)] for chosen in combinations(range(DOMAIN), k)], float
    )
    weight = np.where(codes > 0, math.exp(epsilon), 1.0)
    chances = weight / weight.sum(axis=0)
    p, q = chances[:, 0] @ codes[:, 0], chances[:, 0] @ codes[:, 1]
    return Matrix(chances, (codes - q) / (p - q), np.eye(DOMAIN))


def hadamard_response(epsilon: float) -> Matrix:
    """Use blocks of a Hadamard matrix, whose first rows have no value, and the estimates of section 5."""
    blocks, size = peers.hadamard(DOMAIN, epsilon)
    rows = linalg.hadamard(size)[1:]
    supports = np.zeros((blocks * size, blocks * (size - 1)))
    same = np.zeros_like(supports)
    for block in range(blocks):
        codes, values = slice(block * size, (block + 1) * size), slice(block * (size - 1), None)
        supports[codes, values][:, : size - 1] = (rows > 0).T
        same[codes, values][:, : size - 1] = 1
    supports, same = supports[:, :DOMAIN], same[:, :DOMAIN]
    weight = np.where(supports > 0, math.exp(epsilon), 1.0)
    chances = weight / weight.sum(axis=0)
    scale = 2 * (math.exp(epsilon) - 1 + 2 * blocks) / (math.exp(epsilon) - 1)
    return Matrix(chances, scale * (supports - same / 2), np.eye(DOMAIN))


def bloom(epsilon: float) -> Matrix:
    """Use four values with two bits each, which no two values share."""
    keep = 1 / (1 + math.exp(-epsilon / 4))
    codes = bits_of(8)
    set_bits = np.repeat(np.eye(4), 2, axis=0)  # bits by values
    bit_laws = np.where((codes[:, :, None] > 0) == (set_bits > 0), keep, 1 - keep)
    one = (codes - (1 - keep)) / (2 * keep - 1)
    return Matrix(bit_laws.prod(axis=1), one.reshape(-1, 4, 2).mean(axis=2), np.eye(4))


def sketch(epsilon: float, one_bit: bool, width: int = 4, values: int = 3) -> Matrix:
    """Use every hash function of a few values into a few cells; all are equally likely and in the report."""
    table = linalg.hadamard(width)
    chances: list[Floats] = []
    estimates: list[Floats] = []
    functions = list(product(range(width), repeat=values))
    for cells in map(list, functions):
        if one_bit:
            keep = 1 / (1 + math.exp(-epsilon))
            for column, sign in product(range(width), (1, -1)):
                matches = table[cells, column] == sign
                chances.append(np.where(matches, keep, 1 - keep) / width / len(functions))
                estimates.append(sign * table[cells, column] / (2 * keep - 1))
        else:
            keep = 1 / (1 + math.exp(-epsilon / 2))
            for bits in bits_of(width):
                right = bits[:, None] == (np.arange(width)[:, None] == cells)
                chances.append(np.where(right, keep, 1 - keep).prod(axis=0) / len(functions))
                estimates.append((bits[cells] - (1 - keep)) / (2 * keep - 1))
    cell = np.array(estimates)  # the candidate's cell: its share, and other values that fall there by chance
    return Matrix(np.array(chances), (cell - 1 / width) * width / (width - 1), np.eye(values))


def haar(epsilon: float, low_high: list[tuple[int, int]], domain: int) -> Matrix:
    """Return reports about one coefficient of one level, by Hadamard randomized response."""
    levels = domain.bit_length() - 1
    keep = 1 / (1 + math.exp(-epsilon))
    at = np.arange(domain)
    inside = np.array([(at >= low) & (at < high) for low, high in low_high], float)
    chances: list[Floats] = []
    estimates: list[Floats] = []
    for level in range(1, levels + 1):
        size = 1 << level
        half = np.where(at // (size // 2) % 2, -1, 1)
        table = linalg.hadamard(domain // size)
        # A coefficient adds the left half's part of the range minus the right half's.
        parts = (inside * half).reshape(len(inside), -1, size).sum(axis=2) / size
        for row, sign in product(range(len(table)), (1, -1)):
            matches = half * table[row, at // size] == sign
            chances.append(np.where(matches, keep, 1 - keep) / len(table) / levels)
            estimates.append(sign * levels * (parts @ table[row]) / (2 * keep - 1))
    constant = inside.mean(axis=1)
    return Matrix(np.array(chances), np.array(estimates) + constant, inside.T)


def peer(name: str, asked: str | None = None) -> Peer:
    return next(p for p in PEERS if p.name == name and asked in (None, p.asked))


def populations(domain: int) -> Iterator[Floats]:
    """Use a population without value 0, some in which it is common, and uneven ones."""
    for share in (0.0, 0.2, 0.7, 1.0):
        yield np.append(share, np.full(domain - 1, (1 - share) / (domain - 1)))
    uneven = np.arange(domain, 0, -1) ** 2.0
    yield uneven / uneven.sum()
    yield uneven[::-1] / uneven.sum()


def one_bit(epsilon: float) -> Matrix:
    keep = 1 / (1 + math.exp(-epsilon))
    at = np.linspace(-1, 1, DOMAIN)
    one, scale = 0.5 + at * (keep - 0.5), 1 / (2 * keep - 1)
    return Matrix(np.array([one, 1 - one]), np.array([[scale], [-scale]]), at[:, None])


CHANNELS: dict[str, tuple[Callable[[float], Matrix], Formula]] = {
    name: (matrix, peer(name).variance)
    for name, matrix in {
        "SS": subset_selection,
        "OUE": lambda epsilon: unary(0.5, 1 / (math.exp(epsilon) + 1)),
        "SUE": sue,
        "THE": the,
        "HR": hadamard_response,
        "RAPPOR": bloom,
    }.items()
} | {
    "one bit": (one_bit, lambda shares, epsilon: 4 * peer("one bit").variance(shares, epsilon)),
    "CMS": (partial(sketch, one_bit=False), lambda s, epsilon: peers.sketch(epsilon, s[0], 4, False)),
    "HCMS": (partial(sketch, one_bit=True), lambda s, epsilon: peers.sketch(epsilon, s[0], 4, True)),
}


class TestErrors:
    @each_epsilon
    @pytest.mark.parametrize("name", CHANNELS)
    def test_match_enumerated_channel(self, name: str, epsilon: float):
        made, formula = CHANNELS[name]
        matrix = made(epsilon)
        matrix.check(epsilon)
        for shares in populations(len(matrix.truth)):
            assert formula(shares, epsilon) == pytest.approx(matrix.variances(shares)[0], rel=1e-9)

    @each_epsilon
    def test_numbers_with_laplace_noise(self, epsilon: float):
        """SHE and the Laplace mean add noise of variance 8/ε² to 0 or 1, or to a number from -1 to 1."""

        def square(x: float) -> float:
            return x * x * epsilon / 2 * math.exp(-x * epsilon / 2)

        noise = integrate.quad(square, 0, 200 / epsilon, points=[2 / epsilon], limit=200)[0]
        at = np.linspace(-1, 1, DOMAIN)
        for shares in populations(DOMAIN):
            held = shares[0] - shares[0] ** 2
            assert peer("SHE").variance(shares, epsilon) == pytest.approx(noise + held, rel=1e-6)
            spread = shares @ at**2 - (shares @ at) ** 2
            assert peer("Laplace").variance(shares, epsilon) == pytest.approx((noise + spread) / 4, rel=1e-6)

    @each_epsilon
    @pytest.mark.parametrize("domain", [2, 8, 16])
    def test_ranges_and_quantiles_by_wavelets(self, domain: int, epsilon: float):
        even = np.full(domain, 1 / domain)
        ranges = list(combinations(range(domain + 1), 2))
        for asked, places in (("range", ranges), ("quantile", [(0, high) for high in range(1, domain + 1)])):
            matrix = haar(epsilon, places, domain)
            matrix.check(epsilon)
            wanted = matrix.variances(even).mean()
            assert peer("HaarHRR", asked).variance(even, epsilon) == pytest.approx(wanted, rel=1e-9)

    def test_wavelets_match_measurement(self):
        """benchmarks/results/ranges.json has 0.577e-6 ± 0.003e-6 for 2^26 reports, 256 values and e^ε = 3."""
        variance = peer("HaarHRR", "range").variance(np.full(256, 1 / 256), math.log(3))
        assert variance / 2**26 == pytest.approx(0.577e-6, abs=0.01e-6)

    @each_epsilon
    def test_piecewise_and_hybrid_means(self, epsilon: float):
        """Integrate the piecewise density of ICDE 2019, algorithm 2; algorithm 3 mixes it with one bit."""
        root = math.exp(epsilon / 2)
        most = (root + 1) / (root - 1)

        def moments(value: float) -> tuple[float, float, float]:
            left = (most + 1) / 2 * value - (most - 1) / 2
            right = left + most - 1
            high = (math.exp(epsilon) - root) / (2 * root + 2)
            low = high / math.exp(epsilon)
            runs = [(-most, left, low), (left, right, high), (right, most, low)]
            moments = [sum(d * (b**k - a**k) / k for a, b, d in runs) for k in (1, 2, 3)]
            return moments[0], moments[1], moments[2]

        at = np.linspace(-1, 1, DOMAIN)
        whole, mean, square = np.array([moments(value) for value in at]).T
        np.testing.assert_allclose(whole, 1)
        np.testing.assert_allclose(mean, at)
        part = 0.0 if epsilon < 0.61 else 1 - math.exp(-epsilon / 2)
        for shares in populations(DOMAIN):
            piecewise = (shares @ square - (shares @ at) ** 2) / 4
            assert peer("PM").variance(shares, epsilon) == pytest.approx(piecewise, rel=1e-9)
            mixed = part * piecewise + (1 - part) * peer("one bit").variance(shares, epsilon)
            assert peer("HM").variance(shares, epsilon) == pytest.approx(mixed, rel=1e-9)

    @each_epsilon
    def test_two_readings(self, epsilon: float):
        """Two parts of three values: nine bits jointly, or three bits twice at half of ε."""
        domain = 3
        even = np.full(domain, 1 / domain)
        single = np.kron(np.eye(domain), np.ones((domain, 1))), np.kron(np.ones((domain, 1)), np.eye(domain))
        truth = np.hstack([*single, np.eye(domain**2)]).astype(np.float64)

        p, q = 0.5, 1 / (math.exp(epsilon) + 1)
        codes = bits_of(domain**2)
        chance = np.where(np.eye(domain**2, dtype=bool), p, q)
        bit_laws = np.where(codes[:, :, None] > 0, chance, 1 - chance)
        whole = Matrix(bit_laws.prod(axis=1), (codes - q) / (p - q) @ truth, truth)

        q = 1 / (math.exp(epsilon / 2) + 1)
        codes = bits_of(domain)
        chance = np.where(np.eye(domain, dtype=bool), p, q)
        one = np.where(codes[:, :, None] > 0, chance, 1 - chance).prod(axis=1)
        support, ones = (codes - q) / (p - q), np.ones((len(codes), 1))
        estimates = [np.kron(support, ones), np.kron(ones, support), np.kron(support, support)]
        twice = Matrix(np.kron(one, one), np.hstack(estimates).astype(np.float64), truth)

        for name, matrix in (("joint OUE", whole), ("SPL", twice)):
            matrix.check(epsilon)
            variances = matrix.variances(np.full(domain**2, domain**-2))
            thirds = variances[:domain], variances[domain : 2 * domain], variances[2 * domain :]
            wanted = np.mean([third.mean() for third in thirds])
            assert peer(name).variance(even, epsilon) == pytest.approx(wanted, rel=1e-9)


class TestComparison:
    @pytest.mark.parametrize("domain", [64, 1024])
    @pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 2.0, 4.0])
    def test_peer_errors_rank_as_documented(self, domain: int, epsilon: float):
        rare = next(populations(domain))
        variances = {p.name: p.variance(rare, epsilon) for p in PEERS if p.asked in ("frequency", "labels")}
        ours = choose(domain, round(epsilon * 1e6), FREQUENCIES).variance
        assert variances["SS"] < variances["OUE"] < variances["SUE"] < variances["THE"]
        assert variances["SHE"] >= 2 * variances["OUE"]
        assert variances["SS"] * 0.99 < ours < variances["SS"] * 1.15
        assert ours < variances["OUE"] * 1.03
        assert variances["HR"] > ours
        assert variances["CMS"] == pytest.approx(variances["SUE"], rel=0.02)
        assert variances["RAPPOR"] > 2 * variances["SUE"]
        means = {p.name: p.variance(np.full(domain, 1 / domain), epsilon) for p in PEERS if p.asked == "mean"}
        assert means["PM"] < means["Laplace"]
        for asked, workload in (("range", ALL_RANGES), ("quantile", PREFIXES)):
            wavelets = peer("HaarHRR", asked).variance(np.full(domain, 1 / domain), epsilon)
            assert choose(domain, round(epsilon * 1e6), workload).variance < wavelets

    def test_bits_of_codes(self):
        """At ε = 1 with 64 values, a subset has 17 values and 4e14 subsets exist."""
        assert peer("SS").bits(64, 1.0) == pytest.approx(math.log2(math.comb(64, 17)), rel=1e-12)
        assert peer("HR").bits(64, 1.0) == 7
        assert peer("HR").bits(8, 2.0) == math.log2(hadamard_response(2.0).chances.shape[0])
        assert peer("OUE").bits(64, 1.0) == 64
        assert peer("HCMS").bits(64, 1.0) == 27
        for name in ("CMS", "HCMS"):  # these differ only in width from the sketches enumerated above
            wide = peers.sketch(1.0, 0.2, peers.SKETCH_WIDTH, name == "HCMS")
            assert peer(name).variance(np.array([0.2, 0.8]), 1.0) == wide

    def test_page_shows_formula_tables(self):
        page = peer_errors.PAGE.read_text(encoding="utf-8")
        assert page.count(": made by benchmarks/peer_errors.py -->") == 2
        assert peer_errors.with_tables(page) == page, "run benchmarks/peer_errors.py"
