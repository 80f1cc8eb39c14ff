"""The number of devices with each version, as the update server reports it, for the check for silent boards.

It is the number of devices with the new version and of all devices, or a JSON object. Numbers without a day
count the devices that have had the version for at least the whole last day; an object of days gives those at
the end of each day:

    1200/20000
    {"2.4.0": 1200, "2.3.1": 18800}
    {"2026-11-20": {"2.4.0": 200, "2.3.1": 19800}, "2026-11-21": {"2.4.0": 1200, "2.3.1": 18800}}

How often a board reports is unknown, so the number of reports to expect is derived from the other devices.
"""

import datetime
import http.client
import json
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ... import special
from ...arrays import Floats
from ...errors import UsageError, os_reason
from ...release.plan import SILENCE_WEIGHT, ReleasePlan, SilencePlan
from ...release.power import silence_information
from ...release.silence import Presence, SilenceLook, silence_looks, single_day_part, whole_day
from ..query import OTHER
from .evidence import GroupDays, GroupExperiment

NOTICED_MISSING_SHARE = 0.3
"""The missing share of reports for which the check is planned."""
_MAX_BYTES = 1 << 20
_TIMEOUT_S = 10
_FORMS = 'numbers such as 1200/20000, or JSON such as {"2.4.0": 1200, "2.3.1": 18800}'


