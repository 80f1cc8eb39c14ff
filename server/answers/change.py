"""Did it change: two windows, fleets or versions side by side, and one statistic over many windows.

Estimates that are compared share no reports. Rows of one table are tested together: p_adjusted is Holm's,
below 1 - confidence with at most that chance for any row where nothing changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.special import chdtrc

from ..estimate.estimate import Estimates
from ..estimate.pooling import check_same_quantity, pool
from ..estimate.statistic import EstimateError, Statistic, difference, mean
from ..experiments.units import IndexRange, bin_edges, range_edges
from . import moments
from .answer import Answer
from .rows import CONFIDENCE, ChangeRow, TrendRow, quantile_name

Interval = tuple[float, float]
Halves = tuple[Estimates, Estimates]
ByLevel = Callable[[float], Interval]  # confidence -> interval


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p values for being looked at together. Holm, Scandinavian Journal of Statistics 1979."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = most
    return adjusted


def together(before: Estimates, after: Estimates, rows: Sequence[ChangeRow], **fields: object) -> Answer:
    adjusted = holm([row.p for row in rows])
    final = tuple(replace(row, p_adjusted=p) for row, p in zip(rows, adjusted, strict=True))
    reports = before.reports + after.reports
    return Answer("change", after.experiment.name, reports=reports, rows=final, **fields)  # type: ignore[arg-type]


def change_row(name: str, before: Statistic, after: Statistic, confidence: float) -> ChangeRow:
    change = difference(after, before)
    low, high = change.interval(confidence)
    return ChangeRow(name, change.value, low, high, before=before.value, after=after.value, p=change.p)


def changed_shares(
    before: Estimates,
    after: Estimates,
    wanted: Sequence[IndexRange],
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """Changes of the shares inside ranges. Raises EstimateError where type, range, bins or labels differ."""
    check_same_quantity([before, after])
    lows, highs = [r.low for r in wanted], [r.high for r in wanted]
    old, new = before.ranges(lows, highs), after.ranges(lows, highs)
    rows = []
    for i, r in enumerate(wanted):
        lower, upper = range_edges(after.experiment, r)
        rows.append(replace(change_row(r.text, old[i], new[i], confidence), lower=lower, upper=upper))
    return together(before, after, rows, quantity="share", unit=unit, confidence=confidence)


def changed_readings(
    before: Estimates,
    after: Estimates,
    quantiles: Sequence[float] = (),
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """Changes of a number's mean, standard deviation, as far as that is known, and quantiles.

    Intervals of the last two are put together from those of both sides. Zou and Donner, "Construction of
    confidence limits about effect measures", Statistics in Medicine 2008. A quantile's p is that of
    shares_below(), and its interval has one sign where that is below 1 - confidence. Raises EstimateError
    where type, range or bins differ, UnitsError for another type than a number.
    """
    check_same_quantity([before, after])
    rows = [change_row("mean", moments.mean(before), moments.mean(after), confidence)]
    if moments.has_deviation(before) and moments.has_deviation(after):
        rows.append(_deviation_row(before, after, confidence))
    halves = _halves([before, after]) if quantiles else None
    rows += [_quantile_row(before, after, q, confidence, halves) for q in quantiles]
    return together(before, after, rows, quantity="reading", unit=unit, confidence=confidence)


def _deviation_row(before: Estimates, after: Estimates, confidence: float) -> ChangeRow:
    old, new = moments.deviation(before), moments.deviation(after)
    interval = _from_both(old.value, new.value, old.interval, new.interval)
    moved, ends, p = new.value - old.value, interval(confidence), _p_of_no_change(interval)
    return ChangeRow("standard deviation", moved, *ends, before=old.value, after=new.value, p=p)


def _from_both(before: float, after: float, before_interval: ByLevel, after_interval: ByLevel) -> ByLevel:
    """The interval of after - before from each one's own."""

    def interval(confidence: float) -> Interval:
        (l0, u0), (l1, u1) = before_interval(confidence), after_interval(confidence)
        change = after - before
        return change - math.hypot(after - l1, u0 - before), change + math.hypot(u1 - after, before - l0)

    return interval


def _quantile_row(
    before: Estimates, after: Estimates, q: float, confidence: float, halves: Sequence[Halves] | None
) -> ChangeRow:
    (old, old_interval), (new, new_interval) = _quantile(before, q), _quantile(after, q)
    low, high = _from_both(old, new, old_interval, new_interval)(confidence)
    p, moved, fewer = 1.0, new - old, 0.0
    if halves:
        change = difference(*reversed(shares_below(halves, q)))
        fewer = -change.value  # boards below: where the quantile rose they are fewer
        p = change.p if fewer * moved >= 0 else 1.0
    if p >= 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    elif fewer > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return ChangeRow(quantile_name(q), moved, low, high, before=old, after=new, p=p)


