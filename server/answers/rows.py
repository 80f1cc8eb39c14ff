"""The rows of answers, in the experiment's own units: plain frozen data.

Each kind of row has a class for the fields that it adds to a share or reading: the true value, if known
(Row), the probability of belonging to the top k (TopRow), the values before and after (ChangeRow), the window
(TrendRow), the post-processed share (PostRow), or the texts that it stands for (CandidateRow).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from ..hints import option
from ..local_days import UTC_DAYS, Calendar
from ..words.answers import APPROXIMATE
from ..words.numbers import ENGLISH, decimals, format_estimate, is_too_wide
from ..words.scope import Population

if TYPE_CHECKING:  # NumPy is slow to load
    from ..estimate.statistic import HasInterval

CONFIDENCE = 0.95

APPROXIMATE_MARK = ", approximate"
"""Added to a table's heading, and to a finding's value."""

_OfValues = Literal["histogram", "ranges", "cdf", "quantiles", "moments", "top", "ties"]
_OfPairs = Literal["joint", "marginal", "conditional", "difference"]
Kind = _OfValues | _OfPairs | Literal["candidates", "discovery", "change", "trend"]
Quantity = Literal["share", "reading"]

SHARE_OF_FLEET, SHARE_OF_READINGS = "share of the fleet", "share of the readings"

TITLES: dict[Kind, str] = {
    "histogram": SHARE_OF_FLEET,
    "ranges": "ranges",
    "cdf": f"{SHARE_OF_FLEET} below",
    "quantiles": "quantiles",
    "moments": "mean and spread",
    "top": "most common",
    "ties": "may also belong there",
    "change": "what changed",
    "trend": "over time",
    "joint": SHARE_OF_FLEET,
    "marginal": SHARE_OF_FLEET,
    "conditional": "one part given another",
    "difference": "the difference",
    "candidates": SHARE_OF_FLEET,
    "discovery": "texts found",
}
"""Table headings, by kind."""

OUTSIDE = "Estimates are noisy, so some fall below 0% or above 100%. Rely on the interval."
"""Shown below a table with a share below 0% or above 100%."""


@dataclass(frozen=True)
class Row:
    """A share of the fleet, or a reading, with its interval, and the true value if known.

    Attributes:
        name: The name of the range, label or statistic.
        value: The estimate.
        low: The lower bound of the interval.
        high: The upper bound of the interval.
        truth: The true value, if known from a simulation.
        lower: The lower edge of the bins that a share covers, in the reading's unit, or None.
        upper: The upper edge of these bins, likewise.
        statistic: The statistic that the interval is based on, or None if there is no single one.
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
        """The standard error in the unit of `value`, or None if the interval is not based on one."""
        return getattr(self.statistic, "stderr", None)

    @property
    def covered(self) -> bool | None:
        """Whether the interval contains the true value, or None if that is unknown."""
        return None if self.truth is None else self.low <= self.truth <= self.high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        first = {"name": self.name, "value": self.value, "low": self.low, "high": self.high, "se": self.se}
        further = {name: value for name, value in vars(self).items() if name != "statistic"}
        return first | further | {"covered": self.covered}


@dataclass(frozen=True)
class TopRow(Row):
    """One of the most common values.

    Attributes:
        probability: The probability that it is among the true most common values.
    """

    probability: float = 0.0


@dataclass(frozen=True)
class ChangeRow(Row):
    """A change, after minus before.

    Attributes:
        before: The value before.
        after: The value after.
        p: The p-value for no change.
        p_adjusted: The p-value that takes all rows of the table into account.
    """

    before: float = 0.0
    after: float = 0.0
    p: float = 1.0
    p_adjusted: float = 1.0

    def adjusted_away(self, confidence: float) -> bool:
        """Return whether it would count as changed on its own, but not when all rows are considered."""
        return self.p < 1 - confidence <= self.p_adjusted


