"""Set the clock ahead, make a store's clock look wrong, and keep tests from running across midnight."""

import datetime

import pytest
from running_aggregator import until

from hushmote.server.store import Store, schema
from hushmote.server.store.counting import counting_minute


def advance_clock(monkeypatch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """Set this process's time of day ahead by `by`."""
    now = datetime.datetime.now
    clock = type("Later", (datetime.datetime,), {"now": staticmethod(lambda tz=None: now(tz) + by)})
    monkeypatch.setattr(datetime, "datetime", clock)


# The times since a store was last written with which this machine's clock is wrong, and part of the words.
WRONG_CLOCKS = (
    (datetime.timedelta(40), "40 days after the last right time"),
    (datetime.timedelta(-1), "is behind the store's last time"),
)


def set_times(
    store: Store, alive: datetime.datetime | None = None, clock: datetime.datetime | None = None
) -> None:
    """Make a store look as if it was last written at these times."""
    times = {"alive": alive and counting_minute(alive), "clock": clock and counting_minute(clock)}
    with store.writing() as connection:
        connection.execute(schema.counting.update().values(**times))


def away_from_midnight() -> None:
    """Wait until the UTC day has at least a minute left, enough for a test that relies on "today"."""
    until(lambda: f"{datetime.datetime.now(datetime.UTC):%H:%M}" != "23:59", "the day does not end")
