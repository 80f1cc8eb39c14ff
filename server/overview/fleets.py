"""A store's fleets at a glance: experiments with what people call them, how many reports came, what is wrong.

Read anew after each commit, so it has to be cheap: of the histograms only the newest windows are added up
again, and devices' numbers are never looked at.
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
from ..store.versions import Version
from .rejects import Rejected, rejected

State = Literal["current", "expired", "withdrawn"]

# By which part reports have to grow until a histogram is judged again: to judge it costs as much as to decode
# it. 1,000 commits of a store that doubles are 7 times.
_GROWTH = 0.1


@dataclass(frozen=True)
class ExperimentOverview:
    """An experiment of a fleet, all its versions together.

    purpose, owner, unit: the analyst's words, of the newest version that has any; made visible, and otherwise
    a stranger's text. state: "current" while devices are asked. expires: the last day, UTC, they are,
    None for good. days_left: as days_left() counts; None for good, 0 where they are asked no more.
    reports: in all. today: on the day, UTC; None where the windows do not tell. newest: the newest window
    with reports, "" before the first, and newest_reports: in it. implausible: why honest boards cannot have
    made the histogram of a version, else "". keep: for how long windows are kept, "" for good. erased:
    reports of windows that were erased since. due: what is erased next, and what is overdue. unsigned:
    devices should be asked, and nobody has signed it.
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
    """A fleet. keyed: otherwise it is open, and anyone can forge reports. rejects: of its reports."""

    name: str
    keyed: bool
    experiments: tuple[ExperimentOverview, ...]
    rejects: tuple[Rejected, ...]

    @property
    def reports(self) -> int:
        """Reports that were counted, in all."""
        return sum(e.reports for e in self.experiments)


@dataclass(frozen=True)
class _Counted:
    """What is known of a version's reports: window -> reports; and what was said of how many."""

    windows: Mapping[str, int]
    judged: int = 0
    implausible: str = ""

    @property
    def reports(self) -> int:
        return sum(self.windows.values())


@dataclass(frozen=True)
class StoreOverview:
    """A store's fleets, by name.

    rejects: reports of no fleet that it has. minute: of what time, UTC. unfinished: erasures that are not
    finished, a line for each kind. clock: why this time cannot be right, or an operator must accept it; else
    "".
    """

    fleets: tuple[FleetOverview, ...]
    rejects: tuple[Rejected, ...]
    minute: datetime.datetime
    counted: Mapping[int, _Counted] = field(default_factory=dict, repr=False)
    unfinished: tuple[str, ...] = ()
    clock: str = ""

    @property
    def reports(self) -> int:
        """Reports that were counted, in all."""
        return sum(fleet.reports for fleet in self.fleets)


def overview(store: Store, now: datetime.datetime, before: StoreOverview | None = None) -> StoreOverview:
    """Read a store's overview as it is at one moment; raises StoreError.

    before: what this function returned of the same store. Within a minute only the newest windows are then
    added up, and a histogram is judged again only once it has grown. Each minute all is: older windows change
    where stores are merged or windows erased.
    """
    try:
        return _overview(store, now, before)
    except (OverflowError, TypeError, ValueError) as e:  # SQLite keeps any type in any column
        raise StoreError(f"{store.where} is damaged: {e}") from e


def _overview(store: Store, now: datetime.datetime, before: StoreOverview | None) -> StoreOverview:
    minute = now.astimezone(datetime.UTC).replace(second=0, microsecond=0)
    known = before.counted if before is not None and before.minute == minute else {}
    with store.snapshot() as connection:
        keyed = dict(connection.execute(select(schema.fleet.c.name, schema.fleet.c.keyed)).all())
        versions = store.versions(connection, None)
        counted = {v.id: _count(connection, v.id, known.get(v.id)) for v in versions}
        counted = {v.id: _judged(connection, v, counted[v.id]) for v in versions}
        rejects = schema.reject
        rows = connection.execute(select(rejects.c.fleet, rejects.c.reason, rejects.c.count)).all()
        unfinished = unfinished_erasures(connection)
        clock = str(clock_fault(now, last_time(connection)) or "")

    def thrown_away(fleet: str) -> tuple[Rejected, ...]:
        return rejected({reason: n for of, reason, n in rows if of == fleet})

    fleets: list[FleetOverview] = []
    for name, is_keyed in sorted(keyed.items()):
        of_fleet = [v for v in versions if v.fleet == name]
        experiments = _experiments(of_fleet, counted, minute)
        fleets.append(FleetOverview(name, bool(is_keyed), experiments, thrown_away(name)))
    return StoreOverview(tuple(fleets), thrown_away(""), minute, counted, unfinished, clock)


