"""Surveys a column: its texts, how its numbers are written, and the values that are no readings."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..server.arrays import Floats
from .tables import Table
from .written_numbers import is_blank_text, parse_number

MAX_TEXTS = 10_000
"""Number of different texts that a survey counts."""

# What sensors, drivers and loggers return instead of a reading: powers of two, and as many nines as fit.
_SENTINELS = frozenset(
    {-127, -200, 85, -32768, 32767, 65535, -(2**31), 2**31 - 1, 2**32 - 1}
    | {-3276.8, 3276.7, 6553.5, -327.68, 327.67, 655.35, -99, -99.9, 99.99, 999.99}
    | {sign * nines for sign in (-1, 1) for nines in (999, 999.9, 9999, 9999.9, 99999)}
)
_THOUSAND = 1000
_FAR = 2  # a sentinel is farther from the readings than this multiple of the largest gap between them


@dataclass(frozen=True)
class Survey:
    """What a column's cells look like.

    Attributes:
        name: The column's name.
        cells, blank: Number of cells, and of those without a value.
        texts: Number of cells with each text other than blanks, for at most MAX_TEXTS texts.
        is_complete: Whether `texts` has all texts.
        numbers: Number of cells that are numbers.
        with_point, with_comma: Number of cells that are numbers only with this decimal separator.
        smallest: The smallest whole number above 0 that is written without a separator, or infinity.
        ambiguous: A number whose separator may be either, such as 1,234, or "".
        largest_ambiguous: The largest of these numbers, if the separator is of decimals.
        units: Number of cells with each unit behind their number.
    """

    name: str
    cells: int = 0
    blank: int = 0
    texts: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True
    numbers: int = 0
    with_point: int = 0
    with_comma: int = 0
    smallest: float = math.inf
    ambiguous: str = ""
    largest_ambiguous: float = 0
    units: Counter[str] = field(default_factory=Counter)


def survey(table: Table, column: int, labels: Sequence[str] = ()) -> Survey:
    """Return what the cells of a column look like.

    Args:
        table: The table.
        column: The column's index.
        labels: Texts that are values even if they look like a missing one, such as "none".
    """
    texts, units, counts = Counter[str](), Counter[str](), Counter[str]()
    ambiguous, is_complete = "", True
    smallest, largest_ambiguous = math.inf, 0.0
    for ((codes, chunk_texts),) in table.chunks([column]):
        counts["cells"] += len(codes)
        cells_with = np.bincount(codes, minlength=len(chunk_texts)).tolist()
        for text, count in zip(chunk_texts, cells_with, strict=True):
            if is_blank_text(text) and text not in labels:
                counts["blank"] += count
                continue
            if text in texts or len(texts) < MAX_TEXTS:
                texts[text] += count
            else:
                is_complete = False
            point, comma = parse_number(text, "."), parse_number(text, ",")
            number = point or comma
            if number is None:
                continue
            counts["numbers"] += count
            units[number.unit] += count
            if comma is None:
                counts["with_point"] += count
            elif point is None:
                counts["with_comma"] += count
            elif point.value != comma.value:
                ambiguous = ambiguous or text
                largest_ambiguous = max(largest_ambiguous, min(abs(point.value), abs(comma.value)))
            elif point.value and "." not in text and "," not in text:
                smallest = min(smallest, abs(point.value))
    return Survey(
        table.names[column],
        texts=texts,
        is_complete=is_complete,
        smallest=smallest,
        ambiguous=ambiguous,
        largest_ambiguous=largest_ambiguous,
        units=units,
        **counts,
    )


def decimal_of(table: Table, cells: Survey) -> str:
    """Return the decimal separator of a column's numbers, "." or ",".

    Raises:
        table.error: If they can be read in two ways.
    """
    if cells.with_point or cells.with_comma:
        return "," if cells.with_comma > cells.with_point else "."
    # Where commas separate cells, points separate decimals.
    if not cells.ambiguous or ("," not in cells.ambiguous and table.delimiter != ";"):
        return "."
    if table.decimal:
        return table.decimal
    # If decimals would leave a gap below the whole numbers, only numbers from 1,000 have separators.
    if cells.largest_ambiguous < cells.smallest < _THOUSAND:
        return "." if "," in cells.ambiguous else ","
    values = [number.value for number in (parse_number(cells.ambiguous, d) for d in ".,") if number]
    with_point, with_comma = (f"{value:.15g}" for value in values)
    raise table.error(
        f"{cells.ambiguous} in {cells.name} is {with_point} or {with_comma}; give --decimal . or --decimal ,"
    )


def find_sentinels(values: Floats, keep: Sequence[float] = ()) -> list[float]:
    """Return the values that a sensor or a driver returned instead of readings, such as -127 or 65535.

    Such a value is one of the usual ones, occurs at least twice, and is farther from the other values than
    twice their largest gap.

    Args:
        values: The numbers of a column, shape (n,).
        keep: Values that are readings.
    """
    possible = list(_SENTINELS.difference(keep))
    if not len(values) or not np.isin([values.min(), values.max()], possible).any():
        return []
    distinct, counts = np.unique(values, return_counts=True)
    is_possible = np.isin(distinct, possible) & (counts > 1)
    readings = distinct[~is_possible]
    if len(readings) < 2:
        return []
    distance = np.maximum(readings[0] - distinct, distinct - readings[-1])
    return distinct[is_possible & (distance > _FAR * np.diff(readings).max())].tolist()
