"""An overview of a store's fleets: experiments with their descriptions, numbers of reports and problems.

It is refreshed after each commit, so it has to be cheap: only the newest windows are summed again, and
devices' report numbers are not read. With many experiments, checking their histograms takes seconds, so
readers in a hurry can leave it for later.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from sqlalchemy import Connection, func, select

from ..answers.periods import day_of
from ..answers.windows import NOTHING_DUE, Due, due
from ..errors import HushmoteError
from ..estimate import plausibility
from ..local_days import DAY, UTC_DAYS, Calendar
from ..plain_text import visible
from ..store import schema
from ..store.counting import clock_fault, last_time
from ..store.erase import unfinished_erasures
from ..store.log import waiting_questions
from ..store.rows import window_counts
from ..store.store import Store, StoreError
from ..store.versions import UnreadableExperiment, Version, publication_order
from ..wire.limits import EARLIEST, LATEST
from ..wire.topics import experiment_topic
from ..words.answers import capitalize
from .rejects import Rejected, rejected_reports

State = Literal["current", "expired", "withdrawn"]
Problem = Literal["implausible", "quiet", "unsigned", "waiting", "overdue"]

# Growth of the reports after which a histogram is checked again, because a check costs as much as decoding.
# A store that doubles in 1,000 commits is checked 7 times.
_GROWTH = 0.1
_QUIET_DAYS = 2  # days without a report after which an experiment needs attention
_UNSIGNED = (
    "It is not signed, so only an aggregator with the signing key publishes it: `hushmote experiment sign "
    "FILE`, then `hushmote experiment add FILE.signed.json`."
)


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
        today: The number of reports today, or None if windows have no dates.
        newest: The newest window with reports, or "" if there are none.
        newest_reports: The number of reports in it.
        implausible: Why honest boards cannot have sent a version's histogram, or why this cannot be checked,
            or "".
        keep: How long windows are kept, or "" if forever.
        erased: The number of reports in windows that were erased.
        due: The next window to erase, and overdue ones.
        unsigned: Whether devices should be asked but the experiment is not signed.
        quiet_since: The day of the last report if devices are asked but have been silent for days; without
            any report, the day on which they were asked.
        calendar: The experiment's calendar, or UTC_DAYS if this machine does not know the time zone.
        waits: What its newest version waits for in a store with a log: its day, the log, witnesses; or "".
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
    quiet_since: datetime.date | None = None
    calendar: Calendar = UTC_DAYS
    waits: str = ""

    def problems(self, day: Callable[[datetime.date], str] = str) -> dict[Problem, str]:
        """Return why it needs attention, as sentences by kind, the most serious one first.

        Args:
            day: Formats a day.
        """
        quiet, event = self.quiet_since, "" if self.newest or self.erased else "devices were asked on "
        sentences: dict[Problem, str] = {
            "implausible": self.implausible and f"{capitalize(self.implausible)}.",
            "quiet": "" if quiet is None else f"No report has arrived since {event}{day(quiet)}.",
            "unsigned": _UNSIGNED if self.unsigned else "",
            "waiting": f"Its newest version is waiting {self.waits}." if self.waits else "",
            "overdue": _overdue(self.due),
        }
        return {kind: words for kind, words in sentences.items() if words}


def _overdue(due: Due) -> str:
    if not due.overdue:
        return ""
    oldest, *more = due.overdue
    suffix = f" and {len(more):,} more" if more else ""
    return f"Deletion of {oldest}{suffix} is overdue; `hushmote serve` deletes while it runs."


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

    @property
    def is_due(self) -> bool:
        """Whether the reports have grown enough to be checked again."""
        enough = max(plausibility.MIN_REPORTS, self.judged * (1 + _GROWTH))
        return self.reports >= enough


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
        is_checked: Whether all histograms have been checked for plausibility.
        counting_at: The minute in which counting last worked, UTC, or None if it has not worked yet.
        unreadable: The experiments that are left out because they cannot be read here.
    """

    fleets: tuple[FleetOverview, ...]
    rejects: tuple[Rejected, ...]
    minute: datetime.datetime
    version_counts: Mapping[int, _VersionCounts] = field(default_factory=dict, repr=False)
    unfinished: tuple[str, ...] = ()
    clock: str = ""
    is_checked: bool = True
    counting_at: datetime.datetime | None = None
    unreadable: tuple[UnreadableExperiment, ...] = ()

    @property
    def reports(self) -> int:
        """The total number of counted reports."""
        return sum(fleet.reports for fleet in self.fleets)

    @property
    def experiments(self) -> tuple[ExperimentOverview, ...]:
        """The experiments of all fleets."""
        return tuple(e for fleet in self.fleets for e in fleet.experiments)

    def urgent_first(self) -> list[ExperimentOverview]:
        """Return the experiments that need attention, the most serious first, followed by the others."""
        kinds = get_args(Problem)
        return sorted(self.experiments, key=lambda e: min(map(kinds.index, e.problems()), default=len(kinds)))


