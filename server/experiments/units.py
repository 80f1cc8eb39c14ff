"""Names for an experiment's indices: labels, bin edges, and ranges in the reading's unit."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise, product
from unicodedata import normalize

import numpy as np

from ...device import ldp_scale
from ...device.ldp_client import Experiment
from ...device.ldp_pairs import Part
from ..errors import HushmoteError
from ..mechanisms.common_values import inner_edges, same_values
from ..mechanisms.views.factors import parts_of
from ..typed_numbers import plain_number, typed_float
from ..wire.experiments import log_edges, value_count

Reading = Experiment | Part
"""An experiment or a pair's part; both have values."""

_NOT = "not "  # before a label: all the others
NO_READING = "no reading"
"""The name of the last index of an experiment or a part that sets `missing`."""


class UnitsError(HushmoteError):
    """Raised if an experiment does not have a range or label; the message lists those that it has."""


@dataclass(frozen=True)
class IndexRange:
    """A half-open range of indices.

    Attributes:
        low: The first index.
        high: One more than the last index.
        text: The range's name.
        original_text: The requested range if it was different, otherwise "".
    """

    low: int
    high: int
    text: str
    original_text: str = ""


def join_units(units: Mapping[str, str]) -> str:
    """Return the units of a pair's parts as one text, such as "temp: °C, humidity: %"; "" if there are none.

    If all units are the same, the text is this unit.
    """
    named = {name: unit for name, unit in units.items() if unit}
    if len(set(named.values())) < 2:
        return next(iter(named.values()), "")
    return ", ".join(f"{name}: {unit}" for name, unit in named.items())


def unit_of_part(unit: str, parts: Sequence[Part], name: str) -> str:
    """Return a part's unit from the text of join_units()."""
    start = "|".join(re.escape(part.name) for part in parts)
    named = re.findall(rf"(?:^|, )({start}): (.*?)(?=, (?:{start}): |$)", unit)
    return dict(named).get(name, "") if named else unit


def edges_between(low: int, high: int, bins: int, scale: str | None = None) -> np.ndarray:
    """Return the edges of bins in whole units, shape (bins + 1,).

    Args:
        low: The lowest edge, in milli-units.
        high: The highest edge, in milli-units.
        bins: The number of bins.
        scale: None for equally wide bins, or "log" for those of device/ldp_scale.py.
    """
    if scale:
        return np.array(ldp_scale.edges(low, high, bins)) / 1000
    return (low + (high - low) * (np.arange(bins + 1) / bins)) / 1000


def bin_edges(experiment: Reading) -> np.ndarray:
    """Return the edges of a number's bins in whole units, shape (values + 1,)."""
    if experiment.type != "number":
        raise UnitsError(f"{experiment.name} is a {experiment.type}, and only a number has bins")
    edges = log_edges(experiment)
    if edges:
        return np.array(edges) / 1000
    return edges_between(experiment.low, experiment.high, value_count(experiment))


def bin_middles(experiment: Reading) -> np.ndarray:
    """Return the middles of a number's bins in whole units, shape (values,).

    Raises:
        UnitsError: If the type is not a number.
    """
    edges = bin_edges(experiment)
    return (edges[:-1] + edges[1:]) / 2


def index_names(experiment: Reading) -> list[str]:
    """Return each value's name: a label, no/yes, a bin's half-open range, or a slot's index.

    A pair has a name for each cell in its joint table, in which a part may lack a reading.
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
    """Return the values' names, followed by "no reading" if the reading sets `missing`."""
    return index_names(reading) + [NO_READING] * (reading.domain - value_count(reading))


def range_name(experiment: Reading, low: int, high: int, edges: np.ndarray | None = None) -> str:
    """Return the name for indices low..high-1; the end bins include everything beyond them."""
    if experiment.type != "number":
        return ", ".join(index_names(experiment)[low:high])
    return _bins_name(bin_edges(experiment) if edges is None else edges, low, high)


def range_edges(experiment: Reading, r: IndexRange) -> tuple[float, float] | tuple[None, None]:
    """Return the outer edges of a number's bins in whole units, or (None, None) for another type."""
    if experiment.type != "number":
        return None, None
    edges = bin_edges(experiment)
    return float(edges[r.low]), float(edges[r.high])


def parse_range(experiment: Reading, text: str) -> IndexRange:
    """Return the indices of a number's "low:high" range as in parse_bins(), or the index of a label or text.

    "not ok" means all labels of a choice but ok, which must be its first label.

    Raises:
        UnitsError: If the range, label or text does not exist.
    """
    if experiment.type == "number":
        return parse_bins(bin_edges(experiment), text)
    if experiment.type == "text":
        slot = experiment.bucket(text) or 0
        return IndexRange(slot, slot + 1, text)
    names = index_names(experiment)
    i = _label_index(names, text)
    if i is None and experiment.type == "choice" and text.strip().lower().startswith(_NOT):
        return _all_but(experiment, names, text.strip()[len(_NOT) :])
    if i is None:
        raise UnitsError(f"{experiment.name} has no label {text}; it has {', '.join(names)}")
    return IndexRange(i, i + 1, names[i])


