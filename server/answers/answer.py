"""What estimates say in the experiment's own units: frozen tables that print, plot and save themselves.

An Answer is a table of rows, each a share of the fleet or a reading with its interval. What each kind of row
has besides is in its class: the truth, where it is known (Row), the probability of belonging to the top
(TopRow), before and after (ChangeRow), the window (TrendRow), the post-processed share (PostRow).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...device.ldp_client import Experiment
from ..estimate.estimate import Estimates
from ..estimate.postprocess import Shares
from ..estimate.statistic import EstimateError, Statistic
from ..estimate.top_k import top
from ..experiments.units import IndexRange, bin_edges, index_names, range_name
from . import moments
from .shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame
    from rich.console import RenderableType

CONFIDENCE = 0.95

Kind = Literal["histogram", "ranges", "cdf", "quantiles", "moments", "top", "change", "trend"]


@dataclass(frozen=True)
class Row:
    """A share of the fleet, or a reading, with its interval, and the truth where it is known."""

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


@dataclass(frozen=True)
class TopRow(Row):
    """One of the most common values; probability: that it belongs to the true ones."""

    probability: float = 0.0


@dataclass(frozen=True)
class ChangeRow(Row):
    """A change, after less before; p of no change, and p with all rows of the table taken into account."""

    before: float = 0.0
    after: float = 0.0
    p: float = 1.0
    p_adjusted: float = 1.0


@dataclass(frozen=True)
class TrendRow(Row):
    """A statistic in one window, with the window's number of reports."""

    window: str = ""
    reports: int = 0


@dataclass(frozen=True)
class PostRow(Row):
    """A share with a post-processed one beside it, which has no interval; value, low and high are the raw."""

    processed: float = 0.0


