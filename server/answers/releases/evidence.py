"""Read an open group's daily reports from a store, and decode each side's histograms to shares and means."""

import datetime
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....device.ldp_client import Experiment
from ...arrays import Counts, Floats
from ...errors import HushmoteError, UsageError
from ...estimate.estimate import Estimates, estimate
from ...estimate.pooling import pool
from ...estimate.readings import among_readings
from ...estimate.statistic import EstimateError, Statistic
from ...experiments.asks import Ask
from ...experiments.judged import JudgedQuestion, judged_questions, worse_from_text
from ...experiments.units import parse_range, range_in
from ...mechanisms.common_values import common_views, same_values
from ...release.difference import MIN_REPORTS, Look, SideDays, looks
from ...store.store import Version
from ...store.versions import check_readable, publication_order
from ...wire.experiments import OTHER, every_by_index, every_by_value, group_values
from ...words.numbers import counted
from .. import moments
from ..periods import day_of, windows_of_completed_days
from ..query import SPENT_SHARE, Facts
from ..result_cache import version_key

_CLEAR = 3.0  # standard errors by which a share changes between two halves of the days
_DAY = datetime.timedelta(days=1)


def group_of(facts: Facts, fleet: str, value: str, group: str = "") -> str:
    """Return the open group that lists a value.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        value: The value, such as 2.4.0.
        group: The group's name, or "" for the only one that lists the value.

    Raises:
        UsageError: If no group lists it, or several do and none is named.
        StoreError: If an experiment of the fleet cannot be read here.
    """
    # A verdict without an experiment that cannot be read could wrongly say proceed.
    check_readable(facts.unreadable(fleet))
    values: dict[str, list[str]] = {}
    for version in facts.versions(fleet):
        if name := version.experiment.group:
            values.setdefault(name, []).extend(version.experiment.groups)
    if not values:
        raise UsageError(
            f'no experiment of fleet {fleet} has an open group: add group = "firmware" and its groups to one'
        )
    if group and group not in values:
        raise UsageError(f"no experiment of fleet {fleet} has the group {group}; groups: {', '.join(values)}")
    names = [name for name in ([group] if group else values) if value in values[name]]
    if not names:
        listed = "; ".join(f"{name}: {', '.join(dict.fromkeys(each))}" for name, each in values.items())
        raise UsageError(
            f"no open group of fleet {fleet} lists {value}: add it to groups in the file; {listed}"
        )
    if len(names) > 1:
        raise UsageError(f"{value} is in the groups {' and '.join(names)}: name one of them")
    return names[0]


@dataclass(frozen=True)
class GroupExperiment:
    """An experiment with the open group, in all its versions that have it, the current one last."""

    name: str
    versions: tuple[Version, ...]

    @property
    def newest(self) -> Version:
        """The current version, or the last published one."""
        return self.versions[-1]

    @property
    def has_days(self) -> bool:
        """Whether its windows are days or hours."""
        return self.newest.experiment.window != "all"

    def judged(self) -> tuple[JudgedQuestion, ...]:
        """Return the questions by which a release is judged.

        Raises:
            HushmoteError: If the stored questions do not fit the experiment.
        """
        newest = self.newest
        worse = worse_from_text(newest.worse)
        return judged_questions(newest.experiment, newest.asked.splitlines(), worse)

    def answering(self, ask: Ask) -> tuple[Version, ...]:
        """Return the versions that count a question's values in the newest version's unit."""
        newest = self.newest.experiment

        def counts_values(version: Experiment) -> bool:
            if ask.kind == "mean":
                return same_values(version, newest)
            if newest.type == "text" and version.type == "text":
                return (version.domain, version.bucket(ask.text)) == (newest.domain, newest.bucket(ask.text))
            return range_in(version, parse_range(newest, ask.text), newest) is not None

        in_its_unit = (v for v in self.versions if v.unit in ("", self.newest.unit))
        return tuple(v for v in in_its_unit if counts_values(v.experiment))

    def every(self, value: str) -> int:
        """Return n, where 1 in n calls of a board with this value and the newest version makes a report."""
        experiment = self.newest.experiment
        return every_by_value(experiment).get(value, experiment.every)


@dataclass(frozen=True)
class DailyReports:
    """The reports of some values by day, although `every` may differ between them; arrays of shape (days,).

    A report counts as the n calls of which 1 makes a report. The variance of the calls of a day, a sum of
    n², would be the same if `effective` reports had come, each for 1 / `rate` calls.

    Attributes:
        effective: The effective reports; those received if all have the same n.
        rate: The reports per call, above 0.
    """

    effective: Floats
    rate: Floats

    @property
    def calls(self) -> Floats:
        """The calls of which the reports were made."""
        return self.effective / self.rate


