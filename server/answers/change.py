"""Changes between two windows, fleets or versions, and statistics over many windows.

Compared estimates must not share reports. Holm's method corrects the p-values for the number of rows in a
table: the probability that any unchanged row has a p_adjusted below 1 - confidence is at most 1 - confidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from .. import special
from ..estimate.conditional import DerivedDifference, Ratio, independent_difference
from ..estimate.estimate import Estimates
from ..estimate.pooling import check_same_quantity, pool
from ..estimate.statistic import (
    Difference,
    DoesNotFit,
    HasInterval,
    Statistic,
    TooFewReports,
    difference,
    mean,
)
from ..experiments.units import IndexRange, range_edges, range_in
from ..mechanisms.common_values import same_values
from . import moments
from .answer import PLAIN, Answer, Frame
from .rows import ChangeRow, Quantity, TrendRow, quantile_name

Halves = tuple[Estimates, Estimates]
_MAX_NAMED = 3  # ranges in a message


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons with Holm's method.

    Source: Holm, Scandinavian Journal of Statistics 1979.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, running_max = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        running_max = max(running_max, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = running_max
    return adjusted


def change_table(
    before: Estimates, after: Estimates, rows: Sequence[ChangeRow], frame: Frame, **fields: Any
) -> Answer:
    """Return a table of changes, with p-values corrected for the number of rows.

    Args:
        before: The estimates before the change.
        after: The estimates after it.
        rows: The changes.
        frame: The fields shared by the tables of one question.
        fields: Further fields of an Answer.
    """
    adjusted = holm([row.p for row in rows])
    final = [replace(row, p_adjusted=p) for row, p in zip(rows, adjusted, strict=True)]
    return frame.answer("change", after, final, reports=before.reports + after.reports, **fields)


def change_row(
    name: str, before: HasInterval, after: HasInterval, confidence: float, p: float | None = None
) -> ChangeRow:
    """Return a row with a statistic on both sides and its change, after minus before.

    Args:
        name: The row's name.
        before: The statistic before.
        after: The statistic after.
        confidence: The confidence of the interval, between 0 and 1.
        p: The p-value for no change; if None, it is computed from the two statistics.
    """
    change = _difference_of(after, before)
    low, high = change.interval(confidence)
    p = change.p if p is None else p
    values = {"before": before.value, "after": after.value}
    return ChangeRow(name, change.value, low, high, statistic=change, **values, p=p)


def _difference_of(after: HasInterval, before: HasInterval) -> Difference | DerivedDifference:
    if isinstance(after, Ratio) and isinstance(before, Ratio):
        return independent_difference(after, before)
    if isinstance(after, Statistic) and isinstance(before, Statistic):
        return difference(after, before)
    return DerivedDifference(after, before)


def changed_shares(
    before: Estimates, after: Estimates, ranges: Sequence[IndexRange], frame: Frame = PLAIN
) -> Answer:
    """Return the changes in the shares of those ranges that both sides can tell from other values.

    Raises:
        DoesNotFit: If there are none.
    """
    pairs = [(range_in(before.experiment, r, after.experiment), r) for r in ranges]
    both = [(own, r) for own, r in pairs if own is not None]
    if not both:
        texts = ", ".join([*(r.text for r in ranges[:_MAX_NAMED]), *["..."] * (len(ranges) > _MAX_NAMED)])
        raise DoesNotFit(
            f"{after.experiment.name} cannot be compared: the two sides are of different versions, and only "
            f"one of them counts {texts}"
        )
    old = before.ranges([own.low for own, _ in both], [own.high for own, _ in both])
    new = after.ranges([r.low for _, r in both], [r.high for _, r in both])
    rows: list[ChangeRow] = []
    for i, (_, r) in enumerate(both):
        lower, upper = range_edges(after.experiment, r)
        row = change_row(r.text, old[i], new[i], frame.confidence)
        rows.append(replace(row, lower=lower, upper=upper))
    return change_table(before, after, rows, frame)


def changed_readings(
    before: Estimates, after: Estimates, quantiles: Sequence[float] = (), frame: Frame = PLAIN
) -> Answer:
    """Return the changes in a number's mean, standard deviation (if it can be estimated) and quantiles.

    The intervals for the standard deviation and quantiles combine the intervals of both sides. A quantile's
    p-value is based on shares_below(); if it is below 1 - confidence, the interval does not contain 0.

    Raises:
        DoesNotFit: If the two sides differ in type, range or bins.
        UnitsError: If the experiment's type is not a number.
    """
    check_same_quantity([before, after])
    statistics = {"mean": moments.mean}
    if moments.has_deviation(before) and moments.has_deviation(after):
        statistics |= {"standard deviation": moments.deviation}
    rows = [
        change_row(name, statistic_of(before), statistic_of(after), frame.confidence)
        for name, statistic_of in statistics.items()
    ]
    halves = _halves([before, after]) if quantiles else None
    for q in quantiles:
        sides = moments.BinQuantile(before, q), moments.BinQuantile(after, q)
        p, decrease = _quantile_p(sides[1].value - sides[0].value, q, halves)
        row = change_row(quantile_name(q), *sides, frame.confidence, p)
        rows.append(_by_shares_below(row, decrease, frame))
    return change_table(before, after, rows, frame, quantity="reading")


def _by_shares_below(row: ChangeRow, decrease: float, frame: Frame) -> ChangeRow:
    """Make a quantile's change interval consistent with its p-value; `decrease` is from _quantile_p()."""
    low, high = row.low, row.high
    if row.p >= 1 - frame.confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    elif decrease > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return replace(row, low=low, high=high)


