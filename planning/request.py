"""A request for a plan: the readings of boards, the question and the privacy budget.

The command's options and the keyword arguments in Python are its fields. Messages name fields
as command options, such as --histogram-epsilon; `in_python` turns that into histogram_epsilon.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np

from ..server.accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..server.epsilon import MICRO
from ..server.experiments.reading import MAX_LOG_BINS, MILLI
from ..server.experiments.units import edges_between
from ..server.typed_numbers import plain_number, plain_whole_number, typed_float, typed_share
from ..server.words.numbers import MAX_HALF_WIDTH
from .devices import MIN_ERROR, PlanError, check_error, check_sizes
from .expected_error import ANSWERS, Kind, Question
from .lifetime import DEFAULT_LIMIT, LifetimeBudget, Rhythm, parse_duration
from .second_epsilon import epsilon_for_histogram

OTHER_NAMES = {"ranges": "--range"}
"""Options whose names differ from those of their fields."""

LOG: Literal["log"] = "log"
"""The scale of a number's logarithmic bins."""

YES_NO = "yes-no"
"""The values of a reading that is yes or no."""

_KINDS: dict[str, Kind] = {name: kind for kind, word in ANSWERS.items() for name in (kind, word)}
_ONLY_OF: dict[str, Kind] = {"deviation": "mean", "ranges": "range", "quantile": "quantile"}
_NO_SHARE = {
    "quantile": "a quantile defines its own share; give --quantile 0.9, not --share",
    "mean": "a mean has no share; give --deviation, or nothing for the worst case",
}
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_AMOUNT = re.compile(
    r"\s*(?:±|\+/-)?\s*([-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*?)\s*",
    re.IGNORECASE,
)
_NUMBERS = ("epsilon", "deviation", "low", "high", "histogram_epsilon", "lifetime", "delta", "limit")
# For each field that may be text, the function that reads it, and what it must be.
_READERS: dict[str, tuple[Callable[[str], float], str]] = {
    "devices": (lambda text: int(plain_whole_number(text)), "whole number, such as 20,000 or 20k"),
    **dict.fromkeys(_NUMBERS, (typed_float, "number, such as 1.5")),
    **dict.fromkeys(("share", "quantile", "missing"), (typed_share, "share, such as 0.05 or 5%")),
}


