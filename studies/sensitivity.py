"""A release's statistics over a known universe, and their sensitivity to changing k records.

A universe has N records, which are numbers; a release holds n of them. Empirical sensitivities are over this
universe rather than over all possible data:

    bounded     the largest difference between two releases of n that differ in at most k records
    unbounded   the largest difference between a release of n and one with k records fewer, or k more

sum, mean, count, min, max and percentiles have closed forms for any size. Other statistics are enumerated if
that is feasible: releases of 5 out of 20 records with one changed are 1.2 million pairs.
"""

import itertools
import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..planning.privacy.beliefs import DisclosureError
from ..server.arrays import Floats, Ints

MAX_NUMBERS = 30_000_000
"""Maximum size of an enumeration: number of releases times records in each."""
MAX_CALLS = 200_000
"""Maximum number of calls of a custom function; each takes a microsecond or more."""
_CHUNK = 1_000_000


@dataclass(frozen=True)
class ReleaseStatistic:
    """A statistic that maps a release to a number.

    Attributes:
        rows: A function from shape (releases, n) to (releases,).
        share: An order statistic's quantile, from 0 to 1; None for other statistics.
        own: Whether it is a user's function.
    """

    name: str
    rows: Callable[[Floats], Floats]
    share: float | None = None
    own: bool = False


_PLAIN = {
    "mean": ReleaseStatistic("mean", lambda rows: rows.mean(axis=1)),
    "median": ReleaseStatistic("median", lambda rows: np.median(rows, axis=1), 0.5),
    "variance": ReleaseStatistic("variance", lambda rows: rows.var(axis=1)),
    "sum": ReleaseStatistic("sum", lambda rows: rows.sum(axis=1)),
    "count": ReleaseStatistic("count", lambda rows: np.full(len(rows), float(rows.shape[1]))),
    "min": ReleaseStatistic("min", lambda rows: rows.min(axis=1), 0.0),
    "max": ReleaseStatistic("max", lambda rows: rows.max(axis=1), 1.0),
}
NAMES = (*_PLAIN, "p0 to p100", "module:function")


def statistic(name: str) -> ReleaseStatistic:
    """Return a statistic by name: one of NAMES, or module:function.

    variance is the release's own variance (divided by n). p25 is the 25th percentile, linear between records.
    A custom function takes a 1-D array of sorted records and returns a number.

    Raises:
        DisclosureError: If there is no such statistic.
    """
    if name in _PLAIN:
        return _PLAIN[name]
    if name.startswith("p") and ":" not in name:
        try:
            share = float(name[1:]) / 100
        except ValueError:
            share = math.nan
        if 0 <= share <= 1:
            return ReleaseStatistic(name, lambda rows: np.quantile(rows, share, axis=1), share)
    if ":" in name:
        return _own(name)
    raise DisclosureError(f"unknown statistic {name}; choose from {', '.join(NAMES)}")


def _own(name: str) -> ReleaseStatistic:
    try:
        function: Any = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise DisclosureError(f"no function {name}: {error}") from None
    if not callable(function):
        raise DisclosureError(f"{name} is not a function of a release")

    def rows(releases: Floats) -> Floats:
        return np.array([_number(name, function, np.sort(release)) for release in releases])

    return ReleaseStatistic(name, rows, own=True)


def _number(name: str, function: Callable[[Floats], Any], release: Floats) -> float:
    try:
        value = float(function(release))
    except Exception as error:
        raise DisclosureError(f"{name} failed on {_few(release)}: {error}") from None
    if not math.isfinite(value):
        raise DisclosureError(f"{name} of {_few(release)} is {value}, not a finite number")
    return value


def _few(release: Floats) -> str:
    numbers = ", ".join(f"{x:g}" for x in release[:5])
    return f"({numbers}{', ...' if len(release) > 5 else ''})"


@dataclass(frozen=True)
class Universe:
    """All records, sorted, shape (N,), and the number that a release holds.

    Raises:
        DisclosureError: If there are fewer than two records, one is not a finite number, or the size is
            outside 1 to N - 1 (there would be one possible world, and nothing to hide).
    """

    records: Floats
    size: int

    def __post_init__(self) -> None:
        x = np.sort(np.asarray(self.records, dtype=np.float64))
        if x.ndim != 1 or len(x) == 0:
            raise DisclosureError("the universe is empty; give its records")
        if not np.isfinite(x).all():
            raise DisclosureError("all records must be finite numbers")
        if len(x) == 1:
            raise DisclosureError("a universe of one record hides nothing: there must be at least 2")
        if not 1 <= self.size < len(x):
            raise DisclosureError(
                f"a release must hold 1 to {len(x) - 1} of the {len(x)} records, not {self.size}"
            )
        object.__setattr__(self, "records", x)

    @property
    def worlds(self) -> int:
        """Number of possible releases: C(N, n)."""
        return math.comb(len(self.records), self.size)


