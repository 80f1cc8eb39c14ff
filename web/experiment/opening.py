"""What an experiment's view opens with, before a reader selects anything."""

import contextlib
from dataclasses import replace

import numpy as np

from ...server.answers.pair_tables import NO_QUESTION, PairQuestion
from ...server.answers.query import Selected
from ...server.errors import HushmoteError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asks import asks_of
from ...server.experiments.units import index_names
from .choices import Choices


def with_opening(choices: Choices, of: Selected) -> Choices:
    """Return the choices, with the range that a view opens with if a reader has selected none.

    That is the first share that the experiment's file asks for; otherwise yes, or the most common label in
    the chosen windows; of a number nothing; of texts those that the file lists. It may take an estimate.
    """
    return choices if choices.ranges else replace(choices, ranges=_opening(choices, of))


def _opening(choices: Choices, of: Selected) -> tuple[str, ...]:
    if "candidates" in of.can:
        return file_texts(of)
    if "ranges" not in of.can:
        return ()
    experiment = of.newest.experiment
    with contextlib.suppress(HushmoteError):  # the words in a store may be anybody's
        for ask in asks_of(experiment, of.newest.asked.splitlines()):
            if ask.kind == "share":
                return (ask.text,)
    if experiment.type != "choice":
        return ()
    selection = replace(of.selection, windows=choices.windows, version=choices.version)
    try:
        frequencies = of.facts.selected(selection).estimate().frequencies
    except EstimateError:
        return ()
    return (index_names(experiment)[int(np.argmax(frequencies))],)


def file_texts(of: Selected) -> tuple[str, ...]:
    """Return the texts that the experiment's file lists, to look for."""
    return tuple(of.newest.asked.splitlines()) if "candidates" in of.can else ()


def without_file_texts(choices: Choices, of: Selected) -> Choices:
    """Return the choices without the texts that the file lists: a command finds those by itself."""
    texts = file_texts(of)
    return replace(choices, ranges=()) if texts and choices.ranges == texts else choices


def pair_question(of: Selected) -> PairQuestion:
    """Return what the first question of a pair's file asks; of another experiment nothing."""
    if "pairs" not in of.can:
        return NO_QUESTION
    with contextlib.suppress(HushmoteError):  # the words in a store may be anybody's
        ask = asks_of(of.newest.experiment, of.newest.asked.splitlines())[0]
        match ask.given:
            case (first, second):
                return PairQuestion(ask.of, versus=(first, second))
            case given:
                return PairQuestion(ask.of, "".join(given))
    return NO_QUESTION
