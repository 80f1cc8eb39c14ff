"""The four structures and a flawed one: privacy by sensitivity, least squares, and error distributions."""

import itertools
import math
import re

import numpy as np
import pytest
from scipy import stats

from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms.channel import level_channel
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.tree.influence import mean_range_variance
from hushmote.studies import ranges_theory
from hushmote.studies.flawed import THESIS, FlawedStructure, Flaws, fewest_nodes, true_epsilon
from hushmote.studies.noise import (
    NeighbourRelation,
    NoiseSource,
    SafeNoise,
    SeededNoise,
    noise_variance,
    safe_source,
    seeded_source,
)
from hushmote.studies.structures import (
    CentralFlat,
    CentralHierarchy,
    LocalFlat,
    LocalHierarchy,
    Structure,
    StructureError,
    best_fanout,
    node_counts,
)

CENTRAL = [CentralFlat(n) for n in NeighbourRelation] + [
    CentralHierarchy(b, n) for n in NeighbourRelation for b in (0, 2, 3, 5)
]
LOCAL = [LocalFlat(), LocalHierarchy(), LocalHierarchy(2), LocalHierarchy(5)]
COUNTS = np.array([40, 0, 7, 90, 3, 3, 55, 21, 0, 0, 64, 5, 17], np.int64)
TRUTH = np.concatenate(([0], np.cumsum(COUNTS)))
FLAWS = [Flaws(*on) for on in itertools.product((False, True), repeat=4)]
ALL_FLAWS = [*FLAWS, Flaws(lie=True, wrong_inverse=True), Flaws(*[True] * 5)]
LO, HI = np.array(list(itertools.combinations(range(len(COUNTS) + 1), 2))).T


def label(structure: Structure) -> str:
    """Return a structure's label, with the neighbour relation by name."""
    return re.sub(r"<\w+\.(\w+): .*?>", r"\1", str(structure))


class ChosenNoise:
    """Noise that a test chooses, with a record of the requests."""

    def __init__(self, noise=None):
        self.noise = noise
        self.requests = []

    def draw(self, n, sensitivity, epsilon):
        self.requests.append((n, sensitivity, epsilon))
        return np.zeros(n, np.int64) if self.noise is None else self.noise

    def source(self):
        return NoiseSource(self, np.random.default_rng(0))


class TestCentralHierarchy:
    @pytest.mark.parametrize("fanout", [2, 3, 5])
    @pytest.mark.parametrize("domain", [2, 7, 13, 16])
    def test_private_root_is_weighed_by_exact_least_squares(self, domain, fanout):
        structure = CentralHierarchy(fanout)
        tree = structure.tree(domain)
        noise = np.random.default_rng(domain).integers(-9, 10, sum(tree.nodes))
        counts = np.arange(domain) * 5
        design = np.concatenate(
            [
                np.kron(np.eye(n), np.ones(fanout ** (len(tree.nodes) - 1 - i)))[:n, :domain]
                for i, n in enumerate(tree.nodes)
            ]
        )
        design[0] = 1
        best = np.linalg.lstsq(design, design @ counts + noise, rcond=None)[0]
        fitted = structure.fit(counts, 1.0, ChosenNoise(noise).source())
        at = np.arange(domain)
        assert fitted.answer(at, at + 1) == pytest.approx(best)

    def test_best_fanout_has_the_least_mean_variance(self):
        """Compare with the exact distributions of all ranges, for all fanouts up to flat."""
        for neighbours in NeighbourRelation:
            means = {b: CentralHierarchy(b, neighbours).law(COUNTS, 0.01, LO, HI).mse for b in range(2, 14)}
            assert best_fanout(13, neighbours is NeighbourRelation.replaced) == min(
                means, key=lambda b: means[b]
            )


