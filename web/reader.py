"""A reader's number and date formats, from the languages that the browser requests."""

import datetime
from dataclasses import dataclass

from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_interval, format_time
from babel.numbers import format_decimal, format_percent
from nicegui import context


@dataclass(frozen=True)
class Reader:
    """Formats all numbers and dates on the page in a reader's locale."""

    locale: Locale

    def number(self, value: float, digits: int | None = None) -> str:
        """Return a number with `digits` decimals, or with the locale's default format if None."""
        pattern = None if digits is None else "#,##0" + ("." + "0" * digits if digits else "")
        return format_decimal(value, pattern, self.locale)

    def percent(self, share: float, digits: int = 1) -> str:
        """Return a share, such as 41.2%."""
        pattern = self.locale.percent_formats[None].pattern
        return format_percent(
            share, pattern.replace("0", f"0.{'0' * digits}" if digits else "0"), self.locale
        )

    @property
    def percent_sign(self) -> str:
        """The percent sign after a number, with a space if the locale has one."""
        suffix = str(self.locale.percent_formats[None].pattern).rpartition("0")[2]
        return suffix or "%"

    def day(self, day: datetime.date) -> str:
        """Return a day, such as Nov 21, 2026."""
        return format_date(day, "medium", self.locale)

    def days(self, first: datetime.date, last: datetime.date, year: bool) -> str:
        """Return a day, or a range of days such as Nov 21 – 27."""
        return format_interval(first, last, "yMMMd" if year else "MMMd", locale=self.locale)

    def time(self, moment: datetime.datetime) -> str:
        """Return the time of day with seconds."""
        return format_time(moment, "medium", locale=self.locale)

    @property
    def tag(self) -> str:
        """The locale as a tag for the browser's Intl, such as de-CH."""
        return str(self.locale).replace("_", "-")


def reader() -> Reader:
    """Return the current request's reader, based on Accept-Language; the default is English."""
    request = context.client.request
    return Reader(_locale(request.headers.get("accept-language", "")))


def _locale(accepted: str) -> Locale:
    for part in accepted[:200].split(","):
        try:
            return Locale.parse(part.split(";")[0].strip(), sep="-")
        except (ValueError, UnknownLocaleError):
            continue
    return Locale("en", "US")
