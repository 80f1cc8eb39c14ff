"""A request for a plan: what boards read, what is asked of them, and what it may cost.

The command's options and the keyword arguments in Python are its fields. Messages name a field as the
command's option does, such as --histogram-epsilon; `in_python` turns that into histogram_epsilon.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..server.accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..server.epsilon import MICRO
from ..server.words.numbers import MAX_HALF_WIDTH
from .devices import LEAST_ERROR, PlanError, check_error, check_sizes
from .expected_error import ANSWERS, Kind, Question
from .lifetime import DEFAULT_LIMIT, LifetimeBudget, Rhythm, parse_duration
from .second_epsilon import epsilon_for_histogram

OTHER_NAMES = {"ranges": "--range"}
"""Options whose names differ from those of their fields."""

YES_NO = "yes-no"
"""The values of a reading that is yes or no."""

_KINDS: dict[str, Kind] = {name: kind for kind, word in ANSWERS.items() for name in (kind, word)}
_ONLY_OF: dict[str, Kind] = {"deviation": "mean", "ranges": "range", "quantile": "quantile"}
_NO_SHARE = {
    "quantile": "a quantile's share is its own: say --quantile 0.9, not --share",
    "mean": "a mean has no share: say --deviation, or nothing for the worst case",
}
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_AMOUNT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(.*?)\s*", re.IGNORECASE)


def _option(help: str, *names: str, default: Any = None) -> Any:
    """Return a field with its line of help, and with its option's names if they differ, as metadata."""
    return field(default=default, metadata={"help": help, "names": names})


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A request for a plan: what boards read, what is asked, what it may cost; None if not given.

    The metadata of each field has its line of help, and the option's names if they differ from the field's.
    """

    devices: int | None = _option("Number of devices.")
    epsilon: float | None = _option("Privacy of one report, nats: 0.001 to 16.")
    values: int | str | Sequence[str] | None = _option(
        "What a reading can be: a number's bins, such as 64; labels a,b,c ('other' is added); yes-no."
    )
    error: float | str | None = _option(
        "Wanted half-width of the 95% interval: 0.01 is ±1 point of shares, or 1% of a mean's range;"
        " or of a mean or a quantile with --low and --high in its unit: 0.5°C."
    )
    statistics: str | None = _option(
        "What the error is for: frequencies (the share of one value), ranges, quantiles or mean.",
        "--statistics",
        "--for",
    )
    share: float | None = _option("Share of devices with the value or range; else the worst one.")
    ranges: Sequence[str] | None = _option(
        "low:high in the unit, or in bins without --low; either may be empty. Or n: any n neighbouring bins."
    )
    quantile: float | None = _option("Which quantile; else the median.")
    deviation: float | None = _option(
        "For a mean: standard deviation of the readings, in the unit, or as part of the range without --low;"
        " else the worst readings possible."
    )
    missing: float | None = _option(
        "Share of devices without a reading, such as 0.12: the experiment's file then has missing = true,"
        " and the error is about the others."
    )
    low: float | None = _option("Least reading of a number.")
    high: float | None = _option("Largest reading of a number.")
    unit: str = _option("The reading's unit, for what is printed.", default="")
    histogram_epsilon: float | None = _option(
        "Instead of --epsilon: the ε that the histogram of all reports may have, against people who see"
        " histograms only; not against the broker, the aggregator's operator or the database's journal."
    )
    lifetime: float | None = _option(
        "Plan a lifetime: the ε that all of a device's reports may cost. With --error instead of --devices:"
        " how many devices it takes."
    )
    delta: float | None = _option(
        "With --lifetime: the δ that goes with it, otherwise 0; with --histogram-epsilon: the histogram's,"
        " otherwise 1e-6."
    )
    horizon: str | None = _option("With --lifetime: how long, such as 2y.")
    call: str | None = _option("With --lifetime: time between calls to report(), such as 10min.")
    limit: float | None = _option(
        "With --lifetime: the most ε that the devices' policy allows one report, otherwise"
        f" {DEFAULT_LIMIT / MICRO:g}."
    )

    def words(self) -> list[str]:
        """Return the options of `hushmote plan` that make the same request."""
        result: list[str] = []
        for one in fields(PlanRequest):
            value: Any = getattr(self, one.name)
            name = OTHER_NAMES.get(one.name, f"--{one.name.replace('_', '-')}")
            if value is None or value == "":
                continue
            if one.name == "values" and not isinstance(value, str | int):
                value = ",".join(value)
            for part in value if isinstance(value, tuple | list) else [value]:
                result += [name, part if isinstance(part, str) else repr(part).removesuffix(".0")]
        return result


def in_python(text: str) -> str:
    """Return a text that names fields as Python and the page do: histogram_epsilon, without dashes."""
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

    @property
    def domain(self) -> int | None:
        """The number of values, or None if it is left open."""
        if self.yes_no:
            return 2
        return len(self.labels) + 1 if self.labels else self.bins

    @property
    def span(self) -> float | None:
        """The difference between the largest and the smallest reading, in the unit, or None if unknown."""
        return None if self.low is None or self.high is None else self.high - self.low


def reading_of(request: PlanRequest) -> Reading:
    """Return what boards read.

    Raises:
        PlanError: If the request contradicts itself.
    """
    low, high = request.low, request.high
    reading = _values(request.values)
    if (low is None) != (high is None):
        raise PlanError("--low and --high go together", "low")
    if low is not None and high is not None:
        if reading.yes_no or reading.labels:
            raise PlanError("--low and --high are for a number, whose --values are its bins")
        if not finite("--low", low) < finite("--high", high):
            raise PlanError(f"--low must be below --high, unlike {low:g} and {high:g}", "high")
    return replace(reading, low=low, high=high, unit=request.unit)


def _values(values: int | str | Sequence[str] | None) -> Reading:
    """Return the readings that --values names."""
    if isinstance(values, str):
        text = values.strip()
        if text.lower() == YES_NO:
            return Reading(yes_no=True)
        values = int(text) if _WHOLE.fullmatch(text) else text.split(",")
    if values is None or isinstance(values, int):
        return Reading(bins=values)
    labels = tuple(label.strip() for label in values)
    if not labels or "" in labels or len(set(labels)) < len(labels):
        raise PlanError(f"labels read a,b,c: different, none empty, not {','.join(labels)!r}", "values")
    if len(labels) == 1 and (labels[0].lower() == YES_NO or _WHOLE.fullmatch(labels[0])):
        raise PlanError(f"a label alone is no number and not {YES_NO}, unlike {labels[0]}", "values")
    if "other" in labels:
        raise PlanError("the label other is always there, as the last one: leave it out", "values")
    return Reading(labels=labels)


def question_of(request: PlanRequest, reading: Reading) -> Question:
    """Return what is asked of the readings.

    Raises:
        PlanError: If it cannot be asked of them.
    """
    single = reading.yes_no or bool(reading.labels)
    usual = "quantile" if request.quantile is not None else "frequency" if single else "range"
    kind = _KINDS.get(request.statistics or usual)
    if kind is None:
        kinds = "frequencies, ranges, quantiles and mean"
        raise PlanError(f"--statistics is one of {kinds}, not {request.statistics}")
    for name, only in _ONLY_OF.items():
        if getattr(request, name) is not None and kind != only:
            raise PlanError(f"{OTHER_NAMES.get(name, f'--{name}')} is for a {only}, not for a {kind}")
    if single and kind != "frequency":
        raise PlanError(f"a {kind} is asked of a number; labels and yes or no have frequencies")
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
    widths = [text for text in texts if _WHOLE.fullmatch(text.strip())]
    if len(widths) == len(texts) == 1:
        return int(widths[0]), ()
    if widths:
        raise PlanError("ranges of n bins, wherever they lie, and stated ones do not go together")
    return None, tuple(_indices(text, reading) for text in texts)


def _indices(text: str, reading: Reading) -> tuple[int, int]:
    """Return half-open indices of "low:high", in the reading's unit if its range is known, else in bins."""
    if reading.bins is None:
        raise PlanError("--range needs --values: leave another of the four open, or take a number of bins")
    low_text, colon, high_text = text.partition(":")
    low, high = (0.0, float(reading.bins)) if reading.low is None else (reading.low, reading.high or 0.0)
    try:
        ends = float(low_text) if low_text else low, float(high_text) if high_text else high
    except ValueError:
        ends = (math.nan,)
    if not colon or not all(map(math.isfinite, ends)):
        raise PlanError(f"a range reads low:high, for example 20:25 or 8:, not {text}")
    places = [(end - low) / (high - low) * reading.bins for end in ends]
    first, last = (round(min(max(place, 0), reading.bins)) for place in places)
    if first >= last:
        raise PlanError(
            f"{text} lies within half a bin, outside {low:g} to {high:g}, or is the wrong way round"
        )
    return first, last


