"""A fleet's estimates as its reports arrive, compared with the truth, and their error compared with theory.

Reports accumulate: each step includes all reports of the step before it. The input is a fleet's growing
histograms in the order of arrival, which must not depend on the readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.fleet_estimate import FleetEstimate, parse_ranges
from ..server.answers.rows import CONFIDENCE, Row
from ..server.arrays import Counts, Floats
from ..server.errors import HushmoteError
from ..server.estimate.estimate import Estimates, estimate
from ..server.estimate.readings import among_readings
from ..server.estimate.statistic import EstimateError
from ..server.experiments.units import IndexRange, histogram_ranges
from ..server.mechanisms import mechanism_of
from ..server.wire.experiments import value_count
from .population import shares_with_reading

FEWEST = 100  # reports that a convergence picture needs
DEFAULT_SHARES = 4  # shares in a picture, if none are named
MAX_SHOWN = 6  # more lines would be hard to tell apart
_STEPS = 40
_SPAN = 1000  # the last step's number of reports divided by the first's, if there are enough
_FIRST = 30  # minimum number of reports per stratum in the first step
_CHUNK = 1 << 22  # number of floats in memory at once


class ConvergenceError(HushmoteError):
    """Raised if a fleet's convergence cannot be shown; the message says what to change."""


@dataclass(frozen=True)
class PictureContent:
    """The content of a picture.

    Attributes:
        ranges: Ranges or labels; if empty, the largest rows of the histogram.
        quantiles: A number's quantiles, from 0 to 1; if empty, its median.
    """

    ranges: Sequence[str] = ()
    quantiles: Sequence[float] = ()


@dataclass(frozen=True)
class Step:
    """Estimates from the first reports.

    Attributes:
        reports: Number of reports.
        shares: Shares of the ranges, labels or values shown, with the truth.
        quantiles: A number's quantiles, in its unit, with the truth.
        error: Root mean square, over the histogram's rows, of estimated minus true shares.
        predicted: The theoretical value of `error`.
    """

    reports: int
    shares: tuple[Row, ...]
    quantiles: tuple[Row, ...]
    error: float
    predicted: float


@dataclass(frozen=True)
class Convergence:
    """A fleet's estimates as its reports arrived; `estimates` is from all of them."""

    experiment: Experiment
    unit: str
    confidence: float
    steps: tuple[Step, ...]
    estimates: Estimates

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: each step's reports and errors."""
        return {
            "reports": [step.reports for step in self.steps],
            "rms_error": [step.error for step in self.steps],
            "rms_error_in_theory": [step.predicted for step in self.steps],
        }


def sizes(total: int, fewest: float) -> list[int]:
    """Return the number of reports at each step, on a logarithmic scale that ends with `total`."""
    first = min(max(fewest, total / _SPAN), total / 2)
    return [int(n) for n in np.unique(np.geomspace(first, total, _STEPS).round())]


def fewest_reports(experiment: Experiment) -> int:
    """Return the number of reports below which an estimate is too noisy to show."""
    return _FIRST * len(mechanism_of(experiment).strata)


def accumulate(experiment: Experiment, codes: Counts) -> Iterator[Counts]:
    """Yield the growing histogram of the codes in their order, as the same array each time."""
    counts = np.zeros(experiment.code_count, np.int64)
    position = 0
    for size in sizes(len(codes), fewest_reports(experiment)):
        np.add.at(counts, codes[position:size], 1)
        position = size
        yield counts