class TestNoise:
    @pytest.mark.parametrize(
        "noise", [SafeNoise(), SeededNoise(np.random.default_rng(1))], ids=["safe", "seeded"]
    )
    @pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 1.0), (6, 1.4)])
    def test_follows_the_discrete_laplace_law(self, noise, sensitivity, epsilon):
        """Test 20,000 draws by chi-square, in classes of 50+ (false alarm 1e-10; OpenDP is unseeded)."""
        samples = noise.draw(20_000, sensitivity, epsilon)
        a = math.exp(-epsilon / sensitivity)
        k = np.arange(-200, 201)
        law = (1 - a) / (1 + a) * a ** np.abs(k)
        assert (law @ k**2) == pytest.approx(noise_variance(sensitivity, epsilon))
        is_frequent = law * len(samples) > 50
        classes = np.append(law[is_frequent], 1 - law[is_frequent].sum())
        fitted = np.array([np.sum(samples == v) for v in k[is_frequent]])
        fitted = np.append(fitted, len(samples) - fitted.sum())
        assert stats.chisquare(fitted, classes * len(samples)).pvalue > 1e-10

    def test_is_below_the_textbook_and_converges(self):
        for scale in (1, 5):
            assert noise_variance(scale, 0.01) == pytest.approx(2 * (scale / 0.01) ** 2, rel=1e-4)
            assert noise_variance(scale, 2.0) < 2 * (scale / 2.0) ** 2

    @pytest.mark.parametrize("structure", CENTRAL, ids=label)
    def test_fits_the_change_between_all_neighbours(self, structure):
        """Add a record, or move one between each pair of indices; the worst case must be reached exactly."""
        chosen = ChosenNoise()
        structure.fit(COUNTS, 0.7, chosen.source())
        ((samples, sensitivity, epsilon),) = chosen.requests
        assert epsilon == 0.7

        def published(counts):
            if isinstance(structure, CentralFlat):
                return counts
            return np.concatenate(node_counts(structure.tree(len(counts)), counts))

        before = published(COUNTS)
        assert samples == len(before), "one draw for each number that is published, no more"
        unit = np.eye(len(COUNTS), dtype=np.int64)
        if structure.neighbours is NeighbourRelation.added:
            changes = list(unit)
        else:
            changes = [unit[i] - unit[j] for i in range(len(COUNTS)) for j in range(len(COUNTS))]
        worst = max(int(np.abs(published(COUNTS + change) - before).sum()) for change in changes)
        assert worst == sensitivity

    def test_safe_source_runs_end_to_end(self):
        """Flat noise at ε = 16 exceeds 5 with a probability of 2e-42 per count, whatever OpenDP draws."""
        fitted = CentralFlat().fit(COUNTS, 16.0, safe_source())
        at = np.arange(len(COUNTS))
        assert np.abs(fitted.answer(at, at + 1) - COUNTS).max() <= 5


class TestArguments:
    @pytest.mark.parametrize(
        ("counts", "epsilon", "text"),
        [
            ([3, -1, 2], 1.0, "index 1 has -1"),
            ([3], 1.0, "at least 2"),
            ([0.5, 1.5], 1.0, "integers"),
            ([1, 2], math.nan, "from 0.001 to 16, not nan"),
            ([1, 2], 0.0, "from 0.001 to 16, not 0.0"),
        ],
    )
    @pytest.mark.parametrize(
        "structure", [CentralFlat(), CentralHierarchy(), LocalFlat(), LocalHierarchy(2)], ids=label
    )
    def test_rejects_counts_that_cannot_be_fitted(self, structure, counts, epsilon, text):
        with pytest.raises(StructureError, match=text):
            structure.fit(np.array(counts), epsilon, seeded_source(1))

    @pytest.mark.parametrize(
        ("lo", "hi"), [(3, 2), (-1, 2), (0, 14), (np.array([0, 9]), np.array([5, 8]))], ids=str
    )
    def test_rejects_ranges_reversed_or_outside(self, lo, hi):
        fitted = CentralFlat().fit(COUNTS, 1.0, ChosenNoise().source())
        with pytest.raises(StructureError, match="0 <= lo <= hi <= 13"):
            fitted.answer(lo, hi)

    def test_rejects_a_fanout_of_one(self):
        for structure in (CentralHierarchy, LocalHierarchy):
            with pytest.raises(StructureError, match="fanout must be 2 or more"):
                structure(1)


# --- The flawed structure -------------------------------------------------------------------------------


