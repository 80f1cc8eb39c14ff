"""An experiment's versions: which changes are allowed, and how many reports they permit, without any I/O."""

import datetime
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Any, Literal

from sqlalchemy import RowMapping

from ...device.ldp_client import Experiment
from ..epsilon import SCALES, nats
from ..local_days import Calendar, check_text
from ..wire.experiments import parse_experiment
from ..wire.keys import SIGNATURE_BYTES, Signatures
from ..wire.limits import kept_hours
from .database import StoreError

MAX_AHEAD_S = 31 * 86_400
"""How many seconds ahead a serial signed elsewhere may be; serials are times and never decrease."""


class VersionRefused(StoreError):
    """Raised when an experiment's version or a fleet contradicts the store."""


@dataclass(frozen=True)
class Description:
    """The texts about an experiment that devices never see; empty if unknown.

    Attributes:
        unit: The unit of the readings.
        purpose: The purpose of the experiment.
        owner: The person or team responsible.
        asked: The questions that its finding answers, one per line; empty for the default for its kind.
        keep: How long windows are kept after they end, in the format of wire.limits.kept_hours(); empty for
            ever.
        worse: By how much a release may be worse, and in which direction, in the format of
            experiments.judged.Worse; empty for its default.
        day: The time zone of its days, as in local_days.Calendar; empty for UTC.
        week: The first day of its weeks, likewise; empty for Monday.
    """

    unit: str = ""
    purpose: str = ""
    owner: str = ""
    asked: str = ""
    keep: str = ""
    worse: str = ""
    day: str = ""
    week: str = ""

    @property
    def calendar(self) -> Calendar:
        """The days and weeks by which hours are grouped."""
        return Calendar(self.day, self.week)


@dataclass(frozen=True)
class Version:
    """One version of an experiment, immutable except for its description.

    Attributes:
        id: The id of its row.
        fleet: The fleet's name.
        payload: The published JSON.
        current: Whether it is the published version of its name.
        expires: The last day, UTC, on which it is published; None if it never expires.
        experiment: The parsed payload.
        counted_until: The last day, UTC, on which its reports count; None for no limit.
        first_serial: The serial of its first publication; serials grow over all versions of a fleet.
        serial: The serial of its latest publication.
        unit: See Description.
        purpose: See Description.
        owner: See Description.
        asked: See Description.
        keep: See Description.
        worse: See Description.
        day: See Description.
        week: See Description.
        erased: The number of reports in windows that have been erased.
        signatures: The signatures for its serial if they were made elsewhere; otherwise None.
    """

    id: int
    fleet: str
    payload: bytes
    current: bool
    expires: datetime.date | None
    experiment: Experiment
    counted_until: datetime.date | None = None
    first_serial: int = 0
    serial: int = 0
    unit: str = ""
    purpose: str = ""
    owner: str = ""
    asked: str = ""
    keep: str = ""
    worse: str = ""
    day: str = ""
    week: str = ""
    erased: int = 0
    signatures: Signatures | None = None

    @property
    def description(self) -> Description:
        """The texts as a Description."""
        return Description(**{field.name: getattr(self, field.name) for field in fields(Description)})

    def published_on(self, day: datetime.date) -> bool:
        """Return whether devices take part on that day, UTC."""
        return self.current and (self.expires is None or day <= self.expires)

    def counts_on(self, day: datetime.date) -> bool:
        """Return whether reports of this version that arrive on that day, UTC, are counted."""
        return self.counted_until is None or day <= self.counted_until


@dataclass(frozen=True)
class UnreadableExperiment:
    """An experiment that readers leave out, because one of its versions cannot be read here.

    Attributes:
        fleet: The fleet's name.
        name: The experiment's name.
        words: Why, in one line.
    """

    fleet: str
    name: str
    words: str


def check_readable(unreadable: Iterable[UnreadableExperiment], name: str | None = None) -> None:
    """Check that an experiment, or any if `name` is None, was not left out.

    Raises:
        StoreError: If it was.
    """
    words = [experiment.words for experiment in unreadable if name in (None, experiment.name)]
    if words:
        more = f" (and {len(words) - 1:,} more: `hushmote store check` lists them)" if words[1:] else ""
        raise StoreError(f"{words[0]}{more}")


ChangeKind = Literal["new experiment", "new version", "earlier version", "only words", "unchanged"]


