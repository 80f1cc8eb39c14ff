"""Shares of candidate texts compared with exact populations, over salts and versions."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Floats
from hushmote.server.estimate import estimate
from hushmote.server.estimate.candidates import place_candidates, shares_of
from hushmote.server.estimate.estimate import Estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.mechanisms import mechanism_of
from hushmote.simulator import vectorised

WORDS = [f"v{i}" for i in range(30)]
EXACT = 4_000_000  # enough reports to represent exact code probabilities, up to rounding


def text_experiment(salt: str = "s", slots: int = 64, epsilon: int = 2_000_000, **changes: Any) -> Experiment:
    fields = {"type": "text", "salt": salt, "slots": slots, "mechanism": "olh", "g": 7, "epsilon": epsilon}
    return Experiment.parse(experiment_json(**fields | changes))


def zipf(count: int, exponent: float = 1.1) -> Floats:
    weights = np.arange(1.0, count + 1) ** -exponent
    return weights / weights.sum()


def held(experiment: Experiment, words: Sequence[str], numbers: Any) -> Any:
    """Return the number of reports for each slot."""
    slots: Any = [experiment.bucket(word) for word in words]
    return np.bincount(slots, numbers, experiment.domain)


def fleet(experiment: Experiment, words: Sequence[str], reports: int, rng: np.random.Generator) -> Estimate:
    index_counts = held(experiment, words, rng.multinomial(reports, zipf(len(words)))).astype(np.int64)
    return estimate(experiment, vectorised.histogram(experiment, index_counts, rng))


def exactly(experiment: Experiment, words: Sequence[str], shares: Floats) -> Estimate:
    """Return the estimates from the expected histogram, rounded to EXACT reports."""
    chances = mechanism_of(experiment).law(held(experiment, words, shares))
    codes = mechanism_of(experiment).expand(chances)
    return estimate(experiment, np.rint(EXACT * codes / codes.sum()).astype(np.int64))


def misses(inside: Any, confidence: float) -> float:
    """Return the probability that so few intervals with this confidence cover the truth."""
    inside = np.asarray(inside).ravel()
    return float(stats.binom.cdf(inside.sum(), inside.size, confidence))


class TestShares:
    def test_of_all_texts_need_no_correction(self):
        """No correction for other texts applies, and candidates that share a slot share one row."""
        e, f = text_experiment(slots=128), zipf(30)
        shares = shares_of(exactly(e, WORDS, f), place_candidates(WORDS, [e]))
        slots = [e.bucket(word) for word in WORDS]
        assert len(set(slots)) < len(WORDS), "the example is to have a collision"
        for row, members in enumerate(shares.candidates.members):
            assert len({e.bucket(word) for word in members}) == 1
            assert shares.listed.value[row] == pytest.approx(
                sum(f[WORDS.index(w)] for w in members), abs=1e-4
            )
        assert sorted(Counter(slots).values()) == sorted(map(len, shares.candidates.members))
        assert shares.others.value == pytest.approx(0, abs=1e-3)
        assert shares.min_free_fraction == 1 - len(set(slots)) / 128

    def test_of_one_candidate_follow_its_slot_s_formula(self):
        e = text_experiment()
        estimates = exactly(e, WORDS, zipf(30))
        in_slot = estimates.frequencies[e.bucket("v0")]
        shares = shares_of(estimates, place_candidates(["v0"], [e]))
        # The slots' shares sum to 1, up to rounding of the histogram.
        assert shares.listed.value[0] == pytest.approx((in_slot - 1 / 64) / (1 - 1 / 64), abs=1e-4)
        others = shares.others
        assert others.value == pytest.approx(1 - shares.listed.value[0])
        assert others.stderr == pytest.approx(shares.listed.stderr[0])
        assert others.skew == pytest.approx(-shares.listed.skew[0], rel=0.05)

    @pytest.mark.slow
    def test_of_ten_thousand_candidates_err_as_predicted(self):
        """ε = 2, 65,536 slots: noise of 0.0027 per row, calculated by hand from local hashing's variance."""
        words, rng = [f"word {i}" for i in range(10_000)], np.random.default_rng(1)
        e = text_experiment("pepper", 65_536)
        shares = shares_of(fleet(e, words, 100_000, rng), place_candidates(words, [e]))
        f = zipf(10_000)
        truth = [sum(f[int(word[5:])] for word in own) for own in shares.candidates.members]
        error = np.sqrt(np.mean((shares.listed.value - truth) ** 2))
        p, q = np.exp(2) / (np.exp(2) + 6), 1 / 7
        # The mean square of 9,300 rows is accurate to 1.5%, and 0.1 is more than six times that.
        assert error == pytest.approx(np.sqrt(q * (1 - q) / (p - q) ** 2 / 100_000), rel=0.1)
        assert error < np.hypot(0.0027, 0.0010) * 1.05


