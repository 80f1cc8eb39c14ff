"""The standard library of questions about a fleet's health, and packs of them.

A question is an experiment file, std/NAME.toml. `customize` fills in its owner, its last day, and your
fleet's names and labels; device/health.py, clients/c/hushmote_health.h and clients/esphome read its value.
"""

import datetime
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..server.errors import UsageError
from ..server.experiments.asks import MAX_ASKS
from ..server.experiments.definition import Definition, parse

_FOLDER = Path(__file__).with_name("std")
QUESTION, PACK = "std:", "pack:"
"""The prefixes of a question and a pack where a command accepts an experiment's file."""

QUESTIONS = (
    "crashed",
    "update",
    "days_behind",
    "unreachable",
    "restart",
    "uptime",
    "signal",
    "heap_low",
    "boot_time",
    "battery_life",
    "chip",
    "feature",
    "setup_step",
)
"""The names of all questions."""

PACKS = {
    "release": ("crashed", "update", "days_behind"),
    "radio": ("unreachable", "signal", "boot_time"),
    "power": ("battery_life", "restart", "uptime"),
}
"""The questions of each pack."""

_FEATURE = "the feature"


def question_names(text: str) -> tuple[str, ...]:
    """Return the names of the questions that "std:NAME" or "pack:NAME" stands for, or () for a file.

    Raises:
        UsageError: If the library has no such question or pack.
    """
    for prefix, names in ((QUESTION, QUESTIONS), (PACK, PACKS)):
        name = text.removeprefix(prefix)
        if name == text:
            continue
        if name not in names:
            kind = "question" if prefix == QUESTION else "pack"
            raise UsageError(f"the library has no {kind} {name}; it has {', '.join(names)}")
        return (name,) if prefix == QUESTION else PACKS[name]
    return ()


def question_text(name: str) -> str:
    """Return the text of a question's file.

    Raises:
        UsageError: If the library has no such question.
    """
    (name,) = question_names(QUESTION + name)
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


@lru_cache
def question(name: str) -> Definition:
    """Return a question as it is in the library."""
    return parse(question_text(name))


def customize(
    name: str,
    *,
    owner: str = "",
    expires: datetime.date | None = None,
    every: int | None = None,
    cap: str = "",
    rename: str = "",
    labels: Sequence[str] = (),
) -> str:
    """Return the text of a question's file with your own values.

    Args:
        name: The question.
        owner: The person or team responsible.
        expires: The last day.
        every: One call in `every` makes a report.
        cap: The budget's cap, in nats.
        rename: The experiment's name; for a feature, the feature's name.
        labels: The labels of a choice.

    Raises:
        UsageError: If the question has no labels, or setup_step lacks "done".
    """
    text, definition = question_text(name), question(name)
    values = {
        "owner": owner and _quote(owner),
        "expires": expires and expires.isoformat(),
        "every": every and str(every),
        "cap": cap,
        "name": rename and _quote(rename),
    }
    if rename and name == "feature":
        text = text.replace(_FEATURE, rename)
    if labels:
        if definition.type != "choice":
            raise UsageError(f"std:{name} has no labels: omit --label")
        (first, *_), asks = definition.labels or ("",), definition.asks
        if asks and asks[0] == f"not {first}" and labels[0] != first:
            raise UsageError(f"std:{name} asks for the share that is not {first}: give --label {first} first")
        values["labels"] = _list(labels)
        if set(asks) <= {*(definition.labels or ())}:  # each label, or some of them
            selection = [label for label in labels if label in asks or name == "chip"]
            values["asks"] = _list(selection) if 0 < len(selection) <= MAX_ASKS else _list(["most common"])
        else:
            text = re.sub(r"^ranges = .*$", f"ranges = [[1, {len(labels) + 1}]]", text, flags=re.MULTILINE)
    for field, value in values.items():
        if value:
            line = f"{field} = {value}"
            text = re.sub(rf"^{field} = .*$", lambda _, line=line: line, text, count=1, flags=re.MULTILINE)
    return text


def question_of(name: str, purpose: str) -> str:
    """Return the question with which an experiment was added, or "" if it is not from the library.

    Args:
        name: The experiment's name.
        purpose: Its purpose; someone who changes it has made the question their own.
    """
    return next((q for q in QUESTIONS if _purpose(q, name) == purpose), "")


def _purpose(name: str, renamed: str) -> str:
    purpose = question(name).purpose
    return purpose.replace(_FEATURE, renamed) if name == "feature" else purpose


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _list(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"
