"""An experiment file from a plan: the mechanism spelled out, so that the plan's errors hold for it."""

import datetime
import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from .. import epsilon
from ..experiments.definition import parse
from ..experiments.reading import DefinitionError
from . import words
from .devices import Plan, PlanError
from .expected_error import Design
from .lifetime import LifetimePlan

NEEDS_RANGE = (
    "an experiment's file needs a number's range: add --low and --high, for example --low -30 --high 34"
)


class FileRefused(PlanError):
    """A plan that makes no experiment; field: the file's field that is wrong, or empty. reason: why."""

    def __init__(self, error: DefinitionError) -> None:
        super().__init__(f"this plan makes no experiment: {error}")
        self.field = error.field
        self.reason = str(error).removeprefix(f"{error.field}: ")


_NOT_A_NAME = re.compile(r"[^a-z0-9_-]+")


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


def labels_in(text: str, name: str = "labels") -> tuple[str, ...]:
    """The labels in "a,b,c". Raises PlanError, which calls them by their name, unless each is good."""
    labels = tuple(label.strip() for label in text.split(","))
    if "" in labels or len(set(labels)) < len(labels):
        raise PlanError(f"{name} reads a,b,c: different, none empty, not {text!r}")
    if "other" in labels:
        raise PlanError("the label other is always there, as the last one: leave it out")
    return labels


@dataclass(frozen=True)
class Named:
    """What people say of an experiment; purpose None: what the plan is for. It is asked from today on."""

    name: str
    purpose: str | None
    owner: str
    today: datetime.date


@dataclass(frozen=True)
class Terms:
    """What a file says besides: how often a board reports, and what it may spend.

    cap: nats for the rule "sum", reports for "count"; written as it is.
    """

    every: int
    rule: str
    cap: str
    expires: datetime.date
    name: str
    purpose: str
    owner: str


def name_from(path: Path) -> str:
    """An experiment's name from a file's."""
    return _NOT_A_NAME.sub("_", path.stem.lower())[:32].strip("_") or "planned"


def nats(micro: int) -> str:
    """Micro-nats as a TOML float of nats, exact."""
    text = epsilon.nats(micro)
    return text if "." in text else f"{text}.0"


def of_one_report(plan: Plan, reading: Reading, named: Named) -> str:
    """The text of the file that asks each device once, for a year. Raises PlanError."""
    said = f"{words.asked(plan.question)}, to ±{plan.error:.2%} with {plan.devices:,} devices"
    return toml(
        sized(reading, plan.design.domain),
        plan.design,
        _terms(named, said, 365, 1, "sum", nats(plan.design.epsilon)),
    )


def sized(reading: Reading, domain: int) -> Reading:
    """The reading with this many values, if it does not say how many."""
    return reading if reading.domain else replace(reading, bins=domain)


def of_life(life: LifetimePlan, reading: Reading, named: Named) -> str:
    """The text of the file that asks for a planned life. Raises PlanError."""
    best, rhythm = life.best, life.rhythm
    said = f"{words.asked(life.question)}, {life.devices:,} devices, for {words.length(rhythm.horizon_s)}"
    cap = nats(best.cap * best.epsilon) if best.rule == "sum" else str(best.cap)
    return toml(reading, best.design, _terms(named, said, rhythm.days, best.every, best.rule, cap))


def _terms(named: Named, said: str, days: float, every: int, rule: str, cap: str) -> Terms:
    until = named.today + datetime.timedelta(days=math.ceil(days))
    return Terms(every, rule, cap, until, named.name, named.purpose or said, named.owner)


def toml(reading: Reading, design: Design, terms: Terms) -> str:
    """The text of an experiment file. Raises FileRefused where a board would refuse it."""
    text = "\n".join(_lines(reading, design, terms)) + "\n"
    try:
        parse(text).payload()
    except DefinitionError as e:
        raise FileRefused(e) from None
    return text


def _lines(reading: Reading, design: Design, terms: Terms) -> list[str]:
    out = ["# Written by `hushmote plan`; check it with `hushmote experiment show`."]
    out += [f"{key} = {_text(getattr(terms, key))}" for key in ("name", "purpose", "owner")]
    out += [f"expires = {terms.expires}", ""]
    if reading.yes_no:
        out.append('type = "bool"')
    elif reading.labels:
        out += ['type = "choice"', f"labels = [{', '.join(map(_text, reading.labels))}]"]
    else:
        if reading.low is None or reading.high is None:
            raise PlanError(NEEDS_RANGE)
        out += ['type = "number"', *([f"unit = {_text(reading.unit)}"] if reading.unit else [])]
        out += [f"low = {_number(reading.low)}", f"high = {_number(reading.high)}", f"bins = {design.domain}"]
    out += ["", "# What the plan's errors were computed for; without these lines a mechanism is chosen anew."]
    out += [f"{key} = {json.dumps(value)}" for key, value in design.choice.fields().items()]
    out += ["", f"epsilon = {nats(design.epsilon)}", f"every = {terms.every}", 'window = "day"', ""]
    return [*out, "[budget]", f"rule = {_text(terms.rule)}", f"cap = {terms.cap}"]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