@dataclass(frozen=True)
class Addition:
    """The outcome of adding an experiment's version.

    Attributes:
        version: The version as it is now.
        previous: The version that was current before, or the last published one; None for a new name.
        is_new: Whether the store did not have this version before.
    """

    version: Version
    previous: Version | None
    is_new: bool

    @property
    def kind(self) -> ChangeKind:
        """What changed: the JSON that boards receive, only what the store keeps about it, or nothing."""
        if self.previous is None:
            return "new experiment"
        if self.version.id != self.previous.id:
            return "new version" if self.is_new else "earlier version"
        before, after = self.previous, self.version
        has_same_end = before.expires == after.expires and (
            not before.current or before.counted_until == after.counted_until
        )
        return "unchanged" if has_same_end and before.description == after.description else "only words"


def check_expected(addition: Addition, expected: Iterable[Version]) -> None:
    """Check that an addition replaces the version that its author expects, or changes nothing.

    Raises:
        VersionRefused: If someone else has changed the experiment in the meantime.
    """
    previous, name = addition.previous, addition.version.experiment.name
    if previous is None or (previous.current and addition.kind == "unchanged"):
        return
    expected_version = newest_versions(expected).get((previous.fleet, name))
    if expected_version is not None and _publication(expected_version) == _publication(previous):
        return
    owner = f" of {previous.owner}" if previous.owner else ""
    digest = f"{previous.experiment.digest.hex()}{owner}"
    now = f"{digest} is current now" if previous.current else f"{digest} is withdrawn now"
    raise VersionRefused(
        f"someone else changed {name} while you were adding it ({now}): look at their change, then add your "
        "file again to replace it"
    )


def _publication(version: Version) -> tuple[object, ...]:
    """Return the properties that an operator decides, and not an aggregator."""
    return version.id, version.current, version.expires, version.description


def publication_order(version: Version) -> tuple[bool, int]:
    """Return a sort key that puts a name's current version last; without one, the last published version.

    After a merge, another version may have a higher serial than the current one.
    """
    return version.current, version.serial


def newest_versions(versions: Iterable[Version]) -> dict[tuple[str, str], Version]:
    """Return each experiment's current version, or the last published one, by fleet and name."""
    return {(v.fleet, v.experiment.name): v for v in sorted(versions, key=publication_order)}


def version_of(row: RowMapping) -> Version:
    """Return the version in a row of the experiment table.

    Raises:
        ExperimentRefused: If the payload is damaged.
        TypeError: If the row is damaged.
        ValueError: If the row is damaged.
    """
    days = {
        name: None if row[name] is None else datetime.date.fromisoformat(row[name])
        for name in ("expires", "counted_until")
    }
    if days["expires"] == datetime.date.max:  # files use 9999-12-31 for no end
        days["expires"] = None
    texts = {field.name: row[field.name] for field in fields(Description)}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("the unit, purpose, owner or question is not text")
    kept_hours(texts["keep"])
    check_text(texts["day"], texts["week"])
    serials = {name: int(row[name]) for name in ("first_serial", "serial", "erased")}
    payload, current = bytes(row["payload"]), bool(row["current"])
    experiment = parse_experiment(payload)
    both = None if row["signatures"] is None else bytes(row["signatures"])
    signatures = both and Signatures(serials["serial"], both[:SIGNATURE_BYTES], both[SIGNATURE_BYTES:])
    return Version(
        row["id"],
        row["fleet"],
        payload,
        current,
        experiment=experiment,
        **days,
        **serials,
        **texts,
        signatures=signatures or None,
    )


def row_of(version: Version) -> dict[str, Any]:
    """Return a version as a row of the experiment table, without its id."""
    e = version.experiment
    same = ("fleet", "payload", "current", "first_serial", "serial", "erased")
    row = {name: getattr(version, name) for name in same} | asdict(version.description) | {"name": e.name}
    row |= {"digest": e.digest, "sha256": e.sha256, "signatures": signatures_text(version.signatures)}
    return row | {name: day_text(getattr(version, name)) for name in ("expires", "counted_until")}


def signatures_text(signatures: Signatures | None) -> bytes | None:
    """Return both signatures in their stored form, or None for None."""
    return signatures and signatures.announcement + signatures.withdrawal


