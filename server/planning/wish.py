"""What somebody wants to learn of a fleet, and at what cost: the command's options, and Python's names.

Texts name a field as the command's option does, such as --unit-error; `in_python` makes unit_error of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

from ..accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..epsilon import MICRO
from .devices import LEAST_ERROR, PlanError, check_error, check_sizes
from .expected_error import Kind, Question
from .lifetime import DEFAULT_LIMIT, LifetimeBudget, Rhythm, parse_duration
from .second_epsilon import epsilon_for_histogram

_KINDS: dict[str, Kind] = {"frequencies": "frequency", "ranges": "range", "quantiles": "quantile"}
_KINDS |= {"frequency": "frequency", "range": "range", "quantile": "quantile", "mean": "mean"}
_ONLY_OF: dict[str, Kind] = {"deviation": "mean", "width": "range", "ranges": "range", "quantile": "quantile"}
_NO_SHARE = {
    "quantile": "a quantile's share is its own: say --quantile 0.9, not --share",
    "mean": "a mean has no share: say --deviation, or nothing for the worst case",
}
_SPECIAL = {"ranges": "--range"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What boards read, what is asked of how many of them, and how exactly; None: not said."""

    devices: Annotated[int | None, "Number of devices."] = None
    epsilon: Annotated[float | None, "Privacy of one report, nats: 0.001 to 16."] = None
    bins: Annotated[int | None, "Bins of a number."] = None
    labels: Annotated[
        str | Sequence[str] | None, "Labels of a choice: a,b,c. 'other' is added as the last one."
    ] = None
    yes_no: Annotated[bool, "The reading is yes or no."] = False
    error: Annotated[
        float | None,
        "Wanted half-width of the 95 % interval, share of devices, of a mean part of the range: 0.01 is"
        " ±1 %.",
    ] = None
    unit_error: Annotated[
        float | None, "The same for a mean or a quantile, in the reading's unit; it needs --low and --high."
    ] = None
    statistics: Annotated[
        str | None, "What the error is of: frequencies (the share of one value), ranges, quantiles or mean."
    ] = None
    share: Annotated[float | None, "Share that the value or range holds; without it the worst one."] = None
    width: Annotated[int | None, "Ranges of n bins; without it all ranges."] = None
    ranges: Annotated[
        Sequence[str] | None, "low:high in the unit, or in bins without --low; either may be empty."
    ] = None
    quantile: Annotated[float | None, "Which quantile; without it the median."] = None
    deviation: Annotated[
        float | None,
        "Of a mean: standard deviation of the readings, in the unit, or part of the range without --low;"
        " without it the worst readings there can be.",
    ] = None
    low: Annotated[float | None, "Least reading of a number."] = None
    high: Annotated[float | None, "Largest reading of a number."] = None
    unit: Annotated[str, "The reading's unit, for what is printed."] = ""


@dataclass(frozen=True, kw_only=True)
class Wish(Asked):
    """All that a plan is made from: what is asked, and what one report or a board's whole life may cost."""

    histogram_epsilon: Annotated[
        float | None,
        "In place of --epsilon: the ε that the histogram of all reports may have, against whoever sees"
        " histograms only; not against the broker, the aggregator's operator or the database's journal.",
    ] = None
    lifetime: Annotated[float | None, "Plan a life: the ε that all of a board's reports may cost."] = None
    delta: Annotated[
        float | None,
        "With --lifetime: the δ that goes with it, otherwise 0; with --histogram-epsilon: the histogram's,"
        " otherwise 1e-6.",
    ] = None
    horizon: Annotated[str | None, "With --lifetime: how long, such as 2y."] = None
    call: Annotated[str | None, "With --lifetime: time between calls to report(), such as 10min."] = None
    limit: Annotated[
        float | None,
        "With --lifetime: most ε that the boards' policy allows one report, otherwise"
        f" {DEFAULT_LIMIT / MICRO:g}.",
    ] = None

    def words(self) -> list[str]:
        """The options of `hushmote plan` that say the same."""
        result: list[str] = []
        for field in fields(Wish):
            value: Any = getattr(self, field.name)
            name = _SPECIAL.get(field.name, f"--{field.name.replace('_', '-')}")
            if value is None or value is False or value == "":
                continue
            if value is True:
                result.append(name)
                continue
            if field.name == "labels" and not isinstance(value, str):
                value = ",".join(value)
            for part in value if isinstance(value, tuple | list) else [value]:
                result += [name, part if isinstance(part, str) else repr(part).removesuffix(".0")]
        return result


