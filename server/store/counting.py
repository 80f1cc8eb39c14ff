"""When counting last worked, the days on which it was interrupted, and which clocks can be right.

Days and times describe the whole store, with all its fleets and aggregators, never a device or a report.
"""

import datetime

from sqlalchemy import Connection, or_, select, update

from . import schema
from .database import StoreError, insert_interruptions

STEP_S = 60
"""The time is kept in whole minutes, so several aggregators change its row at most once a minute."""
GAP_S = 3600
"""Counting was interrupted if more than this lies between two times at which it worked."""
MOST_DAYS = 400
"""The most days that are recorded for one interruption, the newest ones."""

BEHIND_S = 300
"""A clock further behind the store's last time than this, in seconds, cannot be right."""
MOST_AHEAD = datetime.timedelta(days=31)
"""A clock further ahead than this of the last time known to be right waits until an operator accepts it."""
EARLIEST = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
"""This software is newer, so a clock before this time cannot be right. Boards use the same year."""
LATEST = datetime.datetime(2056, 1, 1, tzinfo=datetime.UTC)
"""A clock after this time cannot be right. Serials are unix times, and boards accept no lower one later."""

BEHIND = "the clock is behind: nothing is counted or erased until it is right"
ACCEPT = "hushmote store clock --accept"
AHEAD = "the clock jumped ahead: nothing is counted or erased until it is right or an operator accepts it"

_DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()

# Another aggregator that has locked the row is recording the time already: do not wait for it. SQLite, with
# one writer at a time, has no such clause.
_ALIVE = select(schema.counting.c.alive).with_for_update(skip_locked=True)


class ClockWrong(StoreError):
    """Raised when this machine's clock cannot be right, or waits for an operator; the text says what to do.

    Attributes:
        reason: BEHIND or AHEAD, which name no time.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def check_clock(now: datetime.datetime, last: int | None, expected: float | None = None) -> None:
    """Check that a clock can be right and is not so far ahead that an operator must accept it.

    Every choice of a window, erasure by time and serial depends on this.

    Args:
        now: The clock's time, UTC.
        last: The store's last time, as last_time() returns it, unix seconds; None if it has none.
        expected: The time by the monotonic clock, unix seconds; None if this process never had a right time.

    Raises:
        ClockWrong: If the clock is wrong, or waits for an operator.
    """
    at = now.timestamp()
    if now < EARLIEST:
        raise ClockWrong(BEHIND, f"{_clock_reading(now)}, which is older than this software: set it")
    if now >= LATEST:
        raise ClockWrong(
            AHEAD, f"{_clock_reading(now)}, and no clock from {LATEST.year} on is accepted: set it"
        )
    advice = f"set it, or if it is right run `{ACCEPT}`"
    if last is not None and at < last - BEHIND_S:
        raise ClockWrong(
            BEHIND, f"{_clock_reading(now)}, which is behind the store's last time, {_utc(last)}: {advice}"
        )
    right = max((time for time in (last, expected) if time is not None), default=at)
    if at - right > MOST_AHEAD.total_seconds():
        days = int((at - right) // _DAY_S)
        raise ClockWrong(
            AHEAD, f"{_clock_reading(now)}, {days:,} days after the last right time, {_utc(right)}: {advice}"
        )


def clock_fault(now: datetime.datetime, last: int | None) -> ClockWrong | None:
    """Return the error that check_clock() raises, or None if it raises nothing."""
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
    """Return the time that no right clock is behind, unix seconds in whole minutes, or None for a new store.

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
    """Record that a clock was right at this time, unless a later time is recorded already."""
    minute, clock = counting_minute(now), schema.counting.c.clock
    later = or_(clock.is_(None), clock < minute)
    connection.execute(update(schema.counting).where(later).values(clock=minute))


def accept_clock(connection: Connection, now: datetime.datetime) -> None:
    """Check clocks against this time from now on, even if it is before the store's time.

    In that case the day is recorded as interrupted, because a backlog arrives on it.
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
    """Return the UTC days from one unix time to a later one, both included, at most the newest MOST_DAYS."""
    last = after // _DAY_S
    first = max(before // _DAY_S, last - MOST_DAYS + 1)
    return [datetime.date.fromordinal(_EPOCH + day).isoformat() for day in range(first, last + 1)]


def record_counting(connection: Connection, now: datetime.datetime) -> None:
    """Record that counting works, and as interruptions the days since it last did if that was over GAP_S ago.

    The time is never lowered.

    Raises:
        SQLAlchemyError: If the database fails.
        TypeError: If the time in the store is not a number.
    """
    minute = counting_minute(now)
    for (before,) in connection.execute(_ALIVE).all():
        if before is None or before < minute:
            connection.execute(update(schema.counting).values(alive=minute))
        if before is not None and minute - before > GAP_S:
            add_interruptions(connection, days_between(before, minute))


def add_interruptions(connection: Connection, days: list[str]) -> None:
    """Record days as interrupted; days that are recorded already stay."""
    if days:
        connection.execute(insert_interruptions(connection), [{"day": day} for day in days])
