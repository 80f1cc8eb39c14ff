"""Discover unknown texts level by level from their beginnings, then measure their shares with other reports.

The levels of `prefix` hash increasingly long beginnings of a text. Each beginning that survives a level is
extended by every character at the next level, and the best survive. A text's share is no larger than that of
any of its beginnings, so a beginning's score is the minimum over all levels of the mean of the estimates from
that level onwards. For non-increasing shares, this is the likeliest share of the longest beginning (isotonic
regression). The score is at most 3 standard errors above the estimate for any shorter beginning. The last
level repeats the full length with different reports and a separate hash, and measures the shares of the few
remaining texts, so their shares and errors depend on no other reports.

Texts are selected for listing as follows. A candidate that shares its slot in the last level with another
candidate is omitted, because the reports do not show which of them was sent. A text that nobody sent has a
random slot that does not depend on the reports. If no other candidate has the slot, it is uniform over the
slots without another candidate, and the contents of these slots are exactly the distribution of its estimated
share, including noise and collisions. A candidate's p-value is therefore the fraction of these slots with at
least as much content as its own, and Holm's procedure keeps the probability of listing any text that nobody
sent below MAX_FALSE_CHANCE. This assumes nothing about the population.

Texts that cannot be tried, such as those with other letters, hide less common texts. If they fill K heavy
slots, each candidate's p-value rises, because a text that nobody sent looks heavy with probability

    K / slots + (1 - K / slots) P(an empty slot has as much),

so a text is listed only while K + 1 <= MAX_FALSE_CHANCE slots / candidates. If fewer candidates
are compared, more hidden texts are tolerated. The search and the slots' contents determine how many
candidates are compared. Apart from shared slots, this choice does not depend on which slots the candidates
have, so the p-values remain valid.

A custom mechanism provides its own search (Mechanism.search), which returns candidates and estimates for
texts that nobody sent. The latter replace the free slots; p-values, listing and errors work the same way.

Citation: Wang, Li, Jha, "Locally Differentially Private Heavy Hitter Identification", IEEE TDSC 2021, for the
levels; Barlow et al., "Statistical Inference under Order Restrictions", 1972; Holm, "A simple sequentially
rejective multiple test procedure", Scand. J. Statist. 1979; Benjamini and Yekutieli, "False discovery
rate-adjusted multiple confidence intervals for selected parameters", JASA 2005.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Counts, Floats, Ints
from ..hints import option
from ..mechanisms import Mechanism, MechanismError, mechanism_of
from ..mechanisms.custom import own_code
from ..mechanisms.points.prefix import Prefix, SlotShares
from .alphabet import EMPTY_BEGINNING, PRINTABLE, Alphabet, characters
from .statistic import EstimateError, Statistic, TooFewReports, normal_quantile

MAX_FALSE_CHANCE = 0.04
"""The largest probability of listing a text that nobody sent."""
_HEAVY_CHANCE = 0.01  # probability that any empty slot on a level counts as heavy
_MAX_RISE = 3.0  # standard errors by which a text's score may exceed its beginning's estimate
_CONFIDENCE = 0.95  # confidence of the intervals that are widened for heavy tails
_MARGIN = 1.9  # standard errors above each level's threshold at which a text passes all levels 9 times in 10


@dataclass(frozen=True)
class SearchLimits:
    """Limits of the search.

    Attributes:
        beam: The largest number of beginnings that survive a level.
        max_hashed: The largest number of beginnings to hash per level, at about a microsecond each.
        texts: The minimum number of texts to return, since texts that share a slot at every level tie.
        slots_each: The number of slots per returned text; with fewer, no p-value would be small enough.
    """

    beam: int = 1000
    max_hashed: int = 1 << 20
    texts: int = 100
    slots_each: int = 64


@dataclass(frozen=True)
class FoundText:
    """A text found in the reports.

    Attributes:
        text: The text.
        whole: False if the text fills the last prefix, so it may continue.
        share: The text's share, or if it is not whole, the share of all texts that begin with it.
    """

    text: str
    whole: bool
    share: Statistic


@dataclass(frozen=True)
class Discovery:
    """The discovered texts, largest share first.

    Attributes:
        experiment: The experiment.
        reports: The number of reports.
        texts: The texts.
        candidate_count: The number of candidates tested on the last level.
        min_share: The share that a text needs to be found about 9 times in 10.
        hidden: The number of slots that clearly contain a common text but have no candidate.
        hidden_share: The total share of these slots.
        left_out: The number of candidates that share a slot that clearly contains a common text.
    """

    experiment: Experiment
    reports: int
    texts: tuple[FoundText, ...]
    candidate_count: int
    min_share: float
    hidden: int = 0
    hidden_share: float = 0.0
    left_out: int = 0

    def intervals(self, confidence: float = 0.95) -> list[tuple[float, float]]:
        """Return intervals for the texts' shares; on average, a fraction `confidence` of them is right.

        Because the texts were selected by size, each interval is slightly wider than for a text given in
        advance.

        Raises:
            EstimateError: If the confidence is not between 0 and 1.
        """
        normal_quantile(confidence)
        adjusted = 1 - (1 - confidence) * len(self.texts) / max(self.candidate_count, 1)
        return [text.share.interval(adjusted) for text in self.texts]


def discover(
    experiment: Experiment,
    counts: npt.ArrayLike,
    alphabet: str | None = None,
    limits: SearchLimits = SearchLimits(),
) -> Discovery:
    """Find texts in a code histogram from a mechanism that supports discovery.

    Args:
        experiment: The experiment.
        counts: The histogram, integers of shape (code_count,).
        alphabet: The texts' characters, with ranges such as a-z; printable ASCII if None. Only prefix
            supports an alphabet.
        limits: The limits of prefix's search.

    Raises:
        EstimateError: If the mechanism does not support discovery, the last prefix is not repeated, the
            counts do not fit or are too few, the alphabet has too many characters for the first prefix, or an
            alphabet is given for a custom mechanism.
        MechanismError: If a custom mechanism's search raises an error.
    """
    mechanism = mechanism_of(experiment)
    if "discovery" not in mechanism.answers:
        raise EstimateError(f"{experiment.name} has no prefixes to discover texts by")
    if not isinstance(mechanism, Prefix):
        return _discover_custom(mechanism, np.asarray(counts), alphabet)
    if len(mechanism.lengths) < 2 or mechanism.lengths[-1] != mechanism.lengths[-2]:
        raise EstimateError(
            f"the last prefix of {experiment.name} is not repeated, so no share can be measured"
        )
    histogram = np.asarray(counts)
    if histogram.shape != (experiment.code_count,) or histogram.dtype.kind not in "iu":
        raise EstimateError(f"counts must be {experiment.code_count} integers, one for each code")
    levels = mechanism.slot_shares(histogram.astype(np.int64))
    if min(level.reports for level in levels) < 2:
        raise TooFewReports("each level needs at least 2 reports; wait for more")
    letters = PRINTABLE if alphabet is None else characters(alphabet)
    return discover_in(mechanism, levels, letters, limits)


def _discover_custom(mechanism: Mechanism, counts: Counts, alphabet: str | None) -> Discovery:
    """List the candidates found by a custom mechanism's search."""
    experiment = mechanism.experiment
    if alphabet is not None:
        raise EstimateError(f"{experiment.mechanism} does not support an alphabet; omit --alphabet")
    with own_code(experiment.mechanism, "search"):
        search = mechanism.search(counts.astype(np.int64))
        values, chance = np.asarray(search.shares, float), np.asarray(search.chance, float)
        if len(values) != len(search.texts) or len(chance) * MAX_FALSE_CHANCE < max(len(values), 1):
            text = f"{len(values)} shares for {len(search.texts)} texts and {len(chance)} chance estimates"
            raise MechanismError(
                f"{experiment.mechanism}: its search returned {text}; at least 25 per text are needed"
            )
    listed, needed = _select_listed(values, np.sort(chance))
    mean, spread, reports = float(chance.mean()), float(chance.std()), int(counts.sum())
    if len(listed):
        # The few texts that share cells with a common text have errors far beyond their standard deviation.
        adjusted = 1 - (1 - _CONFIDENCE) * len(listed) / len(values)
        wide = float(np.quantile(np.abs(chance - mean), adjusted, method="higher"))
        spread = max(spread, wide / normal_quantile(adjusted))
    texts = tuple(
        FoundText(search.texts[i], bool(search.whole[i]), Statistic(float(values[i]) - mean, spread, 0.0))
        for i in map(int, listed)
    )
    min_share = max(needed - mean + _MARGIN * float(chance.std()), search.needs)
    return Discovery(experiment, reports, texts, len(values), min_share)