def _option(help: str, *names: str, default: Any = None) -> Any:
    """Return a field whose metadata has its help line and, if they differ, its option's names."""
    return field(default=default, metadata={"help": help, "names": names})


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A request for a plan: the readings, the question and the budget; fields are None if not given.

    The metadata of each field has its help line, and the option's names if they differ from the field's.
    Numbers may be texts as people type them, such as 100,000, 20k and 5%.
    """

    devices: int | None = _option("Number of devices.")
    epsilon: float | None = _option("ε of one report, in nats: 0.001 to 16.")
    values: int | str | Sequence[str] | None = _option(
        "Possible values of a reading: a number's bins, such as 64; labels a,b,c ('other' is added); "
        "or yes-no."
    )
    error: float | str | None = _option(
        "Target half-width of the 95% interval: 0.01 is ±1 point of a share, or 1% of a mean's range;"
        " for a mean or a quantile with --low and --high, also in its unit, such as 0.5°C."
    )
    statistics: str | None = _option(
        "Statistic that the error is for: frequencies (the share of one value), ranges, quantiles or mean.",
        "--statistics",
        "--for",
    )
    share: float | None = _option("Share of devices with the value or range; default: the worst case.")
    ranges: Sequence[str] | None = _option(
        "low:high in the unit, or in bins without --low; either end may be empty. Or n for any n "
        "neighbouring bins."
    )
    quantile: float | None = _option("Quantile to estimate; default: the median.")
    deviation: float | None = _option(
        "For a mean: standard deviation of the readings, in the unit, or as a fraction of the range "
        "without --low; default: the worst case."
    )
    missing: float | None = _option(
        "Share of devices without a reading, such as 0.12; the experiment's file then has missing = true,"
        " and the error applies to the others."
    )
    low: float | None = _option("Lowest reading of a number.")
    high: float | None = _option("Highest reading of a number.")
    scale: str | None = _option(
        "log makes a number's bins wider the higher they are, and requires a --low above 0; default: equal"
        " bins."
    )
    unit: str = _option("The reading's unit, for display.", default="")
    histogram_epsilon: float | None = _option(
        "Instead of --epsilon: the maximum ε of the histogram of all reports, against people who see only"
        " histograms; not against the broker, the aggregator's operator or the database's journal."
    )
    lifetime: float | None = _option(
        "Plan a lifetime: the total ε of all of a device's reports. With --error instead of --devices, the"
        " number of devices is computed."
    )
    delta: float | None = _option(
        "With --lifetime: its δ, default: 0; with --histogram-epsilon: the histogram's δ, default: 1e-6."
    )
    horizon: str | None = _option("With --lifetime: its length, such as 2y.")
    call: str | None = _option("With --lifetime: time between calls to report(), such as 10min.")
    limit: float | None = _option(
        "With --lifetime: the largest ε per report that the devices' policy allows, by default"
        f" {DEFAULT_LIMIT / MICRO:g}."
    )

    def __post_init__(self) -> None:
        for name, (read, kind) in _READERS.items():
            text: Any = getattr(self, name)
            if not isinstance(text, str):
                continue
            try:
                object.__setattr__(self, name, read(text))
            except ValueError:
                option = f"--{name.replace('_', '-')}"
                raise PlanError(f"{option} must be a {kind}, not {text!r}", name) from None

    def words(self) -> list[str]:
        """Return the options of `hushmote plan` that make the same request."""
        result: list[str] = []
        for field_of_request in fields(PlanRequest):
            value: Any = getattr(self, field_of_request.name)
            name = OTHER_NAMES.get(field_of_request.name, f"--{field_of_request.name.replace('_', '-')}")
            if value is None or value == "":
                continue
            if field_of_request.name == "values" and not isinstance(value, str | int):
                value = ",".join(value)
            for part in value if isinstance(value, tuple | list) else [value]:
                result += [name, part if isinstance(part, str) else repr(part).removesuffix(".0")]
        return result


def in_python(text: str) -> str:
    """Return a text with fields named as in Python and on the page, such as histogram_epsilon."""
    return re.sub(r"--([a-z][a-z-]*)", lambda match: match[1].replace("-", "_"), text)


@dataclass(frozen=True)
class Reading:
    """The type of a reading: yes or no, one of labels, or a number from low to high in bins."""

    yes_no: bool = False
    labels: tuple[str, ...] = ()
    bins: int | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    scale: Literal["log"] | None = None

    @property
    def domain(self) -> int | None:
        """The number of values, or None if it is not set."""
        if self.yes_no:
            return 2
        return len(self.labels) + 1 if self.labels else self.bins

    @property
    def span(self) -> float | None:
        """The difference between the largest and the smallest reading, in the unit, or None if unknown."""
        return None if self.low is None or self.high is None else self.high - self.low


def reading_of(request: PlanRequest) -> Reading:
    """Return the readings of boards.

    Raises:
        PlanError: If the request is contradictory.
    """
    low, high = request.low, request.high
    reading = _values(request.values)
    if (low is None) != (high is None):
        raise PlanError("--low and --high must be given together", "low")
    if request.unit and (reading.yes_no or reading.labels):
        raise PlanError("--unit applies only to a number: omit it", "unit")
    if low is not None and high is not None:
        if reading.yes_no or reading.labels:
            raise PlanError("--low and --high apply only to a number, whose --values is its number of bins")
        if not finite("--low", low) < finite("--high", high):
            raise PlanError(f"--low must be below --high, unlike {low:g} and {high:g}", "high")
    reading = replace(reading, low=low, high=high, unit=request.unit)
    return reading if request.scale is None else _scaled(reading, request.scale)


def _scaled(reading: Reading, scale: str) -> Reading:
    """Return a number with bins on a logarithmic scale."""
    if scale != LOG:
        raise PlanError(f"--scale must be {LOG}, or omitted for equal bins, not {scale}", "scale")
    if reading.low is None or reading.high is None or reading.bins is None:
        raise PlanError(
            "--scale log requires a number's --low, --high and --values, its number of bins", "scale"
        )
    if reading.low <= 0:
        raise PlanError(
            f"--scale log requires a --low above 0, not {reading.low:g}; lower readings fall into the "
            "first bin",
            "low",
        )
    most = min(MAX_LOG_BINS, int((reading.high - reading.low) * MILLI))
    if not 2 <= reading.bins <= most:
        raise PlanError(f"with --scale log, --values must be 2 to {most} bins, not {reading.bins}", "values")
    return replace(reading, scale=LOG)


def _values(values: int | str | Sequence[str] | None) -> Reading:
    """Return the readings that --values names."""
    if isinstance(values, str):
        text = values.strip()
        if text.lower() == YES_NO:
            return Reading(yes_no=True)
        number = plain_whole_number(text)
        values = int(number) if _WHOLE.fullmatch(number) else text.split(",")
    if values is None or isinstance(values, int):
        return Reading(bins=values)
    labels = tuple(label.strip() for label in values)
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise PlanError(
            f"labels must be like a,b,c, distinct and not empty, not {','.join(labels)!r}", "values"
        )
    if len(labels) == 1 and (labels[0].lower() == YES_NO or _WHOLE.fullmatch(labels[0])):
        raise PlanError(f"a single label must not be a number or {YES_NO}, unlike {labels[0]}", "values")
    if "other" in labels:
        raise PlanError("the label other is always added as the last label; omit it", "values")
    return Reading(labels=labels)


def question_of(request: PlanRequest, reading: Reading) -> Question:
    """Return the question about the readings.

    Raises:
        PlanError: If the readings cannot answer it.
    """
    is_categorical = reading.yes_no or bool(reading.labels)
    default_kind = "quantile" if request.quantile is not None else "frequency" if is_categorical else "range"
    kind = _KINDS.get(request.statistics or default_kind)
    if kind is None:
        kinds = "frequencies, ranges, quantiles and mean"
        raise PlanError(f"--statistics must be one of {kinds}, not {request.statistics}")
    for name, allowed_kind in _ONLY_OF.items():
        if getattr(request, name) is not None and kind != allowed_kind:
            raise PlanError(
                f"{OTHER_NAMES.get(name, f'--{name}')} applies to a {allowed_kind}, not to a {kind}"
            )
    if kind == "mean" and reading.scale:
        raise PlanError(
            "the error of a mean can be planned only for equal bins; with --scale log, plan for a quantile, "
            "such as --quantile 0.5"
        )
    if is_categorical and kind != "frequency":
        raise PlanError(f"a {kind} requires a number; labels and yes or no support only frequencies")
    if request.share is not None and kind in _NO_SHARE:
        raise PlanError(_NO_SHARE[kind])
    share = request.share
    if kind == "quantile":
        share = 0.5 if request.quantile is None else request.quantile
    check_sizes(Question("frequency"), request.devices, reading.domain)
    spread = None if request.deviation is None else request.deviation / (reading.span or 1.0)
    width, ranges = _places(request.ranges or (), reading)
    question = Question(kind, share, width, ranges, spread, request.missing)
    check_sizes(question, request.devices, reading.domain)
    return question


def _places(texts: Sequence[str], reading: Reading) -> tuple[int | None, tuple[tuple[int, int], ...]]:
    """Return a number of neighbouring bins, or half-open indices of ranges."""
    widths = [number for text in texts if _WHOLE.fullmatch(number := plain_whole_number(text.strip()))]
    if len(widths) == len(texts) == 1:
        return int(widths[0]), ()
    if widths:
        raise PlanError("give either a number of neighbouring bins or low:high ranges, not both")
    return None, tuple(_indices(text, reading) for text in texts)


def _indices(text: str, reading: Reading) -> tuple[int, int]:
    """Return half-open indices of "low:high", in the reading's unit if its range is known, else in bins."""
    if reading.bins is None:
        raise PlanError("--range requires --values; omit another of the four, or give a number of bins")
    low_text, colon, high_text = text.partition(":")
    low, high = (0.0, float(reading.bins)) if reading.low is None else (reading.low, reading.high or 0.0)
    try:
        ends = typed_float(low_text) if low_text else low, typed_float(high_text) if high_text else high
    except ValueError:
        ends = (math.nan,)
    if not colon or not all(map(math.isfinite, ends)):
        raise PlanError(f"a range must be low:high, for example 20:25 or 8:, not {text}")
    if reading.scale:
        edges = edges_between(round(low * MILLI), round(high * MILLI), reading.bins, reading.scale)
        first, last = (int(np.abs(edges - end).argmin()) for end in ends)
    else:
        places = [(end - low) / (high - low) * reading.bins for end in ends]
        first, last = (round(min(max(place, 0), reading.bins)) for place in places)
    if first >= last:
        raise PlanError(
            f"{text} is less than half a bin wide, is outside {low:g} to {high:g}, or is reversed"
        )
    return first, last


