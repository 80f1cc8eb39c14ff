"""ε of a histogram, in nats: how much someone who sees only counts of codes learns about one device.

A histogram does not show who sent which code. A board's report is hidden among the codes that any other board
could have sent as well: whatever its reading, a board draws with probability γ from one common distribution,
the *blanket*. Let E be the odds of a report, a and b two readings of one board, and K the probability in the
blanket of the codes that support a but not b, which is also that of the codes that support b but not a. With
x = e^ε' a histogram of n reports, one of them the board's, is (ε', δ)-DP with

    δ = E[(N0 (E - x) - N1 (xE - 1) - N2 (x - 1))_+] / n

where (N0, N1, N2, rest) is multinomial, with n trials and probabilities K, K, γ - 2K: codes for a, for b, for
neither. Codes that support both are counted as neither, which only increases δ. It holds in both directions,
since a and b are interchangeable, and whatever the other boards' readings are.

The computed value is at most a few parts in a thousand too high and never too low. Given M = N0 + N1, N0 is
Binomial(M, ½) and the mean of a positive part has a closed form. Of neighbouring M only the largest is
evaluated, with the drift of the smallest: moving from one to the other adds noise of mean 0 to a convex
function. In N2 the function is convex, and lies below its chords. The probability outside the windows is
added.

Source: Balle, Bell, Gascón, Nissim, "The Privacy Blanket of the Shuffle Model", CRYPTO 2019, Lemma 5.3. For
the clones, which need the odds alone: Feldman, McMillan, Talwar, "Stronger Privacy Amplification by Shuffling
for Rényi and Approximate Differential Privacy", SODA 2023.
"""

# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from .. import special
from ..arrays import Floats
from .binomial import log_chances
from .errors import AccountingError, positive, probability, whole

MOST_SHUFFLED = 10**9
"""The largest number of reports for which the ε of a histogram is computed; more count as this many."""

USUAL_HISTOGRAM_DELTA = 1e-6
"""The default δ of a histogram's ε."""

_MARGIN = 1e-8  # generous bound on the relative error of the sums, which the tests compare with 40 digits
_SLACK = 1e-13  # generous bound on the relative error of a distribution function
_FINE = 0.0003  # fraction of M that is evaluated together, about the relative error of ε'
_RUNG_BITS = 8  # numbers of reports are rounded down to this many binary digits


@dataclass(frozen=True)
class Blanket:
    """The blanket: the part of a report's distribution that all readings share.

    Attributes:
        odds: How much likelier a code can be for one value than for another: e to the ε of a report, above 1.
        pair: K, the probability that a report is drawn from the blanket and supports only the first of two
            given values.
        whole: γ, the probability that a report is drawn from the blanket.

    Raises:
        AccountingError: Unless 0 < pair, 2 pair <= whole <= 1 and 1 < odds < infinity.
    """

    odds: float
    pair: float
    whole: float

    def __post_init__(self) -> None:
        if not (1 < self.odds < math.inf and 0 < 2 * self.pair <= self.whole * (1 + 1e-12) <= 1 + 2e-12):
            raise AccountingError(f"no mechanism has such a blanket: {self}")

    @staticmethod
    def of_clones(odds: float) -> Blanket:
        """Return the blanket that every mechanism of these odds has at least."""
        return Blanket(odds, 1 / (odds + 1), 2 / (odds + 1))

    @property
    def epsilon(self) -> float:
        """ε of one report, in nats, rounded up."""
        return math.nextafter(math.log(self.odds), math.inf)


def histogram_delta(blanket: Blanket, reports: int, epsilon: float) -> float:
    """Return a δ for which a histogram is (epsilon, δ)-DP for a board with one report in it.

    Args:
        blanket: The blanket of the reports.
        reports: The number of reports of honest boards, including the board's own, at least 1; more count as
            MOST_SHUFFLED.
        epsilon: ε of the histogram, in nats, above 0.

    Returns:
        A number in [0, 1], rounded up; 0 if epsilon is at least the ε of a report.

    Raises:
        AccountingError: If an argument is out of range.
    """
    n, epsilon = whole("the number of reports", reports), positive("epsilon", epsilon)
    n = min(n, MOST_SHUFFLED)
    return min(_Sum(b, n, epsilon, 80.0).delta(epsilon) for b in _valid_blankets(blanket))


