"""Prefix levels on the server; tests/contracts covers the behaviour that all mechanisms share."""

import numpy as np
import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms.choose import choose, designs
from hushmote.server.mechanisms.points.prefix import Prefix
from hushmote.server.mechanisms.workload import FREQUENCIES, Workload
from hushmote.simulator import vectorised

TEXT = {"type": "text", "salt": "s", "mechanism": "prefix", "budget": {"rule": "unlimited"}}
SMALL = TEXT | {"slots": 4, "prefixes": [1, 2, 2], "q": 2, "weights": [1, 2, 3]}
LARGE = TEXT | {"slots": 1 << 16, "prefixes": [2, 3, 4, 5, 6, 6], "q": 53, "epsilon": 4_000_000}


def prefix_mechanism(fields) -> Prefix:
    return Prefix(Experiment.parse(experiment_json(**fields)))


class TestLevels:
    def test_sums_over_their_slots_are_unbiased(self):
        """Check exactly, by the law, a number for each slot on each level and a constant."""
        mechanism = prefix_mechanism(SMALL)
        rng = np.random.default_rng(1)
        index = np.arange(64)
        numbers = rng.normal(size=(3, 4))
        statistic = (
            np.sum([numbers[level][index >> 2 * level & 3] for level in range(3)], axis=0)[:, None] + 5
        )
        weights, constant = mechanism.weights(statistic, [1, 1, 1])
        mean = constant + sum(
            law.T @ w for w, law in zip(weights, mechanism.law(np.eye(64)), strict=True) if w is not None
        )
        np.testing.assert_allclose(mean, statistic, atol=1e-9)

    def test_rejects_joint_statistics_of_two_levels(self):
        statistic = np.zeros((64, 1))
        statistic[0] = 1
        with pytest.raises(
            ValueError, match="reports do not reveal how often slots on two levels occur together"
        ):
            prefix_mechanism(SMALL).weights(statistic, [1, 1, 1])

    def test_slots_are_estimated_from_a_histogram(self):
        """With 200,000 reports, all 12 estimates are within 7 standard errors (misses: 3e-11)."""
        mechanism = prefix_mechanism(SMALL)
        rng = np.random.default_rng(2)
        shares = rng.dirichlet(np.ones(64))
        counts = vectorised.histogram(mechanism.experiment, rng.multinomial(200_000, shares), rng)
        levels = mechanism.slot_shares(counts)
        assert sum(level.reports for level in levels) == 200_000
        cube = shares.reshape(4, 4, 4)  # the last axis is the lowest digit
        for axes, level in zip(((0, 1), (0, 2), (1, 2)), levels, strict=True):
            truth = cube.sum(axis=axes)
            errors = np.sqrt([level.variance(share) for share in truth])
            assert np.abs(level.shares - truth).max() < 7 * errors.max() < 0.1


class TestDomain:
    def test_draws_agree_for_indices_and_slots(self):
        mechanism = prefix_mechanism(SMALL)
        indices = np.array([0, 5, 63, 27], np.uint32)
        rows = mechanism.drawable(indices.tolist())
        assert rows.tolist() == [[0, 0, 0], [1, 1, 0], [3, 3, 3], [3, 2, 1]]
        a = mechanism.draw(indices, np.random.default_rng(3))
        assert a.tolist() == mechanism.draw(rows, np.random.default_rng(3)).tolist()

    @pytest.mark.slow
    def test_large_domain_is_never_allocated(self):
        """With 2**96 indices, the odds, stratum probabilities and blanket are still available."""
        mechanism = prefix_mechanism(LARGE)
        assert mechanism.domain == 1 << 96
        assert mechanism.odds <= np.exp(4)
        assert mechanism.odds == pytest.approx(np.exp(4), rel=1e-6)
        odds, pair, whole = mechanism.blanket()
        assert odds >= mechanism.odds
        assert 0 < pair < whole < 1
        indices = [(1 << 96) - 1, 12345 << 40]
        experiment = mechanism.experiment
        rng = np.random.default_rng(4)
        counts = vectorised.histogram(experiment, np.array([3000, 3000]), rng, of=indices)
        checks = [*mechanism.invariants(counts)]
        assert checks
        assert min(check.p for check in checks) > 1e-9
        share = mechanism.slot_shares(counts)[0].shares[(1 << 16) - 1]
        assert share == pytest.approx(0.5, abs=0.15)


class TestChoice:
    def test_exists_only_for_texts(self):
        workload = Workload("texts", levels=6)
        choice = choose(1 << 96, 4_000_000, workload)
        assert choice.fields() == {"mechanism": "prefix", "q": 53, "weights": [1, 2, 2, 2, 2, 4]}
        assert {one.mechanism for one in designs(1 << 96, 2_000_000, workload)} == {"prefix"}
        assert choose(1 << 96, 2_000_000, workload).fields()["q"] == 7
        with pytest.raises(ValueError, match="prefix does not fit"):
            designs(1 << 96, 4_000_000, FREQUENCIES, "prefix")

    @pytest.mark.parametrize("epsilon", [100_000, 1_000_000, 8_000_000, 16_000_000])
    @pytest.mark.parametrize("levels", [2, 6, 16])
    def test_has_parameters_that_fit_boards(self, epsilon, levels):
        fields = choose((1 << 10) ** levels, epsilon, Workload("texts", levels=levels)).fields()
        prefixes = [min(i, levels - 1) for i in range(1, levels + 1)]
        prefix_mechanism(TEXT | {"slots": 1 << 10, "prefixes": prefixes, "epsilon": epsilon} | fields)
