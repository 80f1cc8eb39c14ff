"""Versions of an experiment: what contradicts an earlier one, how many reports they allow; pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from ...device.ldp_client import Experiment
from .database import StoreError

Name = TypeVar("Name")


class VersionRefused(StoreError):
    """An experiment version or a fleet that contradicts what the store already has."""


@dataclass(frozen=True)
class Version:
    """One immutable version of an experiment; current where it is the one of its name to publish.

    expires: the last day, UTC, on which it is published, None for good.
    """

    id: int
    fleet: str
    payload: bytes
    current: bool
    expires: datetime.date | None
    experiment: Experiment

    def published_on(self, day: datetime.date) -> bool:
        """Whether boards are to take part on that day, UTC."""
        return self.current and (self.expires is None or day <= self.expires)


def check_total(first: Experiment, new: Experiment) -> None:
    """Raise VersionRefused for a version that asks for more than the first of its name.

    Boards pinned the first version's rule and cap: each of them would refuse it.
    """
    if new.rule != first.rule:
        raise VersionRefused(
            f"{new.name} has the budget rule {first.rule} for good: take another name for another rule"
        )
    if new.rule != "unlimited" and new.cap > first.cap:
        raise VersionRefused(
            f"{new.name} may never have a cap above its first, {first.cap}: lower it to that"
        )
    if new.rule == "count" and new.epsilon != first.epsilon:
        raise VersionRefused(f"{new.name} counts reports: its epsilon stays {first.epsilon} micro-nats")


def most_reports(experiments: Iterable[tuple[Name, Experiment]]) -> dict[Name, int | None]:
    """Return name -> the most reports that any of its versions lets one device make, None for any number.

    experiments: (name, version), the name being whatever the versions are told apart by.
    """
    most: dict[Name, int | None] = {}
    for name, e in experiments:
        this = None if e.rule == "unlimited" else e.cap // e.cost()
        before = most.get(name, 0)
        most[name] = None if this is None or before is None else max(before, this)
    return most
