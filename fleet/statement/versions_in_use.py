"""Count the devices that run each version of the firmware: evidence about a vulnerable version."""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...server import special
from ...server.answers import suppression
from ...server.answers.finding import find
from ...server.answers.query import SPENT_SHARE, Facts, Selection
from ...server.answers.releases.evidence import GroupDays
from ...server.budgets import remaining
from ...server.budgets.policy import Policy
from ...server.budgets.remaining import FleetLedger
from ...server.errors import UsageError
from ...server.words.numbers import counted

DAYS_BEHIND = "days_behind"
"""The standard question about outdated software."""
FIRMWARE = "firmware"
"""The open group that names the version that a device runs."""
RECENT_DAYS = 7
"""The completed days whose reports count, if there are at least ENOUGH_REPORTS."""
LONGER_DAYS = 30
"""The completed days that count otherwise."""
ENOUGH_REPORTS = 1_000
"""The number of reports from which on only RECENT_DAYS count; see there."""
_PART_HIDDEN = "not shown, because that of one of them is not"
_TAIL = 0.025  # on either side of a 95% interval


def _devices(low: float, high: float, devices: int) -> str:
    """Return the numbers of devices that shares correspond to, rounded outwards."""
    first, last = math.floor(max(low, 0.0) * devices), math.ceil(min(high, 1.0) * devices)
    return f"about {first:,} to {last:,} of the {counted(devices, 'device')} that have reported"


@dataclass(frozen=True)
class VersionShare:
    """The share of the fleet that runs a version, or some versions together.

    Attributes:
        versions: The versions, as the reports name them.
        reports: The number of its reports, or None if it is suppressed.
        share: The share of the readings, or None likewise; `low` to `high` is its 95% interval.
        why: Why it is suppressed, or "".
        is_vulnerable: Whether the operator names them as vulnerable.
    """

    versions: tuple[str, ...]
    reports: int | None
    share: float | None = None
    low: float = 0.0
    high: float = 1.0
    why: str = ""
    is_vulnerable: bool = False

    @property
    def title(self) -> str:
        """The versions in words."""
        names = ", ".join(self.versions) + (" together" if len(self.versions) > 1 else "")
        return f"{names} (vulnerable)" if self.is_vulnerable else names

    def words(self, group: "GroupShares") -> str:
        """Return the share of the readings, or if that is unknown of the reports, and of devices if known."""
        if self.share is None or self.reports is None:
            return self.why
        if group.unseen:
            return f"{100 * self.reports / group.reports:.1f}% of {counted(group.reports)}; not of devices"
        low, high = math.floor(1000 * self.low) / 10, math.ceil(1000 * self.high) / 10
        text = f"{100 * self.share:.1f}% of readings ({low:.1f}% to {high:.1f}%)"
        devices = "not of devices" if group.reason else _devices(self.low, self.high, group.devices)
        return f"{text}; {devices}"


@dataclass(frozen=True)
class GroupShares:
    """The versions in the reports of one experiment with the open group.

    Attributes:
        experiment: The experiment's name.
        first: The first day that counts.
        last: The last such day.
        devices: The number of devices that have ever reported to it.
        reports: The number of its reports in these days.
        unseen: Why the reports do not even show the shares of the readings, or "".
        mixed: Why these are not the shares of the devices, or "".
        rows: Each version with reports or named as vulnerable, then all vulnerable ones together.
    """

    experiment: str
    first: datetime.date
    last: datetime.date
    devices: int
    reports: int
    unseen: str
    mixed: str
    rows: tuple[VersionShare, ...]

    @property
    def reason(self) -> str:
        """The reason why the number of devices with a version is unknown, or ""."""
        return self.unseen or self.mixed


@dataclass(frozen=True)
class VersionsInUse:
    """The store's evidence about the versions in use.

    Attributes:
        days_behind: The finding of the standard question, or "" if the fleet is not asked.
        groups: The shares of each experiment with the open group that has reports in the last days.
        vulnerable: The versions that the operator names as vulnerable.
    """

    days_behind: str = ""
    groups: tuple[GroupShares, ...] = ()
    vulnerable: tuple[str, ...] = ()


def read_versions(
    facts: Facts, fleet: str, policy: Policy | None = None, vulnerable: Sequence[str] = ()
) -> VersionsInUse:
    """Read the evidence.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        policy: The policy in the devices' firmware, which may limit their reports; None if unknown.
        vulnerable: The versions of the firmware that are vulnerable.

    Raises:
        UsageError: If no experiment's open group lists a vulnerable version.
    """
    days = GroupDays.read(facts, fleet, FIRMWARE)
    if unknown := [version for version in vulnerable if version not in days.values]:
        listed = f"; its groups list {', '.join(days.values[:-1])}" if days.experiments else ""
        raise UsageError(
            f"no open group {FIRMWARE} of fleet {fleet} lists {', '.join(unknown)}{listed}; name a version "
            "as the experiment's file does"
        )
    devices = _count_devices(remaining.read(facts.store, fleet, facts.at.date(), policy))
    groups = [
        _shares(_recent(days, name), name, devices.get(name, _Devices()), vulnerable)
        for name in days.experiments
    ]
    finding = _days_behind(facts, fleet, devices.get(DAYS_BEHIND, _Devices()))
    return VersionsInUse(finding, tuple(each for each in groups if each.rows), tuple(vulnerable))