def discover_in(
    mechanism: Prefix,
    levels: Sequence[SlotShares],
    letters: str,
    limits: SearchLimits = SearchLimits(),
) -> Discovery:
    """Find texts from the estimates for all levels.

    Args:
        mechanism: The mechanism.
        levels: Each level's estimates.
        letters: All characters that texts may contain.
        limits: The search limits.
    """
    *search, last = levels
    candidates = search_texts(mechanism, search, Alphabet(letters), limits)
    slots = slots_of(mechanism, len(search), candidates.rows)
    hidden = hidden_slots(last, slots)
    # Compare the candidates that may be listed and all others that the search found to be clearly common.
    count = max(compared_count(last, candidates), int((candidates.scores > _heavy_threshold(last)).sum()))
    slots = slots[:count]
    alone = _has_own_slot(slots)
    left_out = int((last.shares[slots[~alone]] > _heavy_threshold(last)).sum())
    rest, slots = _remove_slots(last, slots[~alone], slots[alone])
    candidates = candidates.select(np.flatnonzero(alone))
    count = compared_count(rest, candidates)
    # A compared text that nobody sent does not have any of the other candidates' slots either.
    listed, shares, min_share = list_texts(*_remove_slots(rest, slots[count:], slots[:count]))
    texts = tuple(
        FoundText(_text(candidates.rows[i]), not candidates.rows[i, -1], share)
        for i, share in zip(listed, shares, strict=True)
    )
    if count:
        min_share = max(min_share, float(candidates.needed_shares[count - 1]))
    reports = sum(level.reports for level in levels)
    return Discovery(mechanism.experiment, reports, texts, count, min_share, *hidden, left_out)


