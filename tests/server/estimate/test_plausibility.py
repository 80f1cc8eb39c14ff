"""Honest fleets raise no alarm; naive forgers do."""

import json

import numpy as np
import pytest
from designs import designed, drawn_counts, number
from scipy import special, stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate.plausibility import ALARM, LEAST_REPORTS, check
from hushmote.server.mechanisms.hashing import butterfly
from hushmote.server.mechanisms.invariants import GROUP_REPORTS

EXPERIMENTS = [
    designed("rr", 2, 1),
    designed("grr", 16, 2),
    designed("grr", 500, 6),
    designed("olh", 64, 1, g=3),
    designed("olh", 64, 4, g=53),
    designed("olh", 9, 0.5, g=3),  # as many values as hashes have
    designed("olh", 1024, 1, g=2),
    designed("hh", 64, 1, fanout=4, cells=[4, 3, 3], weights=[1, 0, 5]),
    number(1024, 1),
    number(300, 4),
]
HASHED = [e for e in EXPERIMENTS if e.levels[-1].t]


def honest(experiment: Experiment, reports: int, seed: int, shares: np.ndarray | None = None) -> np.ndarray:
    shares = np.full(experiment.domain, 1 / experiment.domain) if shares is None else shares
    return drawn_counts(experiment, shares, reports, np.random.default_rng(seed))


class TestForgers:
    @pytest.mark.parametrize("experiment", HASHED, ids=lambda e: f"{e.mechanism}{e.domain}")
    def test_repeating_one_code_or_seed_are_detected(self, experiment: Experiment):
        """5 % of 100,000 reports, by the seeds alone; honest reports beside them change nothing in that."""
        level = experiment.levels[-1]
        for codes in (1, level.g):
            counts = honest(experiment, 95_000, 1)
            counts[level.offset : level.offset + codes] += 5000 // codes
            found = check(experiment, counts)
            assert found.implausible
            assert "honest devices do not send this" in found.words
            seeds = next(
                c for c in found.checks if c.kind == "seeds" and c.level in (None, len(experiment.levels) - 1)
            )
            assert seeds.p < ALARM
            json.dumps(found.to_dict(), allow_nan=False)

    def test_one_code_is_detected_from_the_least_reports_on(self):
        for experiment in EXPERIMENTS[2:]:
            counts = np.zeros(experiment.code_count, int)
            counts[-1] = LEAST_REPORTS
            assert check(experiment, counts).implausible

    def test_ignoring_level_weights_are_detected(self):
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
        found = check(experiment, counts)
        assert found.p == 0
        assert "1 reports of levels that are never drawn" in found.words
        json.dumps(found.to_dict(), allow_nan=False)

    def test_impossible_shares_of_direct_answers_are_detected(self):
        experiment = designed("grr", 64, 1)
        counts = honest(experiment, 95_000, 1)
        counts[7] += 5000  # the estimate says 188 %
        assert "more supports than if all devices held it" in check(experiment, counts).words
        counts = honest(experiment, 95_000, 1)
        counts[7] = 0
        assert "fewer supports than if no device held it" in check(experiment, counts).words

    def test_impossible_sums_of_shares_are_detected(self):
        """Forgers who draw seeds evenly, and of the cells the one that supports most values or fewest."""
        experiment = designed("olh", 40, 1, g=3)
        level = experiment.levels[0]
        supported = butterfly.expand(level, butterfly.class_weights(level, np.ones(40))).reshape(
            level.seeds, level.g
        )
        for best in (supported.argmax(axis=1), supported.argmin(axis=1)):
            counts = honest(experiment, 300_000, 1).reshape(level.seeds, level.g)
            counts[np.arange(level.seeds), best] += 300_000 // level.seeds
            by_kind = {c.kind: c for c in check(experiment, counts.reshape(-1)).checks}
            assert by_kind["seeds"].p > ALARM > by_kind["sum"].p

    def test_drawing_seeds_like_boards_are_not_detected(self):
        experiment = designed("olh", 64, 1, g=3)
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
    def test_raise_no_alarm(self, experiment: Experiment, holds: str):
        """90 fleets, of 100, 3,000 or 100,000 reports; the chance that any raises an alarm is some 1e-10."""
        shares = np.full(experiment.domain, 1 / experiment.domain)
        if holds != "even":
            shares = np.eye(experiment.domain)[0 if holds == "first" else -1]
        for reports in (LEAST_REPORTS, 3000, 100_000):
            found = check(experiment, honest(experiment, reports, reports, shares))
            assert found.checks
            assert not found.implausible, found

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "sizes",
        [(1, 1), (1, 2), (1, 2, 2), (1, 2) * 4, pytest.param((1,) * 8, marks=pytest.mark.long)],
        ids=str,
    )
    def test_false_alarm_rate_is_exact_for_the_smallest_groups(self, sizes: tuple[int, ...]):
        """Exact: Poisson groups on condition of their sum, over the lattice of sums and sums of squares.

        Sizes are numbers of seeds in a group; the fewest reports that make so many groups. One of 50 checks.
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
        """A level that is drawn a little too often: p of one of many checks, and of one alone at most 1."""
        experiment = number(1024, 1)
        counts = honest(experiment, 100_000, 2)
        counts[experiment.levels[-1].offset] += 60
        found = check(experiment, counts)
        least = min(one.p for one in found.checks)
        assert len(found.checks) > 2
        assert 0 < least < 0.5 / len(found.checks)
        assert found.p == least * len(found.checks)
        even = check(EXPERIMENTS[0], [5_000, 5_000])
        assert even.p == min(1.0, len(even.checks) * even.checks[0].p)

    def test_a_million_codes_can_be_checked(self):
        experiment = designed("olh", 1024, 5, g=101)
        assert experiment.code_count > 1_000_000
        assert not check(experiment, honest(experiment, 1_000_000, 1)).implausible


class TestErrors:
    def test_names_too_few_reports(self):
        for experiment in EXPERIMENTS:
            counts = np.zeros(experiment.code_count, int)
            assert check(experiment, counts).words == "0 reports are too few to tell; 100 are needed"
            counts[0] = LEAST_REPORTS - 1
            found = check(experiment, counts)
            assert found.p is None
            assert not found.implausible
            assert not found.checks
            json.dumps(found.to_dict(), allow_nan=False)

    def test_rejects_a_histogram_of_another_shape(self):
        with pytest.raises(ValueError, match=r"histogram has shape \(3,\), the experiment has 2 codes"):
            check(EXPERIMENTS[0], [1, 2, 3])