def overview(
    store: Store, now: datetime.datetime, before: StoreOverview | None = None, *, check: bool = True
) -> StoreOverview:
    """Return an overview of a store at one point in time.

    Everything is read again each minute, because older windows change when stores are merged or windows are
    erased.

    Args:
        store: The store.
        now: The time, UTC.
        before: An earlier result for the same store. Within the same minute, only the windows of the newest
            two days are summed again, and a histogram is checked again only if it has grown enough.
        check: Whether to check histograms that are due for a check; otherwise `before` decides which are
            implausible.

    Raises:
        StoreError: If the database fails.
    """
    try:
        return _overview(store, now, before, check)
    except (OverflowError, TypeError, ValueError) as e:  # SQLite stores any type in any column
        raise StoreError(f"{store.where} is damaged: {e}") from e


def _overview(
    store: Store, now: datetime.datetime, before: StoreOverview | None, check: bool
) -> StoreOverview:
    minute = now.astimezone(datetime.UTC).replace(second=0, microsecond=0)
    counts_before = {} if before is None else before.version_counts
    with store.snapshot() as connection:
        keyed = dict(connection.execute(select(schema.fleet.c.name, schema.fleet.c.keyed)).all())
        versions, unreadable = store.readable_versions(connection, None)
        same_minute = before is not None and before.minute == minute
        windows = _windows(connection, counts_before if same_minute else {})
        counted = {v.id: _with_verdict(windows.get(v.id, {}), counts_before.get(v.id)) for v in versions}
        unchecked = [v for v in versions if counted[v.id].is_due]
        if check:
            counted |= {v.id: _check_plausibility(connection, v, counted[v.id]) for v in unchecked}
        rejects = schema.reject
        rows = connection.execute(select(rejects.c.fleet, rejects.c.reason, rejects.c.count)).all()
        unfinished = unfinished_erasures(connection)
        clock = str(clock_fault(now, last_time(connection)) or "")
        alive_s = connection.scalar(select(schema.counting.c.alive))
        questions = {_topic(v): v.payload for v in versions if v.published_on(minute.date())}
        waiting = waiting_questions(connection, questions, int(now.timestamp()))

    def rejects_of(fleet: str) -> tuple[Rejected, ...]:
        return rejected_reports({reason: n for name, reason, n in rows if name == fleet})

    fleets: list[FleetOverview] = []
    versions_by_fleet: dict[str, list[Version]] = {}
    for v in versions:
        versions_by_fleet.setdefault(v.fleet, []).append(v)
    for name, is_keyed in sorted(keyed.items()):
        experiments = _experiments(versions_by_fleet.get(name, []), counted, minute, waiting)
        fleets.append(FleetOverview(name, bool(is_keyed), experiments, rejects_of(name)))
    is_checked = check or not unchecked
    counting_at = None if alive_s is None else datetime.datetime.fromtimestamp(alive_s, datetime.UTC)
    return StoreOverview(
        tuple(fleets), rejects_of(""), minute, counted, unfinished, clock, is_checked, counting_at, unreadable
    )


def _windows(connection: Connection, before: Mapping[int, _VersionCounts]) -> dict[int, dict[str, int]]:
    """Return the reports by version id and window, with previous ones except for the newest two days."""
    table = schema.histogram.c
    windows = {version: dict(counts.windows) for version, counts in before.items()}
    query = select(table.experiment, table.window, func.sum(table.count))
    days = {window[:10] for counts in windows.values() for window in counts} - {"all"}
    if days:
        # Without naming the versions, SQLite and PostgreSQL would read all rows.
        query = query.where(table.experiment.in_(select(schema.experiment.c.id)))
        query = query.where(table.window >= min(sorted(days)[-2:]))
    for version, window, n in connection.execute(query.group_by(table.experiment, table.window)):
        windows.setdefault(version, {})[window] = int(n)
    return windows


