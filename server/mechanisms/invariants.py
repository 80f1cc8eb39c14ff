"""Check a histogram for counts that honest devices cannot produce with any readings.

Two parts of a report are drawn independently of the reading, the stratum (a hierarchy's level) and the run (a
hash's seed), so their counts must fit their probabilities. The mechanism bounds the rest: if codes support
values, a report supports a value with a probability between q (no device has it) and p (all devices have it),
and the total support of all values has a known mean.

Citation for the sum: Maurer and Pontil, "Empirical Bernstein Bounds and Sample Variance Penalization", COLT
2009, Theorem 4. Shares use binomial bounds, which are exact by stochastic dominance.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .. import special
from ..arrays import Array, Counts
from .channel import SupportCode

GROUP_REPORTS = 20  # reports expected in a group of runs or strata, or half as many if groups are uneven


@dataclass(frozen=True)
class Check:
    """A check's result.

    Attributes:
        kind: "levels" or "seeds" for how many times each is drawn; "shares" for the support of each value, or
            the number of reports with each code, which must lie between the counts for none and for all of
            the devices; "sum" for the total support of all values.
        level: The hierarchy level, from 0 at the top, or None for all levels together.
        statistic: The chi-squared statistic, or the number of reports from levels that are never drawn; for
            "shares" the most extreme count as a fraction of all reports; for "sum" the sum of the estimated
            shares, 1 for honest boards.
        p: An upper bound on the probability that honest devices produce a result this extreme.
        words: The result as text.
    """

    kind: Literal["levels", "seeds", "shares", "sum"]
    level: int | None
    statistic: float
    p: float
    words: str


def known_chances(chances: Sequence[float], reports: Sequence[int]) -> Iterator[Check]:
    """Check each stratum's number of reports."""
    if len(reports) == 1:
        return
    never = sum(n for n, chance in zip(reports, chances, strict=True) if not chance)
    if never:
        words = f"{never:,} report{'s' * (never != 1)} from levels that are never drawn"
        yield Check("levels", None, float(never), 0.0, words)
        return
    total = sum(reports)
    strata = sorted((chance, n) for n, chance in zip(reports, chances, strict=True) if chance)
    expected, observed = [0.0], [0]
    for chance, n in strata:  # merge rare strata until enough reports are expected
        if expected[-1] >= GROUP_REPORTS:
            expected.append(0.0)
            observed.append(0)
        expected[-1] += total * chance
        observed[-1] += n
    if len(observed) > 1 and expected[-1] < GROUP_REPORTS:
        expected[-2:], observed[-2:] = [sum(expected[-2:])], [sum(observed[-2:])]
    if len(observed) > 1:
        statistic, p = _chi_square(np.array(observed), np.array(expected))
        yield Check("levels", None, statistic, p, "levels are not drawn in proportion to their weights")


def even_runs(counts: Counts, runs: int, level: int | None) -> Iterator[Check]:
    """Check that the runs in a stratum with these code counts are drawn equally often."""
    reports = int(counts.sum())
    groups = min(runs, reports // GROUP_REPORTS)
    if groups > 1:
        edges = np.arange(groups + 1) * runs // groups
        observed = np.add.reduceat(counts.reshape(runs, -1).sum(axis=1), edges[:-1])
        statistic, p = _chi_square(observed, reports * np.diff(edges) / runs)
        words = f"the hash seeds{_where(level)} are not drawn evenly (chi-square {statistic:.4g}, "
        yield Check("seeds", level, statistic, p, f"{words}{groups - 1} degrees)")


def bounded_supports(code: SupportCode, classes: Counts, level: int | None) -> Iterator[Check]:
    """Check each value's support, and the total support, from a level's counts by class."""
    reports = int(classes.sum())
    if not reports:
        return
    yield _shares(code, code.class_supports(classes), reports, level)
    if not code.even and reports > 1:
        yield _sum(code, classes, reports, level)


def _shares(code: SupportCode, supports: Counts, reports: int, level: int | None) -> Check:
    """Check supports as sums of independent trials with probabilities between q and p."""
    channel = code.channel
    above = f"a value{_where(level)} has more support than if all devices had it"
    below = f"a value{_where(level)} has less support than if no device had it"
    return bounded(supports, reports, (channel.q, channel.p), (below, above), level)


def bounded(
    counts: Counts,
    reports: int,
    chances: tuple[float, float],
    words: tuple[str, str],
    level: int | None = None,
) -> Check:
    """Check counts of events whose probability has known bounds for every reading.

    Args:
        counts: The counts, integers of shape (n,).
        reports: The number of reports.
        chances: The lowest and the highest probability.
        words: The result as text if a count is too low, and if a count is too high.
        level: The hierarchy level, or None.
    """
    highest, lowest = int(counts.max()), int(counts.min())
    high = float(special.betainc(highest, reports - highest + 1, chances[1])) if highest else 1.0
    low = float(special.betainc(reports - lowest, lowest + 1, 1 - chances[0])) if lowest < reports else 1.0
    p = min(1.0, 2 * len(counts) * min(high, low))
    if high < low:
        return Check("shares", level, highest / reports, p, words[1])
    return Check("shares", level, lowest / reports, p, words[0])


def _sum(code: SupportCode, classes: Counts, reports: int, level: int | None) -> Check:
    channel = code.channel
    supported = code.class_weights(np.ones(channel.domain))
    mean = float(classes @ supported) / reports
    variance = float(classes @ (supported - mean) ** 2) / (reports - 1)
    width = float(supported.max() - supported.min())
    expected = channel.p + (channel.domain - 1) * channel.q
    # Solve distance = sqrt(2 variance x / n) + 7 width x / (3 (n - 1)) for x = ln(2 / chance), two-sided.
    a, b = 7 * width / (3 * (reports - 1)), math.sqrt(2 * variance / reports)
    distance = abs(mean - expected)
    root = (math.sqrt(b * b + 4 * a * distance) - b) / (2 * a)
    total = (mean - channel.domain * channel.q) / (channel.p - channel.q)
    words = f"the estimated shares{_where(level)} sum to {total:.4g} instead of 1"
    return Check("sum", level, total, min(1.0, 4 * math.exp(-root * root)), words)


def _where(level: int | None) -> str:
    return "" if level is None else f" on level {level}"


def _chi_square(observed: Array, expected: Array) -> tuple[float, float]:
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic, float(special.chdtrc(len(observed) - 1, statistic))