@dataclass(frozen=True)
class Reading:
    """What a reading is: yes or no, one of labels, or a number from low to high in bins; None: not said."""

    yes_no: bool = False
    labels: tuple[str, ...] = ()
    bins: int | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""

    @property
    def domain(self) -> int | None:
        """Number of values, or None where it is left open."""
        if self.yes_no:
            return 2
        return len(self.labels) + 1 if self.labels else self.bins

    @property
    def span(self) -> float | None:
        """From the least reading to the largest, in the unit."""
        return None if self.low is None or self.high is None else self.high - self.low


def in_python(text: str) -> str:
    """A text with fields as Python and the page name them: unit_error for --unit-error."""
    return re.sub(r"--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), text)


def reading_of(wish: Asked) -> Reading:
    """What boards read; raises PlanError where a wish contradicts itself."""
    low, high = wish.low, wish.high
    if sum((wish.bins is not None, wish.labels is not None, wish.yes_no)) > 1:
        raise PlanError("a reading is one of --bins (a number), --labels (a choice) and --yes-no")
    if (low is None) != (high is None):
        raise PlanError("--low and --high go together", "low")
    if low is not None and high is not None:
        if wish.labels is not None or wish.yes_no:
            raise PlanError("--low and --high are for a number: they go with --bins")
        if not finite("--low", low) < finite("--high", high):
            raise PlanError(f"--low must be below --high, unlike {low:g} and {high:g}", "high")
    return Reading(wish.yes_no, _labels(wish.labels), wish.bins, low, high, wish.unit)


def _labels(said: str | Sequence[str] | None) -> tuple[str, ...]:
    if said is None or said == ():
        return ()
    labels = tuple(label.strip() for label in (said.split(",") if isinstance(said, str) else said))
    if "" in labels or len(set(labels)) < len(labels):
        raise PlanError(f"--labels reads a,b,c: different, none empty, not {','.join(labels)!r}", "labels")
    if "other" in labels:
        raise PlanError("the label other is always there, as the last one: leave it out", "labels")
    return labels


def question_of(wish: Asked, reading: Reading) -> Question:
    """What is asked of the readings; raises PlanError where it cannot be."""
    single = reading.yes_no or bool(reading.labels)
    usual = "quantile" if wish.quantile is not None else "frequency" if single else "range"
    kind = _KINDS.get(wish.statistics or usual)
    if kind is None:
        known = "frequencies, ranges, quantiles and mean"
        raise PlanError(f"--statistics is one of {known}, not {wish.statistics}")
    for name, only in _ONLY_OF.items():
        if getattr(wish, name) is not None and kind != only:
            raise PlanError(f"{_SPECIAL.get(name, f'--{name}')} is for a {only}, not for a {kind}")
    if single and kind != "frequency":
        raise PlanError(f"a {kind} is asked of a number (--bins); labels and yes or no have frequencies")
    if wish.width is not None and wish.ranges:
        raise PlanError("--width and --range do not go together: one is any place, the other stated ones")
    if wish.share is not None and kind in _NO_SHARE:
        raise PlanError(_NO_SHARE[kind])
    share = wish.share
    if kind == "quantile":
        share = 0.5 if wish.quantile is None else wish.quantile
    check_sizes(Question("frequency"), wish.devices, reading.domain)
    spread = None if wish.deviation is None else wish.deviation / (reading.span or 1.0)
    ranges = tuple(_indices(text, reading) for text in wish.ranges or ())
    question = Question(kind, share, wish.width, ranges, spread)
    check_sizes(question, wish.devices, reading.domain)
    return question


def _indices(text: str, reading: Reading) -> tuple[int, int]:
    """Half-open indices of "low:high": in the reading's unit where its range is known, else in bins."""
    if reading.bins is None:
        raise PlanError("--range needs --bins: leave another of the four open, or take --width")
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


def of_unit(reading: Reading, question: Question) -> float | None:
    """The part of the range that a unit is, and of a quantile the share of devices there, spread evenly.

    None where it is not known.
    """
    return 1 / reading.span if question.kind in ("quantile", "mean") and reading.span else None


def wanted_error(wish: Asked, question: Question, unit: float | None) -> float | None:
    """The wanted error as a share of devices, of a mean a part of the range; raises PlanError."""
    if wish.unit_error is None:
        check_error(question, wish.error)
        return wish.error
    if wish.error is not None or unit is None:
        raise PlanError(
            "--unit-error is for a mean or a quantile with --low and --high, in the place of --error"
        )
    error = wish.unit_error * unit
    if not LEAST_ERROR <= error < 0.5:
        of = "range" if question.kind == "mean" else "fleet"
        raise PlanError(f"--unit-error {wish.unit_error:g} is {error:.3g} of the {of}, not between 0 and 0.5")
    return error


def epsilon_of_report(wish: Wish, question: Question, domain: int | None) -> int | None:
    """Micro-nats of --epsilon, or of what --histogram-epsilon allows; raises PlanError."""
    for name in ("horizon", "call", "limit", "delta"):
        given = getattr(wish, name) is not None
        if given and not (name == "delta" and wish.histogram_epsilon is not None):
            raise PlanError(f"--{name} goes with --lifetime, the budget of a board's whole life")
    if wish.histogram_epsilon is None:
        return micro("epsilon", wish.epsilon)
    if wish.epsilon is not None:
        raise PlanError("--histogram-epsilon finds the ε of a report: leave --epsilon out")
    if wish.devices is None or domain is None or wish.error is not None or wish.unit_error is not None:
        raise PlanError(
            "--histogram-epsilon needs --devices and one of --bins, --labels and --yes-no, and no error:"
            " what ε a report may have depends on how many there are, and the error follows"
        )
    wanted = finite("histogram-epsilon", wish.histogram_epsilon)
    return epsilon_for_histogram(question, wish.devices, domain, wanted, histogram_delta(wish))


def histogram_delta(wish: Wish) -> float:
    """δ of the histograms' ε."""
    if wish.histogram_epsilon is None or wish.delta is None:
        return USUAL_HISTOGRAM_DELTA
    return finite("delta", wish.delta)


def life_of(wish: Wish) -> tuple[LifetimeBudget, Rhythm, int]:
    """Budget, rhythm, and the most micro-nats of one report; raises PlanError."""
    if wish.epsilon is not None:
        raise PlanError("--lifetime finds the ε of a report itself: leave --epsilon out, or take --limit")
    if wish.histogram_epsilon is not None:
        raise PlanError("--histogram-epsilon is for one report of each device: leave --lifetime out")
    if wish.horizon is None or wish.call is None:
        raise PlanError("--lifetime needs --horizon and --call, for example --horizon 2y --call 10min")
    budget = LifetimeBudget(micro("lifetime", wish.lifetime) or 0, finite("delta", wish.delta or 0.0))
    rhythm = Rhythm(parse_duration(wish.call, "call"), parse_duration(wish.horizon, "horizon"))
    most = micro("limit", wish.limit)
    return budget, rhythm, DEFAULT_LIMIT if most is None else most


def finite(name: str, value: float) -> float:
    """The value; raises PlanError for infinities and nan."""
    if not math.isfinite(value):
        raise PlanError(f"{name} must be a number, not {value}", name)
    return value


def micro(name: str, nats: float | None) -> int | None:
    """Micro-nats of nats, rounded; raises PlanError for infinities and nan."""
    return None if nats is None else round(finite(name, nats * MICRO))
