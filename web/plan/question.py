"""What somebody set in the Plan view, and the wish that it is; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...server.epsilon import MICRO, check_epsilon
from ...server.planning.devices import PlanError
from ...server.planning.expected_error import Kind
from ...server.planning.wish import YES_NO, Wish

Fourth = Literal["devices", "epsilon", "domain", "error"]
Form = Literal["number", "labels", "yes_no"]
FIELDS: dict[Fourth, str] = {
    "devices": "devices",
    "epsilon": "epsilon",
    "domain": "bins",
    "error": "error",
}
"""Where `Setting` holds each of the four."""


@dataclass(frozen=True)
class Setting:
    """All that the view's fields say about a plan, as typed; a number's None: nothing, or not a number.

    answer: which of the four is worked out from the others. epsilon, lifetime: nats. error, quantile: %.
    form: what a reading is. bins, low, high, unit: of a number. labels: "a, b, c". lasting: whether boards
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


def wished(setting: Setting) -> Wish:
    """The wish that a setting is; of a life also with the ε of a report, then the most that one may cost.

    Raises PlanError with the first field that cannot be.
    """
    number, answer = setting.form == "number", setting.answer
    if not number and answer == "domain":
        raise PlanError("only of a number can it be found how many values to tell apart", "domain")
    ends = number and setting.low is not None and setting.high is not None
    if ends and setting.low >= setting.high:  # type: ignore[operator]
        raise PlanError(f"write a number above the lowest reading, {setting.low:g}", "high")
    kind = setting.kind if number else "frequency"
    level, total, lasting = setting.quantile, setting.lifetime, setting.lasting
    if kind == "quantile" and (level is None or not 0 < level < 100):
        raise PlanError("write a number between 0 and 100: 50 is the median", "quantile")
    if lasting and (total is None or not 0.001 <= total <= 1000):
        raise PlanError("write a number from 0.001 to 1000", "lifetime")
    return Wish(
        devices=None if answer == "devices" else _whole("devices", setting.devices, "boards"),
        epsilon=None if answer == "epsilon" else _nats(setting.epsilon),
        error=None if answer == "error" else _error(setting.error),
        values=_values(setting),
        low=setting.low if ends else None,
        high=setting.high if ends else None,
        unit=setting.unit if number else "",
        statistics=kind if number else None,
        quantile=level / 100 if kind == "quantile" and level is not None else None,
        lifetime=total if lasting else None,
        horizon=setting.horizon if lasting else None,
        call=setting.call if lasting else None,
    )


def _values(setting: Setting) -> int | str | tuple[str, ...] | None:
    if setting.form == "labels":
        return tuple(setting.labels.split(","))
    if setting.form == "yes_no":
        return YES_NO
    return None if setting.answer == "domain" else _whole("domain", setting.bins, "values")


def _error(percent: float | None) -> float:
    if percent is None or not 0 < percent < 50:
        raise PlanError("write a number above 0 and below 50 %", "error")
    return percent / 100


def _whole(field: str, value: float | None, what: str) -> int:
    if value is None or not math.isfinite(value) or value != int(value) or abs(value) > 1e15:
        raise PlanError(f"write a whole number of {what}", field)
    return int(value)


def _nats(value: float | None) -> float:
    if value is None or not math.isfinite(value):
        raise PlanError("write a number: 1 is usual", "epsilon")
    try:
        check_epsilon(round(value * MICRO), PlanError, "ε", f"{value:g}")
    except PlanError as e:
        raise PlanError(str(e), "epsilon") from None
    return round(value * MICRO) / MICRO