def follow(
    experiment: Experiment,
    histograms: Iterable[Counts],
    truth: Floats,
    *,
    unit: str = "",
    confidence: float = CONFIDENCE,
    showing: PictureContent | None = None,
) -> Convergence:
    """Estimate each of the growing histograms of one fleet.

    Args:
        experiment: The fleet's experiment.
        histograms: Histograms of codes, shape (code_count,), each including the previous ones' reports.
        truth: Shares of the indices among all reports, shape (domain,).
        unit: The readings' unit, for the picture's axis.
        confidence: Coverage of the intervals, between 0 and 1.
        showing: The ranges and quantiles to follow; by default the mean or the largest shares.

    Raises:
        ConvergenceError: If there are too few reports, or more than 6 ranges or quantiles.
        UnitsError: If a range does not fit the experiment.
        EstimateError: If the whole fleet's reports are too few for an estimate.
    """
    showing = showing or PictureContent()
    for kind, selection in (("ranges", showing.ranges), ("quantiles", showing.quantiles)):
        if len(selection) > MAX_SHOWN:
            raise ConvergenceError(f"a convergence picture shows at most {MAX_SHOWN} {kind}")
    rows = histogram_ranges(experiment, 16)
    indices, truth = truth, shares_with_reading(experiment, truth)
    with_reading = float(indices[: value_count(experiment)].sum())
    ranges = parse_ranges(experiment, showing.ranges) or _largest(rows, truth)
    truths = np.array([truth[r.low : r.high].sum() for r in rows])
    steps: list[Step] = []
    last: Estimates | None = None
    failure = EstimateError("there are no reports")
    for counts in histograms:
        last = None
        try:
            last = among_readings(estimate(experiment, counts.copy()))
            fleet = FleetEstimate(last, "", unit, confidence, truth)
            quantiles = fleet.quantile(*showing.quantiles).rows if experiment.type == "number" else ()
        except EstimateError as e:  # the first reports may not cover every level
            failure = e
            continue
        below = np.concatenate(([0.0], np.cumsum(last.frequencies)))
        off = below[[r.high for r in rows]] - below[[r.low for r in rows]] - truths
        error = float(np.sqrt(np.mean(off**2)))
        steps.append(Step(last.reports, _rows(last, ranges, confidence, truth), quantiles, error, 0.0))
    if last is None:
        raise failure
    if last.reports < FEWEST:
        raise ConvergenceError(f"a convergence picture needs {FEWEST} reports, not {last.reports:,}")
    # A variance includes sampling the readings from a population. Here, they are drawn from the fleet
    # without replacement, which reduces the variance at every step by the whole fleet's sampling variance.
    spread = variances(experiment, rows, indices)
    drawing = truths * (1 - truths) / (last.reports * with_reading)
    theory = [float(np.sqrt(np.mean(spread / step.reports - drawing))) for step in steps]
    complete_steps = tuple(replace(step, predicted=error) for step, error in zip(steps, theory, strict=True))
    return Convergence(experiment, unit, confidence, complete_steps, last)


def _largest(rows: Sequence[IndexRange], truth: Floats) -> list[IndexRange]:
    """Return the rows with the largest shares, in the order of the domain; for a bool only "yes"."""
    if len(rows) == 2:
        return [rows[1]]
    row_shares = [float(truth[r.low : r.high].sum()) for r in rows]
    best = sorted(range(len(rows)), key=lambda i: -row_shares[i])[:DEFAULT_SHARES]
    return [rows[i] for i in sorted(best)]


def _rows(
    estimates: Estimates, ranges: Sequence[IndexRange], confidence: float, truth: Floats
) -> tuple[Row, ...]:
    statistics = estimates.ranges([r.low for r in ranges], [r.high for r in ranges])
    values = [(r, statistics[i].value, statistics[i].interval(confidence)) for i, r in enumerate(ranges)]
    return tuple(Row(r.text, value, *ends, float(truth[r.low : r.high].sum())) for r, value, ends in values)


def variances(experiment: Experiment, rows: Sequence[IndexRange], shares: Floats) -> Floats:
    """Return variances of ranges' shares, times the number of reports, like Mechanism.variances().

    If "no reading" has an index, the shares are among the devices with a reading.

    Args:
        experiment: The experiment.
        rows: The ranges.
        shares: Shares of the indices, shape (domain,).
    """
    mechanism = mechanism_of(experiment)
    index = np.arange(experiment.domain)[:, None]
    has_reading = index < value_count(experiment)
    with_reading = float(shares @ has_reading[:, 0])
    result = np.empty(len(rows))
    chunk = max(1, _CHUNK // max(experiment.domain, mechanism.class_count))
    for first in range(0, len(rows), chunk):
        part = slice(first, min(first + chunk, len(rows)))
        low, high = (np.array([getattr(r, end) for r in rows[part]]) for end in ("low", "high"))
        in_range = ((index >= low) & (index < high)).astype(float)
        if not has_reading.all():  # the ratio's gradient, to first order
            in_range = has_reading * (in_range - shares @ in_range / with_reading) / with_reading
        result[part] = mechanism.variances(in_range, shares)
    return result