def error_per_unit(reading: Reading, question: Question) -> float | None:
    """Return the fraction of the range that one unit covers; for a quantile, of evenly spread devices.

    It is None if unknown, or if it differs between bins.
    """
    if reading.scale:
        return None
    return 1 / reading.span if question.kind in ("quantile", "mean") and reading.span else None


def wanted_error(request: PlanRequest, question: Question, unit: float | None) -> float | None:
    """Return the target error as a share of devices or, for a mean, a fraction of the range.

    Raises:
        PlanError: If it is malformed or does not fit the question.
    """
    error, in_unit = request.error, ""
    if isinstance(error, str):
        match = _AMOUNT.fullmatch(error)
        if not match or match[2].startswith(","):
            raise PlanError(f"an error must be a number, such as 0.01 or 0.5°C, not {error!r}", "error")
        error, in_unit = float(plain_number(match[1])), match[2]
        if in_unit in ("point", "points") or (in_unit == "%" and (unit is None or request.unit != "%")):
            error, in_unit = error / 100, ""
    if not in_unit:
        check_error(question, error)
        return error
    assert error is not None
    if request.scale:
        raise PlanError(
            "with --scale log, bins differ in width, so --error must be a share of the devices, such as 0.01",
            "error",
        )
    if in_unit != request.unit or unit is None:
        raise PlanError(
            f"--error {request.error} requires a mean or a quantile with --low, --high and --unit {in_unit}",
            "error",
        )
    fraction = error * unit
    if not MIN_ERROR <= fraction <= MAX_HALF_WIDTH:
        whole = "range" if question.kind == "mean" else "fleet"
        message = f"--error {request.error} is {fraction:.3g} of the {whole}"
        raise PlanError(f"{message}, not between 0 and {MAX_HALF_WIDTH:g}", "error")
    return fraction


