"""An overview of a store's fleets: experiments with their descriptions, numbers of reports and problems.

It is refreshed after each commit, so it has to be cheap: only the newest windows are summed again, and
devices' report numbers are not read.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from sqlalchemy import Connection, func, select

from ..answers.windows import NOTHING_DUE, Due, due
from ..estimate import plausibility
from ..plain_text import visible
from ..store import schema
from ..store.counting import clock_fault, last_time
from ..store.erase import unfinished_erasures
from ..store.store import Store, StoreError
from ..store.versions import Version, publication_order
from .rejects import Rejected, rejected_reports

State = Literal["current", "expired", "withdrawn"]

# Growth of the reports after which a histogram is checked again, because a check costs as much as decoding.
# A store that doubles in 1,000 commits is checked 7 times.
_GROWTH = 0.1


@dataclass(frozen=True)
class ExperimentOverview:
    """A fleet's experiment, with all its versions combined.

    The analyst's texts are untrusted, so their control characters are escaped.

    Attributes:
        fleet: The fleet's name.
        name: The experiment's name.
        type: The type of the readings.
        window: The type of windows.
        purpose: The experiment's purpose, from the newest version that states one.
        owner: The person or team responsible, likewise.
        unit: The unit of its readings, likewise.
        state: "current" while devices are being asked.
        expires: The last day, UTC, on which they are asked, or None if there is no end date.
        days_left: The result of days_left(), None if there is no end date, or 0 if devices are no longer
            asked.
        versions: The number of versions.
        reports: The total number of reports.
        today: The number of reports today, UTC, or None if windows have no dates.
        newest: The newest window with reports, or "" if there are none.
        newest_reports: The number of reports in it.
        implausible: Why honest boards cannot have sent a version's histogram, or "".
        keep: How long windows are kept, or "" if forever.
        erased: The number of reports in windows that were erased.
        due: The next window to erase, and overdue ones.
        unsigned: Whether devices should be asked but the experiment is not signed.
    """

    fleet: str
    name: str
    type: str
    window: str
    purpose: str
    owner: str
    unit: str
    state: State
    expires: datetime.date | None
    days_left: int | None
    versions: int
    reports: int
    today: int | None
    newest: str
    newest_reports: int
    implausible: str
    keep: str = ""
    erased: int = 0
    due: Due = NOTHING_DUE
    unsigned: bool = False


@dataclass(frozen=True)
class FleetOverview:
    """A fleet.

    Attributes:
        name: The fleet's name.
        keyed: Whether it is keyed; otherwise it is open, and anyone can forge reports.
        experiments: The fleet's experiments.
        rejects: The rejected reports.
    """

    name: str
    keyed: bool
    experiments: tuple[ExperimentOverview, ...]
    rejects: tuple[Rejected, ...]

    @property
    def reports(self) -> int:
        """The total number of counted reports."""
        return sum(e.reports for e in self.experiments)


@dataclass(frozen=True)
class _VersionCounts:
    """A version's reports by window, and the plausibility verdict with the number of reports behind it."""

    windows: Mapping[str, int]
    judged: int = 0
    implausible: str = ""

    @property
    def reports(self) -> int:
        return sum(self.windows.values())


@dataclass(frozen=True)
class StoreOverview:
    """A store's fleets, by name.

    Attributes:
        fleets: The fleets.
        rejects: The reports for fleets that are not in the store.
        minute: The time of the overview, UTC, to the minute.
        version_counts: The reports of each version.
        unfinished: A line for each kind of unfinished erasure.
        clock: Why this time is implausible or needs an operator's approval, or "".
    """

    fleets: tuple[FleetOverview, ...]
    rejects: tuple[Rejected, ...]
    minute: datetime.datetime
    version_counts: Mapping[int, _VersionCounts] = field(default_factory=dict, repr=False)
    unfinished: tuple[str, ...] = ()
    clock: str = ""

    @property
    def reports(self) -> int:
        """The total number of counted reports."""
        return sum(fleet.reports for fleet in self.fleets)


def overview(store: Store, now: datetime.datetime, before: StoreOverview | None = None) -> StoreOverview:
    """Return an overview of a store at one point in time.

    Everything is read again each minute, because older windows change when stores are merged or windows are
    erased.

    Args:
        store: The store.
        now: The time, UTC.
        before: An earlier result for the same store. Within the same minute, only the newest windows are
            summed again, and a histogram is checked again only if it has grown enough.

    Raises:
        StoreError: If the database fails.
    """
    try:
        return _overview(store, now, before)
    except (OverflowError, TypeError, ValueError) as e:  # SQLite stores any type in any column
        raise StoreError(f"{store.where} is damaged: {e}") from e


