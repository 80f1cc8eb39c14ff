"""A mechanism's description: the paragraphs of its docstring."""

import inspect
import re
import sys
from dataclasses import dataclass

from .mechanism import Mechanism

_PARTS = ("Privacy", "Utility", "Cost", "Auto", "Citation")
_PART = re.compile(rf"\b({'|'.join(_PARTS)}):\s")


@dataclass(frozen=True)
class About:
    """Sentences about a mechanism; a part that its docstring lacks is empty.

    what      a one-line definition
    privacy   why ε holds
    utility   its strengths
    cost      codes, and the work of board and server
    auto      the questions for which the mechanism "auto" of an experiment's file selects it
    citation  its publication
    """

    what: str
    privacy: str = ""
    utility: str = ""
    cost: str = ""
    auto: str = ""
    citation: str = ""


def plain_description(mechanism: Mechanism) -> str:
    """Return a sentence for readers on how a device answers; by default from the mechanism's docstring."""
    return mechanism.plainly or about(type(mechanism)).what


def about(mechanism: type[Mechanism]) -> About:
    """Read the docstring with these parts: the class's or its module's."""
    of_class, of_module = inspect.cleandoc(mechanism.__doc__ or ""), sys.modules[mechanism.__module__].__doc__
    text = of_module if of_module and not _PART.search(of_class) and _PART.search(of_module) else of_class
    what, *parts = _PART.split(text)
    sections = dict(zip(parts[::2], map(_first_paragraph, parts[1::2]), strict=True))
    # A module's docstring starts with the mechanism's name: "olh: the value's cell ...".
    what = _first_paragraph(what)
    head, colon, rest = what.partition(": ")
    what = rest if colon and len(head) < 20 else what
    return About(what[:1].upper() + what[1:], *(sections.get(part, "") for part in _PARTS))


def _first_paragraph(text: str) -> str:
    """Return the first paragraph as one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())
