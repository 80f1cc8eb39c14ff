"""Discover unknown texts by their beginnings, level by level, then measure their shares with other reports.

The levels of `prefix` hash longer and longer beginnings of a text. Each beginning that survives a level is
extended by every character at the next one, and the best survive. A text's share is no larger than that of
any of its beginnings; so the score of a beginning is the minimum, over all levels, of the mean of the
estimates from there on: for shares that do not rise, this is the likeliest share of the longest (isotonic
regression). It is at most 3 standard errors above the estimate of any of its own beginnings. The last level
has the whole length once more, with other reports and a hash of its own, and measures the shares of the few
texts that remain; their shares and errors depend on no other reports.

Selection of the texts to list. A candidate that shares its slot in the last level with another candidate is
left out: the reports cannot tell which of them was sent. The slot of a text that nobody sent is random,
whatever was reported: if no other candidate has it, it is uniform over the slots without another candidate.
The contents of these slots are exactly the distribution of an estimate of its share, including noise and
collisions. So a candidate's p value is the part of these slots with at least its own content, and Holm's
procedure keeps the chance of listing any text that nobody sent below MISTAKEN. This assumes nothing about
the population.

Texts that cannot be tried, such as those with other letters, hide smaller ones. K heavy slots of such texts
raise the p value of each candidate: a text that nobody sent looks heavy with the chance

    K / slots + (1 - K / slots) P(an empty slot has as much),

so a text is listed only while K + 1 <= MISTAKEN slots / candidates. The fewer candidates are compared, the
more texts may be hidden. The search and the slots' contents determine how many are compared. That choice does
not depend on which slots the candidates have, apart from those they share, so the p values remain valid.

A mechanism of your own has its own search (Mechanism.search), which returns candidates and the estimates of
texts that nobody sent. These replace the free slots; p values, listing and errors are the same.

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
from .alphabet import NOTHING, PRINTABLE, Alphabet, characters
from .statistic import EstimateError, Statistic, normal_quantile

MISTAKEN = 0.04
"""The largest probability of listing a text that nobody sent."""
_NOISE = 0.01  # probability that an empty slot counts as heavy in a level
_HIGHEST = 3.0  # standard errors that a text may have above its beginning
_CONFIDENCE = 0.95  # confidence of the intervals that are widened for heavy tails
_SURE = 1.9  # standard errors above each level's threshold; all levels let it through about 9 times in 10


@dataclass(frozen=True)
class SearchLimits:
    """How far the search goes.

    Attributes:
        beam: The largest number of beginnings that survive a level.
        tried: The largest number of beginnings hashed at a level, at about a microsecond each.
        texts: The smallest number of texts to return, since texts that share a slot at every level tie.
        slots_each: The number of slots for each returned text; with fewer, no p-value would be small enough.
    """

    beam: int = 1000
    tried: int = 1 << 20
    texts: int = 100
    slots_each: int = 64


@dataclass(frozen=True)
class FoundText:
    """A text found in the reports.

    Attributes:
        text: Its characters.
        whole: False if it fills the last prefix, so that it may continue.
        share: Its share, or if it is not whole, that of all texts that begin with it.
    """

    text: str
    whole: bool
    share: Statistic


@dataclass(frozen=True)
class Discovery:
    """The discovered texts, largest share first.

    Attributes:
        texts: The texts.
        candidate_count: The number of candidates that the last level judged.
        least: The share that a text needs to be found about nine times in ten.
        hidden: The number of slots that certainly hold a common text but have no candidate.
        hidden_share: The total share of these slots.
        left_out: The number of candidates that share a slot that certainly holds a common text.
    """

    experiment: Experiment
    reports: int
    texts: tuple[FoundText, ...]
    candidate_count: int
    least: float
    hidden: int = 0
    hidden_share: float = 0.0
    left_out: int = 0

    def intervals(self, confidence: float = 0.95) -> list[tuple[float, float]]:
        """Return intervals of the texts' shares; on average the fraction `confidence` holds the truth.

        The texts were selected by their size, so each interval is slightly wider than for a given text.

        Raises:
            EstimateError: If the confidence is not between 0 and 1.
        """
        normal_quantile(confidence)
        each = 1 - (1 - confidence) * len(self.texts) / max(self.candidate_count, 1)
        return [one.share.interval(each) for one in self.texts]


def discover(
    experiment: Experiment,
    counts: npt.ArrayLike,
    alphabet: str | None = None,
    limits: SearchLimits = SearchLimits(),
) -> Discovery:
    """Find texts in a histogram of codes of a mechanism with discovery.

    Args:
        experiment: The experiment.
        counts: The histogram, integers of shape (code_count,).
        alphabet: The characters of the texts, with ranges such as a-z; printable ASCII if None. Only prefix
            takes one.
        limits: The limits of prefix's search.

    Raises:
        EstimateError: If the experiment has another mechanism, its last prefix is not repeated, the counts do
            not fit or are too few, an alphabet has too many characters for the first prefix, or one is given
            for your own mechanism.
        MechanismError: If your own mechanism's search raises anything itself.
    """
    mechanism = mechanism_of(experiment)
    if "discovery" not in mechanism.answers:
        raise EstimateError(f"{experiment.name} has no prefixes to discover texts by")
    if not isinstance(mechanism, Prefix):
        return _discover_own(mechanism, np.asarray(counts), alphabet)
    if len(mechanism.lengths) < 2 or mechanism.lengths[-1] != mechanism.lengths[-2]:
        raise EstimateError(
            f"the last prefix of {experiment.name} is not repeated, so no share can be measured"
        )
    histogram = np.asarray(counts)
    if histogram.shape != (experiment.code_count,) or histogram.dtype.kind not in "iu":
        raise EstimateError(f"counts must be {experiment.code_count} integers, one for each code")
    levels = mechanism.slot_shares(histogram.astype(np.int64))
    if min(level.reports for level in levels) < 2:
        raise EstimateError("each level needs at least 2 reports: wait for more")
    letters = PRINTABLE if alphabet is None else characters(alphabet)
    return discover_in(mechanism, levels, letters, limits)


def _discover_own(mechanism: Mechanism, counts: Counts, alphabet: str | None) -> Discovery:
    """List the candidates of your own mechanism's search."""
    experiment = mechanism.experiment
    if alphabet is not None:
        raise EstimateError(f"{experiment.mechanism} takes no alphabet: leave --alphabet out")
    with own_code(experiment.mechanism, "search"):
        search = mechanism.search(counts.astype(np.int64))
        values, chance = np.asarray(search.shares, float), np.asarray(search.chance, float)
        if len(values) != len(search.texts) or len(chance) * MISTAKEN < max(len(values), 1):
            text = f"{len(values)} shares of {len(search.texts)} texts, {len(chance)} of chance"
            raise MechanismError(
                f"{experiment.mechanism}: its search gives {text}: at least 25 for each text"
            )
    listed, needed = _listed(values, np.sort(chance))
    mean, spread, reports = float(chance.mean()), float(chance.std()), int(counts.sum())
    if len(listed):
        # The few texts that share cells with a common one have errors far beyond their standard deviation.
        each = 1 - (1 - _CONFIDENCE) * len(listed) / len(values)
        wide = float(np.quantile(np.abs(chance - mean), each, method="higher"))
        spread = max(spread, wide / normal_quantile(each))
    texts = tuple(
        FoundText(search.texts[i], bool(search.whole[i]), Statistic(float(values[i]) - mean, spread, 0.0))
        for i in map(int, listed)
    )
    least = max(needed - mean + _SURE * float(chance.std()), search.needs)
    return Discovery(experiment, reports, texts, len(values), least)


