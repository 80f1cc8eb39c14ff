"""Estimate the shares of listed texts from a histogram over slots.

In a text experiment, each text is hashed with a salt to a slot (device/ldp_text.py). The analyst lists
candidates. Candidates in the same slot cannot be told apart and form a single row, because only their sum can
be estimated. The free slots, which have no candidate, contain only other texts. The hash spreads other texts
evenly, so a free slot's mean share is also the expected share of other texts in every slot. If F are the
shares of the m slots and T is the sum of F over the slots with candidates, a row's share is F - (1 - T) /
free, and the share of all other texts is (1 - T) m / free. Without other texts, T is 1 and nothing is
subtracted; for a single candidate, the share is (F - 1/m) / (1 - 1/m).

Both are linear in the histogram. The hash adds an error, because any other text either falls into a row's
slot or does not. Over all salts, the variance of this error is that of the free slots' shares minus their
noise.

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

_MIN_FREE = 2  # slots without a candidate; a variance cannot be estimated from fewer


@dataclass(frozen=True)
class Candidates:
    """Candidate texts with their slots and rows.

    Attributes:
        texts: The distinct texts, in list order.
        row: Each text's row, shape (texts,). The texts in a row share a slot in one of the experiments,
            directly or through others, so only their sum can be estimated.
        slots: Each text's slot, shape (texts,), by the experiment's salt and number of slots.
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
        """The texts in each row."""
        result: list[list[str]] = [[] for _ in range(self.rows)]
        for text, row in zip(self.texts, map(int, self.row), strict=True):
            result[row].append(text)
        return [tuple(texts) for texts in result]


@dataclass(frozen=True)
class CandidateShares:
    """The shares of candidates, and of all other texts combined; returned by shares_of().

    Attributes:
        candidates: The candidates.
        listed: The share of each row of candidates, shape (rows,).
        others: The combined share of all texts that are not candidates, including boards without a reading.
        min_free_fraction: The smallest fraction of slots without a candidate in any experiment.
    """

    candidates: Candidates
    listed: Statistics
    others: Statistic
    min_free_fraction: float

    @property
    def p_values(self) -> Floats:
        """For each row, the one-sided p-value for the hypothesis that no device has any of its texts."""
        value, stderr = self.listed.value, self.listed.stderr
        exact = np.where(value > 0, np.inf, -np.inf)
        return special.ndtr(-np.divide(value, stderr, out=exact, where=stderr > 0))


def place_candidates(texts: Sequence[str], experiments: Sequence[Experiment]) -> Candidates:
    """Assign candidates to slots with the devices' hash, for each salt that the experiments use.

    Raises:
        EstimateError: If the list is empty or a candidate is repeated.
    """
    if not texts:
        raise EstimateError("the list of candidates is empty; name at least one text")
    if len(set(texts)) != len(texts):
        (repeated, _), *_ = Counter(texts).most_common(1)
        raise EstimateError(f"{repeated!r} is listed twice; name every candidate only once")
    slots: dict[tuple[bytes, int], Ints] = {}
    for experiment in experiments:
        key = _hash_parameters(experiment)
        if key not in slots:
            slots[key] = np.fromiter(map(experiment.bucket, texts), np.int64, len(texts))  # type: ignore
    return Candidates(tuple(texts), _rows(list(slots.values())), slots)


def _hash_parameters(experiment: Experiment) -> tuple[bytes, int]:
    """Return the parameters that determine a text's slot."""
    fields = vars(experiment)  # set by device/ldp_text.py
    return fields["salt"], fields["slots"]


def _rows(slots: Sequence[Ints]) -> Ints:
    """Return each text's row: texts that share a slot, directly or through others, share a row."""
    numbers = [np.unique(column, return_inverse=True)[1] for column in slots]
    first = np.arange(len(slots[0]))  # the first text known to be in the same row
    before = None
    while before is None or (first != before).any():
        before = first
        for number in numbers:
            lowest = np.full(int(number.max()) + 1, len(first))
            np.minimum.at(lowest, number, first)
            first = lowest[number]
    return np.unique(first, return_inverse=True)[1].astype(np.int64)


@dataclass(frozen=True)
class _Moments:
    """Values, the noise's second and third cumulants, and standard deviations caused by the hash."""

    value: Floats
    variance: Floats
    third: Floats
    hash_error: Floats


def shares_of(estimates: Estimates, candidates: Candidates) -> CandidateShares:
    """Return the candidates' shares in the population, pooled over windows and versions like the estimates.

    The intervals account for the randomness of reports and of salts.

    Args:
        estimates: The estimates.
        candidates: The candidates from place_candidates(), for all versions in the estimates.

    Raises:
        EstimateError: If an experiment has fewer than two slots without a candidate.
    """
    pooled = [np.zeros(candidates.rows + 1) for _ in range(3)]
    hashed: dict[tuple[bytes, int], Floats] = {}
    free = 1.0
    for weight, part in estimates.parts:
        key = _hash_parameters(part.experiment)
        filled, first = np.unique(candidates.slots[key], return_index=True)
        empty = part.domain - len(filled)
        if empty < _MIN_FREE:
            raise EstimateError(
                f"{len(candidates.texts):,} candidates fill the {part.domain:,} slots of "
                f"{part.experiment.name}; list fewer, or use more slots"
            )
        free = min(free, empty / part.domain)
        moments = _moments(part, filled, candidates.row[first], candidates.rows)
        for total, moment, power in zip(
            pooled, (moments.value, moments.variance, moments.third), (1, 2, 3), strict=True
        ):
            total += weight**power * moment
        # A salt causes the same error in all versions that use it.
        hashed[key] = hashed.get(key, 0.0) + weight * moments.hash_error
    value, variance, third = pooled
    total_variance = variance + np.sum([error**2 for error in hashed.values()], axis=0)
    skew = np.divide(third, total_variance, out=np.zeros_like(third), where=total_variance > 0)
    statistics = Statistics(value, np.sqrt(total_variance), skew)
    listed = Statistics(*(x[:-1] for x in (statistics.value, statistics.stderr, statistics.skew)))
    return CandidateShares(candidates, listed, statistics[candidates.rows], free)


def _moments(part: Estimates, filled: Ints, row: Ints, rows: int) -> _Moments:
    """Return each row's moments in one experiment, followed by those of all other texts.

    Args:
        part: The experiment's estimates.
        filled: The slots with candidates.
        row: The row of each slot in `filled`.
        rows: The number of rows.
    """
    slots = part.domain
    empty = slots - len(filled)
    mask = np.ones(slots, bool)
    mask[filled] = False
    x, spread = part.frequencies, part.spread
    total = part.linear(~mask)
    # Variance of a slot's share.
    by_hash = max(float(x[mask].var(ddof=1) - spread.variance[mask].mean()), 0.0)

    def summed(numbers: Floats) -> Floats:
        return np.bincount(row, numbers, rows).astype(np.float64)

    slot_counts = summed(np.ones(len(filled)))  # the number of slots in each row
    value = summed(x[filled]) - slot_counts * ((1 - total.value) / empty)
    variance, third = summed(spread.variance[filled]), summed((spread.variance * spread.skew)[filled])
    # The subtracted part also has an error; since the two may be correlated, use the sum as an upper bound.
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
    """Return a row's share; the index after the last row stands for all other texts."""
    return shares.others if row == shares.candidates.rows else shares.listed[row]
