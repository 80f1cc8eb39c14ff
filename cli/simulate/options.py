"""The options of `hushmote simulate` and the names of the files that it writes."""

from dataclasses import dataclass
from pathlib import Path

from ...planning.written_numbers import ReadingRules
from ...server.plain_text import CsvDialect
from ..output import PICTURES

SUFFIXES = (".csv", ".json", *PICTURES)
CONVERGENCE = "convergence"


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """The options of `hushmote simulate`; an option that was not given is None."""

    file: Path
    devices: int | None
    population: str | None
    rules: ReadingRules
    calls: float | None
    ranges: list[str] | None
    quantiles: list[float] | None
    rows: int | None
    seed: int | None
    output: list[Path] | None
    csv_dialect: CsvDialect
    faithful: bool
    faults: list[str] | None
    attack: str | None
    groups: list[str] | None
    shifts: list[str] | None
    to: str | None
    days: int | None
    fleet: str | None
    drift: float | None
    workers: str | None
    privacy: bool
    verbose: bool
    as_json: bool
