"""Changes between two windows, fleets or versions, and statistics over many windows.

Compared estimates must not share reports. The rows of a table are tested together with Holm's method: if
nothing changed in a row, its p_adjusted falls below 1 - confidence with at most that probability.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import special
from ..estimate.conditional import DerivedDifference, Ratio, difference_apart
from ..estimate.estimate import Estimates
from ..estimate.pooling import check_same_quantity, pool
from ..estimate.statistic import Difference, EstimateError, HasInterval, Statistic, difference, mean
from ..experiments.units import IndexRange, range_edges
from . import moments
from .answer import PLAIN, Answer, Frame
from .rows import ChangeRow, Quantity, TrendRow, quantile_name

Halves = tuple[Estimates, Estimates]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple comparisons.

    Source: Holm, Scandinavian Journal of Statistics 1979.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = most
    return adjusted


def together(
    before: Estimates, after: Estimates, rows: Sequence[ChangeRow], frame: Frame, **fields: Any
) -> Answer:
    """Return a table of changes whose rows are tested together.

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
    """Return a row with a statistic of both sides and the change, after less before.

    Args:
        name: The name of the row.
        before: The statistic before.
        after: The statistic after.
        confidence: The confidence of the interval, between 0 and 1.
        p: The p-value of no change; calculated from the two statistics if None.
    """
    change = _less(after, before)
    low, high = change.interval(confidence)
    p = change.p if p is None else p
    values = {"before": before.value, "after": after.value}
    return ChangeRow(name, change.value, low, high, statistic=change, **values, p=p)


def _less(after: HasInterval, before: HasInterval) -> Difference | DerivedDifference:
    if isinstance(after, Ratio) and isinstance(before, Ratio):
        return difference_apart(after, before)
    if isinstance(after, Statistic) and isinstance(before, Statistic):
        return difference(after, before)
    return DerivedDifference(after, before)


def changed_shares(
    before: Estimates, after: Estimates, ranges: Sequence[IndexRange], frame: Frame = PLAIN
) -> Answer:
    """Return the changes of the shares inside ranges.

    Raises:
        EstimateError: If the two sides differ in type, range, bins or labels.
    """
    check_same_quantity([before, after])
    lows, highs = [r.low for r in ranges], [r.high for r in ranges]
    old, new = before.ranges(lows, highs), after.ranges(lows, highs)
    rows: list[ChangeRow] = []
    for i, r in enumerate(ranges):
        lower, upper = range_edges(after.experiment, r)
        row = change_row(r.text, old[i], new[i], frame.confidence)
        rows.append(replace(row, lower=lower, upper=upper))
    return together(before, after, rows, frame)


def changed_readings(
    before: Estimates, after: Estimates, quantiles: Sequence[float] = (), frame: Frame = PLAIN
) -> Answer:
    """Return the changes of a number's mean, standard deviation (if it can be estimated) and quantiles.

    The intervals of standard deviation and quantiles combine those of both sides. The p-value of a quantile
    comes from shares_below(); where it is below 1 - confidence, the interval does not contain 0.

    Raises:
        EstimateError: If the two sides differ in type, range or bins.
        UnitsError: If the experiment's type is not a number.
    """
    check_same_quantity([before, after])
    statistics = {"mean": moments.mean}
    if moments.has_deviation(before) and moments.has_deviation(after):
        statistics |= {"standard deviation": moments.deviation}
    rows = [change_row(name, of(before), of(after), frame.confidence) for name, of in statistics.items()]
    halves = _halves([before, after]) if quantiles else None
    for q in quantiles:
        sides = moments.BinQuantile(before, q), moments.BinQuantile(after, q)
        p, fewer = _quantile_p(sides[1].value - sides[0].value, q, halves)
        row = change_row(quantile_name(q), *sides, frame.confidence, p)
        rows.append(_by_shares_below(row, fewer, frame))
    return together(before, after, rows, frame, quantity="reading")


def _by_shares_below(row: ChangeRow, fewer: float, frame: Frame) -> ChangeRow:
    """Adjust the interval of a quantile's change to agree with its p-value; `fewer` is from _quantile_p()."""
    low, high = row.low, row.high
    if row.p >= 1 - frame.confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    elif fewer > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return replace(row, low=low, high=high)