def _halves(of_windows: Sequence[Estimates]) -> list[Halves] | None:
    """Two halves of each estimate; None where one has too few reports for that."""
    halves = [e.halves() for e in of_windows]
    known = [pair for pair in halves if pair]
    return known if len(known) == len(halves) else None


def shares_below(of_windows: Sequence[Halves], q: float) -> list[Statistic]:
    """Each estimate's share below the quantile of all together, from its two halves.

    The quantile is an edge between bins, the one whose share below is nearest to q. An edge that was chosen
    on the reports that are compared there would be one where their noise is large: called changed too often.
    So each half is asked at the other halves' edge.
    """
    ones, others = zip(*of_windows, strict=True)
    edges = [1 + int(np.argmin(np.abs(pool(half).cdf()[:-1] - q))) for half in (others, ones)]
    return [mean(one.range(0, edges[0]), other.range(0, edges[1])) for one, other in of_windows]


def _quantile(estimate: Estimates, q: float) -> tuple[float, ByLevel]:
    """The middle of a quantile's bin, and its interval over whole bins, in whole units."""
    edges = bin_edges(estimate.experiment)

    def interval(level: float) -> Interval:
        quantile = estimate.quantile(q, level)
        return float(edges[quantile.low]), float(edges[quantile.high + 1])

    return float(moments.bin_middles(estimate)[estimate.quantile(q).index]), interval


def _p_of_no_change(interval: ByLevel) -> float:
    """One less the confidence at which the interval first reaches 0, rounded up."""
    low, high = 0.0, 1.0 - 1e-9
    for _ in range(30):
        middle = (low + high) / 2
        ends = interval(middle) if middle > 0 else (0.0, 0.0)
        if ends[0] <= 0 <= ends[1]:
            high = middle
        else:
            low = middle
    return 1 - low


def trend(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Callable[[Estimates], Statistic]],
    quantity: str,
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """Statistics, by name, in each window, by name and in order, with a test that they did not change.

    The test is the chi-squared one of windows against their weighted mean. Raises EstimateError for fewer
    than two windows.
    """
    _check(windows)
    found = {name: {w: of(e) for w, e in windows.items()} for name, of in statistics.items()}
    return trend_of(windows, found, quantity, unit, confidence)


def trend_of(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Mapping[str, Statistic]],
    quantity: str,
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """The same of statistics that are known already, by name and window."""
    _check(windows)
    rows, p_values = [], {}
    for name, by_window in statistics.items():
        for window, e in windows.items():
            ends = by_window[window].interval(confidence)
            rows.append(TrendRow(name, by_window[window].value, *ends, window=window, reports=e.reports))
        p_values[name] = homogeneity(list(by_window.values()))
    return _over_time(
        windows, rows, p_values, "share" if quantity == "share" else "reading", unit, confidence
    )


def quantile_trend(
    windows: Mapping[str, Estimates],
    quantiles: Sequence[float],
    unit: str = "",
    confidence: float = CONFIDENCE,
) -> Answer:
    """Quantiles of a number in each window, with intervals over whole bins, and the test of shares_below().

    Raises EstimateError for fewer than two windows or a quantile that is not between 0 and 1.
    """
    _check(windows)
    rows, p_values = [], {}
    halves = _halves(list(windows.values()))
    for q in quantiles:
        for window, e in windows.items():
            value, interval = _quantile(e, q)
            ends = interval(confidence)
            rows.append(TrendRow(quantile_name(q), value, *ends, window=window, reports=e.reports))
        p_values[quantile_name(q)] = homogeneity(shares_below(halves, q)) if halves else 1.0
    return _over_time(windows, rows, p_values, "reading", unit, confidence)


def _check(windows: Mapping[str, Estimates]) -> None:
    if len(windows) < 2:
        raise EstimateError(f"a trend needs at least 2 windows with reports, not {len(windows)}")
    check_same_quantity(list(windows.values()))


def _over_time(
    windows: Mapping[str, Estimates],
    rows: Sequence[TrendRow],
    p_values: Mapping[str, float],
    quantity: Literal["share", "reading"],
    unit: str,
    confidence: float,
) -> Answer:
    estimates = list(windows.values())
    chances = ", ".join(f"{name}: p = {p:.2g}" for name, p in p_values.items())
    note = f"How likely windows differ as much if nothing changed: {chances}"
    name, reports = estimates[0].experiment.name, sum(e.reports for e in estimates)
    common = ("trend", name, quantity, unit, reports, confidence, tuple(rows), note)
    return Answer(*common, p_values=tuple(p_values.items()))


def homogeneity(of_windows: Sequence[Statistic]) -> float:
    """P value of several independent statistics having one true value. Cochran, Biometrics 1954."""
    value = np.array([s.value for s in of_windows])
    weight = 1 / np.maximum([s.stderr**2 for s in of_windows], 1e-300)
    off = weight @ (value - weight @ value / weight.sum()) ** 2
    return float(chdtrc(len(of_windows) - 1, off))
