"""Readings for a pair experiment: named distributions over its cells, or a table of counts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..planning.readings_file import ColumnType, Reading, read_readings
from ..planning.tables import CsvTable
from ..planning.written_numbers import ReadingRules
from . import population
from .population import Population, PopulationError, Recorded

COUNT = "count"
"""The column with each row's count; without it, each row counts once."""


def parse(spec: str, parts: Sequence[ColumnType], rules: ReadingRules | None = None) -> Population:
    """Return the population of a spec: file:FILE, or any population over indices, such as zipf:1.2.

    Args:
        spec: The text.
        parts: The column of each part.
        rules: How to read numbers, as stated by the user.

    Raises:
        PopulationError: If the file cannot be read or does not fit the parts, or the spec is not a valid
            population; the message is one line.
    """
    kind, _, path = spec.partition(":")
    return read_counts(path, parts, rules) if kind == "file" else population.parse(spec)


def read_counts(path: Path | str, parts: Sequence[ColumnType], rules: ReadingRules | None = None) -> Recorded:
    """Return the readings in a CSV file that has a column for each part, and optionally one for counts.

    A missing cell, as in `written_numbers.BLANK`, means no reading.

    Raises:
        PopulationError: If the file or a column is missing, or a text does not fit its part's type.
    """
    columns = list(parts)
    table = CsvTable(path, [*(str(part.name) for part in parts), COUNT], PopulationError)
    if COUNT in table.names:
        columns.append(ColumnType(COUNT, "number", is_exact=True))
    result = read_readings(table, columns, rules)
    row_counts: Counter[tuple[Reading, ...]] = Counter()
    for row, cells in enumerate(zip(*result.columns, strict=True)):
        count = cells[len(parts)] if COUNT in table.names else 1.0
        if not isinstance(count, float) or count < 0:
            text = f"{count:g}" if isinstance(count, float) else "blank"
            raise PopulationError(f"{table.position(row)}: {COUNT} is {text}, not a number of 0 or more")
        row_counts[cells[: len(parts)]] += count  # type: ignore[assignment]
    if not sum(row_counts.values()):
        raise PopulationError(f"{path} has no readings; its column {COUNT} has no number above 0")
    return Recorded(tuple(row_counts), tuple(map(float, row_counts.values())), result.notes)
