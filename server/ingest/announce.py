"""What is retained at the broker for boards: today's experiments, signed in a keyed fleet."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterable, Mapping

from ..store.store import StoreError
from ..wire import keys, topics
from .pipeline import FleetRules, KnownFleets
from .status import Status

_RELOAD_S = 2.0  # how soon an experiment that was added meanwhile is published and counted


def announcements(fleets: Iterable[FleetRules], day: datetime.date) -> dict[str, bytes]:
    """Return topic -> payload to retain on a day, UTC; empty where one is withdrawn or over; pure."""
    wanted: dict[str, bytes] = {}
    for fleet in fleets:
        for version in fleet.versions.values():
            topic = topics.experiment_topic(fleet.name, version.experiment.name)
            if version.published_on(day):
                wanted[topic] = version.payload
                if fleet.keys is not None:
                    wanted[topic] = keys.sign_experiment(fleet.keys.signing, topic, version.payload, serial=1)
            else:
                wanted.setdefault(topic, b"")
    return wanted


class Announcer:
    """Publishes what a connection has not published yet, and looks at the store for more every two seconds.

    failing: whether the last look at the store failed.
    """

    def __init__(self, fleets: KnownFleets, status: Status) -> None:
        self._fleets = fleets
        self._status = status
        self._published: Mapping[str, bytes] = {}
        self._reload_due_at = 0.0
        self.failing = False

    @property
    def experiments(self) -> int:
        """Number of experiments that are retained at the broker."""
        return sum(payload != b"" for payload in self._published.values())

    def begin(self) -> None:
        """Publish everything at the next turn: the connection is a new one."""
        self._published = {}
        self._reload_due_at = 0.0

    def turn(self, publish: Callable[[str, bytes], object], now: float) -> bool:
        """Where it is time, read the fleets again and publish what changed; whether that was done."""
        if now < self._reload_due_at:
            return False
        self._reload_due_at = now + _RELOAD_S
        try:
            self._fleets.reload()
        except StoreError as e:
            self.failing = True
            self._status.say(logging.ERROR, str(e))
            return False
        if self.failing:
            self._status.say(logging.INFO, "the store can be read again")
        self.failing = False
        wanted = announcements(self._fleets.rules.values(), datetime.datetime.now(datetime.UTC).date())
        for topic, payload in wanted.items():
            if self._published.get(topic) != payload:
                publish(topic, payload)
        self._published = wanted
        return True
