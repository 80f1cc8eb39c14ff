"""The next window to be erased by age, and overdue windows."""

import datetime

from hushmote.server.answers.windows import NOTHING_DUE, due

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
DAYS = ("2026-11-17", "2026-11-18", "2026-11-19", "2026-11-21")


class TestDue:
    def test_names_the_next_and_the_overdue_windows(self):
        seen = due(DAYS, "2d", NOON)
        assert seen.overdue == ("2026-11-17", "2026-11-18")
        assert (seen.window, seen.time) == ("2026-11-19", NOON.replace(day=22, hour=0))

    def test_window_is_not_overdue_within_the_hour(self):
        assert due(["2026-11-21T09"], "1h", NOON).overdue == ()
        assert due(["2026-11-21T09"], "1h", NOON + datetime.timedelta(seconds=1)).overdue == (
            "2026-11-21T09",
        )

    def test_no_window_stays_overdue(self):
        assert due(DAYS, "", NOON) == NOTHING_DUE
        assert due(["all"], "2d", NOON).window == ""
