"""Post-processing methods that keep estimates unchanged or turn them into a plain or smooth distribution.

Nothing here is applied silently, and processed shares have no intervals, because intervals belong to the
unbiased estimates. benchmarks/post_processing.py measures each method's gains and distortions;
docs/mathematics.md has the tables.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..hints import option
from ..mechanisms.decoded_histogram import Decoded, simplex
from .estimate import Estimates
from .pooling import Pool
from .statistic import EstimateError

_ROUNDS = 40  # rounds of the fixed-point iteration, with three steps each
_CONVERGENCE = 1e-9  # relative change in the log-likelihood at which the iteration stops
_EVEN_PART = 0.002  # fraction of the starting shares that is spread evenly, since zero shares would stay zero
_PROBES = 33  # cosine-series frequencies at which the noise is computed


@dataclass(frozen=True)
class Shares:
    """The values' shares after post-processing.

    Attributes:
        method: "raw", "nonnegative", "smooth", or a custom package.module:function.
        experiment: The experiment.
        frequencies: The shares, shape (domain,), read-only.
        reports: The number of reports.
        notes: Sentences for readers about the bias.
    """

    method: str
    experiment: Experiment
    frequencies: Floats
    reports: int
    notes: tuple[str, ...]


_RAW_NOTES = ("Unbiased: some shares may be below zero; all sum to 1.",)
_NONNEGATIVE_NOTES = (
    "Biased: where errors are large, values that no device has are too high, and common values too low.",
    "Forged reports that raise one value lower the others.",
)
_SMOOTH_NOTES = (
    "Biased: peaks and edges narrower than the smoothing become low and broad, and gaps are filled.",
    "A peak from forged reports also reduces the smoothing of all other bins.",
)
_NO_INTERVALS_NOTE = "These shares have no intervals; intervals apply only to the unbiased estimates."
_POOL_NOTE = "All pooled reports are assumed to come from one population."


def raw(estimate: Estimates) -> Shares:
    """Return the unbiased estimates, unchanged.

    Bias:
        None. Single shares may be negative; all sum to 1.
    """
    return shares_of("raw", estimate, estimate.frequencies, _RAW_NOTES)


def nonnegative(estimate: Estimates) -> Shares:
    """Return nearby nonnegative shares that sum to 1.

    For a flat mechanism, these are the nearest such shares: every estimate is reduced by the same amount, and
    negative results become zero. For a hierarchy, the same happens to each node's children from the root down
    (tree.nonnegative). A pool uses the tree of the hierarchy with the most reports, or is treated as flat if
    it contains no hierarchy.

    Bias:
        Measured at D = 64 and ε = 1 in units of raw's error for a value, empty values are too high by up to
        0.43 (olh) and 0.13 (hh), and the most common value is too low by up to 2.1. Over ten populations, ε
        from 0.5 to 4 and N from 10^3 to 10^6, squared errors are on average 0.05 to 0.6 of raw's for single
        values, and for ranges 0.26 to 0.76 on hierarchies and 0.3 to 0.6 with olh. Neither exceeded raw's in
        any of 480 configurations, except for ranges with olh: in 27 of 160, by a factor of up to 2.7. Forged
        reports for one value lower the others. benchmarks/post_processing.py is the study;
        docs/mathematics.md has the tables.

    Citation:
        Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency estimation with
        consistency", NDSS 2020 (Norm-Sub, for a single family).
    """
    if "frequencies" not in estimate.answers:
        text = f"nonnegative needs estimated shares, which {estimate.experiment.name} does not have"
        raise EstimateError(f"{text}; use smooth")
    whole = _over_all_indices(estimate, "nonnegative")
    parts = [part for _, part in estimate.parts]
    largest = max(parts, key=lambda part: (len(part.decoded.counts) > 1, part.reports))
    shares = largest.decoded.nonnegative(whole.frequencies)
    return shares_of("nonnegative", estimate, _value_shares(shares, estimate), _NONNEGATIVE_NOTES)


def smooth(estimate: Estimates) -> Shares:
    """Return a number's shares by expectation maximization with a smoothing step.

    Expectation maximization increases the likelihood of the code counts under the exact channel, over all
    levels and all pooled estimates; after each step, the shares are smoothed by the resolvent of the binomial
    kernel 1-2-1. The data determine the strength, by minimizing Stein's unbiased risk estimate for a linear
    smoother with the same fixed point, on the cosine series of the raw estimates and their exact errors. A
    rough population or very many reports thus lead to little or no smoothing. The result is deterministic;
    the iteration is accelerated and bounded.

    Bias:
        Detail finer than the smoothing is lost; a single common value or an edge is lowered and spread over
        its neighbours. Measured at D = 64 and ε = 1 in units of raw's error, empty values are too high by
        0.01 to 0.35, and the most common value is too low by up to 2.4. Over ten populations, ε from 0.5 to 4
        and N from 10^3 to 10^6, squared errors are on average 0.01 to 0.5 of raw's for single bins and 0.15
        to 1 for ranges; they exceed raw's in 17 and 60 of 480 configurations, by factors of up to 2.1 and
        4.8. A forged peak gains no more than in raw, but reduces the smoothing of all other bins.
        benchmarks/post_processing.py is the study; docs/mathematics.md has the tables and advice on choosing.

    Raises:
        EstimateError: If the experiment is a bool or a choice, whose labels have no neighbours.

    Citation:
        Li, Wang, Lopuhaä-Zwakenberg, Skoric, Li, "Estimating numerical distributions under local differential
        privacy", SIGMOD 2020 (the smoothing step, there with a fixed strength); Silverman, Jones, Wilson,
        Nychka, JRSS B 1990; Stein, Annals of Statistics 1981; Varadhan, Roland, "Simple and globally
        convergent methods for accelerating the convergence of any EM algorithm", Scand. J. Statist. 2008.
    """
    experiment = estimate.experiment
    if experiment.type != "number":
        text = f"smooth supports only numbers, not {experiment.name}, which is a {experiment.type}"
        raise EstimateError(f"{text}; use nonnegative")
    whole = _over_all_indices(estimate, "smooth")
    strength, noise = smoothing(estimate)
    start = simplex(blur(estimate.frequencies, strength))
    if whole.domain > estimate.domain:  # a missing reading has no neighbours, so its share is not smoothed
        missing = float(np.clip(whole.frequencies[-1], 0, 1))
        start = np.append(start * (1 - missing), missing)
    start = (1 - _EVEN_PART) * start + _EVEN_PART / len(start)
    # In a uniform population, a maximization step moves an error by this fraction, and only this fraction of
    # the smoothing may be applied with it.
    step_fraction = min(1.0, 1 / (estimate.reports * noise * estimate.domain))
    shares = _find_fixed_point(tuple(_histograms(estimate)), start, strength * step_fraction, estimate.domain)
    return shares_of("smooth", estimate, _value_shares(shares, estimate), _SMOOTH_NOTES)


METHODS: dict[str, Callable[[Estimates], Shares]] = {
    "raw": raw,
    "nonnegative": nonnegative,
    "smooth": smooth,
}


def _over_all_indices(estimate: Estimates, method: str) -> Estimates:
    """Return the estimate over all indices, or raise EstimateError if only some versions set `missing`."""
    if any(part.domain != estimate.whole.domain for _, part in estimate.parts):
        text = f"{method} needs versions that either all set missing or all do not"
        raise EstimateError(f"{text}; choose one with {option('version')}")
    return estimate.whole


def _value_shares(shares: Floats, estimate: Estimates) -> Floats:
    """Convert shares of all indices to shares of values among devices with a reading."""
    if len(shares) == estimate.domain:
        return shares
    values = shares[: estimate.domain]
    return values / values.sum() if values.sum() > 0 else np.full(len(values), 1 / len(values))


def shares_of(method: str, estimate: Estimates, frequencies: Floats, notes: tuple[str, ...]) -> Shares:
    """Return a method's result for an estimate.

    Args:
        method: The name of the method.
        estimate: The estimate.
        frequencies: The shares, shape (domain,); copied.
        notes: Sentences about the bias.
    """
    values = frequencies.copy()
    values.flags.writeable = False
    if method != "raw":
        notes = (*notes, _NO_INTERVALS_NOTE)
    if method == "smooth" and isinstance(estimate, Pool):
        notes = (*notes, _POOL_NOTE)
    return Shares(method, estimate.experiment, values, estimate.reports, notes)


def blur(values: Floats, strength: float) -> Floats:
    """Return the x that minimizes ||x - values||² + strength/4 Σ (x_i+1 - x_i)².

    This preserves the sum of the values, which are reflected at the ends.
    """
    n = len(values)
    waves = np.fft.rfft(np.concatenate([values, values[::-1]]))
    return np.fft.irfft(waves / (1 + strength * _roughness(n)), 2 * n)[:n]


def _roughness(n: int) -> Floats:
    """Return how much a binomial kernel damps waves 0..n over n values and their mirror image."""
    return (1 - np.cos(np.pi * np.arange(n + 1) / n)) / 2


def smoothing(estimate: Estimates) -> tuple[float, float]:
    """Return the blur() strength with the smallest estimated risk, and the mean variance per coefficient."""
    x = estimate.frequencies
    n = len(x)
    power = np.abs(np.fft.rfft(np.concatenate([x, x[::-1]]))[1:n]) ** 2 / (2 * n)
    probed = np.unique(np.rint(np.geomspace(1, n - 1, min(_PROBES, n - 1))).astype(int))
    waves = np.sqrt(2 / n) * np.cos(np.pi * np.outer(np.arange(n) + 0.5, probed) / n)
    at = np.arange(1, n)
    noise = np.interp(at, probed, estimate.linear_many(waves).stderr ** 2)
    rough = _roughness(n)[1:n]
    strengths = np.append(0.0, np.geomspace(0.01, 4.0 * n * n, 60))
    keep = 1 / (1 + strengths[:, None] * rough)
    risk = ((1 - keep) ** 2 * power + 2 * keep * noise).sum(axis=1)
    return float(strengths[np.argmin(risk)]), float(noise.mean())


@dataclass(frozen=True)
class _Histogram:
    """The counts and channel behind one of the pooled estimates.

    Attributes:
        decoded: The decoded histogram.
        ancillary: The part of the log-likelihood that depends only on the seeds, not on readings.
    """

    decoded: Decoded
    ancillary: float


def _histograms(estimate: Estimates) -> Iterator[_Histogram]:
    for _, part in estimate.parts:
        decoded = part.decoded
        mechanism = decoded.mechanism
        rows = zip(decoded.counts, mechanism.class_sizes, mechanism.strata, strict=True)
        yield _Histogram(decoded, sum(float(n @ np.log(size / stratum.runs)) for n, size, stratum in rows))


def expectation_maximisation(histograms: tuple[_Histogram, ...], shares: Floats) -> tuple[Floats, float]:
    """Return the shares after one step, and the log-likelihood before it.

    Args:
        histograms: The counts and channels.
        shares: Positive shares that sum to 1.
    """
    weight = np.zeros(len(shares))
    likelihood = 0.0
    for histogram in histograms:
        decoded = histogram.decoded
        expected = decoded.mechanism.law(shares)
        pairs = list(zip(decoded.counts, expected, strict=True))
        likelihood += sum(float(n @ np.log(chance)) for n, chance in pairs) - histogram.ancillary
        weight += decoded.mechanism.law_transposed([n / chance for n, chance in pairs])
    updated = shares * weight
    return updated / updated.sum(), likelihood


def _find_fixed_point(
    histograms: tuple[_Histogram, ...], start: Floats, strength: float, blurred: int | None = None
) -> Floats:
    """Alternate maximization and blurring until the shares converge; only the first `blurred` are blurred.

    Two steps estimate the rate of convergence, and a third extrapolates, using logarithms to keep shares
    positive. An extrapolation is rejected if it would lower the likelihood.
    """

    def step(shares: Floats) -> tuple[Floats, float]:
        updated, likelihood = expectation_maximisation(histograms, shares)
        if strength:
            values, remainder = np.split(updated, [len(updated) if blurred is None else blurred])
            updated = np.append(np.maximum(blur(values, strength), 0), remainder)
        updated = np.maximum(updated, 1e-30)
        return updated / updated.sum(), likelihood

    shares = start
    before = -np.inf
    for _ in range(_ROUNDS):
        first, current = step(shares)
        if abs(current - before) <= _CONVERGENCE * abs(current):
            return first
        before = current
        second, after = step(first)
        a, b, c = np.log(shares), np.log(first), np.log(second)
        r, v = b - a, (c - b) - (b - a)
        # The common values determine the rate; the logarithms of the rarest diverge.
        length = np.sqrt((shares * r * r).sum() / max((shares * v * v).sum(), 1e-300))
        shares = second
        while length > 1:
            log = a + 2 * length * r + length * length * v
            far = np.exp(np.clip(log - log.max(), -60, 0))
            far /= far.sum()
            far, reached = step(far)
            if reached >= min(current, after):
                shares = far
                break
            length /= 4
    return shares