@dataclass(frozen=True)
class SearchResult:
    """The best full-length beginnings, best first.

    Attributes:
        rows: Each beginning's bytes, shape (n, length).
        scores: Each beginning's share according to the search alone, shape (n,).
        needed_shares: For each number of beginnings, the share at which a text is among them 9 times in 10,
            shape (n,).
    """

    rows: npt.NDArray[np.uint8]
    scores: Floats
    needed_shares: Floats

    def select(self, numbers: Ints) -> SearchResult:
        """Return some of the beginnings; `numbers` are ascending indices, shape (m,)."""
        return SearchResult(self.rows[numbers], self.scores[numbers], self.needed_shares[numbers])


def search_texts(
    mechanism: Prefix,
    levels: Sequence[SlotShares],
    alphabet: Alphabet,
    limits: SearchLimits = SearchLimits(),
) -> SearchResult:
    """Return the texts that may be common, using the search levels."""
    survivors, path, scores, cut = EMPTY_BEGINNING, np.zeros((1, 0)), np.zeros(1), 0.0
    needed_shares = scores
    for number, level in enumerate(levels):
        longer = mechanism.lengths[number] - survivors.rows.shape[1]
        tried = np.cumsum(alphabet.count_extensions(survivors.states, longer))
        if tried[0] > limits.max_hashed:
            raise EstimateError(
                f"{tried[0]:,} beginnings of {mechanism.lengths[number]} bytes are too many to try; name "
                f"fewer characters with {option('alphabet')}"
            )
        fitting = int(np.searchsorted(tried, limits.max_hashed, side="right"))
        survivors = alphabet.extend(survivors[:fitting], longer)
        shares = level.shares[slots_of(mechanism, number, survivors.rows)]
        path = np.column_stack([path[survivors.origin], shares])
        score = _score(path, levels[: number + 1])
        best = np.argsort(-score, kind="stable")
        some = best[: limits.beam]
        survivors, path, scores = survivors[some], path[some], score[some]
        needed_shares = scores + _MARGIN * level.variance(0.0) ** 0.5
        if len(best) <= limits.beam:
            needed_shares[-1] = 0.0  # no beginning has been dropped
        cut = max(cut, float(needed_shares[-1]))
    count = max(limits.texts, len(levels[0].shares) // limits.slots_each)
    return SearchResult(survivors.rows[:count], scores[:count], np.maximum(needed_shares, cut)[:count])


def compared_count(level: SlotShares, candidates: SearchResult) -> int:
    """Return how many candidates to test, best first, to find the smallest possible share.

    Each candidate's slot is assumed to contain about the share that the search found.
    """
    if not len(candidates.scores):
        return 0
    slots, falling = len(level.shares), np.sort(level.shares)[::-1]
    margin, threshold = _MARGIN * math.sqrt(level.variance(0.0)), _heavy_threshold(level)
    heavy = candidates.scores[: np.count_nonzero(falling > threshold)]
    heavy = heavy[heavy > threshold]
    before = np.arange(len(heavy))
    ahead = slots - np.searchsorted(falling[::-1], heavy + margin, side="right") - before
    # For each heavy candidate, the largest number of candidates at which it and all before it are listed.
    max_counts = np.minimum.accumulate(
        before + MAX_FALSE_CHANCE * (slots - before) / (np.maximum(ahead, 0) + 1)
    )
    counts = np.arange(1, len(candidates.scores) + 1)
    listed = np.minimum(counts, (max_counts >= counts[:, None]).sum(axis=1))
    allowed = listed + MAX_FALSE_CHANCE / np.maximum(counts - listed, 1) * (slots - listed)
    needed = falling[np.minimum(allowed.astype(int), slots - 1)] + margin
    return int(counts[np.maximum(needed, candidates.needed_shares).argmin()])


def _heavy_threshold(level: SlotShares) -> float:
    """Return the share above which a slot's simultaneous lower bound exceeds the median."""
    usual = max(float(np.median(level.shares)), 0.0)
    quantile = normal_quantile(1 - 2 * _HEAVY_CHANCE / len(level.shares))
    above = usual + quantile * level.variance(usual) ** 0.5
    return usual + quantile * level.variance(above) ** 0.5


def hidden_slots(level: SlotShares, slots: Ints) -> tuple[int, float]:
    """Return the number and total share of the heavy slots that are not among the candidates' `slots`."""
    other_shares = np.delete(level.shares, slots)
    heavy = other_shares[other_shares > _heavy_threshold(level)] - float(np.median(level.shares))
    return len(heavy), float(heavy.sum())


def _has_own_slot(slots: Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the candidates that do not share their slot, shape (n,)."""
    _, number, counts = np.unique(slots, return_inverse=True, return_counts=True)
    return counts[number] == 1


def _remove_slots(level: SlotShares, removed: Ints, slots: Ints) -> tuple[SlotShares, Ints]:
    """Return a level without the removed slots, and the new indices of `slots`."""
    stays = np.ones(len(level.shares), bool)
    stays[removed] = False
    return SlotShares(level.shares[stays], level.reports, level.channel), (np.cumsum(stays) - 1)[slots]


def _score(path: Floats, levels: Sequence[SlotShares]) -> Floats:
    """Return the share of each longest beginning, shape (n,), from its levels' estimates, (n, levels)."""
    errors = np.array([level.variance(0.0) ** 0.5 for level in levels])
    weights = np.array([float(level.reports) for level in levels])
    return np.minimum(_last_of_falling(path, weights), (path + _MAX_RISE * errors).min(axis=1))


def _last_of_falling(path: Floats, weights: Floats) -> Floats:
    """Return the last share, shape (n,), of the best non-increasing fit to the estimates, (n, levels)."""
    backwards = np.cumsum((path * weights)[:, ::-1], axis=1) / np.cumsum(weights[::-1])
    return backwards.min(axis=1)


def slots_of(mechanism: Prefix, number: int, rows: npt.NDArray[np.uint8]) -> Ints:
    """Return each beginning's slot on the level with this index, as in device/ldp_text.py."""
    start = mechanism.salt + bytes((number + 1,))
    data, size = rows.tobytes(), rows.shape[1]
    sha256 = hashlib.sha256
    digests = (sha256(start + data[i : i + size]).digest()[5:8] for i in range(0, len(data), size))
    numbers = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1])
    return numbers & (mechanism.slots - 1)


