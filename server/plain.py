"""Dataclasses as plain values, for JSON."""

import datetime
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it: a dataclass as a dict, a date as ISO 8601, a tuple as a list."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value.isoformat() if isinstance(value, datetime.date) else value
