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

_HOW_TO_SIGN = (
    "where the signing key is, `hushmote experiment sign FILE`; then here, `hushmote experiment add "
    "FILE.signed.json`"
)

_sign = functools.lru_cache(maxsize=1024)(keys.sign_experiment)


class Announcer:
    """Publishes what a connection has not published yet, and looks at the store for more every two seconds.

    What somebody else clears or alters is published again: that costs nothing for devices that have it.
    clock: tells which experiments are over; while it raises ClockWrong nothing is published.
    Without the signing key it publishes what was signed elsewhere, and leaves all else at the broker alone.
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
        self._unsigned: dict[str, Version] = {}  # topic -> what cannot be published there
        # What is retained where nothing is published, as far as it came; empty before it came.
        self._elsewhere: dict[str, bytes] = {}
        self._reload_due_at = 0.0
        self._published_at = float("-inf")
        self._greeting = True
        self._all = True
        self.failing = False

    @property
    def experiments(self) -> int:
        """Number of experiments that are retained at the broker."""
        return _experiments(self._published)

    @property
    def unsigned(self) -> int:
        """Number of experiments that wait for a signature."""
        return len(self._unsigned)

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
                if topic not in self._elsewhere and others[topic] == self._published.get(
                    topic, others[topic]
                ):
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
        if self._unsigned:
            self._status.say(logging.WARNING, self._unsigned_sentence(today))
        elif not self.experiments and (self._greeting or _experiments(before)):
            self._status.say(
                logging.WARNING,
                "nothing is published: no fleet has a current experiment; add one: `hushmote experiment add`",
            )
        self._greeting = self._all = False
        return True

    def _renew(self, others: Mapping[str, bytes], today: datetime.date) -> dict[str, bytes]:
        """Return what to retain; a version whose own withdrawal is retained gets a higher serial first.

        Devices that saw the withdrawal accept no lower one. That happens if the clock had jumped ahead.
        Without the signing key the withdrawal stays until the version is signed again.
        """
        retained = others if self._greeting else self._published
        wanted, unsigned = self._wanted(today)
        stale = {
            topic: version
            for topic, (version, published) in wanted.items()
            if published and b"" != self._payload(topic, version, False) == retained.get(topic)
        }
        unsigned |= {topic: version for topic, version in stale.items() if not self._can_sign(version)}
        wanted |= {topic: (version, False) for topic, version in stale.items() if topic in unsigned}
        if renewable := [version for topic, version in stale.items() if topic not in unsigned]:
            try:
                self._fleets.renew_serials(renewable)
                waiting = {topic: wanted[topic] for topic in stale if topic in unsigned}
                wanted = self._wanted(today)[0] | waiting
            except StoreError as e:  # publish all the same, for devices that saw nothing
                self._status.say(logging.ERROR, f"experiments keep their serials: {e}")
        self._elsewhere = {
            topic: others.get(topic, self._elsewhere.get(topic, b""))
            for topic in unsigned
            if topic not in wanted
        }
        self._unsigned = {
            topic: version
            for topic, version in unsigned.items()
            # One that is over needs a withdrawal only where devices still find it.
            if version.published_on(today) or not keys.is_withdrawal(self._elsewhere.get(topic, b""))
        }
        return {topic: self._payload(topic, *what) for topic, what in wanted.items()}

    def _wanted(self, today: datetime.date) -> tuple[dict[str, tuple[Version, bool]], dict[str, Version]]:
        """Return what can be published, and topic -> the newest version there if nobody has signed it.

        The first is topic -> the version last published there, and whether it still is; else it is withdrawn.
        """
        wanted: dict[str, tuple[Version, bool]] = {}
        unsigned: dict[str, Version] = {}
        for fleet in self._fleets.rules.values():
            for version in sorted(fleet.versions.values(), key=lambda v: (v.published_on(today), v.serial)):
                topic = topics.experiment_topic(fleet.name, version.experiment.name)
                if self._can_sign(version) or self._signed(topic, version):
                    wanted[topic] = version, version.published_on(today)
                    unsigned.pop(topic, None)
                else:
                    unsigned[topic] = version
        return wanted, unsigned

    def _can_sign(self, version: Version) -> bool:
        """Return whether nothing has to be signed in the version's fleet, or the signing key is here."""
        fleet_keys = self._fleets.rules[version.fleet].keys
        return fleet_keys is None or fleet_keys.signing is not None

    def _signed(self, topic: str, version: Version) -> tuple[bytes, bytes] | None:
        """Return announcement and withdrawal as the fleet's key signed them elsewhere, None if it did not."""
        fleet_keys = self._fleets.rules[version.fleet].keys
        if fleet_keys is None or version.signatures is None:
            return None
        return keys.signed_messages(fleet_keys.announce_key, topic, version.payload, version.signatures)

    def _unsigned_sentence(self, today: datetime.date) -> str:
        """Say which experiment has to be signed, why, and how."""
        topic, version = next(iter(self._unsigned.items()))
        then = ""
        if topic in self._published and self._signed(topic, version):
            why = "is not asked any more, as devices have its withdrawal"
        elif not version.published_on(today):
            why, then = (
                "is over, but nobody has signed its withdrawal",
                ", and `hushmote experiment withdraw`",
            )
        elif version.signatures is not None:
            why = "is not published, as it was signed with another key"
        else:
            why = "is not published, as nobody has signed it"
        more = len(self._unsigned) - 1
        others = f" ({more} more must be signed as well)" if more else ""
        return f"{version.experiment.name} of fleet {version.fleet} {why}{others}: {_HOW_TO_SIGN}{then}"

    def _payload(self, topic: str, version: Version, published: bool) -> bytes:
        """Return what devices should find: the version, or its withdrawal with the next serial.

        So every aggregator makes the same bytes, also after a restart.
        """
        body = version.payload if published else b""
        fleet_keys = self._fleets.rules[version.fleet].keys
        if fleet_keys is None:
            return body
        if fleet_keys.signing is None:
            signed = self._signed(topic, version)
            assert signed is not None  # as _wanted() chose it
            return signed[not published]
        return _sign(fleet_keys.signing, topic, body, version.serial + (not published))


def _experiments(published: Mapping[str, bytes]) -> int:
    return sum(not keys.is_withdrawal(payload) for payload in published.values())
