"""Publish retained messages for devices: experiments and withdrawals, signed in a keyed fleet."""

import datetime
import functools
import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping

from ..store.counting import ClockWrong
from ..store.store import StoreError
from ..store.versions import Version
from ..wire import keys, topics
from .clock import now as machine_time
from .log_keeper import LogKeeper
from .pipeline import KnownFleets
from .status import Status

log = logging.getLogger(__name__)

_RELOAD_S = 2.0  # the longest delay until a new experiment is published and counted
_MAX_UNKNOWN = 1024  # experiments to remember that the store does not have
_MAX_LOGGED = 10  # of these, at a time
_AGAIN_S = 2.0  # the shortest interval between publications, whatever other clients publish

_HOW_TO_SIGN = (
    "run `hushmote experiment sign FILE` on the machine with the signing key, then `hushmote experiment "
    "add FILE.signed.json` here"
)

_sign = functools.lru_cache(maxsize=1024)(keys.sign_experiment)


class Announcer:
    """Publishes whatever a connection has not published yet, and checks the store for changes every 2 s.

    An experiment or a proof that another client clears or alters is published again; this costs nothing for
    devices that already have it. Without the signing key it publishes messages that were signed elsewhere,
    and does not touch the broker's other messages.

    Args:
        fleets: The fleets whose experiments are published.
        status: The log of changes.
        clock: Determines which experiments have expired; while it raises ClockWrong, nothing is published.
        clear_options: The options with which `hushmote experiment clear` reaches the broker, for log lines.
        keeper: The log; None if there is none. Experiments are announced only when they are in it.

    Attributes:
        failing: Whether the store failed at the last attempt.
    """

    def __init__(
        self,
        fleets: KnownFleets,
        status: Status,
        clock: Callable[[], datetime.datetime] = machine_time,
        clear_options: str = "",
        keeper: LogKeeper | None = None,
    ) -> None:
        self._fleets = fleets
        self._clock = clock
        self._status = status
        self._keeper = keeper
        self._payloads: dict[str, bytes] = {}
        self._waiting: dict[str, str] = {}  # why changes are not in the log yet, by topic
        self._unsigned_versions: dict[str, Version] = {}  # versions that cannot be published, by topic
        # Retained messages on topics without publications; empty until they arrive.
        self._elsewhere: dict[str, bytes] = {}
        self._refused: dict[str, str] = {}  # why the broker refused a publication, by topic
        # Experiments that other clients retain and the store does not have, by topic.
        self._unknown: dict[str, bytes] = {}
        self._clear_options = clear_options
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

    @property
    def unknown(self) -> int:
        """The number of experiments that boards of the store's fleets find, but the store does not have."""
        parsed_topics = map(topics.parse_experiment_topic, self._unknown)
        return sum(names is not None and names[0] in self._fleets.rules for names in parsed_topics)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence on the publications that the broker refuses, without names, or nothing."""
        warnings = () if self._keeper is None else self._keeper.warnings
        if not self._refused:
            return warnings
        count = len(self._refused)
        return (
            *warnings,
            f"the broker refuses {count:,} experiment{'s' * (count > 1)}, which boards therefore do not "
            "receive: allow this user to write experiments",
        )

    def begin(self) -> None:
        """Publish everything at the next turn because there is a new connection."""
        self._greeting = True
        self._refused.clear()
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
            self._drop_known(others)
        due_at = self._reload_due_at
        if others:
            due_at = min(due_at, self._published_at + _AGAIN_S)
        if now < due_at:
            return False
        self._reload_due_at = now + _RELOAD_S
        try:
            time = self._clock()
            today = time.date()
            self._fleets.reload()
            payloads = self._renew(others, today)
            if self._keeper is not None:
                payloads = self._log(self._keeper, payloads, time)
                payloads |= self._keeper.proofs(payloads)
        except ClockWrong:  # the clock has logged it
            return False
        except StoreError as e:
            self.failing = True
            self._status.say(logging.ERROR, str(e))
            return False
        if self.failing:
            self._status.say(logging.INFO, "the store can be read again")
        self.failing = False
        for topic, payload in payloads.items():
            is_altered = others.get(topic, payload) != payload
            if self._all or is_altered or self._payloads.get(topic) != payload:
                publish(topic, payload)
                self._published_at = now
            if is_altered and not self._greeting:
                self._status.say(logging.WARNING, f"another client changed {topic}; it is published again")
            elif is_altered and topics.is_experiment(topic) and self._version(topic, others[topic]) is None:
                log.warning(
                    "%s had an experiment that this store does not have; the store's is published again",
                    topic,
                )
        self._note_unknown(others, payloads)
        others.clear()
        before, self._payloads = self._payloads, payloads
        if self._unsigned_versions:
            self._status.say(logging.WARNING, self._unsigned_sentence(today))
        elif not (self.experiments or self._waiting) and (self._greeting or _count_experiments(before)):
            self._status.say(
                logging.WARNING,
                "nothing is published because no fleet has a current experiment; "
                "run `hushmote experiment add`",
            )
        self._greeting = self._all = False
        return True

    def note_refusals(self, refusals: dict[str, str]) -> None:
        """Log the publications that the broker has refused.

        Args:
            refusals: Why the broker refused publications, by topic; experiments and proofs are removed.
        """
        for topic in [t for t in refusals if topics.is_experiment(t) or topics.is_proof(t)]:
            why = refusals.pop(topic)
            if self._refused.get(topic) != why:
                self._refused[topic] = why
                log.warning("%s is refused by the broker (%s): allow this user to write it", topic, why)

    def _log(self, keeper: LogKeeper, payloads: dict[str, bytes], now: datetime.datetime) -> dict[str, bytes]:
        """Return what to retain of what should be: what is in the log and signed, and withdrawals.

        While a change waits, for its day or for witnesses, devices keep the question before it, as long as
        its reports count.
        """
        keeper.add(payloads, now)
        waiting = dict(keeper.waiting)
        stops = {
            topic: withdrawal for topic in waiting if (withdrawal := self._stopped(keeper, topic, now.date()))
        }
        if stops:
            keeper.add(stops, now)
        last = {topic: stops.get(topic, keeper.last(topic)) for topic in waiting}
        retained = {topic: payload for topic, payload in (payloads | last).items() if payload is not None}
        for topic, payload in retained.items():
            if payload != keeper.last(topic) or (before := keeper.signed_before(topic)) is None:
                continue
            content, sentence = before
            version = self._version(topic, content)
            if version is not None and version.counts_on(now.date()):
                retained[topic] = content
                waiting.setdefault(topic, sentence)
        for topic, sentence in waiting.items():
            if self._waiting.get(topic) != sentence:
                log.info("%s", sentence)
        self._waiting = waiting
        return retained

    def _version(self, topic: str, payload: bytes) -> Version | None:
        """Return the store's version that an experiment's message announces, or None."""
        names = topics.parse_experiment_topic(topic)
        fleet = None if names is None else self._fleets.rules.get(names[0])
        digest = hashlib.sha256(payload.partition(b"\0")[0]).digest()[:4]
        return None if fleet is None else fleet.versions.get(digest)

    def _stopped(self, keeper: LogKeeper, topic: str, today: datetime.date) -> bytes | None:
        """Return the withdrawal of the question that devices have, if its reports no longer count."""
        content = keeper.last(topic)
        if content is None or keys.is_withdrawal(content):
            return None
        version = self._version(topic, content)
        if version is None or version.counts_on(today):
            return None
        can_withdraw = self._can_sign(version) or self._signed_messages(topic, version)
        return self._payload(topic, version, False) if can_withdraw else None

    def _drop_known(self, others: dict[str, bytes]) -> None:
        """Delete the messages that change nothing."""
        for topic in list(others):
            expected = self._payloads.get(topic, self._unknown.get(topic, b""))
            is_foreign_proof = topics.is_proof(topic) and topic not in self._payloads
            if is_foreign_proof or (topic not in self._elsewhere and others[topic] == expected):
                del others[topic]

    def _note_unknown(self, others: Mapping[str, bytes], payloads: Mapping[str, bytes]) -> None:
        """Log the other clients' experiments that the store does not have, once each."""
        before = self._unknown
        candidates = dict(others) if self._greeting else {**before, **others}
        unknown = (
            (topic, payload)
            for topic, payload in candidates.items()
            if topic not in payloads and topics.parse_experiment_topic(topic) is not None
            if not keys.is_withdrawal(payload) and self._version(topic, payload) is None
        )
        self._unknown = dict(itertools.islice(unknown, _MAX_UNKNOWN))
        new = [topic for topic, payload in self._unknown.items() if before.get(topic) != payload]
        for topic in new[:_MAX_LOGGED]:
            log.warning("%s", self._unknown_sentence(topic))
        if len(new) > _MAX_LOGGED:
            more = f"{len(new) - _MAX_LOGGED:,} more experiments"
            log.warning("%s are retained at the broker that this store does not have", more)

    def _unknown_sentence(self, topic: str) -> str:
        """Return a sentence that says what boards do with an unknown experiment, and how to clear it."""
        names = topics.parse_experiment_topic(topic)
        assert names is not None  # ensured by _note_unknown()
        fleet, name = names
        is_signed = keys.signed_serial(self._unknown[topic]) is not None
        key = " --signing-key FILE" if is_signed else ""
        command = f"hushmote experiment clear {name} --fleet {fleet}{key}{self._clear_options}"
        retained = f"the broker retains experiment {name} of fleet {fleet}"
        if fleet not in self._fleets.rules:
            return f"{retained}, but this store has no such fleet: if no other store has it, run `{command}`"
        which = (
            "this version"
            if any(version.experiment.name == name for version in self._fleets.rules[fleet].versions.values())
            else "it"
        )
        return (
            f"{retained}, but this store does not have {which}: boards spend budget on reports that are not "
            f"counted; add it, or run `{command}`"
        )

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
    return sum(
        topics.is_experiment(topic) and not keys.is_withdrawal(payload) for topic, payload in payloads.items()
    )
