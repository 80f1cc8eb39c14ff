"""Readings for a pair experiment: named distributions over its cells, or a table of counts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..planning.readings_file import Reading, csv_rows, read_cell
from . import population
from .population import Population, PopulationError, Recorded

COUNT = "count"
"""The column with each row's count; without it, each row counts once."""


def parse(spec: str, parts: Sequence[tuple[str, str]]) -> Population:
    """Return the population of a spec: file:FILE, or any population over indices, such as zipf:1.2.

    Args:
        spec: The text.
        parts: Name and type of each part.

    Raises:
        PopulationError: If the file cannot be read or does not fit the parts, or the spec is not a valid
            population; the message is one line.
    """
    kind, _, path = spec.partition(":")
    return read_counts(path, parts) if kind == "file" else population.parse(spec)


def read_counts(path: Path | str, parts: Sequence[tuple[str, str]]) -> Recorded:
    """Return the readings in a CSV file that has a column for each part, and optionally one for counts.

    A blank cell or NA means no reading.

    Raises:
        PopulationError: If the file or a column is missing, or a text does not fit its part's type.
    """
    names = [name for name, _ in parts]
    row_counts: Counter[tuple[Reading, ...]] = Counter()
    numbers = [name for name, type in parts if type == "number"] + [COUNT]
    for where, row in csv_rows(path, [*names, COUNT], PopulationError, (COUNT,), numbers):
        *texts, count_text = row
        readings: list[Reading] = []
        for (name, type), cell in zip(parts, texts, strict=True):
            text = (cell or "").strip()
            try:
                readings.append(read_cell(text, type))
            except ValueError as e:
                raise PopulationError(f"{where}: {name} is {text!r}, {e}") from None
        row_counts[tuple(readings)] += _count(where, count_text)  # type: ignore[assignment]
    if not sum(row_counts.values()):
        raise PopulationError(f"{path} has no readings; its column {COUNT} has no number above 0")
    return Recorded(tuple(row_counts), tuple(float(count) for count in row_counts.values()))


def _count(where: str, text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        count = float(text)
    except ValueError:
        count = -1.0
    if not 0 <= count < float("inf"):
        raise PopulationError(f"{where}: {COUNT} is {text!r}, not a number of 0 or more")
    return count
