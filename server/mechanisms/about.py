"""A mechanism's description: the sections of its docstring."""

import inspect
import re
import sys
from dataclasses import dataclass

from .mechanism import Mechanism

_PARTS = ("Privacy", "Utility", "Cost", "Auto", "Citation")
_PART = re.compile(rf"\b({'|'.join(_PARTS)}):\s")


@dataclass(frozen=True)
class About:
    """Sentences about a mechanism, each "" if its docstring lacks the section.

    Attributes:
        what: A one-line definition.
        privacy: Why ε holds.
        utility: Its strengths.
        cost: Codes, and the work of board and server.
        auto: The questions for which the mechanism "auto" of an experiment's file selects it.
        citation: Its publication.
    """

    what: str
    privacy: str = ""
    utility: str = ""
    cost: str = ""
    auto: str = ""
    citation: str = ""


def plain_description(mechanism: Mechanism) -> str:
    """Return a sentence for lay readers on how a device answers, by default from the docstring."""
    return mechanism.plainly or about(type(mechanism)).what


def about(mechanism: type[Mechanism]) -> About:
    """Return the sections of the class's docstring, or of its module's if only that has sections."""
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
    return " ".join(text.strip().partition("\n\n")[0].split())
