"""Defaults for the experiment view, before a reader selects anything."""

import contextlib

import numpy as np

from ...server.answers.query import Selected
from ...server.answers.question import Question
from ...server.errors import HushmoteError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asks import asks_of
from ...server.experiments.units import index_names
from .choices import Choices, answering_experiment


def with_defaults(choices: Choices, selected: Selected) -> Choices:
    """Return the choices with default ranges if the reader has selected none.

    The default is the first share that the experiment's file asks for. Without one, it is "yes" or the most
    common label in the chosen windows, which may need an estimate. For texts, it is the file's texts; for a
    number, nothing is selected.
    """
    return choices if choices.ranges else choices.with_fields(ranges=_default_ranges(choices, selected))


def _default_ranges(choices: Choices, selected: Selected) -> tuple[str, ...]:
    if "candidates" in selected.answerable:
        return file_texts(selected)
    if "ranges" not in selected.answerable:
        return ()
    experiment = selected.newest.experiment
    with contextlib.suppress(HushmoteError):  # the store's texts may be invalid
        for ask in asks_of(experiment, selected.newest.asked.splitlines()):
            if ask.kind == "share":
                return (ask.text,)
    if experiment.type != "choice":
        return ()
    selection = choices.estimate(selected).resolve(selected.facts).selection
    try:
        frequencies = selected.facts.selected(selection).estimate().frequencies
    except EstimateError:
        return ()
    return (index_names(answering_experiment(selected, selection))[int(np.argmax(frequencies))],)


def file_texts(selected: Selected) -> tuple[str, ...]:
    """Return the texts that the experiment's file lists."""
    return tuple(selected.newest.asked.splitlines()) if "candidates" in selected.answerable else ()


def without_file_texts(choices: Choices, selected: Selected) -> Choices:
    """Return the choices without the file's texts, which a command reads from the store."""
    texts = file_texts(selected)
    return choices.with_fields(ranges=()) if texts and choices.ranges == texts else choices


def with_pair(question: Question, selected: Selected) -> Question:
    """Return the question with the fields of the first question in a pair's file."""
    if "pairs" in selected.answerable:
        with contextlib.suppress(HushmoteError):  # the store's texts may be invalid
            ask = asks_of(selected.newest.experiment, selected.newest.asked.splitlines())[0]
            return question.replace(of=ask.of, given=ask.given)
    return question
