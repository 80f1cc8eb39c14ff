"""See versions of one experiment through the values that they have in common.

Labels are the same value in two versions if they have the same name; all labels that a version does not list
are counted as "other" in it. Bins are the same where their edges are: a reading is counted above or below an
edge in both versions, and the end bins include everything beyond them. Common values are therefore sums of
each version's own values, and every statistic of them is a statistic of the version, with the version's own
error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ...device.ldp_client import Experiment
from ..arrays import Array, Counts, Floats
from ..wire.experiments import log_edges, scale_of, value_count
from .mechanism import Mechanism, Stratum, Weights
from .views.factors import parts_of


class VersionView(Experiment):
    """A version of an experiment, seen through other values; returned by view().

    Attributes:
        original: The version.
        cells: For each of the version's indices, the index of the value seen here, shape (original.domain,).
        is_log: Whether a number's bins are drawn on a logarithmic scale.
    """

    original: Experiment
    cells: npt.NDArray[np.intp]
    is_log: bool = True

    def __init__(self, original: Experiment, values: dict[str, Any], cells: npt.NDArray[np.intp]):
        # The board's constructor parses JSON, which a view does not have.
        vars(self).update(vars(original) | values, original=original, cells=cells)


class CommonValues(Mechanism):
    """The mechanism of a VersionView: its version's mechanism, with statistics of the common values."""

    def __init__(self, experiment: VersionView, inner: Mechanism):
        super().__init__(experiment)
        self._inner, self._cells = inner, experiment.cells
        limits = [(e.low, e.high, e.domain) for e in (experiment, experiment.original)]
        # Merged bins, and bins that are open where others end, have no middle.
        vars(self)["answers"] = inner.answers - {"mean"} if limits[0] != limits[1] else inner.answers
        vars(self)["approximate"] = inner.approximate

    @property
    def strata(self) -> tuple[Stratum, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._inner.strata

    def law(self, shares: Floats) -> list[Floats]:
        sizes = np.bincount(self._cells, minlength=self.domain)
        even = shares / (sizes if shares.ndim == 1 else sizes[:, None])
        return self._inner.law(even[self._cells])

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        return self._inner.weights(statistic[self._cells], reports)

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        _, first = np.unique(self._cells, return_index=True)
        return self._inner.draw(first.astype(np.uint32)[indices], rng)

    def fields(self) -> dict[str, Any]:
        return self._inner.fields()

    def words(self) -> str:
        return self._inner.words()

    def collapse(self, counts: Counts) -> list[Counts]:
        return self._inner.collapse(counts)

    def expand(self, values: Sequence[Array]) -> Array:
        return self._inner.expand(values)

    def lacks(self, reports: Sequence[int]) -> str:
        return self._inner.lacks(reports)

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        return self._inner.unknown(statistic[self._cells], reports)


def same_values(a: Experiment, b: Experiment) -> bool:
    """Return whether two versions count the same values, if perhaps with labels in another order.

    Texts are the same values regardless of their slots.
    """
    return a.type == b.type == "text" or _values(a) == _values(b)


def _values(reading: Any) -> tuple[object, ...]:
    """Return the values of an experiment or of a pair's part, to compare them."""
    parts = [(part.name, part.domain, part.labels, *_values(part)) for part in parts_of(reading)]
    labels = frozenset(reading.labels)
    return (reading.type, reading.low, reading.high, labels, value_count(reading), log_edges(reading), *parts)


def common_views(versions: Sequence[Experiment]) -> tuple[Experiment, ...] | None:
    """Return all versions seen through their common values, or None if they have none.

    A version whose values are all common, in the order of the last version, is returned unchanged.

    Args:
        versions: The versions, the newest one last.
    """
    newest = versions[-1]
    if all(version.type == "choice" for version in versions):
        common = [name for name in newest.labels if all(name in version.labels for version in versions)]
        return tuple(_label_view(version, common) for version in versions) if common else None
    if all(map(same_values, versions, versions[1:])):
        return tuple(versions)
    if any(version.type != "number" for version in versions):
        return None
    edges = sorted(set(inner_edges(newest)).intersection(*map(inner_edges, versions)))
    return tuple(_bin_view(version, newest, edges) for version in versions) if edges else None


def inner_edges(experiment: Experiment) -> list[Fraction]:
    """Return the exact edges between a number's bins, in milli-units."""
    if edges := log_edges(experiment):
        return [Fraction(edge) for edge in edges[1:-1]]
    bins, width = value_count(experiment), experiment.high - experiment.low
    return [experiment.low + Fraction(width * i, bins) for i in range(1, bins)]


def _label_view(version: Experiment, labels: Sequence[str]) -> Experiment:
    if tuple(version.labels) == tuple(labels):
        return version
    number = {name: i for i, name in enumerate(labels)}
    cells = [number.get(name, len(labels)) for name in (*version.labels, "other")]
    return _view(version, cells, len(labels) + 1, {"labels": tuple(labels)})


def _bin_view(version: Experiment, newest: Experiment, edges: Sequence[Fraction]) -> Experiment:
    """Return a number's version seen through bins with these inner edges."""
    outer_edges = log_edges(newest)
    if inner_edges(newest) != edges:
        outer = min(newest.low, edges[0] - 1), max(newest.high, edges[-1] + 1)
        outer_edges = tuple(map(float, (outer[0], *edges, outer[1])))
    elif same_values(version, newest):
        return version
    cells = [0, *(bisect_right(edges, edge) for edge in inner_edges(version))]
    values = {"low": newest.low, "high": newest.high, "edges": outer_edges, "levels": ()}
    values["is_log"] = scale_of(newest) == "log"
    return _view(version, cells, len(edges) + 1, values)


def _view(version: Experiment, cells: Iterable[int], count: int, values: dict[str, Any]) -> VersionView:
    cells = np.array([*cells, *([count] if version.missing is not None else [])], dtype=np.intp)
    missing = None if version.missing is None else count
    domain = count + (missing is not None)
    return VersionView(version, values | {"domain": domain, "missing": missing}, cells)
