"""How long windows are kept: from one window to 100 years."""

import pytest

from hushmote.server.wire.limits import kept_hours


class TestKeptHours:
    @pytest.mark.parametrize(
        ("keep", "window", "hours"),
        [
            ("", "day", None),
            ("1h", "hour", 1),
            ("48h", "day", 48),
            ("1d", "day", 24),
            ("400d", "hour", 9600),
            ("36500d", "day", 876_000),
        ],
    )
    def test_is_the_duration(self, keep: str, window: str, hours: int | None):
        assert kept_hours(keep, window) == hours

    @pytest.mark.parametrize(
        ("keep", "window"), [("0h", "hour"), ("23h", "day"), ("36501d", "day"), ("2w", "day"), ("1d", "all")]
    )
    def test_rejects_other_durations(self, keep: str, window: str):
        with pytest.raises(ValueError, match=r"keep|from"):
            kept_hours(keep, window)