def _all_but(experiment: Reading, names: list[str], label: str) -> IndexRange:
    """Return the indices of all labels but one, which must be the first or the last."""
    i = _label_index(names, label)
    if i is None:
        raise UnitsError(f"{experiment.name} has no label {label}; it has {', '.join(names)}")
    if i not in (0, len(names) - 1):
        raise UnitsError(f'"not {names[i]}" needs {names[i]} as the first of the labels: move it there')
    low, high = (1, len(names)) if i == 0 else (0, i)
    return IndexRange(low, high, f"{_NOT}{names[i]}")


def _label_index(names: list[str], text: str) -> int | None:
    """Return a label's index, ignoring case, outer spaces and quotes unless labels differ only in them."""
    text = normalize("NFC", text)  # labels are; a terminal or a file name may write accents separately
    if text in names:
        return names.index(text)
    if text[:1] == "'" and text[1:] in names:  # a CSV file has an apostrophe before a formula
        return names.index(text[1:])
    bare = [re.sub(r"""^(["'])(.*)\1$""", r"\2", name.strip()).strip().casefold() for name in (*names, text)]
    return bare.index(bare[-1]) if bare.count(bare[-1]) == 2 else None


_PRINTED_NAME = re.compile(
    r"(?P<low>\S+?)(?: to |\s*–\s*| - )(?P<high>\S+)|(?:below|under|<) ?(?P<below>[^=\s]\S*)"
    r"|(?P<least>≥|>=|at least )? ?(?P<from>\S+)(?(least)| and above)|any(?: reading)?",
    re.IGNORECASE,
)

_BEFORE_LIMIT = r"\b(?:below|under|at least) |(?:<|≥|>=) ?"
_RANGE = re.compile(rf"(?:{_BEFORE_LIMIT}).+|.+ and above|.+(?: to |–| - ).+", re.IGNORECASE)
_BETWEEN_LIMITS = re.compile(rf"(:|{_BEFORE_LIMIT}| to |\s*–\s*| - | and above)", re.IGNORECASE)


def range_in(version: Experiment, r: IndexRange, of: Experiment) -> IndexRange | None:
    """Return the indices that stand for the same values in another version, or None if it has none.

    The end bins include everything beyond them, so ":100" is no range of a version that ends at 100.

    Args:
        version: The other version.
        r: A range of the version `of`.
        of: The version that has the range.
    """
    if version is of or (same_values(version, of) and version.labels == of.labels):
        return r
    if version.type != of.type:
        return None
    if version.type == "choice":
        own, others = index_names(version), index_names(of)
        if r.text.startswith(_NOT) and r.text not in others:
            excluded = r.text[len(_NOT) :]
            is_first = own[0] == excluded and excluded != own[-1]
            return IndexRange(1, len(own), r.text) if is_first else None
        name = others[r.low]
        is_same = r.high == r.low + 1 and (name != others[-1] or same_values(version, of))
        at = own.index(name) if is_same and name in own else None
        return None if at is None else IndexRange(at, at + 1, r.text, r.original_text)
    if version.type != "number":
        return None
    ends, own_ends = (["low", *inner_edges(e), "high"] for e in (of, version))
    low, high = ends[r.low], ends[r.high]
    if low not in own_ends or high not in own_ends:
        return None
    return IndexRange(own_ends.index(low), own_ends.index(high), r.text, r.original_text)


def is_range(text: str) -> bool:
    """Return whether a text is written as a number's range, "18:24" or as printed, perhaps with units."""
    return ":" in text or _RANGE.fullmatch(text.strip()) is not None


def without_unit(text: str, unit: str) -> str:
    """Return a number's range without the unit after its limits: "18 °C:22 °C" becomes "18:22".

    Limits that float() cannot read, such as 20k, become plain numbers.

    Raises:
        UnitsError: If a limit is in another unit.
    """
    if not is_range(text):
        return text
    pieces = _BETWEEN_LIMITS.split(text.strip())
    return "".join(piece if i % 2 else _plain_limit(piece, text, unit) for i, piece in enumerate(pieces))


def _plain_limit(limit: str, text: str, unit: str) -> str:
    try:
        float(limit)
    except ValueError:
        number = limit.strip()
    else:
        return limit
    if unit and (before := number.removesuffix(unit).rstrip()) != number and before[-1:].isalnum():
        number = before
    try:
        return f"{Decimal(plain_number(number)):f}"
    except InvalidOperation:
        other = re.fullmatch(r"[-+−]?\d[\d.,]*(?:e[-+]?\d+|[kM](?!\w))?(?:\s+|(?=°))(\D+)", number)
    if other:
        expected = f"the unit is {unit}" if unit else "the experiment has no unit"
        raise UnitsError(f"{text} is in {other[1].strip()}, but {expected}")
    return number


