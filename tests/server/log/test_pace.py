"""The log keeps the rule by which witnesses sign: one change of a question a day."""

import json

import pytest

from hushmote.server.log.change import DAY_S, Change
from hushmote.server.log.entry import Entry
from hushmote.server.log.pace import Dated, breach, changes_of_names, due_at

KEY = "hushmote/v1/home/experiment/temp"
MINUTE_S = 60


def entry(**fields):
    return Entry(KEY, json.dumps(fields).encode())


def dated(*changes):
    return [Dated(number, change, at) for number, (change, at) in enumerate(changes)]


class TestChanges:
    def test_withdrawals_and_repetitions_are_no_changes(self):
        withdrawal, policy = Entry(KEY, b"\0" + bytes(68)), Entry("hushmote/policy/home", b"{}")
        entries = [entry(a=1), withdrawal, entry(a=1), policy, entry(a=2), withdrawal, entry(a=1)]
        changes = changes_of_names(entries, range(len(entries)))
        assert changes == {KEY: [Dated(at, Change.QUESTION, at) for at in (0, 4, 6)]}

    def test_groups_that_are_only_appended(self):
        entries = [entry(a=1, groups=["1"]), entry(a=1, groups=["1", "2"]), entry(a=1, groups=["2", "1"])]
        changes = [each.change for each in changes_of_names(entries, (0, 0, 0))[KEY]]
        assert changes == [Change.QUESTION, Change.GROUPS, Change.QUESTION]


class TestDue:
    @pytest.mark.parametrize(
        ("change", "before", "due"),
        [
            (Change.NONE, [(Change.QUESTION, 1000)], 0),
            (Change.QUESTION, [], 0),
            (Change.QUESTION, [(Change.QUESTION, 1000)], 1000 + DAY_S + MINUTE_S),
            (Change.QUESTION, [(Change.QUESTION, 1000), (Change.GROUPS, 5000)], 1000 + DAY_S + MINUTE_S),
            (Change.GROUPS, [(Change.QUESTION, 1000)], 0),
            (Change.GROUPS, [(Change.GROUPS, 1000)], 0),
            (Change.GROUPS, [(Change.GROUPS, 1000), (Change.GROUPS, 2000)], 1000 + DAY_S + MINUTE_S),
        ],
    )
    def test_is_a_day_after_the_last(self, change, before, due):
        assert due_at(change, dated(*before)) == due


class TestBreach:
    def test_needs_more_changes_than_days(self):
        now = 100 * DAY_S
        assert breach([], now) is None
        assert breach([now], now) is None
        assert breach([now - DAY_S, now], now) is None
        assert breach([now - DAY_S + 1, now], now) == (2, DAY_S - 1)
        assert breach([now - 50 * DAY_S, now - 10, now - 5], now) == (2, 10)
        assert breach([0, 0, 0], now) is None  # an open fleet's entries have no time
        assert breach([now + 500, now + 600], now) == (2, 0)