@dataclass(frozen=True)
class GroupDays:
    """The completed days of an open group, from the first day with reports of any of its values.

    Attributes:
        group: The group's name.
        experiments: The experiments with this group, by name.
        first: The first day.
        count: The number of days; 0 if none is complete.
    """

    facts: Facts
    fleet: str
    group: str
    experiments: Mapping[str, GroupExperiment]
    first: datetime.date
    count: int

    @staticmethod
    def read(facts: Facts, fleet: str, group: str) -> "GroupDays":
        """Read the days of a group."""
        versions: dict[str, list[Version]] = {}
        for version in sorted(facts.versions(fleet), key=publication_order):
            if version.experiment.group == group:
                versions.setdefault(version.experiment.name, []).append(version)
        experiments = {name: GroupExperiment(name, tuple(each)) for name, each in sorted(versions.items())}
        reports = facts.group_reports(fleet)
        windows = {w for each in versions.values() for v in each for w in reports.get(v.id, {})}
        completed = windows_of_completed_days(sorted(windows), facts.at)
        days = sorted(day for window in completed if (day := day_of(window)))
        first = days[0] if days else facts.at.date()
        count = (days[-1] - first).days + 1 if days else 0
        return GroupDays(facts, fleet, group, experiments, first, count)

    def since(self, first: datetime.date) -> "GroupDays":
        """Return the days from `first` onwards."""
        first = max(first, self.first)
        count = max(0, self.count - (first - self.first).days)
        return GroupDays(self.facts, self.fleet, self.group, self.experiments, first, count)

    def day(self, index: int) -> datetime.date:
        """Return the date of the day with this index, starting at 0."""
        return self.first + index * _DAY

    @property
    def last(self) -> datetime.date:
        """The last completed day."""
        return self.day(self.count - 1)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The values of the group in the experiments' newest versions, then older ones, and "other"."""
        listed = [
            v for e in self.experiments.values() for x in reversed(e.versions) for v in x.experiment.groups
        ]
        return (*dict.fromkeys(listed), OTHER)

    def reports(
        self, experiment: str, values: Iterable[str], versions: Iterable[Version] | None = None
    ) -> Floats:
        """Return the reports of these values by day, shape (count,), of all or some versions."""
        result, wanted = np.zeros(self.count), frozenset(values)
        for version in self.experiments[experiment].versions if versions is None else versions:
            names = group_values(version.experiment)
            result += self._reports_of(version, [i for i, name in enumerate(names) if name in wanted])
        return result

    def _reports_of(self, version: Version, indices: Iterable[int]) -> Floats:
        """Return the reports to a version by day, those of these indices of its group's values."""
        result, indices = np.zeros(self.count), tuple(indices)
        for window, by_index in self._windows[version.id].items():
            result[self._index(window)] += sum(by_index.get(index, 0) for index in indices)
        return result

    def daily_reports(self, experiment: str, values: Iterable[str]) -> DailyReports:
        """Return the reports of these values by day, each with the `every` of its version and value.

        The rate includes one more report with the largest n of these values, so that a day does not look more
        certain than it is if no board with this n happened to report.
        """
        wanted = frozenset(values)
        parts = [
            (every, self._reports_of(version, [index]), name)
            for version in self.experiments[experiment].versions
            for index, (name, every) in enumerate(every_by_value(version.experiment).items())
            if name in wanted
        ]
        reporting = {name for _, n, name in parts if n.any()} or wanted
        newest = (self.experiments[experiment].every(value) for value in wanted)
        largest = max((every for every, _, name in parts if name in reporting), default=max(newest))
        calls, squares = np.zeros((2, self.count))
        for every, n, _ in parts:
            calls += every * n
            squares += every**2 * n
        weight = (squares + largest**2) / (calls + largest)
        return DailyReports(calls / weight, 1 / weight)

    def unseen_devices(self, experiment: str, devices: int, spent: int, share: float = 0.0) -> str:
        """Return why the reports do not show the share of devices with a version, or "" if they do.

        If boards with some values report more often, they spend their budgets first, so those that have can
        be all boards with a value, and must be few beside these. Otherwise they are as likely to have any
        value as the others, and the share is that of the others.

        Args:
            experiment: The experiment.
            devices: The number of devices that have reported to it.
            spent: The number of these with no reports left.
            share: The share of devices, 0 to 1, that is to be shown; 0 if it can be any.
        """
        unlike = share if self.is_every_mixed(experiment) else 1.0
        if spent <= SPENT_SHARE * unlike * devices:
            return ""
        have = "has" if spent == 1 else "have"
        silent = f"{spent:,} of {counted(devices, 'device')} that reported to {experiment}"
        return f"{silent} {have} no reports left, so their {self.group} is unknown"

    def is_every_mixed(self, experiment: str) -> bool:
        """Return whether a version makes boards with some values report more often than others."""
        versions = self.experiments[experiment].versions
        return any(len({*every_by_index(version.experiment)}) > 1 for version in versions)

    def is_changing(self, experiment: str) -> bool:
        """Return whether a value's share clearly differs between the first and the last half of the days."""
        everything = self.daily_reports(experiment, self.values)
        days = np.flatnonzero(self.reports(experiment, self.values))
        halves = days[: len(days) // 2], days[len(days) // 2 :]
        for value in self.values:
            calls = self.daily_reports(experiment, [value]).calls
            sums = [(calls[half].sum(), everything.calls[half].sum()) for half in halves]
            if not len(halves[0]) or not calls.any():
                continue
            first, last = (part / whole for part, whole in sums)
            share = calls.sum() / everything.calls.sum()
            inverse = sum(1 / everything.effective[half].sum() for half in halves)
            if abs(last - first) > _CLEAR * math.sqrt(share * (1 - share) * inverse):
                return True
        return False

    def mean_every(self, experiment: str, values: Iterable[str]) -> float:
        """Return the calls per report of these values, or without reports those of the newest version."""
        values = tuple(values)
        reports = float(self.reports(experiment, values).sum())
        if reports:
            return float(self.daily_reports(experiment, values).calls.sum()) / reports
        return len(values) / sum(1 / self.experiments[experiment].every(value) for value in values)

    def first_day_of(self, value: str) -> datetime.date | None:
        """Return the first completed day with reports of a value, or None."""
        totals = sum((self.reports(name, [value]) for name in self.experiments), np.zeros(self.count))
        days = np.flatnonzero(totals)
        return self.day(int(days[0])) if len(days) else None

    def looks(
        self, experiment: str, questions: Sequence[JudgedQuestion], new: str, others: Iterable[str]
    ) -> list["Comparison"]:
        """Return the comparison of two sides for each question."""
        asks, names = tuple(question.ask for question in questions), (frozenset([new]), frozenset(others))
        sides = [self._sides(experiment, asks, values, None) for values in names]
        blocks = sides
        if any(v.experiment.missing is not None for v in self.experiments[experiment].versions):
            blocks = [*zip(*(self._blocks(experiment, ask, names) for ask in asks), strict=True)]
        return [Comparison(*four) for four in zip(*sides, *blocks, strict=True)]

    def _blocks(self, experiment: str, ask: Ask, names: Iterable[frozenset[str]]) -> list[SideDays]:
        """Return the blocks of each side for one question."""
        versions = self.experiments[experiment].answering(ask)
        ends = _block_ends(*(self.reports(experiment, values, versions) for values in names))
        return [self._sides(experiment, (ask,), values, ends)[0] for values in names]

    @cached_property
    def _windows(self) -> dict[int, dict[str, dict[int, int]]]:
        """The reports by version id, window, and index of the group's value, in the days' windows only."""
        result = dict[int, dict[str, dict[int, int]]]()
        reports = self.facts.group_reports(self.fleet)
        for version in (version for each in self.experiments.values() for version in each.versions):
            by_window = reports.get(version.id, {})
            windows = windows_of_completed_days(tuple(by_window), self.facts.at)
            result[version.id] = {w: by_window[w] for w in windows if 0 <= self._index(w) < self.count}
        return result

    def _index(self, window: str) -> int:
        day = day_of(window)
        return -1 if day is None else (day - self.first).days

    def _sides(
        self, name: str, asks: tuple[Ask, ...], values: frozenset[str], ends: tuple[int, ...] | None
    ) -> tuple[SideDays, ...]:
        """Return the daily estimates of each question, or with `ends`, those of blocks on their last days."""
        experiment = self.experiments[name]
        counts = tuple(
            (version_key(v), w, tuple(sorted(n.items())))
            for v in experiment.versions
            for w, n in self._windows[v.id].items()
        )
        key = "release", self.facts.store, name, asks, values, self.first, self.count, ends, counts
        return self.facts.cache.result(key, lambda: self._decode(experiment, asks, values, ends))

    def _decode(
        self,
        experiment: GroupExperiment,
        asks: Sequence[Ask],
        values: frozenset[str],
        ends: tuple[int, ...] | None,
    ) -> tuple[SideDays, ...]:
        histograms = dict[int, dict[int, Counts]]()
        for version in experiment.versions:
            days = self._histograms(version, values)
            histograms[version.id] = days if ends is None else _block_totals(days, ends)
        pooled = dict[tuple[Version, ...], list[Estimates | None]]()
        sides: list[SideDays] = []
        for ask in asks:
            versions = experiment.answering(ask)
            if versions not in pooled:
                pooled[versions] = self._pooled_days(versions, histograms)
            daily = pooled[versions]
            reports = [0 if estimates is None else estimates.reports for estimates in daily]
            newest = experiment.newest.experiment
            statistics = [None if each is None else _statistic(each, ask, newest) for each in daily]
            sides.append(SideDays.of(reports, statistics))
        return tuple(sides)

    def _pooled_days(
        self, versions: Sequence[Version], histograms: Mapping[int, Mapping[int, Counts]]
    ) -> list[Estimates | None]:
        """Return the estimate of each day, with the versions seen through their common values."""
        daily: list[list[Estimates]] = [[] for _ in range(self.count)]
        views = common_views([version.experiment for version in versions])
        assert views is not None  # they all count the question's values
        for version, view in zip(versions, views, strict=True):
            for day, total in histograms[version.id].items():
                if total.sum() >= 2:
                    daily[day].append(estimate(view, total))
        return [_pooled(estimates) for estimates in daily]

    def _histograms(self, version: Version, values: frozenset[str]) -> dict[int, Counts]:
        """Return a version's counts by day, each of shape (code_count,), summed over these values."""
        result: dict[int, Counts] = {}
        names, windows = group_values(version.experiment), self._windows[version.id]
        for index in (i for i, name in enumerate(names) if name in values):
            reports = {w: n[index] for w, n in windows.items() if n.get(index)}
            if not reports:
                continue
            for window, codes, counts in self.facts.cache.windows(self.facts.store, version, reports, index):
                total = result.setdefault(
                    self._index(window), np.zeros(version.experiment.code_count, np.int64)
                )
                total[codes] += counts
        return result


@dataclass(frozen=True)
class Comparison:
    """The days of the new version and of those that it is compared with.

    Attributes:
        new: The days of the new version.
        other: The days of the others.
        new_blocks: The blocks of days that are compared, each on its last day; the days themselves unless a
            missing reading has its own index.
        other_blocks: The same blocks of the others.
    """

    new: SideDays
    other: SideDays
    new_blocks: SideDays
    other_blocks: SideDays

    def looks(self) -> tuple[Look, ...]:
        """Return the looks at the difference, one for each block."""
        return looks(self.new_blocks, self.other_blocks)


def _block_ends(new: Floats, other: Floats) -> tuple[int, ...]:
    """Return the last day of each block, in which both sides have MIN_REPORTS.

    Among devices with a reading, a share is a ratio. That of few reports is biased, and has no estimate if
    its denominator is not clearly above 0, so that days with more readings would be selected.
    """
    ends, sums = list[int](), np.zeros(2)
    for day, reports in enumerate(zip(new, other, strict=True)):
        sums += reports
        if sums.min() >= MIN_REPORTS:
            ends.append(day)
            sums = np.zeros(2)
    return tuple(ends)


def _block_totals(histograms: Mapping[int, Counts], ends: Sequence[int]) -> dict[int, Counts]:
    """Return the sums of the days' counts over each block, by its last day."""
    result: dict[int, Counts] = {}
    for day, counts in histograms.items():
        block = bisect_left(ends, day)
        if block < len(ends):
            result[ends[block]] = result.get(ends[block], 0) + counts
    return result


def _pooled(estimates: Sequence[Estimates]) -> Estimates | None:
    if not estimates:
        return None
    try:
        return among_readings(estimates[0] if len(estimates) == 1 else pool(estimates))
    except EstimateError:
        return None


def _statistic(estimates: Estimates, ask: Ask, newest: Experiment) -> Statistic | None:
    try:
        if ask.kind == "mean":
            return moments.mean(estimates)
        indices = range_in(estimates.experiment, parse_range(newest, ask.text), newest)
        return None if indices is None else estimates.range(indices.low, indices.high)
    except HushmoteError:
        return None