def _count(connection: Connection, version: int, before: _Counted | None) -> _Counted:
    """The reports of a version by window; those before the two newest known are taken as they were."""
    table = schema.histogram
    since = min(sorted(before.windows)[-2:], default="") if before is not None else ""
    query = select(table.c.window, func.sum(table.c.count)).where(table.c.experiment == version)
    if since:
        query = query.where(table.c.window >= since)
    newer = {window: int(n) for window, n in connection.execute(query.group_by(table.c.window))}
    if before is None:
        return _Counted(newer)
    return _Counted({**before.windows, **newer}, before.judged, before.implausible)


def _judged(connection: Connection, version: Version, counted: _Counted) -> _Counted:
    """The same with what plausibility says, where enough came since it was asked."""
    reports = counted.reports
    if reports < plausibility.LEAST_REPORTS or reports < counted.judged * (1 + _GROWTH):
        return counted
    table = schema.histogram
    query = select(table.c.code, func.sum(table.c.count)).where(table.c.experiment == version.id)
    counts = np.zeros(version.experiment.code_count, np.int64)
    for code, n in connection.execute(query.group_by(table.c.code)):
        if 0 <= code < len(counts):  # `hushmote store check` says what is wrong with others
            counts[code] = n
    verdict = plausibility.check(version.experiment, counts)
    return _Counted(counted.windows, reports, verdict.words if verdict.implausible else "")


def _experiments(
    versions: Iterable[Version], counted: Mapping[int, _Counted], at: datetime.datetime
) -> tuple[ExperimentOverview, ...]:
    names: dict[str, list[Version]] = {}
    versions = list(versions)
    # Where something was signed elsewhere, no aggregator is known to have the signing key.
    is_signed = any(v.signatures for v in versions)
    for v in versions:
        names.setdefault(v.experiment.name, []).append(v)
    return tuple(
        _experiment(same, [counted[v.id] for v in same], at, is_signed) for _, same in sorted(names.items())
    )


def _experiment(
    versions: list[Version], counted: list[_Counted], at: datetime.datetime, is_signed: bool
) -> ExperimentOverview:
    day = at.date()
    newest_first = sorted(versions, key=lambda v: v.serial, reverse=True)
    newest = newest_first[0]
    current = next((v for v in newest_first if v.current), None)
    state: State = "withdrawn"
    if current is not None:
        state = "current" if current.published_on(day) else "expired"
    windows = sum((Counter(one.windows) for one in counted), Counter[str]())
    last = max((w for w in windows if w != "all"), default="all" if windows else "")
    shown = current or newest
    expires = shown.expires

    def said(word: Literal["purpose", "owner", "unit"]) -> str:
        return visible(next((getattr(v, word) for v in newest_first if getattr(v, word)), ""))

    return ExperimentOverview(
        newest.fleet,
        newest.experiment.name,
        shown.experiment.type,
        shown.experiment.window,
        said("purpose"),
        said("owner"),
        said("unit"),
        state,
        expires,
        0 if state != "current" else None if expires is None else days_left(expires, day),
        len(versions),
        windows.total(),
        _today(windows, shown.experiment.window, day),
        last,
        windows[last],
        next((one.implausible for one in counted if one.implausible), ""),
        newest.keep,
        sum(v.erased for v in versions),
        due(windows, newest.keep, at),
        is_signed and state == "current" and shown.signatures is None,
    )


def days_left(expires: datetime.date, day: datetime.date) -> int:
    """On how many days devices are still asked: a day counts as long as they are asked on it, today too.

    expires: the last one, UTC. 1 on that day, 0 after it.
    """
    return max(0, (expires - day).days + 1)


def _today(windows: Mapping[str, int], window: str, day: datetime.date) -> int | None:
    if window == "all":
        return None
    return sum(n for name, n in windows.items() if name.startswith(day.isoformat()))


def state_words(experiment: ExperimentOverview, number: Callable[[int], str] = "{:,}".format) -> str:
    """How an experiment is, as one sentence or two: whether devices are asked, until when, and what came."""
    e = experiment
    asked = {
        "withdrawn": "It was withdrawn: devices are no longer asked.",
        "expired": f"It ended on {e.expires}: devices are no longer asked.",
        "current": "Devices are asked, with no end.",
    }[e.state]
    if e.state == "current" and e.days_left is not None:
        days = "Today is the last day" if e.days_left == 1 else f"{number(e.days_left)} days are left"
        asked = f"Devices are asked until {e.expires}. {days}."
    return asked if e.reports else f"{asked} No report has come yet."