def epsilon_of_report(request: PlanRequest, question: Question, domain: int | None) -> int | None:
    """Return the ε per report, in micro-nats, from --epsilon or --histogram-epsilon.

    Raises:
        PlanError: If neither is usable.
    """
    for name in ("horizon", "call", "limit", "delta"):
        is_set = getattr(request, name) is not None
        if is_set and not (name == "delta" and request.histogram_epsilon is not None):
            raise PlanError(f"--{name} requires --lifetime, the total ε of a device's reports")
    if request.histogram_epsilon is None:
        return micro("epsilon", request.epsilon)
    if request.epsilon is not None:
        raise PlanError("--histogram-epsilon computes the ε per report; omit --epsilon")
    if request.devices is None or domain is None or request.error is not None:
        raise PlanError(
            "--histogram-epsilon requires --devices and --values, and no error;"
            " the ε per report depends on their number, and the error follows"
        )
    target = finite("histogram-epsilon", request.histogram_epsilon)
    return epsilon_for_histogram(question, request.devices, domain, target, histogram_delta(request))


def histogram_delta(request: PlanRequest) -> float:
    """Return the δ for the ε of histograms."""
    if request.histogram_epsilon is None or request.delta is None:
        return USUAL_HISTOGRAM_DELTA
    return finite("delta", request.delta)


def lifetime_of(request: PlanRequest) -> tuple[LifetimeBudget, Rhythm, int]:
    """Return budget, rhythm, and the largest ε of one report in micro-nats.

    Raises:
        PlanError: If one of them is missing or out of range.
    """
    if request.epsilon is not None:
        raise PlanError("--lifetime computes the ε per report; omit --epsilon, or use --limit")
    if request.histogram_epsilon is not None:
        raise PlanError("--histogram-epsilon plans one report per device; omit --lifetime")
    if request.horizon is None or request.call is None:
        raise PlanError("--lifetime requires --horizon and --call, for example --horizon 2y --call 10min")
    budget = LifetimeBudget(micro("lifetime", request.lifetime) or 0, finite("delta", request.delta or 0.0))
    rhythm = Rhythm(parse_duration(request.call, "call"), parse_duration(request.horizon, "horizon"))
    limit = micro("limit", request.limit)
    return budget, rhythm, DEFAULT_LIMIT if limit is None else limit


def finite(name: str, value: float) -> float:
    """Return the value.

    Raises:
        PlanError: If it is infinite or NaN.
    """
    if not math.isfinite(value):
        raise PlanError(f"{name} must be a number, not {value}", name)
    return value


def micro(name: str, nats: float | None) -> int | None:
    """Return nats in micro-nats, rounded.

    Raises:
        PlanError: If they are infinite or NaN.
    """
    return None if nats is None else round(finite(name, nats * MICRO))
