"""What estimates say in the experiment's own units: frozen rows, data only.

What each kind of row has besides its share or reading is in its class: the truth, where it is known (Row),
the probability of belonging to the top (TopRow), before and after (ChangeRow), the window (TrendRow), the
post-processed share (PostRow), the texts that it is of (CandidateRow).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from ..words.answers import APPROXIMATE
from ..words.numbers import ENGLISH, decimals, format_estimate, is_too_wide

if TYPE_CHECKING:  # NumPy takes long to load
    from ..estimate.statistic import HasInterval

CONFIDENCE = 0.95

APPROXIMATE_MARK = ", approximate"
"""Behind the heading of a table, and behind the value of a finding."""

_OfValues = Literal["histogram", "ranges", "cdf", "quantiles", "moments", "top", "ties"]
_OfPairs = Literal["joint", "marginal", "conditional", "difference"]
Kind = _OfValues | _OfPairs | Literal["candidates", "discovery", "change", "trend"]
Quantity = Literal["share", "reading"]

TITLES: dict[Kind, str] = {
    "histogram": "share of the fleet",
    "ranges": "ranges",
    "cdf": "share of the fleet below",
    "quantiles": "quantiles",
    "moments": "mean and spread",
    "top": "most common",
    "ties": "may belong there as well",
    "change": "what changed",
    "trend": "over time",
    "joint": "share of the fleet",
    "marginal": "share of the fleet",
    "conditional": "one part given another",
    "difference": "the difference",
    "candidates": "share of the fleet",
    "discovery": "texts found",
}
"""Headings of tables, by kind."""

OUTSIDE = (
    "Unbiased estimates scatter around the truth, some of them below 0 % or above 100 %, where no real share "
    "is: the interval tells what is likely."
)
"""Shown once below a table with such a share."""


@dataclass(frozen=True)
class Row:
    """A share of the fleet, or a reading, with its interval, and the truth where it is known.

    name: of the range, label or statistic. value, low, high: the estimate and the ends of its interval.
    lower, upper: the edges of the bins that a share is of, in the reading's unit; None where there are none.
    statistic: what the interval comes from; None where that is not one statistic.
    """

    name: str
    value: float
    low: float
    high: float
    truth: float | None = None
    lower: float | None = None
    upper: float | None = None
    statistic: HasInterval | None = field(default=None, repr=False, compare=False)

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def se(self) -> float | None:
        """The standard error, in the unit of `value`; None where the interval does not come from one."""
        return getattr(self.statistic, "stderr", None)

    @property
    def covered(self) -> bool | None:
        """Return whether the interval holds the truth; None if the truth is not known."""
        return None if self.truth is None else self.low <= self.truth <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        first = {"name": self.name, "value": self.value, "low": self.low, "high": self.high, "se": self.se}
        further = {name: value for name, value in vars(self).items() if name != "statistic"}
        return first | further | {"covered": self.covered}


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

    def adjusted_away(self, confidence: float) -> bool:
        """Return whether it counts as changed by itself, but not when all rows of the table are compared."""
        return self.p < 1 - confidence <= self.p_adjusted


@dataclass(frozen=True)
class TrendRow(Row):
    """A statistic in one window, with the window's number of reports and the ε of its histogram.

    histogram_epsilon: None where it is not known, or the window has not ended.
    """

    window: str = ""
    reports: int = 0
    histogram_epsilon: float | None = None


@dataclass(frozen=True)
class PostRow(Row):
    """A share with a post-processed one beside it, which has no interval; value, low and high are the raw."""

    processed: float = 0.0


@dataclass(frozen=True)
class CellRow(Row):
    """The share of a cell of a joint table; cell: each part's name and its value's, in order."""

    cell: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; each part has a key of its own."""
        parts = {f"part_{part}": value for part, value in self.cell}
        return parts | {name: one for name, one in super().to_dict().items() if name != "cell"}


@dataclass(frozen=True)
class DifferenceRow(Row):
    """The statistic under one condition less that under another, both values, and p of no difference."""

    first: float = 0.0
    second: float = 0.0
    p: float = 1.0


@dataclass(frozen=True)
class CandidateRow(Row):
    """A share that texts of one slot have together; without any, that of all texts that are not listed.

    p: one-sided, that noise alone shows as much where no board has them, and p_adjusted with all rows of the
    table taken into account; None where there are no texts.
    """

    texts: tuple[str, ...] = ()
    p: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True)
class FoundRow(Row):
    """A text that nobody listed; whole: not cut by the last prefix, behind which it may go on."""

    text: str = ""
    whole: bool = True


