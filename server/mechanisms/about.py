"""Extract a mechanism's description from the sections of its docstring."""

import inspect
import re
import sys
from dataclasses import dataclass

from .mechanism import Mechanism

_PARTS = ("Privacy", "Utility", "Cost", "Auto", "Citation")
_PART = re.compile(rf"\b({'|'.join(_PARTS)}):\s")


@dataclass(frozen=True)
class About:
    """A mechanism's description; an attribute is "" if the docstring does not have that section.

    Attributes:
        what: A one-line definition.
        privacy: Why a report satisfies ε.
        utility: The mechanism's strengths.
        cost: The number of codes, and the work for the board and the server.
        auto: The questions for which "auto" in an experiment file selects the mechanism.
        citation: The publication.
    """

    what: str
    privacy: str = ""
    utility: str = ""
    cost: str = ""
    auto: str = ""
    citation: str = ""


def plain_description(mechanism: Mechanism) -> str:
    """Return a sentence that explains to lay readers how a device answers, by default from the docstring."""
    return mechanism.plainly or about(type(mechanism)).what


def about(mechanism: type[Mechanism]) -> About:
    """Return the sections of the class docstring, or of the module docstring if only that has sections."""
    class_doc, module_doc = (
        inspect.cleandoc(mechanism.__doc__ or ""),
        sys.modules[mechanism.__module__].__doc__,
    )
    text = (
        module_doc if module_doc and not _PART.search(class_doc) and _PART.search(module_doc) else class_doc
    )
    what, *parts = _PART.split(text)
    sections = dict(zip(parts[::2], map(_first_paragraph, parts[1::2]), strict=True))
    # A module docstring starts with the mechanism's name: "olh: the value's cell ...".
    what = _first_paragraph(what)
    head, colon, description = what.partition(": ")
    what = description if colon and len(head) < 20 else what
    return About(what[:1].upper() + what[1:], *(sections.get(part, "") for part in _PARTS))


def _first_paragraph(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())
