"""Compute a histogram's ε, in nats, which bounds what code counts alone reveal about one device.

A histogram does not show who sent which code. A board's report is hidden among codes that any other board
could have sent: regardless of its reading, a board draws with probability γ from a common distribution, the
*blanket*. Let E be a report's odds, a and b two possible readings of one board, and K the blanket probability
of the codes that support a but not b, which by symmetry is also the probability of those that support b but
not a.
With x = e^ε', a histogram of n reports, one of them the board's, is (ε', δ)-DP with

    δ = E[(N0 (E - x) - N1 (xE - 1) - N2 (x - 1))_+] / n

where (N0, N1, N2, rest) is multinomial with n trials and probabilities K, K, γ - 2K for codes that support
a, b or neither. Codes that support both are counted as supporting neither, which only increases δ. The bound
holds in both directions, since a and b are interchangeable, and for any readings on the other boards.

The computed value is at most a few parts in a thousand too high and never too low. Given M = N0 + N1, N0 is
Binomial(M, ½) and the mean of the positive part has a closed form. Neighbouring values of M are grouped, and
only the largest is evaluated, with the drift of the smallest; this is an upper bound because it adds
zero-mean noise to a convex function. The function is also convex in N2, so it lies below its chords. The
probability outside the windows is added.

Source: Balle, Bell, Gascón, Nissim, "The Privacy Blanket of the Shuffle Model", CRYPTO 2019, Lemma 5.3. For
clones, which need only the odds: Feldman, McMillan, Talwar, "Stronger Privacy Amplification by Shuffling
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
from .errors import AccountingError, positive_number, probability, whole_number

MAX_SHUFFLED = 10**9
"""The largest number of reports for which a histogram's ε is computed; larger numbers count as this one."""

USUAL_HISTOGRAM_DELTA = 1e-6
"""The default δ of a histogram's ε."""

_MARGIN = 1e-8  # generous bound on the sums' relative error, tested with 40-digit arithmetic
_SLACK = 1e-13  # generous bound on a distribution function's relative error
_FINE = 0.0003  # a group's width relative to M, about the relative error of ε'
_RUNG_BITS = 8  # report counts are rounded down to this many binary digits


