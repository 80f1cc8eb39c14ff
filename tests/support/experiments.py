"""Build experiments' JSON as sent to boards, for all tests."""

import json
from typing import Any

ROOM = """
name = "room_temp"
purpose = "How warm is it?"
owner = "heating@example.org"
expires = 9999-12-31
type = "number"
unit = "°C"
low = 0
high = 32
bins = 32
epsilon = 2
every = 3
window = "day"
[budget]
rule = "sum"
cap = 8
"""
"""An analyst's file for a daily number, about which a board makes 4 reports in its lifetime."""


def experiment_json(**changes: Any) -> bytes:
    """Return a small valid experiment (rr of a bool, epsilon 1) with fields changed or, if None, left out.

    low, high, epsilon and cap are in thousandths and micro-nats, as on the wire.
    """
    fields: dict[str, Any] = {
        "v": 1,
        "name": "e",
        "type": "bool",
        "mechanism": "rr",
        "epsilon": 1_000_000,
        "budget": {"rule": "sum", "cap": 4_000_000},
        "window": "day",
    }
    fields |= changes
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


def number_json(bins: int, **changes: Any) -> bytes:
    """Return the JSON of a number from 0 to 1 with `bins` bins, grr and an unlimited budget."""
    number = {"name": "x", "type": "number", "low": 0, "high": 1000, "bins": bins, "mechanism": "grr"}
    return experiment_json(**number | {"budget": {"rule": "unlimited"}} | changes)


TEXTS: tuple[Any, ...] = (
    "1.2.3",
    "",
    "x" * 300,
    "ä" * 200,  # 400 bytes; the 255th is the first half of a letter
    "\ud800",  # half of a surrogate pair
    "a\0b",
    b"\xff\xfe not UTF-8",
    bytearray(b"1.2.3"),
    b"\x00" * 1000,
)
"""Values that an application may pass as a text reading."""
