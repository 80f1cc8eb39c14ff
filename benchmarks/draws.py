"""Draw fleets and tally their results: shared by the benchmarks of estimates.

A fleet is a histogram of codes drawn from a population. `estimates` yields many fleets' estimates, `Tally`
counts the intervals that contain the truth, and `mean_and_error` summarizes errors.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import moments
from hushmote.server.estimate import Estimate, estimate
from hushmote.server.estimate.estimate import Estimates
from hushmote.server.experiments import units
from hushmote.server.mechanisms import mechanism_of
from hushmote.simulator import vectorised
from hushmote.simulator.demo_data import temperatures

Floats = np.ndarray
LN_3 = 1_098_612  # micro-nats
QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


# --- Populations ----------------------------------------------------------------------------------


def concentrated(n: int) -> Floats:
    """Return a population with three quarters on one value, a fifth on a nearby one, the rest even."""
    out = np.full(n, 0.05 / n)
    out[n // 3] += 0.75
    out[min(n // 3 + 2, n - 1)] += 0.2
    return out


def sparse(n: int) -> Floats:
    """Return a population that is concentrated on five values."""
    at = (np.array([0.05, 0.2, 0.45, 0.7, 0.95]) * n).astype(int)
    return np.bincount(at, [0.1, 0.3, 0.05, 0.35, 0.2], n)


def spikes(n: int, *at: int) -> Floats:
    return np.isin(np.arange(n), at).astype(float)


def real(n: int) -> Floats:
    """Return a histogram of real air temperatures over 0 to 128."""
    readings = np.array([float(cast(float, x)) for x in temperatures() if x is not None])
    return np.bincount(np.clip(readings * n / 128, 0, n - 1).astype(int), minlength=n)


POPULATIONS: dict[str, Callable[[int], Floats]] = {
    "uniform": np.ones,
    "skewed": lambda n: (1.0 + np.arange(n)) ** -1.3,
    "zipf 1.5": lambda n: (1.0 + np.arange(n)) ** -1.5,
    "concentrated": concentrated,
    "sparse": sparse,
    "two spikes": lambda n: spikes(n, n // 5, n * 7 // 10),
    "sawtooth": lambda n: 1.0 + np.arange(n) % 16,
    "last bin": lambda n: spikes(n, n - 1),
    "real": real,
}


def shares(name: str, domain: int) -> Floats:
    """Return the values' shares in a population, shape (domain,)."""
    out = POPULATIONS[name](domain)
    return out / out.sum()


# --- Fleets ---------------------------------------------------------------------------------------


def counts(exp: Experiment, f: Floats, reports: int, rng: np.random.Generator) -> Floats:
    """Return a fleet's histogram of codes, drawn board by board."""
    return vectorised.histogram(exp, rng.multinomial(reports, f), rng)


def counts_by_law(exp: Experiment, f: Floats, reports: int, rng: np.random.Generator) -> Floats:
    """Return a fleet's histogram drawn from the code law, at a cost independent of the report count."""
    law = mechanism_of(exp).code_law(f)
    return rng.multinomial(reports, law / law.sum())


def estimates(
    exp: Experiment, f: Floats, reports: int, fleets: int, rng: np.random.Generator, draw=counts
) -> Iterator[Estimate]:
    """Yield the estimates of `fleets` fleets."""
    return (estimate(exp, draw(exp, f, reports, rng)) for _ in range(fleets))


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean over fleets and its standard error."""
    x = np.array([*values])
    return float(x.mean()), float(x.std(ddof=1)) / math.sqrt(len(x)) if len(x) > 1 else math.nan


def mean_over_ranges(error: Floats, width: int = 1) -> float:
    """Return the mean squared error over ranges of at least `width` (1 or 2) values.

    Args:
        error: The values' errors.
        width: 1 or 2.
    """
    prefix = np.append(0.0, np.cumsum(error))
    n = len(prefix)
    total, number = n * (prefix**2).sum() - prefix.sum() ** 2, n * (n - 1) / 2
    if width == 1:
        return float(total / number)
    return float((total - (error**2).sum()) / (number - len(error)))


def variance_over_ranges(variances: Callable[[Floats], Floats], domain: int) -> float:
    """Return the mean variance over all ranges; variances() takes weights, shape (domain, n)."""
    prefixes = np.triu(np.ones((domain, domain)))
    *single, total = variances(np.column_stack([prefixes, prefixes.sum(axis=1)]))
    return float(((domain + 1) * sum(single) - total) / (domain * (domain + 1) / 2))


# --- Coverage -------------------------------------------------------------------------------------


class Tally(dict[Any, Floats]):
    """The numbers of intervals that contain the truth, and of all intervals, by kind."""

    def count(self, kind: Any, ends: tuple[Any, Any], truth: Any) -> None:
        """Count intervals, given by their lower and upper ends; all arrays have the same shape."""
        low, high, true = (np.asarray(x) for x in (*ends, truth))
        inside = (low <= true + 1e-9) & (true <= high + 1e-9)
        self[kind] = self.get(kind, np.zeros(2)) + np.array([inside.sum(), inside.size])

    def add(self, other: "Tally") -> "Tally":
        for kind, both in other.items():
            self[kind] = self.get(kind, np.zeros(2)) + both
        return self

    def of(self, kind: Any) -> float:
        """Return the share of a kind's intervals that contain the truth; NaN if there are none."""
        hits, trials = self.get(kind, (0, 0))
        return float(hits / trials) if trials else math.nan


def band(rows: int, fleets: int, confidence: float = 0.95, chance: float = 1e-9) -> tuple[float, float]:
    """Return the coverage range that correct intervals leave in any row with only this chance (binomial)."""
    tails = chance / rows / 2
    low, high = stats.binom.ppf((tails, 1 - tails), fleets, confidence) / fleets
    return float(low), float(high)


def some_ranges(domain: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return ranges inside the domain, and ranges that touch one of its ends."""
    if domain == 2:
        return [(0, 1), (1, 2)], [(1, 2)]
    inner = [(domain // 4, domain // 3 + 1), (domain // 3 - 1, domain // 3 + 2), (1, domain - 1)]
    inner += [(domain // 8, domain // 8 * 3), (2, 9)]
    return inner, [(0, domain // 2), (0, domain // 10 + 1), (domain - domain // 5 - 1, domain)]


def clear_quantiles(*populations: Floats) -> list[float]:
    """Return quantiles that the distribution functions cross clearly, so that they are unique."""
    cdfs = [np.cumsum(f) for f in populations]
    return [q for q in QUANTILES if min(np.abs(cdf - q).min() for cdf in cdfs) > 1e-9]


def count_intervals(tally: Tally, e: Estimates, f: Floats, quantiles: list[float]) -> None:
    """Count every kind of 95% interval of one fleet's estimates against its population."""
    x, cdf = units.bin_middles(e.experiment), np.cumsum(f)
    mean = f @ x
    tally.count("frequency", e.frequency_intervals(), f)
    for kind, ranges in zip(("range", "above or below"), some_ranges(len(f)), strict=True):
        low, high = np.array(ranges).T
        tally.count(kind, e.ranges(low, high).interval(), [f[a:b].sum() for a, b in ranges])
    low, high = e.cdf_intervals()
    tally.count("cdf", (low[:-1], high[:-1]), cdf[:-1])
    for q in quantiles:
        interval = e.quantile(q)
        tally.count("quantile", (interval.low, interval.high), np.argmax(cdf >= q))
    tally.count("mean", moments.mean(e).interval(), mean)
    tally.count("standard deviation", moments.deviation(e).interval(), np.sqrt(f @ (x - mean) ** 2))
