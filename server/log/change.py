"""Compare a question's versions in the log, as the log and its witnesses count changes."""

from __future__ import annotations

import enum
import json
import re
from typing import Any

from .entry import Entry

MAX_QUESTION_BYTES = 1024  # boards refuse longer ones
DAY_S = 86_400
GROUP_ADDITIONS_A_DAY = 2  # a firmware version may be released twice a day
_ADDED = re.compile(rb'( ?, ?"[^"\\]*")+')


class Change(enum.Enum):
    """The kinds of changes; every byte of the JSON counts, also spaces and the order of fields."""

    NONE = "none"
    GROUPS = "groups"  # it only appends values to the open group's list
    QUESTION = "question"


def compare(old: bytes | None, new: bytes) -> Change:
    """Return what a version changes, given the JSON of the version before, or None for a name's first."""
    if old == new:
        return Change.NONE
    return Change.GROUPS if old is not None and _only_appends_groups(old, new) else Change.QUESTION


def _only_appends_groups(old: bytes, new: bytes) -> bool:
    try:
        before, after = json.loads(old), json.loads(new)
        groups, longer = before["groups"], after["groups"]
        is_longer = 0 < len(groups) < len(longer) and longer[: len(groups)] == groups
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    if not is_longer or before | {"groups": longer} != after:
        return False
    count = len(new) - len(old)
    return any(
        new[:end] == old[:end]
        and new[end + count :] == old[end:]
        and _ADDED.fullmatch(new[end : end + count])
        for end in (match.start() for match in re.finditer(rb" ?\]", old))
    )


def is_readable(question: bytes) -> bool:
    """Return whether a board may read a question; MicroPython reads more than JSON."""
    try:
        question.decode()
    except UnicodeDecodeError:
        return False
    return len(question) <= MAX_QUESTION_BYTES


def fault(entry: Entry, change: Change, highest: int) -> str:
    """Return why witnesses never sign a version, as "has ..." or "changes ..."; "" if they may.

    Args:
        entry: The version.
        change: What it changes.
        highest: The highest serial of the name's versions and withdrawals before; -1 if there are none.
    """
    if not is_readable(entry.question):
        return f"is longer than {MAX_QUESTION_BYTES:,} bytes, or not UTF-8: boards cannot read it"
    fields = _fields(entry.question)
    if fields is None or entry.experiment is None or fields.get("name") != entry.experiment[1]:
        return "has another name, a field twice, or JSON that some boards may read otherwise: correct it"
    if type(fields.get("every", 1)) is not int:
        return "has an every for each group, so one home could be the only one asked: make it one number"
    if change is not Change.NONE and entry.serial is not None and entry.serial <= highest:
        return (
            f"changes with serial {entry.serial}, but serial {highest} came before, so boards could be "
            "switched back: add or sign it again"
        )
    return ""


def _fields(question: bytes) -> dict[str, Any] | None:
    """Return the fields of a question's JSON; None if clients could read them differently, or not at all."""
    try:
        fields = json.loads(question.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field appears twice")
    return fields