def discover_in(
    mechanism: Prefix,
    levels: Sequence[SlotShares],
    letters: str,
    limits: SearchLimits = SearchLimits(),
) -> Discovery:
    """Find texts in the estimates of all levels.

    Args:
        mechanism: The mechanism.
        levels: The estimates of each level.
        letters: All characters of the texts.
        limits: The limits of the search.
    """
    *search, last = levels
    candidates = search_texts(mechanism, search, Alphabet(letters), limits)
    slots = slots_of(mechanism, len(search), candidates.rows)
    hidden = hidden_slots(last, slots)
    # Compare the candidates that may be listed, and all others that the search found to be certainly common.
    count = max(compared_count(last, candidates), int((candidates.scores > _heavy(last)).sum()))
    slots = slots[:count]
    alone = _alone(slots)
    left_out = int((last.shares[slots[~alone]] > _heavy(last)).sum())
    rest, slots = _without(last, slots[~alone], slots[alone])
    candidates = candidates.chosen(np.flatnonzero(alone))
    count = compared_count(rest, candidates)
    # The slot of a compared text that nobody sent is none of the others' slots either.
    listed, shares, least = list_texts(*_without(rest, slots[count:], slots[:count]))
    texts = tuple(
        FoundText(_text(candidates.rows[i]), not candidates.rows[i, -1], share)
        for i, share in zip(listed, shares, strict=True)
    )
    if count:
        least = max(least, float(candidates.needs[count - 1]))
    reports = sum(level.reports for level in levels)
    return Discovery(mechanism.experiment, reports, texts, count, least, *hidden, left_out)


