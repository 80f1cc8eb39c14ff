"""The values in the Plan view's fields, and the corresponding request; pure functions."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from ...planning.devices import PlanError
from ...planning.request import LOG, YES_NO, PlanRequest
from ...server.epsilon import MICRO, check_epsilon
from ...server.words.numbers import MAX_HALF_WIDTH

Fourth = Literal["devices", "epsilon", "domain", "error"]
Entries = Mapping[str, Any]
"""Values by field name, as typed; numbers are as number() of quantity.py returns them, some of them in %."""

START: dict[str, Any] = {
    "answer": "error",  # the number that is computed from the others
    "devices": 20_000.0,
    "epsilon": 2.0,
    "domain": 64.0,
    "error": 2.0,
    "form": "number",
    "scale": "linear",
    "low": 0.0,
    "high": 32.0,
    "unit": "°C",
    "labels": "heating, cooling, idle",
    "kind": "range",
    "quantile": 50.0,
    "lasting": False,
    "lifetime": 4.0,
    "horizon": "2 years",
    "call": "1 hour",
}

_MAX_POINTS = 100 * MAX_HALF_WIDTH
_CHECKS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "devices": (
        "write a whole number of devices, such as 20,000 or 20k",
        lambda x: x == int(x) and abs(x) <= 1e15,
    ),
    "domain": ("write a whole number of values, such as 64", lambda x: x == int(x) and abs(x) <= 1e15),
    "epsilon": ("write a number, such as 1", lambda x: True),
    "error": (
        f"write a number of points above 0 and up to {_MAX_POINTS:g}, such as ±2",
        lambda x: 0 < x <= _MAX_POINTS,
    ),
    "quantile": ("write a number between 0 and 100, such as 50 for the median", lambda x: 0 < x < 100),
    "lifetime": ("write a number from 0.001 to 1000", lambda x: 0.001 <= x <= 1000),
}
"""Each field's error message and the condition for a valid number."""


def plan_request(entries: Entries) -> PlanRequest:
    """Return the request in the fields, without the number to compute.

    If devices report repeatedly, the field for the ε of a report is an upper limit.

    Raises:
        PlanError: If a field is invalid; it names the first one.
    """

    def number(name: str) -> float:
        message, is_valid = _CHECKS[name]
        value = entries[name]
        if value is None or not math.isfinite(value) or not is_valid(value):
            raise PlanError(message, name)
        return value

    def unless_computed(name: Fourth) -> float | None:
        return None if entries["answer"] == name else number(name)

    form, lasting = entries["form"], entries["lasting"]
    if form != "number" and entries["answer"] == "domain":
        raise PlanError("the number of values can be computed only for a number", "domain")
    reading: dict[str, Any] = {"values": YES_NO if form == "yes_no" else tuple(entries["labels"].split(","))}
    if form == "number":
        reading = _range(entries) | {"unit": entries["unit"], "statistics": entries["kind"]}
        reading["scale"] = LOG if entries["scale"] == LOG else None
        if entries["kind"] == "quantile":
            reading["quantile"] = number("quantile") / 100
    lifetime: dict[str, Any] = {}
    if lasting:
        lifetime = {"lifetime": number("lifetime"), "horizon": entries["horizon"], "call": entries["call"]}
    devices, epsilon, error = unless_computed("devices"), unless_computed("epsilon"), unless_computed("error")
    if form == "number":
        bins = unless_computed("domain")
        reading["values"] = None if bins is None else int(bins)
    return PlanRequest(
        devices=None if devices is None else int(devices),
        error=None if error is None else error / 100,
        **{"limit" if lasting else "epsilon": None if epsilon is None else _micro(epsilon)},
        **reading,
        **lifetime,
    )


def _range(entries: Entries) -> dict[str, float]:
    """Return the lowest and highest reading, or {} unless both are given."""
    low, high = entries["low"], entries["high"]
    for name, value in (("low", low), ("high", high)):
        if value is not None and not math.isfinite(value):
            raise PlanError("write a number, such as -10 or 0.5", name)
    if low is None or high is None:
        return {}
    if low >= high:
        raise PlanError(f"write a number above the lowest reading, {low:g}", "high")
    return {"low": low, "high": high}


def _micro(epsilon: float) -> float:
    """Return ε rounded to micro-nats, in nats."""
    clipped = max(-1e9, min(epsilon, 1e9))  # the product with a larger number may be infinite
    check_epsilon(round(clipped * MICRO), partial(PlanError, field="epsilon"), "ε", f"{epsilon:g}")
    return round(epsilon * MICRO) / MICRO
