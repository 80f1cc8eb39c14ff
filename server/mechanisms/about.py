"""What a mechanism's own file says about it: the paragraphs of its docstring, in the field's words."""

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

    what      it is
    privacy   why ε holds
    utility   what it is good for
    cost      codes, and work of board and server
    auto      what the mechanism "auto" of an experiment's file picks it for
    citation  where it was published
    """

    what: str
    privacy: str = ""
    utility: str = ""
    cost: str = ""
    auto: str = ""
    citation: str = ""


def said_of(mechanism: Mechanism) -> str:
    """Say in a sentence for people how a device answers; by default the first sentence of its docstring."""
    return mechanism.plainly or about(type(mechanism)).what


def about(mechanism: type[Mechanism]) -> About:
    """Read the docstring with these parts: the class's or its module's."""
    of_class, of_module = inspect.cleandoc(mechanism.__doc__ or ""), sys.modules[mechanism.__module__].__doc__
    text = of_module if of_module and not _PART.search(of_class) and _PART.search(of_module) else of_class
    what, *parts = _PART.split(text)
    said = dict(zip(parts[::2], map(_joined, parts[1::2]), strict=True))
    # A module begins with the word that an experiment has: "olh: the value's cell ...".
    what = _joined(what)
    head, colon, rest = what.partition(": ")
    what = rest if colon and len(head) < 20 else what
    return About(what[:1].upper() + what[1:], *(said.get(part, "") for part in _PARTS))


def _joined(text: str) -> str:
    """Return the first paragraph as one line."""
    return " ".join(text.strip().partition("\n\n")[0].split())
