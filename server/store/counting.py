"""Record when counting last worked and on which days it was interrupted, and check clocks against it.

Days and times describe the whole store, with all its fleets and aggregators, never one device or report.
"""

import datetime

from sqlalchemy import Connection, or_, select, update

from ..wire.limits import EARLIEST, LATEST
from . import schema
from .database import StoreError, insert_interruptions

STEP_S = 60
"""Resolution of the stored time in seconds, so that several aggregators update its row once a minute."""
GAP_S = 3600
"""Counting was interrupted if it did not work for more than this many seconds."""
MAX_DAYS = 400
"""The maximum number of days recorded for one interruption; the newest are recorded."""

BEHIND_S = 300
"""A clock that is more than this many seconds behind the store's last time must be wrong."""
MAX_AHEAD = datetime.timedelta(days=31)
"""A clock further ahead of the last correct time than this is not used until an operator accepts it."""

BEHIND = "the clock is behind: nothing is counted or erased until it is right"
ACCEPT = "hushmote store clock --accept"
AHEAD = "the clock jumped ahead: nothing is counted or erased until it is right or an operator accepts it"

_DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()

# If another aggregator has locked the row, it is already recording the time, so do not wait for it. SQLite
# has only one writer at a time and ignores this clause.
_ALIVE_QUERY = select(schema.counting.c.alive).with_for_update(skip_locked=True)


class ClockWrong(StoreError):
    """Raised when this machine's clock is wrong, or must be accepted by an operator.

    Attributes:
        reason: BEHIND or AHEAD, which do not contain a time.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def check_clock(now: datetime.datetime, last: int | None, expected: float | None = None) -> None:
    """Check that a clock is plausible and not so far ahead that an operator must accept it.

    Windows, erasure by time and serials all depend on a correct clock.

    Args:
        now: The clock's time, UTC.
        last: The store's last time from last_time(), unix seconds; None if it has none.
        expected: The time according to the monotonic clock, unix seconds; None if this process has not had a
            correct time yet.

    Raises:
        ClockWrong: If the clock is wrong or needs an operator's decision.
    """
    timestamp = now.timestamp()
    if now < EARLIEST:
        raise ClockWrong(BEHIND, f"{_clock_reading(now)}, which is older than this software: set it")
    if now >= LATEST:
        raise ClockWrong(
            AHEAD, f"{_clock_reading(now)}, and clocks in {LATEST.year} or later are not accepted: set it"
        )
    advice = f"set it, or if it is right run `{ACCEPT}`"
    if last is not None and timestamp < last - BEHIND_S:
        raise ClockWrong(
            BEHIND, f"{_clock_reading(now)}, which is behind the store's last time, {_utc(last)}: {advice}"
        )
    reference = max((time for time in (last, expected) if time is not None), default=timestamp)
    if timestamp - reference > MAX_AHEAD.total_seconds():
        days = int((timestamp - reference) // _DAY_S)
        raise ClockWrong(
            AHEAD,
            f"{_clock_reading(now)}, {days:,} days after the last right time, {_utc(reference)}: {advice}",
        )


def clock_fault(now: datetime.datetime, last: int | None) -> ClockWrong | None:
    """Return the error that check_clock() raises, or None if it does not raise one."""
    try:
        check_clock(now, last)
    except ClockWrong as e:
        return e
    return None


def _clock_reading(now: datetime.datetime) -> str:
    return f"the clock says {_utc(now.timestamp())}"


def _utc(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def last_time(connection: Connection) -> int | None:
    """Return the earliest time that a correct clock can show, unix seconds in whole minutes; or None.

    Raises:
        TypeError: If a time in the store is not a number.
        ValueError: If a time in the store is out of range.
    """
    query = select(schema.counting.c.alive, schema.counting.c.clock)
    times = [time for row in connection.execute(query) for time in row if time is not None]
    for time in times:
        if not isinstance(time, int):
            raise TypeError("the time at which counting worked is not a number")
        if not 0 <= time < 1 << 32:
            raise ValueError("the time at which counting worked is not a time")
    return max(times, default=None)


def record_clock(connection: Connection, now: datetime.datetime) -> None:
    """Record that a clock was correct at this time, unless a later time is already recorded."""
    minute, clock = counting_minute(now), schema.counting.c.clock
    later = or_(clock.is_(None), clock < minute)
    connection.execute(update(schema.counting).where(later).values(clock=minute))


def accept_clock(connection: Connection, now: datetime.datetime) -> None:
    """Check clocks against this time from now on, even if it is earlier than the store's time.

    If it is, the day is recorded as interrupted, because a backlog will arrive on it.
    """
    minute, alive = counting_minute(now), schema.counting.c.alive
    change = connection.execute(update(schema.counting).where(alive > minute).values(alive=minute))
    if change.rowcount:
        add_interruptions(connection, days_between(minute, minute))
    connection.execute(update(schema.counting).values(clock=minute))


def counting_minute(now: datetime.datetime) -> int:
    """Return the start of a time's minute, unix seconds."""
    return int(now.timestamp()) // STEP_S * STEP_S


def days_between(before: int, after: int) -> list[str]:
    """Return the UTC days from one unix time to a later one, inclusive, but only the newest MAX_DAYS."""
    last = after // _DAY_S
    first = max(before // _DAY_S, last - MAX_DAYS + 1)
    return [datetime.date.fromordinal(_EPOCH + day).isoformat() for day in range(first, last + 1)]


def record_counting(connection: Connection, now: datetime.datetime) -> None:
    """Record that counting works; if it last worked over GAP_S ago, mark the days since then as interrupted.

    The recorded time never decreases.

    Raises:
        SQLAlchemyError: If the database fails.
        TypeError: If the time in the store is not a number.
    """
    minute = counting_minute(now)
    for (before,) in connection.execute(_ALIVE_QUERY).all():
        if before is None or before < minute:
            connection.execute(update(schema.counting).values(alive=minute))
        if before is not None and minute - before > GAP_S:
            add_interruptions(connection, days_between(before, minute))


def add_interruptions(connection: Connection, days: list[str]) -> None:
    """Record days as interrupted; days that are already recorded are kept."""
    if days:
        connection.execute(insert_interruptions(connection), [{"day": day} for day in days])
