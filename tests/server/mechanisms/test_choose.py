"""Channels and chosen mechanisms compared with enumeration and published tables."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused, Level
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.choice import Choice
from hushmote.server.mechanisms.hashing.choice import best_hash
from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.tree.choice import level_channels, workload_variance
from hushmote.server.mechanisms.tree.influence import mean_range_variance
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, PREFIXES, Workload, WorkloadError

LN_3 = 1_098_612  # micro-nats


def cells_of(level: Level) -> np.ndarray:
    """Return every node's cell under every seed, as the board computes it, shape (seeds, domain)."""
    if not level.t:
        return np.arange(level.domain)[None, :]
    digits = level.g ** np.arange(level.t)
    seeds = np.arange(1, level.seeds + 1)[:, None] // digits % level.g
    nodes = np.arange(level.domain)[:, None] // digits % level.g
    return seeds @ nodes.T % level.g


# ε -> best prime and its variance for 128, 1,024 and 65,536 values, and the variance of direct answers.
PUBLISHED = {
    500_000: ((3, 15.676), (3, 15.802), (3, 15.817), "303.3", "2432"),
    1_000_000: ((3, 3.7335), (3, 3.7660), (3, 3.7700), "43.60", "347.1"),
    2_000_000: ((7, 0.7226), (7, 0.7306), (7, 0.7319), "3.268", "25.22"),
    3_000_000: ((19, 0.2148), (23, 0.2208), (23, 0.2210), "0.4010", "2.861"),
    4_000_000: ((53, 0.0753), (53, 0.0753), (53, 0.0761), "0.0629", "0.3748"),
}


class TestHash:
    @pytest.mark.parametrize("epsilon", PUBLISHED)
    def test_best_prime_and_variance_match_the_published_table(self, epsilon: int) -> None:
        *hashed, small, large = PUBLISHED[epsilon]
        for domain, (g, variance) in zip((128, 1024, 65_536), hashed, strict=True):
            channel = best_hash(domain, epsilon)
            assert channel is not None
            assert channel.g == g
            digits = 4 if variance < 10 else 3
            assert round(channel.variance, digits) == pytest.approx(variance, abs=0.51 * 10**-digits)
        for domain, printed in ((128, small), (1024, large)):
            channel = level_channel(Level(epsilon, domain, domain, 1, 0, 1))
            digits = len(printed.partition(".")[2])
            assert f"{channel.variance:.{digits}f}" == printed

    def test_is_the_best_of_accepted_primes(self) -> None:
        for epsilon in (1_000, 200_000, 1_000_000, 3_000_000, 8_000_000):
            best = best_hash(200, epsilon)
            assert best is not None
            for g in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 53, 101, 139, 197, 199):
                try:
                    level = Level(epsilon, 200, g, 1, 0, 1)
                except ExperimentRefused:
                    continue
                assert best.variance <= level_channel(level).variance


def covariance(level: Level, shares: np.ndarray) -> np.ndarray:
    """Return a level's covariance of node estimates, times the number of reports, over seeds and cells."""
    channel = level_channel(level)
    cells = cells_of(level)
    support, both = np.zeros(level.domain), np.zeros((level.domain, level.domain))
    for y in range(level.g):
        supported = (cells == y).astype(float)
        likely = channel.lie + (channel.p - channel.lie) * supported @ shares
        support += likely @ supported
        both += (supported * likely[:, None]).T @ supported
    mean = support / len(cells)
    return (both / len(cells) - np.outer(mean, mean)) / (channel.p - channel.q) ** 2


class TestChannel:
    @pytest.mark.parametrize(
        ("domain", "g"), [(2, 2), (7, 7), (5, 2), (9, 3), (10, 3), (30, 5), (26, 5), (64, 2)]
    )
    def test_probabilities_of_support_are_exact(self, domain: int, g: int) -> None:
        level = Level(1_000_000, domain, g, 1, 0, 1)
        channel = level_channel(level)
        p = Fraction(level.threshold, ONE)
        lie = (1 - p) / (g - 1)
        cells = cells_of(level)
        for held in range(domain):
            for value in range(domain):
                same = int((cells[:, held] == cells[:, value]).sum())
                exact = (same * p + (len(cells) - same) * lie) / len(cells)
                expected = channel.p if held == value else channel.q
                assert float(exact) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize(("domain", "g"), [(2, 2), (7, 7), (8, 2), (9, 3), (27, 3), (25, 5), (64, 2)])
    def test_uniform_variance_is_half_that_of_a_difference(self, domain: int, g: int) -> None:
        level = Level(1_000_000, domain, g, 1, 0, 1)
        result = covariance(level, np.full(domain, 1 / domain))
        mean_other = (result.sum() - np.trace(result)) / (domain * (domain - 1))
        expected = np.trace(result) / domain - mean_other
        assert level_channel(level).even == pytest.approx(expected, rel=1e-9)


