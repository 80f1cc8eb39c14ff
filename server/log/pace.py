"""The rule that a log keeps so that witnesses sign it: at most one change of a question a day.

A witness refuses two changes of a question since its last signature, and a change within 24 hours of its
last signature that covered one. So a log adds a change only if the last one is signed, and 24 hours later.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .change import DAY_S, GROUP_ADDITIONS_A_DAY, Change, compare
from .entry import Entry

_MARGIN_S = 60  # a witness's clock need not agree with ours to the second


@dataclass(frozen=True, slots=True)
class Dated:
    """A change of a question.

    Attributes:
        number: The entry's number in the log.
        change: GROUPS or QUESTION.
        at: When the log added it, unix seconds.
    """

    number: int
    change: Change
    at: int


def changes_of_names(entries: Iterable[Entry], times: Iterable[int]) -> dict[str, list[Dated]]:
    """Return the changes of each experiment's key, oldest first."""
    questions: dict[str, bytes] = {}
    changes: dict[str, list[Dated]] = {}
    for number, (entry, at) in enumerate(zip(entries, times, strict=True)):
        if entry.experiment is None or not entry.question:
            continue
        change = compare(questions.get(entry.key), entry.question)
        questions[entry.key] = entry.question
        if change is not Change.NONE:
            changes.setdefault(entry.key, []).append(Dated(number, change, at))
    return changes


def due_at(change: Change, before: Sequence[Dated]) -> int:
    """Return when a name may change; 0 if it may at any time.

    Args:
        change: What it is.
        before: The name's changes so far, oldest first. Their times are those at which the last witness
            signed them.
    """
    if change is Change.NONE:
        return 0
    same = [dated.at for dated in before if dated.change is change]
    most = GROUP_ADDITIONS_A_DAY if change is Change.GROUPS else 1
    return same[-most] + DAY_S + _MARGIN_S if len(same) >= most else 0


def wait(change: Change, before: Sequence[Dated], now: int) -> str:
    """Return until when a change waits, in local time, and why: "until Mon 14:05: ..."; "" if it is due."""
    due_s = due_at(change, before)
    if now >= due_s:
        return ""
    when = datetime.datetime.fromtimestamp(due_s, datetime.UTC).astimezone()
    allowed = "two additions of groups" if change is Change.GROUPS else "one change"
    return f"until {when:%a %H:%M}: witnesses allow {allowed} a day"


def breach(times: Sequence[int], now: int) -> tuple[int, int] | None:
    """Return how many changes must have been made in how many seconds, if that is more than one a day.

    Args:
        times: A time before which no entry can be in the log, for each change of a question's JSON other
            than further group values; oldest first. In a keyed fleet, it is the entry's serial.
        now: The present, unix seconds.
    """
    for at, since in enumerate(times):
        count, seconds = len(times) - at, now - since
        if since and count > 1 and seconds < (count - 1) * DAY_S:
            return count, max(seconds, 0)
    return None