def check_distance(universe: Universe, k: int) -> int:
    """Return k, or raise DisclosureError unless it is from 1 to n."""
    if isinstance(k, bool) or not hasattr(k, "__index__") or not 1 <= k <= universe.size:
        raise DisclosureError(f"the distance must be from 1 to {universe.size} records, not {k}")
    return int(k)


# --- Sensitivities --------------------------------------------------------------------------------


def bounded(query: ReleaseStatistic, universe: Universe, k: int = 1) -> float:
    """Return the largest difference between two releases that differ in at most k records.

    Raises:
        DisclosureError: If k is out of range, or there are too many releases to enumerate.
    """
    k = min(check_distance(universe, k), len(universe.records) - universe.size)
    x, n = universe.records, universe.size
    if query.name == "count":
        return 0.0
    if query.name in ("sum", "mean"):
        moved = float(x[-k:].sum() - x[:k].sum())
        return moved / n if query.name == "mean" else moved
    if query.share is not None:
        # Larger unions have the same gap.
        return max(_order_gap(x, n + j, (0, n), (j, n + j), query.share) for j in {1, min(k, 2), k})
    if k == min(n, len(x) - n):  # any two releases are within this distance
        return spread(query, universe)
    number = sum(math.comb(n, j) * math.comb(len(x) - n, j) for j in range(1, k + 1))
    return _enumerated(query, x, n, _swaps(n, len(x) - n, k), number)


def unbounded(query: ReleaseStatistic, universe: Universe, k: int = 1) -> float:
    """Return the largest difference between a release and one with k records fewer, or k more if they exist.

    A release that loses all its records has a sum and a count of 0, and no other statistic; then only
    releases with k more are compared.

    Raises:
        DisclosureError: In the same cases as bounded(), and if neither release exists.
    """
    k, x, n = check_distance(universe, k), universe.records, universe.size
    sizes = [m for m in (n, n + k) if m <= len(x)]
    if query.name == "count":
        return float(k)
    if query.name == "sum":
        return float(max(abs(x[-k:].sum()), abs(x[:k].sum())))
    sizes = [m for m in sizes if m > k]
    if not sizes:
        raise DisclosureError(f"{query.name} has no value without records: a distance below {n}, not {k}")
    if query.name == "mean":
        return max(_mean_gap(x, m, k) for m in sizes)
    if query.share is not None:
        gaps = [_order_gap(x, m, (0, m), (k, m), query.share) for m in sizes]
        return max(gaps + [_order_gap(x, m, (0, m - k), (0, m), query.share) for m in sizes])
    if query.name == "variance" and k == 1 and n == len(x) - 1:
        return _variance_gap(x)
    losses = {m: ((out, ()) for out in itertools.combinations(range(m), k)) for m in sizes}
    return max(_enumerated(query, x, m, losses[m], math.comb(m, k)) for m in sizes)


def spread(query: ReleaseStatistic, universe: Universe) -> float:
    """Return the largest difference between two possible releases; raise DisclosureError if infeasible."""
    x, n = universe.records, universe.size
    if query.name == "count":
        return 0.0
    if query.name in ("sum", "mean") or query.share is not None:
        low, high = query.rows(x[:n][None]), query.rows(x[-n:][None])
        return float(high[0] - low[0])
    values = world_values(query, universe)
    return float(values.max() - values.min())


def world_values(query: ReleaseStatistic, universe: Universe) -> Floats:
    """Return the statistic of every possible release, shape (C(N, n),).

    If releases leave out one record, this has a closed form except for custom functions; otherwise it
    enumerates.

    Raises:
        DisclosureError: If there are too many releases to enumerate.
    """
    x, n = universe.records, universe.size
    if n == len(x) - 1 and not query.own:
        return _without_one(query, x)
    _check_feasible(query, universe.worlds, n, f"{len(x)} records, {n} at a time")
    return np.concatenate([query.rows(x[rows]) for rows in _releases(len(x), n)])


def _mean_gap(x: Floats, n: int, k: int) -> float:
    """Return the largest mean(w) - mean(K) = k/n (mean(R) - mean(K)), R the k records that leave.

    R and K are from opposite ends.
    """
    remaining = n - k
    up = x[-k:].mean() - x[:remaining].mean()
    down = x[-remaining:].mean() - x[:k].mean()
    return float(max(up, down) * k / n)


def _variance_gap(x: Floats) -> float:
    """Return the largest change of the variance of x, or of x without one record, by losing a record r.

    Removing r from m records with mean μ and variance V leaves m/(m - 1) (V - (r - μ)²/(m - 1)), so only the
    records farthest from μ and nearest to it matter; they are among the two at either end and the four
    around μ.
    """
    x = x - x.mean()
    count, total, squares = len(x), x.sum(), (x**2).sum()
    removed, most = np.arange(count), 0.0
    for size, missing in ((count, np.zeros(1)), (count - 1, x)):
        if size < 2:
            continue
        mean = (total - missing) / size
        variance = np.maximum((squares - missing**2) / size - mean**2, 0.0)
        near = np.searchsorted(x, mean)
        for at in (0, 1, count - 2, count - 1, near - 2, near - 1, near, near + 1):
            record = np.clip(at, 0, count - 1)
            remaining_variance = size / (size - 1) * (variance - (x[record] - mean) ** 2 / (size - 1))
            moved = np.where((size < count) & (record == removed), 0.0, np.abs(remaining_variance - variance))
            most = max(most, float(moved.max()))
    return most


