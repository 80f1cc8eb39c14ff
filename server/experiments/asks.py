"""What an experiment's file asks for with `asks`: the questions that its finding answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...device.ldp_client import Experiment
from ..mechanisms.views.factors import parts_of
from . import asking
from .cells import parse, part_number, where
from .units import UnitsError, index_names, parse_range

MOST_COMMON = "most common"
MEDIAN = "median"
_GIVEN = " given "

AskKind = Literal["share", "mean", "quantile", "most common", "texts", "pair", "named"]


@dataclass(frozen=True)
class Ask:
    """One question: its text in the file, and what it is of.

    level: of a quantile, from 0 to 1. of, given: of a pair, as `hushmote estimate --of --given` takes them.
    """

    text: str
    kind: AskKind
    level: float = 0.5
    of: str = ""
    given: tuple[str, ...] = ()


def asks_of(experiment: Experiment, texts: Sequence[str] = ()) -> tuple[Ask, ...]:
    """What is asked: the file's questions, or without any the usual one of the experiment's kind.

    That is the median of a number, or its mean; yes; the most common label; the last part of a pair given the
    first; the texts that most devices sent. Raises UnitsError or NotAnswered for one that does
    not fit.
    """
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
        of, _, given = text.partition(_GIVEN)
        conditions = tuple(one.strip() for one in given.split(",") if one.strip())
        if len(conditions) > 2:
            raise UnitsError(
                f"{text}: at most two conditions can be compared, as in version=1.2, version=1.3"
            )
        for one in (of.strip(), *conditions):
            (parse if "=" in one else part_number)(experiment, one)
        return Ask(text, "pair", of=of.strip(), given=conditions)
    if experiment.type == "text":
        asking.require([experiment], "candidates", "leave asks out")
        return Ask(text, "share")
    if experiment.type == "number" and text == "mean":
        asking.require([experiment], "mean", "leave it out of asks")
        return Ask(text, "mean")
    if experiment.type == "number" and (text == MEDIAN or (quantile := re.fullmatch(r"([\d.]+) ?%", text))):
        asking.require([experiment], "quantiles", "leave it out of asks")
        level = 0.5 if text == MEDIAN else float(quantile[1]) / 100  # pyright: ignore
        if not 0 < level < 1:
            raise UnitsError(f"a quantile is between 0 and 100 %, not {text}")
        return Ask(text, "quantile", level)
    if experiment.type == "choice" and text == MOST_COMMON:
        return Ask(text, MOST_COMMON)
    asking.require([experiment], "ranges", "leave asks out")
    parse_range(experiment, text)
    return Ask(text, "share")
