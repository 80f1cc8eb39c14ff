"""When counting was last known to work, and the days on which it was interrupted.

Days and time are the store's, of all its fleets and aggregators: nothing here is about a device or a report.
"""

import datetime

from sqlalchemy import Connection, select, update

from . import schema
from .database import insert_interruptions

STEP_S = 60
"""The time is kept in whole minutes, so several aggregators change its row at most once a minute."""
GAP_S = 3600
"""Counting was interrupted if more than this lies between two times at which it worked."""
MOST_DAYS = 400
"""Days of one interruption that are recorded at most, the newest ones."""

_DAY_S = 86_400
_EPOCH = datetime.date(1970, 1, 1).toordinal()

# Another aggregator that has locked the row is recording the time already: do not wait for it. SQLite, with
# one writer at a time, has no such clause.
_ALIVE = select(schema.counting.c.alive).with_for_update(skip_locked=True)


def counting_minute(now: datetime.datetime) -> int:
    """Return the start of a time's minute, unix seconds."""
    return int(now.timestamp()) // STEP_S * STEP_S


def days_between(before: int, after: int) -> list[str]:
    """Return the UTC days from one unix time to a later one, both included, at most the newest MOST_DAYS."""
    last = after // _DAY_S
    first = max(before // _DAY_S, last - MOST_DAYS + 1)
    return [datetime.date.fromordinal(_EPOCH + day).isoformat() for day in range(first, last + 1)]


def record_counting(connection: Connection, now: datetime.datetime) -> None:
    """Record that counting works, and the days since it last did if that was more than GAP_S ago.

    The time is never lowered. Raises SQLAlchemyError where the database fails, and TypeError where the time
    in the store is not a number.
    """
    minute = counting_minute(now)
    for (before,) in connection.execute(_ALIVE).all():
        if before is None or before < minute:
            connection.execute(update(schema.counting).values(alive=minute))
        if before is not None and minute - before > GAP_S:
            add_interruptions(connection, days_between(before, minute))


def add_interruptions(connection: Connection, days: list[str]) -> None:
    """Record days as interrupted; days that already are stay so."""
    if days:
        connection.execute(insert_interruptions(connection), [{"day": day} for day in days])
