"""A clock that goes ahead, as it does where nothing is committed for a while."""

import datetime

import pytest


def later(monkeypatch: pytest.MonkeyPatch, by: datetime.timedelta) -> None:
    """Let it be as much later for everything in this process that asks for the time of day."""
    now = datetime.datetime.now
    clock = type("Later", (datetime.datetime,), {"now": staticmethod(lambda tz=None: now(tz) + by)})
    monkeypatch.setattr(datetime, "datetime", clock)
