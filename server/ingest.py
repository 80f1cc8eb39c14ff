"""decode -> authenticate -> deduplicate -> count, for a batch of messages, in one transaction.

`screen` and `settle` are pure; `ingest` puts the store between them. Whatever arrives is counted or rejected
by reason; nothing that arrives raises.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..device.ldp_client import Experiment
from . import keys, report
from .intervals import NumberSet
from .store import Store, Version
from .transaction import DedupeKey

MALFORMED = "malformed"
UNKNOWN_DIGEST = "unknown digest"
BAD_TAG = "bad tag"
DUPLICATE = "duplicate"
OUT_OF_RANGE = "out of range"
OVER_BUDGET = "over budget"
UNKNOWN_DEVICE = "unknown device"
UNKNOWN_FLEET = "unknown fleet"
REASONS = (
    MALFORMED,
    UNKNOWN_DIGEST,
    BAD_TAG,
    DUPLICATE,
    OUT_OF_RANGE,
    OVER_BUDGET,
    UNKNOWN_DEVICE,
    UNKNOWN_FLEET,
)

# Boards skip no number, so a set has one interval, or a few while reports of an outage come in. Only a forger
# or a broken board makes more; without a bound its row would grow with every report.
MAX_INTERVALS = 1024


@dataclass(frozen=True)
class Fleet:
    """What a fleet's reports are judged by.

    master: the 32-byte master key, None in an open fleet. versions: digest -> version. most: experiment name
    -> number of reports that no device's budget exceeds, None where unlimited. devices: the ids that may
    report, None for any.
    """

    name: str
    master: bytes | None = None
    versions: Mapping[bytes, Version] = field(default_factory=dict)
    most: Mapping[str, int | None] = field(default_factory=dict)
    devices: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A report that is authentic and in range; whether it is new, only the dedupe sets know."""

    key: DedupeKey
    number: int
    most: int | None
    version: Version
    code: int


@dataclass(frozen=True)
class Tally:
    """What became of a batch: reports accepted, and (fleet, reason) -> reports rejected."""

    accepted: int
    rejected: Mapping[tuple[str, str], int]


def fleets(
    store: Store,
    master: bytes | None = None,
    names: Sequence[str] | None = None,
    devices: Mapping[str, frozenset[str]] | None = None,
) -> dict[str, Fleet]:
    """Return the store's fleets, or those of the given names, ready to judge reports.

    devices: fleet -> allowed device ids; a fleet that is absent allows any. Raises MasterKeyError where a
    fleet has keys and no master key is given, and StoreError.
    """
    found = store.fleets()
    versions = store.experiments()
    chosen = {}
    for name in found if names is None else [n for n in names if n in found]:
        if found[name] and master is None:
            raise keys.MasterKeyError(
                f"fleet {name} has keys: give its master key as a file or in {keys.ENVIRONMENT_VARIABLE}"
            )
        own = [v for v in versions if v.fleet == name]
        chosen[name] = Fleet(
            name=name,
            master=master if found[name] else None,
            versions={v.experiment.digest: v for v in own},
            most=_most(v.experiment for v in own),
            devices=None if devices is None else devices.get(name),
        )
    return chosen


def _most(experiments: Iterable[Experiment]) -> dict[str, int | None]:
    """Name -> the most reports that any of its versions lets one device make."""
    most: dict[str, int | None] = {}
    for e in experiments:
        this = None if e.rule == "unlimited" else e.cap // e.cost()
        before = most.get(e.name, 0)
        most[e.name] = None if this is None or before is None else max(before, this)
    return most


def names_unknown(messages: Iterable[tuple[str, bytes]], fleets: Mapping[str, Fleet]) -> bool:
    """Whether any (topic, payload) is of a fleet or an experiment that is not among these; cheap and pure."""
    for topic, payload in messages:
        parts = topic.split("/", 3)
        fleet = fleets.get(parts[2]) if len(parts) == 4 else None
        if fleet is None or payload[1:5] not in fleet.versions:
            return True
    return False


def screen(
    messages: Iterable[tuple[str, bytes]], fleets: Mapping[str, Fleet]
) -> tuple[list[Candidate], Counter[tuple[str, str]]]:
    """Return the candidates among (topic, payload) messages, in order, and the rejects; pure."""
    candidates = []
    rejects: Counter[tuple[str, str]] = Counter()
    for topic, payload in messages:
        fleet, found = _screen(topic, payload, fleets)
        if isinstance(found, Candidate):
            candidates.append(found)
        else:
            rejects[fleet, found] += 1
    return candidates, rejects