@dataclass(frozen=True)
class Blanket:
    """The blanket: the part of a report's distribution that all readings share.

    Attributes:
        odds: The largest ratio between a code's probabilities under two values: e^ε for the report's ε, above
            1.
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
            raise AccountingError(f"no mechanism can have this blanket: {self}")

    @staticmethod
    def of_clones(odds: float) -> Blanket:
        """Return the smallest blanket that a mechanism with these odds can have."""
        return Blanket(odds, 1 / (odds + 1), 2 / (odds + 1))

    @property
    def epsilon(self) -> float:
        """ε of one report, in nats, rounded up."""
        return math.nextafter(math.log(self.odds), math.inf)


def histogram_delta(blanket: Blanket, reports: int, epsilon: float) -> float:
    """Return a δ for which a histogram is (epsilon, δ)-DP for a board that contributed one report.

    Args:
        blanket: The reports' blanket.
        reports: The number of reports from honest boards, including the board's own, at least 1; numbers
            above MAX_SHUFFLED are treated as MAX_SHUFFLED.
        epsilon: The histogram's ε, in nats, above 0.

    Returns:
        A number in [0, 1], rounded up; 0 if epsilon is at least a report's ε.

    Raises:
        AccountingError: If an argument is out of range.
    """
    n, epsilon = whole_number("the number of reports", reports), positive_number("epsilon", epsilon)
    n = min(n, MAX_SHUFFLED)
    return min(_Sum(b, n, epsilon, 80.0).delta(epsilon) for b in _valid_blankets(blanket))


def histogram_epsilon(blanket: Blanket, reports: int, delta: float, own: int = 1) -> float:
    """Return the ε' for which a histogram is (ε', delta)-DP for a board that contributed `own` reports.

    Args:
        blanket: The reports' blanket.
        reports: The number of reports from honest boards, including the board's own.
        delta: The histogram's δ, in [0, 1).
        own: The number of the board's reports, at least 1.

    Returns:
        ε' in nats, rounded up. It never exceeds `own` times a report's ε, and never decreases with fewer
        reports, because the number is rounded down to 8 binary digits.

    Raises:
        AccountingError: If an argument is out of range.
    """
    return composed_epsilon([(blanket, reports)], delta, own)


def composed_epsilon(parts: Sequence[tuple[Blanket, int]], delta: float, own: int = 1) -> float:
    """Return the ε' of several histograms seen together.

    The board's reports are assumed to be in the histograms that hide them least, those with the largest ε',
    and are combined one at a time by group privacy.

    Args:
        parts: Each histogram's blanket and number of reports.
        delta: δ, as in histogram_epsilon().
        own: The largest number of reports from one board across all histograms.

    Raises:
        AccountingError: If an argument is out of range.
    """
    own, delta = whole_number("the number of own reports", own), probability("delta", delta)
    sizes = [(b, min(whole_number("the number of reports", n), MAX_SHUFFLED)) for b, n in parts]
    steps = min(own, sum(n for _, n in sizes))
    if not steps:
        return 0.0
    sizes = _relevant_parts(sizes, steps)
    pure = _worst([(b.epsilon, n) for b, n in sizes], steps)
    if not delta:
        return _total(pure)
    step_delta = delta / steps
    while step_delta > 1e-300:
        worst = _worst([(_one_epsilon(b, _rung(n), step_delta), n) for b, n in sizes], steps)
        # A step that costs a report's full ε does not add to δ; every other step's δ grows with each later
        # step.
        factor, earlier = 0.0, 0.0
        for epsilon, count in worst:
            if earlier + epsilon * count >= 700 or not epsilon:
                factor += count if not epsilon else math.inf
            else:
                factor += math.exp(earlier) * math.expm1(epsilon * count) / math.expm1(epsilon)
            earlier += epsilon * count
        if not math.isfinite(factor):
            break
        if step_delta * factor <= delta:
            return min(_total(worst), _total(pure))
        step_delta = delta / (factor * 1.001)
    return _total(pure)


def _relevant_parts(parts: Sequence[tuple[Blanket, int]], steps: int) -> list[tuple[Blanket, int]]:
    """Return the parts that can have the largest ε': each blanket's parts with the fewest reports."""
    covered: dict[Blanket, int] = {}
    result: list[tuple[Blanket, int]] = []
    for blanket, n in sorted(parts, key=lambda part: part[1]):
        if covered.get(blanket, 0) < steps:
            result.append((blanket, n))
            covered[blanket] = covered.get(blanket, 0) + n
    return result


def _worst(parts: Sequence[tuple[float, int]], steps: int) -> list[tuple[float, int]]:
    """Return the `steps` largest ε' as (ε', count) pairs; a count never exceeds its part's reports.

    The smallest comes first, because the steps' δ grow least in that order.
    """
    result: list[tuple[float, int]] = []
    for epsilon, n in sorted(parts, reverse=True):
        if steps:
            result.append((epsilon, min(n, steps)))
            steps -= result[-1][1]
    return result[::-1]


def _total(steps: Sequence[tuple[float, int]]) -> float:
    total = math.fsum(epsilon * count for epsilon, count in steps)
    return total if len(steps) == 1 and steps[0][1] == 1 else math.nextafter(total * (1 + 1e-15), math.inf)


def _rung(reports: int) -> int:
    """Round a number down to a few binary digits, to ensure that more reports never give a larger ε'."""
    shift = max(0, reports.bit_length() - _RUNG_BITS)
    return reports >> shift << shift


def _valid_blankets(blanket: Blanket) -> list[Blanket]:
    """Return the blanket and, if its bound may be better, the clones' blanket; both are valid."""
    clones = Blanket.of_clones(blanket.odds)
    return [blanket] if blanket.pair >= clones.pair * (1 - 1e-12) else [blanket, clones]


@lru_cache(maxsize=4096)
def _one_epsilon(blanket: Blanket, reports: int, delta: float) -> float:
    """Return `histogram_epsilon` for one report from the board and delta > 0."""
    return min(_solve(b, reports, delta) for b in _valid_blankets(blanket))


def _solve(blanket: Blanket, reports: int, delta: float) -> float:
    local = blanket.epsilon
    guess = min(_guess(blanket, reports, delta), local / 2)
    rare = 9.0 + math.log(blanket.odds / delta)
    sums = _Sum(blanket, reports, guess, rare)

    target = math.sqrt(-math.log(delta))

    def excess(epsilon: float) -> float:  # nearly linear
        return math.sqrt(-math.log(max(sums.delta(epsilon), 1e-300))) - target

    start = excess(0.0)
    if start >= 0:
        return 0.0
    root, last = guess, (0.0, start)
    for _ in range(9):
        value = excess(root)
        slope = (value - last[1]) / (root - last[0])
        last, step = (root, value), -value / slope if slope > 0 else math.inf
        if not 0 < root + step < local:
            break
        root += step
        if abs(step) < 1e-9 * root:
            return _round_up(sums, root, delta)
    from scipy import optimize  # imported lazily because it is slow to load and rarely needed

    search = cast("Any", optimize).root_scalar  # SciPy has no types
    root = float(search(excess, bracket=(0.0, local), method="brentq", xtol=1e-9 * guess, rtol=1e-9).root)
    return _round_up(sums, root, delta)