def _quantile_p(rise: float, q: float, halves: Sequence[Halves] | None) -> tuple[float, float]:
    """Return a quantile's p-value for no change, and the decrease in the share below it.

    Args:
        rise: The amount by which the quantile rose.
        q: The quantile, between 0 and 1.
        halves: Two halves of each side, or None if there are too few reports to split.
    """
    if not halves:
        return 1.0, 0.0
    change = difference(*reversed(shares_below(halves, q)))
    decrease = -change.value  # when a quantile rises, fewer boards are below it
    return (change.p if decrease * rise >= 0 else 1.0), decrease


def _halves(estimates: Sequence[Estimates]) -> list[Halves] | None:
    """Split each estimate into two halves; return None if any has too few reports to split."""
    all_halves = [halves for e in estimates if (halves := e.halves())]
    return all_halves if len(all_halves) == len(estimates) else None


def shares_below(halves_by_window: Sequence[Halves], q: float) -> list[Statistic]:
    """Return each estimate's share below the quantile of all estimates pooled.

    The quantile is the edge between bins for which the share below is closest to q. If the edge were chosen
    from the same reports that are then compared at it, it would tend to fall where their noise is large, and
    changes would be reported too frequently. Therefore each half is evaluated at the edge chosen from
    the other halves.

    Args:
        halves_by_window: The two halves of each window's estimate.
        q: The quantile, between 0 and 1.
    """
    first_halves, second_halves = zip(*halves_by_window, strict=True)
    edges = [1 + int(np.argmin(np.abs(pool(half).cdf()[:-1] - q))) for half in (second_halves, first_halves)]
    return [mean(first.range(0, edges[0]), second.range(0, edges[1])) for first, second in halves_by_window]


def check_windows(windows: Mapping[str, Estimates]) -> None:
    """Raise TooFewReports if there are fewer than two windows."""
    if len(windows) < 2:
        raise TooFewReports(f"a trend needs at least 2 windows with reports, not {len(windows)}")


def _with_newest_values(windows: Mapping[str, Estimates]) -> list[bool]:
    """Return whether each window counts the same values as the last one; only these are tested for change."""
    *_, newest = windows.values()
    return [same_values(e.experiment, newest.experiment) for e in windows.values()]


def trend(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Sequence[Statistic | None]],
    frame: Frame = PLAIN,
    quantity: Quantity = "share",
) -> Answer:
    """Return a table of statistics over time, with a homogeneity() test for each.

    Args:
        windows: The estimate of each window, oldest first.
        statistics: For each name, the statistic in each window, or None if its version does not count it.
        frame: The fields shared by the tables of one question.
        quantity: Whether the statistics are shares or readings.

    Raises:
        TooFewReports: In the same cases as check_windows().
    """
    check_windows(windows)
    are_tested, p_values = _with_newest_values(windows), dict[str, float]()
    for name, each in statistics.items():
        tested = [statistic for statistic in compress(each, are_tested) if statistic is not None]
        if len(tested) > 1:
            p_values[name] = homogeneity(tested)
    return _trend_table(windows, statistics, p_values, frame, quantity)


def quantile_trend(
    windows: Mapping[str, Estimates], quantiles: Sequence[float], frame: Frame = PLAIN
) -> Answer:
    """Return a table of a number's quantiles over time, with a test for each.

    The intervals extend to bin edges; the test compares shares_below() between the windows.

    Raises:
        TooFewReports: If there are fewer than two windows.
        EstimateError: If a quantile is not between 0 and 1.
    """
    check_windows(windows)
    statistics = {quantile_name(q): [moments.BinQuantile(e, q) for e in windows.values()] for q in quantiles}
    tested = list(compress(windows.values(), _with_newest_values(windows)))
    p_values = dict[str, float]()
    if len(tested) > 1:
        halves = _halves(tested)
        p_values = {
            quantile_name(q): homogeneity(shares_below(halves, q)) if halves else 1.0 for q in quantiles
        }
    return _trend_table(windows, statistics, p_values, frame, "reading")


def _trend_table(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Sequence[HasInterval | None]],
    p_values: Mapping[str, float],
    frame: Frame,
    quantity: Quantity,
) -> Answer:
    rows = [
        TrendRow(
            name,
            statistic.value,
            *statistic.interval(frame.confidence),
            statistic=statistic,
            window=window,
            reports=estimate.reports,
        )
        for name, each in statistics.items()
        for (window, estimate), statistic in zip(windows.items(), each, strict=True)
        if statistic is not None
    ]
    *_, newest = windows.values()
    reports = sum(estimate.reports for estimate in windows.values())
    more = {"reports": reports, "p_values": tuple(p_values.items())}
    return frame.answer("trend", newest, rows, quantity, **more)


def homogeneity(statistics: Sequence[Statistic]) -> float:
    """Return the p-value for the hypothesis that independent statistics have the same true value.

    This is the chi-squared test of the windows against their weighted mean.

    Source: Cochran, Biometrics 1954.
    """
    value = np.array([s.value for s in statistics])
    weight = 1 / np.maximum([s.stderr**2 for s in statistics], 1e-300)
    deviation = weight @ (value - weight @ value / weight.sum()) ** 2
    return float(special.chdtrc(len(statistics) - 1, deviation))
