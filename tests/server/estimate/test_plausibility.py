"""Honest fleets do not raise an alarm; naive forgers do."""

import json

import numpy as np
import pytest
from designs import drawn_counts, number, number_with_mechanism
from scipy import special, stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate.plausibility import ALARM, MIN_REPORTS, Plausibility, check
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.invariants import GROUP_REPORTS

EXPERIMENTS = [
    number_with_mechanism("rr", 2, 1),
    number_with_mechanism("grr", 16, 2),
    number_with_mechanism("grr", 500, 6),
    number_with_mechanism("olh", 64, 1, g=3),
    number_with_mechanism("olh", 64, 4, g=53),
    number_with_mechanism("olh", 9, 0.5, g=3),  # as many values as hashes
    number_with_mechanism("olh", 1024, 1, g=2),
    number_with_mechanism("hh", 64, 1, fanout=4, cells=[4, 3, 3], weights=[1, 0, 5]),
    number(1024, 1),
    number(300, 4),
]
HASHED = [e for e in EXPERIMENTS if e.levels[-1].t]


def honest(experiment: Experiment, reports: int, seed: int, shares: np.ndarray | None = None) -> np.ndarray:
    shares = np.full(experiment.domain, 1 / experiment.domain) if shares is None else shares
    return drawn_counts(experiment, shares, reports, np.random.default_rng(seed))


class TestForgers:
    @pytest.mark.parametrize("experiment", HASHED, ids=lambda e: f"{e.mechanism}{e.domain}")
    def test_repeated_code_or_seed_is_detected(self, experiment: Experiment):
        """5% of 100,000 reports are detected by their seeds alone, regardless of the honest reports."""
        level = experiment.levels[-1]
        for codes in (1, level.g):
            counts = honest(experiment, 95_000, 1)
            counts[level.offset : level.offset + codes] += 5000 // codes
            result = check(experiment, counts)
            assert result.implausible
            assert "honest devices do not produce this histogram" in result.words
            seeds = next(
                c
                for c in result.checks
                if c.kind == "seeds" and c.level in (None, len(experiment.levels) - 1)
            )
            assert seeds.p < ALARM
            json.dumps(result.to_dict(), allow_nan=False)

    def test_repeated_code_is_detected_at_the_minimum(self):
        for experiment in EXPERIMENTS[2:]:
            counts = np.zeros(experiment.code_count, int)
            counts[-1] = MIN_REPORTS
            assert check(experiment, counts).implausible

    def test_ignored_level_weights_are_detected(self):
        experiment = number(1024, 1)
        assert 0 in [level.weight for level in experiment.levels]
        rng = np.random.default_rng(1)
        leaf = experiment.levels[-1]
        counts = honest(experiment, 100_000, 1)
        counts[leaf.offset :] += rng.multinomial(5000, np.full(leaf.code_count, 1 / leaf.code_count))
        assert [c.kind for c in check(experiment, counts).checks if c.p < ALARM] == ["levels"]
        never = next(level for level in experiment.levels if not level.weight)
        counts = honest(experiment, 100_000, 1)
        counts[never.offset] = 1
        result = check(experiment, counts)
        assert result.p == 0
        assert "1 report from levels that are never drawn" in result.words
        json.dumps(result.to_dict(), allow_nan=False)

    def test_impossible_shares_of_direct_answers_are_detected(self):
        experiment = number_with_mechanism("grr", 64, 1)
        counts = honest(experiment, 95_000, 1)
        counts[7] += 5000  # the estimate is 188%
        assert "more support than if all devices had it" in check(experiment, counts).words
        counts = honest(experiment, 95_000, 1)
        counts[7] = 0
        assert "less support than if no device had it" in check(experiment, counts).words

    def test_impossible_sums_of_shares_are_detected(self):
        """Forgers draw seeds uniformly, and choose the cell that supports the most or fewest values."""
        experiment = number_with_mechanism("olh", 40, 1, g=3)
        level = experiment.levels[0]
        supported = butterfly.expand(level, butterfly.class_weights(level, np.ones(40))).reshape(
            level.seeds, level.g
        )
        for best in (supported.argmax(axis=1), supported.argmin(axis=1)):
            counts = honest(experiment, 300_000, 1).reshape(level.seeds, level.g)
            counts[np.arange(level.seeds), best] += 300_000 // level.seeds
            by_kind = {c.kind: c for c in check(experiment, counts.reshape(-1)).checks}
            assert by_kind["seeds"].p > ALARM > by_kind["sum"].p

    def test_seeds_drawn_like_boards_are_not_detected(self):
        experiment = number_with_mechanism("olh", 64, 1, g=3)
        level = experiment.levels[0]
        supports = butterfly.expand(level, butterfly.class_weights(level, np.eye(64)[7])).reshape(
            level.seeds, level.g
        )
        rng = np.random.default_rng(1)
        counts = honest(experiment, 95_000, 1).reshape(level.seeds, level.g)
        cells = supports.argmax(axis=1)
        counts[np.arange(level.seeds), cells] += rng.multinomial(5000, np.full(level.seeds, 1 / level.seeds))
        assert not check(experiment, counts.reshape(-1)).implausible


