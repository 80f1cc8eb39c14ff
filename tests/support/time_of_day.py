"""Set the clock ahead, and keep tests from running across midnight."""

import datetime

import pytest
from running_aggregator import until


def advance_clock(monkeypatch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """Set this process's time of day ahead by `by`."""
    now = datetime.datetime.now
    clock = type("Later", (datetime.datetime,), {"now": staticmethod(lambda tz=None: now(tz) + by)})
    monkeypatch.setattr(datetime, "datetime", clock)


def away_from_midnight() -> None:
    """Wait until the UTC day has at least a minute left, enough for a test that relies on "today"."""
    until(lambda: f"{datetime.datetime.now(datetime.UTC):%H:%M}" != "23:59", "the day does not end")