class TestErrorLaw:
    @pytest.mark.parametrize("structure", CENTRAL, ids=label)
    def test_central_structures_are_exact(self, structure):
        """Derive the linear map, and from it the covariance, from each unit of noise in turn."""
        law = structure.law(COUNTS, 0.7, LO, HI)
        chosen = ChosenNoise()
        structure.fit(COUNTS, 0.7, chosen.source())
        n, sensitivity, epsilon = chosen.requests[0]
        truth = TRUTH[HI] - TRUTH[LO]
        effect = np.stack(
            [
                structure.fit(COUNTS, 0.7, ChosenNoise(e).source()).answer(LO, HI) - truth
                for e in np.eye(n, dtype=int)
            ]
        )
        expected = noise_variance(sensitivity, epsilon) * effect.T @ effect
        assert law.covariance == pytest.approx(expected, abs=1e-9 * expected.max())
        assert not law.bias.any()
        if isinstance(structure, CentralHierarchy):
            tree = structure.tree(len(COUNTS))
            mean = mean_range_variance(tree, [structure.node_variance(tree, 0.7)] * len(tree.nodes))
            assert mean == pytest.approx(np.diag(law.covariance).mean())

    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_local_flat_matches_enumeration(self, epsilon):
        """Enumerate each code's probability for each index, without sampling."""
        experiment = LocalFlat().experiment(len(COUNTS), epsilon)
        (level,) = experiment.levels
        channel = level_channel(level)
        supported = butterfly.expand(level, butterfly.class_weights(level, np.eye(level.domain))) > 0.5
        p = channel.p if not level.t else channel.p / level.seeds
        lie = channel.lie if not level.t else channel.lie / level.seeds
        chance = np.where(supported, p, lie)  # by code and index
        assert chance.sum(axis=0) == pytest.approx(1)
        ranges = ranges_theory.indicator(len(COUNTS), LO, HI)
        mean = ranges.mean(axis=0)  # the values' common part is known, since shares sum to 1
        weight = supported @ (ranges - mean) / (channel.p - channel.q) + mean
        covariance = np.zeros((len(LO),) * 2)
        for v, count in enumerate(COUNTS):
            centred = weight - chance[:, v] @ weight
            assert chance[:, v] @ weight == pytest.approx(ranges[v], abs=1e-9)
            covariance += count * (centred.T * chance[:, v]) @ centred
        law = LocalFlat().law(COUNTS, epsilon, LO, HI)
        assert law.covariance == pytest.approx(covariance, rel=1e-6, abs=1e-6 * covariance.max())

    @pytest.mark.slow
    @pytest.mark.parametrize("structure", CENTRAL + LOCAL, ids=label)
    def test_agrees_with_measured_errors(self, structure):
        """Measure 13 ranges over 200 seeded fits; by the gamma law, 6.5 deviations are below 1e-9."""
        rng = np.random.default_rng(5)
        counts = rng.poisson(900, 40)
        lo = np.arange(0, 26, 2)
        hi = lo + 13
        below = np.concatenate(([0], np.cumsum(counts)))
        source = seeded_source(8)
        squares = [
            (structure.fit(counts, 1.0, source).answer(lo, hi) - below[hi] + below[lo]) ** 2
            for _ in range(200)
        ]
        law = structure.law(counts, 1.0, lo, hi)
        assert abs(law.deviations(float(np.mean(squares)), 200)) < 6.5

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("fanout", "flaws"),
        [
            # flat has no root and nothing to make consistent
            *((0, flaws) for flaws in ALL_FLAWS if not (flaws.root or flaws.inconsistent)),
            *((2, flaws) for flaws in ALL_FLAWS),
            *(pytest.param(3, flaws, marks=pytest.mark.long) for flaws in ALL_FLAWS),
        ],
        ids=str,
    )
    def test_flawed_structures_agree(self, fanout, flaws):
        """Measure 9 ranges over 60 seeded fits; by the gamma law, 6.5 deviations are below 1e-9."""
        counts = np.random.default_rng(5).poisson(400, 30)
        lo = np.arange(0, 18, 2)
        hi = lo + 11
        below = np.concatenate(([0], np.cumsum(counts)))
        structure, source = FlawedStructure(fanout, flaws), seeded_source(4)
        squares = [
            (structure.fit(counts, 0.6, source).answer(lo, hi) - below[hi] + below[lo]) ** 2
            for _ in range(60)
        ]
        assert abs(structure.law(counts, 0.6, lo, hi).deviations(float(np.mean(squares)), 60)) < 6.5