@dataclass(frozen=True, repr=False)
class Answer(Shown):
    """A table of results; printed, it is a table of 80 columns.

    kind        what was asked
    experiment  name
    quantity    what values are: "share" of the fleet (0 to 1), or "reading" in the experiment's unit
    unit        the reading's unit, or an empty text
    reports     how many reports it rests on
    confidence  that an interval holds the population's value, each row for itself
    rows        the rows, all of one class
    note        what has to be said with it, or an empty text
    """

    kind: Kind
    experiment: str
    quantity: Literal["share", "reading"]
    unit: str
    reports: int
    confidence: float
    rows: tuple[Row, ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        head = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        return head | {"rows": [row.to_dict() for row in self.rows]}

    def to_json(self) -> str:
        """One JSON document."""
        return json.dumps(self.to_dict(), indent=2)

    def to_csv(self) -> str:
        """A heading and one line for each row; the columns are those of to_dict()'s rows."""
        return Answers([self]).to_csv()

    def to_pandas(self) -> DataFrame:
        """A data frame, one row for each; the columns are those of to_dict()'s rows.

        Raises EstimateError where pandas is not installed.
        """
        return _data_frame(row.to_dict() for row in self.rows)

    def plot(self, path: Path | str | None = None, title: str = "", subtitle: str = "") -> Figure:
        """Draw a picture and return it; with a path it is also written: PNG, PDF or SVG by its name."""
        return Answers([self]).plot(path, title, subtitle)

    def __rich__(self) -> RenderableType:
        return Answers([self]).__rich__()

    def _repr_html_(self) -> str:
        return Answers([self])._repr_html_()


class Answers(Shown, tuple[Answer, ...]):
    """Several tables, printed one below the other."""

    def to_csv(self) -> str:
        """All in one table, the first column says which."""
        text = io.StringIO()
        lines = self._lines()
        columns = list(dict.fromkeys(key for line in lines for key in line))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def to_pandas(self) -> DataFrame:
        """One data frame of all, with the columns of to_csv(); EstimateError where pandas is missing."""
        return _data_frame(self._lines())

    def plot(self, path: Path | str | None = None, title: str = "", subtitle: str = "") -> Figure:
        """Draw all below one another and return the figure; with a path it is also written, see Answer."""
        from .plot import plot  # matplotlib takes a second to load: only those who plot wait for it

        return plot(None if path is None else Path(path), self, title, subtitle)

    def _lines(self) -> list[dict[str, Any]]:
        return [{"kind": a.kind, "quantity": a.quantity} | row.to_dict() for a in self for row in a.rows]

    def __rich__(self) -> RenderableType:
        from .tables import stacked  # which imports this module

        return stacked(self)

    def _repr_html_(self) -> str:
        from .tables import html

        return "".join(html(one) for one in self)


def _data_frame(lines: Iterable[dict[str, Any]]) -> DataFrame:
    try:
        import pandas
    except ImportError:
        raise EstimateError("to_pandas needs pandas: pip install 'hushmote[pandas]'") from None
    return pandas.DataFrame(list(lines))


def _answer(
    estimate: Estimates, kind: Kind, rows: Iterable[Row], unit: str, confidence: float, note: str = ""
) -> Answer:
    quantity = "reading" if kind in ("quantiles", "moments") else "share"
    name = estimate.experiment.name
    return Answer(kind, name, quantity, unit, estimate.reports, confidence, tuple(rows), note)


def _row(name: str, statistic: Statistic, confidence: float, truth: float | None = None) -> Row:
    low, high = statistic.interval(confidence)
    return Row(name, statistic.value, low, high, truth)


def row_width(experiment: Experiment, most_rows: int) -> int:
    """How many indices one row of a histogram with at most most_rows rows stands for.

    A hierarchical histogram's own nodes come first: those were asked directly and are known best. Labels are
    never put together.
    """
    if experiment.type != "number":
        return 1
    widths = sorted({level.width for level in experiment.levels})
    for width in widths:
        if -(-experiment.domain // width) <= most_rows:
            return width
    return -(-experiment.domain // most_rows)


def histogram_ranges(experiment: Experiment, most_rows: int) -> list[IndexRange]:
    """The whole domain in at most most_rows ranges, or one for each label."""
    width = row_width(experiment, most_rows)
    edges = bin_edges(experiment) if experiment.type == "number" else None
    starts = range(0, experiment.domain, width)
    ends = [min(low + width, experiment.domain) for low in starts]
    return [
        IndexRange(lo, hi, range_name(experiment, lo, hi, edges)) for lo, hi in zip(starts, ends, strict=True)
    ]


def histogram(
    estimate: Estimates,
    most_rows: int = 16,
    truth: np.ndarray | None = None,
    unit: str = "",
    confidence: float = CONFIDENCE,
    processed: Shares | None = None,
) -> Answer:
    """The whole domain in at most most_rows rows; truth: shares of the indices, shape (domain,), or None.

    processed: post-processed shares to show beside the unbiased ones.
    """
    wanted = histogram_ranges(estimate.experiment, most_rows)
    rows = _shares(estimate, wanted, truth, confidence, processed)
    return _answer(estimate, "histogram", rows, unit, confidence, _note(processed))


def ranges(
    estimate: Estimates,
    wanted: Sequence[IndexRange],
    truth: np.ndarray | None = None,
    unit: str = "",
    confidence: float = CONFIDENCE,
    processed: Shares | None = None,
) -> Answer:
    """The shares of the fleet inside ranges."""
    rows = _shares(estimate, wanted, truth, confidence, processed)
    return _answer(estimate, "ranges", rows, unit, confidence, _note(processed))


def _shares(
    estimate: Estimates,
    wanted: Sequence[IndexRange],
    truth: np.ndarray | None,
    confidence: float,
    processed: Shares | None,
) -> list[Row]:
    statistics = estimate.ranges([r.low for r in wanted], [r.high for r in wanted])
    truths = [None if truth is None else float(truth[r.low : r.high].sum()) for r in wanted]
    rows = [_row(r.text, statistics[i], confidence, truths[i]) for i, r in enumerate(wanted)]
    if processed is None:
        return rows
    shares = [float(processed.frequencies[r.low : r.high].sum()) for r in wanted]
    return [PostRow(**asdict(row), processed=share) for row, share in zip(rows, shares, strict=True)]


def _note(processed: Shares | None) -> str:
    return "" if processed is None else f"{processed.method}: {' '.join(processed.notes)}"


def cdf(
    estimate: Estimates, truth: np.ndarray | None = None, unit: str = "", confidence: float = CONFIDENCE
) -> Answer:
    """The share of the fleet below every edge of a number's bins but the last, which all are below."""
    edges = bin_edges(estimate.experiment)
    values, (low, high) = estimate.cdf(), estimate.cdf_intervals(confidence)
    truths = None if truth is None else np.cumsum(truth)
    rows = [
        Row(
            f"{edges[i + 1]:g}",
            float(values[i]),
            float(low[i]),
            float(high[i]),
            None if truths is None else float(truths[i]),
        )
        for i in range(estimate.domain - 1)
    ]
    return _answer(estimate, "cdf", rows, unit, confidence)


def quantile_name(q: float) -> str:
    """How a quantile is called."""
    return "median" if q == 0.5 else f"{q * 100:g} % quantile"


def quantiles(
    estimate: Estimates,
    wanted: Sequence[float],
    truth: np.ndarray | None = None,
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """Quantiles of a number: the middle of a quantile's bin; the interval runs over whole bins."""
    edges, middles = bin_edges(estimate.experiment), moments.bin_middles(estimate)
    rows = []
    for q in wanted:
        quantile = estimate.quantile(q, confidence)
        true = None
        if truth is not None:
            true = float(middles[min(int(np.searchsorted(np.cumsum(truth), q)), estimate.domain - 1)])
        low, high = float(edges[quantile.low]), float(edges[quantile.high + 1])
        rows.append(Row(quantile_name(q), float(middles[quantile.index]), low, high, true))
    return _answer(estimate, "quantiles", rows, unit, confidence)


def mean_and_deviation(
    estimate: Estimates, truth: np.ndarray | None = None, unit: str = "", confidence: float = CONFIDENCE
) -> Answer:
    """Mean and standard deviation of a number, readings taken as the middles of their bins."""
    spread = moments.deviation(estimate)
    true = [None, None]
    if truth is not None:
        x = moments.bin_middles(estimate)
        centre = float(truth @ x)
        true = [centre, float(np.sqrt(truth @ (x - centre) ** 2))]
    rows = [
        _row("mean", spread.mean, confidence, true[0]),
        Row("standard deviation", spread.value, *spread.interval(confidence), true[1]),
    ]
    return _answer(estimate, "moments", rows, unit, confidence)


def most_common(
    estimate: Estimates,
    k: int,
    truth: np.ndarray | None = None,
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """The k most common values, each with the probability that it is one, then others that may be."""
    names = index_names(estimate.experiment)
    common = top(estimate, k)
    rows = [
        TopRow(
            **asdict(_row(names[one.index], one.frequency, confidence, _true(truth, one.index))),
            probability=one.probability,
        )
        for one in (*common.listed, *common.near)
    ]
    note = f"below the first {k}: others that may belong there" if common.near else ""
    return _answer(estimate, "top", rows, unit, confidence, note)


def _true(truth: np.ndarray | None, index: int) -> float | None:
    return None if truth is None else float(truth[index])


def coverage(answers: Iterable[Answer]) -> tuple[int, int]:
    """How many of the answers' intervals hold the truth, and out of how many."""
    known = [row for a in answers for row in a.rows if row.covered is not None]
    return sum(row.covered is True for row in known), len(known)
