"""From an experiment's indices to what people read: labels, bin edges, ranges in the reading's own unit."""

from dataclasses import dataclass

import numpy as np

from ...device.ldp_client import Experiment
from ..errors import HushmoteError


class UnitsError(HushmoteError):
    """A range or label that the experiment does not have; the text says what it has."""


@dataclass(frozen=True)
class IndexRange:
    """Indices low to high, half-open, and what they are called: `text` names what is really covered."""

    low: int
    high: int
    text: str


def edges_between(low: int, high: int, bins: int) -> np.ndarray:
    """The edges of equal bins from low to high (milli-units), in whole units; shape (bins + 1,)."""
    return (low + (high - low) * (np.arange(bins + 1) / bins)) / 1000


def bin_edges(experiment: Experiment) -> np.ndarray:
    """The edges of a number's bins in whole units, shape (domain + 1,)."""
    if experiment.type != "number":
        raise UnitsError(f"{experiment.name} is a {experiment.type}: only a number has bins")
    return edges_between(experiment.low, experiment.high, experiment.domain)


def index_names(experiment: Experiment) -> list[str]:
    """What each index is called: a label, no/yes, or a bin's half-open range."""
    if experiment.type == "choice":
        return [*experiment.labels, "other"]
    if experiment.type == "bool":
        return ["no", "yes"]
    edges = bin_edges(experiment)
    return [_bins_name(edges, i, i + 1) for i in range(experiment.domain)]


def range_name(experiment: Experiment, low: int, high: int, edges: np.ndarray | None = None) -> str:
    """How indices low to high (half-open) read; the end bins hold all that lies beyond them."""
    if experiment.type != "number":
        return ", ".join(index_names(experiment)[low:high])
    return _bins_name(bin_edges(experiment) if edges is None else edges, low, high)


def parse_range(experiment: Experiment, text: str) -> IndexRange:
    """Return the indices of a number's "low:high", as parse_bins does, or the index of a label.

    Raises UnitsError for another text.
    """
    if experiment.type == "number":
        return parse_bins(bin_edges(experiment), text)
    names = index_names(experiment)
    if text not in names:
        raise UnitsError(f"{experiment.name} has no label {text}; it has {', '.join(names)}")
    i = names.index(text)
    return IndexRange(i, i + 1, text)


def parse_bins(edges: np.ndarray, text: str) -> IndexRange:
    """Return the bins of "low:high", in the unit of the bins' edges; either bound may be left out.

    A bound that is not an edge moves to the nearest one; the result's text says which. Raises UnitsError for
    another text, or where no whole bin is left.
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
        raise UnitsError(f"{text} lies within half a bin or outside {edges[0]:g} to {edges[-1]:g}")
    return IndexRange(i, j, _bins_name(edges, i, j))


def _bins_name(edges: np.ndarray, low: int, high: int) -> str:
    bins = len(edges) - 1
    if low == 0:
        return f"below {edges[high]:g}" if high < bins else "any"
    if high == bins:
        return f"{edges[low]:g} and above"
    return f"{edges[low]:g} to {edges[high]:g}"