class TestAnswers:
    @pytest.mark.parametrize("structure", CENTRAL, ids=label)
    def test_are_true_without_noise(self, structure):
        fitted = structure.fit(COUNTS, 1.0, ChosenNoise().source())
        assert fitted.answer(LO, HI) == pytest.approx(TRUTH[HI] - TRUTH[LO])
        assert fitted.answer(2, 9) == pytest.approx(TRUTH[9] - TRUTH[2])

    @pytest.mark.parametrize("structure", CENTRAL + LOCAL, ids=label)
    def test_repeat_without_new_information(self, structure):
        fitted = structure.fit(COUNTS, 1.0, seeded_source(3))
        first = fitted.answer(LO, HI)
        assert np.array_equal(first, fitted.answer(LO, HI))
        middle = (LO + HI) // 2
        assert fitted.answer(LO, middle) + fitted.answer(middle, HI) == pytest.approx(first)

    @pytest.mark.parametrize("fanout", [2, 3, 5])
    def test_fewest_nodes_make_up_every_range(self, fanout):
        """Cover each index once inside a range and never outside; complete siblings become their parent."""
        parts = fewest_nodes(len(COUNTS), fanout, LO, HI)
        covered = np.zeros((len(COUNTS), len(LO)))
        for level, part in enumerate(parts):
            width = fanout ** (len(parts) - 1 - level)
            covered += np.repeat(part, width, axis=0)[: len(COUNTS)]
            siblings = np.add.reduceat(part, np.arange(0, len(part), fanout), axis=0)
            if level:
                sizes = np.add.reduceat(np.ones(len(part)), np.arange(0, len(part), fanout))
                assert (siblings < sizes[:, None]).all()
        assert np.array_equal(covered, ranges_theory.indicator(len(COUNTS), LO, HI))


class TestFlawedStructure:
    @pytest.mark.parametrize("nominal", [0.2, 1.0, 2.0])
    def test_spends_its_true_epsilon(self, nominal):
        """Compare with the actual channel's worst ratio, where p is rounded to 30 bits."""
        for fanout in (0, 2, 4):
            structure = FlawedStructure(fanout, Flaws(lie=True, no_hash=True))
            levels = structure.actual_oracle(64, nominal).levels
            worst = max(math.log(x.threshold / ((ONE - x.threshold) / (x.g - 1))) for x in levels)
            assert structure.true_epsilon(64, nominal) == pytest.approx(worst, abs=1e-6)
            assert worst > nominal
        assert true_epsilon(0.2, 2) == pytest.approx(1.24, abs=0.005)
        assert true_epsilon(0.2, 10**6) == pytest.approx(0.80, abs=0.005)

    def test_is_labelled_and_does_not_change_the_shipped_channel(self):
        assert str(Flaws()) == "correct"
        before = [x.threshold for x in LocalHierarchy(2).experiment(32, 1.0).levels]
        for flaws in FLAWS:
            structure = FlawedStructure(2, flaws)
            structure.fit(np.full(32, 50), 1.0, seeded_source(1))
            assert ("not ε-LDP" in str(structure.flaws)) == flaws.lie
        assert [x.threshold for x in LocalHierarchy(2).experiment(32, 1.0).levels] == before

    def test_flat_oracle_gains_only_by_its_larger_epsilon(self):
        """Compare its law with that of the correct oracle at the true ε, up to p's 30 bits."""
        flawed = FlawedStructure(0, Flaws(lie=True, no_hash=True))
        honest = FlawedStructure(0, Flaws(no_hash=True))
        truth = round(flawed.true_epsilon(13, 0.4), 6)
        a = flawed.law(COUNTS, 0.4, LO, HI).covariance
        assert a == pytest.approx(honest.law(COUNTS, truth, LO, HI).covariance, rel=1e-4, abs=1e-4 * a.max())
        assert THESIS.lie
