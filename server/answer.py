"""What an estimate says in the experiment's own units: rows of a histogram, of ranges and of quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..device.ldp_client import Experiment
from .estimate import Estimates
from .statistic import Statistic
from .units import IndexRange, bin_edges, range_name

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """A share of the fleet, or a quantile, with its 95 % interval, and the truth where it is known."""

    name: str
    value: float
    low: float
    high: float
    truth: float | None = None

    @property
    def covered(self) -> bool | None:
        """Whether the interval holds the truth; None where the truth is not known."""
        return None if self.truth is None else self.low <= self.truth <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"covered": self.covered}


def row_width(experiment: Experiment, most_rows: int) -> int:
    """How many indices one row of a histogram with at most most_rows rows stands for.

    A hierarchical histogram's own nodes come first: those were asked directly and are known best.
    """
    widths = sorted({level.width for level in experiment.levels})
    for width in widths:
        if -(-experiment.domain // width) <= most_rows:
            return width
    return -(-experiment.domain // most_rows)


def histogram_rows(
    experiment: Experiment, estimate: Estimates, most_rows: int = 16, truth: np.ndarray | None = None
) -> list[Row]:
    """The whole domain in at most most_rows rows; labels are never put together.

    truth: shares of the indices, shape (domain,), or None.
    """
    width = row_width(experiment, most_rows) if experiment.type == "number" else 1
    edges = bin_edges(experiment) if experiment.type == "number" else None
    rows = []
    for low in range(0, experiment.domain, width):
        high = min(low + width, experiment.domain)
        name = range_name(experiment, low, high, edges)
        rows.append(range_row(estimate, IndexRange(low, high, name), truth))
    return rows


def range_row(estimate: Estimates, wanted: IndexRange, truth: np.ndarray | None = None) -> Row:
    """The share of the fleet inside a range."""
    share = None if truth is None else float(truth[wanted.low : wanted.high].sum())
    return _row(wanted.text, estimate.range(wanted.low, wanted.high), share)


def _row(name: str, statistic: Statistic, truth: float | None) -> Row:
    low, high = statistic.interval(CONFIDENCE)
    return Row(name, float(statistic.value), float(low), float(high), truth)


def quantile_row(
    experiment: Experiment, estimate: Estimates, q: float, truth: np.ndarray | None = None
) -> Row:
    """The q-quantile of a number: the middle of its bin; the interval runs over whole bins."""
    edges = bin_edges(experiment)
    middles = (edges[:-1] + edges[1:]) / 2
    found = estimate.quantile(q)
    name = "median" if q == 0.5 else f"{q * 100:g} % quantile"
    share = None
    if truth is not None:
        share = float(middles[min(int(np.searchsorted(np.cumsum(truth), q)), experiment.domain - 1)])
    return Row(
        name, float(middles[found.index]), float(edges[found.low]), float(edges[found.high + 1]), share
    )


def coverage(rows: Sequence[Row]) -> tuple[int, int]:
    """How many of the rows' intervals hold the truth, and out of how many."""
    known = [row for row in rows if row.covered is not None]
    return sum(row.covered is True for row in known), len(known)
