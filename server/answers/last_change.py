"""Track an answer from day to day, and find the last change in it."""

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Floats
from ..estimate.daily import LinearDays, Weights
from ..estimate.detector import Scan
from ..estimate.estimate import Estimates
from ..experiments.asks import Ask
from ..experiments.units import bin_edges, bin_middles, parse_range
from . import moments, pair_tables
from .daily import Series, below_edge, scan_quantile

_RECENT_DAYS = 28  # days for which a change is news


@dataclass(frozen=True)
class FindingChange:
    """A change in the answer.

    Attributes:
        since: The earliest day on which the change may have happened; all earlier days are before the
            change.
        settled: The latest such day; this day and all later ones are after the change.
        before: The value between the previous change and this one.
        after: The value after this change.
        size: The size of the change, with its interval `low` to `high`.
        chance: The probability that a year of looks at an unchanging fleet would show a change as clear as
            this one.
        earlier: The day of the previous change, or None.
        text: A description of the change without its certainty: "Up from 6% before 8 Nov".
        windows: The windows that `before` is based on, and those that `after` is based on.
    """

    since: datetime.date
    settled: datetime.date
    before: float
    after: float
    size: float
    low: float
    high: float
    chance: float
    earlier: datetime.date | None = None
    text: str = ""
    windows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class ScanOutcome:
    """The outcome of a scan: a recent change, or the days without one and the smallest detectable change."""

    change: FindingChange | None = None
    since: datetime.date | None = None
    detectable: float | None = None


NOT_SCANNED = ScanOutcome()


@dataclass(frozen=True)
class TrackedAnswer:
    """An answer that is tracked from day to day.

    Attributes:
        subject: A key that distinguishes it from the experiment's other answers.
        weights: The weights of a share, mean or ratio, or None for a quantile.
        level: The level of a quantile.
    """

    subject: tuple[object, ...]
    weights: Weights | None
    level: float = 0.5


def tracked_answer(ask: Ask) -> TrackedAnswer | None:
    """Return how to track a question's answer over days, or None if it cannot be tracked."""
    match ask.kind:
        case "mean":
            return TrackedAnswer(subject_of(ask), lambda experiment: bin_middles(experiment)[:, None])
        case "quantile":
            return TrackedAnswer(subject_of(ask), None, ask.level)
        case "share":
            return TrackedAnswer(subject_of(ask), lambda experiment: _share_weights(experiment, ask.text))
        case _:
            return None


def scan_days(
    days: Series | None, answer: TrackedAnswer, pooled: Callable[[Sequence[str]], Estimates], comparisons: int
) -> ScanOutcome:
    """Scan the completed days for changes of an answer.

    Args:
        days: The completed days, or None if there are too few.
        answer: The answer.
        pooled: Returns the estimates from the given windows.
        comparisons: The number of series and differences that share the false-alarm allowance.
    """
    if days is None:
        return NOT_SCANNED
    if answer.weights is None:
        scan, edge = scan_quantile(days, answer.level, pooled, comparisons)
        scale = _QuantileScale(days, answer.level, edge, pooled)
    else:
        scan, series = days.scan_linear(answer.weights, comparisons)
        scale = _LinearScale(days, series)
    if scan.changes and days.days - scan.changes[-1].last <= _RECENT_DAYS:
        return ScanOutcome(change=scale.change(scan))
    if scan.detectable is None:
        return NOT_SCANNED
    return ScanOutcome(since=days.day(scan.start), detectable=scale.detectable(scan))


@dataclass(frozen=True)
class _LinearScale:
    """Converts a scan of a share, mean or ratio to changes in that statistic."""

    days: Series
    series: LinearDays | None

    def change(self, scan: Scan) -> FindingChange:
        last, start = scan.changes[-1], _start_of_last_scan(scan)
        before, after = (
            (self.series.level(*days) if self.series else None) or 0.0
            for days in ((start, last.first), (last.last, self.days.days))
        )
        return _change_of(self.days, scan, before, after, (last.size, last.low, last.high))

    def detectable(self, scan: Scan) -> float | None:
        return scan.detectable


@dataclass(frozen=True)
class _QuantileScale:
    """Converts a scan of the share below an edge to changes in a quantile, using the shares before it."""

    days: Series
    level: float
    edge: int | None
    pooled: Callable[[Sequence[str]], Estimates]

    def change(self, scan: Scan) -> FindingChange | None:
        last, start = scan.changes[-1], _start_of_last_scan(scan)
        sides = (start, last.first), (last.last, self.days.days)
        before, after = (self.pooled(self.days.windows_of(*days)) for days in sides)
        edge = int(np.argmin(np.abs(before.cdf()[:-1] - self.level))) + 1
        size, low, high = (_quantile_shift(before, edge, step) for step in (last.size, last.high, last.low))
        old, new = (moments.BinQuantile(side, self.level).value for side in (before, after))
        return _change_of(self.days, scan, old, new, (size, low, high))

    def detectable(self, scan: Scan) -> float | None:
        if scan.detectable is None or self.edge is None:
            return None
        now = self.pooled(self.days.windows_of(scan.start, self.days.days))
        return max(abs(_quantile_shift(now, self.edge, sign * scan.detectable)) for sign in (-1, 1))


def _change_of(
    days: Series, scan: Scan, before: float, after: float, sizes: tuple[float, float, float]
) -> FindingChange:
    """Return a scan's last change; `sizes` are its size and the bounds of its interval."""
    last, start = scan.changes[-1], _start_of_last_scan(scan)
    windows = days.windows_of(start, last.first), days.windows_of(last.last, days.days)
    earlier = days.day(start) if len(scan.changes) > 1 else None
    first, settled = days.day(last.first), days.day(last.last)
    return FindingChange(first, settled, before, after, *sizes, last.chance, earlier, windows=windows)


def _quantile_shift(estimate: Estimates, edge: int, step: float) -> float:
    """Return how far all readings would have moved if the share below an edge rose by `step`."""
    edges = bin_edges(estimate.experiment)
    below = np.maximum.accumulate(np.clip(np.append(0.0, estimate.cdf()), 0.0, 1.0))
    below[-1] = 1.0
    return float(edges[edge] - np.interp(below[edge] + step, below, edges))


def _start_of_last_scan(scan: Scan) -> int:
    """Return the first day of the scan that detected the last change."""
    return scan.changes[-2].last if len(scan.changes) > 1 else 0


def subject_of(ask: Ask) -> tuple[object, ...]:
    """Return a key that is equal for questions that ask the same thing under different names."""
    return ask.kind, ask.level, ask.text if ask.kind in ("share", "pair") else ""


def _share_weights(experiment: Any, text: str) -> Floats:
    if experiment.type == "text":
        weights = np.full((experiment.domain, 1), -1 / (experiment.domain - 1))
        weights[experiment.bucket(text)] = 1.0
        return weights
    indices = parse_range(experiment, text)
    return below_edge(experiment, indices.high) - below_edge(experiment, indices.low)


def conditional_weights(target: str, case: str) -> Weights:
    """Return the weights of a conditional share or mean: numerator and denominator."""

    def weights(experiment: Any) -> Floats:
        table = pair_tables.conditional(experiment, target, case, 1)
        (statistic,) = table.statistics
        assert statistic.condition is not None
        cells = statistic.condition.cells
        return np.stack([statistic.of * cells, cells], axis=1)

    return weights