def _quantile_p(rise: float, q: float, halves: Sequence[Halves] | None) -> tuple[float, float]:
    """Return a quantile's p-value of no change, and the decrease of the share below it.

    Args:
        rise: How far the quantile rose.
        q: The quantile, between 0 and 1.
        halves: Two halves of each side, or None if there are too few reports for that.
    """
    if not halves:
        return 1.0, 0.0
    change = difference(*reversed(shares_below(halves, q)))
    fewer = -change.value  # when a quantile rises, fewer boards are below it
    return (change.p if fewer * rise >= 0 else 1.0), fewer


def _halves(of_windows: Sequence[Estimates]) -> list[Halves] | None:
    """Return two halves of each estimate, or None if one has too few reports for that."""
    all_halves = [halves for e in of_windows if (halves := e.halves())]
    return all_halves if len(all_halves) == len(of_windows) else None


def shares_below(of_windows: Sequence[Halves], q: float) -> list[Statistic]:
    """Return each estimate's share below the quantile of all estimates pooled.

    The quantile is the edge between bins whose share below is nearest to q. An edge chosen on the same
    reports that are compared there would tend to lie where their noise is large, and changes would be
    reported too often. So each half is evaluated at the edge chosen on the other halves.

    Args:
        of_windows: The two halves of each window's estimate.
        q: The quantile, between 0 and 1.
    """
    ones, others = zip(*of_windows, strict=True)
    edges = [1 + int(np.argmin(np.abs(pool(half).cdf()[:-1] - q))) for half in (others, ones)]
    return [mean(one.range(0, edges[0]), other.range(0, edges[1])) for one, other in of_windows]


def check_windows(windows: Mapping[str, Estimates]) -> None:
    """Raise EstimateError for fewer than two windows, or if type, range, bins or labels differ."""
    if len(windows) < 2:
        raise EstimateError(f"a trend needs at least 2 windows with reports, not {len(windows)}")
    check_same_quantity(list(windows.values()))


def trend(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Sequence[Statistic]],
    frame: Frame = PLAIN,
    quantity: Quantity = "share",
) -> Answer:
    """Return a table of statistics over windows, with a homogeneity() test of each.

    Args:
        windows: The estimate of each window, oldest first.
        statistics: For each name, the statistic in each window.
        frame: The fields shared by the tables of one question.
        quantity: What the statistics are: shares or readings.

    Raises:
        EstimateError: As check_windows().
    """
    check_windows(windows)
    p_values = {name: homogeneity(each) for name, each in statistics.items()}
    return _over_time(windows, statistics, p_values, frame, quantity)


def quantile_trend(
    windows: Mapping[str, Estimates], quantiles: Sequence[float], frame: Frame = PLAIN
) -> Answer:
    """Return a table of a number's quantiles over windows, with a test of each.

    The intervals run over whole bins; the test compares shares_below() over the windows.

    Raises:
        EstimateError: If there are fewer than two windows, or a quantile is not between 0 and 1.
    """
    check_windows(windows)
    statistics = {quantile_name(q): [moments.BinQuantile(e, q) for e in windows.values()] for q in quantiles}
    halves = _halves(list(windows.values()))
    p = {quantile_name(q): homogeneity(shares_below(halves, q)) if halves else 1.0 for q in quantiles}
    return _over_time(windows, statistics, p, frame, "reading")


def _over_time(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Sequence[HasInterval]],
    p_values: Mapping[str, float],
    frame: Frame,
    quantity: Quantity,
) -> Answer:
    rows = [
        TrendRow(
            name,
            one.value,
            *one.interval(frame.confidence),
            statistic=one,
            window=window,
            reports=e.reports,
        )
        for name, each in statistics.items()
        for (window, e), one in zip(windows.items(), each, strict=True)
    ]
    first, reports = next(iter(windows.values())), sum(e.reports for e in windows.values())
    more = {"reports": reports, "p_values": tuple(p_values.items())}
    return frame.answer("trend", first, rows, quantity, **more)


def homogeneity(of_windows: Sequence[Statistic]) -> float:
    """Return the p-value of the hypothesis that independent statistics have the same true value.

    This is the chi-squared test of the windows against their weighted mean.

    Source: Cochran, Biometrics 1954.
    """
    value = np.array([s.value for s in of_windows])
    weight = 1 / np.maximum([s.stderr**2 for s in of_windows], 1e-300)
    off = weight @ (value - weight @ value / weight.sum()) ** 2
    return float(special.chdtrc(len(of_windows) - 1, off))
