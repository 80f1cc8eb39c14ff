"""The questions in an experiment's file, `asks`, which its finding answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...device.ldp_client import Experiment
from ..mechanisms.views.factors import parts_of
from . import answerable
from .cells import parse, parts_in, where
from .units import UnitsError, index_names, parse_range

MOST_COMMON = "most common"
MEDIAN = "median"
MOST_ASKS = 8
"""The largest number of questions of a file; an experiment of texts may list more texts, as one question."""
_GIVEN = " given "

AskKind = Literal["share", "mean", "quantile", "most common", "texts", "pair", "named"]


@dataclass(frozen=True)
class Ask:
    """One question: its text in the file, and its subject.

    Attributes:
        text: The text in the file.
        kind: The kind of question.
        level: The level of a quantile, from 0 to 1.
        of: The target of a question about a pair, as in `hushmote estimate --of`.
        given: Its conditions, as in `hushmote estimate --given`.
        texts: The listed texts of which the most common one is sought; empty if the file lists none.
    """

    text: str
    kind: AskKind
    level: float = 0.5
    of: str = ""
    given: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def asks_of(experiment: Experiment, texts: Sequence[str] = ()) -> tuple[Ask, ...]:
    """Return the file's questions, or if there are none the default one for the experiment's type.

    The default is the median of a number, or its mean; yes; the most common label; the last part of a pair
    given the first; the texts that most devices sent. More than MOST_ASKS listed texts are one question:
    which of them is the most common.

    Raises:
        UnitsError: If a question does not fit the experiment's values.
        NotAnswered: If the experiment cannot answer a question.
    """
    if experiment.type == "text" and len(texts) > MOST_ASKS:
        answerable.require([experiment], "candidates", "leave candidates out")
        return (Ask(MOST_COMMON, "named", texts=tuple(texts)),)
    return tuple(_ask(experiment, text) for text in texts) if texts else (_usual(experiment),)


def _usual(experiment: Experiment) -> Ask:
    can = answerable.answers_of(experiment)
    if "pairs" in can:
        first, *_, last = parts_of(experiment)
        of = last.name if last.type == "number" else where(last, index_names(last)[last.type == "bool"])
        return Ask(f"{of}{_GIVEN}{first.name}", "pair", of=of, given=(first.name,))
    if "discovery" in can:
        return Ask("texts", "texts")
    if "candidates" in can:
        return Ask("texts", "named")
    if experiment.type == "bool":
        return Ask("yes", "share")
    if experiment.type == "number":
        return Ask(MEDIAN, "quantile") if "quantiles" in can else Ask("mean", "mean")
    return Ask(MOST_COMMON, MOST_COMMON)


def _ask(experiment: Experiment, text: str) -> Ask:
    if experiment.type == "pair":
        return _ask_of_pair(experiment, text)
    if experiment.type == "text" or "discovery" in answerable.answers_of(experiment):
        answerable.require([experiment], "candidates", "leave asks out")
        return Ask(text, "share")
    if experiment.type == "number" and text == "mean":
        answerable.require([experiment], "mean", "leave it out of asks")
        return Ask(text, "mean")
    percent = re.fullmatch(r"(\d+\.?\d*) ?%", text)
    if experiment.type == "number" and (percent or text == MEDIAN):
        answerable.require([experiment], "quantiles", "leave it out of asks")
        level = float(percent[1]) / 100 if percent else 0.5
        if not 0 < level < 1:
            raise UnitsError(f"a quantile is between 0 and 100%, not {text}")
        return Ask(text, "quantile", level)
    if experiment.type == "choice" and text == MOST_COMMON:
        return Ask(text, MOST_COMMON)
    answerable.require([experiment], "ranges", "leave asks out")
    parse_range(experiment, text)
    return Ask(text, "share")


def _ask_of_pair(experiment: Experiment, text: str) -> Ask:
    """Return the comparison of a finding; raise UnitsError if it does not have two sides."""
    of, _, given = (side.strip() for side in text.partition(_GIVEN))
    conditions = tuple(one.strip() for one in given.split(",") if one.strip())
    target_parts, *condition_parts = (parts_in(experiment, one) for one in (of, *conditions))
    sides = {parse(experiment, one).text for one in conditions if len(conditions) > 1}
    if ("=" in given) != (len(sides) == 2):
        raise UnitsError(f"{text}: name a part, or two conditions that differ, as in a=1, a=2")
    if "=" not in of and parts_of(experiment)[target_parts[0]].type == "choice":
        raise UnitsError(f"{text}: say which {of}, as in {of}=VALUE")
    targets = set(target_parts)
    if not targets.isdisjoint(sum(condition_parts, ())) or len(targets) == len(parts_of(experiment)):
        raise UnitsError(f"{text}: what is asked and what is given must be different parts")
    return Ask(text, "pair", of=of, given=conditions)
