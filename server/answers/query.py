"""Read a store once per question: versions, their reports and estimates."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from ...device.ldp_client import Experiment
from ..arrays import Counts
from ..errors import UsageError, choose_name, no_such_name
from ..estimate.estimate import Estimates, estimate
from ..estimate.pooling import pool
from ..estimate.readings import among_readings
from ..estimate.statistic import DoesNotFit, EstimateError, TooFewReports
from ..experiments.answerable import answerable_questions
from ..hints import option
from ..local_days import Calendar
from ..mechanisms.common_values import common_views, same_values
from ..plain_text import visible
from ..store.store import Participation, Store, Version
from ..store.versions import UnreadableExperiment, check_readable, most_reports, publication_order
from ..wire.experiments import OTHER, group_values, reports_in_budget
from ..words import groups as words
from ..words import versions as version_words
from ..words.days import approximate
from ..words.findings import few_able
from ..words.numbers import ENGLISH, Numbers
from ..words.scope import ALL_VERSIONS, Population, span
from . import suppression
from .periods import Period, day_of, group_windows, period_of, selectable
from .question import Selection, WeighBy
from .result_cache import ResultCache, version_key

SPENT_SHARE = 0.1
"""The share of devices without reports left above which shares of devices are not stated."""


class ReportSource(NamedTuple):
    """A histogram in which reports were counted; estimates with a source in common share reports."""

    store: str
    fleet: str
    digest: bytes
    window: str
    group: str = ""


class NotShown(EstimateError):
    """Raised if a value of the open group is suppressed."""


@dataclass(frozen=True)
class Facts:
    """The contents of a store, read once to answer several questions.

    Attributes:
        at: The time, UTC, that determines which windows have ended. The histogram of a window that has not
            ended has no ε, because someone who asks again after one more report learns that report.
        cache: Cached estimates, including those from earlier Facts.
    """

    store: Store
    at: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    cache: ResultCache = field(default_factory=ResultCache, compare=False)
    _versions: dict[str, tuple[Version, ...]] = field(default_factory=dict)
    _unreadable: dict[str, tuple[UnreadableExperiment, ...]] = field(default_factory=dict)
    _participation: dict[str, dict[str, Participation]] = field(default_factory=dict)
    _max_reports_per_board: dict[str, dict[int, int]] = field(default_factory=dict)
    _reports: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    _group_reports: dict[str, dict[int, dict[str, dict[int, int]]]] = field(default_factory=dict)
    _counts: dict[Hashable, Mapping[str, Mapping[int, int]]] = field(default_factory=dict)

    def versions(self, fleet: str) -> tuple[Version, ...]:
        """Return all versions of a fleet's experiments, oldest first, without those in unreadable()."""
        if fleet not in self._versions:
            self._versions[fleet], self._unreadable[fleet] = self.store.readable_experiments(fleet)
        return self._versions[fleet]

    def unreadable(self, fleet: str) -> tuple[UnreadableExperiment, ...]:
        """Return a fleet's experiments that cannot be read here."""
        self.versions(fleet)
        return self._unreadable.get(fleet, ())

    def names(self, fleet: str) -> tuple[str, ...]:
        """Return the names of a fleet's experiments, sorted."""
        return tuple(sorted({v.experiment.name for v in self.versions(fleet)}))

    def choose_experiment(self, fleet: str, name: str | None) -> str:
        """Return the name of one of a fleet's experiments; None if there is only one.

        Raises:
            StoreError: If it cannot be read here.
            UsageError: If it does not exist.
        """
        check_readable(self.unreadable(fleet), name or "")
        return choose_name("experiment", name, self.names(fleet), f"in fleet {fleet}")

    def max_reports_per_board(self, fleet: str) -> dict[int, int]:
        """Return, by version id, the maximum number of reports (at least 1) from a single board.

        This is the number that the budgets allow, limited by the largest number of reports from any device in
        the store.
        """
        if fleet not in self._max_reports_per_board:
            versions, bounds = self.versions(fleet), dict[int, int]()
            # Include what cheaper versions allow, even if the question is not about them.
            allowed = most_reports(versions)
            # Reading the devices is slow, so do it only if a budget allows a board more than one report.
            needs_participation = any(n is None or n > 1 for n in allowed.values())
            participation = self.participation(fleet) if needs_participation else {}
            for v in versions:
                by = participation.get(v.experiment.name)
                bound = [n for n in (allowed[v.id], by and by.most) if n is not None]
                bounds[v.id] = max(1, min(bound, default=2**31))
            self._max_reports_per_board[fleet] = bounds
        return self._max_reports_per_board[fleet]

    def participation(self, fleet: str) -> dict[str, Participation]:
        """Return the accepted reports and their devices by experiment."""
        if fleet not in self._participation:
            self._participation[fleet] = self.store.participation(fleet)
        return self._participation[fleet]

    def spent_devices(self, fleet: str, experiment: Experiment) -> tuple[int, int]:
        """Return how many devices have reported to an experiment's name, and how many have no reports left.

        The second number is 0 if it is known without counting that the budget of no device is spent. Devices'
        policies, which may allow less, are not known.
        """
        name, most = experiment.name, reports_in_budget(experiment)
        by = self.participation(fleet).get(name)
        if most is None or by is None or by.most < most:
            return (0 if by is None else by.devices), 0
        key = "spent", self.store, fleet, name, most, by
        devices, spent = self.cache.result(
            key, lambda: tuple(self.store.devices_with(fleet, name, n) for n in (1, most))
        )
        return devices, spent

    def reports(self, fleet: str) -> dict[int, dict[str, int]]:
        """Return the number of reports accepted, by version id and window."""
        if fleet not in self._reports:
            self._reports[fleet] = self.store.window_reports(fleet)
        return self._reports[fleet]

    def group_reports(self, fleet: str) -> dict[int, dict[str, dict[int, int]]]:
        """Return the number of reports accepted, by version id, window and index of the group's value."""
        if fleet not in self._group_reports:
            self._group_reports[fleet] = self.store.group_reports(fleet)
        return self._group_reports[fleet]

    def cached_counts(
        self, key: Hashable, read: Callable[[], Mapping[str, Mapping[int, int]]]
    ) -> Mapping[str, Mapping[int, int]]:
        """Return the counts under this key, or read them."""
        if key not in self._counts:
            self._counts[key] = read()
        return self._counts[key]

    def selected(self, selection: Selection) -> Selected:
        """Return the selected reports.

        Raises:
            UsageError: If the fleet, name, version or value of the open group does not exist.
            StoreError: If the experiment cannot be read here.
        """
        name, fleet = selection.experiment, selection.fleet
        same_name = [v for v in self.versions(fleet) if v.experiment.name == name]
        if not same_name:
            choose_name("fleet", fleet, tuple(self.store.fleets()), "in this store")
            self.choose_experiment(fleet, name)
        start = "" if selection.version == ALL_VERSIONS else selection.version
        versions = tuple(v for v in same_name if v.experiment.digest.hex().startswith(start))
        versions = tuple(sorted(versions, key=publication_order))
        if not versions:
            digests = ", ".join(v.experiment.digest.hex() for v in same_name)
            raise UsageError(f"{name} has no version {selection.version}; its versions: {digests}")
        if start and len(versions) > 1:
            digests = ", ".join(v.experiment.digest.hex() for v in versions)
            raise UsageError(
                f"{name} has {len(versions)} versions that start with {start}: {digests}; write more digits"
            )
        newest = max(same_name, key=publication_order)
        selected = Selected(self, selection, versions, newest.description.calendar)
        if selection.group and selection.group not in selected.group_values:
            raise UsageError(_no_such_group(selected))
        return selected