class TestPooling:
    def test_combines_versions_with_different_salts(self):
        """Pooling two exact histograms gives the report-weighted mixture for every text."""
        a, b = text_experiment("a", 64), text_experiment("b", 256, mechanism="grr", g=None)
        f, g = zipf(30), zipf(30)[::-1].copy()
        both = pool([exactly(a, WORDS, f), exactly(b, WORDS, g)])
        candidates = place_candidates(WORDS, both.versions)
        shares = shares_of(both, candidates)
        weights = both.weights
        for row, members in enumerate(candidates.members):
            mixed = sum(weights @ (f[WORDS.index(word)], g[WORDS.index(word)]) for word in members)
            assert shares.listed.value[row] == pytest.approx(mixed, abs=2e-3)
        for e in (a, b):  # a row covers whole slots in every version
            rows = {}
            for word, row in zip(WORDS, candidates.row.tolist(), strict=True):
                assert rows.setdefault(e.bucket(word), row) == row

    def test_keeps_the_hash_error_of_a_shared_salt(self):
        """Pooling versions reduces the variance from noise but not that from the hash."""
        words = [f"w{i}" for i in range(400)]
        a, b = (
            text_experiment(epsilon=12_000_000, mechanism="grr", g=None),
            text_experiment(epsilon=13_000_000, mechanism="grr", g=None),
        )
        estimates, candidates = exactly(a, words, zipf(400)), place_candidates(words[:5], [a])
        alone = shares_of(estimates, candidates)
        (slots,) = candidates.slots.values()
        assert alone.listed.stderr == pytest.approx(np.delete(estimates.frequencies, slots).std(), rel=0.03)
        both = pool([exactly(a, words, zipf(400)), exactly(b, words, zipf(400))])
        pooled = shares_of(both, place_candidates(words[:5], both.versions))
        assert pooled.listed.stderr == pytest.approx(alone.listed.stderr, rel=0.02)
        other = text_experiment("another salt", epsilon=13_000_000, mechanism="grr", g=None)
        apart = pool([exactly(a, words, zipf(400)), exactly(other, words, zipf(400))])
        pooled = shares_of(apart, place_candidates(words[:5], apart.versions))
        assert pooled.listed.stderr.mean() < 0.85 * alone.listed.stderr.mean()


