"""The first problem of an aggregator, in one line."""

from dataclasses import replace

import pytest

from hushmote.server.ingest.status import Condition, health_problem

HEALTHY = Condition(
    connected=True,
    subscribed=True,
    uncommitted=0,
    oldest_s=0.0,
    since_commit_s=None,
    since_turn_s=0.1,
    failing=False,
    clock="",
    published=1,
    state="subscribed",
)


class TestHealthProblem:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"since_turn_s": 31.0, "failing": True}, "the aggregator has been stuck for 31 s"),
            ({"failing": True}, "the store failed at the last attempt: reports wait at the broker"),
            ({"clock": "the clock is wrong", "connected": False}, "the clock is wrong"),
            ({"connected": False, "subscribed": False}, "not connected to the broker"),
            ({"subscribed": False}, "not subscribed to reports"),
            ({"since_turn_s": 30.0}, None),
            ({}, None),
        ],
    )
    def test_is_the_first(self, fields: dict, text: str | None):
        assert health_problem(replace(HEALTHY, **fields), 30.0) == text
