"""`hushmote plan` without options: five questions in words, a recommendation, an experiment's file."""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from ...server.answers import tables as show
from ...server.epsilon import MICRO
from ...server.errors import HushmoteError, UsageError
from ...server.planning import experiment_file, sentences
from ...server.planning.experiment_file import Reading, name_from
from ...server.planning.lifetime import LifetimePlan
from ...server.planning.wish import (
    Asked,
    Wish,
    parse_asked,
    parse_belief,
    parse_devices,
    parse_reading,
    parse_rhythm,
    plan_for,
)
from ...server.planning.words import asked as asked_of
from .. import output
from ..progress import progress
from .options import EXPERIMENT, PlanOptions

T = TypeVar("T")
Ask = Callable[[str, str], str]
"""Shows a question, and returns what is answered; the second text is what Enter stands for."""

_READ = (
    "1. What does a board read? Write yes/no, labels (heating, cooling, idle), or a range with its unit"
    " (-30 to 34 °C)."
)
_DEVICES = "2. How many boards are there?"
_SHARE = (
    "3. How exactly do you want to know the share of boards that say {what}? Write ± how many % of the"
    " boards."
)
_NUMBER = (
    "3. What do you want to learn, and how exactly? Write above 8, below 5, 18 to 22, the mean, the median,"
    " 90 % quantile or everything, then ± how many % of the boards, or of the range for the mean. Example:"
    " above 8 to 5 %."
)
_BELIEF = (
    "4. How much may anybody learn of one household from all that its board ever sends? Say somebody gives a"
    " reading 10 chances in 100 beforehand. How many in 100 may he give it afterwards, at most?"
)
_RHYTHM = "5. For how long do you want to ask, and how often does a board look at its reading?"


def plan(options: PlanOptions) -> None:
    """Ask, plan, recommend and write. Raises UsageError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "give three of --devices, --epsilon, --bins (or --labels, --yes-no) and --error; on a terminal, "
            "plan without options asks"
        )
    paths = output.checked(options.output or [_new_file()], options.force, EXPERIMENT)
    show.out.print(
        "Five questions. Enter takes what stands in brackets; Ctrl-C ends without writing anything."
    )
    wish = asked(_on_terminal)
    with progress("comparing ways to spend the budget", None):
        life = plan_for(wish)
    named = dataclasses.replace(options, purpose=options.purpose or wish.asked.purpose)
    for path in output.checked(paths, options.force, EXPERIMENT):
        output.write(path, experiment_file.of_life(life, wish.asked.reading, named.named(path)))
    name = options.name or name_from(paths[0])
    for line in recommendation(wish, life, paths[0], name):
        show.out.print(line)


def _on_terminal(question: str, default: str) -> str:
    show.out.print(f"\n{question}")
    return typer.prompt(" ", default=default, prompt_suffix="> ")


def _new_file() -> Path:
    """plan.toml, or the first of plan_2.toml, plan_3.toml, ... that is not there."""
    names = itertools.chain(["plan.toml"], (f"plan_{n}.toml" for n in itertools.count(2)))
    return next(path for path in map(Path, names) if not path.exists())


def asked(ask: Ask) -> Wish:
    """Ask the five questions, each until its answer is understood."""
    reading = _until_understood(ask, _READ, "yes/no", parse_reading)
    devices = _until_understood(ask, _DEVICES, "1,000", parse_devices)
    question, default = _what(reading)
    learned = _until_understood(ask, question, default, lambda text: parse_asked(text, reading))
    total = _until_understood(ask, _BELIEF, "46", parse_belief)
    rhythm = _until_understood(ask, _RHYTHM, "2 years, every hour", parse_rhythm)
    return Wish(learned, devices, total, rhythm)


def _what(reading: Reading) -> tuple[str, str]:
    if reading.bins:
        return _NUMBER, "everything to 5 %"
    return _SHARE.format(what="yes" if reading.yes_no else "each label"), "5 %"


def _until_understood(ask: Ask, question: str, default: str, parse: Callable[[str], T]) -> T:
    while True:
        try:
            return parse(ask(question, default))
        except HushmoteError as e:
            question = f"Not understood: {e}."


def recommendation(wish: Wish, life: LifetimePlan, path: Path, name: str) -> list[str]:
    """How private, how exact, what it costs and what to do next, as sentences. name: the experiment's."""
    best, file = life.best, shlex.quote(str(path))
    total = f"{best.cap * best.epsilon / MICRO:g}"
    learned = wish.asked.purpose
    if _turned(wish.asked):
        learned += (
            " Boards answer it with yes or no, and send no number: that is all you asked, and costs least."
        )
    return [
        f"\n{learned}",
        f"\nHow private: {sentences.privacy(life)} That is ε = {total} for a board's life, and it holds"
        " against everybody, the broker included. Each board keeps count in its flash, and no server can"
        " raise it.",
        f"\nHow exact: {sentences.exactness(life, wish.asked.error, _known(wish.asked))}{_more(wish, life)}",
        f"\nWhat it costs: {sentences.cost(life)}",
        f"\nWhat next: {file} is written. Put its owner into it, and then",
        f"  hushmote experiment show {file}",
        f"  hushmote simulate {file} --devices {wish.devices} --calls {life.rhythm.calls}",
        f"  hushmote budget policy --epsilon {total} --experiments {name}",
    ]


def _known(learned: Asked) -> str:
    """What the error is of, in words."""
    if learned.reading.yes_no:
        return "share"
    return "share of one label" if learned.reading.labels else asked_of(learned.question)


def _more(wish: Wish, life: LifetimePlan) -> str:
    """What would make it exact enough, if it is not."""
    if any(life.error(life.best, days) <= wish.asked.error for days in life.windows().values()):
        return ""
    return (
        " Or ask for a shorter time, so that reports come closer together, or allow more to be learned of"
        " one household."
    )


def _turned(learned: Asked) -> bool:
    """Whether a number became a yes or no."""
    return learned.reading.yes_no and " reads " in learned.purpose
