"""Publish retained messages for devices: experiments and withdrawals, signed in a keyed fleet."""

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

_RELOAD_S = 2.0  # the longest delay until a new experiment is published and counted
_AGAIN_S = 2.0  # the shortest interval between publications, whatever other clients publish

_HOW_TO_SIGN = (
    "run `hushmote experiment sign FILE` on the machine with the signing key, then `hushmote experiment "
    "add FILE.signed.json` here"
)

_sign = functools.lru_cache(maxsize=1024)(keys.sign_experiment)


class Announcer:
    """Publishes whatever a connection has not published yet, and checks the store for changes every 2 s.

    A message that another client clears or alters is published again; this costs nothing for devices that
    already have it. Without the signing key it publishes messages that were signed elsewhere, and does not
    touch the broker's other messages.

    Args:
        fleets: The fleets whose experiments are published.
        status: The log of changes.
        clock: Determines which experiments have expired; while it raises ClockWrong, nothing is published.

    Attributes:
        failing: Whether the store failed at the last attempt.
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
        self._payloads: dict[str, bytes] = {}
        self._unsigned_versions: dict[str, Version] = {}  # versions that cannot be published, by topic
        # Retained messages on topics without publications; empty until they arrive.
        self._elsewhere: dict[str, bytes] = {}
        self._reload_due_at = 0.0
        self._published_at = float("-inf")
        self._greeting = True
        self._all = True
        self.failing = False

    @property
    def experiments(self) -> int:
        """The number of experiments that are retained at the broker."""
        return _count_experiments(self._payloads)

    @property
    def unsigned(self) -> int:
        """The number of experiments that are waiting for a signature."""
        return len(self._unsigned_versions)

    def begin(self) -> None:
        """Publish everything at the next turn because there is a new connection."""
        self._greeting = True
        self.again()

    def again(self) -> None:
        """Publish everything unchanged at the next turn, because the broker may have lost it."""
        self._reload_due_at = 0.0
        self._all = True

    def turn(
        self, publish: Callable[[str, bytes], object], now: float, others: dict[str, bytes] | None = None
    ) -> bool:
        """Reload the fleets and publish changes, if it is time.

        Args:
            publish: Publishes a retained message.
            now: Monotonic time.
            others: Messages published by other clients that have arrived so far, by topic; emptied once they
                have been examined.

        Returns:
            Whether the fleets were reloaded.
        """
        others = {} if others is None else others
        if not self._greeting:
            for topic in list(others):
                if topic not in self._elsewhere and others[topic] == self._payloads.get(topic, others[topic]):
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
        except ClockWrong:  # the clock has logged it
            return False
        except StoreError as e:
            self.failing = True
            self._status.say(logging.ERROR, str(e))
            return False
        if self.failing:
            self._status.say(logging.INFO, "the store can be read again")
        self.failing = False
        payloads = self._renew(others, today)
        for topic, payload in payloads.items():
            is_altered = others.get(topic, payload) != payload
            if self._all or is_altered or self._payloads.get(topic) != payload:
                publish(topic, payload)
                self._published_at = now
            if is_altered and not self._greeting:
                self._status.say(logging.WARNING, f"another client changed {topic}; it is published again")
        others.clear()
        before, self._payloads = self._payloads, payloads
        if self._unsigned_versions:
            self._status.say(logging.WARNING, self._unsigned_sentence(today))
        elif not self.experiments and (self._greeting or _count_experiments(before)):
            self._status.say(
                logging.WARNING,
                "nothing is published because no fleet has a current experiment; "
                "run `hushmote experiment add`",
            )
        self._greeting = self._all = False
        return True

    def _renew(self, others: Mapping[str, bytes], today: datetime.date) -> dict[str, bytes]:
        """Return the payloads to retain, and raise the serial of a version whose withdrawal is retained.

        Devices that saw the withdrawal do not accept a lower serial. This happens after the clock has jumped
        ahead. Without the signing key the withdrawal remains until the version is signed again.
        """
        retained = others if self._greeting else self._payloads
        publications, unsigned = self._publications(today)
        stale = {
            topic: version
            for topic, (version, is_published) in publications.items()
            if is_published and b"" != self._payload(topic, version, False) == retained.get(topic)
        }
        unsigned |= {topic: version for topic, version in stale.items() if not self._can_sign(version)}
        publications |= {topic: (version, False) for topic, version in stale.items() if topic in unsigned}
        if renewable := [version for topic, version in stale.items() if topic not in unsigned]:
            try:
                self._fleets.renew_serials(renewable)
                waiting = {topic: publications[topic] for topic in stale if topic in unsigned}
                publications = self._publications(today)[0] | waiting
            except StoreError as e:  # publish anyway, for devices that did not see the withdrawal
                self._status.say(logging.ERROR, f"serials cannot be raised: {e}")
        self._elsewhere = {
            topic: others.get(topic, self._elsewhere.get(topic, b""))
            for topic in unsigned
            if topic not in publications
        }
        self._unsigned_versions = {
            topic: version
            for topic, version in unsigned.items()
            # An expired version needs a withdrawal only if devices can still receive it.
            if version.published_on(today) or not keys.is_withdrawal(self._elsewhere.get(topic, b""))
        }
        return {topic: self._payload(topic, *what) for topic, what in publications.items()}

    def _publications(
        self, today: datetime.date
    ) -> tuple[dict[str, tuple[Version, bool]], dict[str, Version]]:
        """Return the possible publications by topic, and every other topic's newest unsigned version.

        A publication is the version last published on the topic, and whether it is still published or
        withdrawn.
        """
        publications: dict[str, tuple[Version, bool]] = {}
        unsigned: dict[str, Version] = {}
        for fleet in self._fleets.rules.values():
            for version in sorted(fleet.versions.values(), key=lambda v: (v.published_on(today), v.serial)):
                topic = topics.experiment_topic(fleet.name, version.experiment.name)
                if self._can_sign(version) or self._signed_messages(topic, version):
                    publications[topic] = version, version.published_on(today)
                    unsigned.pop(topic, None)
                else:
                    unsigned[topic] = version
        return publications, unsigned

    def _can_sign(self, version: Version) -> bool:
        """Return whether the version's fleet needs no signatures or the signing key is available."""
        fleet_keys = self._fleets.rules[version.fleet].keys
        return fleet_keys is None or fleet_keys.signing is not None

    def _signed_messages(self, topic: str, version: Version) -> tuple[bytes, bytes] | None:
        """Return the announcement and withdrawal signed elsewhere with the fleet's key, or None."""
        fleet_keys = self._fleets.rules[version.fleet].keys
        if fleet_keys is None or version.signatures is None:
            return None
        return keys.signed_messages(fleet_keys.announce_key, topic, version.payload, version.signatures)

    def _unsigned_sentence(self, today: datetime.date) -> str:
        """Return a sentence that says which experiment has to be signed, why, and how."""
        topic, version = next(iter(self._unsigned_versions.items()))
        then = ""
        if topic in self._payloads and self._signed_messages(topic, version):
            why = "is no longer published because devices have its withdrawal"
        elif not version.published_on(today):
            why, then = (
                "has expired, but nobody has signed its withdrawal",
                ", and `hushmote experiment withdraw`",
            )
        elif version.signatures is not None:
            why = "is not published because it was signed with another key"
        else:
            why = "is not published because nobody has signed it"
        more = len(self._unsigned_versions) - 1
        others = f" ({more} more must be signed as well)" if more else ""
        return f"{version.experiment.name} of fleet {version.fleet} {why}{others}: {_HOW_TO_SIGN}{then}"

    def _payload(self, topic: str, version: Version, is_published: bool) -> bytes:
        """Return the payload for a version, or for its withdrawal with the next serial.

        Every aggregator produces the same bytes, even after a restart.
        """
        body = version.payload if is_published else b""
        fleet_keys = self._fleets.rules[version.fleet].keys
        if fleet_keys is None:
            return body
        if fleet_keys.signing is None:
            messages = self._signed_messages(topic, version)
            assert messages is not None  # ensured by _publications()
            return messages[not is_published]
        return _sign(fleet_keys.signing, topic, body, version.serial + (not is_published))


def _count_experiments(payloads: Mapping[str, bytes]) -> int:
    return sum(not keys.is_withdrawal(payload) for payload in payloads.values())
