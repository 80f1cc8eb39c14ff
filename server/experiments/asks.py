"""What an experiment's file asks for with `asks`: the questions that its finding answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...device.ldp_client import Experiment
from ..mechanisms.views.factors import parts_of
from . import asking
from .cells import parse, parts_in, where
from .units import UnitsError, index_names, parse_range

MOST_COMMON = "most common"
MEDIAN = "median"
MOST_ASKS = 8
"""Questions of a file; a text may list more texts, which are then one question."""
_GIVEN = " given "

AskKind = Literal["share", "mean", "quantile", "most common", "texts", "pair", "named"]


@dataclass(frozen=True)
class Ask:
    """One question: its text in the file, and what it is of.

    level: of a quantile, from 0 to 1. of, given: of a pair, as `hushmote estimate --of --given` takes them.
    texts: of named texts, among which the most common one is looked for; none if the file lists none.
    """

    text: str
    kind: AskKind
    level: float = 0.5
    of: str = ""
    given: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


def asks_of(experiment: Experiment, texts: Sequence[str] = ()) -> tuple[Ask, ...]:
    """What is asked: the file's questions, or without any the usual one of the experiment's kind.

    That is the median of a number, or its mean; yes; the most common label; the last part of a pair given the
    first; the texts that most devices sent. Raises UnitsError or NotAnswered for one that does
    not fit. More than MOST_ASKS listed texts are one question: which of them is the most common.
    """
    if experiment.type == "text" and len(texts) > MOST_ASKS:
        asking.require([experiment], "candidates", "leave candidates out")
        return (Ask(MOST_COMMON, "named", texts=tuple(texts)),)
    return tuple(_ask(experiment, text) for text in texts) if texts else (_usual(experiment),)


def _usual(experiment: Experiment) -> Ask:
    can = asking.answers_of(experiment)
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
    if experiment.type == "text" or "discovery" in asking.answers_of(experiment):
        asking.require([experiment], "candidates", "leave asks out")
        return Ask(text, "share")
    if experiment.type == "number" and text == "mean":
        asking.require([experiment], "mean", "leave it out of asks")
        return Ask(text, "mean")
    percent = re.fullmatch(r"(\d+\.?\d*) ?%", text)
    if experiment.type == "number" and (percent or text == MEDIAN):
        asking.require([experiment], "quantiles", "leave it out of asks")
        level = float(percent[1]) / 100 if percent else 0.5
        if not 0 < level < 1:
            raise UnitsError(f"a quantile is between 0 and 100 %, not {text}")
        return Ask(text, "quantile", level)
    if experiment.type == "choice" and text == MOST_COMMON:
        return Ask(text, MOST_COMMON)
    asking.require([experiment], "ranges", "leave asks out")
    parse_range(experiment, text)
    return Ask(text, "share")


def _ask_of_pair(experiment: Experiment, text: str) -> Ask:
    """What the finding compares; UnitsError where there are no two sides to it."""
    of, _, given = (side.strip() for side in text.partition(_GIVEN))
    conditions = tuple(one.strip() for one in given.split(",") if one.strip())
    asked, *told = (parts_in(experiment, one) for one in (of, *conditions))
    compared = {parse(experiment, one).text for one in conditions if len(conditions) > 1}
    if ("=" in given) != (len(compared) == 2):
        raise UnitsError(f"{text}: name a part, or two conditions that differ, as in a=1, a=2")
    if "=" not in of and parts_of(experiment)[asked[0]].type == "choice":
        raise UnitsError(f"{text}: say which {of}, as in {of}=VALUE")
    if not {*asked}.isdisjoint(sum(told, ())) or len({*asked}) == len(parts_of(experiment)):
        raise UnitsError(f"{text}: what is asked and what is given must be different parts")
    return Ask(text, "pair", of=of, given=conditions)
