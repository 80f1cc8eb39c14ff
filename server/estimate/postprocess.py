"""Post-processing by name: estimates unchanged, as a distribution, or as a smooth one.

Nothing here is applied silently, and processed shares have no intervals: intervals belong to the unbiased
estimates. benchmarks/post_processing.py measures what each method gains and what it distorts;
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
_STILL = 1e-9  # relative change of the log-likelihood at which the iteration stops
_EVEN_PART = (
    0.002  # fraction of the start spread evenly, because a share that starts at zero would stay there
)
_PROBED = 33  # frequencies of the cosine series at which the noise is computed


@dataclass(frozen=True)
class Shares:
    """Shares of the values after a post-processing step.

    Attributes:
        method: "raw", "nonnegative", "smooth", or your own package.module:function.
        experiment: The experiment.
        frequencies: The shares, shape (domain,), read-only.
        reports: The number of reports.
        notes: Sentences about the bias, for readers.
    """

    method: str
    experiment: Experiment
    frequencies: Floats
    reports: int
    notes: tuple[str, ...]


_RAW = ("Unbiased: some shares may be below zero; all sum to 1.",)
_NONNEGATIVE = (
    "Biased: values that nobody holds come out above zero, common ones low where errors are large.",
    "What forged reports add to one value is taken from the others.",
)
_SMOOTH = (
    "Biased: peaks and edges narrower than the smoothing come out low and broad, and gaps are filled.",
    "A peak that reports were forged for also lowers the smoothing of all other bins.",
)
_NO_INTERVALS = "These shares have no intervals: intervals are those of the unbiased estimates."
_POOLED = "All reports of the pool are taken to be about one population."


def raw(estimate: Estimates) -> Shares:
    """Return the unbiased estimates, unchanged.

    Bias:
        None. Single shares may be negative; all sum to 1.
    """
    return shares_of("raw", estimate, estimate.frequencies, _RAW)


def nonnegative(estimate: Estimates) -> Shares:
    """Return shares near the estimates that are not negative and sum to 1.

    For a flat mechanism these are the nearest such shares: every estimate is reduced by the same amount, then
    negative ones become zero. For a hierarchy the same happens family by family from the root down
    (tree.nonnegative). A pool uses the tree of its hierarchy with the most reports, or is treated as flat if
    it has none.

    Bias:
        Measured at D = 64 and ε = 1 in units of raw's error of a value, empty values come out high by up to
        0.43 (olh) and 0.13 (hh), and the most common one low by up to 2.1. Over ten populations, ε 0.5 to 4
        and N 10^3 to 10^6, squared errors of single values are 0.05 to 0.6 of raw's on average; those of
        ranges 0.26 to 0.76 on hierarchies and 0.3 to 0.6 under olh. Neither exceeded raw's in any of 480
        configurations, except for ranges under olh: in 27 of 160, by a factor of up to 2.7. Forged reports
        for one value take from the others. benchmarks/post_processing.py has the study,
        docs/mathematics.md the tables.

    Citation:
        Wang, Lopuhaä-Zwakenberg, Li, Skoric, Li, "Locally differentially private frequency estimation with
        consistency", NDSS 2020 (where it is called Norm-Sub, of one family).
    """
    if "frequencies" not in estimate.answers:
        text = f"nonnegative needs estimated shares; {estimate.experiment.name} has none"
        raise EstimateError(f"{text}: use smooth")
    whole = _over_all_indices(estimate, "nonnegative")
    parts = [part for _, part in estimate.parts]
    largest = max(parts, key=lambda part: (len(part.decoded.counts) > 1, part.reports))
    shares = largest.decoded.nonnegative(whole.frequencies)
    return shares_of("nonnegative", estimate, _of_values(shares, estimate), _NONNEGATIVE)


def smooth(estimate: Estimates) -> Shares:
    """Return shares of a number by expectation maximisation with a smoothing step.

    Expectation maximisation climbs the likelihood of the counts of codes under the exact channel, all levels
    and all estimates of a pool together; after each step the shares are smoothed by the resolvent of the
    binomial kernel 1-2-1. The data choose its strength: Stein's unbiased estimate of the risk of a linear
    smoother with the same fixed point, on the cosine series of the raw estimates and their exact errors. A
    rough population, or very many reports, thus get little or no smoothing. The result is deterministic; the
    iteration is accelerated and bounded.

    Bias:
        Detail finer than the smoothing is lost; a single common value, or an edge, is lowered and spread over
        its neighbours. Measured at D = 64 and ε = 1 in units of raw's error, empty values are high by 0.01 to
        0.35, and the most common one low by up to 2.4. Over ten populations, ε 0.5 to 4 and N 10^3 to 10^6,
        squared errors of single bins are 0.01 to 0.5 of raw's on average, of ranges 0.15 to 1; they exceed
        raw's in 17 and 60 of 480 configurations, by factors of up to 2.1 and 4.8. A forged peak gains no more
        than in raw, but takes the smoothing from all other bins. benchmarks/post_processing.py has the study,
        docs/mathematics.md the tables and advice on choosing.

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
        text = f"smooth is for numbers, whose bins have neighbours; {experiment.name} is a {experiment.type}"
        raise EstimateError(f"{text}: use nonnegative")
    whole = _over_all_indices(estimate, "smooth")
    strength, noise = smoothing(estimate)
    start = simplex(blur(estimate.frequencies, strength))
    if whole.domain > estimate.domain:  # a missing reading has no neighbours, and keeps its share
        missing = float(np.clip(whole.frequencies[-1], 0, 1))
        start = np.append(start * (1 - missing), missing)
    start = (1 - _EVEN_PART) * start + _EVEN_PART / len(start)
    # If all values are equally common, a maximisation step moves an error by this fraction, and only this
    # fraction of the smoothing may be applied with it.
    moved = min(1.0, 1 / (estimate.reports * noise * estimate.domain))
    shares = _fixed_point(tuple(_histograms(estimate)), start, strength * moved, estimate.domain)
    return shares_of("smooth", estimate, _of_values(shares, estimate), _SMOOTH)


