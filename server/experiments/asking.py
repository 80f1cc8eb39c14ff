"""What an experiment can be asked: not every one has a share for each value of its readings."""

from collections.abc import Iterable, Sequence

from ...device.ldp_client import Experiment
from ..errors import HushmoteError
from ..mechanisms import mechanism_of

OF_VALUES = frozenset({"frequencies", "ranges", "quantiles", "mean"})
"""What is asked of shares of the values that a reading can have."""

_OF_LABELS = frozenset({"frequencies", "ranges"})
_ONLY = {
    "candidates": "the shares of texts that you name",
    "discovery": "which texts many boards sent",
    "pairs": "shares of its readings together and of each by itself",
    "ranges": "shares",
    "quantiles": "quantiles",
    "mean": "its mean",
}


class NotAnswered(HushmoteError):
    """A question that an experiment has no answer to; the text says what it answers."""


def answers_of(*versions: Experiment) -> frozenset[str]:
    """Words for what an experiment answers, by its type and its mechanism: what all these versions do.

    "frequencies", "ranges" (labels are such), "quantiles" and "mean" are of the values; "candidates" are
    shares of texts that somebody names, "discovery" is texts that nobody named, and "pairs" are shares of two
    or three readings together. Without "frequencies" there is no histogram of values, and the domain may be
    larger than any array.
    """
    return frozenset.intersection(*map(_of_one, versions))


def _of_one(experiment: Experiment) -> frozenset[str]:
    if experiment.type == "pair":
        return frozenset({"pairs"})
    answers = mechanism_of(experiment).answers
    if experiment.type == "number" or "discovery" in answers:
        return answers
    if experiment.type == "text":
        return frozenset({"candidates"}) if "frequencies" in answers else frozenset()
    return answers & _OF_LABELS


def answers_only(*versions: Experiment) -> str:
    """A clause on what an experiment answers: "delay answers only its mean"."""
    can = answers_of(*versions)
    listed = " and ".join(words for word, words in _ONLY.items() if word in can)
    some = any(_of_one(version) != can for version in versions)
    return f"{versions[-1].name} answers only {listed}" + (" in all of its versions" if some else "")


def require(versions: Sequence[Experiment], words: str | Iterable[str], instead: str = "") -> None:
    """Raise NotAnswered where versions do not all answer one of the words of answers_of().

    instead: what to do, as it stands after the colon.
    """
    if answers_of(*versions).isdisjoint([words] if isinstance(words, str) else words):
        only = answers_only(*versions)
        raise NotAnswered(f"{only}: {instead}" if instead else only)
