"""Which windows have ended: no report is counted into them any more."""

import datetime

SETTLED = datetime.timedelta(minutes=2)
"""After its end: batches begun in it are committed, and the clocks of several aggregators have got there."""


def end_of(window: str) -> datetime.datetime | None:
    """When a window ends, UTC; None for "all", which has no end, and for a text that names no window."""
    form, length = ("%Y-%m-%dT%H", {"hours": 1}) if "T" in window else ("%Y-%m-%d", {"days": 1})
    try:
        start = datetime.datetime.strptime(window, form).replace(tzinfo=datetime.UTC)
        return start + datetime.timedelta(**length)
    except (ValueError, OverflowError):
        return None


def has_ended(window: str, at: datetime.datetime) -> bool:
    """Whether a window had ended at a time, UTC, and was settled."""
    end = end_of(window)
    return end is not None and end + SETTLED <= at
