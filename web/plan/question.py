"""What somebody set in the Plan view, and what it asks of the planner; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from ...server.epsilon import MICRO, check_epsilon
from ...server.errors import HushmoteError
from ...server.planning.devices import PlanError, check_sizes
from ...server.planning.expected_error import Kind, Question
from ...server.planning.experiment_file import Reading, labels_in
from ...server.planning.lifetime import LifetimeBudget, Rhythm, parse_duration

Fourth = Literal["devices", "epsilon", "domain", "error"]
Form = Literal["number", "labels", "yes_no"]
FIELDS: dict[Fourth, str] = {
    "devices": "devices",
    "epsilon": "epsilon",
    "domain": "bins",
    "error": "error",
}
"""Where `Setting` holds each of the four."""


class FieldRefused(HushmoteError):
    """What stands in a field cannot be planned; field: its name in `Setting`. The text says what would be."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


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


@dataclass(frozen=True)
class PlanQuestion:
    """A setting as the planner takes it: micro-nats, error a share of devices; None: the answer."""

    question: Question
    reading: Reading
    devices: int | None
    epsilon: int | None
    error: float | None
    life: tuple[LifetimeBudget, Rhythm] | None


def asked(setting: Setting) -> PlanQuestion:
    """Return what a setting asks. Raises FieldRefused for the first field that cannot be."""
    reading = reading_of(setting)
    question = _question(setting)
    devices = None if setting.answer == "devices" else _whole("devices", setting.devices, "boards")
    epsilon = None if setting.answer == "epsilon" else _micro("epsilon", setting.epsilon)
    error = None if setting.answer == "error" else _error(setting)
    try:
        check_sizes(question, devices, None)
    except PlanError as e:
        raise FieldRefused("devices", str(e)) from None
    try:
        check_sizes(question, None, reading.domain)
    except PlanError as e:
        raise FieldRefused("domain", str(e)) from None
    return PlanQuestion(question, reading, devices, epsilon, error, _life(setting))


def reading_of(setting: Setting) -> Reading:
    """What a board reads; a number's bins are left out where they are the answer."""
    if setting.form != "number" and setting.answer == "domain":
        raise FieldRefused("domain", "only of a number can it be found how many values to tell apart")
    if setting.form == "yes_no":
        return Reading(yes_no=True)
    if setting.form == "labels":
        try:
            return Reading(labels=labels_in(setting.labels))
        except PlanError as e:
            raise FieldRefused("labels", str(e)) from None
    if setting.low is not None and setting.high is not None and setting.low >= setting.high:
        raise FieldRefused("high", f"write a number above the lowest reading, {setting.low:g}")
    bins = None if setting.answer == "domain" else _whole("domain", setting.bins, "values")
    return Reading(bins=bins, low=setting.low, high=setting.high, unit=setting.unit)


def _question(setting: Setting) -> Question:
    if setting.form != "number" or setting.kind == "frequency":
        return Question("frequency")
    if setting.kind in ("range", "mean"):
        return Question(setting.kind)
    level = setting.quantile
    if level is None or not 0 < level < 100:
        raise FieldRefused("quantile", "write a number between 0 and 100: 50 is the median")
    return Question("quantile", level / 100)


def _error(setting: Setting) -> float:
    percent = setting.error
    if percent is None or not 0 < percent < 50:
        raise FieldRefused("error", "write a number above 0 and below 50 %")
    return percent / 100


def _whole(field: str, value: float | None, what: str) -> int:
    if value is None or not math.isfinite(value) or value != int(value) or abs(value) > 1e15:
        raise FieldRefused(field, f"write a whole number of {what}")
    return int(value)


def _micro(field: str, value: float | None) -> int:
    if value is None or not math.isfinite(value):
        raise FieldRefused(field, "write a number: 1 is usual")
    try:
        check_epsilon(round(value * MICRO), PlanError, "ε", f"{value:g}")
    except PlanError as e:
        raise FieldRefused(field, str(e)) from None
    return round(value * MICRO)


def _life(setting: Setting) -> tuple[LifetimeBudget, Rhythm] | None:
    if not setting.lasting:
        return None
    total = setting.lifetime
    if total is None or not 0.001 <= total <= 1000:
        raise FieldRefused("lifetime", "write a number from 0.001 to 1000")
    lengths = {}
    for field in ("horizon", "call"):
        try:
            lengths[field] = parse_duration(getattr(setting, field))
        except PlanError as e:
            raise FieldRefused(field, str(e)) from None
    return LifetimeBudget(round(total * MICRO)), Rhythm(lengths["call"], lengths["horizon"])
