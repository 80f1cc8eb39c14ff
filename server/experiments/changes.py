"""The differences between two versions of an experiment, in the vocabulary of its file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from ..epsilon import MICRO, SCALES
from ..store.versions import Version
from .judged import JudgedError, worse_from_text
from .reading import MILLI

_SCALED = {"low": MILLI, "high": MILLI, "epsilon": MICRO}
_USUAL = {"every": 1, "window": "all"}  # what boards assume if the JSON omits them

_TEXTS = ("unit", "purpose", "owner", "keep", "day", "week")


@dataclass(frozen=True)
class Difference:
    """A field that differs between two versions.

    Attributes:
        field: The field's name, as in the experiment's file.
        before: Its value in the earlier version: text, a number, a list or a table; None for none.
        after: Its value in the later version.
    """

    field: str
    before: Any
    after: Any


def differences(before: Version, after: Version) -> tuple[Difference, ...]:
    """Return the fields that differ: first those that boards receive, then those that the store keeps."""
    sides = [_board_fields(v) | _store_fields(v) for v in (before, after)]
    if before.current and before.expires == after.expires:  # otherwise, it follows from another change
        for side, version in zip(sides, (before, after), strict=True):
            until = version.counted_until
            side["late reports until"] = until.isoformat() if until is not None else None
    names = dict.fromkeys([*sides[0], *sides[1]])
    pairs = ((name, *(side.get(name, _USUAL.get(name)) for side in sides)) for name in names)
    return tuple(Difference(name, old, new) for name, old, new in pairs if old != new)


def _board_fields(version: Version) -> dict[str, Any]:
    """Return the JSON's fields, with quantities in nats and in the reading's unit."""
    fields = _in_units(json.loads(version.payload))
    budget = cast(dict[str, Any], fields.pop("budget", None) or {})
    fields |= {f"budget.{name}": value for name, value in budget.items()}
    if "budget.cap" in fields:
        fields["budget.cap"] = _quantity(fields["budget.cap"], SCALES[version.experiment.rule])
    return {name: value for name, value in fields.items() if name not in ("v", "name")}


def _in_units(fields: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = dict(fields)
    for name in result.keys() & _SCALED.keys():
        result[name] = _quantity(result[name], _SCALED[name])
    if "of" in result:
        result["of"] = [_in_units(part) for part in result["of"]]
    return result


def _quantity(number: int, scale: int) -> int | float:
    value = Decimal(number) / scale
    return int(value) if value == value.to_integral_value() else float(value)


def _store_fields(version: Version) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(version, name) for name in _TEXTS}
    fields["asks"] = version.asked.splitlines()
    try:
        worse = worse_from_text(version.worse)
    except JudgedError:  # a damaged text, which this addition may repair
        fields["worse"] = version.worse
    else:
        fields |= {"worse": worse.direction, "worse_by": worse.margin}
    fields["expires"] = version.expires and version.expires.isoformat()
    return {name: value or None for name, value in fields.items()}