def _guess(blanket: Blanket, reports: int, delta: float) -> float:
    """Return the ε' for a normal distribution with the sum's mean and variance."""
    odds, pair = blanket.odds, blanket.pair
    spread = (odds - 1) * math.sqrt(2 * pair / reports)
    low, high = 0.0, 40.0
    for _ in range(20):
        z = (low + high) / 2
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        mean = spread * (density - z * math.erfc(z / math.sqrt(2)) / 2)
        low, high = (z, high) if mean > delta else (low, z)
    return high * spread / (pair * (odds - 1) + blanket.whole)


def _round_up(sums: _Sum, root: float, delta: float) -> float:
    """Return the smallest ε' at or just above a root that certainly meets delta."""
    local, step = sums.blanket.epsilon, 1e-10 * root
    while root < local and sums.delta(root) > delta:
        root, step = root + step, 2 * step
    return min(root, local)


class _Sum:
    """The sum for δ at ε' over windows that omit a probability of e^-rare; fastest near the ε' `guess`."""

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
        # Neighbouring blocks of M share N2's nodes, chosen for the smallest number of remaining trials.
        group_size = max(1, int(_FINE * n * blanket.whole / width))
        group = np.arange(len(last)) // group_size
        ends = np.arange(int(group[-1]) + 1) * group_size + group_size - 1
        trials = n - last[np.minimum(ends, len(last) - 1)]
        spread = math.sqrt(n * neither * (1 - neither))
        useful_width = (blanket.odds - 1) * math.sqrt(n * pairs) / max(math.expm1(guess), 1e-9)
        fraction = 0.1 if n * pairs < 100 else 2.0  # a sum with few terms has steps
        step = max(1.0, math.floor(min(fraction * spread, 0.05 * useful_width)))
        low_nodes, high_nodes = _windows(trials, neither, rare)
        count = max(1, math.ceil(float((high_nodes - low_nodes).max()) / step)) if neither else 0
        nodes = low_nodes[:, None] + step * np.arange(count + 1.0)
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
        is_possible = above <= trials
        above, trials, drift = above[is_possible], trials[is_possible], drift[is_possible]
        tail = special.betainc(above, trials - above + 1, 0.5)
        point = np.exp(log_chances(above - 1, np.maximum(trials - 1, 1.0), 0.0))
        point = np.where(trials > 1, point, 1.0)
        gain = a * trials / 4 * point
        mean = np.maximum(gain - drift * tail, 0.0) + _MARGIN * gain
        total = float((self.weights[is_possible] * mean).sum()) / self.reports
        lost = self.lost * max(odds - 1 - x1, 0.0)
        return min(1.0, total * (1 + _MARGIN) + lost)


def _tents(nodes: Floats, trials: Floats, chance: float, step: float) -> Floats:
    """Return the weights of nodes `step` apart for the chords' mean over a binomial variable, rounded up."""
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
    # A difference has the error of its larger term; higher nodes have smaller values.
    errors = np.append(cdf[:, 1:], np.ones_like(cdf[:, :1]), axis=1)
    return weights + _SLACK * (1 + trials * chance / step) * errors


def _window(trials: int, chance: float, rare: float) -> tuple[int, int]:
    """Return bounds that a binomial variable exceeds with probability at most 2 e^-rare (Bernstein)."""
    low, high = _windows(np.array([float(trials)]), chance, rare)
    return int(low[0]), int(high[0])


def _windows(trials: Floats, chance: float, rare: float) -> tuple[Floats, Floats]:
    mean = trials * chance
    reach = rare / 3 + np.sqrt((rare / 3) ** 2 + 2 * rare * mean * (1 - chance))
    return np.maximum(0.0, np.floor(mean - reach)), np.minimum(trials, np.ceil(mean + reach))


def _at_most(successes: Floats, trials: Floats | int, chance: float) -> Floats:
    """Return the binomial distribution function at any whole numbers."""
    inner = np.clip(successes, 0, np.maximum(np.asarray(trials) - 1, 0))
    cdf = special.betaincc(inner + 1, np.maximum(trials - inner, 1), chance)
    return np.where(successes < 0, 0.0, np.where(successes >= trials, 1.0, cdf))
