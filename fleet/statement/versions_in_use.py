"""How many devices run which version of the firmware, from the store: evidence about a vulnerable version."""

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...server import special
from ...server.answers import suppression
from ...server.answers.finding import find
from ...server.answers.query import Facts, Selection
from ...server.answers.releases.evidence import GroupDays
from ...server.errors import UsageError

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
    return f"about {first:,} to {last:,} of {devices:,} devices"


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

    def words(self, devices: int) -> str:
        """Return the share, and the number of devices that it corresponds to."""
        if self.share is None:
            return self.why
        low, high = math.floor(1000 * self.low) / 10, math.ceil(1000 * self.high) / 10
        interval = f"{low:.1f}% to {high:.1f}%"
        return f"{100 * self.share:.1f}% ({interval}), {_devices(self.low, self.high, devices)}"


@dataclass(frozen=True)
class GroupShares:
    """The versions in the reports of one experiment with the open group.

    Attributes:
        experiment: The experiment's name.
        first: The first day that counts.
        last: The last such day.
        devices: The number of devices that have ever reported to it.
        rows: Each version with reports or named as vulnerable, then all vulnerable ones together.
    """

    experiment: str
    first: datetime.date
    last: datetime.date
    devices: int
    rows: tuple[VersionShare, ...]


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
    facts: Facts, fleet: str, devices: Mapping[str, int], vulnerable: Sequence[str] = ()
) -> VersionsInUse:
    """Read the evidence.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        devices: The number of devices that have reported, by experiment.
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
    finding = ""
    if DAYS_BEHIND in facts.names(fleet):
        answers = find(facts, Selection(DAYS_BEHIND, fleet))
        shares = [f for f in answers.findings if f.quantity == "share" and f.low is not None]
        known = devices.get(DAYS_BEHIND, 0)
        finding = " ".join(
            (*answers.lines, *(f"{f.title}: {_devices(f.low or 0.0, f.high or 0.0, known)}." for f in shares))
        )
    groups = [
        _shares(_recent(days, name), name, devices.get(name, 0), vulnerable) for name in days.experiments
    ]
    return VersionsInUse(finding, tuple(each for each in groups if each.rows), tuple(vulnerable))


def _recent(days: GroupDays, name: str) -> GroupDays:
    """Return the newest days that are enough for an experiment."""
    if not days.count:
        return days
    recent, longer = (
        days.since(days.last - datetime.timedelta(days=length - 1)) for length in (RECENT_DAYS, LONGER_DAYS)
    )
    return recent if recent.reports(name, days.values).sum() >= ENOUGH_REPORTS else longer


def _shares(days: GroupDays, name: str, devices: int, vulnerable: Sequence[str]) -> GroupShares:
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
    marked = (replace(row, is_vulnerable=set(row.versions) <= {*vulnerable}) for row in rows)
    return GroupShares(name, days.first, days.last, devices, tuple(marked))


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
