"""Whether a histogram of codes can come from honest boards at all, whatever their readings are.

Some of what a report says is drawn without looking at the reading: the level of a hierarchy and the hash's
seed. Their counts must fit their probabilities. The rest is bounded by the mechanism: a value is supported by
a report with probability between q (nobody holds it) and p (everybody does), and the supports of all values
together have one known mean. A histogram that breaks one of these was not made by boards alone. The converse
is not true: forgers who draw levels and seeds as boards do, and stay between q and p, are not seen.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from ...device.ldp_client import Experiment, Level
from ..mechanisms import choose as oracle
from ..mechanisms import local_hashing as decode

# Of the smallest p times the number of checks. A chi-square's p is an approximation: with the least number
# of reports in each group honest fleets still get below it with a chance under 1e-9.
ALARM = 1e-12
LEAST_REPORTS = 100
_GROUP_REPORTS = 20  # expected in a group of seeds or levels; at least half of it where groups are uneven

Kind = Literal["levels", "seeds", "shares", "sum"]


@dataclass(frozen=True)
class Check:
    """One thing that honest boards cannot bring about.

    kind       "levels" and "seeds": how often each is drawn; "shares": supports of each value, between q
               and p; "sum": supports of all values together
    level      of the hierarchy, from 0 at the top; None for all together
    statistic  chi-square, or how many reports there are of levels that are never drawn; for shares the
               support, out of 1, that is furthest out; for sum the estimated shares' sum, 1 of honest boards
    p          chance at most, for honest boards, of something so far out
    words      what was found
    """

    kind: Kind
    level: int | None
    statistic: float
    p: float
    words: str


@dataclass(frozen=True)
class Plausibility:
    """What all checks of a histogram say together.

    reports  number of reports
    checks   those that were made; empty where reports are too few
    p        the smallest p times the number of checks, at most 1; None without checks
    words    one sentence
    """

    reports: int
    checks: tuple[Check, ...]
    p: float | None
    words: str

    @property
    def implausible(self) -> bool:
        """Whether honest boards cannot have made this histogram: p below ALARM."""
        return self.p is not None and self.p < ALARM

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"implausible": self.implausible}


def check(experiment: Experiment, counts: npt.ArrayLike) -> Plausibility:
    """Check a histogram of codes, shape (code_count,), integers not below 0.

    Takes about as long as decoding it once. Raises ValueError for another shape.

    Utility: an honest fleet is called implausible with a chance below 1e-9, whatever its population and size.
    Citation: the sum by Maurer and Pontil, "Empirical Bernstein Bounds and Sample Variance Penalization",
    COLT 2009, Theorem 4; shares by binomial bounds, which stochastic dominance makes exact.
    """
    codes = np.asarray(counts, dtype=np.int64)
    if codes.shape != (experiment.code_count,):
        raise ValueError(
            f"histogram has shape {codes.shape}, the experiment has {experiment.code_count} codes"
        )
    reports = int(codes.sum())
    if reports < LEAST_REPORTS:
        words = f"{reports:,} reports are too few to tell; {LEAST_REPORTS} are needed"
        return Plausibility(reports, (), None, words)
    parts = [codes[level.offset : level.offset + level.code_count] for level in experiment.levels]
    checks = [*_levels(experiment, [int(part.sum()) for part in parts])]
    for number, (level, part) in enumerate(zip(experiment.levels, parts, strict=True)):
        checks += _level(level, part, number if len(parts) > 1 else None)
    p = min(1.0, min(one.p for one in checks) * len(checks))
    worst = min(checks, key=lambda one: one.p)
    words = "nothing that honest boards cannot do"
    if p < ALARM:
        words = f"honest boards do not send this: {worst.words}"
    return Plausibility(reports, tuple(checks), p, words)


def _levels(experiment: Experiment, reports: list[int]) -> Iterator[Check]:
    if len(reports) == 1:
        return
    never = sum(n for n, level in zip(reports, experiment.levels, strict=True) if not level.weight)
    if never:
        yield Check("levels", None, float(never), 0.0, f"{never:,} reports of levels that are never drawn")
        return
    total = sum(reports)
    drawn = sorted(
        (level.weight, n) for n, level in zip(reports, experiment.levels, strict=True) if level.weight
    )
    expected, seen = [0.0], [0]
    for weight, n in drawn:  # rare levels are put together until enough reports are expected
        if expected[-1] >= _GROUP_REPORTS:
            expected.append(0.0)
            seen.append(0)
        expected[-1] += total * weight / experiment.weight_sum
        seen[-1] += n
    if len(seen) > 1 and expected[-1] < _GROUP_REPORTS:
        expected[-2:], seen[-2:] = [sum(expected[-2:])], [sum(seen[-2:])]
    if len(seen) > 1:
        statistic, p = _chi_square(np.array(seen), np.array(expected))
        yield Check("levels", None, statistic, p, "levels are not drawn by their weights")


def _level(level: Level, codes: npt.NDArray[np.int64], number: int | None) -> Iterator[Check]:
    reports = int(codes.sum())
    if not reports:
        return
    where = "" if number is None else f" of level {number}"
    groups = min(level.seeds, reports // _GROUP_REPORTS)
    if groups > 1:
        edges = np.arange(groups + 1) * level.seeds // groups
        seen = np.add.reduceat(codes.reshape(level.seeds, level.g).sum(axis=1), edges[:-1])
        statistic, p = _chi_square(seen, reports * np.diff(edges) / level.seeds)
        words = (
            f"the hash seeds{where} are not drawn evenly (chi-square {statistic:.4g}, {groups - 1} degrees)"
        )
        yield Check("seeds", number, statistic, p, words)
    channel = oracle.level_channel(level)
    classes = decode.collapse(level, codes)
    supports = decode.class_supports(level, classes)
    yield _shares(channel, supports, reports, number, where)
    if level.t and level.g**level.t != level.domain:  # else each report supports as many values as any other
        yield from _sum(level, channel, classes, reports, number, where)


def _shares(
    channel: oracle.Channel, supports: npt.NDArray[Any], reports: int, number: int | None, where: str
) -> Check:
    """Supports are sums of coins of chances from q to p: binomials of q and of p bound their tails."""
    most, least = int(supports.max()), int(supports.min())
    high = float(special.betainc(most, reports - most + 1, channel.p)) if most else 1.0
    low = float(special.betainc(reports - least, least + 1, 1 - channel.q)) if least < reports else 1.0
    p = min(1.0, 2 * channel.domain * min(high, low))
    if high < low:
        words = f"a value{where} has more supports than if all boards held it"
        return Check("shares", number, most / reports, p, words)
    words = f"a value{where} has fewer supports than if no board held it"
    return Check("shares", number, least / reports, p, words)


def _sum(
    level: Level,
    channel: oracle.Channel,
    classes: npt.NDArray[np.int64],
    reports: int,
    number: int | None,
    where: str,
) -> Iterator[Check]:
    if reports < 2:
        return
    supported = decode.class_weights(level, np.ones(level.domain))
    mean = float(classes @ supported) / reports
    variance = float(classes @ (supported - mean) ** 2) / (reports - 1)
    width = float(supported.max() - supported.min())
    expected = channel.p + (level.domain - 1) * channel.q
    # distance = sqrt(2 variance x / n) + 7 width x / (3 (n - 1)), solved for x = ln(2 / chance), two-sided.
    a, b = 7 * width / (3 * (reports - 1)), math.sqrt(2 * variance / reports)
    distance = abs(mean - expected)
    root = (math.sqrt(b * b + 4 * a * distance) - b) / (2 * a)
    total = (mean - level.domain * channel.q) / (channel.p - channel.q)
    words = f"the estimated shares{where} sum to {total:.4g} instead of 1"
    yield Check("sum", number, total, min(1.0, 4 * math.exp(-root * root)), words)


def _chi_square(seen: npt.NDArray[Any], expected: npt.NDArray[Any]) -> tuple[float, float]:
    statistic = float(((seen - expected) ** 2 / expected).sum())
    return statistic, float(special.chdtrc(len(seen) - 1, statistic))