def list_texts(level: SlotShares, slots: Ints) -> tuple[Ints, list[Statistic], float]:
    """Return the candidates to list, largest share first, their shares, and the share found 9 times in 10.

    Candidates that share a slot are omitted, because the reports cannot tell them apart.

    Args:
        level: The last level's estimates.
        slots: The candidates' slots.
    """
    alone = _has_own_slot(slots)
    level, slots = _remove_slots(level, slots[~alone], slots[alone])
    listed, needed = _select_listed(level.shares[slots], np.sort(np.delete(level.shares, slots)))
    others = np.delete(level.shares, slots[listed])
    # Each slot also contains unlisted texts, on average as many as the other slots.
    mean, spread = float(others.mean()), float(others.var())
    statistics: list[Statistic] = []
    for at in listed:
        share = float(level.shares[slots[at]]) - mean
        variance = spread + level.variance(share) - level.variance(0.0)
        statistics.append(Statistic(share, variance**0.5, level.skew(share)))
    return np.flatnonzero(alone)[listed], statistics, needed - mean + _MARGIN * spread**0.5


def _select_listed(values: Floats, chance: Floats) -> tuple[Ints, float]:
    """Return the candidates to list, largest share first, and the share needed to list one more.

    Args:
        values: The candidates' shares.
        chance: The estimates for texts that nobody sent, in ascending order.
    """
    count, listed = len(values), 0
    order = np.argsort(-values, kind="stable")
    ahead = len(chance) - np.searchsorted(chance, values[order])
    p_values = (1 + ahead) / (1 + len(chance))
    while listed < count and p_values[listed] <= MAX_FALSE_CHANCE / (count - listed):
        listed += 1
    allowed = int(MAX_FALSE_CHANCE / max(count - listed, 1) * (1 + len(chance)))
    return order[:listed], float(chance[-max(min(allowed, len(chance)), 1)])


def _text(row: npt.NDArray[np.uint8]) -> str:
    """Decode a text, omitting the last character if it is incomplete."""
    return row.tobytes().rstrip(b"\0").decode(errors="ignore")