def histogram_epsilon(blanket: Blanket, reports: int, delta: float, own: int = 1) -> float:
    """Return the ε' for which a histogram is (ε', delta)-DP for a board with some reports in it.

    Args:
        blanket: The blanket of the reports.
        reports: The number of reports of honest boards, including the board's own.
        delta: δ of the histogram, in [0, 1).
        own: The number of reports of the board, at least 1.

    Returns:
        ε' in nats, rounded up. It is never above own times the ε of a report, and never smaller for fewer
        reports, because their number is rounded down to 8 binary digits.

    Raises:
        AccountingError: If an argument is out of range.
    """
    return composed_epsilon([(blanket, reports)], delta, own)


def composed_epsilon(parts: Sequence[tuple[Blanket, int]], delta: float, own: int = 1) -> float:
    """Return ε' of several histograms seen together.

    The board's reports are assumed to be where they are least hidden: group privacy, one report after
    another, in the histograms with the largest ε'.

    Args:
        parts: The blanket and the number of reports of each histogram.
        delta: As in histogram_epsilon().
        own: The largest number of reports of one board in all of them.

    Raises:
        AccountingError: If an argument is out of range.
    """
    own, delta = whole("the number of own reports", own), probability("delta", delta)
    sizes = [(b, min(whole("the number of reports", n), MOST_SHUFFLED)) for b, n in parts]
    steps = min(own, sum(n for _, n in sizes))
    if not steps:
        return 0.0
    sizes = _fewest(sizes, steps)
    pure = _worst([(b.epsilon, n) for b, n in sizes], steps)
    if not delta:
        return _total(pure)
    each = delta / steps
    while each > 1e-300:
        worst = _worst([(_one_epsilon(b, _rung(n), each), n) for b, n in sizes], steps)
        # A step that costs the full ε of a report adds no δ; the δ of other steps grow with each later step.
        factor, before = 0.0, 0.0
        for epsilon, count in worst:
            if before + epsilon * count >= 700 or not epsilon:
                factor += count if not epsilon else math.inf
            else:
                factor += math.exp(before) * math.expm1(epsilon * count) / math.expm1(epsilon)
            before += epsilon * count
        if not math.isfinite(factor):
            break
        if each * factor <= delta:
            return min(_total(worst), _total(pure))
        each = delta / (factor * 1.001)
    return _total(pure)


def _fewest(parts: Sequence[tuple[Blanket, int]], steps: int) -> list[tuple[Blanket, int]]:
    """Return the parts that can have the largest ε': for each blanket those with the fewest reports."""
    counts: dict[Blanket, int] = {}
    chosen: list[tuple[Blanket, int]] = []
    for blanket, n in sorted(parts, key=lambda part: part[1]):
        if counts.get(blanket, 0) < steps:
            chosen.append((blanket, n))
            counts[blanket] = counts.get(blanket, 0) + n
    return chosen


def _worst(parts: Sequence[tuple[float, int]], steps: int) -> list[tuple[float, int]]:
    """Return the largest ε's with counts, `steps` in all, each at most as often as its part has reports.

    The smallest comes first, because in that order the δ of the steps grow least.
    """
    chosen: list[tuple[float, int]] = []
    for epsilon, n in sorted(parts, reverse=True):
        if steps:
            chosen.append((epsilon, min(n, steps)))
            steps -= chosen[-1][1]
    return chosen[::-1]


def _total(steps: Sequence[tuple[float, int]]) -> float:
    total = math.fsum(epsilon * count for epsilon, count in steps)
    return total if len(steps) == 1 and steps[0][1] == 1 else math.nextafter(total * (1 + 1e-15), math.inf)


def _rung(reports: int) -> int:
    """Return the number rounded down to a few binary digits, so that more reports never have a larger ε'."""
    shift = max(0, reports.bit_length() - _RUNG_BITS)
    return reports >> shift << shift


def _valid_blankets(blanket: Blanket) -> list[Blanket]:
    """Return the blanket and, if they can give a better bound, the clones, as both bounds hold."""
    clones = Blanket.of_clones(blanket.odds)
    return [blanket] if blanket.pair >= clones.pair * (1 - 1e-12) else [blanket, clones]


