"""Discovery of unlisted texts: texts, alphabets, false positives and errors."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json, number_json
from refusals import Refusal, refusals
from scipy import optimize, stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import discovery
from hushmote.server.estimate.alphabet import EMPTY_BEGINNING, PRINTABLE, Alphabet, characters
from hushmote.server.estimate.discovery import (
    MAX_FALSE_CHANCE,
    Discovery,
    SearchLimits,
    SearchResult,
    compared_count,
    discover,
    hidden_slots,
    list_texts,
    search_texts,
    slots_of,
)
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.points.prefix import Prefix, SlotShares
from hushmote.simulator import vectorised

FIELDS = {"type": "text", "salt": "pepper", "slots": 16_384, "mechanism": "prefix", "q": 53}
LENGTHS = [2, 4, 6, 6]
USUAL = SearchLimits()


def experiment(**changes: Any) -> Experiment:
    fields = FIELDS | {"prefixes": LENGTHS, "epsilon": 4_000_000, "budget": {"rule": "unlimited"}}
    return Experiment.parse(experiment_json(**fields | changes))


def discover_in_fleet(
    shares: Mapping[str, float],
    reports: int,
    alphabet: str | None = None,
    limits: SearchLimits = USUAL,
    **changes: Any,
) -> Discovery:
    """Return the texts discovered in reports from a fleet whose boards have these texts."""
    version = experiment(**changes)
    rng = np.random.default_rng(1)
    indices = [version.bucket(text) or 0 for text in shares]
    held = rng.multinomial(reports, [*shares.values()])
    return discover(version, vectorised.histogram(version, held, rng, of=indices), alphabet, limits)


def noise(
    rng: np.random.Generator, slots: int, reports: int, held: Mapping[int, int] | None = None
) -> SlotShares:
    """Return a level with these reports per slot; all other reports are for distinct texts."""
    channel = mechanism_of(experiment(slots=slots)).codes[-1].channel  # type: ignore[attr-defined]
    counts = rng.multinomial(reports - sum((held or {}).values()), np.full(slots, 1 / slots))
    for slot, n in (held or {}).items():
        counts[slot] += n
    supports = rng.binomial(counts, channel.p) + rng.binomial(reports - counts, channel.q)
    return SlotShares((supports / reports - channel.q) / (channel.p - channel.q), reports, channel)


class TestSlots:
    @pytest.mark.parametrize("text", ["", "a", "abc", "abcdefghi", "größe", "\0\0"])
    def test_equal_those_on_boards(self, text):
        version = experiment(prefixes=[1, 3, 8, 8], slots=1024)
        mechanism = mechanism_of(version)
        assert isinstance(mechanism, Prefix)
        data = text.encode() + bytes(8)
        slots = [
            int(slots_of(mechanism, i, np.frombuffer(data[:size], np.uint8)[None])[0])
            for i, size in enumerate((1, 3, 8, 8))
        ]
        assert sum(slot << 10 * i for i, slot in enumerate(slots)) == version.bucket(text)

    def test_with_equal_shares_do_not_hide_each_other(self):
        """Ten of 100 candidates are in ten slots with equal shares, and all are found."""
        level = noise(np.random.default_rng(10), 8192, 100_000)
        shares = level.shares.copy()
        shares[:10] = 0.1
        slots = np.append(np.arange(10), np.full(90, int(shares.argmin())))
        listed, _, _ = list_texts(SlotShares(shares, level.reports, level.channel), slots)
        assert sorted(listed.tolist()) == [*range(10)]


class TestTexts:
    @pytest.mark.slow
    def test_common_texts_are_found_with_their_shares(self):
        """With 100,000 reports, a share is at least 15 standard errors; intervals at 1 - 1e-10 cover it."""
        shares = {"E1042": 0.4, "E7": 0.25, "W-100": 0.2, "": 0.15}
        answer = discover_in_fleet(shares, 100_000, "0-9EW-")
        assert [one.text for one in answer.texts] == [*shares]
        assert all(one.whole for one in answer.texts)
        for one in answer.texts:
            low, high = one.share.interval(1 - 1e-10)
            assert low < shares[one.text] < high
        assert answer.reports == 100_000
        assert 0 < answer.min_share < 0.15

    @pytest.mark.slow
    def test_filling_the_last_prefix_may_continue(self):
        answer = discover_in_fleet({"abcdefgh": 0.5, "abcdef": 0.2, "abc": 0.3}, 50_000, "a-h")
        assert {one.text: one.whole for one in answer.texts} == {"abcdef": False, "abc": True}
        assert answer.texts[0].share.value == pytest.approx(0.7, abs=0.05)

    @pytest.mark.slow
    def test_may_have_characters_of_several_bytes(self):
        """The last prefix splits a character of 東京都; the characters before it are shown."""
        shares = {"größe": 0.3, "東京": 0.3, "東京都": 0.2, "a": 0.2}
        answer = discover_in_fleet(shares, 50_000, "a-zöß東京都", prefixes=[2, 4, 5, 6, 7, 7])
        listed = {(one.text, one.whole) for one in answer.texts}
        assert listed == {("größe", False), ("東京", True), ("東京", False), ("a", True)}

    def test_have_no_larger_share_than_their_beginnings(self):
        """A chance excess in a text's slot at one level is not counted as that text's share."""
        levels = [noise(np.random.default_rng(11), 8192, 50_000)] * 3
        one, other = discovery._score(np.array([[0.03, 0.03, 0.03], [0.03, 0.0, 0.09]]), levels)
        assert one == pytest.approx(0.03)
        assert other == pytest.approx(3 * levels[0].variance(0.0) ** 0.5)


def equal_shares(count: int, share: float, letters: str, first: int = 0) -> dict[str, float]:
    """Return six-letter texts with distinct beginnings, each with this share."""
    base = len(letters)
    digits = [[(i * 7919 + 31) // base**k % base for k in range(6)] for i in range(first, first + count)]
    return {"".join(letters[d] for d in row): share for row in digits}


class TestSharedSlots:
    """Candidates that share a slot in the last level."""

    def test_omits_texts_that_share_a_slot(self):
        """Half of all reports are in a slot shared by two candidates, so either may have been sent."""
        level = noise(np.random.default_rng(6), 8192, 40_000, {7: 20_000, 9: 4000})
        listed, shares, _ = list_texts(level, np.array([3, 7, 7, 9]))
        assert listed.tolist() == [3]
        assert shares[0].value == pytest.approx(0.1, abs=0.03)

    def test_heavy_shared_slots_do_not_hide_other_texts(self):
        """Twenty heavy shared slots precede 60 texts, which are still listed."""
        shared, own_values = np.arange(20), np.arange(20, 80)
        held = dict.fromkeys(shared.tolist(), 5000) | dict.fromkeys(own_values.tolist(), 3000)
        level = noise(np.random.default_rng(12), 8192, 300_000, held)
        listed, _, _ = list_texts(level, np.concatenate([own_values, shared, shared]))
        assert sorted(listed.tolist()) == [*range(60)]

    def test_p_value_is_exact_rank_among_free_slots(self):
        """With two candidates and 99 free slots, 1/100 is within 0.04 / 2, but 5/100 is not within 0.04."""
        channel = noise(np.random.default_rng(13), 8192, 1000).channel
        shares = np.append(np.arange(99.0), [97.5, 98.5])
        level = SlotShares(shares / shares.sum(), 1000, channel)
        assert list_texts(level, np.array([99, 100]))[0].tolist() == [1, 0]
        shares[99] = 94.5  # four free slots have more
        level = SlotShares(shares / shares.sum(), 1000, channel)
        assert list_texts(level, np.array([99, 100]))[0].tolist() == [1]

    def test_discovery_counts_omitted_texts(self):
        """Each text has 30%, and two texts share a slot on the last level; 60,000 reports."""
        version = experiment(slots=64, prefixes=[1, 2, 2])
        mechanism = mechanism_of(version)
        assert isinstance(mechanism, Prefix)
        texts = [a + b for a in "abcd" for b in "efgh"]
        last = slots_of(mechanism, 2, np.array([[*text.encode()] for text in texts], np.uint8)).tolist()
        one, other = next((i, j) for j in range(16) for i in range(j) if last[i] == last[j])
        alone = next(i for i in range(16) if last.count(last[i]) == 1)
        shares = {texts[one]: 0.3, texts[other]: 0.3, texts[alone]: 0.4}
        answer = discover_in_fleet(shares, 60_000, "a-h", slots=64, prefixes=[1, 2, 2])
        assert [text.text for text in answer.texts] == [texts[alone]]
        assert answer.left_out == 2

    @pytest.mark.slow
    def test_dense_lists_have_no_more_false_texts(self):
        """Draw 300 fleets: 110 texts of 0.9% and 18 that nobody sent, 300,000 reports, 8,192 slots.

        More than 37 tables list one of the 18 with probability below 1e-9; listing the first of two
        texts in a slot gave 68. The 18 come first, as they may if the search cannot tell.
        """
        rng, wrong, right = np.random.default_rng(14), 0, 0
        for _ in range(300):
            slots = rng.integers(0, 8192, 128)
            numbers, held = np.unique(slots[18:], return_counts=True)
            level = noise(
                rng, 8192, 300_000, dict(zip(numbers.tolist(), (held * 2700).tolist(), strict=True))
            )
            listed, _, _ = list_texts(level, slots)
            wrong += bool((listed < 18).any())
            right += int((listed >= 18).sum())
        assert wrong <= stats.binom.isf(1e-9, 300, MAX_FALSE_CHANCE)
        assert right >= 0.97 * 110 * 300


class TestChance:
    def test_beginnings_are_scored_by_falling_shares(self):
        rng = np.random.default_rng(3)
        path, weights = rng.normal(size=(200, 5)), np.array([1.0, 2, 2, 3, 2])
        last = [
            optimize.isotonic_regression(row, weights=weights, increasing=False).x[-1] for row in path
        ]  # pool adjacent violators
        np.testing.assert_allclose(discovery._last_of_falling(path, weights), last, atol=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize("reports", [1000, 25_000])
    def test_at_most_one_table_in_twenty_has_a_false_text(self, reports):
        """Draw 500 fleets without common texts; few reports leave many slots with equal shares.

        More tables than the bound list a text nobody sent with probability below 1e-9.
        """
        rng = np.random.default_rng(4)
        mistaken = 0
        for _ in range(500):
            listed, _, _ = list_texts(noise(rng, 4096, reports), rng.integers(0, 4096, 100))
            mistaken += len(listed) > 0
        assert mistaken <= stats.binom.isf(1e-9, 500, MAX_FALSE_CHANCE)
        assert MAX_FALSE_CHANCE <= 0.05

    @pytest.mark.slow
    def test_unlistable_texts_neither_hide_nor_add_texts(self):
        """Draw 300 fleets: 20 texts of 3% and 8 unlistable ones of 5%, 300,000 reports, 8,192 slots.

        No board has the last 80 of 100 candidates. More tables than the bound list one of them with
        probability below 1e-9. Each text has 15 standard errors or more; two of one slot are left
        out.
        """
        rng = np.random.default_rng(8)
        scores = np.append(np.full(20, 0.03), np.linspace(0.02, 0.001, 80))
        candidates = SearchResult(np.zeros((100, 6), np.uint8), scores, scores)
        mistaken = unshared = 0
        for _ in range(300):
            texts = rng.choice(8192, 28, replace=False)
            last = noise(
                rng,
                8192,
                300_000,
                dict.fromkeys(texts[:20].tolist(), 9000) | dict.fromkeys(texts[20:].tolist(), 15_000),
            )
            slots = np.append(texts[:20], rng.integers(0, 8192, 80))
            count = compared_count(last, candidates)
            assert 20 < count <= MAX_FALSE_CHANCE * 8192 / (8 + 1)
            listed, _, _ = list_texts(last, slots[:count])
            assert {i for i in range(20) if texts[i] not in slots[20:count]} <= {*listed.tolist()}
            unshared += len({*range(20)} & {*listed.tolist()})
            mistaken += bool((listed >= 20).any())
            left = 8 - len({*texts[20:].tolist()} & {*slots.tolist()})
            hidden, share = hidden_slots(last, slots)
            assert left <= hidden <= left + 1  # an empty slot is heavy by chance on one level in 100
            assert share == pytest.approx(0.05 * left, abs=0.03)
        assert mistaken <= stats.binom.isf(1e-9, 300, MAX_FALSE_CHANCE)
        assert unshared >= 0.99 * 20 * 300

    @pytest.mark.slow
    def test_standard_errors_match_repeated_fleets(self):
        """Draw 1,000 fleets: the mean error is within 12% (5 deviations) of the errors' deviation."""
        rng = np.random.default_rng(7)
        values, errors = [], []
        for _ in range(1000):
            _, (share,), _ = list_texts(noise(rng, 4096, 20_000, {7: 6000}), np.array([7]))
            values.append(share.value)
            errors.append(share.stderr)
        # The slot's reports are fixed here, so the deviation lacks their sampling variance, f(1 - f)/N.
        deviation = math.sqrt(np.var(values) + 0.3 * 0.7 / 20_000)
        assert np.mean(errors) == pytest.approx(deviation, rel=0.12)
        assert np.mean(values) == pytest.approx(0.3, abs=7 * deviation / math.sqrt(1000))

    def test_more_candidates_widen_intervals(self):
        answer = discover_in_fleet({"a": 0.6, "b": 0.4}, 30_000, "ab")
        assert answer.candidate_count > len(answer.texts) == 2
        (low, high), (alone_low, alone_high) = answer.intervals()[0], answer.texts[0].share.interval()
        assert low < alone_low < alone_high < high
        with pytest.raises(EstimateError, match="confidence must be between 0 and 1"):
            answer.intervals(1)