METHODS: dict[str, Callable[[Estimates], Shares]] = {
    "raw": raw,
    "nonnegative": nonnegative,
    "smooth": smooth,
}


def _over_all_indices(estimate: Estimates, method: str) -> Estimates:
    """Return the estimate over all indices, or raise EstimateError if only some versions set `missing`."""
    if any(part.domain != estimate.whole.domain for _, part in estimate.parts):
        text = f"{method} needs versions that all set missing, or none"
        raise EstimateError(f"{text}: choose one with {option('version')}")
    return estimate.whole


def _of_values(shares: Floats, estimate: Estimates) -> Floats:
    """Return shares of all indices as shares of the values, among those with a reading."""
    if len(shares) == estimate.domain:
        return shares
    values = shares[: estimate.domain]
    return values / values.sum() if values.sum() > 0 else np.full(len(values), 1 / len(values))


def shares_of(method: str, estimate: Estimates, frequencies: Floats, notes: tuple[str, ...]) -> Shares:
    """Return a method's result on an estimate.

    Args:
        method: The name of the method.
        estimate: The estimate.
        frequencies: The shares, shape (domain,); copied.
        notes: Sentences about the bias.
    """
    values = frequencies.copy()
    values.flags.writeable = False
    if method != "raw":
        notes = (*notes, _NO_INTERVALS)
    if method == "smooth" and isinstance(estimate, Pool):
        notes = (*notes, _POOLED)
    return Shares(method, estimate.experiment, values, estimate.reports, notes)


def blur(values: Floats, strength: float) -> Floats:
    """Return the minimiser of ||x - values||² + strength/4 Σ (x_i+1 - x_i)².

    It keeps the sum of the values, and reflects them at the ends.
    """
    n = len(values)
    waves = np.fft.rfft(np.concatenate([values, values[::-1]]))
    return np.fft.irfft(waves / (1 + strength * _roughness(n)), 2 * n)[:n]


def _roughness(n: int) -> Floats:
    """Return how much one binomial kernel damps the waves 0..n of n values and their mirror image."""
    return (1 - np.cos(np.pi * np.arange(n + 1) / n)) / 2


def smoothing(estimate: Estimates) -> tuple[float, float]:
    """Return the strength of blur() with the least estimated risk, and one coefficient's mean variance."""
    x = estimate.frequencies
    n = len(x)
    power = np.abs(np.fft.rfft(np.concatenate([x, x[::-1]]))[1:n]) ** 2 / (2 * n)
    probed = np.unique(np.rint(np.geomspace(1, n - 1, min(_PROBED, n - 1))).astype(int))
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
    """The counts and channel behind one estimate of a pool.

    Attributes:
        ancillary: The part of its log-likelihood that depends on the seeds only, not on readings.
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
        shares: Positive shares with sum 1.
    """
    weight = np.zeros(len(shares))
    likelihood = 0.0
    for histogram in histograms:
        decoded = histogram.decoded
        expected = decoded.mechanism.law(shares)
        pairs = list(zip(decoded.counts, expected, strict=True))
        likelihood += sum(float(n @ np.log(chance)) for n, chance in pairs) - histogram.ancillary
        weight += decoded.mechanism.law_transposed([n / chance for n, chance in pairs])
    moved = shares * weight
    return moved / moved.sum(), likelihood


def _fixed_point(
    histograms: tuple[_Histogram, ...], start: Floats, strength: float, blurs: int | None = None
) -> Floats:
    """Iterate maximisation and blurring until the shares stop moving; only the first `blurs` are blurred.

    Two steps estimate the rate of convergence, then one extrapolates, on logarithms so that shares stay
    positive. A step that would lower the likelihood by more than one step gains is not taken.
    """

    def step(shares: Floats) -> tuple[Floats, float]:
        moved, likelihood = expectation_maximisation(histograms, shares)
        if strength:
            values, rest = np.split(moved, [len(moved) if blurs is None else blurs])
            moved = np.append(np.maximum(blur(values, strength), 0), rest)
        moved = np.maximum(moved, 1e-30)
        return moved / moved.sum(), likelihood

    shares = start
    before = -np.inf
    for _ in range(_ROUNDS):
        one, here = step(shares)
        if abs(here - before) <= _STILL * abs(here):
            return one
        before = here
        two, after = step(one)
        a, b, c = np.log(shares), np.log(one), np.log(two)
        r, v = b - a, (c - b) - (b - a)
        # The common values determine the rate; the logarithms of the rarest diverge.
        length = np.sqrt((shares * r * r).sum() / max((shares * v * v).sum(), 1e-300))
        shares = two
        while length > 1:
            log = a + 2 * length * r + length * length * v
            far = np.exp(np.clip(log - log.max(), -60, 0))
            far /= far.sum()
            far, reached = step(far)
            if reached >= min(here, after):
                shares = far
                break
            length /= 4
    return shares
