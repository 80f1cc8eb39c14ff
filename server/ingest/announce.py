"""What is retained at the broker for boards: today's experiments, signed in a keyed fleet."""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable, Mapping

from ..store.store import StoreError
from ..store.versions import Version
from ..wire import keys, topics
from .pipeline import KnownFleets
from .status import Status

_RELOAD_S = 2.0  # how soon an experiment that was added meanwhile is published and counted
_AGAIN_S = 2.0  # whatever others publish, this often at most it is published again

_sign = functools.lru_cache(maxsize=1024)(keys.sign_experiment)


class Announcer:
    """Publishes what a connection has not published yet, and looks at the store for more every two seconds.

    What somebody else clears or alters is published again, in a keyed fleet under a higher serial: boards
    that saw it cleared accept no lower one. failing: whether the last look at the store failed.
    """

    def __init__(self, fleets: KnownFleets, status: Status) -> None:
        self._fleets = fleets
        self._status = status
        self._published: dict[str, bytes] = {}
        self._reload_due_at = 0.0
        self._published_at = float("-inf")
        self._greeting = True
        self.failing = False

    @property
    def experiments(self) -> int:
        """Number of experiments that are retained at the broker."""
        return sum(payload != b"" for payload in self._published.values())

    def begin(self) -> None:
        """Publish everything at the next turn: the connection is a new one."""
        self._published = {}
        self._reload_due_at = 0.0
        self._greeting = True

    def turn(
        self, publish: Callable[[str, bytes], object], now: float, others: dict[str, bytes] | None = None
    ) -> bool:
        """Where it is time, read the fleets again and publish what changed; whether that was done.

        others: topic -> what the broker has there by somebody else, as far as it came; emptied once it was
        looked at.
        """
        others = {} if others is None else others
        if not self._greeting:
            for topic in list(others):
                if others[topic] == self._published.get(topic, others[topic]):
                    del others[topic]
        due_at = self._reload_due_at
        if others:
            due_at = min(due_at, self._published_at + _AGAIN_S)
        if now < due_at:
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
        wanted = self._renew(others)
        for topic, payload in wanted.items():
            altered = others.get(topic, payload) != payload
            if altered or self._published.get(topic) != payload:
                publish(topic, payload)
                self._published_at = now
            if altered and not self._greeting:
                self._status.say(logging.WARNING, f"somebody else changed {topic}: it is published again")
        others.clear()
        before, self._published = self._published, wanted
        if not self.experiments and (self._greeting or any(before.values())):
            self._status.say(
                logging.WARNING,
                "nothing is published: no fleet has a current experiment; add one: `hushmote experiment add`",
            )
        self._greeting = False
        return True

    def _renew(self, others: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return what to retain, under new serials where boards may accept no other any more."""
        wanted = self._wanted()
        stale = []
        for topic, (version, payload) in wanted.items():
            if version is None or self._fleets.rules[version.fleet].keys is None:
                continue
            if self._greeting:
                # Cleared while nobody looked, perhaps.
                renew = others.get(topic) != payload
            else:
                renew = others.get(topic, payload) != payload == self._published.get(topic)
            if renew:
                stale.append(version)
        if stale:
            try:
                self._fleets.renew_serials(stale)
                wanted = self._wanted()
            except StoreError as e:  # published all the same, for boards that saw nothing
                self._status.say(logging.ERROR, f"experiments keep their serials: {e}")
        return {topic: payload for topic, (_, payload) in wanted.items()}

    def _wanted(self) -> dict[str, tuple[Version | None, bytes]]:
        """Return topic -> the version to retain, None where it is withdrawn or over, and its payload."""
        today = datetime.datetime.now(datetime.UTC).date()
        wanted: dict[str, tuple[Version | None, bytes]] = {}
        for fleet in self._fleets.rules.values():
            for version in fleet.versions.values():
                topic = topics.experiment_topic(fleet.name, version.experiment.name)
                if not version.published_on(today):
                    wanted.setdefault(topic, (None, b""))
                elif fleet.keys is None:
                    wanted[topic] = version, version.payload
                else:
                    wanted[topic] = (
                        version,
                        _sign(fleet.keys.signing, topic, version.payload, version.serial),
                    )
        return wanted
