"""Decode, authenticate, deduplicate and count a batch of messages in one transaction.

`screen` and `settle` have no side effects; `ingest` uses the store between them. Every message is counted or
rejected with a reason; no message causes an exception.
"""

import datetime
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..store.number_set import NumberSet
from ..store.store import Store, StoreError
from ..store.transaction import CountKey, DedupeKey, IngestTransaction, NumbersFault, TimeNotRecorded
from ..store.versions import Version, most_reports
from ..wire import keys, report, topics
from ..wire.keys import FleetKeys
from ..wire.limits import window
from .rate_limit import Device, RateLimit
from .recent_reports import Content, Number, RecentReports
from .status import Status

log = logging.getLogger(__name__)

MALFORMED = "malformed"
UNKNOWN_DIGEST = "unknown digest"
BAD_TAG = "bad tag"
DUPLICATE = "duplicate"
CONFLICTING_NUMBER = "conflicting number"
OUT_OF_RANGE = "out of range"
OVER_BUDGET = "over budget"
DAMAGED_NUMBERS = "damaged numbers"
UNKNOWN_DEVICE = "unknown device"
REVOKED_DEVICE = "revoked device"
TOO_FAST = "too fast"
UNKNOWN_FLEET = "unknown fleet"
EXPIRED_VERSION = "expired version"
_REPORT_REASONS = (
    MALFORMED,
    UNKNOWN_DIGEST,
    EXPIRED_VERSION,
    BAD_TAG,
    DUPLICATE,
    CONFLICTING_NUMBER,
    OUT_OF_RANGE,
    OVER_BUDGET,
    DAMAGED_NUMBERS,
)
REASONS = (*_REPORT_REASONS, UNKNOWN_DEVICE, REVOKED_DEVICE, TOO_FAST, UNKNOWN_FLEET)

_key = functools.lru_cache(maxsize=1 << 17)(keys.device_key)  # at most about 40 MiB
_mark = functools.lru_cache(maxsize=1 << 17)(keys.erased_mark)


@dataclass(frozen=True)
class FleetRules:
    """The rules by which a fleet's reports are checked.

    Attributes:
        name: The fleet's name.
        keys: The keys, any of whose master keys may have been used for a tag; None in an open fleet.
        seals: The keys with which an open fleet's erased devices may be sealed.
        versions: The versions by digest.
        most: The highest possible report number of each version, by digest; None if unlimited.
        revoked: Ids that may no longer report.
        listed: Whether only allowed devices may report.
        master_check: Check value of the master key; None if no key has been used yet.
    """

    name: str
    keys: FleetKeys | None = None
    seals: FleetKeys | None = None
    versions: Mapping[bytes, Version] = field(default_factory=dict)
    most: Mapping[bytes, int | None] = field(default_factory=dict)
    revoked: frozenset[str] = frozenset()
    listed: bool = False
    master_check: str | None = None

    def check_masters(self) -> None:
        """Check that one of the master keys is the one used for this fleet's reports.

        Raises:
            MasterKeyError: If none of them matches.
        """
        keys.check_masters(self.keys or self.seals, self.name, self.master_check)


class AuthenticReport(NamedTuple):
    """A report that is authentic and in range; only the dedupe sets show whether it is new.

    Attributes:
        key: The key of the device's dedupe row.
        number: The report number.
        most: The highest possible report number; None if unlimited.
        version: The experiment's version.
        group: The index of the open group's value; 0 if the version has no group.
        code: The code.
    """

    key: DedupeKey
    number: int
    most: int | None
    version: Version
    group: int
    code: int

    @property
    def content(self) -> Content:
        """What identifies the report's bytes, apart from its number."""
        return Content(self.version.experiment.digest, self.group, self.code)


@dataclass(frozen=True)
class Tally:
    """A batch's outcome.

    Attributes:
        accepted: Number of reports accepted.
        rejected: Number of reports rejected, by fleet and reason.
        fleets: Names of the fleets with accepted reports.
    """

    accepted: int
    rejected: Mapping[tuple[str, str], int]
    fleets: frozenset[str] = frozenset()