@dataclass(frozen=True)
class SearchResult:
    """The best beginnings of full length, best first.

    Attributes:
        rows: Their bytes, shape (n, length).
        scores: Their shares by the search alone, shape (n,).
        needs: For each number of beginnings, the share with which a text is among that many 9 times in 10;
            shape (n,).
    """

    rows: npt.NDArray[np.uint8]
    scores: Floats
    needs: Floats

    def chosen(self, numbers: Ints) -> SearchResult:
        """Return some of the beginnings; `numbers` are rising indices, shape (m,)."""
        return SearchResult(self.rows[numbers], self.scores[numbers], self.needs[numbers])


def search_texts(
    mechanism: Prefix,
    levels: Sequence[SlotShares],
    alphabet: Alphabet,
    limits: SearchLimits = SearchLimits(),
) -> SearchResult:
    """Return the texts that may be common, from the levels used for the search."""
    survivors, path, scores, cut = NOTHING, np.zeros((1, 0)), np.zeros(1), 0.0
    needs = scores
    for number, level in enumerate(levels):
        longer = mechanism.lengths[number] - survivors.rows.shape[1]
        tried = np.cumsum(alphabet.ways(survivors.states, longer))
        if tried[0] > limits.tried:
            raise EstimateError(
                f"{tried[0]:,} beginnings of {mechanism.lengths[number]} bytes are too many to try: name "
                f"fewer characters by {option('alphabet')}"
            )
        fitting = int(np.searchsorted(tried, limits.tried, side="right"))
        survivors = alphabet.extend(survivors[:fitting], longer)
        shares = level.shares[slots_of(mechanism, number, survivors.rows)]
        path = np.column_stack([path[survivors.origin], shares])
        score = _score(path, levels[: number + 1])
        best = np.argsort(-score, kind="stable")
        some = best[: limits.beam]
        survivors, path, scores = survivors[some], path[some], score[some]
        needs = scores + _SURE * level.variance(0.0) ** 0.5
        if len(best) <= limits.beam:
            needs[-1] = 0.0  # nothing has been left out
        cut = max(cut, float(needs[-1]))
    count = max(limits.texts, len(levels[0].shares) // limits.slots_each)
    return SearchResult(survivors.rows[:count], scores[:count], np.maximum(needs, cut)[:count])


def compared_count(level: SlotShares, candidates: SearchResult) -> int:
    """Return how many candidates, best first, to test, so that the smallest possible share can be found.

    The content of each candidate's slot is assumed to be about its share in the search.
    """
    if not len(candidates.scores):
        return 0
    slots, falling = len(level.shares), np.sort(level.shares)[::-1]
    sure, least = _SURE * math.sqrt(level.variance(0.0)), _heavy(level)
    heavy = candidates.scores[: np.count_nonzero(falling > least)]
    heavy = heavy[heavy > least]
    before = np.arange(len(heavy))
    ahead = slots - np.searchsorted(falling[::-1], heavy + sure, side="right") - before
    # For each heavy candidate, the number of candidates up to which it is listed together with all before it.
    most = np.minimum.accumulate(before + MISTAKEN * (slots - before) / (np.maximum(ahead, 0) + 1))
    counts = np.arange(1, len(candidates.scores) + 1)
    listed = np.minimum(counts, (most >= counts[:, None]).sum(axis=1))
    allowed = listed + MISTAKEN / np.maximum(counts - listed, 1) * (slots - listed)
    needed = falling[np.minimum(allowed.astype(int), slots - 1)] + sure
    return int(counts[np.maximum(needed, candidates.needs).argmin()])


def _heavy(level: SlotShares) -> float:
    """Return the share above which a slot is heavy: its lower bound, over all slots, exceeds the median."""
    usual = max(float(np.median(level.shares)), 0.0)
    quantile = normal_quantile(1 - 2 * _NOISE / len(level.shares))
    above = usual + quantile * level.variance(usual) ** 0.5
    return usual + quantile * level.variance(above) ** 0.5


def hidden_slots(level: SlotShares, slots: Ints) -> tuple[int, float]:
    """Return the number and total share of the heavy slots that are not among the candidates' `slots`."""
    other_shares = np.delete(level.shares, slots)
    heavy = other_shares[other_shares > _heavy(level)] - float(np.median(level.shares))
    return len(heavy), float(heavy.sum())


def _alone(slots: Ints) -> npt.NDArray[np.bool_]:
    """Return which candidates have a slot to themselves, shape (n,)."""
    _, number, counts = np.unique(slots, return_inverse=True, return_counts=True)
    return counts[number] == 1


def _without(level: SlotShares, removed: Ints, slots: Ints) -> tuple[SlotShares, Ints]:
    """Return a level without the removed slots, and the new numbers of `slots`."""
    stays = np.ones(len(level.shares), bool)
    stays[removed] = False
    return SlotShares(level.shares[stays], level.reports, level.channel), (np.cumsum(stays) - 1)[slots]


def _score(path: Floats, levels: Sequence[SlotShares]) -> Floats:
    """Return the share of each longest beginning, shape (n,), from estimates of its levels, (n, levels)."""
    errors = np.array([level.variance(0.0) ** 0.5 for level in levels])
    weights = np.array([float(level.reports) for level in levels])
    return np.minimum(_last_of_falling(path, weights), (path + _HIGHEST * errors).min(axis=1))


def _last_of_falling(path: Floats, weights: Floats) -> Floats:
    """Return the last share, shape (n,), of the best falling fit to the estimates, (n, levels)."""
    backwards = np.cumsum((path * weights)[:, ::-1], axis=1) / np.cumsum(weights[::-1])
    return backwards.min(axis=1)


def slots_of(mechanism: Prefix, number: int, rows: npt.NDArray[np.uint8]) -> Ints:
    """Return the slot of each beginning at a level, numbered from 0, as in device/ldp_text.py."""
    start = mechanism.salt + bytes((number + 1,))
    data, size = rows.tobytes(), rows.shape[1]
    sha256 = hashlib.sha256
    digests = (sha256(start + data[i : i + size]).digest()[5:8] for i in range(0, len(data), size))
    numbers = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1])
    return numbers & (mechanism.slots - 1)


