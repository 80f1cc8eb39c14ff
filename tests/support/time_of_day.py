"""The time of day: a clock that goes ahead, and tests that would not see a day end."""

import datetime

import pytest
from running_aggregator import until


def later(monkeypatch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """Let it be as much later for everything in this process that asks for the time of day."""
    now = datetime.datetime.now
    clock = type("Later", (datetime.datetime,), {"now": staticmethod(lambda tz=None: now(tz) + by)})
    monkeypatch.setattr(datetime, "datetime", clock)


def away_from_midnight() -> None:
    """Return where the day, UTC, has a minute left: what looks for "today" is over by then."""
    until(lambda: f"{datetime.datetime.now(datetime.UTC):%H:%M}" != "23:59", "the day does not end")