def _screen(topic: str, payload: bytes, fleets: Mapping[str, Fleet]) -> tuple[str, Candidate | str]:
    try:
        name, device = report.parse_topic(topic)
    except report.TopicRefused as e:
        if e.part != "device":
            return "", UNKNOWN_FLEET
        # Counters of fleets that are not ours would let strangers fill the store.
        name = topic.split("/")[2]
        return (name, UNKNOWN_DEVICE) if name in fleets else ("", UNKNOWN_FLEET)
    fleet = fleets.get(name)
    if fleet is None:
        return "", UNKNOWN_FLEET
    if fleet.devices is not None and device not in fleet.devices:
        return name, UNKNOWN_DEVICE
    try:
        sent = report.decode(payload)
    except report.MalformedReport:
        return name, MALFORMED
    version = fleet.versions.get(sent.digest)
    if version is None:
        return name, UNKNOWN_DIGEST
    experiment = version.experiment
    if len(sent.code) != experiment.code_bytes:
        return name, MALFORMED
    if fleet.master is None:
        # A tag that nobody can check is not an open fleet's: board and server are set up differently.
        if sent.tag is not None:
            return name, BAD_TAG
    else:
        key = keys.device_key(fleet.master, name, device)
        if not report.verify(sent, key, device, experiment.sha256):
            return name, BAD_TAG
    code = int.from_bytes(sent.code, "big")
    if code >= experiment.code_count or sent.number == 0:
        return name, OUT_OF_RANGE
    key = (name, experiment.name, device)
    return name, Candidate(key, sent.number, fleet.most[experiment.name], version, code)


def settle(
    candidates: Iterable[Candidate], seen: Mapping[DedupeKey, NumberSet], now: datetime.datetime
) -> tuple[dict[DedupeKey, NumberSet], Counter[tuple[int, str, int]], Counter[tuple[str, str]]]:
    """Return the dedupe sets that change, the counts to add and the rejects; pure.

    seen must hold a set for every candidate's key. now is the time of arrival, UTC.
    """
    changed: dict[DedupeKey, NumberSet] = {}
    counts: Counter[tuple[int, str, int]] = Counter()
    rejects: Counter[tuple[str, str]] = Counter()
    windows = {kind: window(kind, now) for kind in ("hour", "day", "all")}
    for c in candidates:
        numbers = changed.get(c.key) or seen[c.key]
        if c.number in numbers:
            rejects[c.key[0], DUPLICATE] += 1
        elif c.most is not None and c.number > c.most:
            # Boards number from 1 without gaps, so this also bounds how many can be accepted.
            rejects[c.key[0], OVER_BUDGET] += 1
        else:
            more = numbers.add(c.number)
            if more.intervals > MAX_INTERVALS:
                rejects[c.key[0], OUT_OF_RANGE] += 1
                continue
            changed[c.key] = more
            counts[c.version.id, windows[c.version.experiment.window], c.code] += 1
    return changed, counts, rejects


def window(kind: str, now: datetime.datetime) -> str:
    """Return a moment's window (UTC): kind "hour" -> 2026-11-21T14, "day" -> 2026-11-21, "all" -> all."""
    if kind == "all":
        return "all"
    utc = now.astimezone(datetime.UTC)
    return utc.strftime("%Y-%m-%dT%H" if kind == "hour" else "%Y-%m-%d")


def ingest(
    store: Store, messages: Iterable[tuple[str, bytes]], fleets: Mapping[str, Fleet], now: datetime.datetime
) -> Tally:
    """Judge a batch of (topic, payload) messages and commit what became of it.

    When this returns it is on disk, and the messages may be acknowledged. Raises StoreError; then nothing of
    the batch was counted, and it may be tried again.
    """
    candidates, rejects = screen(messages, fleets)
    with store.ingest() as transaction:
        seen = transaction.seen(c.key for c in candidates)
        changed, counts, more_rejects = settle(candidates, seen, now)
        rejects += more_rejects
        transaction.write(changed, counts, rejects)
    return Tally(counts.total(), dict(rejects))