class TestAlphabet:
    @pytest.mark.slow
    def test_is_printable_ascii_by_default(self):
        answer = discover_in_fleet({"a b~": 0.5, "ä": 0.5}, 20_000, prefixes=[1, 2, 3, 4, 5, 5])
        assert [one.text for one in answer.texts] == ["a b~"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a-e", "abcde"),
            ("cab", "abc"),
            ("0-9A-C", "0123456789ABC"),
            ("a-", "-a"),
            ("9-_", "-9_"),
            ("a-Z", "-Za"),
            ("-a-c", "-abc"),
            ("а-в", "абв"),
            (" -~", " -~"),
        ],
    )
    def test_accepts_ranges_of_letters_and_digits(self, text, expected):
        assert characters(text) == expected

    @refusals(
        ("", "an alphabet needs at least one character"),
        ("e-a", "a range in an alphabet must ascend: a-e, not e-a"),
        ("a\n", "only printable characters"),
        ("\ud800", "only printable characters"),
        call=characters,
        error=EstimateError,
    )
    def test_rejects_invalid_alphabets(self, refusal: Refusal):
        refusal.check()

    @pytest.mark.parametrize("of", ["ab", "aß", "a東ö"])
    def test_prefixes_cover_all_of_its_texts(self, of):
        def encoded(length: int) -> set[bytes]:
            texts = {b""}
            for _ in range(length):
                texts |= {text + c.encode() for text in texts for c in of}
            return {(text + bytes(length))[:length] for text in texts}

        alphabet = Alphabet(of)
        now = EMPTY_BEGINNING
        for size, more in ((1, 1), (3, 2), (4, 1)):
            ways = alphabet.count_extensions(now.states, more)
            longer = alphabet.extend(now, more)
            assert len({row.tobytes() for row in longer.rows}) == len(longer) == ways.sum()
            assert {row.tobytes() for row in longer.rows} == encoded(size)
            assert np.array_equal(now.rows[longer.origin], longer.rows[:, : size - more])
            assert np.bincount(longer.origin, minlength=len(now)).tolist() == ways.tolist()
            now = longer