@dataclass(frozen=True)
class TrendRow(Row):
    """A statistic in one window.

    Attributes:
        window: The window.
        reports: The number of reports in it.
        histogram_epsilon: The ε of the window's histogram, or None if it is unknown or the window has not
            ended.
        partial: Whether the trend covers only part of this day, week or month.
        version: The first digits of the digest of the version that answers, or "" if all windows count the
            same values.
    """

    window: str = ""
    reports: int = 0
    histogram_epsilon: float | None = None
    partial: bool = False
    version: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {name: value for name, value in super().to_dict().items() if name != "version" or value}


@dataclass(frozen=True)
class VersionMark:
    """The start of a version that counts other values than the one before it in a trend.

    Attributes:
        window: The version's first window.
        version: The first digits of its digest.
        text: How it differs from the version before, such as "with 'dry'".
    """

    window: str
    version: str
    text: str


@dataclass(frozen=True)
class PostRow(Row):
    """A raw share alongside a post-processed one, which has no interval."""

    processed: float = 0.0


@dataclass(frozen=True)
class CellRow(Row):
    """The share of a cell of a joint table.

    Attributes:
        cell: The name and value of each part, in order.
    """

    cell: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, with a key for each part."""
        parts = {f"part_{part}": value for part, value in self.cell}
        return parts | {name: value for name, value in super().to_dict().items() if name != "cell"}


@dataclass(frozen=True)
class DifferenceRow(Row):
    """A statistic under one condition minus the same statistic under another.

    Attributes:
        first: The value under the first condition.
        second: The value under the second condition.
        p: The p-value for no difference.
    """

    first: float = 0.0
    second: float = 0.0
    p: float = 1.0


@dataclass(frozen=True)
class CandidateRow(Row):
    """The share of the texts in one slot; without texts, the share of all unlisted texts.

    Attributes:
        texts: The texts.
        p: The one-sided p-value for the hypothesis that no board has them, or None if there are no texts.
        p_adjusted: The p-value that takes all rows of the table into account, or None.
    """

    texts: tuple[str, ...] = ()
    p: float | None = None
    p_adjusted: float | None = None


@dataclass(frozen=True)
class FoundRow(Row):
    """A text that nobody listed.

    Attributes:
        text: The text.
        whole: Whether it is complete; if not, it fills the last prefix and may continue.
    """

    text: str = ""
    whole: bool = True


@dataclass(frozen=True)
class AnswerRows:
    """An answer's rows and metadata.

    Attributes:
        kind: The kind of question.
        experiment: The experiment's name.
        quantity: What the values are: a "share" of the fleet (0 to 1), or a "reading" in the experiment's
            unit.
        unit: The reading's unit, or "".
        reports: The number of reports that the answer is based on.
        confidence: The probability that a single row's interval contains the population's value.
        rows: The rows, all of one class.
        note: A note to show with the answer, or "".
        about: A description of the reports: fleet, windows and version, as far as they are known.
        against: For a change, a description of the reports it is compared with.
        post: The post-processing method of the processed shares, or "".
        p_values: For a trend, each statistic's name and the p-value for no change over the windows.
        changes: For a trend, sentences on whether each statistic changed; shown after the note.
        marks: For a trend, the windows in which other versions start, oldest first.
        title: The table's title, if its kind is not specific enough.
        most: The maximum number of rows in tables and figures, not counting the last row; 0 for all.
        extent: For readings, the distance between the lowest and highest possible values; infinite if
            unknown.
        less_sure: Whether the last row's interval has a lower confidence than the others; the note says so.
        missing: The share of the fleet without a reading, if the experiment sets `missing`; all other values
            then refer to devices with a reading.
        approximate: Whether the mechanism has an error that more reports do not reduce; the intervals include
            it.
        scale: The scale of a number's bins: "log", or None if they are equally wide.
        calendar: The experiment's calendar.
        population: What shares are shares of; see Selected.population.
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
    changes: tuple[str, ...] = ()
    marks: tuple[VersionMark, ...] = ()
    title: str = ""
    most: int = 0
    extent: float = math.inf
    less_sure: bool = False
    missing: Row | None = None
    approximate: bool = False
    scale: Literal["log"] | None = None
    calendar: Calendar = UTC_DAYS
    population: Population = "devices"

    @property
    def heading(self) -> str:
        """The table's heading."""
        title = self.title or TITLES[self.kind]
        if self.population == "readings":
            title = title.replace(SHARE_OF_FLEET, SHARE_OF_READINGS)
        return f"{title}{APPROXIMATE_MARK * self.approximate}"

    @property
    def interval_heading(self) -> str:
        """The intervals' column heading, with the confidence if it applies to all of them."""
        return "interval" if self.less_sure else f"{self.confidence * 100:g}% interval"

    def limit_rows(self) -> Self:
        """Return a copy with only the rows that tables and figures show."""
        if not self.most or len(self.rows) <= self.most + 1:
            return self
        return replace(self, rows=(*self.rows[: self.most], self.rows[-1]))

    def tells(self, row: Row) -> bool:
        """Return whether a row's interval is narrow enough to be shown."""
        return not is_too_wide(row.half_width, 1.0 if self.quantity == "share" else self.extent)

    def telling(self) -> Self:
        """Return a copy with only the rows whose interval is narrow enough to be shown."""
        return replace(self, rows=tuple(filter(self.tells, self.rows)))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences to show below the table: `note`, and explanations of its numbers."""
        lines = [line for line in (self.note, *self.changes) if line]
        notes = ["\n".join(lines)] if lines else []
        if self.approximate:
            notes.append(APPROXIMATE)
        if self.missing and self.kind == "histogram":
            notes.insert(0, _missing_note(self.missing))
        if self.quantity == "share" and any(map(_is_outside, self.limit_rows().telling().rows)):
            processed = f" {option('post', 'nonnegative')} also shows shares from 0% to 100%."
            has_post = self.kind in ("histogram", "ranges") and self.rows[0].truth is None
            notes.append(OUTSIDE + processed * (has_post and not self.post))
        changes = [row for row in self.rows if isinstance(row, ChangeRow)]
        if len(changes) > 1:
            alone = sum(row.adjusted_away(self.confidence) for row in changes)
            alone_note = f" {alone} would count as changed if considered alone." if alone else ""
            notes.append(f"The p-values account for the comparison of {len(changes)} rows.{alone_note}")
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        excluded = ("rows", "note", "p_values", "changes", "title", "most", "extent", "less_sure", "missing")
        excluded += ("calendar", "marks", *(("scale",) if self.scale is None else ()))
        excluded += ("population",) if self.population == "devices" else ()
        head = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in excluded}
        head |= {"missing": self.missing.to_dict()} if self.missing else {}
        head |= {"title": self.title} if self.title else {}
        head |= {"p_values": dict(self.p_values)} if self.p_values else {}
        head |= {"new_versions": [asdict(mark) for mark in self.marks]} if self.marks else {}
        return head | {"rows": [row.to_dict() for row in self.rows], "notes": list(self.notes)}


def _missing_note(row: Row) -> str:
    share, interval = format_estimate(row.value, row.low, row.high)
    places = decimals(100 * row.low, 100 * row.high)
    truth = "" if row.truth is None else f"true {ENGLISH.percent(row.truth, places)}"
    more = ", ".join(filter(None, [interval, truth]))
    share = f"{share} ({more})" if more else share
    return f"no reading: {share}. All other values refer to devices with a reading."


def _is_outside(row: Row) -> bool:
    """Return whether any number shown for a share is below 0% or above 100%."""
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
    return "median" if q == 0.5 else f"{q * 100:g}% quantile"


def coverage(answers: Iterable[AnswerRows]) -> tuple[int, int]:
    """Return how many of the answers' intervals contain the true value, and the number of intervals."""
    rows = [row for a in answers for row in a.rows if row.covered is not None]
    return sum(row.covered is True for row in rows), len(rows)
