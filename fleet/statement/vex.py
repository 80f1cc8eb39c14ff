"""Read statements on vulnerabilities from an OpenVEX file."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...server.errors import UsageError, refusing

_CONTEXT = "https://openvex.dev/ns/"
_REASONS = ("justification", "impact_statement", "status_notes", "action_statement")


@dataclass(frozen=True)
class VexStatement:
    """A statement of an OpenVEX file about a vulnerability.

    Attributes:
        vulnerability: Its name, such as a CVE id.
        status: "not affected", "affected", "fixed" or "under investigation".
        reasons: The justification and the notes, as one text.
        source: The file's name.
    """

    vulnerability: str
    status: str
    reasons: str
    source: str


def read(path: Path) -> tuple[VexStatement, ...]:
    """Return the statements of an OpenVEX file.

    Raises:
        UsageError: If the file cannot be read, or is not OpenVEX.
    """
    with refusing(UsageError, f"read {path}"):
        content = path.read_bytes()
    try:
        document = json.loads(content)
        if not document["@context"].startswith(_CONTEXT):
            raise ValueError
        return tuple(_statements(document, path.name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            f"{path} is not an OpenVEX file: give JSON whose @context begins with {_CONTEXT}"
        ) from None


def _statements(document: dict[str, Any], source: str) -> Iterator[VexStatement]:
    for statement in document["statements"]:
        name = statement["vulnerability"]
        reasons = [_words(str(statement[key])) for key in _REASONS if statement.get(key)]
        yield VexStatement(
            str(name if isinstance(name, str) else name["name"]),
            _words(str(statement["status"])),
            "\n".join(reasons),
            source,
        )


def _words(text: str) -> str:
    """Return a label of OpenVEX, such as not_affected, in words; other texts are unchanged."""
    return text.replace("_", " ") if re.fullmatch("[a-z_]+", text) else text
