"""The plan of a release's verdict: what is tested, and how much information is planned.

A verdict is valid at every look only if nothing about the test is chosen after reports have been seen. So
the first call makes a plan and stores it, and a later call with other settings is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .difference import ReleaseError

ALPHA = 0.05
"""The default probability of a false verdict, for "stop" and for "proceed", over all looks."""
SILENCE_WEIGHT = 0.1
"""The share of the probability of a false "stop" that belongs to silence, if the plan checks for it."""
DAYS = 14
"""The default number of days to plan for."""


def experiment_of(question: str) -> str:
    """Return the experiment in the name of a planned question, such as "cause: crash"."""
    return question.partition(": ")[0]


class PlanChanged(ReleaseError):
    """Raised if a release already has a plan with other settings."""


@dataclass(frozen=True)
class QuestionPlan:
    """The plan of one question.

    Attributes:
        name: The experiment, and the value if it has several.
        worse: Whether a version is worse if it has "more" than the others, or if it has "less".
        margin: The difference that is accepted, above 0, in the unit of the question (0.02 is 2 points of a
            share); None if the question can only stop a release.
        information: The planned information: 1 / variance of the difference at the planned end.
        variance: The variance of one report that the plan assumes. Fractions of the planned information
            are computed with it, so that they depend on the number of reports only.
        asked: The text of the question in the experiment's `asks`; "" in plans from before it was stored.
    """

    name: str
    worse: Literal["more", "less"]
    margin: float | None
    information: float
    variance: float
    asked: str = ""

    def __post_init__(self) -> None:
        if self.worse not in ("more", "less"):
            raise ReleaseError(f'{self.name}: worse must be "more" or "less", not {self.worse!r}')
        if self.margin is not None and not self.margin > 0:
            raise ReleaseError(f"{self.name}: the margin must be above 0, not {self.margin:g}")
        if not (self.information > 0 and self.variance > 0):
            raise ReleaseError(f"{self.name}: the planned information and variance must be above 0")

    @property
    def sign(self) -> int:
        """1 if a positive difference is worse, otherwise -1."""
        return 1 if self.worse == "more" else -1

    def fraction(self, effective_reports: float) -> float:
        """Return the fraction of the planned information; difference.Look has the effective reports."""
        return effective_reports / self.variance / self.information


@dataclass(frozen=True)
class SilencePlan:
    """The plan of the check for boards that stop reporting.

    Attributes:
        information: The planned information: 1 / variance of the missing share of reports at the planned
            end.
        tolerance: The missing share that may have other reasons, such as other customers or regions.
        offline_share: The share of boards that may be offline for a long time.
        dispersion: The variance of the number of reports of a day, divided by its mean; above 1 if boards
            send several at once after they were offline.
    """

    information: float
    tolerance: float = 0.1
    offline_share: float = 0.1
    dispersion: float = 2.0

    def __post_init__(self) -> None:
        if not self.information > 0:
            raise ReleaseError("the planned information about silence must be above 0")
        if not (0 <= self.tolerance < 1 and 0 <= self.offline_share < 1):
            raise ReleaseError("tolerance and offline must be shares from 0 to below 1")
        if not self.dispersion >= 1:
            raise ReleaseError(f"dispersion must be 1 or more, not {self.dispersion:g}")


@dataclass(frozen=True)
class ReleasePlan:
    """The plan of a release's verdict, to be stored at the first look.

    Attributes:
        group: The open group, such as "firmware".
        new: The new version.
        others: The versions that it is compared with, kept sorted and without repetitions.
        questions: The plan of each question.
        silence: The plan for silence, or None if the number of installed devices is not available.
        alpha: The probability of a false "stop" over all questions and looks, and also that of a false
            "proceed".
        days: The days that were planned for.
        reports: The reports of the new version that were planned for, or None if they were computed from
            the rate at the first look.
        selection: How the boards with the new version were chosen, such as "by region", or "" if at random.
    """

    group: str
    new: str
    others: tuple[str, ...]
    questions: tuple[QuestionPlan, ...]
    silence: SilencePlan | None = None
    alpha: float = ALPHA
    days: int = DAYS
    reports: int | None = None
    selection: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", tuple(sorted(set(self.others))))
        if not 0 < self.alpha < 0.5:
            raise ReleaseError(f"alpha must be above 0 and below 0.5, not {self.alpha:g}")
        if self.days < 1 or (self.reports is not None and self.reports < 1):
            raise ReleaseError("a plan needs at least one day, and at least one report")
        if not self.questions:
            raise ReleaseError("a plan needs at least one question")
        if not self.others or self.new in self.others:
            raise ReleaseError(f"compare {self.new} with at least one other version, not with itself")
        names = [question.name for question in self.questions]
        if len(set(names)) < len(names):
            raise ReleaseError("the questions of a plan must have different names")

    def weights(self) -> dict[str, float]:
        """Return the share of alpha for each question; silence, if the plan checks for it, is named ""."""
        rest = 1.0 if self.silence is None else 1 - SILENCE_WEIGHT
        result = {question.name: rest / len(self.questions) for question in self.questions}
        return result if self.silence is None else result | {"": SILENCE_WEIGHT}

    def to_json(self) -> str:
        """Return the plan as a JSON object on one line, always with the same text for the same plan."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


def plan_from_json(text: str) -> ReleasePlan:
    """Return the plan whose to_json() is `text`.

    Raises:
        ReleaseError: If the text is not a plan.
    """
    try:
        value: dict[str, Any] = json.loads(text)
        value["others"] = tuple(value["others"])
        value["questions"] = tuple(QuestionPlan(**question) for question in value["questions"])
        silence = value["silence"]
        value["silence"] = None if silence is None else SilencePlan(**silence)
        return ReleasePlan(**value)
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ReleaseError(
            "the stored plan of the release is damaged: it is not what to_json() wrote"
        ) from None


def check_unchanged(stored: ReleasePlan, requested: ReleasePlan) -> None:
    """Raise PlanChanged if two plans are not the same; the message names the first difference."""
    if stored == requested:
        return
    differences = [_fields(plan) for plan in (stored, requested)]
    for name in dict.fromkeys([*differences[0], *differences[1]]):
        before, after = (plan.get(name, "missing") for plan in differences)
        if before != after:
            raise PlanChanged(
                f"the plan of {stored.new} cannot change after its first look: "
                f"{name} is {before}, not {after}; omit it"
            )


def _fields(plan: ReleasePlan) -> Mapping[str, object]:
    """Return the settings of a plan by name, in the order in which differences are reported."""
    result: dict[str, object] = {
        "group": plan.group,
        "new": plan.new,
        "against": ", ".join(plan.others),
        "alpha": plan.alpha,
        "days": plan.days,
        "reports": plan.reports or "not set",
        "selection": plan.selection or "at random",
        "questions": ", ".join(question.name for question in plan.questions),
    }
    for question in plan.questions:
        for field in fields(question):
            result[f"{field.name} of {question.name}"] = getattr(question, field.name)
    for field in fields(SilencePlan):
        silence = plan.silence
        result[f"{field.name} of silence"] = "missing" if silence is None else getattr(silence, field.name)
    return result