def fleets(
    store: Store, fleet_keys: FleetKeys | None = None, names: Sequence[str] | None = None
) -> dict[str, FleetRules]:
    """Return the rules of the store's fleets.

    Args:
        store: The store.
        fleet_keys: The keyed fleets' keys.
        names: The fleets to return; None for all.

    Raises:
        MasterKeyError: If a fleet is keyed and there are no keys.
        StoreError: If the store fails.
    """
    keyed = store.fleets()
    versions = store.experiments()
    listed = store.listed_fleets()
    checks = store.master_checks()
    rules = {}
    for name in keyed if names is None else [n for n in names if n in keyed]:
        if fleet_keys is None and (keyed[name] or checks.get(name)):
            why = "is keyed" if keyed[name] else "has erased devices, sealed with a master key"
            give = f"give its master key as a file or in {keys.ENVIRONMENT_VARIABLE}"
            raise keys.MasterKeyError(f"fleet {name} {why}: {give}")
        fleet_versions = [v for v in versions if v.fleet == name]
        most = most_reports(fleet_versions)
        rules[name] = FleetRules(
            name=name,
            keys=fleet_keys if keyed[name] else None,
            seals=fleet_keys,
            versions={v.experiment.digest: v for v in fleet_versions},
            most={v.experiment.digest: most[v.id] for v in fleet_versions},
            revoked=store.revoked_devices(name),
            listed=name in listed,
            master_check=checks.get(name),
        )
    return rules


