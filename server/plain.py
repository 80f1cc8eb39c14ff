"""Convert values to JSON types."""

import datetime
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value to dicts, lists, strings and numbers.

    A dataclass becomes a dict of its fields in order, and a date becomes an ISO 8601 string. An object with a
    to_dict() method is converted by that method.
    """
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime.date) else value
