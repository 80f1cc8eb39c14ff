"""An event that people are told about."""

import datetime
import hashlib
import json
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["change", "release", "silence", "budget", "certificate", "clock", "start", "weekly"]
KINDS: tuple[Kind, ...] = ("change", "release", "silence", "budget", "certificate", "clock")
"""The kinds of events; the others are messages about the alerts themselves."""

BEGIN, END = "begin", "end"
"""The directions of an event that lasts, such as silence."""


@dataclass(frozen=True)
class Alert:
    """An event.

    Attributes:
        kind: The kind of event.
        key: The names of what it is about; events with the same kind, fleet and key have the same subject.
        fleet: The fleet, or "" for the whole store.
        experiment: The experiment, or "" for the whole fleet.
        direction: up or down; stop or proceed; begin or end; or "". The same subject can have one event in
            each direction.
        first: The first day on which it may have happened.
        last: The last such day.
        title: One line.
        text: The message, without the title.
    """

    kind: Kind
    key: tuple[str, ...]
    title: str
    text: str
    first: datetime.date
    last: datetime.date
    fleet: str = ""
    experiment: str = ""
    direction: str = ""

    @property
    def subject(self) -> str:
        """A hash of the kind, the fleet and the key, 64 hex digits."""
        return hashlib.sha256(json.dumps([self.kind, self.fleet, *self.key]).encode()).hexdigest()

    @property
    def lasts(self) -> bool:
        """Whether the event begins and ends."""
        return self.direction in (BEGIN, END)

    def ended(self, title: str, text: str, at: datetime.date) -> "Alert":
        """Return the end of this event."""
        return replace(self, direction=END, title=title, text=text, first=at, last=at)
