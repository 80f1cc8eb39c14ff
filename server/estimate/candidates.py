"""Shares of a given list of texts, from a histogram over slots.

In an experiment of texts, each text has a slot, a salted hash of it (device/ldp_text.py). The analyst has a
list of candidates. Candidates in the same slot cannot be told apart and form one row: only their sum can be
estimated. The free slots, those without a candidate, hold only other texts. The hash spreads these evenly, so
the mean share of a free slot is also the share of other texts in every slot. With F the shares of the m slots
and T the sum of F over the slots that have candidates, a row's share is F - (1 - T) / free, and that of all
other texts (1 - T) m / free. If no other text exists, T is 1 and nothing is subtracted; for a single
candidate the share is (F - 1/m) / (1 - 1/m).

Both are linear in the histogram. The hash adds an error of its own: another text is in a row's slot or it is
not. Over salts its variance is that of the free slots' shares, minus the noise in them.

Bassily, Smith, "Local, Private, Efficient Protocols for Succinct Histograms", STOC 2015, also hash texts to
slots; since the hash is uniform, the free slots show how much other texts add to a slot.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...device.ldp_client import Experiment
from .. import special
from ..arrays import Floats, Ints
from .estimate import Estimates
from .statistic import EstimateError, Statistic, Statistics

_FEWEST_FREE = 2  # slots without a candidate; fewer do not determine a variance


@dataclass(frozen=True)
class Candidates:
    """Texts with their slots and rows.

    Attributes:
        texts: Different texts, in the order of the list.
        row: The row of each text, shape (texts,). Texts of one row share a slot in one of the experiments,
            directly or through others, so only their sum can be estimated.
        slots: For each experiment's salt and number of slots, the slot of each text, shape (texts,).
    """

    texts: tuple[str, ...]
    row: Ints
    slots: dict[tuple[bytes, int], Ints]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.row.max()) + 1

    @cached_property
    def members(self) -> list[tuple[str, ...]]:
        """The texts of each row."""
        result: list[list[str]] = [[] for _ in range(self.rows)]
        for text, row in zip(self.texts, map(int, self.row), strict=True):
            result[row].append(text)
        return [tuple(texts) for texts in result]


@dataclass(frozen=True)
class CandidateShares:
    """Shares of candidates and of all other texts together; made by shares_of().

    Attributes:
        listed: The shares of the candidates' rows, shape (rows,).
        others: The share of all texts that are not candidates, including boards without a reading.
        free: The smallest fraction of an experiment's slots without a candidate.
    """

    candidates: Candidates
    listed: Statistics
    others: Statistic
    free: float

    @property
    def p_values(self) -> Floats:
        """For each row, the one-sided p-value of the hypothesis that no device has any of its texts."""
        value, stderr = self.listed.value, self.listed.stderr
        exact = np.where(value > 0, np.inf, -np.inf)
        return special.ndtr(-np.divide(value, stderr, out=exact, where=stderr > 0))


def place(texts: Sequence[str], experiments: Sequence[Experiment]) -> Candidates:
    """Place candidates by the devices' own hash; if experiments have different salts, by all of them.

    Raises:
        EstimateError: If there are no candidates, or one is repeated.
    """
    if not texts:
        raise EstimateError("the list of candidates is empty: name at least one text")
    if len(set(texts)) != len(texts):
        (twice, _), *_ = Counter(texts).most_common(1)
        raise EstimateError(f"{twice!r} is listed twice: name every candidate once")
    slots: dict[tuple[bytes, int], Ints] = {}
    for experiment in experiments:
        key = _key(experiment)
        if key not in slots:
            slots[key] = np.fromiter(map(experiment.bucket, texts), np.int64, len(texts))  # type: ignore
    return Candidates(tuple(texts), _rows(list(slots.values())), slots)


def _key(experiment: Experiment) -> tuple[bytes, int]:
    """Return the parameters that a text's slot depends on."""
    fields = vars(experiment)  # set by device/ldp_text.py
    return fields["salt"], fields["slots"]