def range_limits(text: str) -> tuple[float, float]:
    """Return the limits of a range, which are infinite if omitted.

    Raises:
        UnitsError: If the text is not a range.
    """
    name = _PRINTED_NAME.fullmatch(text.strip())
    bounds = f"{name['low'] or name['from'] or ''}:{name['high'] or name['below'] or ''}" if name else text
    low_text, colon, high_text = bounds.partition(":")
    try:
        low = typed_float(low_text or "-inf")
        high = typed_float(high_text or "inf") if colon else float("nan")
    except ValueError:
        low = high = float("nan")
    if np.isnan(low) or np.isnan(high):
        raise UnitsError(f"a range must be low:high, such as 20:25 or :0, not {text}")
    if not low < high:
        raise UnitsError(f"a range must go from low to high, not {text}")
    return low, high


def parse_bins(edges: np.ndarray, text: str) -> IndexRange:
    """Return the bins in "low:high", in the edges' unit; either bound may be omitted.

    The names of printed rows are ranges too, "18 to 24", "below 18", "24 and above" and "any", as is "≥ 24".

    A bound that is not an edge moves to the nearest edge; the result's `text` then has the new range, and
    `original_text` the requested range.

    Raises:
        UnitsError: If the text is not a range or does not contain a whole bin.
    """
    low, high = range_limits(text)
    i = 0 if low == -np.inf else int(np.abs(edges - low).argmin())
    j = len(edges) - 1 if high == np.inf else int(np.abs(edges - high).argmin())
    if i >= j:
        raise UnitsError(
            f"the range {text} contains no whole bin of {edges[0]:g} to {edges[-1]:g}: "
            f"{_describe_bins(edges)}; the last one includes all higher values"
        )
    moved = not (_is_edge(edges, i, low) and _is_edge(edges, j, high))
    return IndexRange(i, j, _bins_name(edges, i, j), text if moved else "")


def _is_edge(edges: np.ndarray, i: int, bound: float) -> bool:
    return bool(np.isinf(bound) or abs(edges[i] - bound) <= 1e-9 * max(1.0, abs(bound)))


def moved_note(experiment: Experiment, ranges: Iterable[IndexRange], unit: str = "") -> str:
    """Return a sentence about the ranges that were moved to bin edges, or ""."""
    moved = [f"{r.original_text} is counted as {r.text}" for r in ranges if r.original_text]
    return f"{'; '.join(moved)}: {_describe_bins(bin_edges(experiment), unit)}." if moved else ""


def _describe_bins(edges: np.ndarray, unit: str = "") -> str:
    """Return a clause with the bins' widths and first edge."""
    widths = np.diff(edges)
    width = f"{widths.min():.4g}"
    if widths.max() > 1.001 * widths.min():  # on a logarithmic scale, or between the edges of all versions
        width += f" to {widths.max():.4g}"
    return f"bins are {f'{width} {unit}'.strip()} wide, from {edges[0]:g}"


def edge_names(edges: np.ndarray) -> list[str]:
    """Return bin edges as short numbers, each exact to a thousandth of the bin below it."""
    return [_edge_name(edges, i) for i in range(len(edges))]


def _edge_name(edges: np.ndarray, i: int) -> str:
    edge, width = float(edges[i]), float(edges[max(i, 1)] - edges[max(i, 1) - 1])
    texts = (f"{edge:.{digits}g}" for digits in range(6, 17))
    return next((text for text in texts if abs(float(text) - edge) <= width / 1000), repr(edge))


def _bins_name(edges: np.ndarray, low: int, high: int) -> str:
    bins = len(edges) - 1
    first, last = (_edge_name(edges, i) for i in (low, high))
    if low == 0:
        return f"below {last}" if high < bins else "any"
    return f"{first} and above" if high == bins else f"{first} to {last}"


def histogram_ranges(experiment: Experiment, max_rows: int) -> list[IndexRange]:
    """Return at most `max_rows` ranges that cover all values; labels, which are never merged, get one each.

    A hierarchical histogram's nodes are preferred, because their estimates are the most precise.
    """
    width, edges, count = 1, None, value_count(experiment)
    if experiment.type == "number":
        widths = sorted({level.width for level in experiment.levels})
        coarsest = -(-count // max_rows)
        width = next((w for w in widths if -(-count // w) <= max_rows), coarsest)
        edges = bin_edges(experiment)
    starts = range(0, count, width)
    ends = [min(low + width, count) for low in starts]
    return [
        IndexRange(lo, hi, range_name(experiment, lo, hi, edges)) for lo, hi in zip(starts, ends, strict=True)
    ]


def common_ranges(experiment: Experiment, other: Experiment, max_rows: int) -> list[IndexRange]:
    """Return at most `max_rows` ranges that another version counts as well, if both are numbers.

    Otherwise, or if the two count the same values, these are histogram_ranges().
    """
    usual = histogram_ranges(experiment, max_rows)
    if experiment.type != "number" or all(range_in(other, r, experiment) for r in usual):
        return usual
    own, others = (inner_edges(version) for version in (experiment, other))
    common = [i for i, edge in enumerate(own, 1) if edge in others]
    if not common:
        return usual
    step = -(-(len(common) + 1) // max_rows)
    limits = [0, *common[step - 1 :: step], value_count(experiment)]
    return [IndexRange(lo, hi, range_name(experiment, lo, hi)) for lo, hi in pairwise(limits)]
