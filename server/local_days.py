"""Local days: the time zone and the first day of the week by which an experiment's hours are grouped."""

import datetime
import difflib
import functools
import re
import zoneinfo
from dataclasses import dataclass

from .errors import UsageError

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)
_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_OFFSET = re.compile(r"(GMT|UTC)?[-+−]\d{1,2}(:?\d\d)?", re.IGNORECASE)
_LONGEST_ZONE = 64
_LONGEST_ABBREVIATION = 4  # such as CEST, which is close to EST
_UNUSUAL = ("posix/", "right/", "localtime", "posixrules", "Factory")  # files that are not a place's zone


def check_zone(name: str) -> str:
    """Return the name of a time zone, or raise ValueError if the IANA database does not have it."""
    if not name or name.startswith(_UNUSUAL) or _load(name) is None:
        raise ValueError(
            'it must be a time zone in the IANA database, such as "Europe/Berlin", '
            f"not {name[:40]!r}{_suggest(name)}"
        )
    return name


def _suggest(name: str) -> str:
    """Return a hint with zones that a wrong name may mean, in brackets, or ""."""
    if _OFFSET.fullmatch(name):  # Etc/GMT+1 is an hour behind UTC
        return " (name a place, so that clocks change as they do there)"
    zones = [zone for zone in sorted(zoneinfo.available_timezones()) if not zone.startswith(_UNUSUAL)]
    words = name[:_LONGEST_ZONE].lower().replace(" ", "_").strip("/")
    in_area = [zone for zone in zones if zone.lower().startswith(f"{words}/")]
    if not in_area:
        area = words.rpartition("/")[0]
        in_area = [zone for zone in zones if area and zone.lower().startswith(f"{area}/")]
        places = {zone.rpartition("/")[2].lower(): zone for zone in in_area or zones}
        cutoff = 1.0 if len(words) <= _LONGEST_ABBREVIATION else 0.75
        if close := difflib.get_close_matches(words.rpartition("/")[2], places, 1, cutoff):
            return f" (did you mean {places[close[0]]}?)"
    return f" (there are {', '.join(in_area[:3])} and others)" if len(in_area) > 3 else ""


def check_text(day: str, week: str) -> None:
    """Raise ValueError if stored texts cannot be the names of a zone and of a day of the week."""
    if day and (len(day) > _LONGEST_ZONE or not _ZONE.fullmatch(day)):
        raise ValueError(f"{day[:40]!r} is not the name of a time zone")
    if week and week not in WEEKDAYS:
        raise ValueError(f"{week[:40]!r} is not a day of the week")


@functools.cache
def _load(name: str) -> zoneinfo.ZoneInfo | None:
    if len(name) > _LONGEST_ZONE or not _ZONE.fullmatch(name):
        return None
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # OSError: the name of a folder
        return None


@dataclass(frozen=True)
class Calendar:
    """The days and weeks to which an experiment's windows belong.

    Windows are hours or days in UTC. A window belongs to the local day that contains its middle, so in a zone
    that is not a whole number of hours from UTC, days begin at the nearest hour.

    Attributes:
        day: The time zone, as in the IANA database, or "" for UTC.
        week: The first day of the week, one of WEEKDAYS, or "" for Monday.
    """

    day: str = ""
    week: str = ""

    @property
    def is_local(self) -> bool:
        """Whether days are local, not in UTC."""
        return bool(self.day)

    @property
    def is_known(self) -> bool:
        """Whether this machine knows the time zone."""
        return not self.day or _load(self.day) is not None

    @property
    def zone_name(self) -> str:
        """The name of the time zone, or "UTC"."""
        return self.day or "UTC"

    @property
    def first_weekday(self) -> int:
        """The first day of the week; Monday is 0."""
        return WEEKDAYS.index(self.week) if self.week else 0

    @property
    def zone(self) -> datetime.tzinfo:
        """The time zone.

        Raises:
            UsageError: If this machine does not know it.
        """
        if not self.day:
            return datetime.UTC
        zone = _load(self.day)
        if zone is None:
            raise UsageError(
                f"this machine does not know the time zone {self.day}: "
                "update its time zones with pip install -U tzdata"
            )
        return zone

    def local(self, moment: datetime.datetime) -> datetime.datetime:
        """Return a time in the zone."""
        return moment.astimezone(self.zone)

    def today(self, at: datetime.datetime) -> datetime.date:
        """Return the day to which the current hour belongs."""
        hour = at.astimezone(datetime.UTC).replace(minute=0, second=0, microsecond=0)
        return self.local(hour + HOUR / 2).date()

    def midnight(self, day: datetime.date) -> datetime.datetime:
        """Return the start of a day in the zone; if clocks skip midnight, this is when they skip it."""
        return datetime.datetime.combine(day, datetime.time(), self.zone)

    def begin(self, day: datetime.date) -> datetime.datetime:
        """Return the start of a day's first hour, UTC."""
        start = self.midnight(day).astimezone(datetime.UTC) - HOUR / 2
        hour = start.replace(minute=0, second=0, microsecond=0)
        return hour if hour == start else hour + HOUR

    def is_approximate(self, first: datetime.date, last: datetime.date) -> bool:
        """Return whether some of the days from `first` to `last` do not begin or end at a whole hour UTC."""
        count = (last - first).days + 2
        days = (first + n * DAY for n in range(count))
        starts = (self.midnight(day).astimezone(datetime.UTC) for day in days) if self.is_local else ()
        return any((start.minute, start.second) != (0, 0) for start in starts)

    def week_of(self, day: datetime.date) -> datetime.date:
        """Return the first day of the week that contains a day."""
        return day - (day.weekday() - self.first_weekday) % 7 * DAY

    def week_name(self, day: datetime.date) -> str:
        """Return the name of the week that contains a day: 2026-W47, as in ISO 8601.

        A week that begins on another day than Monday has the name of the ISO week with which it shares most
        days, which is that of its fourth day.
        """
        return f"{self.week_of(day) + 3 * DAY:%G-W%V}"

    def week_start(self, year: int, week: int) -> datetime.date:
        """Return the first day of a week by its name; raise ValueError if the year does not have it."""
        monday = datetime.date.fromisocalendar(year, week, 1)
        first = self.first_weekday
        return monday + (first if first <= 3 else first - 7) * DAY


UTC_DAYS = Calendar()
"""Days in UTC, and weeks that begin on Monday."""
