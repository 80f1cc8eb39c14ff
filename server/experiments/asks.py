"""The questions in an experiment file (`asks`), which the experiment's finding answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...device.ldp_client import Experiment
from ..mechanisms.views.factors import parts_of
from ..typed_numbers import typed_share
from . import answerable
from .cells import parse, parts_in, where
from .units import UnitsError, index_names, is_range, parse_range, range_limits

MOST_COMMON = "most common"
MEDIAN = "median"
MAX_ASKS = 8
"""The largest number of questions in a file; a text experiment may list more texts as a single question."""
_GIVEN = " given "

AskKind = Literal["share", "mean", "quantile", "most common", "texts", "pair", "named"]


@dataclass(frozen=True)
class Ask:
    """A question from an experiment file.

    Attributes:
        text: The question as written in the file.
        kind: The kind of question.
        level: A quantile's level, from 0 to 1.
        of: A pair question's target, as in `hushmote estimate --of`.
        given: A pair question's conditions, as in `hushmote estimate --given`.
        texts: The listed texts among which to find the most common; empty if the file lists no texts.
    """

    text: str
    kind: AskKind
    level: float = 0.5
    of: str = ""
    given: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def asks_of(
    experiment: Experiment, texts: Sequence[str] = (), answers: frozenset[str] | None = None
) -> tuple[Ask, ...]:
    """Return the file's questions, or by default the usual question for the experiment's type.

    The default is a number's median or mean, the share of yes for a bool, a choice's most common label, a
    pair's last part given the first, or the texts that most devices sent. More than MAX_ASKS listed texts
    become a single question about the most common of them.

    Args:
        experiment: The experiment.
        texts: The file's questions.
        answers: What its versions answer together, as in answerable_questions(); None for this version alone.

    Raises:
        UnitsError: If a question does not fit the experiment's values.
        UnanswerableError: If the experiment cannot answer a question.
    """
    if experiment.type == "text" and len(texts) > MAX_ASKS:
        answerable.require([experiment], "candidates", "omit candidates")
        return (Ask(MOST_COMMON, "named", texts=tuple(texts)),)
    if texts:
        return tuple(_ask(experiment, text) for text in texts)
    return (_default_ask(experiment, answers or answerable.answerable_questions(experiment)),)


def check_limits(experiment: Experiment, texts: Sequence[str], unit: str) -> None:
    """Check that a number's range of readings includes the limits of its questions.

    Raises:
        UnitsError: If a limit is outside, for example because it is in another unit.
    """
    if experiment.type != "number":
        return
    low, high = experiment.low / 1000, experiment.high / 1000
    for text in filter(is_range, texts):
        for limit in range_limits(text):
            if math.isfinite(limit) and not low <= limit <= high:
                readings = f"{low:g} to {high:g} {unit}".rstrip()
                raise UnitsError(
                    f"{text} has the limit {limit:g}, but readings are from {readings}: omit the limit, or "
                    "write it in the same unit"
                )


def _default_ask(experiment: Experiment, answers: frozenset[str]) -> Ask:
    if "pairs" in answers:
        first, *_, last = parts_of(experiment)
        target = last.name if last.type == "number" else where(last, index_names(last)[last.type == "bool"])
        return Ask(f"{target}{_GIVEN}{first.name}", "pair", of=target, given=(first.name,))
    if "discovery" in answers:
        return Ask("texts", "texts")
    if "candidates" in answers:
        return Ask("texts", "named")
    if experiment.type == "bool":
        return Ask("yes", "share")
    if experiment.type == "number":
        return Ask(MEDIAN, "quantile") if "quantiles" in answers else Ask("mean", "mean")
    return Ask(MOST_COMMON, MOST_COMMON)


def _ask(experiment: Experiment, text: str) -> Ask:
    if experiment.type == "pair":
        return _ask_of_pair(experiment, text)
    if experiment.type == "text" or "discovery" in answerable.answerable_questions(experiment):
        answerable.require([experiment], "candidates", "omit asks")
        return Ask(text, "share")
    if experiment.type == "number" and text == "mean":
        answerable.require([experiment], "mean", "omit it from asks")
        return Ask(text, "mean")
    level = 0.5 if text == MEDIAN else _percent(text)
    if experiment.type == "number" and level is not None:
        answerable.require([experiment], "quantiles", "omit it from asks")
        if not 0 < level < 1:
            raise UnitsError(f"a quantile must be between 0 and 100%, not {text}")
        return Ask(text, "quantile", level)
    if experiment.type == "choice" and text == MOST_COMMON:
        return Ask(text, MOST_COMMON)
    answerable.require([experiment], "ranges", "omit asks")
    parse_range(experiment, text)
    return Ask(text, "share")


def _percent(text: str) -> float | None:
    try:
        return typed_share(text) if text.endswith("%") else None
    except ValueError:
        return None


def _ask_of_pair(experiment: Experiment, text: str) -> Ask:
    """Return the comparison in a pair question; raise UnitsError if it does not have two sides."""
    target, _, given = (side.strip() for side in text.partition(_GIVEN))
    conditions = tuple(text.strip() for text in given.split(",") if text.strip())
    target_parts, *condition_parts = (parts_in(experiment, name) for name in (target, *conditions))
    sides = {parse(experiment, condition).text for condition in conditions if len(conditions) > 1}
    if ("=" in given) != (len(sides) == 2):
        raise UnitsError(f"{text}: name a part, or two conditions that differ, as in a=1, a=2")
    if "=" not in target and parts_of(experiment)[target_parts[0]].type == "choice":
        raise UnitsError(f"{text}: say which {target}, as in {target}=VALUE")
    targets = set(target_parts)
    if not targets.isdisjoint(sum(condition_parts, ())) or len(targets) == len(parts_of(experiment)):
        raise UnitsError(f"{text}: the target and the condition must be different parts")
    return Ask(text, "pair", of=target, given=conditions)