class TestHonestFleets:
    @pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: f"{e.mechanism}{e.domain}")
    @pytest.mark.parametrize("holds", ["even", "first", "last"])
    def test_do_not_raise_an_alarm(self, experiment: Experiment, holds: str):
        """Draw 90 fleets of 100, 3,000 or 100,000 reports: the chance of any alarm is about 1e-10."""
        shares = np.full(experiment.domain, 1 / experiment.domain)
        if holds != "even":
            shares = np.eye(experiment.domain)[0 if holds == "first" else -1]
        for reports in (MIN_REPORTS, 3000, 100_000):
            result = check(experiment, honest(experiment, reports, reports, shares))
            assert result.checks
            assert not result.implausible, result

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "sizes",
        [(1, 1), (1, 2), (1, 2, 2), (1, 2) * 4, pytest.param((1,) * 8, marks=pytest.mark.long)],
        ids=str,
    )
    def test_false_alarm_rate_is_exact_for_the_smallest_groups(self, sizes: tuple[int, ...]):
        """Compute Poisson groups conditional on their sum over the lattice of sums and sums of squares.

        Sizes are seed counts per group, with the fewest reports that give so many groups. One of 50 checks.
        """
        reports, seeds, level = GROUP_REPORTS * len(sizes), sum(sizes), ALARM / 50
        # chi-square = (seeds / reports) * sum of n**2 / size - reports; twice the sum is an integer.
        most = int(2 * reports / seeds * (special.chdtri(len(sizes) - 1, level) + reports))
        mass = np.zeros((reports + 1, most + 1))
        mass[0, 0] = 1
        for size in sizes:
            chances = stats.poisson.pmf(np.arange(reports + 1), reports * size / seeds)
            after = np.zeros_like(mass)
            for n, chance in enumerate(chances):
                square = 2 * n * n // size
                if square > most:
                    break
                after[n:, square:] += chance * mass[: reports + 1 - n, : most + 1 - square]
            mass = after
        alarm = 1 - mass[reports].sum() / stats.poisson.pmf(reports, reports)
        assert alarm < 1e-9 / 50

    def test_smallest_p_is_multiplied_by_the_number_of_checks(self):
        """If a level is drawn slightly too often, p is one of many checks; a single p is at most 1."""
        experiment = number(1024, 1)
        counts = honest(experiment, 100_000, 2)
        counts[experiment.levels[-1].offset] += 60
        result = check(experiment, counts)
        least = min(one.p for one in result.checks)
        assert len(result.checks) > 2
        assert 0 < least < 0.5 / len(result.checks)
        assert result.p == least * len(result.checks)
        even = check(EXPERIMENTS[0], [5_000, 5_000])
        assert even.p == min(1.0, len(even.checks) * even.checks[0].p)

    def test_checks_a_million_codes(self):
        experiment = number_with_mechanism("olh", 1024, 5, g=101)
        assert experiment.code_count > 1_000_000
        assert not check(experiment, honest(experiment, 1_000_000, 1)).implausible

    def test_are_implausible_only_below_the_limit(self):
        assert not Plausibility(100, (), ALARM, "").implausible
        assert Plausibility(100, (), ALARM / 2, "").implausible


class TestErrors:
    def test_names_too_few_reports(self):
        for experiment in EXPERIMENTS:
            counts = np.zeros(experiment.code_count, int)
            assert check(experiment, counts).words == "0 reports are too few for a check; 100 are needed"
            counts[0] = 1
            assert check(experiment, counts).words == "1 report is too few for a check; 100 are needed"
            counts[0] = MIN_REPORTS - 1
            result = check(experiment, counts)
            assert result.p is None
            assert not result.implausible
            assert not result.checks
            json.dumps(result.to_dict(), allow_nan=False)

    def test_rejects_a_histogram_with_a_different_shape(self):
        with pytest.raises(ValueError, match=r"histogram has shape \(3,\), but the experiment has 2 codes"):
            check(EXPERIMENTS[0], [1, 2, 3])