class TestErrors:
    @pytest.mark.slow
    def test_of_hashing_are_sums_of_squares_over_slots(self):
        """Without noise, only the salt's error remains: Σ f² / m over unlisted texts."""
        words = [f"w{i}" for i in range(4000)]
        f, m = zipf(4000), 1024
        listed = words[:40]
        added, estimated = [], []
        for salt in range(40):
            e = text_experiment(str(salt), m, epsilon=12_000_000, mechanism="grr", g=None)
            shares = shares_of(exactly(e, words, f), place_candidates(listed, [e]))
            known = [(row, own[0]) for row, own in enumerate(shares.candidates.members) if len(own) == 1]
            added += [shares.listed.value[row] - f[words.index(word)] for row, word in known]
            estimated += [shares.listed.stderr[row] ** 2 for row, _ in known]
        expected = float((f[40:] ** 2).sum()) / m
        assert np.mean(np.square(added)) == pytest.approx(expected, rel=0.15)
        assert np.mean(estimated) == pytest.approx(expected, rel=0.15)
        assert np.mean(added) == pytest.approx(0, abs=6 * np.sqrt(expected / len(added)))

    @pytest.mark.slow
    @pytest.mark.parametrize(("slots", "listed"), [(1024, 60), (128, 40), (4096, 200)])
    def test_intervals_cover_over_reports_and_salts(self, slots, listed):
        """Draw 120 fleets, each with its own salt, and 200 words, with the most common ones listed.

        Intervals of 90%: each case fails with probability below 1e-9, since a fleet's rows are nearly
        independent and their intervals slightly wide.
        """
        words, f = [f"w{i}" for i in range(200)], zipf(200)
        rng = np.random.default_rng(slots)
        rows, others = [], []
        for salt in range(120):
            e = text_experiment(f"salt {salt}", slots)
            shares = shares_of(fleet(e, words, 20_000, rng), place_candidates(words[:listed], [e]))
            truth = [sum(f[int(word[1:])] for word in own) for own in shares.candidates.members]
            low, high = shares.listed.interval(0.9)
            rows += ((low <= truth) & (truth <= high)).tolist()
            low, high = shares.others.interval(0.9)
            others.append(low <= f[listed:].sum() <= high)
        assert misses(rows, 0.9) > 1e-9
        assert misses(others, 0.9) > 1e-9
        assert np.mean(rows) < 0.97  # and they are not far too wide

    @pytest.mark.slow
    def test_noise_is_not_mistaken_for_a_text(self):
        """For 20 fleets without any of 1,000 candidates, p-values are uniform and none is significant."""
        e, rng = text_experiment(slots=16_384), np.random.default_rng(4)
        absent = [f"absent {i}" for i in range(1000)]
        p_values = []
        for _ in range(20):
            shares = shares_of(fleet(e, WORDS, 20_000, rng), place_candidates(absent, [e]))
            free = {e.bucket(word) for word in WORDS}
            members = enumerate(shares.candidates.members)
            p_values += [shares.p_values[row] for row, own in members if e.bucket(own[0]) not in free]
        assert min(p_values) > 1e-9 / len(p_values)
        # For 19,000 nearly uncorrelated values, a share is off by 0.02 with a probability below 1e-9.
        for level in (0.05, 0.5, 0.95):
            assert np.mean(np.array(p_values) < level) == pytest.approx(level, abs=0.02)
        assert shares_of(fleet(e, WORDS, 20_000, rng), place_candidates(["v0"], [e])).p_values[0] < 1e-20


class TestPlace:
    @pytest.mark.slow
    @pytest.mark.parametrize("many", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
    def test_accepts_many_candidates(self, many: int):
        words = [f"text {i}" for i in range(many)]
        e = text_experiment(slots=1 << 20, mechanism="olh", g=5, epsilon=1_000_000)
        shares = shares_of(fleet(e, WORDS, 10_000, np.random.default_rng(5)), place_candidates(words, [e]))
        assert sum(map(len, shares.candidates.members)) == many
        (slots,) = shares.candidates.slots.values()
        assert len(shares.listed) == shares.candidates.rows == len(np.unique(slots))

    def test_rejects_invalid_candidates_in_one_line(self):
        e = text_experiment()
        with pytest.raises(EstimateError, match="the list of candidates is empty; name at least one text"):
            place_candidates([], [e])
        with pytest.raises(EstimateError, match="'v1' is listed twice; name every candidate only once"):
            place_candidates(["v0", "v1", "v2", "v1"], [e])
        texts = [f"w{i}" for i in range(2000)]
        estimates = fleet(e, WORDS, 1000, np.random.default_rng(6))
        with pytest.raises(EstimateError, match="2,000 candidates fill the 64 slots of e; list fewer"):
            shares_of(estimates, place_candidates(texts, [e]))

    def test_keeps_the_order_of_texts(self):
        """Texts keep their order, and rows are ordered by their first texts."""
        e = text_experiment(slots=16)
        candidates = place_candidates(WORDS, [e])
        assert candidates.texts == tuple(WORDS)
        firsts = [WORDS.index(own[0]) for own in candidates.members]
        assert firsts == sorted(firsts)