@dataclass(frozen=True)
class Selected:
    """The selected reports of a store; returned by Facts.selected().

    Attributes:
        versions: The selected versions in the order of their publication, the current one last.
        calendar: The days and weeks of the experiment's newest version, which apply to all its versions.
    """

    facts: Facts
    selection: Selection
    versions: tuple[Version, ...]
    calendar: Calendar

    @property
    def newest(self) -> Version:
        """The current version, or the last published one."""
        return self.versions[-1]

    @property
    def answerable(self) -> frozenset[str]:
        """The kinds of questions that can be answered, named as in experiments/answerable.py."""
        return answerable_questions(*(v.experiment for v in self.answering.versions))

    @cached_property
    def answering(self) -> Selected:
        """The same reports of only the versions that answer, each seen through the newest one's values.

        These are the newest version with enough reports in the selected windows, and all versions that
        count the same values and answer at least its questions. If all versions are selected together, they
        are seen through the values that they have in common. Versions whose readings have another unit never
        answer.

        Raises:
            DoesNotFit: If all versions are selected together and have no values in common.
        """
        if self.selection.version == ALL_VERSIONS:
            if self._common_views is None:
                raise DoesNotFit(
                    f"the versions of {self.selection.experiment} have no values in common; choose one with "
                    f"{option('version', 'DIGEST')}: {', '.join(self.digests)}"
                )
            return self._with_views(self._in_its_unit, self._common_views)
        rest, newest_group = self._in_its_unit, None
        while rest:
            group = tuple(v for v in rest if _joins(v.experiment, rest[-1].experiment))
            views = common_views([v.experiment for v in group])
            assert views is not None  # they count the same values
            selected = self._with_views(group, views)
            newest_group = newest_group or selected
            rest = tuple(v for v in rest if v not in group)
            if (newest_group is selected and not rest) or selected._has_enough:
                return selected
        assert newest_group is not None  # a selection has versions
        return newest_group

    @cached_property
    def _common_views(self) -> tuple[Experiment, ...] | None:
        """The versions seen through the values that they have in common, or None if those answer nothing."""
        views = common_views([v.experiment for v in self._in_its_unit])
        questions = answerable_questions(*views) if views else frozenset[str]()
        return views if len(self._in_its_unit) == 1 or questions - {"discovery"} else None

    @cached_property
    def _in_its_unit(self) -> tuple[Version, ...]:
        """The versions in this unit or without a unit.

        Stores older than the check of units may have versions in other units.
        """
        return tuple(v for v in self.versions if visible(v.unit) in ("", self.unit))

    def _with_views(self, versions: Sequence[Version], views: Sequence[Experiment]) -> Selected:
        pairs = zip(versions, views, strict=True)
        return replace(self, versions=tuple(replace(v, experiment=view) for v, view in pairs))

    @property
    def _has_enough(self) -> bool:
        """Whether these versions have enough reports in the selected windows for an estimate."""
        if self.reports < 2:
            return False
        try:
            self._estimate("reports")
        except TooFewReports:
            return False
        return True

    def period(self, requested: Period | None = None) -> Period | None:
        """Return the dates that the answer covers.

        Args:
            requested: The requested period, which may begin and end with windows that have no reports. If
                other versions are left out, the dates are those of the versions that answer.
        """
        if self.answering.reports == self.reports:
            return period_of(self.selection.windows, requested, self.calendar)
        return period_of(tuple(self.answering.counts), calendar=self.calendar)

    @property
    def now(self) -> datetime.datetime:
        """The current time, in the experiment's time zone."""
        return self.calendar.local(self.facts.at)

    @property
    def days_note(self) -> str:
        """A sentence that says why the days of the selected windows are approximate, or ""."""
        days = [day for window in self.counts if (day := day_of(window, self.calendar))]
        if not days or not self.calendar.is_local:
            return ""
        has_half_hours = self.calendar.is_approximate(min(days), max(days))
        has_utc_days = any("T" not in window for window in self.counts)
        return approximate(self.calendar, has_half_hours=has_half_hours, has_utc_days=has_utc_days)

    @cached_property
    def population(self) -> Population:
        """What shares are shares of: devices, or readings if too many devices have no reports left.

        Those have fallen silent, so newer reports come from the others.
        """
        devices, spent = self._spent_devices
        return "readings" if spent > SPENT_SHARE * devices else "devices"

    def population_note(self, write: Numbers = ENGLISH) -> str:
        """Return a sentence that says why shares are of readings, or ""."""
        devices, spent = self._spent_devices
        return few_able(spent, devices, write) if self.population == "readings" else ""

    @cached_property
    def _spent_devices(self) -> tuple[int, int]:
        fleet, name = self.selection.fleet, self.selection.experiment
        newest = max(
            (v for v in self.facts.versions(fleet) if v.experiment.name == name), key=publication_order
        )
        # If each device is asked once, reports are devices.
        if reports_in_budget(newest.experiment) == 1:
            return 0, 0
        return self.facts.spent_devices(fleet, newest.experiment)

    def left_out(self, write: Numbers = ENGLISH) -> str:
        """Return a sentence on the reports in the selected windows that the answer leaves out, or ""."""
        answering = self.answering
        ids, reports = {v.id for v in answering.versions}, Counter[int]()
        for counts in self.counts.values():
            reports.update({id_: n for id_, n in counts.items() if id_ not in ids})
        is_newest = self.newest.id in ids or not answering.reports
        return self._left_out(reports, answering._newest_with_reports, is_newest, write)

    @property
    def _newest_with_reports(self) -> Experiment:
        """The newest version with reports in the selected windows, or the newest one."""
        counted_ids = set[int]().union(*self.counts.values())
        return next((v for v in reversed(self.versions) if v.id in counted_ids), self.newest).experiment

    def left_out_of_trend(self, by: str, estimates: Mapping[str, Estimates]) -> str:
        """Return a sentence on the reports that a trend leaves out, or "".

        Args:
            by: See by_window().
            estimates: The estimates that the trend shows, by window.
        """
        reports, hidden, counts = Counter[int](), Counter[int](), self.counts
        ids, newest = set[int](), self.newest.experiment
        id_of = {v.experiment.digest: v.id for v in self.versions}
        for name, windows in group_windows(tuple(counts), by, self.calendar).items():
            totals = Counter[int]()
            for window in windows:
                totals.update(counts[window])
            if name not in estimates:
                hidden.update(totals)
                continue
            newest = estimates[name].experiment
            answering = {id_of[version.digest] for version in estimates[name].versions}
            ids |= answering
            reports.update({id_: n for id_, n in totals.items() if id_ not in answering and n >= 2})
        # If the trend shows a version elsewhere, a window without it only has too few reports.
        reports.update({id_: n for id_, n in hidden.items() if id_ not in ids})
        return self._left_out(reports, newest, self.newest.id in ids, ENGLISH)

    def _left_out(
        self, reports: Mapping[int, int], newest: Experiment, is_newest: bool, write: Numbers
    ) -> str:
        """Return a sentence on these reports by version id; `newest` is the newest version that answers."""
        parts = [
            version_words.LeftOut(
                v.experiment, reports[v.id], "" if v in self._in_its_unit else visible(v.unit)
            )
            for v in reversed(self.versions)
            if reports.get(v.id, 0)
        ]
        others = any(not part.unit for part in parts)
        can_pool = others and self.selection.version != ALL_VERSIONS and self._common_views is not None
        unit, all_versions = self.unit, [v.experiment for v in self.versions]
        return version_words.left_out(
            parts, newest, all_versions, is_newest=is_newest, can_pool=can_pool, unit=unit, write=write
        )

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the versions in hexadecimal, newest last."""
        return tuple(v.experiment.digest.hex() for v in self.versions)

    @property
    def unit(self) -> str:
        """The unit of readings in the newest version that has one, otherwise ""."""
        # A store may come from anyone, and pictures and JSON do not escape control characters.
        return visible(next((v.unit for v in reversed(self.versions) if v.unit), ""))

    @property
    def group_name(self) -> str:
        """The open group's name in the newest version that has one, such as firmware; otherwise ""."""
        return next((v.experiment.group for v in reversed(self.versions) if v.experiment.group), "")

    @cached_property
    def group_values(self) -> tuple[str, ...]:
        """The values of the group, the newest version's first, then older ones and "other"; () without one.

        Values of a group with another name, which an older version may have, are not included.
        """
        values = [
            value for _, values in reversed(self._values_by_version) for value in values if value != OTHER
        ]
        return (*dict.fromkeys(values), OTHER) if self._values_by_version else ()

    @cached_property
    def _values_by_version(self) -> tuple[tuple[Version, tuple[str, ...]], ...]:
        """Each version that has the group, with the values by index."""
        name = self.group_name
        same = [v for v in self.versions if name and v.experiment.group == name]
        return tuple((v, group_values(v.experiment)) for v in same)

    @cached_property
    def _index_by_version(self) -> Mapping[int, int]:
        """The index of the selected value by version id, for the versions that list it."""
        group = self.selection.group
        return {v.id: values.index(group) for v, values in self._values_by_version if group in values}

    @cached_property
    def all_counts(self) -> Mapping[str, Mapping[int, int]]:
        """The number of reports by window and version id, for all windows of these versions and the group."""
        # A trend selects each window in turn, and all have the same counts.
        ids = tuple(version.id for version in self.versions)
        key = self.selection.fleet, ids, self.selection.group, tuple(self._index_by_version.items())
        return self.facts.cached_counts(key, self._read_counts)

    def _read_counts(self) -> Mapping[str, Mapping[int, int]]:
        fleet = self.selection.fleet
        counts_by_version: dict[int, dict[str, int]] = {}
        if self.selection.group:
            for id_, index in self._index_by_version.items():
                windows_of_version = self.facts.group_reports(fleet).get(id_, {})
                counts_by_version[id_] = {w: n[index] for w, n in windows_of_version.items() if n.get(index)}
        else:
            for v in self.versions:
                windows_of_version = self.facts.reports(fleet).get(v.id, {})
                counts_by_version[v.id] = {w: n for w, n in windows_of_version.items() if n}
        windows = sorted(set().union(*counts_by_version.values()))
        return {w: {i: counts[w] for i, counts in counts_by_version.items() if w in counts} for w in windows}

    @property
    def counts(self) -> Mapping[str, Mapping[int, int]]:
        """The same, for the selected windows that have reports, in the order of the selection."""
        windows = self.selection.windows or self.all_counts
        return {window: self.all_counts[window] for window in windows if window in self.all_counts}

    @cached_property
    def group_reports(self) -> Mapping[str, Mapping[str, int]]:
        """The number of reports by window and value of the group, whichever value is selected.

        It has the selected windows, or all if none are selected, and only values with reports. Reports to a
        version without the group are not included.
        """
        reports: dict[str, Counter[str]] = {}
        for version, values in self._values_by_version:
            by_window = self.facts.group_reports(self.selection.fleet).get(version.id, {})
            for window in self.selection.windows or by_window:
                counts = by_window.get(window, {})
                named = {values[index]: n for index, n in counts.items() if n and 0 <= index < len(values)}
                if named:
                    reports.setdefault(window, Counter()).update(named)
        windows = self.selection.windows or sorted(reports)
        return {window: reports[window] for window in windows if window in reports}

    @cached_property
    def windows(self) -> tuple[str, ...]:
        """All windows with reports, whichever value of the group is selected, oldest first.

        Periods resolve to these windows, so that all values of a group are compared over the same ones.
        """
        if not self.selection.group:
            return tuple(self.all_counts)
        return replace(self, selection=replace(self.selection, windows=(), group="")).windows

    @property
    def boards(self) -> str:
        """A description of the boards with the selected value of the group, or ""."""
        return words.boards_with(self.group_name, self.selection.group)

    @property
    def reports_by_value(self) -> suppression.GroupReports | None:
        """The reports in the selected windows by value of the group; None if there is no group."""
        if not self.group_name:
            return None
        return suppression.group_reports(self.group_name, self.selection.group, self._reports_by_value)

    @property
    def _reports_by_value(self) -> Mapping[str, int]:
        counts = self.group_reports.values()
        return {value: sum(n.get(value, 0) for n in counts) for value in self.group_values}

    @property
    def refusal(self) -> str:
        """Why the selected value of the group is not shown in the selected windows, or ""."""
        group = self.selection.group
        if group and self._is_part and self._has_small_part():
            chosen = bool(self.selection.version)
            return words.version_refusal(self.group_name, suppression.MIN_REPORTS, chosen=chosen)
        if not group or group not in suppression.suppressed_values(self._reports_by_value):
            return ""
        has_enough = self._reports_by_value[group] >= suppression.MIN_REPORTS
        return words.refusal(self.group_name, group, suppression.MIN_REPORTS, has_enough=has_enough)

    @property
    def _is_part(self) -> bool:
        """Whether only some of the experiment's versions answer."""
        if self.selection.version not in ("", ALL_VERSIONS):
            return True
        whole = self.facts.selected(replace(self.selection, version="", group=""))
        return len(self.answering.versions) < len(whole.versions)

    def _has_small_part(self) -> bool:
        """Return whether some version has few reports of some value in the selected windows.

        All versions minus the others would then reveal it, so no value is shown for a single version.
        """
        whole = self.facts.selected(replace(self.selection, version="", group=""))
        each = (replace(whole, versions=(version,))._reports_by_value for version in whole.versions)
        return any(0 < n < suppression.MIN_REPORTS for reports in each for n in reports.values())

    def check_shown(self) -> None:
        """Raise NotShown if the selected value of the group is suppressed in the selected windows."""
        if refusal := self.refusal:
            raise NotShown(refusal)

    @property
    def reports(self) -> int:
        """The number of reports in the selected windows."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    @property
    def sources(self) -> frozenset[ReportSource]:
        """The places where the reports were counted."""
        where, fleet, group = self.facts.store.where, self.selection.fleet, self.selection.group
        sources = set[ReportSource]()
        by_id = {v.id: v.experiment for v in self.versions}
        for window, counts in self.counts.items():
            for experiment in map(by_id.__getitem__, counts):
                # Reports of all groups are counted in each group's histogram.
                values = (group,) if group else group_values(experiment) or (group,)
                sources.update(ReportSource(where, fleet, experiment.digest, window, v) for v in values)
        return frozenset(sources)

    def estimate(self, weigh: WeighBy = "reports") -> Estimates:
        """Return the estimate of the versions that answer, with the windows' histograms summed.

        Args:
            weigh: How to weight the versions.

        Raises:
            UsageError: If there are too many values for `weigh`.
            TooFewReports: If there are fewer than 2 reports, or too few for the mechanism.
            DoesNotFit: If all versions are selected together and have no values in common.
            EstimateError: If a window has no reports, or the group's value is suppressed.
        """
        self._check_windows()
        self.check_shown()
        return self.answering._estimate(weigh)

    def _estimate(self, weigh: WeighBy) -> Estimates:
        """Return the estimate of all these versions pooled."""
        counts = tuple((w, tuple(sorted(n.items()))) for w, n in self.counts.items())
        version_keys = tuple(map(version_key, self.versions))
        key = self.facts.store, version_keys, self.selection.group, weigh, counts
        return self.facts.cache.result(key, lambda: pooled(self, weigh))

    def by_window(self, weigh: WeighBy = "reports", by: str = "") -> dict[str, Estimates]:
        """Return the estimate of each window that has enough reports, oldest first or as selected.

        Args:
            weigh: See estimate().
            by: "day", "week" or "month" to combine windows, or "".

        Raises:
            UsageError: In the same cases as estimate().
            EstimateError: If fewer than 2 windows remain; otherwise as estimate().
        """
        self._check_windows()
        self.check_shown()
        estimates: dict[str, Estimates] = {}
        selected_windows = self.selection.windows or self.windows
        for name, windows in group_windows(selected_windows, by, self.calendar).items():
            try:
                selected = replace(self, selection=replace(self.selection, windows=windows))
                estimates[name] = selected.estimate(weigh)
            except (TooFewReports, NotShown):
                continue
        if len(estimates) < 2:
            is_subset = {*selected_windows} < {*self.windows}
            subject = "the selection has" if is_subset else f"{self.selection.experiment} has"
            reports = f"enough reports from {self.boards} to be shown" if self.selection.group else "reports"
            raise TooFewReports(
                f"a trend needs at least 2 windows with {reports}; {subject} {len(estimates)}"
            )
        return estimates

    def _check_windows(self) -> None:
        names = self.windows
        days = tuple(selectable(names, self.calendar))
        listed = ", ".join(days) if len(days) <= 4 else span(days)
        advice = f"it has {listed}" if names else "no reports have been counted yet"
        for window in self.selection.windows:
            if window not in names:
                raise EstimateError(
                    f"{self.selection.experiment} has no reports in window {window}; {advice}"
                )

    def counts_of(self, version: Version) -> Counts:
        """Return a version's counts in the selected windows and group, shape (code_count,)."""
        reports = {w: counts[version.id] for w, counts in self.counts.items() if version.id in counts}
        return self.facts.cache.counts(self.facts.store, version, reports, self.group_index(version))

    def group_index(self, version: Version) -> int | None:
        """Return the index of the selected group value in a version; None for all, or if it has none."""
        return self._index_by_version.get(version.id) if self.selection.group else None


