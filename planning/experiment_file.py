"""Writes an experiment file that states the mechanism explicitly, so that the plan's errors hold."""

import datetime
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from ..server import epsilon
from ..server.experiments.definition import parse
from ..server.experiments.reading import DefinitionError
from ..server.words.numbers import length
from .devices import Plan, PlanError
from .lifetime import LifetimePlan
from .request import Reading
from .sentences import describe_question, format_half_width

NEEDS_RANGE = (
    "an experiment file for a number requires its range; add --low and --high, for example "
    "--low -30 --high 34"
)


class FileRefused(PlanError):
    """Raised if a plan is not a valid experiment.

    Attributes:
        field: The file's invalid field, or "".
        reason: The reason it is invalid.
    """

    def __init__(self, error: DefinitionError) -> None:
        super().__init__(f"this plan is not a valid experiment: {error}", error.field)
        self.reason = str(error).removeprefix(f"{error.field}: ")


_NOT_A_NAME = re.compile(r"[^a-z0-9_-]+")


@dataclass(frozen=True)
class ExperimentInfo:
    """The descriptive fields of an experiment that starts today.

    Attributes:
        name: The experiment's name.
        purpose: The experiment's purpose, or None for the plan's description.
        owner: The person or team responsible.
        today: The first day.
    """

    name: str
    purpose: str | None
    owner: str
    today: datetime.date


def name_from(path: Path) -> str:
    """Return an experiment's name from a file's name."""
    return _NOT_A_NAME.sub("_", path.stem.lower())[:32].strip("_") or "planned"


def nats(micro: int) -> str:
    """Return micro-nats as a TOML float of nats, exactly."""
    text = epsilon.nats(micro)
    return text if "." in text else f"{text}.0"


def file_text(plan: Plan | LifetimePlan, reading: Reading, info: ExperimentInfo) -> str:
    """Return an experiment file's text, for one report per device within a year or a planned lifetime.

    Raises:
        PlanError: If the plan is for a number without its range.
        FileRefused: If a device would reject the experiment.
    """
    if not reading.yes_no and not reading.labels and reading.span is None:
        raise PlanError(NEEDS_RANGE, "low")
    purpose, design = describe_question(plan.question), plan.design
    if isinstance(plan, Plan):
        purpose += f", to {format_half_width(plan.error, plan.question)} with {plan.devices:,} devices"
        days, every, rule, cap = 365.0, 1, "sum", nats(design.epsilon)
    else:
        purpose += f", {plan.devices:,} devices, for {length(plan.rhythm.horizon_s)}"
        best, days = plan.best, plan.rhythm.days
        every, rule = best.every, best.rule
        cap = nats(best.cap * best.epsilon) if rule == "sum" else str(best.cap)
    lines = [
        "# Written by `hushmote plan`; check it with `hushmote experiment show`.",
        f"name = {_text(info.name)}",
        f"purpose = {_text(info.purpose or purpose)}",
        f"owner = {_text(info.owner)}",
        f"expires = {info.today + datetime.timedelta(days=math.ceil(days))}",
        "",
        *_reading(reading, design.domain),
        *(["missing = true"] if design.missing is not None else []),
        "",
        "# The mechanism that the plan's errors assume; without these lines, it would be chosen again.",
        *(f"{key} = {json.dumps(value)}" for key, value in design.choice.fields().items()),
        "",
        f"epsilon = {nats(design.epsilon)}",
        f"every = {every}",
        'window = "day"',
        "",
        "[budget]",
        f"rule = {_text(rule)}",
        f"cap = {cap}",
        "",
        "# The case that was planned, for `hushmote simulate`; devices never see it.",
        "[planned]",
        *_planned(plan),
    ]
    text = "\n".join(lines) + "\n"
    try:
        parse(text).payload()
    except DefinitionError as e:
        raise FileRefused(e) from None
    return text


def _reading(reading: Reading, domain: int) -> list[str]:
    if reading.yes_no:
        return ['type = "bool"']
    if reading.labels:
        return ['type = "choice"', f"labels = [{', '.join(map(_text, reading.labels))}]"]
    unit = [f"unit = {_text(reading.unit)}"] if reading.unit else []
    ends = [f"{end} = {_number(getattr(reading, end))}" for end in ("low", "high")]
    scale = [f"scale = {_text(reading.scale)}"] if reading.scale else []
    return ['type = "number"', *unit, *ends, f"bins = {domain}", *scale]


def _planned(plan: Plan | LifetimePlan) -> list[str]:
    question = plan.question
    calls, error = (None, plan.error) if isinstance(plan, Plan) else (plan.rhythm.calls, plan.all_reports)
    fields = {
        "of": question.kind,
        "share": question.share,
        "width": question.width,
        "ranges": [*map(list, question.ranges)] or None,
        "spread": question.spread,
        "missing": question.missing,
        "devices": plan.devices,
        "calls": calls,
        "error": float(f"{min(error, 1.0):.6g}"),
    }
    return [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
