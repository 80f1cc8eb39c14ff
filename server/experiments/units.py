"""Names for an experiment's indices: labels, bin edges, ranges in the reading's own unit."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...device.ldp_client import Experiment
from ...device.ldp_pairs import Part
from ..errors import HushmoteError
from ..mechanisms.views.factors import parts_of
from ..wire.experiments import value_count

Reading = Experiment | Part
"""An experiment, or a part of a pair: both have values."""

NO_READING = "no reading"
"""The name of the last index of an experiment or a part that sets `missing`."""


class UnitsError(HushmoteError):
    """Raised if the experiment does not have a range or label; the message says what it has."""


@dataclass(frozen=True)
class IndexRange:
    """A half-open range of indices.

    Attributes:
        low: The first index.
        high: One more than the last index.
        text: The name of the range that they cover.
        original_text: The requested range if it is a different one, otherwise "".
    """

    low: int
    high: int
    text: str
    original_text: str = ""


def edges_between(low: int, high: int, bins: int) -> np.ndarray:
    """Return the edges of equal bins from low to high (milli-units), in whole units; shape (bins + 1,)."""
    return (low + (high - low) * (np.arange(bins + 1) / bins)) / 1000


def bin_edges(experiment: Reading) -> np.ndarray:
    """Return the edges of a number's bins in whole units, shape (values + 1,)."""
    if experiment.type != "number":
        raise UnitsError(f"{experiment.name} is a {experiment.type}: only a number has bins")
    return edges_between(experiment.low, experiment.high, value_count(experiment))


def bin_middles(experiment: Reading) -> np.ndarray:
    """Return the middles of a number's bins in whole units, shape (values,).

    Raises:
        UnitsError: If the type is not a number.
    """
    edges = bin_edges(experiment)
    return (edges[:-1] + edges[1:]) / 2


def index_names(experiment: Reading) -> list[str]:
    """Return the name of each value: a label, no/yes, a bin's half-open range, or a slot's number.

    A pair has one for each cell of its joint table, in which a part may have no reading.
    """
    if experiment.type == "text":
        return [f"slot {i}" for i in range(experiment.domain)]
    if experiment.type == "choice":
        return [*experiment.labels, "other"]
    if experiment.type == "bool":
        return ["no", "yes"]
    if experiment.type == "pair":
        return [", ".join(names) for names in product(*map(all_names, parts_of(experiment)))]
    edges = bin_edges(experiment)
    return [_bins_name(edges, i, i + 1) for i in range(len(edges) - 1)]


def all_names(reading: Reading) -> list[str]:
    """Return the names of the values and, if the reading sets `missing`, "no reading" after them."""
    return index_names(reading) + [NO_READING] * (reading.domain - value_count(reading))


def range_name(experiment: Reading, low: int, high: int, edges: np.ndarray | None = None) -> str:
    """Return the name of indices low to high (half-open); the end bins include everything beyond them."""
    if experiment.type != "number":
        return ", ".join(index_names(experiment)[low:high])
    return _bins_name(bin_edges(experiment) if edges is None else edges, low, high)


def range_edges(experiment: Reading, r: IndexRange) -> tuple[float, float] | tuple[None, None]:
    """Return the outer edges of a number's bins in whole units, or None twice for another type."""
    if experiment.type != "number":
        return None, None
    edges = bin_edges(experiment)
    return float(edges[r.low]), float(edges[r.high])


def parse_range(experiment: Reading, text: str) -> IndexRange:
    """Return the indices of a number's "low:high", as parse_bins() does, or the index of a label or a text.

    Raises:
        UnitsError: If there is no such range, label or text.
    """
    if experiment.type == "number":
        return parse_bins(bin_edges(experiment), text)
    if experiment.type == "text":
        slot = experiment.bucket(text) or 0
        return IndexRange(slot, slot + 1, text)
    names = index_names(experiment)
    if text not in names:
        raise UnitsError(f"{experiment.name} has no label {text}; it has {', '.join(names)}")
    i = names.index(text)
    return IndexRange(i, i + 1, text)