def check_signed_serial(same_name: Iterable[Version], signatures: Signatures, last: int, now: float) -> None:
    """Check that boards would accept a signed serial, and that it does not use up the serials.

    Args:
        same_name: The existing versions with the experiment's name.
        signatures: The signatures, which include the serial.
        last: The fleet's last serial.
        now: Unix time.

    Raises:
        VersionRefused: If the serial is too low or too high.
    """
    # The current version may be added again unchanged.
    others = (v for v in same_name if not (v.current and v.signatures == signatures))
    last_serial = max((v.serial + 1 for v in others), default=0)
    if signatures.serial <= last_serial:
        raise VersionRefused(
            f"it was signed before the version that devices have; sign it again, with "
            f"--after {last_serial} if that machine's clock is right"
        )
    if signatures.serial > max(last, now) + MAX_AHEAD_S:
        date = datetime.datetime.fromtimestamp(signatures.serial, datetime.UTC).date()
        raise VersionRefused(
            f"it was signed on {date} by the clock of that machine: set that clock, and sign it again"
        )


def last_counted(last: datetime.date, grace_days: int) -> datetime.date:
    """Return the last day on which reports count if the grace period starts after the day `last`."""
    return min(last, datetime.date.max - datetime.timedelta(grace_days)) + datetime.timedelta(grace_days)


def retired_until(version: Version, today: datetime.date, grace_days: int) -> datetime.date:
    """Return the last day, UTC, on which reports count for a version that stops being current today.

    That is after grace_days days including today, but not later than the previous limit.
    """
    last = last_counted(today - datetime.timedelta(1), grace_days)
    return min(version.counted_until or datetime.date.max, last)


def day_text(day: datetime.date | None) -> str | None:
    """Return a day as text for the store, or None for None."""
    return None if day is None else day.isoformat()


def check_total(first: Experiment, new: Experiment) -> None:
    """Check that a version does not spend more than the first version of its name.

    Devices have pinned the first version's rule and cap, and would refuse it otherwise.

    Raises:
        VersionRefused: If the rule differs, the cap is higher, or the epsilon of a counted budget differs.
    """
    if new.rule != first.rule:
        raise VersionRefused(
            f"{new.name} has the budget rule {first.rule}, which cannot change: use another name for "
            "another rule"
        )
    if new.rule != "unlimited" and new.cap > first.cap:
        most = Decimal(first.cap) / SCALES[first.rule]
        raise VersionRefused(f"{new.name} cannot have a cap above its first cap, {most:f}: lower it to that")
    if new.rule == "count" and new.epsilon != first.epsilon:
        raise VersionRefused(f"{new.name} counts reports, so its epsilon must remain {nats(first.epsilon)}")


def check_unit(name: str, unit: str, others: Iterable[Version]) -> None:
    """Check that no readings in another unit than a version's were counted under its name.

    Boards never see the unit, so one without the check could change under a histogram.

    Args:
        name: The experiment's name.
        unit: The version's unit.
        others: The name's versions with reports in another unit.

    Raises:
        VersionRefused: If there are any.
    """
    for version in others:
        change = f"the unit cannot change to {unit}" if unit else "the unit cannot be omitted"
        is_pair = version.experiment.type == "pair"
        advice = "write the same units" if is_pair else f'write unit = "{version.unit}"'
        raise VersionRefused(
            f"{name} has reports in {version.unit}, so {change}: {advice}, or take a new name"
        )


def most_reports(versions: Iterable[Version]) -> dict[int, int | None]:
    """Return the highest possible report number of each version by id; None if unlimited, 0 if none.

    A device numbers its reports to a name across all versions and spends from one budget. Before a report of
    a version, it can have made at most the reports that cheaper versions published earlier allow.
    """
    names: dict[tuple[str, str], list[Version]] = {}
    for v in versions:
        names.setdefault((v.fleet, v.experiment.name), []).append(v)
    most: dict[int, int | None] = {}
    for same in names.values():
        same.sort(key=lambda v: v.experiment.cost())
        most.update((v.id, _highest_number(v, same)) for v in same)
    return most


def _highest_number(version: Version, cheapest_first: Iterable[Version]) -> int | None:
    e = version.experiment
    if e.rule == "unlimited":
        return None
    # The number of earlier reports is largest if each costs as little as any published version allows.
    cap_before = e.cap - e.cost()
    cost_before = number = 0
    for v in cheapest_first:
        before, cost = v.experiment, v.experiment.cost()
        if v is version or v.first_serial < version.serial:
            more = max(0, (min(before.cap, cap_before) - cost_before) // cost)
            cost_before += more * cost
            number += more
    return number + 1 if cap_before >= 0 else 0
