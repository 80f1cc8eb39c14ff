"""Estimates of one fleet as its reports come in, beside the truth, and their error beside what theory says.

The reports accumulate: each step has all reports of the step before it. Histograms of a growing fleet go in,
in the order in which the reports arrived, which must say nothing of their readings.
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

FEWEST = 100  # reports of a fleet whose convergence is shown
SHOWN = 4  # shares of a picture, where none are named
MOST_SHOWN = 6  # lines that can be told apart
_STEPS = 40
_SPAN = 1000  # of the last step's reports to the first's, where there are enough
_FIRST = 30  # reports of each stratum in the first step, at least
_CHUNK = 1 << 22  # floats held at once


class ConvergenceError(HushmoteError):
    """A fleet whose convergence cannot be shown; the text says what would."""


@dataclass(frozen=True)
class Showing:
    """What a picture shows.

    ranges: or labels; without any the histogram's largest rows. quantiles: of a number; without any its
    median.
    """

    ranges: Sequence[str] = ()
    quantiles: Sequence[float] = ()


@dataclass(frozen=True)
class Step:
    """What the first `reports` reports say.

    shares: of the ranges, labels or values that are shown; quantiles: a number's, in its unit; both with the
    truth. error: root mean square, over the histogram's rows, of estimated less true shares; predicted: the
    same by theory.
    """

    reports: int
    shares: tuple[Row, ...]
    quantiles: tuple[Row, ...]
    error: float
    predicted: float


@dataclass(frozen=True)
class Convergence:
    """A fleet's estimates as its reports came in; estimates: of all of them."""

    experiment: Experiment
    unit: str
    confidence: float
    steps: tuple[Step, ...]
    estimates: Estimates

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON: each step's reports and errors."""
        return {
            "reports": [step.reports for step in self.steps],
            "rms_error": [step.error for step in self.steps],
            "rms_error_in_theory": [step.predicted for step in self.steps],
        }


def sizes(total: int, fewest: float) -> list[int]:
    """How many of `total` there are at each step: evenly on a logarithmic scale, the last one all."""
    first = min(max(fewest, total / _SPAN), total / 2)
    return [int(n) for n in np.unique(np.geomspace(first, total, _STEPS).round())]


def fewest_reports(experiment: Experiment) -> int:
    """Reports below which an estimate says nothing that could be shown."""
    return _FIRST * len(mechanism_of(experiment).strata)


def accumulated(experiment: Experiment, codes: Counts) -> Iterator[Counts]:
    """Yield the growing histogram of codes, in their order: the same array each time."""
    counts = np.zeros(experiment.code_count, np.int64)
    done = 0
    for size in sizes(len(codes), fewest_reports(experiment)):
        np.add.at(counts, codes[done:size], 1)
        done = size
        yield counts


def follow(
    experiment: Experiment,
    histograms: Iterable[Counts],
    truth: Floats,
    *,
    unit: str = "",
    confidence: float = CONFIDENCE,
    showing: Showing | None = None,
) -> Convergence:
    """Estimates each of the growing histograms of one fleet.

    histograms: of codes, shape (code_count,), each with the reports of those before it; the last has all.
    truth: shares of the indices among all reports, shape (domain,).

    Raises ConvergenceError for too few reports or more than 6 ranges or quantiles, UnitsError for a range
    that does not fit, EstimateError where the whole fleet's reports cannot be estimated.
    """
    showing = showing or Showing()
    for kind, wanted in (("ranges", showing.ranges), ("quantiles", showing.quantiles)):
        if len(wanted) > MOST_SHOWN:
            raise ConvergenceError(f"a picture of convergence shows {MOST_SHOWN} {kind} at most")
    rows = histogram_ranges(experiment, 16)
    indices, truth = truth, shares_with_reading(experiment, truth)
    with_reading = float(indices[: value_count(experiment)].sum())
    shown = parse_ranges(experiment, showing.ranges) or _largest(rows, truth)
    truths = np.array([truth[r.low : r.high].sum() for r in rows])
    steps: list[Step] = []
    last: Estimates | None = None
    lacking = EstimateError("there are no reports")
    for counts in histograms:
        last = None
        try:
            last = among_readings(estimate(experiment, counts.copy()))
            fleet = FleetEstimate(last, "", unit, confidence, truth)
            asked = fleet.quantile(*showing.quantiles).rows if experiment.type == "number" else ()
        except EstimateError as e:  # the first few reports may not have reached every level
            lacking = e
            continue
        below = np.concatenate(([0.0], np.cumsum(last.frequencies)))
        off = below[[r.high for r in rows]] - below[[r.low for r in rows]] - truths
        error = float(np.sqrt(np.mean(off**2)))
        steps.append(Step(last.reports, _rows(last, shown, confidence, truth), asked, error, 0.0))
    if last is None:
        raise lacking
    if last.reports < FEWEST:
        raise ConvergenceError(f"a picture of convergence needs {FEWEST} reports, not {last.reports:,}")
    # A variance counts the drawing of readings from a population. Here they are drawn from the fleet, without
    # replacement, which takes off as much at every step as the whole fleet's drawing adds.
    spread = variances(experiment, rows, indices)
    drawing = truths * (1 - truths) / (last.reports * with_reading)
    theory = [float(np.sqrt(np.mean(spread / step.reports - drawing))) for step in steps]
    known = tuple(replace(step, predicted=error) for step, error in zip(steps, theory, strict=True))
    return Convergence(experiment, unit, confidence, known, last)


def _largest(rows: Sequence[IndexRange], truth: Floats) -> list[IndexRange]:
    """The rows that hold most, in the order of the domain; "yes" alone where the other row is "no"."""
    if len(rows) == 2:
        return [rows[1]]
    held = [float(truth[r.low : r.high].sum()) for r in rows]
    best = sorted(range(len(rows)), key=lambda i: -held[i])[:SHOWN]
    return [rows[i] for i in sorted(best)]


def _rows(
    estimates: Estimates, wanted: Sequence[IndexRange], confidence: float, truth: Floats
) -> tuple[Row, ...]:
    statistics = estimates.ranges([r.low for r in wanted], [r.high for r in wanted])
    values = [(r, statistics[i].value, statistics[i].interval(confidence)) for i, r in enumerate(wanted)]
    return tuple(Row(r.text, value, *ends, float(truth[r.low : r.high].sum())) for r, value, ends in values)


def variances(experiment: Experiment, rows: Sequence[IndexRange], shares: Floats) -> Floats:
    """Variances of estimated shares of ranges, times reports, as Mechanism.variances().

    shares: of the indices, shape (domain,). Where no reading has an index, ranges are among those with one.
    """
    mechanism = mechanism_of(experiment)
    index = np.arange(experiment.domain)[:, None]
    having = index < value_count(experiment)
    with_reading = float(shares @ having[:, 0])
    result = np.empty(len(rows))
    at_once = max(1, _CHUNK // max(experiment.domain, mechanism.class_count))
    for first in range(0, len(rows), at_once):
        part = slice(first, min(first + at_once, len(rows)))
        low, high = (np.array([getattr(r, end) for r in rows[part]]) for end in ("low", "high"))
        asked = ((index >= low) & (index < high)).astype(float)
        if not having.all():  # of the ratio, to first order
            asked = having * (asked - shares @ asked / with_reading) / with_reading
        result[part] = mechanism.variances(asked, shares)
    return result