@dataclass(frozen=True)
class Installed:
    """The installed devices.

    Attributes:
        devices: The devices by version, with the key "" for a number that names no version.
        total: All devices, if it was given, otherwise None.
        by_day: The devices by version at the end of each day; empty if there are no days.
    """

    devices: Mapping[str, int]
    total: int | None
    by_day: Mapping[datetime.date, Mapping[str, int]]

    @property
    def tables(self) -> tuple[Mapping[str, int], ...]:
        """The devices by version, in all tables."""
        return (self.devices, *self.by_day.values())

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that are named."""
        return tuple(dict.fromkeys(name for table in self.tables for name in table if name))


def read_installed(source: int | str | Mapping[str, Any]) -> Installed:
    """Return the installed devices from a number, an object, a file, or an address with http or https.

    Raises:
        UsageError: If the source cannot be read, or contains something else.
    """
    if isinstance(source, int):
        return _parse(source, "installed")
    if isinstance(source, Mapping):
        return _parse(dict(source), "installed")
    if numbers := _numbers(source):
        return numbers
    text = _fetch(source) if re.match(r"https?://", source) else _read(Path(source))
    if numbers := _numbers(text):
        return numbers
    try:
        return _parse(json.loads(text), source)
    except (ValueError, RecursionError):
        raise UsageError(f"{source} must contain {_FORMS}") from None


def _numbers(text: str) -> Installed | None:
    """Return the devices given as 1200 or 1200/20000, or None for any other text."""
    match = re.fullmatch(r"\s*([0-9]{1,15})(?:\s*/\s*([0-9]{1,15}))?\s*", text)
    if match is None:
        return None
    new, total = int(match[1]), match[2] and int(match[2])
    if total and total < new:
        raise UsageError(f"{text.strip()}: all devices, after the /, cannot be fewer than those before it")
    return Installed({"": new}, total or None, {})


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as e:
        raise UsageError(
            f"--installed takes {_FORMS}, in a file or at an address: {path}: {os_reason(e)}"
        ) from None
    return _text(content, str(path))


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
            content = response.read(_MAX_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as e:
        reason = os_reason(e) if isinstance(e, OSError) else type(e).__name__
        raise UsageError(f"cannot read {url}: {reason}") from None
    return _text(content, url)


def _text(content: bytes, source: str) -> str:
    if len(content) > _MAX_BYTES:
        raise UsageError(f"{source} has more than {_MAX_BYTES:,} bytes; it must contain {_FORMS}")
    return content.decode(errors="replace")


def _parse(value: Any, source: str) -> Installed:
    if isinstance(value, dict):
        table = cast(dict[str, Any], value)
        if table and all(isinstance(each, dict) for each in table.values()):
            by_day = {_day(text, source): _devices(each, source) for text, each in table.items()}
            return Installed({}, None, dict(sorted(by_day.items())))
        return Installed(_devices(table, source), None, {})
    return Installed(_devices({"": value}, source), None, {})


def _day(text: str, source: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{source}: {text:.40} is not a day such as 2026-11-21") from None


def _devices(table: dict[str, Any], source: str) -> dict[str, int]:
    for value in table.values():
        if type(value) is not int or not 0 <= value < 1 << 53:
            raise UsageError(f"{source}: the devices must be a whole number of 0 or more, not {value!r:.40}")
    if not table:
        raise UsageError(f"{source} must contain {_FORMS}")
    return table


def silence_plan(
    installed: Installed, plan: ReleasePlan, days: GroupDays, experiment: GroupExperiment
) -> SilencePlan:
    """Return the plan for the check for silent boards, from the numbers at the first call.

    Numbers without a day show one day at each call, so it is planned for half of what this day shows.
    """
    level = SILENCE_WEIGHT * plan.alpha
    tolerance = SilencePlan(1.0).tolerance
    result = SilencePlan(silence_information(NOTICED_MISSING_SHARE, tolerance, level))
    if installed.by_day:
        return result
    looks = silence(installed, replace(plan, silence=result), days, experiment)
    information = min([result.information, *(look.information / 2 for look in looks)])
    return replace(result, information=information)


def silence(
    installed: Installed, plan: ReleasePlan, days: GroupDays, experiment: GroupExperiment
) -> tuple[SilenceLook, ...]:
    """Return the looks at missing reports.

    Args:
        installed: The installed devices.
        plan: The plan, which must check for silent boards.
        days: The days of the group.
        experiment: The experiment whose reports are expected.

    Raises:
        UsageError: If the numbers do not include the new version, or no other devices.
    """
    assert plan.silence is not None
    if not days.count:
        return ()
    if not any(name in table for table in installed.tables for name in (plan.new, "")):
        raise UsageError(f"the installed devices name {', '.join(installed.versions)}, but not {plan.new}")
    others = tuple(name for name in installed.versions if name != plan.new)
    if not others and installed.total is None:
        raise UsageError(f"the number of reports to expect comes from the other devices, so give {_FORMS}")
    values = {name if name in days.values else OTHER for name in others} or {*days.values} - {plan.new}
    new, other = (days.daily_reports(experiment.name, side) for side in ([plan.new], values))
    new_devices, other_devices = _daily(installed, plan.new, days)
    looks = silence_looks(
        Presence(new_devices, new.effective, new.rate),
        Presence(other_devices, other.effective, other.rate),
        plan.silence,
    )
    return looks if installed.by_day else tuple(_single_look(look, plan) for look in looks)


def _daily(installed: Installed, new: str, days: GroupDays) -> tuple[Floats, Floats]:
    """Return the devices to count on each day, new and others, of shape (days,); 0 on days without both."""
    if not installed.by_day:
        sides = np.zeros((2, days.count))
        devices = installed.devices.get(new, installed.devices.get("", 0))
        others = sum(n for name, n in installed.devices.items() if name not in (new, ""))
        sides[:, -1] = devices, others if installed.total is None else installed.total - devices
        return sides[0], sides[1]
    tables = [installed.by_day.get(days.day(k - 1)) for k in range(days.count + 1)]
    ends = np.array(
        [(np.nan, np.nan) if table is None else (table.get(new, 0), _others(table, new)) for table in tables]
    ).T
    return np.nan_to_num(whole_day(ends[0], newest=True)), np.nan_to_num(whole_day(ends[1], newest=False))


def _others(table: Mapping[str, int], new: str) -> int:
    return sum(n for name, n in table.items() if name != new)


def _single_look(look: SilenceLook, plan: ReleasePlan) -> SilenceLook:
    """Widen a look at a single day.

    Without days, each call sees a different day, so the looks are not nested. Each gets the part of the level
    that single_day_part() gives to its day, by enlarging the variance. Until the new version's first report,
    each day counts as the first: healthy boards that should send enough for a "stop", about 30 reports a day,
    are that silent with a negligible probability.
    """
    level = SILENCE_WEIGHT * plan.alpha
    part = single_day_part(look.day + 1, plan.days)
    factor = float(special.ndtri(part * level) / special.ndtri(level)) ** 2
    return replace(look, variance=factor * look.variance)
