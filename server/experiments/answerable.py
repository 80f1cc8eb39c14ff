"""The questions that an experiment can answer; not every experiment can estimate each value's share."""

from collections.abc import Iterable, Sequence

from ...device.ldp_client import Experiment
from ..errors import HushmoteError
from ..mechanisms import mechanism_of
from ..wire.experiments import scale_of

OF_VALUES = frozenset({"frequencies", "ranges", "quantiles", "mean"})
"""Questions about the shares of values."""

_OF_LABELS = frozenset({"frequencies", "ranges"})
_ONLY = {
    "candidates": "the shares of texts that you name",
    "discovery": "which texts many boards sent",
    "pairs": "shares of its readings, jointly and separately",
    "ranges": "shares",
    "quantiles": "quantiles",
    "mean": "its mean",
}


class UnanswerableError(HushmoteError):
    """Raised if an experiment cannot answer a question; the message lists the questions it can answer."""


def answerable_questions(*versions: Experiment) -> frozenset[str]:
    """Return the kinds of questions that all these versions can answer with their types and mechanisms.

    "frequencies", "ranges" (including labels), "quantiles" and "mean" are about values; "candidates" are
    shares of named texts, "discovery" finds unknown texts, and "pairs" are joint shares of two or three
    readings. Without "frequencies", the experiment has no histogram of values, and the domain may be too
    large for an array.
    """
    return frozenset.intersection(*map(_version_questions, versions))


def _version_questions(experiment: Experiment) -> frozenset[str]:
    if experiment.type == "pair":
        return frozenset({"pairs"})
    answers = mechanism_of(experiment).answers
    if scale_of(experiment) and "frequencies" not in answers:
        answers -= {"mean"}  # without shares, only the mean of equal bins can be estimated
    if experiment.type == "number" or "discovery" in answers:
        return answers
    if experiment.type == "text":
        return frozenset({"candidates"}) if "frequencies" in answers else frozenset()
    return answers & _OF_LABELS


def answers_only(*versions: Experiment) -> str:
    """Return a clause that lists the answerable questions, such as "delay answers only its mean"."""
    questions = answerable_questions(*versions)
    words = [words for word, words in _ONLY.items() if word in questions]
    text = " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
    versions_differ = any(_version_questions(version) != questions for version in versions)
    return f"{versions[-1].name} answers only {text}" + (" in all of its versions" if versions_differ else "")


def require(versions: Sequence[Experiment], words: str | Iterable[str], instead: str = "") -> None:
    """Raise UnanswerableError unless all versions answer one of these kinds of questions.

    Args:
        versions: The experiment's versions.
        words: The kinds, as in answerable_questions().
        instead: Advice to append to the message after a colon.
    """
    if answerable_questions(*versions).isdisjoint([words] if isinstance(words, str) else words):
        only = answers_only(*versions)
        raise UnanswerableError(f"{only}: {instead}" if instead else only)
