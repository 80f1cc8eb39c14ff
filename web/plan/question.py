"""What somebody set in the Plan view, and the wish that it is; pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from ...planning.devices import PlanError
from ...planning.expected_error import Kind
from ...planning.wish import YES_NO, Wish
from ...server.epsilon import MICRO, check_epsilon

Fourth = Literal["devices", "epsilon", "domain", "error"]
Form = Literal["number", "labels", "yes_no"]
FIELDS: dict[Fourth, str] = {"devices": "devices", "epsilon": "epsilon", "domain": "bins", "error": "error"}
"""Where `Setting` holds each of the four."""


@dataclass(frozen=True)
class Setting:
    """All that the view's fields say about a plan, as typed; a number's None: nothing, or not a number.

    answer: which of the four is worked out from the others. epsilon, lifetime: nats. error, quantile: %.
    form: what a reading is. bins, low, high, unit: of a number. labels: "a, b, c". lasting: whether devices
    are asked again and again, for `horizon`, and look at their reading each `call`.
    """

    answer: Fourth = "error"
    devices: float | None = 20_000
    epsilon: float | None = 2.0
    error: float | None = 2.0
    form: Form = "number"
    bins: float | None = 64
    low: float | None = 0.0
    high: float | None = 32.0
    unit: str = "°C"
    labels: str = "heating, cooling, idle"
    kind: Kind = "range"
    quantile: float | None = 50.0
    lasting: bool = False
    lifetime: float | None = 4.0
    horizon: str = "2 years"
    call: str = "1 hour"

    @property
    def given(self) -> Setting:
        """The same without the number that is to be worked out, which says nothing."""
        return replace(self, **{FIELDS[self.answer]: None})


_NEEDS: dict[str, tuple[str, Callable[[float], bool]]] = {
    "devices": ("write a whole number of devices", lambda x: x == int(x) and abs(x) <= 1e15),
    "domain": ("write a whole number of values", lambda x: x == int(x) and abs(x) <= 1e15),
    "epsilon": ("write a number: 1 is usual", lambda x: True),
    "error": ("write a number of points above 0 and below 50", lambda x: 0 < x < 50),
    "quantile": ("write a number between 0 and 100: 50 is the median", lambda x: 0 < x < 100),
    "lifetime": ("write a number from 0.001 to 1000", lambda x: 0.001 <= x <= 1000),
}
"""What a field must hold, and how that is said."""


def wished(setting: Setting) -> Wish:
    """The wish that a setting is; of a life also with the ε of a report, then the most that one may cost.

    Raises PlanError with the first field that cannot be.
    """

    def held(name: str) -> float:
        text, holds = _NEEDS[name]
        value = getattr(setting, FIELDS.get(name, name))  # type: ignore[call-overload]
        if value is None or not math.isfinite(value) or not holds(value):
            raise PlanError(text, name)
        return value

    def given(name: Fourth) -> float | None:
        return None if setting.answer == name else held(name)

    number, lasting = setting.form == "number", setting.lasting
    if not number and setting.answer == "domain":
        raise PlanError("only of a number can it be found how many values to tell apart", "domain")
    low, high = (setting.low, setting.high) if number else (None, None)
    if low is None or high is None:
        low = high = None
    elif low >= high:
        raise PlanError(f"write a number above the lowest reading, {low:g}", "high")
    quantile = held("quantile") / 100 if number and setting.kind == "quantile" else None
    lifetime = held("lifetime") if lasting else None
    devices, epsilon, error = given("devices"), given("epsilon"), given("error")
    if epsilon is not None:
        near = max(-1e9, min(epsilon, 1e9))  # of larger ones a product may be infinite
        check_epsilon(round(near * MICRO), partial(PlanError, field="epsilon"), "ε", f"{epsilon:g}")
        epsilon = round(epsilon * MICRO) / MICRO
    values: int | str | tuple[str, ...] | None = YES_NO
    if number:
        bins = given("domain")
        values = None if bins is None else int(bins)
    elif setting.form == "labels":
        values = tuple(setting.labels.split(","))
    return Wish(
        devices=None if devices is None else int(devices),
        epsilon=epsilon,
        error=None if error is None else error / 100,
        values=values,
        low=low,
        high=high,
        unit=setting.unit if number else "",
        statistics=setting.kind if number else None,
        quantile=quantile,
        lifetime=lifetime,
        horizon=setting.horizon if lasting else None,
        call=setting.call if lasting else None,
    )