def _rows(slots: Sequence[Ints]) -> Ints:
    """Return the row of each text: texts that share a slot, directly or through others, share a row."""
    numbers = [np.unique(one, return_inverse=True)[1] for one in slots]
    first = np.arange(len(slots[0]))  # the first text that is known to be in the same row
    before = None
    while before is None or (first != before).any():
        before = first
        for number in numbers:
            least = np.full(int(number.max()) + 1, len(first))
            np.minimum.at(least, number, first)
            first = least[number]
    return np.unique(first, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class _Moments:
    """Values, second and third cumulants of the noise, and standard deviations due to the hash."""

    value: Floats
    variance: Floats
    third: Floats
    hash_error: Floats


def shares_of(estimates: Estimates, candidates: Candidates) -> CandidateShares:
    """Return the candidates' shares of the population, over windows and versions as the estimate pools them.

    The intervals hold over reports and salts.

    Args:
        estimates: The estimates.
        candidates: The candidates, placed in all versions of the estimates by place().

    Raises:
        EstimateError: If fewer than two of an experiment's slots are without a candidate.
    """
    pooled = [np.zeros(candidates.rows + 1) for _ in range(3)]
    hashed: dict[tuple[bytes, int], Floats] = {}
    free = 1.0
    for weight, part in estimates.parts:
        key = _key(part.experiment)
        filled, first = np.unique(candidates.slots[key], return_index=True)
        empty = part.domain - len(filled)
        if empty < _FEWEST_FREE:
            raise EstimateError(
                f"{len(candidates.texts):,} candidates fill the {part.domain:,} slots of "
                f"{part.experiment.name}: list fewer, or ask with more slots"
            )
        free = min(free, empty / part.domain)
        one = _moments(part, filled, candidates.row[first], candidates.rows)
        for total, moment, power in zip(pooled, (one.value, one.variance, one.third), (1, 2, 3), strict=True):
            total += weight**power * moment
        # A salt causes the same error in all versions that have it.
        hashed[key] = hashed.get(key, 0.0) + weight * one.hash_error
    value, variance, third = pooled
    whole = variance + np.sum([error**2 for error in hashed.values()], axis=0)
    skew = np.divide(third, whole, out=np.zeros_like(third), where=whole > 0)
    statistics = Statistics(value, np.sqrt(whole), skew)
    listed = Statistics(*(x[:-1] for x in (statistics.value, statistics.stderr, statistics.skew)))
    return CandidateShares(candidates, listed, statistics[candidates.rows], free)


def _moments(part: Estimates, filled: Ints, row: Ints, rows: int) -> _Moments:
    """Return the moments of each row, and last of all other texts, in one experiment.

    Args:
        part: The estimates of one experiment.
        filled: The slots that have candidates.
        row: The row of each of these slots.
        rows: The number of rows.
    """
    slots = part.domain
    empty = slots - len(filled)
    mask = np.ones(slots, bool)
    mask[filled] = False
    x, spread = part.frequencies, part.spread
    total = part.linear(~mask)
    by_hash = max(
        float(x[mask].var(ddof=1) - spread.variance[mask].mean()), 0.0
    )  # variance of a slot's share

    def summed(numbers: Floats) -> Floats:
        return np.bincount(row, numbers, rows).astype(np.float64)

    slot_counts = summed(np.ones(len(filled)))  # slots of each row
    value = summed(x[filled]) - slot_counts * ((1 - total.value) / empty)
    variance, third = summed(spread.variance[filled]), summed((spread.variance * spread.skew)[filled])
    # The subtracted part has an error too; as the two may be correlated, take the sum as an upper bound.
    variance = (np.sqrt(variance) + slot_counts * (total.stderr / empty)) ** 2
    hash_error = np.sqrt(by_hash * slot_counts * (1 + slot_counts / empty))
    spread_out = slots / empty
    return _Moments(
        np.append(value, (1 - total.value) * spread_out),
        np.append(variance, (total.stderr * spread_out) ** 2),
        np.append(third, -total.skew * total.stderr**2 * spread_out**3),
        np.append(hash_error, np.sqrt(by_hash * len(filled) * spread_out)),
    )


def statistic_of(shares: CandidateShares, row: int) -> Statistic:
    """Return a row's share; the row after the last is that of all other texts."""
    return shares.others if row == shares.candidates.rows else shares.listed[row]