@dataclass(frozen=True)
class _Devices:
    """The devices that have reported to an experiment, and those of them with no reports left."""

    count: int = 0
    spent: int = 0


def _count_devices(ledger: FleetLedger) -> dict[str, _Devices]:
    """Return the devices by experiment; those of one that is no longer asked have no reports left."""
    result = dict[str, _Devices]()
    for i, budget in enumerate(ledger.budgets):
        reported = {profile: n for profile, n in ledger.profiles.items() if profile[i]}
        spent = sum(n for profile, n in reported.items() if ledger.remaining_reports(profile)[i] == 0)
        result[budget.experiment.name] = _Devices(sum(reported.values()), spent)
    return result


def _days_behind(facts: Facts, fleet: str, devices: _Devices) -> str:
    """Return the finding of the standard question, with numbers of devices if no budget is spent."""
    if DAYS_BEHIND not in facts.names(fleet):
        return ""
    answers = find(facts, Selection(DAYS_BEHIND, fleet))
    shares = [f for f in answers.findings if f.quantity == "share" and f.low is not None]
    if devices.spent > SPENT_SHARE * devices.count:
        notes = [
            f"Numbers of devices are not stated: {devices.spent:,} of {devices.count:,} have no reports left."
        ]
    else:
        notes = [f"{f.title}: {_devices(f.low or 0.0, f.high or 0.0, devices.count)}." for f in shares]
    return " ".join((*answers.lines, *notes))


def _recent(days: GroupDays, name: str) -> GroupDays:
    """Return the newest days that are enough for an experiment."""
    if not days.count:
        return days
    recent, longer = (
        days.since(days.last - datetime.timedelta(days=length - 1)) for length in (RECENT_DAYS, LONGER_DAYS)
    )
    return recent if recent.reports(name, days.values).sum() >= ENOUGH_REPORTS else longer


def _shares(days: GroupDays, name: str, devices: _Devices, vulnerable: Sequence[str]) -> GroupShares:
    """Return the shares of the versions with reports and of the vulnerable ones, alone and together."""
    counts = {value: int(days.reports(name, [value]).sum()) for value in days.values} if days.count else {}
    total = sum(counts.values())
    hidden = {row.value: row.not_shown for row in suppression.group_reports(FIRMWARE, "", counts).rows}
    rows = list[VersionShare]()
    for value, n in counts.items():
        if total and (n or value in vulnerable):
            rows.append(_share(days, name, [value], counts, hidden[value]))
    if len(vulnerable) > 1 and rows:
        is_hidden = any(hidden[value] for value in vulnerable)
        rows.append(_share(days, name, vulnerable, counts, _PART_HIDDEN if is_hidden else ""))
    marked = tuple(replace(row, is_vulnerable=set(row.versions) <= {*vulnerable}) for row in rows)
    unseen = days.unseen_devices(name, devices.count, devices.spent)
    return GroupShares(
        name, days.first, days.last, devices.count, total, unseen, _mixture(days, name), marked
    )


def _mixture(days: GroupDays, name: str) -> str:
    """Return why shares of the readings are not shares of the devices that have reported, or ""."""
    if days.is_every_mixed(name):
        return (
            f"`every` of {name} differs between versions, so a device is less likely to have reported if "
            "its version reports rarely"
        )
    return f"the shares changed from {days.first} to {days.last}" if days.is_changing(name) else ""


def _share(
    days: GroupDays, name: str, versions: Sequence[str], counts: Mapping[str, int], hidden: str
) -> VersionShare:
    """Return the share of some versions.

    The shares weigh each report by the readings that it stands for. The interval is that of Clopper and
    Pearson for the number of equally weighted reports with the same variance.
    """
    if hidden:
        return VersionShare(tuple(versions), None, why=hidden)
    everything = days.daily_reports(name, [value for value, n in counts.items() if n])
    reports = sum(counts[version] for version in versions)
    calls = float(days.daily_reports(name, versions).calls.sum()) if reports else 0.0
    share = calls / float(everything.calls.sum())
    n = float(everything.effective.sum())
    x = share * n
    low = float(special.betaincinv(x, n - x + 1, _TAIL)) if x > 0 else 0.0
    high = float(special.betainccinv(x + 1, n - x, _TAIL)) if x < n else 1.0
    return VersionShare(tuple(versions), reports, share, low, high)