class TestErrors:
    @pytest.mark.parametrize(
        ("payload", "alphabet", "reason"),
        [
            (number_json(4), None, "x has no prefixes to discover texts by"),
            (experiment_json(**FIELDS | {"prefixes": [2, 4]}), None, "the last prefix of e is not repeated"),
            (
                experiment_json(**FIELDS | {"prefixes": [4, 4]}),
                None,
                "beginnings of 4 bytes are too many to try",
            ),
            (
                experiment_json(**FIELDS | {"prefixes": [2, 2]}),
                "",
                "an alphabet needs at least one character",
            ),
        ],
        ids=["a number", "stated nowhere", "too many beginnings", "no alphabet"],
    )
    def test_rejects_experiments_without_discovery(self, payload, alphabet, reason):
        version = Experiment.parse(payload)
        with pytest.raises(EstimateError, match=reason):
            discover(version, np.ones(version.code_count, int), alphabet)

    @pytest.mark.parametrize(
        "counts", [np.ones(3, int), np.ones(4), np.zeros(6, int)], ids=["shape", "floats", "none"]
    )
    def test_rejects_invalid_counts(self, counts):
        version = experiment(slots=1024, prefixes=[2, 2], q=31)
        counts = np.resize(counts, version.code_count) if len(counts) > 3 else counts
        with pytest.raises(EstimateError, match=r"counts must be|at least 2 reports"):
            discover(version, counts)


