"""Defaults of an experiment's view, before a reader selects anything."""

import contextlib

import numpy as np

from ...server.answers.query import Selected
from ...server.answers.question import Question
from ...server.errors import HushmoteError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asks import asks_of
from ...server.experiments.units import index_names
from .choices import Choices


def with_opening(choices: Choices, of: Selected) -> Choices:
    """Return the choices, with a default range if the reader has selected none.

    It is the first share that the experiment's file asks for; otherwise yes, or the most common label in the
    chosen windows; for a number, none; for texts, those that the file lists. It may take an estimate.
    """
    return choices if choices.ranges else choices.asking(ranges=_opening(choices, of))


def _opening(choices: Choices, of: Selected) -> tuple[str, ...]:
    if "candidates" in of.can:
        return file_texts(of)
    if "ranges" not in of.can:
        return ()
    experiment = of.newest.experiment
    with contextlib.suppress(HushmoteError):  # the store's texts may be invalid
        for ask in asks_of(experiment, of.newest.asked.splitlines()):
            if ask.kind == "share":
                return (ask.text,)
    if experiment.type != "choice":
        return ()
    selection = choices.estimate(of).resolve(of.facts).selection
    try:
        frequencies = of.facts.selected(selection).estimate().frequencies
    except EstimateError:
        return ()
    return (index_names(experiment)[int(np.argmax(frequencies))],)


def file_texts(of: Selected) -> tuple[str, ...]:
    """Return the texts that the experiment's file lists."""
    return tuple(of.newest.asked.splitlines()) if "candidates" in of.can else ()


def without_file_texts(choices: Choices, of: Selected) -> Choices:
    """Return the choices without the texts that the file lists, which a command finds by itself."""
    texts = file_texts(of)
    return choices.asking(ranges=()) if texts and choices.ranges == texts else choices


def with_pair(question: Question, of: Selected) -> Question:
    """Return the question with the content of the first question in a pair's file."""
    if "pairs" in of.can:
        with contextlib.suppress(HushmoteError):  # the store's texts may be invalid
            ask = asks_of(of.newest.experiment, of.newest.asked.splitlines())[0]
            return question.replace(of=ask.of, given=ask.given)
    return question
