"""Values as JSON types."""

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from hushmote.server.plain import plain

DAY = datetime.date(2026, 11, 21)


@dataclass
class Interval:
    """A dataclass without a conversion of its own."""

    low: float
    end: datetime.date


@dataclass
class Share(Interval):
    """A dataclass with a conversion of its own."""

    def to_dict(self) -> dict[str, Any]:
        return {"share": self.low}


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ("a", "a"),
        (DAY, "2026-11-21"),
        ((1, DAY), [1, "2026-11-21"]),
        ({"day": DAY}, {"day": "2026-11-21"}),
        (Interval(0.5, DAY), {"low": 0.5, "end": "2026-11-21"}),
        ([Share(0.5, DAY)], [{"share": 0.5}]),
    ],
    ids=["text", "date", "tuple", "mapping", "dataclass", "own conversion"],
)
def test_keeps_only_types_of_json(value: object, result: object):
    assert plain(value) == result