def _overview(store: Store, now: datetime.datetime, before: StoreOverview | None) -> StoreOverview:
    minute = now.astimezone(datetime.UTC).replace(second=0, microsecond=0)
    counts_before = before.version_counts if before is not None and before.minute == minute else {}
    with store.snapshot() as connection:
        keyed = dict(connection.execute(select(schema.fleet.c.name, schema.fleet.c.keyed)).all())
        versions = store.versions(connection, None)
        counted = {v.id: _count(connection, v.id, counts_before.get(v.id)) for v in versions}
        counted = {v.id: _check_plausibility(connection, v, counted[v.id]) for v in versions}
        rejects = schema.reject
        rows = connection.execute(select(rejects.c.fleet, rejects.c.reason, rejects.c.count)).all()
        unfinished = unfinished_erasures(connection)
        clock = str(clock_fault(now, last_time(connection)) or "")

    def rejects_of(fleet: str) -> tuple[Rejected, ...]:
        return rejected_reports({reason: n for name, reason, n in rows if name == fleet})

    fleets: list[FleetOverview] = []
    for name, is_keyed in sorted(keyed.items()):
        fleet_versions = [v for v in versions if v.fleet == name]
        experiments = _experiments(fleet_versions, counted, minute)
        fleets.append(FleetOverview(name, bool(is_keyed), experiments, rejects_of(name)))
    return StoreOverview(tuple(fleets), rejects_of(""), minute, counted, unfinished, clock)


def _count(connection: Connection, version: int, before: _VersionCounts | None) -> _VersionCounts:
    """Return a version's reports by window, reusing previous counts except for the two newest windows."""
    table = schema.histogram
    since = min(sorted(before.windows)[-2:], default="") if before is not None else ""
    query = select(table.c.window, func.sum(table.c.count)).where(table.c.experiment == version)
    if since:
        query = query.where(table.c.window >= since)
    newer = {window: int(n) for window, n in connection.execute(query.group_by(table.c.window))}
    if before is None:
        return _VersionCounts(newer)
    return _VersionCounts({**before.windows, **newer}, before.judged, before.implausible)


def _check_plausibility(connection: Connection, version: Version, counted: _VersionCounts) -> _VersionCounts:
    """Return the counts with the plausibility verdict, which is renewed if they have grown enough."""
    reports = counted.reports
    if reports < plausibility.MIN_REPORTS or reports < counted.judged * (1 + _GROWTH):
        return counted
    table = schema.histogram
    query = select(table.c.code, func.sum(table.c.count)).where(table.c.experiment == version.id)
    counts = np.zeros(version.experiment.code_count, np.int64)
    for code, n in connection.execute(query.group_by(table.c.code)):
        if 0 <= code < len(counts):  # `hushmote store check` reports all others
            counts[code] = n
    verdict = plausibility.check(version.experiment, counts)
    return _VersionCounts(counted.windows, reports, verdict.words if verdict.implausible else "")


def _experiments(
    versions: Iterable[Version], counted: Mapping[int, _VersionCounts], at: datetime.datetime
) -> tuple[ExperimentOverview, ...]:
    names: dict[str, list[Version]] = {}
    versions = list(versions)
    # If any experiment was signed elsewhere, the aggregator may not have the signing key.
    is_signed = any(v.signatures for v in versions)
    for v in versions:
        names.setdefault(v.experiment.name, []).append(v)
    return tuple(
        _experiment(same, [counted[v.id] for v in same], at, is_signed) for _, same in sorted(names.items())
    )


def _experiment(
    versions: list[Version], counted: list[_VersionCounts], at: datetime.datetime, is_signed: bool
) -> ExperimentOverview:
    day = at.date()
    newest_first = sorted(versions, key=publication_order, reverse=True)
    newest = newest_first[0]
    state: State = "withdrawn"
    if newest.current:
        state = "current" if newest.published_on(day) else "expired"
    windows = sum((Counter(counts.windows) for counts in counted), Counter[str]())
    last = max((w for w in windows if w != "all"), default="all" if windows else "")
    expires = newest.expires

    def description(word: Literal["purpose", "owner", "unit"]) -> str:
        return visible(next((getattr(v, word) for v in newest_first if getattr(v, word)), ""))

    return ExperimentOverview(
        newest.fleet,
        newest.experiment.name,
        newest.experiment.type,
        newest.experiment.window,
        description("purpose"),
        description("owner"),
        description("unit"),
        state,
        expires,
        0 if state != "current" else None if expires is None else days_left(expires, day),
        len(versions),
        windows.total(),
        _today(windows, newest.experiment.window, day),
        last,
        windows[last],
        next((counts.implausible for counts in counted if counts.implausible), ""),
        newest.keep,
        sum(v.erased for v in versions),
        due(windows, newest.keep, at),
        is_signed and state == "current" and newest.signatures is None,
    )


def days_left(expires: datetime.date, day: datetime.date) -> int:
    """Return the number of remaining days on which devices are asked, including today.

    Args:
        expires: The last day, UTC; the result is 1 on that day and 0 after it.
        day: The current day, UTC.
    """
    return max(0, (expires - day).days + 1)


def _today(windows: Mapping[str, int], window: str, day: datetime.date) -> int | None:
    if window == "all":
        return None
    return sum(n for name, n in windows.items() if name.startswith(day.isoformat()))


def state_words(experiment: ExperimentOverview, number: Callable[[int], str] = "{:,}".format) -> str:
    """Say in a sentence or two whether and until when devices are asked, and whether reports have arrived."""
    e = experiment
    sentence = {
        "withdrawn": "It was withdrawn: devices are no longer asked.",
        "expired": f"It ended on {e.expires}: devices are no longer asked.",
        "current": "Devices are asked without an end date.",
    }[e.state]
    if e.state == "current" and e.days_left is not None:
        days = "Today is the last day" if e.days_left == 1 else f"{number(e.days_left)} days are left"
        sentence = f"Devices are asked until {e.expires}. {days}."
    return sentence if e.reports else f"{sentence} No reports have arrived yet."
