"""What an experiment can be asked: not every one has a share for each value of its readings."""

from __future__ import annotations

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


def answers_of(experiment: Experiment) -> frozenset[str]:
    """Words for what an experiment answers, by its type and its mechanism.

    "frequencies", "ranges" (labels are such), "quantiles" and "mean" are of the values; "candidates" are
    shares of texts that somebody names, "discovery" is texts that nobody named, and "pairs" are shares of two
    or three readings together. Without "frequencies" there is no histogram of values, and the domain may be
    larger than any array.
    """
    if experiment.type == "text":
        return frozenset({"discovery" if experiment.mechanism == "prefix" else "candidates"})
    if experiment.type == "pair":
        return frozenset({"pairs"})
    answers = mechanism_of(experiment).answers
    return answers if experiment.type == "number" else answers & _OF_LABELS


def answers_only(experiment: Experiment) -> str:
    """What an experiment answers, as a sentence goes on after "answers only"."""
    return " and ".join(words for word, words in _ONLY.items() if word in answers_of(experiment))


def require(experiment: Experiment, word: str, instead: str = "") -> None:
    """Raise NotAnswered where an experiment does not answer a word of answers_of(); instead: what to do."""
    if word not in answers_of(experiment):
        only = f"{experiment.name} answers only {answers_only(experiment)}"
        raise NotAnswered(f"{only}: {instead}" if instead else only)
