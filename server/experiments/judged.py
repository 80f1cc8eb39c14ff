"""The questions by which a release is judged: which direction is worse, and the difference that is accepted.

    worse = "more"              worse = {ok = "less", failed = "more"}
    worse_by = 0.02             worse_by = {ok = 0.02}

The left example applies to all shares and means in `asks`; the right one names those to judge. A question
without a margin can stop a release, but not let it proceed.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from ...device.ldp_client import Experiment
from ..errors import HushmoteError
from .answerable import answerable_questions
from .asks import Ask, asks_of

Direction = Literal["more", "less"]
DIRECTIONS = ("more", "less")


class JudgedError(HushmoteError):
    """Raised if `worse` or `worse_by` does not fit the experiment's questions."""


@dataclass(frozen=True)
class Worse:
    """What an experiment's file says about a release: the values of `worse` and `worse_by`.

    Attributes:
        direction: The direction that is worse, for all questions or by question; with the latter, only
            these are judged.
        margin: The accepted difference, for all judged questions or by question; None for none. It is a
            share (0.02 is 2 points), or for a mean in the unit of the reading.
    """

    direction: Direction | Mapping[str, Direction] = "more"
    margin: float | Mapping[str, float] | None = None

    def to_text(self) -> str:
        """Return the text for the store, "" for the default."""
        if self == Worse():
            return ""
        values = {"worse": self.direction, "worse_by": self.margin}
        return json.dumps({name: value for name, value in values.items() if value is not None})


def worse_from_text(text: str) -> Worse:
    """Return what to_text() wrote.

    Raises:
        JudgedError: If the text is something else.
    """
    try:
        fields = cast(dict[str, Any], json.loads(text or "{}"))
        worse = Worse(check_direction(fields.get("worse", "more")), fields.get("worse_by"))
        margins = worse.margin.values() if isinstance(worse.margin, Mapping) else [worse.margin]
        if not all(margin is None or float(margin) > 0 for margin in margins):
            raise ValueError
    except (ValueError, TypeError, AttributeError):
        raise JudgedError(
            "what the store says about worse and worse_by is damaged: add the experiment again"
        ) from None
    return worse


def check_direction(value: Any) -> Direction | dict[str, Direction]:
    """Return a direction or a table of them, or raise ValueError."""
    words = cast(dict[str, Any], value).values() if isinstance(value, dict) else [value]
    if not words or any(word not in DIRECTIONS for word in words):
        raise ValueError('must be "more", "less" or a table of questions, such as {ok = "less"}')
    return value


@dataclass(frozen=True)
class JudgedQuestion:
    """A question by which a release is judged.

    Attributes:
        ask: The question, a share or a mean.
        worse: The direction that is worse.
        margin: The accepted difference, or None.
    """

    ask: Ask
    worse: Direction
    margin: float | None


def judged_questions(experiment: Experiment, asks: Sequence[str], worse: Worse) -> tuple[JudgedQuestion, ...]:
    """Return the questions by which a release is judged; none if the experiment has no shares or means.

    Args:
        experiment: The experiment.
        asks: The questions in its file.
        worse: The directions and margins in its file.

    Raises:
        JudgedError: If the file names a question that it does not ask, or one that is not a share or a mean,
            or a margin does not fit.
        HushmoteError: In the same cases as asks_of().
    """
    questions = {ask.text: ask for ask in asks_of(experiment, asks)}
    linear = {text: ask for text, ask in questions.items() if _is_linear(experiment, ask)}
    direction, margin = worse.direction, worse.margin
    names = tuple(linear) if isinstance(direction, str) else tuple(direction)
    for name in names:
        _check_name("worse", name, questions, linear)
    for name in margin if isinstance(margin, Mapping) else ():
        _check_name("worse_by", name, questions, linear)
        if name not in names:
            raise JudgedError(f"worse_by: worse does not name {name}: add its direction there")
    if margin is not None and not names:
        raise JudgedError(f"worse_by: {_ADVICE}")
    result: list[JudgedQuestion] = []
    for name in names:
        word = direction if isinstance(direction, str) else direction[name]
        accepted = margin.get(name) if isinstance(margin, Mapping) else margin
        _check_margin(linear[name], accepted)
        result.append(JudgedQuestion(linear[name], word, accepted))
    kinds = {ask.kind for ask in linear.values()} if isinstance(margin, int | float) else set()
    if len(kinds) > 1:
        raise JudgedError("worse_by: shares and a mean differ in unit: write a table, as in {mean = 0.5}")
    return tuple(result)


_ADVICE = 'a release is judged by shares and means, so list one in asks, such as "24:" or "mean"'


def _is_linear(experiment: Experiment, ask: Ask) -> bool:
    if ask.kind == "share":
        return experiment.type != "text" and "ranges" in answerable_questions(experiment)
    return ask.kind == "mean"


def _check_name(field: str, name: str, questions: Mapping[str, Ask], linear: Mapping[str, Ask]) -> None:
    if name not in questions:
        raise JudgedError(f"{field}: {name:.40} is not one of the questions, {', '.join(questions)}")
    if name not in linear:
        raise JudgedError(f"{field}: {name:.40} is not a share or a mean; {_ADVICE}")


def _check_margin(ask: Ask, margin: float | None) -> None:
    if margin is None:
        return
    if not (margin > 0 and math.isfinite(margin)):
        raise JudgedError(f"worse_by must be above 0, not {margin:g}")
    if ask.kind == "share" and not margin < 1:
        raise JudgedError(f"worse_by of a share must be below 1, as 0.02 is 2 points, not {margin:g}")