def _order_gap(x: Floats, union: int, low: tuple[int, int], high: tuple[int, int], share: float) -> float:
    """Return the largest gap of an order statistic between two windows of `union` sorted records.

    Every order statistic of a subset grows with its records, so the two releases are windows with the lowest
    and the highest records of their union, and only the union must be chosen. The gap is linear in at most
    four of its records, u_p = x[p + s_p] with nondecreasing slacks s in [0, N - union], so the maximum over
    slacks is found position by position.
    """
    weights: dict[int, float] = {}
    for (start, end), sign in ((high, 1.0), (low, -1.0)):
        at = (end - start - 1) * share
        part = at - math.floor(at)
        for position, weight in ((math.floor(at), 1 - part), (math.floor(at) + 1, part)):
            if weight:
                weights[start + position] = weights.get(start + position, 0.0) + sign * weight
    slack = len(x) - union
    best = np.zeros(slack + 1)
    for position in sorted(weights):
        best = np.maximum.accumulate(best + weights[position] * x[position : position + slack + 1])
    return float(best[-1])


def _without_one(query: ReleaseStatistic, x: Floats) -> Floats:
    count = len(x)
    if query.name == "count":
        return np.full(count, count - 1.0)
    if query.name in ("sum", "mean"):
        sums = x.sum() - x
        return sums / (count - 1) if query.name == "mean" else sums
    if query.name == "variance":
        centred = x - x.mean()
        squares = (centred**2).sum() - centred**2
        return np.maximum(squares / (count - 1) - (centred / (count - 1)) ** 2, 0.0)
    assert query.share is not None
    at = (count - 2) * query.share
    first, part = math.floor(at), at - math.floor(at)
    removed = np.arange(count)

    def value_at(rank: int) -> Floats:
        return np.where(removed > rank, x[min(rank, count - 1)], x[min(rank + 1, count - 1)])

    return (1 - part) * value_at(first) + part * value_at(first + 1) if part else value_at(first)


# --- Enumeration ----------------------------------------------------------------------------------

Change = tuple[tuple[int, ...], tuple[int, ...]]
"""The positions in a release to remove, and the records outside it to add."""


def _check_feasible(query: ReleaseStatistic, releases: int, records: int, what: str) -> None:
    if query.own and releases > MAX_CALLS:
        raise DisclosureError(
            f"{query.name} of {what} is called {format_count(releases)} times, above the limit of "
            f"{MAX_CALLS:,}; use fewer records"
        )
    if releases * records > MAX_NUMBERS:
        raise DisclosureError(
            f"{query.name} of {what} means {format_count(releases)} releases to go through, which is too "
            "much; sum, mean, count, min, max and percentiles need no enumeration"
        )


def format_count(n: int) -> str:
    """Format a count of any size, as 1,000,000 or 10^88.9."""
    return f"{n:,}" if n < 10**9 else f"10^{math.log10(n):.1f}"


def _releases(count: int, n: int) -> Iterator[Ints]:
    """Yield all choices of n of count positions, sorted, in blocks of rows."""
    rows = itertools.combinations(range(count), n)
    most = max(1, _CHUNK // n)
    while block := list(itertools.islice(rows, most)):
        yield np.array(block, dtype=np.int64)


def _swaps(n: int, others: int, most: int) -> Iterator[Change]:
    for k in range(1, most + 1):
        yield from itertools.product(
            itertools.combinations(range(n), k), itertools.combinations(range(others), k)
        )


def _enumerated(query: ReleaseStatistic, x: Floats, n: int, changes: Iterator[Change], number: int) -> float:
    """Return the largest difference that a change makes to any n of the records x."""
    releases = math.comb(len(x), n) * (number + 1)
    _check_feasible(query, releases, n, f"{len(x)} records, {n} at a time, and their neighbours")
    listed, most = list(changes), 0.0
    for rows in _releases(len(x), n):
        absent = np.ones((len(rows), len(x)), dtype=bool)
        np.put_along_axis(absent, rows, False, axis=1)
        others = np.nonzero(absent)[1].reshape(len(rows), len(x) - n)
        values = query.rows(x[rows])
        for out, coming in listed:
            neighbours = np.concatenate([np.delete(rows, out, axis=1), others[:, list(coming)]], axis=1)
            most = max(most, float(np.abs(query.rows(x[neighbours]) - values).max()))
    return most