def list_texts(level: SlotShares, slots: Ints) -> tuple[Ints, list[Statistic], float]:
    """Return the candidates to list, largest share first, their shares, and the share found 9 times in 10.

    Candidates that share a slot are left out, because the reports cannot tell them apart.

    Args:
        level: The estimates of the last level.
        slots: The slots of the candidates.
    """
    alone = _alone(slots)
    level, slots = _without(level, slots[~alone], slots[alone])
    listed, needed = _listed(level.shares[slots], np.sort(np.delete(level.shares, slots)))
    others = np.delete(level.shares, slots[listed])
    # Each slot also holds unlisted texts, on average as many as all other slots do.
    mean, spread = float(others.mean()), float(others.var())
    statistics: list[Statistic] = []
    for at in listed:
        share = float(level.shares[slots[at]]) - mean
        variance = spread + level.variance(share) - level.variance(0.0)
        statistics.append(Statistic(share, variance**0.5, level.skew(share)))
    return np.flatnonzero(alone)[listed], statistics, needed - mean + _SURE * spread**0.5


def _listed(values: Floats, chance: Floats) -> tuple[Ints, float]:
    """Return the candidates to list, largest share first, and the share above which one more would be listed.

    Args:
        values: The shares of the candidates.
        chance: The estimates for texts that nobody sent, rising.
    """
    count, listed = len(values), 0
    order = np.argsort(-values, kind="stable")
    ahead = len(chance) - np.searchsorted(chance, values[order])
    p_values = (1 + ahead) / (1 + len(chance))
    while listed < count and p_values[listed] <= MISTAKEN / (count - listed):
        listed += 1
    allowed = int(MISTAKEN / max(count - listed, 1) * (1 + len(chance)))
    return order[:listed], float(chance[-max(min(allowed, len(chance)), 1)])


def _text(row: npt.NDArray[np.uint8]) -> str:
    """Return a text's characters, without the last one if it is cut."""
    return row.tobytes().rstrip(b"\0").decode(errors="ignore")