@lru_cache(maxsize=4096)
def _one_epsilon(blanket: Blanket, reports: int, delta: float) -> float:
    """Return `histogram_epsilon` for one own report and delta > 0."""
    return min(_solve(b, reports, delta) for b in _valid_blankets(blanket))


def _solve(blanket: Blanket, reports: int, delta: float) -> float:
    local = blanket.epsilon
    guess = min(_guess(blanket, reports, delta), local / 2)
    rare = 9.0 + math.log(blanket.odds / delta)
    sums = _Sum(blanket, reports, guess, rare)

    target = math.sqrt(-math.log(delta))

    def over(epsilon: float) -> float:  # nearly linear
        return math.sqrt(-math.log(max(sums.delta(epsilon), 1e-300))) - target

    start = over(0.0)
    if start >= 0:
        return 0.0
    root, last = guess, (0.0, start)
    for _ in range(9):
        here = over(root)
        slope = (here - last[1]) / (root - last[0])
        last, step = (root, here), -here / slope if slope > 0 else math.inf
        if not 0 < root + step < local:
            break
        root += step
        if abs(step) < 1e-9 * root:
            return _round_up(sums, root, delta)
    from scipy import optimize  # imported here, because it loads slowly and few searches need it

    search = cast("Any", optimize).root_scalar  # SciPy has no types
    root = float(search(over, bracket=(0.0, local), method="brentq", xtol=1e-9 * guess, rtol=1e-9).root)
    return _round_up(sums, root, delta)


def _guess(blanket: Blanket, reports: int, delta: float) -> float:
    """Return ε' of a normal distribution with the sum's mean and variance."""
    odds, pair = blanket.odds, blanket.pair
    spread = (odds - 1) * math.sqrt(2 * pair / reports)
    low, high = 0.0, 40.0
    for _ in range(20):
        z = (low + high) / 2
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        mean = spread * (density - z * math.erfc(z / math.sqrt(2)) / 2)
        low, high = (z, high) if mean > delta else (low, z)
    return high * spread / (pair * (odds - 1) + blanket.whole)


def _round_up(sums: _Sum, near: float, delta: float) -> float:
    """Return the first ε' at or just above a root that keeps delta for certain."""
    local, step = sums.blanket.epsilon, 1e-10 * near
    while near < local and sums.delta(near) > delta:
        near, step = near + step, 2 * step
    return min(near, local)


class _Sum:
    """The sum for δ at ε', over windows of M and N2 that leave out e^-rare, fast near the ε' `guess`."""

    def __init__(self, blanket: Blanket, reports: int, guess: float, rare: float):
        n, self.blanket = reports, blanket
        self.reports = n
        pairs = min(1.0, 2 * blanket.pair)
        neither = max(0.0, blanket.whole - pairs)
        neither = 0.0 if neither < 1e-12 * blanket.whole or pairs == 1 else min(1.0, neither / (1 - pairs))
        low, high = _window(n, pairs, rare)
        width = max(1, int(min(_FINE * n * pairs, (high - low) / 64)))
        first = np.arange(low, high + 1, width, dtype=float)
        last = np.minimum(first + width - 1, high)
        ends = np.append(low - 1.0, last)
        up, down = _at_most(ends, n, pairs), _at_most(n - ends - 1, n, 1 - pairs)
        # Compute each side from its own tail, whose error is relative.
        chances = np.where(last < n * pairs, np.diff(up), -np.diff(down))
        chances += _SLACK * np.minimum(up[1:], down[:-1])
        self.first, self.last = first[:, None], last[:, None]
        # Neighbouring blocks of M share the nodes of N2, those for the smallest number of remaining trials.
        alike = max(1, int(_FINE * n * blanket.whole / width))
        group = np.arange(len(last)) // alike
        trials = n - last[np.minimum(np.arange(int(group[-1]) + 1) * alike + alike - 1, len(last) - 1)]
        spread = math.sqrt(n * neither * (1 - neither))
        felt = (blanket.odds - 1) * math.sqrt(n * pairs) / max(math.expm1(guess), 1e-9)
        few = 0.1 if n * pairs < 100 else 2.0  # few terms make steps, many are smooth
        step = max(1.0, math.floor(min(few * spread, 0.05 * felt)))
        low2, high2 = _windows(trials, neither, rare)
        count = max(1, math.ceil(float((high2 - low2).max()) / step)) if neither else 0
        nodes = low2[:, None] + step * np.arange(count + 1.0)
        self.nodes = nodes[group]
        self.weights = chances[:, None] * _tents(nodes, trials[:, None], neither, step)[group]
        self.lost = 4 * math.exp(-rare)

    def delta(self, epsilon: float) -> float:
        """Return δ at this ε', rounded up, in [0, 1]."""
        odds, x1 = self.blanket.odds, float(math.expm1(epsilon))
        if epsilon >= self.blanket.epsilon:
            return 0.0
        # The sum is a N0 - t with t = a M/2 + drift.
        a = (x1 + 2) * (odds - 1)
        drift = x1 * (self.first * (odds + 1) / 2 + self.nodes)
        above = np.floor(self.last / 2 + drift / a) + 1
        trials = np.broadcast_to(self.last, above.shape)
        reached = above <= trials
        above, trials, drift = above[reached], trials[reached], drift[reached]
        tail = special.betainc(above, trials - above + 1, 0.5)
        point = np.exp(log_chances(above - 1, np.maximum(trials - 1, 1.0), 0.0))
        point = np.where(trials > 1, point, 1.0)
        gain = a * trials / 4 * point
        mean = np.maximum(gain - drift * tail, 0.0) + _MARGIN * gain
        total = float((self.weights[reached] * mean).sum()) / self.reports
        lost = self.lost * max(odds - 1 - x1, 0.0)
        return min(1.0, total * (1 + _MARGIN) + lost)