def parse_bins(edges: np.ndarray, text: str) -> IndexRange:
    """Return the bins of "low:high", in the unit of the bins' edges; either bound may be left out.

    A bound that is not an edge moves to the nearest one: the result's `text` has the new range, and
    `original_text` the requested one.

    Raises:
        UnitsError: If the text is not a range, or no whole bin remains.
    """
    low_text, colon, high_text = text.partition(":")
    try:
        low = float(low_text or "-inf")
        high = float(high_text or "inf") if colon else float("nan")
    except ValueError:
        low = high = float("nan")
    if np.isnan(low) or np.isnan(high):
        raise UnitsError(f"a range reads low:high, for example 20:25 or :0, not {text}")
    if not low < high:
        raise UnitsError(f"a range goes from low to high, not {text}")
    i = 0 if low == -np.inf else int(np.abs(edges - low).argmin())
    j = len(edges) - 1 if high == np.inf else int(np.abs(edges - high).argmin())
    if i >= j:
        raise UnitsError(
            f"the range {text} holds no whole bin of {edges[0]:g} to {edges[-1]:g}: {_bins_are(edges)}; "
            "the last holds all that is higher"
        )
    moved = not (_is_edge(edges, i, low) and _is_edge(edges, j, high))
    return IndexRange(i, j, _bins_name(edges, i, j), text if moved else "")


def _is_edge(edges: np.ndarray, i: int, bound: float) -> bool:
    return bool(np.isinf(bound) or abs(edges[i] - bound) <= 1e-9 * max(1.0, abs(bound)))


def moved_note(experiment: Experiment, ranges: Iterable[IndexRange], unit: str = "") -> str:
    """Return a sentence on the ranges that moved to bin edges, or "" if none did."""
    moved = [f"{r.original_text} is counted as {r.text}" for r in ranges if r.original_text]
    return f"{'; '.join(moved)}: {_bins_are(bin_edges(experiment), unit)}." if moved else ""


def _bins_are(edges: np.ndarray, unit: str = "") -> str:
    """Return a clause on the width of the bins and their first edge."""
    return f"bins are {f'{edges[1] - edges[0]:g} {unit}'.strip()} wide, from {edges[0]:g}"


def edge_names(edges: np.ndarray) -> list[str]:
    """Return the edges of bins as short numbers, each exact to a thousandth of a bin."""
    return [_edge_name(float(edge), float(edges[1] - edges[0])) for edge in edges]


def _edge_name(edge: float, width: float) -> str:
    texts = (f"{edge:.{digits}g}" for digits in range(6, 17))
    return next((text for text in texts if abs(float(text) - edge) <= width / 1000), repr(edge))


def _bins_name(edges: np.ndarray, low: int, high: int) -> str:
    bins, width = len(edges) - 1, float(edges[1] - edges[0])
    first, last = (_edge_name(float(edges[i]), width) for i in (low, high))
    if low == 0:
        return f"below {last}" if high < bins else "any"
    return f"{first} and above" if high == bins else f"{first} to {last}"


def histogram_ranges(experiment: Experiment, most_rows: int) -> list[IndexRange]:
    """Return all values in at most `most_rows` ranges, or one for each label: labels are never merged.

    The nodes of a hierarchical histogram are preferred, because their estimates are the most precise.
    """
    width, edges, count = 1, None, value_count(experiment)
    if experiment.type == "number":
        widths = sorted({level.width for level in experiment.levels})
        coarsest = -(-count // most_rows)
        width = next((w for w in widths if -(-count // w) <= most_rows), coarsest)
        edges = bin_edges(experiment)
    starts = range(0, count, width)
    ends = [min(low + width, count) for low in starts]
    return [
        IndexRange(lo, hi, range_name(experiment, lo, hi, edges)) for lo, hi in zip(starts, ends, strict=True)
    ]
