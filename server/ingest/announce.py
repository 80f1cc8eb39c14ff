"""Retains messages for devices at the broker: experiments and withdrawals, signed in a keyed fleet."""

import datetime
import functools
import logging
from collections.abc import Callable, Mapping

from ..store.counting import ClockWrong
from ..store.store import StoreError
from ..store.versions import Version
from ..wire import keys, topics
from .clock import now as machine_time
from .pipeline import KnownFleets
from .status import Status

_RELOAD_S = 2.0  # how soon a new experiment is published and counted
_AGAIN_S = 2.0  # it is published again at most this often, whatever others publish

_sign = functools.lru_cache(maxsize=1024)(keys.sign_experiment)


class Announcer:
    """Publishes what a connection has not published yet, and looks at the store for more every two seconds.

    What somebody else clears or alters is published again: that costs nothing for devices that have it.
    clock: tells which experiments are over; while it raises ClockWrong nothing is published.
    failing: whether the last look at the store failed.
    """

    def __init__(
        self,
        fleets: KnownFleets,
        status: Status,
        clock: Callable[[], datetime.datetime] = machine_time,
    ) -> None:
        self._fleets = fleets
        self._clock = clock
        self._status = status
        self._published: dict[str, bytes] = {}
        self._reload_due_at = 0.0
        self._published_at = float("-inf")
        self._greeting = True
        self._all = True
        self.failing = False

    @property
    def experiments(self) -> int:
        """Number of experiments that are retained at the broker."""
        return _experiments(self._published)

    def begin(self) -> None:
        """Publish everything at the next turn: the connection is a new one."""
        self._greeting = True
        self.again()

    def again(self) -> None:
        """Publish everything at the next turn, as it is: a broker may have lost it."""
        self._reload_due_at = 0.0
        self._all = True

    def turn(
        self, publish: Callable[[str, bytes], object], now: float, others: dict[str, bytes] | None = None
    ) -> bool:
        """When it is time, read the fleets again and publish what changed; returns whether it did so.

        others: topic -> what somebody else published there, as far as it came; emptied after it was
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
            today = self._clock().date()
            self._fleets.reload()
        except ClockWrong:  # the clock itself says so in the log
            return False
        except StoreError as e:
            self.failing = True
            self._status.say(logging.ERROR, str(e))
            return False
        if self.failing:
            self._status.say(logging.INFO, "the store can be read again")
        self.failing = False
        wanted = self._renew(others, today)
        for topic, payload in wanted.items():
            altered = others.get(topic, payload) != payload
            if self._all or altered or self._published.get(topic) != payload:
                publish(topic, payload)
                self._published_at = now
            if altered and not self._greeting:
                self._status.say(logging.WARNING, f"somebody else changed {topic}: it is published again")
        others.clear()
        before, self._published = self._published, wanted
        if not self.experiments and (self._greeting or _experiments(before)):
            self._status.say(
                logging.WARNING,
                "nothing is published: no fleet has a current experiment; add one: `hushmote experiment add`",
            )
        self._greeting = self._all = False
        return True

    def _renew(self, others: Mapping[str, bytes], today: datetime.date) -> dict[str, bytes]:
        """Return what to retain; a version whose own withdrawal is retained gets a higher serial first.

        Devices that saw the withdrawal accept no lower one. That happens if the clock had jumped ahead.
        """
        retained = others if self._greeting else self._published
        wanted = self._wanted(today)
        stale = [
            version
            for topic, (version, published) in wanted.items()
            if published and b"" != self._payload(topic, version, False) == retained.get(topic)
        ]
        if stale:
            try:
                self._fleets.renew_serials(stale)
                wanted = self._wanted(today)
            except StoreError as e:  # publish all the same, for devices that saw nothing
                self._status.say(logging.ERROR, f"experiments keep their serials: {e}")
        return {topic: self._payload(topic, *what) for topic, what in wanted.items()}

    def _wanted(self, today: datetime.date) -> dict[str, tuple[Version, bool]]:
        """Return topic -> the version last published there, and whether it still is; else it is withdrawn."""
        wanted: dict[str, tuple[Version, bool]] = {}
        for fleet in self._fleets.rules.values():
            for version in sorted(fleet.versions.values(), key=lambda v: (v.published_on(today), v.serial)):
                topic = topics.experiment_topic(fleet.name, version.experiment.name)
                wanted[topic] = version, version.published_on(today)
        return wanted

    def _payload(self, topic: str, version: Version, published: bool) -> bytes:
        """Return what devices should find: the version, or its withdrawal with the next serial.

        So every aggregator makes the same bytes, also after a restart.
        """
        body = version.payload if published else b""
        fleet_keys = self._fleets.rules[version.fleet].keys
        if fleet_keys is None:
            return body
        return _sign(fleet_keys.signing, topic, body, version.serial + (not published))


def _experiments(published: Mapping[str, bytes]) -> int:
    return sum(not keys.is_withdrawal(payload) for payload in published.values())
