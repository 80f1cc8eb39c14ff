"""The questions that an experiment can answer: not every one estimates a share of each value."""

from collections.abc import Iterable, Sequence

from ...device.ldp_client import Experiment
from ..errors import HushmoteError
from ..mechanisms import mechanism_of

OF_VALUES = frozenset({"frequencies", "ranges", "quantiles", "mean"})
"""Questions about the shares of values."""

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
    """Raised if an experiment cannot answer a question; the message says what it answers."""


def answers_of(*versions: Experiment) -> frozenset[str]:
    """Return the kinds of questions that all these versions answer, by their type and mechanism.

    "frequencies", "ranges" (including labels), "quantiles" and "mean" are about values; "candidates" are
    shares of named texts, "discovery" means unknown texts, and "pairs" are shares of two or three readings
    together. Without "frequencies" there is no histogram of values, and the domain may be too large for an
    array.
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
    """Return a clause on the questions of an experiment: "delay answers only its mean"."""
    can = answers_of(*versions)
    listed = " and ".join(words for word, words in _ONLY.items() if word in can)
    some = any(_of_one(version) != can for version in versions)
    return f"{versions[-1].name} answers only {listed}" + (" in all of its versions" if some else "")


def require(versions: Sequence[Experiment], words: str | Iterable[str], instead: str = "") -> None:
    """Raise NotAnswered unless all versions answer one of these kinds of answers_of().

    Args:
        versions: The versions of the experiment.
        words: The kinds.
        instead: The advice after the colon.
    """
    if answers_of(*versions).isdisjoint([words] if isinstance(words, str) else words):
        only = answers_only(*versions)
        raise NotAnswered(f"{only}: {instead}" if instead else only)
