"""Did it change: two windows, fleets or versions side by side, and statistics over many windows.

Estimates that are compared share no reports. Rows of one table are tested together: p_adjusted is Holm's,
below 1 - confidence with at most that chance for any row where nothing changed.
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
    """Adjust p values for being looked at together. Holm, Scandinavian Journal of Statistics 1979."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, most = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        most = max(most, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = most
    return adjusted


def together(
    before: Estimates, after: Estimates, rows: Sequence[ChangeRow], frame: Frame, **fields: Any
) -> Answer:
    """Return a table of changes, whose rows are tested together; fields: further ones of an Answer."""
    adjusted = holm([row.p for row in rows])
    final = [replace(row, p_adjusted=p) for row, p in zip(rows, adjusted, strict=True)]
    return frame.answer("change", after, final, reports=before.reports + after.reports, **fields)


def change_row(
    name: str, before: HasInterval, after: HasInterval, confidence: float, p: float | None = None
) -> ChangeRow:
    """One statistic of both sides, and after less before, with the p of no change, worked out if None."""
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
    """Return changes of shares inside ranges. Raises EstimateError if type, range, bins or labels differ."""
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
    """Return changes of a number's mean, of its standard deviation if it can be estimated, and of quantiles.

    Intervals of the last two are put together from those of both sides. A quantile's p is that of
    shares_below(), and its interval has one sign where that is below 1 - confidence. Raises EstimateError
    where type, range or bins differ, UnitsError for another type than a number.
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
    """Return a quantile's change with an interval that agrees with its p; fewer: see _quantile_p()."""
    low, high = row.low, row.high
    if row.p >= 1 - frame.confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    elif fewer > 0:
        low = max(low, 0.0)
    else:
        high = min(high, 0.0)
    return replace(row, low=low, high=high)


def _quantile_p(rise: float, q: float, halves: Sequence[Halves] | None) -> tuple[float, float]:
    """Return the p of no change of a quantile that rose by `rise`, and the decrease of the share below it."""
    if not halves:
        return 1.0, 0.0
    change = difference(*reversed(shares_below(halves, q)))
    fewer = -change.value  # boards below: where the quantile rose they are fewer
    return (change.p if fewer * rise >= 0 else 1.0), fewer


def _halves(of_windows: Sequence[Estimates]) -> list[Halves] | None:
    """Two halves of each estimate; None where one has too few reports for that."""
    all_halves = [halves for e in of_windows if (halves := e.halves())]
    return all_halves if len(all_halves) == len(of_windows) else None


def shares_below(of_windows: Sequence[Halves], q: float) -> list[Statistic]:
    """Each estimate's share below the quantile of all together, from its two halves.

    The quantile is an edge between bins, the one whose share below is nearest to q. An edge that was chosen
    on the reports that are compared there would be one where their noise is large: called changed too often.
    So each half is asked at the other halves' edge.
    """
    ones, others = zip(*of_windows, strict=True)
    edges = [1 + int(np.argmin(np.abs(pool(half).cdf()[:-1] - q))) for half in (others, ones)]
    return [mean(one.range(0, edges[0]), other.range(0, edges[1])) for one, other in of_windows]


def check_windows(windows: Mapping[str, Estimates]) -> None:
    """Raise EstimateError for fewer than two windows, or where type, range, bins or labels differ."""
    if len(windows) < 2:
        raise EstimateError(f"a trend needs at least 2 windows with reports, not {len(windows)}")
    check_same_quantity(list(windows.values()))


def trend(
    windows: Mapping[str, Estimates],
    statistics: Mapping[str, Sequence[Statistic]],
    frame: Frame = PLAIN,
    quantity: Quantity = "share",
) -> Answer:
    """Statistics over windows, by name and in order, with the test of homogeneity() that they did not change.

    statistics: name -> the statistic in each window. Raises EstimateError as check_windows().
    """
    check_windows(windows)
    p_values = {name: homogeneity(each) for name, each in statistics.items()}
    return _over_time(windows, statistics, p_values, frame, quantity)


def quantile_trend(
    windows: Mapping[str, Estimates], quantiles: Sequence[float], frame: Frame = PLAIN
) -> Answer:
    """Quantiles of a number in each window, with intervals over whole bins, and the test of shares_below().

    Raises EstimateError for fewer than two windows or a quantile that is not between 0 and 1.
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
    """P value of several independent statistics having one true value. Cochran, Biometrics 1954.

    The test is the chi-squared one of windows against their weighted mean.
    """
    value = np.array([s.value for s in of_windows])
    weight = 1 / np.maximum([s.stderr**2 for s in of_windows], 1e-300)
    off = weight @ (value - weight @ value / weight.sum()) ** 2
    return float(special.chdtrc(len(of_windows) - 1, off))
