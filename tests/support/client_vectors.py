"""The test vectors that apply to a client other than MicroPython's, by its types and mechanisms.

The table is in clients/README.md; a test compares it with the clients.
"""

import json
import re
from pathlib import Path
from typing import Any, Literal

Client = Literal["C", "JavaScript"]

_ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| (type|mechanism) `(\w+)` \| \w+ \| (\w+) \| (\w+) \|$", re.MULTILINE)
_MISSING: dict[Client, set[tuple[str, str]]] = {"C": set(), "JavaScript": set()}
for _kind, _word, _c, _javascript in _ROW.findall((_ROOT / "clients/README.md").read_text("utf-8")):
    _MISSING["C"] |= {(_kind, _word)} if _c == "no" else set()
    _MISSING["JavaScript"] |= {(_kind, _word)} if _javascript == "no" else set()


def has(client: Client, payload: str) -> bool:
    """Return whether a client supports the type and mechanism in an experiment's JSON."""
    fields = json.loads(payload)
    return not {(kind, fields[kind]) for kind in ("type", "mechanism")} & _MISSING[client]


def vectors(client: Client, *names: str) -> dict[str, list[Any]]:
    """Return the vector files' sections, without experiments that the client does not support.

    Args:
        client: The client under test.
        *names: Names of files in tests/, such as vectors.json.
    """
    sections: dict[str, list[Any]] = {}
    for name in names:
        for section, cases in json.loads((_ROOT / "tests" / name).read_text("utf-8")).items():
            sections.setdefault(section, []).extend(cases)
    missing = [case for case in sections.get("experiments", []) if not has(client, case["payload"])]
    payloads = {case["payload"] for case in missing}
    digests = {case["sha256"][:8] for case in missing}
    for section in ("experiments", "codes", "buckets", "reports"):
        if section in sections:
            sections[section] = [
                case
                for case in sections[section]
                if case.get("payload") not in payloads and case.get("experiment") not in digests
            ]
    return sections