def error_per_unit(reading: Reading, question: Question) -> float | None:
    """Return the fraction of the range that one unit is; for a quantile, of evenly spread devices.

    It is None if it is not known.
    """
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
            raise PlanError(f"an error is a number, such as 0.01, or 0.5°C: not {error!r}", "error")
        error, in_unit = float(match[1]), match[2]
    if not in_unit:
        check_error(question, error)
        return error
    assert error is not None
    if in_unit in ("%", "point", "points") and unit is None:
        raise PlanError(f"±{error:g} points is --error {error / 100:g}", "error")
    if in_unit != request.unit or unit is None:
        raise PlanError(
            f"--error {request.error} is for a mean or a quantile with --low, --high and --unit {in_unit}",
            "error",
        )
    part = error * unit
    if not LEAST_ERROR <= part <= MAX_HALF_WIDTH:
        of = "range" if question.kind == "mean" else "fleet"
        wrong = f"--error {request.error} is {part:.3g} of the {of}"
        raise PlanError(f"{wrong}, not between 0 and {MAX_HALF_WIDTH:g}", "error")
    return part


def epsilon_of_report(request: PlanRequest, question: Question, domain: int | None) -> int | None:
    """Return the micro-nats of --epsilon, or of what --histogram-epsilon allows.

    Raises:
        PlanError: If neither fits.
    """
    for name in ("horizon", "call", "limit", "delta"):
        is_set = getattr(request, name) is not None
        if is_set and not (name == "delta" and request.histogram_epsilon is not None):
            raise PlanError(f"--{name} goes with --lifetime, the budget of a device's lifetime")
    if request.histogram_epsilon is None:
        return micro("epsilon", request.epsilon)
    if request.epsilon is not None:
        raise PlanError("--histogram-epsilon finds the ε of a report: leave --epsilon out")
    if request.devices is None or domain is None or request.error is not None:
        raise PlanError(
            "--histogram-epsilon needs --devices and --values, and no error:"
            " what ε a report may have depends on how many there are, and the error follows"
        )
    target = finite("histogram-epsilon", request.histogram_epsilon)
    return epsilon_for_histogram(question, request.devices, domain, target, histogram_delta(request))


def histogram_delta(request: PlanRequest) -> float:
    """Return the δ of the histograms' ε."""
    if request.histogram_epsilon is None or request.delta is None:
        return USUAL_HISTOGRAM_DELTA
    return finite("delta", request.delta)


def lifetime_of(request: PlanRequest) -> tuple[LifetimeBudget, Rhythm, int]:
    """Return budget, rhythm, and the largest ε of one report in micro-nats.

    Raises:
        PlanError: If one of them is missing or out of range.
    """
    if request.epsilon is not None:
        raise PlanError("--lifetime finds the ε of a report itself: leave --epsilon out, or take --limit")
    if request.histogram_epsilon is not None:
        raise PlanError("--histogram-epsilon is for one report of each device: leave --lifetime out")
    if request.horizon is None or request.call is None:
        raise PlanError("--lifetime needs --horizon and --call, for example --horizon 2y --call 10min")
    budget = LifetimeBudget(micro("lifetime", request.lifetime) or 0, finite("delta", request.delta or 0.0))
    rhythm = Rhythm(parse_duration(request.call, "call"), parse_duration(request.horizon, "horizon"))
    most = micro("limit", request.limit)
    return budget, rhythm, DEFAULT_LIMIT if most is None else most


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