class KnownFleets:
    """The fleets whose reports are counted, as last read from the store.

    Args:
        store: The store.
        status: Logs changes.
        fleet_keys: The fleets' keys; None if no fleet is keyed.
        names: The fleets to read; None for all.

    Attributes:
        rules: The rules by fleet.
    """

    def __init__(
        self,
        store: Store,
        status: Status,
        fleet_keys: FleetKeys | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._store = store
        self._status = status
        self._keys = fleet_keys
        self._names = names
        self._checked_fleets: set[str] = set()
        self.rules: Mapping[str, FleetRules] = {}

    def load(self) -> None:
        """Read the fleets for the first time.

        Raises:
            StoreError: If the store cannot be read, or one of the named fleets does not exist.
            MasterKeyError: If a fleet is keyed and the key is missing or wrong.
        """
        self.rules = fleets(self._store, self._keys, self._names)
        for rules in self.rules.values():
            rules.check_masters()
            if rules.master_check is not None:
                self._keep_check(rules)
        for name in self._names or ():
            if name not in self.rules:
                raise StoreError(f"there is no fleet {name} in {self._store.where}: add it first")

    def reload(self) -> None:
        """Read the fleets again, but skip new keyed fleets whose key is not available.

        Raises:
            StoreError: If the store cannot be read.
            MasterKeyError: If a known fleet now needs a key.
        """
        try:
            self.rules = fleets(self._store, self._keys, self._names)
        except keys.MasterKeyError as e:
            self._status.say(logging.ERROR, str(e))
            names = [n for n, keyed in self._store.fleets().items() if not keyed or n in self.rules]
            self.rules = fleets(self._store, self._keys, names)

    def note_counted(self, names: Iterable[str]) -> None:
        """Note that reports of these fleets were counted, which proves that the master key is correct."""
        for name in set(names) - self._checked_fleets:
            self._keep_check(self.rules[name])

    def _keep_check(self, rules: FleetRules) -> None:
        """Store the current key's check value once, which changes at the first start after a rotation."""
        self._checked_fleets.add(rules.name)
        if rules.keys is None:
            return
        value = keys.master_check(rules.keys.masters[0], rules.name)
        if value != rules.master_check:
            try:
                self._store.set_master_check(rules.name, value)
            except StoreError as e:  # only the next start's check is lost
                self._status.say(
                    logging.WARNING, f"cannot store the check value of fleet {rules.name}'s master key: {e}"
                )

    def renew_serials(self, versions: Iterable[Version]) -> None:
        """Give versions a higher serial, unless another process has, and read everything again.

        Raises:
            StoreError: If the store fails.
        """
        for version in versions:
            self._store.renew_serial(version)
        self.reload()

    def rules_for(self, messages: Sequence[tuple[str, bytes]]) -> Mapping[str, FleetRules]:
        """Return the fleets' rules, reloaded if a report refers to something missing at the last read."""
        # Reload at most once per batch: a device may enrol just after an experiment was added elsewhere.
        for topic, payload in messages:
            parts = topic.split("/", 3)
            fleet = self.rules.get(parts[2]) if len(parts) == 4 else None
            if fleet is None or payload[1:5] not in fleet.versions:
                self.reload()
                break
        return self.rules


def screen(
    messages: Iterable[tuple[str, bytes]], fleets: Mapping[str, FleetRules], today: datetime.date
) -> tuple[list[AuthenticReport], Counter[tuple[str, str]]]:
    """Split (topic, payload) messages into candidates, in order, and reject counts by fleet and reason.

    Args:
        messages: The messages.
        fleets: The rules by fleet.
        today: The day of arrival, UTC.
    """
    candidates = []
    rejects: Counter[tuple[str, str]] = Counter()
    for topic, payload in messages:
        fleet, verdict = _screen(topic, payload, fleets, today)
        if isinstance(verdict, AuthenticReport):
            candidates.append(verdict)
        else:
            rejects[fleet, verdict] += 1
    return candidates, rejects


def _screen(
    topic: str, payload: bytes, fleets: Mapping[str, FleetRules], today: datetime.date
) -> tuple[str, AuthenticReport | str]:
    try:
        name, device = topics.parse_topic(topic)
    except topics.TopicRefused as e:
        if e.part != "device":
            return "", UNKNOWN_FLEET
        # Counting rejects separately for each unknown fleet would let strangers fill the store.
        name = topic.split("/")[2]
        return (name, UNKNOWN_DEVICE) if name in fleets else ("", UNKNOWN_FLEET)
    fleet = fleets.get(name)
    if fleet is None:
        return "", UNKNOWN_FLEET
    if device in fleet.revoked:
        return name, REVOKED_DEVICE
    try:
        decoded = report.decode(payload)
    except report.MalformedReport:
        return name, MALFORMED
    version = fleet.versions.get(decoded.digest)
    if version is None:
        return name, UNKNOWN_DIGEST
    if version.counted_until is not None and not version.counts_on(today):
        return name, EXPIRED_VERSION
    experiment = version.experiment
    if not decoded.has_layout_of(experiment):
        return name, MALFORMED
    if fleet.keys is None:
        # Reports in an open fleet have no tag, so device and server are configured differently.
        if decoded.tag is not None:
            return name, BAD_TAG
    elif not any(
        report.verify(decoded, _key(master, name, device), device, experiment.sha256)
        for master in fleet.keys.masters
    ):
        return name, BAD_TAG
    code = int.from_bytes(decoded.code, "big")
    if code >= experiment.code_count or decoded.number == 0:
        return name, OUT_OF_RANGE
    key = (name, experiment.name, device)
    group = decoded.group or 0
    return name, AuthenticReport(key, decoded.number, fleet.most[decoded.digest], version, group, code)


@dataclass(frozen=True)
class Settlement:
    """A batch's changes to the store.

    Attributes:
        number_sets: The new dedupe sets.
        counts: Numbers of reports by version id, window, group index and code.
        rejects: Numbers of reports by fleet and reason.
        counted: The content of each report that is counted.
    """

    number_sets: Mapping[DedupeKey, NumberSet]
    counts: Counter[CountKey]
    rejects: Counter[tuple[str, str]]
    counted: Mapping[Number, Content]


def settle(
    candidates: Iterable[AuthenticReport],
    number_sets: Mapping[DedupeKey, NumberSet],
    now: datetime.datetime,
    quota: Callable[[Device], int] | None = None,
    differs: Callable[[Number, Content], bool] | None = None,
) -> tuple[Settlement, Counter[Device]]:
    """Return the candidates' changes, and each device's accepted reports if there is a quota.

    Args:
        candidates: Authentic reports.
        number_sets: The accepted numbers by key, without damaged rows.
        now: The time of arrival, UTC.
        quota: Returns how many reports from a (fleet, device) may be accepted; None for no limit.
        differs: Returns whether a report with the same number and another content was counted recently;
            None to compare only these candidates.

    Raises:
        NumbersFault: If a set cannot be extended; call again without it.
    """
    new_sets: dict[DedupeKey, NumberSet] = {}
    counts: Counter[CountKey] = Counter()
    rejects: Counter[tuple[str, str]] = Counter()
    accepted: Counter[Device] = Counter()
    faults: dict[DedupeKey, Exception] = {}
    counted: dict[Number, Content] = {}
    windows = {kind: window(kind, now) for kind in ("hour", "day", "all")}
    for candidate in candidates:
        key, number, most, version, group, code = candidate
        numbers = new_sets.get(key) or number_sets.get(key)
        if numbers is None:
            rejects[key[0], DAMAGED_NUMBERS] += 1
            continue
        try:
            wider = numbers.add(number)
        except Exception as e:
            faults[key] = e
            continue
        if wider is numbers:
            place, content = Number(key, number), candidate.content
            if place in counted:
                is_resent = counted[place] == content
            else:
                is_resent = differs is None or not differs(place, content)
            rejects[key[0], DUPLICATE if is_resent else CONFLICTING_NUMBER] += 1
            continue
        if most is not None and number > most:
            # Devices number their reports from 1 without gaps, so this also bounds how many are accepted.
            rejects[key[0], OVER_BUDGET] += 1
            continue
        if quota is not None:
            device = key[0], key[2]
            if accepted[device] >= quota(device):
                rejects[key[0], TOO_FAST] += 1
                continue
            accepted[device] += 1
        new_sets[key] = wider
        counted[Number(key, number)] = candidate.content
        counts[version.id, windows[version.experiment.window], group, code] += 1
    if faults:
        raise NumbersFault(faults)
    return Settlement(new_sets, counts, rejects, counted), accepted


def _marks(
    reports: Sequence[AuthenticReport], fleets: Mapping[str, FleetRules]
) -> dict[DedupeKey, list[str]]:
    """Return the marks that each key would have if the device had been erased."""
    marks = dict[DedupeKey, list[str]]()
    for fleet, name, device in {c.key for c in reports}:
        if fleet_keys := fleets[fleet].keys or fleets[fleet].seals:
            names = (name, "")
            marks[fleet, name, device] = [
                _mark(master, fleet, n, device) for master in fleet_keys.masters for n in names
            ]
    return marks


def _record_time(transaction: IngestTransaction, now: datetime.datetime) -> str:
    """Record that counting works; return the error message if only this failed, otherwise ""."""
    try:
        transaction.record_time(now)
    except TimeNotRecorded as e:
        return str(e)
    return ""


def ingest(
    store: Store,
    messages: Iterable[tuple[str, bytes]],
    fleets: Mapping[str, FleetRules],
    now: datetime.datetime,
    limit: RateLimit | None = None,
    *,
    recent: RecentReports | None = None,
    record_time: bool = False,
) -> Tally:
    """Check a batch of (topic, payload) messages and commit the outcome.

    When this returns, the batch is on disk and the messages may be acknowledged. If one device's numbers are
    damaged, only its reports are rejected.

    Args:
        store: The store.
        messages: The messages.
        fleets: The rules by fleet.
        now: The time of arrival.
        limit: The rate limit; None for no limit.
        recent: The reports counted recently; None to compare only the reports of this batch.
        record_time: Whether to record, if possible, that counting works.

    Raises:
        StoreError: If the store fails. The batch was then counted either not at all or completely, with only
            the commit's answer lost. It may be retried: reports already counted are then duplicates.
    """
    candidates, rejects = screen(messages, fleets, now.astimezone(datetime.UTC).date())
    quota = None
    if limit is not None:
        limit.start(time.monotonic())
        quota = limit.remaining
    differs = None if recent is None else recent.differs
    with store.ingest() as transaction:
        for name in {c.key[0] for c in candidates} & {f.name for f in fleets.values() if f.listed}:
            devices = {c.key[2] for c in candidates if c.key[0] == name}
            listed_devices = transaction.allowed_devices(name, devices)
            remaining = [c for c in candidates if c.key[0] != name or c.key[2] in listed_devices]
            if strangers := len(candidates) - len(remaining):
                rejects[name, UNKNOWN_DEVICE] += strangers
            candidates = remaining
        barred = transaction.barred_numbers(functools.partial(_marks, candidates, fleets))
        rejects.update((c.key[0], DUPLICATE) for c in candidates if c.number <= barred.get(c.key, 0))
        candidates = [c for c in candidates if c.number > barred.get(c.key, 0)]
        faults = dict[DedupeKey, Exception]()
        number_sets = transaction.read_numbers((c.key for c in candidates), faults)
        number_sets |= {
            key: number_sets[key].close(highest) for key, highest in barred.items() if key in number_sets
        }
        while True:
            try:
                settlement, accepted = settle(candidates, number_sets, now, quota, differs)
                transaction.write(settlement.number_sets, settlement.counts, rejects + settlement.rejects)
                break
            except NumbersFault as e:  # retry without them
                faults.update(e.faults)
                number_sets = {key: numbers for key, numbers in number_sets.items() if key not in faults}
        rejects += settlement.rejects
        time_error = _record_time(transaction, now) if record_time else ""
    if time_error:
        log.error("%s", time_error)
    for (fleet, name, _), fault in faults.items():
        log.error(
            "the report numbers of a device in fleet %s for %s are damaged (%r): its reports are not "
            "counted; run `hushmote store check`",
            fleet,
            name,
            fault,
        )
    if limit is not None:
        limit.add(accepted)
    if recent is not None:
        recent.add(settlement.counted)
    names = frozenset(key[0] for key in settlement.number_sets)
    return Tally(settlement.counts.total(), dict(rejects), names)