def _joins(version: Experiment, newest: Experiment) -> bool:
    """Return whether a version counts the newest one's values and answers all of its questions.

    Each version is searched for texts on its own, because a search has no shares to pool.
    """
    questions = answerable_questions(newest)
    if questions == {"discovery"}:
        return version.digest == newest.digest
    return same_values(version, newest) and answerable_questions(version) >= questions


def pooled(selected: Selected, weigh: WeighBy = "reports") -> Estimates:
    """Return an uncached estimate from the selected reports.

    Raises:
        TooFewReports: In the same cases as Selected.estimate().
    """
    estimates: list[Estimates] = []
    selection = selected.selection
    for version in selected.versions:
        total = selected.counts_of(version)
        if total.sum() >= 2:
            estimates.append(estimate(version.experiment, total))
    if not estimates:
        raise TooFewReports(
            f"{selection.experiment} has fewer than 2 reports so far in {selection}; an estimate needs 2"
        )
    if len(estimates) == 1:
        return among_readings(estimates[0])
    return among_readings(pool(estimates, by=weigh))


def _no_such_group(selected: Selected) -> str:
    selection, values = selected.selection, selected.group_values
    if not values:
        return f"{selection.experiment} has no open group; omit {option('group')}"
    return no_such_name(
        "value", selection.group, values, f"in group {selected.group_name} of {selection.experiment}"
    )


def check_apart(before: frozenset[ReportSource], after: frozenset[ReportSource]) -> None:
    """Raise UsageError if two sides share reports, because a comparison assumes that they are independent."""
    common = before & after
    if common:
        window = min(source.window for source in common)
        raise UsageError(
            f"reports of {window} would be on both sides; compare windows, versions, groups or fleets "
            "without overlap"
        )