class TestSearch:
    @pytest.mark.parametrize(("slots", "count"), [(1024, 100), (8192, 128)])
    def test_keeps_a_hundred_texts_or_one_per_64_slots(self, slots: int, count: int):
        mechanism = mechanism_of(experiment(slots=slots, prefixes=[2, 2]))
        assert isinstance(mechanism, Prefix)
        level = noise(np.random.default_rng(10), slots, 10_000)
        result = search_texts(mechanism, [level], Alphabet(characters("a-z")))
        assert len(result.rows) == len(result.scores) == len(result.needed_shares) == count

    def test_compares_all_candidates_when_nothing_is_hidden(self):
        rng = np.random.default_rng(9)
        texts = rng.choice(8192, 100, replace=False)
        last = noise(rng, 8192, 300_000, dict.fromkeys(texts.tolist(), 2900))
        scores = np.full(100, 0.011)
        needs = np.append(np.full(99, 0.02), 0.0)
        assert compared_count(last, SearchResult(np.zeros((100, 6), np.uint8), scores, needs)) == 100
        assert len(list_texts(last, texts)[0]) == 100
        assert hidden_slots(last, texts)[0] <= 1

    @pytest.mark.slow
    def test_finds_texts_among_heavier_ones_with_other_letters(self):
        """With 300,000 reports, 3% is at least 10 standard errors."""
        own, others = equal_shares(20, 0.03, "abcdefgh"), equal_shares(8, 0.05, "ABCDEFGH", 100)
        answer = discover_in_fleet(own | others, 300_000, "a-h", slots=8192)
        assert {one.text for one in answer.texts} == own.keys()
        assert answer.min_share < 0.03
        assert answer.hidden == 8
        assert answer.hidden_share == pytest.approx(0.4, abs=0.02)

    @pytest.mark.slow
    def test_finds_all_promised_texts_beyond_a_hundred(self):
        """With 1,000,000 reports of 176 texts, 0.57% is at least 7 standard errors. A slot counts once."""
        held = equal_shares(176, 1 / 176, "abcdefgh")
        answer = discover_in_fleet(held, 1_000_000, "a-h", slots=65_536)
        assert answer.min_share < 1 / 176
        assert len({one.text for one in answer.texts} & held.keys()) >= 175
        assert answer.hidden <= 1

    @pytest.mark.slow
    def test_promised_share_is_found_with_few_candidates(self):
        """With room for 32 of 176 texts, the guaranteed share is above each text's share."""
        few = SearchLimits(texts=32, slots_each=2048)
        answer = discover_in_fleet(
            equal_shares(176, 1 / 176, "abcdefgh"), 1_000_000, "a-h", few, slots=65_536
        )
        assert answer.candidate_count <= 32
        assert answer.min_share > 1 / 176
        assert answer.hidden > 100

    def test_narrow_beam_still_finds_common_texts(self):
        """With room for few beginnings, the common text is still found, but the required share is higher."""
        limits = SearchLimits(beam=20, max_hashed=2000)
        narrow = discover_in_fleet({"abcd": 0.5, "dcba": 0.5}, 20_000, "a-e", limits, prefixes=[2, 3, 4, 4])
        assert {one.text for one in narrow.texts} == {"abcd", "dcba"}
        assert len(PRINTABLE) == 95