def _tents(nodes: Floats, trials: Floats, chance: float, step: float) -> Floats:
    """Return weights of nodes, `step` apart, for a chord's mean over a binomial number; rounded up."""
    if nodes.shape[1] == 1:
        return np.ones_like(nodes)
    cdf = _at_most(nodes, trials, chance)
    inside = np.diff(cdf, axis=1)
    right = inside
    if step > 1:
        # Σ c P(c) over a block, by F_{n-1}(c - 1) = F_n(c) - (1 - p) P_{n-1}(c).
        fewer = np.maximum(trials - 1, 1.0)
        at = np.clip(nodes, 0.0, fewer)
        point = np.exp(log_chances(at, fewer, math.log(1 / chance - 1)))
        point = np.where((at == nodes) & (trials > 1), point, 0.0)
        means = trials * chance * np.diff(cdf - (1 - chance) * point, axis=1)
        right = np.clip((means - nodes[:, :-1] * inside) / step, 0.0, inside)
    weights = np.zeros_like(nodes)
    weights[:, 1:] += right
    weights[:, :-1] += inside - right
    weights[:, 0] += cdf[:, 0]
    weights[:, -1] += 1 - cdf[:, -1]
    # A difference has the error of its larger term; nodes further up have smaller values.
    errors = np.append(cdf[:, 1:], np.ones_like(cdf[:, :1]), axis=1)
    return weights + _SLACK * (1 + trials * chance / step) * errors


def _window(trials: int, chance: float, rare: float) -> tuple[int, int]:
    """Return bounds that a binomial number exceeds with probability at most 2 e^-rare (Bernstein)."""
    low, high = _windows(np.array([float(trials)]), chance, rare)
    return int(low[0]), int(high[0])


def _windows(trials: Floats, chance: float, rare: float) -> tuple[Floats, Floats]:
    mean = trials * chance
    reach = rare / 3 + np.sqrt((rare / 3) ** 2 + 2 * rare * mean * (1 - chance))
    return np.maximum(0.0, np.floor(mean - reach)), np.minimum(trials, np.ceil(mean + reach))


def _at_most(successes: Floats, trials: Floats | int, chance: float) -> Floats:
    """Return the distribution function of binomial numbers at any whole numbers."""
    inner = np.clip(successes, 0, np.maximum(np.asarray(trials) - 1, 0))
    cdf = special.betaincc(inner + 1, np.maximum(trials - inner, 1), chance)
    return np.where(successes < 0, 0.0, np.where(successes >= trials, 1.0, cdf))
