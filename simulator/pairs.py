"""What the boards of a pair's experiment hold: named distributions over its cells, or a table of counts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ..planning.readings_file import Reading, csv_rows, read_cell
from . import population
from .population import Population, PopulationError, Recorded

COUNT = "count"
"""The column that says how often a row counts; without one each row counts once."""


def parse(spec: str, parts: Sequence[tuple[str, str]]) -> Population:
    """The population of a text: file:FILE, or any that is over an experiment's indices, such as zipf:1.2.

    parts: name and type of each. Raises PopulationError with one line.
    """
    kind, _, path = spec.partition(":")
    return read_counts(path, parts) if kind == "file" else population.parse(spec)


def read_counts(path: Path | str, parts: Sequence[tuple[str, str]]) -> Recorded:
    """The readings in a CSV file that has a column for each part, and one for how often each row counts.

    A blank or NA is no reading. Raises PopulationError with one line: no such file or column, a text that is
    not of its part's type (and its line).
    """
    names = [name for name, _ in parts]
    held: Counter[tuple[Reading, ...]] = Counter()
    numbers = [name for name, type in parts if type == "number"] + [COUNT]
    for where, row in csv_rows(path, [*names, COUNT], PopulationError, (COUNT,), numbers):
        *texts, often = row
        readings: list[Reading] = []
        for (name, type), cell in zip(parts, texts, strict=True):
            text = (cell or "").strip()
            try:
                readings.append(read_cell(text, type))
            except ValueError as e:
                raise PopulationError(f"{where}: {name} is {text!r}, {e}") from None
        held[tuple(readings)] += _count(where, often)  # type: ignore[assignment]
    if not sum(held.values()):
        raise PopulationError(f"{path} counts nothing: its column {COUNT} has no number above 0")
    return Recorded(tuple(held), tuple(float(count) for count in held.values()))


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