def published(fanout: int) -> tuple[Level, ...]:
    """Return the levels of the published trees over 256 values at e^ε = 3."""
    cells = {2: (2, 4, 5, 5, 5, 5, 5, 5), 4: (4, 5, 5, 5), 16: (5, 5)}[fanout]
    nodes = hierarchy.heights(256, fanout)
    return tuple(Level(LN_3, n, g, 256 // n, 0, 1) for n, g in zip(nodes, cells, strict=True))


def levels_of(choice: Choice, domain: int, epsilon: int) -> list[Level]:
    """Return the levels that a board builds from a chosen tree."""
    fields = {"v": 1, "name": "e", "type": "number", "low": 0, "high": 1000, "bins": domain, "window": "all"}
    fields |= choice.fields() | {"epsilon": epsilon}
    payload = json.dumps(fields | {"budget": {"rule": "unlimited"}}, separators=(",", ":")).encode()
    assert len(payload) < 400
    return list(Experiment.parse(payload).levels)


class TestHierarchy:
    @pytest.mark.parametrize(("fanout", "printed"), [(2, 0.557), (4, 0.531), (16, 0.663)])
    def test_is_at_least_as_accurate_as_published(self, fanout: int, printed: float) -> None:
        """Compare errors of rare values, in units of 1e-6, at D = 256, e^ε = 3 and N = 2^26.

        The published errors assume independence; counting collisions exactly gives up to 7% less.
        """
        levels = published(fanout)
        variances = [level_channel(level).variance * len(levels) for level in levels]
        actual = mean_range_variance(hierarchy.tree(256, fanout, variances), variances) / 2**26 * 1e6
        assert 0.92 * printed < actual < printed

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "workload",
        [ALL_RANGES, PREFIXES, Workload.of([(0, 10), (30, 60)])],
        ids=["ranges", "prefixes", "list"],
    )
    @pytest.mark.parametrize("epsilon", [500_000, 4_000_000])
    @pytest.mark.parametrize("domain", [64, 257])
    def test_beats_every_fanout_with_equal_weights(
        self, domain: int, epsilon: int, workload: Workload
    ) -> None:
        chosen = oracle.choose(domain, epsilon, workload).variance
        for fanout in range(2, domain + 1, 1 + domain // 40):
            channels = level_channels(domain, fanout, epsilon)
            weights = (1,) * len(channels)
            assert chosen <= workload_variance(domain, fanout, channels, weights, workload) * 1.001

    def test_is_below_the_best_published_error(self) -> None:
        """0.499e-6 at D = 256, e^ε = 3, N = 2^26: Haar wavelets, Cormode, Kulkarni, Srivastava 2019."""
        assert oracle.choose(256, LN_3, ALL_RANGES).variance / 2**26 < 0.87 * 0.499e-6

    def test_gives_reports_to_levels_that_serve_the_workload(self) -> None:
        """Ranges of whole 16-value blocks use only the tree over blocks and the leaves' minimal share."""
        choice = oracle.choose(256, 1_000_000, Workload.of([(16, 64), (128, 240), (32, 80)]))
        weights = dict(choice.parameters)["weights"]
        levels = levels_of(choice, 256, 1_000_000)
        finer = [w for level, w in zip(levels, weights, strict=True) if 1 < level.width < 16]
        assert not any(finer)
        assert weights[-1] == 1
        assert choice.variance < 0.5 * oracle.choose(256, 1_000_000, ALL_RANGES).variance


class TestChoice:
    @pytest.mark.slow
    @pytest.mark.parametrize("epsilon", [500_000, 4_000_000])
    @pytest.mark.parametrize("domain", [16, 100])
    @pytest.mark.parametrize(
        "workload",
        [ALL_RANGES, PREFIXES, Workload.of([(0, 5), (3, 16)])],
        ids=["ranges", "prefixes", "list"],
    )
    def test_states_the_mean_variance_over_the_workload(
        self, domain: int, epsilon: int, workload: Workload
    ) -> None:
        """Compare with every level's covariances; the formula's averages may differ by 5%."""
        choice = oracle.choose(domain, epsilon, workload)
        levels = levels_of(choice, domain, epsilon)
        total = sum(level.weight for level in levels)
        shares = [level.weight / total for level in levels]
        assumed = [
            level_channel(level).assumed / share if share else math.inf
            for level, share in zip(levels, shares, strict=True)
        ]
        tree = hierarchy.tree(domain, dict(choice.parameters)["fanout"], assumed)
        pairs = list(workload.ranges)
        if workload == PREFIXES:
            pairs = [(0, i + 1) for i in range(domain)]
        elif workload == ALL_RANGES:
            pairs = [(i, j) for i in range(domain) for j in range(i + 1, domain + 1)]
        index = np.arange(domain)
        columns = np.stack([(index >= lo) & (index < hi) for lo, hi in pairs], axis=1).astype(float)
        parts, _ = hierarchy.transpose(tree, columns)
        expected = 0.0
        for level, share, part in zip(levels, shares, parts, strict=True):
            if share:
                nodes = np.add.reduceat(np.full(domain, 1 / domain), np.arange(0, domain, level.width))
                expected += (
                    np.einsum("ik,ij,jk->k", part, covariance(level, nodes), part, optimize=True).mean()
                    / share
                )
        assert choice.variance == pytest.approx(expected, rel=0.05)

    def test_is_the_cheapest_mechanism(self) -> None:
        assert oracle.choose(2, 1_000_000, ALL_RANGES).mechanism == "rr"
        assert oracle.choose(2, 1_000_000, FREQUENCIES).mechanism == "rr"
        assert oracle.choose(5, 1_000_000, FREQUENCIES).mechanism == "grr"
        assert oracle.choose(100, 4_000_000, FREQUENCIES).mechanism == "grr"
        large = oracle.choose(1024, 1_000_000, FREQUENCIES)
        assert large.fields() == {"mechanism": "olh", "g": 3}
        assert oracle.choose(16, 8_000_000, ALL_RANGES).mechanism == "hh"
        # A board's rounded probability of the true one of 2**21 values is no larger than any other's.
        assert oracle.choose(1 << 21, 1_000, FREQUENCIES).fields() == {"mechanism": "olh", "g": 2}

    @pytest.mark.parametrize(
        ("domain", "epsilon", "fields"),
        [
            (256, 4, {"mechanism": "pgr", "q": 61}),  # 2 code bytes instead of 3, and no larger error
            (1024, 4, {"mechanism": "pgr", "q": 53}),
            (4096, 4, {"mechanism": "pgr", "q": 67}),  # 0.7% more variance than the best, which needs 3 bytes
            (65_536, 4, {"mechanism": "olh", "g": 53}),  # both need 3 bytes and have the same error
            (65_536, 6, {"mechanism": "pgr", "q": 401}),
            (12, 1, {"mechanism": "olh", "g": 3}),  # pgr would have 7% less variance; both need one byte
        ],
        ids=lambda value: value["mechanism"] if isinstance(value, dict) else None,
    )
    def test_prefers_older_mechanisms_of_equal_variance(
        self, domain: int, epsilon: int, fields: dict[str, object]
    ) -> None:
        choice = oracle.choose(domain, epsilon * 1_000_000, FREQUENCIES)
        offered = oracle.designs(domain, epsilon * 1_000_000, FREQUENCIES)
        assert choice.fields() == fields
        assert choice in offered
        older = min(c.variance for c in offered if c.mechanism in ("grr", "olh"))
        assert choice.variance <= 1.015 * older
        assert min(c.variance for c in offered) >= 0.9 * choice.variance

    @pytest.mark.parametrize(("epsilon", "times"), [(5, 1.21), (6, 2.2), (7, 5.0)])
    def test_pgr_saves_variance_where_codes_are_limited(self, epsilon: int, times: float) -> None:
        olh, pgr = (
            min(c.variance for c in oracle.designs(65_536, epsilon * 1_000_000, FREQUENCIES, name))
            for name in ("olh", "pgr")
        )
        assert olh > times * pgr

    @pytest.mark.slow
    @pytest.mark.parametrize("epsilon", [1_000, 2_000_000, 16_000_000])
    @pytest.mark.parametrize("domain", [3, 5, 17, 4097, 1 << 20])
    def test_has_levels_that_a_board_accepts(self, domain: int, epsilon: int) -> None:
        flat = oracle.choose(domain, epsilon, FREQUENCIES)
        Level(epsilon, domain, dict(flat.parameters).get("g", domain), 1, 0, 1)
        for workload in (ALL_RANGES, PREFIXES, Workload.of([(0, 1), (1, 3)])):
            levels_of(oracle.choose(domain, epsilon, workload), domain, epsilon)

    def test_rejects_impossible_requests_with_the_reason(self) -> None:
        with pytest.raises(ValueError, match="at least 2"):
            oracle.choose(1, 1_000_000, FREQUENCIES)
        with pytest.raises(ValueError, match="micro-nats"):
            oracle.choose(10, 1, FREQUENCIES)
        with pytest.raises(ValueError, match="fits"):
            oracle.choose((1 << 24) + 1, 1_000_000, FREQUENCIES)
        with pytest.raises(ValueError, match="no mechanism fits 16777216 values"):
            oracle.choose(1 << 24, 1_000_000, ALL_RANGES)
        with pytest.raises(WorkloadError, match="hi <= 10, not 4 and 12"):
            oracle.choose(10, 1_000_000, Workload.of([(4, 12)]))