def _with_verdict(windows: Mapping[str, int], before: _VersionCounts | None) -> _VersionCounts:
    """Return a version's counts with the previous verdict, unless reports were erased since then."""
    counts = _VersionCounts(windows)
    if before is None or counts.reports < before.judged:
        return counts
    return _VersionCounts(windows, before.judged, before.implausible)


def _check_plausibility(connection: Connection, version: Version, counted: _VersionCounts) -> _VersionCounts:
    """Return the counts with a new plausibility verdict."""
    counts = np.zeros(version.experiment.code_count, np.int64)
    for _, codes, reports in window_counts(connection, version.id, ()):
        valid = (codes >= 0) & (codes < len(counts))  # `hushmote store check` reports all others
        counts[codes[valid]] += reports[valid]
    try:
        verdict = plausibility.check(version.experiment, counts)
    except HushmoteError as e:  # a custom mechanism fails
        return _VersionCounts(counted.windows, counted.reports, f"its reports cannot be checked here: {e}")
    return _VersionCounts(counted.windows, counted.reports, verdict.words if verdict.implausible else "")


def _experiments(
    versions: Iterable[Version],
    counted: Mapping[int, _VersionCounts],
    at: datetime.datetime,
    waiting: Mapping[str, str],
) -> tuple[ExperimentOverview, ...]:
    names: dict[str, list[Version]] = {}
    versions = list(versions)
    # If any experiment was signed elsewhere, the aggregator may not have the signing key.
    is_signed = any(v.signatures for v in versions)
    for v in versions:
        names.setdefault(v.experiment.name, []).append(v)
    experiments = (
        _experiment(same, [counted[v.id] for v in same], at, is_signed) for _, same in sorted(names.items())
    )
    return tuple(replace(e, waits=waiting.get(experiment_topic(e.fleet, e.name), "")) for e in experiments)


def _topic(version: Version) -> str:
    return experiment_topic(version.fleet, version.experiment.name)


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
    calendar = newest.description.calendar
    calendar = calendar if calendar.is_known else UTC_DAYS
    today, last_day = calendar.today(at), day_of(last, calendar)
    has_reports = bool(last) or any(v.erased for v in versions)
    since = last_day if has_reports else _day_of(newest.serial, calendar)
    is_quiet = state == "current" and since is not None and (today - since).days >= _QUIET_DAYS

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
        _today(windows, newest.experiment.window, today, calendar),
        last,
        windows[last],
        next((counts.implausible for counts in counted if counts.implausible), ""),
        newest.keep,
        sum(v.erased for v in versions),
        due(windows, newest.keep, at),
        is_signed and state == "current" and newest.signatures is None,
        since if is_quiet else None,
        calendar,
    )


def days_left(expires: datetime.date, day: datetime.date) -> int:
    """Return the number of remaining days on which devices are asked, including today.

    Args:
        expires: The last day, UTC; the result is 1 on that day and 0 after it.
        day: The current day, UTC.
    """
    return max(0, (expires - day).days + 1)


def _day_of(serial: int, calendar: Calendar) -> datetime.date | None:
    """Return the day of a publication, or None if it is unknown, as in old stores."""
    is_known = EARLIEST.timestamp() <= serial < LATEST.timestamp()
    return calendar.today(datetime.datetime.fromtimestamp(serial, datetime.UTC)) if is_known else None


def _today(windows: Mapping[str, int], window: str, today: datetime.date, calendar: Calendar) -> int | None:
    if window == "all":
        return None
    utc_days = tuple((today + n * DAY).isoformat() for n in (-1, 0, 1))  # those that a local day may touch
    candidates = ((name, n) for name, n in windows.items() if name.startswith(utc_days))
    return sum(n for name, n in candidates if day_of(name, calendar) == today)


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
    return sentence if e.reports or e.quiet_since else f"{sentence} No reports have arrived yet."
