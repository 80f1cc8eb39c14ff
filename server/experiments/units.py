"""From an experiment's indices to what people read: labels, bin edges, ranges in the reading's own unit."""

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
"""What has values: an experiment, or a part of a pair."""

NO_READING = "no reading"
"""The name of the last index of an experiment or a part that sets `missing`."""


class UnitsError(HushmoteError):
    """A range or label that the experiment does not have; the text says what it has."""


@dataclass(frozen=True)
class IndexRange:
    """Indices low to high, half-open, and what they are called: `text` names what is really covered.

    asked: what was asked for, where that is another range; otherwise an empty text.
    """

    low: int
    high: int
    text: str
    asked: str = ""


def edges_between(low: int, high: int, bins: int) -> np.ndarray:
    """The edges of equal bins from low to high (milli-units), in whole units; shape (bins + 1,)."""
    return (low + (high - low) * (np.arange(bins + 1) / bins)) / 1000


def bin_edges(experiment: Reading) -> np.ndarray:
    """The edges of a number's bins in whole units, shape (values + 1,)."""
    if experiment.type != "number":
        raise UnitsError(f"{experiment.name} is a {experiment.type}: only a number has bins")
    return edges_between(experiment.low, experiment.high, value_count(experiment))


def bin_middles(experiment: Reading) -> np.ndarray:
    """Return the middles of a number's bins in whole units, shape (values,); raises UnitsError."""
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
    """Return the names of the values and, if the reading sets `missing`, of no reading behind them."""
    return index_names(reading) + [NO_READING] * (reading.domain - value_count(reading))


def range_name(experiment: Reading, low: int, high: int, edges: np.ndarray | None = None) -> str:
    """How indices low to high (half-open) read; the end bins hold all that lies beyond them."""
    if experiment.type != "number":
        return ", ".join(index_names(experiment)[low:high])
    return _bins_name(bin_edges(experiment) if edges is None else edges, low, high)


def range_edges(experiment: Reading, r: IndexRange) -> tuple[float, float] | tuple[None, None]:
    """The outer edges of a number's bins in whole units; None twice for another type."""
    if experiment.type != "number":
        return None, None
    edges = bin_edges(experiment)
    return float(edges[r.low]), float(edges[r.high])


def parse_range(experiment: Reading, text: str) -> IndexRange:
    """Return the indices of a number's "low:high", as parse_bins does, or the index of a label or a text.

    Raises UnitsError for another text.
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

    A bound that is not an edge moves to the nearest one: the result's text says which, and `asked` what was
    asked for. Raises UnitsError for another text, or where no whole bin is left.
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
    """A sentence on the ranges that are not counted as they were asked for; empty where all are."""
    moved = [f"{r.asked} is counted as {r.text}" for r in ranges if r.asked]
    return f"{'; '.join(moved)}: {_bins_are(bin_edges(experiment), unit)}." if moved else ""


def _bins_are(edges: np.ndarray, unit: str = "") -> str:
    """How wide bins are, and where they begin."""
    return f"bins are {f'{edges[1] - edges[0]:g} {unit}'.strip()} wide, from {edges[0]:g}"


def edge_names(edges: np.ndarray) -> list[str]:
    """Edges of bins as short numbers, each within a thousandth of a bin of what it is."""
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
    """All values in at most most_rows ranges, or one for each label: labels are never put together.

    A hierarchical histogram's own nodes come first: those were asked directly and are known best.
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