@dataclass(frozen=True)
class AnswerRows:
    """The rows of an answer, and what they are of.

    kind        what was asked
    experiment  name
    quantity    what values are: "share" of the fleet (0 to 1), or "reading" in the experiment's unit
    unit        the reading's unit, or an empty text
    reports     how many reports it rests on
    confidence  that an interval holds the population's value, each row for itself
    rows        the rows, all of one class
    note        what has to be said with it, or an empty text
    about       which reports: fleet, windows and version in words, as far as they are known
    against     of a change: which reports those before it are
    post        name of the post-processing behind the shares beside the unbiased ones, or an empty text
    p_values    of a trend: each statistic's name with the p of no change over the windows
    title       what the table shows, where its kind does not say all of it
    most        how many rows tables and pictures have besides the last one; 0 for all
    extent      of readings, from the lowest to the highest that there can be; infinite where nobody says it
    less_sure   whether the interval of the last row holds less often than the others; the note says so
    missing     the share of the fleet that has no reading, if the experiment sets missing; all other values
                are about devices with a reading
    approximate  whether the mechanism has an error that more reports do not remove; the intervals include it
    """

    kind: Kind
    experiment: str
    quantity: Quantity
    unit: str
    reports: int
    confidence: float
    rows: tuple[Row, ...]
    note: str = ""
    about: str = ""
    against: str = ""
    post: str = ""
    p_values: tuple[tuple[str, float], ...] = ()
    title: str = ""
    most: int = 0
    extent: float = math.inf
    less_sure: bool = False
    missing: Row | None = None
    approximate: bool = False

    @property
    def heading(self) -> str:
        """The table's heading."""
        return f"{self.title or TITLES[self.kind]}{APPROXIMATE_MARK * self.approximate}"

    @property
    def interval_heading(self) -> str:
        """The heading of the intervals, with the confidence if all of them have it."""
        return "interval" if self.less_sure else f"{self.confidence * 100:g} % interval"

    def limit_rows(self) -> Self:
        """Return the same with only the rows that tables and pictures show."""
        if not self.most or len(self.rows) <= self.most + 1:
            return self
        return replace(self, rows=(*self.rows[: self.most], self.rows[-1]))

    def tells(self, row: Row) -> bool:
        """Return whether a row's interval is narrow enough to be shown."""
        return not is_too_wide(row.half_width, 1.0 if self.quantity == "share" else self.extent)

    def telling(self) -> Self:
        """Return the same with the rows whose interval is narrow enough to be shown."""
        return replace(self, rows=tuple(filter(self.tells, self.rows)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that belong below the table: `note`, and what its numbers need to be understood."""
        notes = [self.note] if self.note else []
        if self.approximate:
            notes.append(APPROXIMATE)
        if self.missing and self.kind == "histogram":
            notes.insert(0, _missing_note(self.missing))
        if self.quantity == "share" and any(map(_outside, self.limit_rows().telling().rows)):
            better = " With post-processing (nonnegative) every share is possible."
            notes.append(OUTSIDE + better * (self.kind in ("histogram", "ranges") and not self.post))
        changes = [row for row in self.rows if isinstance(row, ChangeRow)]
        if len(changes) > 1:
            alone = sum(row.adjusted_away(self.confidence) for row in changes)
            alone_note = f" {alone} would count as changed if looked at alone." if alone else ""
            notes.append(f"p takes into account that {len(changes)} rows are compared (Holm).{alone_note}")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        apart = ("rows", "note", "p_values", "title", "most", "extent", "less_sure", "missing")
        head = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        head |= {"missing": self.missing.to_dict()} if self.missing else {}
        head |= {"title": self.title} if self.title else {}
        head |= {"p_values": dict(self.p_values)} if self.p_values else {}
        return head | {"rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}


def _missing_note(row: Row) -> str:
    """Return a sentence on the share of the fleet that has no reading."""
    share, interval = format_estimate(row.value, row.low, row.high)
    places = decimals(100 * row.low, 100 * row.high)
    truth = "" if row.truth is None else f"true {ENGLISH.percent(row.truth, places)}"
    more = ", ".join(filter(None, [interval, truth]))
    share = f"{share} ({more})" if more else share
    return f"no reading: {share}. All else is about devices with a reading."


def _outside(row: Row) -> bool:
    """Return whether a share is shown as less than 0% or more than 100%."""
    match row:
        case ChangeRow():
            values = [row.before, row.after]
        case DifferenceRow():
            values = [row.first, row.second]
        case _:
            values = [row.value, row.low, row.high]
    return min(values) * 100 < -0.005 or max(values) * 100 > 100.005


def quantile_name(q: float) -> str:
    """Return the name of a quantile."""
    return "median" if q == 0.5 else f"{q * 100:g} % quantile"


def coverage(answers: Iterable[AnswerRows]) -> tuple[int, int]:
    """Return how many of the answers' intervals hold the truth, and the number of intervals."""
    rows = [row for a in answers for row in a.rows if row.covered is not None]
    return sum(row.covered is True for row in rows), len(rows)
