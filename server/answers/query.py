"""The contents of a store, read once for a question: versions, their reports, estimates."""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..arrays import Counts
from ..errors import UsageError, choose_name
from ..estimate.estimate import Estimates, estimate
from ..estimate.pooling import pool
from ..estimate.readings import among_readings
from ..estimate.statistic import EstimateError
from ..experiments.answerable import answers_of
from ..plain_text import visible
from ..store.store import Store, Version
from ..store.versions import most_reports
from .periods import grouped
from .question import Selection, WeighBy

T = TypeVar("T")


class ReportSource(NamedTuple):
    """A place where reports were counted; estimates with a common source share reports."""

    store: str
    fleet: str
    digest: bytes
    window: str


class ResultCache:
    """A thread-safe cache of counts by window, and of estimates by their counts.

    A window is read and estimated again only when its number of reports changes, by a late report or a merge.
    Entries are dropped when windows were erased or another file replaced the store.
    """

    _MOST = 400  # results; the least recently used is dropped first

    def __init__(self, most_codes: int = 1 << 21) -> None:
        self._most_codes = most_codes  # over all windows: 32 MiB
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Any] = OrderedDict()
        self._windows: OrderedDict[Hashable, tuple[Counts, Counts]] = OrderedDict()
        self._codes = 0

    def result(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return the cached result with this key (an estimate, a scan), or calculate it with `work`."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = work()
        with self._lock:
            self._results[key] = result
            while len(self._results) > self._MOST:
                self._results.popitem(last=False)
        return result

    def counts(self, store: Store, version: Version, reports: Mapping[str, int]) -> Counts:
        """Return counts of a version's codes, shape (code_count,).

        Args:
            store: The store.
            version: The version.
            reports: The number of reports in each window.
        """
        total = np.zeros(version.experiment.code_count, np.int64)
        for _, codes, counts in self.windows(store, version, reports):
            total[codes] += counts
        return total

    def windows(
        self, store: Store, version: Version, reports: Mapping[str, int]
    ) -> Iterator[tuple[str, Counts, Counts]]:
        """Yield (window, codes, counts of these codes) for each window.

        Args:
            store: The store.
            version: The version.
            reports: The number of reports in each window.
        """
        absent, of = list[str](), (store, version_key(version))
        for window, n in reports.items():
            with self._lock:
                entry = self._windows.get((*of, window))
            if entry is not None and entry[1].sum() == n:
                yield window, *entry
            else:
                absent.append(window)
        for window, codes, counts in store.window_counts(version, *absent) if absent else ():
            self._keep((*of, window), (codes, counts))
            yield window, codes, counts

    def _keep(self, key: Hashable, counted: tuple[Counts, Counts]) -> None:
        with self._lock:
            before = self._windows.pop(key, ((), ()))
            self._windows[key] = counted
            self._codes += len(counted[0]) - len(before[0])
            while self._codes > self._most_codes:
                self._codes -= len(self._windows.popitem(last=False)[1][0])


@dataclass(frozen=True)
class Facts:
    """The contents of a store, read once to answer several questions.

    Attributes:
        at: The time, UTC, that decides which windows have ended. One that has not has no ε for its histogram,
            because someone who asks again after one more report learns that report.
        cache: Estimates, including those of earlier Facts.
    """

    store: Store
    at: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    cache: ResultCache = field(default_factory=ResultCache, compare=False)
    _versions: dict[str, tuple[Version, ...]] = field(default_factory=dict)
    _own: dict[str, dict[int, int]] = field(default_factory=dict)
    _reports: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)

    def versions(self, fleet: str) -> tuple[Version, ...]:
        """Return all versions of a fleet's experiments, oldest first."""
        if fleet not in self._versions:
            self._versions[fleet] = self.store.experiments(fleet)
        return self._versions[fleet]

    def names(self, fleet: str) -> tuple[str, ...]:
        """Return the names of a fleet's experiments, sorted."""
        return tuple(sorted({v.experiment.name for v in self.versions(fleet)}))

    def own(self, fleet: str) -> dict[int, int]:
        """Return, by version id, the largest number of reports (at least 1) that one board can have.

        This is what the budgets allow, but not more than any device has report numbers in the store.
        """
        if fleet not in self._own:
            versions, own = self.versions(fleet), dict[int, int]()
            # What cheaper versions allow counts too, even if the question is not about them.
            allowed = most_reports(versions)
            # Reading the devices is slow: do it only if a budget allows a board more than one report.
            needs_participation = any(n is None or n > 1 for n in allowed.values())
            sent = self.store.participation(fleet) if needs_participation else {}
            for v in versions:
                by = sent.get(v.experiment.name)
                bound = [n for n in (allowed[v.id], by and by.most) if n is not None]
                own[v.id] = max(1, min(bound, default=2**31))
            self._own[fleet] = own
        return self._own[fleet]

    def reports(self, fleet: str) -> dict[int, dict[str, int]]:
        """Return the number of reports accepted, by version id and window."""
        if fleet not in self._reports:
            self._reports[fleet] = self.store.window_reports(fleet)
        return self._reports[fleet]

    def selected(self, selection: Selection) -> Selected:
        """Return the selected reports.

        Raises:
            UsageError: If the fleet, name or version does not exist.
        """
        name, fleet = selection.experiment, selection.fleet
        named = [v for v in self.versions(fleet) if v.experiment.name == name]
        if not named:
            choose_name("fleet", fleet, tuple(self.store.fleets()), "in this store")
            choose_name("experiment", name, self.names(fleet), f"in fleet {fleet}")
        chosen = tuple(v for v in named if v.experiment.digest.hex().startswith(selection.version))
        if not chosen:
            digests = ", ".join(v.experiment.digest.hex() for v in named)
            raise UsageError(f"{name} has no version {selection.version}; its versions: {digests}")
        return Selected(self, selection, chosen)


@dataclass(frozen=True)
class Selected:
    """The selected reports of a store; made by Facts.selected().

    Attributes:
        versions: The selected versions, oldest first.
    """

    facts: Facts
    selection: Selection
    versions: tuple[Version, ...]

    @property
    def newest(self) -> Version:
        """The version that was published last."""
        return max(self.versions, key=lambda v: v.serial)

    @property
    def can(self) -> frozenset[str]:
        """The kinds of questions that all these versions answer, by name in experiments/answerable.py."""
        return answers_of(*(v.experiment for v in self.versions))

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the versions in hexadecimal, oldest first."""
        return tuple(v.experiment.digest.hex() for v in self.versions)

    @property
    def unit(self) -> str:
        """The unit of readings in the newest version that has one; otherwise ""."""
        newest_first = sorted(self.versions, key=lambda v: v.serial, reverse=True)
        # A store may come from anyone, and pictures and JSON do not escape control characters.
        return visible(next((v.unit for v in newest_first if v.unit), ""))

    @cached_property
    def there(self) -> Mapping[str, Mapping[int, int]]:
        """The number of reports by window and version id, over all windows of these versions."""
        reports = self.facts.reports(self.selection.fleet)
        of = {v.id: {w: n for w, n in reports.get(v.id, {}).items() if n} for v in self.versions}
        windows = sorted(set().union(*of.values()))
        return {w: {i: counts[w] for i, counts in of.items() if w in counts} for w in windows}

    @property
    def counts(self) -> Mapping[str, Mapping[int, int]]:
        """The same for the selected windows that have reports, in their order."""
        windows = self.selection.windows or self.there
        return {window: self.there[window] for window in windows if window in self.there}

    @property
    def reports(self) -> int:
        """The number of reports in the selected windows."""
        return sum(sum(counts.values()) for counts in self.counts.values())

    @property
    def sources(self) -> frozenset[ReportSource]:
        """The places where the reports were counted."""
        where, fleet = self.facts.store.where, self.selection.fleet
        digests = {v.id: v.experiment.digest for v in self.versions}
        both = [(window, i) for window, counts in self.counts.items() for i in counts]
        return frozenset(ReportSource(where, fleet, digests[i], window) for window, i in both)

    def estimate(self, weigh: WeighBy = "reports") -> Estimates:
        """Return the estimate, with the histograms of windows added and versions pooled.

        Args:
            weigh: The way to weigh versions against each other.

        Raises:
            UsageError: If there are too many values for `weigh`.
            EstimateError: If a window has no reports, there are fewer than 2 reports, or the versions cannot
                be pooled.
        """
        self._check_windows()
        counts = tuple((w, tuple(sorted(n.items()))) for w, n in self.counts.items())
        of = tuple(map(version_key, self.versions))
        key = self.facts.store, of, weigh, counts
        return self.facts.cache.result(key, lambda: pooled(self, weigh))

    def by_window(self, weigh: WeighBy = "reports", by: str = "") -> dict[str, Estimates]:
        """Return the estimate of each window that has enough reports, oldest first or as selected.

        Args:
            weigh: As in estimate().
            by: "day", "week" or "month" to add windows up by, or "".

        Raises:
            UsageError: As estimate().
            EstimateError: If fewer than 2 windows remain; otherwise as estimate().
        """
        self._check_windows()
        estimates: dict[str, Estimates] = {}
        for name, windows in grouped(tuple(self.counts), by).items():
            try:
                one = replace(self, selection=replace(self.selection, windows=windows))
                estimates[name] = one.estimate(weigh)
            except EstimateError:
                continue  # too few reports in this window
        if len(estimates) < 2:
            chosen = self.selection.windows and {*self.selection.windows} < {*self.there}
            of = "what was chosen has" if chosen else f"{self.selection.experiment} has"
            raise EstimateError(f"a trend needs at least 2 windows with reports; {of} {len(estimates)}")
        return estimates

    def _check_windows(self) -> None:
        names = tuple(self.there)
        few = ", ".join(names) if len(names) <= 4 else f"{len(names)}, {names[0]} to {names[-1]}"
        there = f"it has {few}" if names else "no report has been counted yet"
        for window in self.selection.windows:
            if window not in names:
                raise EstimateError(f"{self.selection.experiment} has no reports in window {window}; {there}")


def version_key(version: Version) -> Hashable:
    """Return a key that changes if windows of a version are erased, because its id may be reused."""
    return version.id, version.first_serial, version.erased


def pooled(selected: Selected, weigh: WeighBy = "reports") -> Estimates:
    """Return a new estimate of selected reports.

    Raises:
        EstimateError: As Selected.estimate().
    """
    estimates: list[Estimates] = []
    facts, selection = selected.facts, selected.selection
    for version in selected.versions:
        reports = {w: counts[version.id] for w, counts in selected.counts.items() if version.id in counts}
        total = facts.cache.counts(facts.store, version, reports)
        if total.sum() >= 2:
            estimates.append(estimate(version.experiment, total))
    if not estimates:
        raise EstimateError(
            f"{selection.experiment} has fewer than 2 reports yet in {selection}: an estimate needs 2"
        )
    if len(estimates) == 1:
        return among_readings(estimates[0])
    return among_readings(pool(estimates, by=weigh))


def check_apart(before: frozenset[ReportSource], after: frozenset[ReportSource]) -> None:
    """Raise UsageError if two sides share reports, because a comparison assumes independent sides."""
    both = before & after
    if both:
        window = min(source.window for source in both)
        raise UsageError(
            f"reports of {window} would be on both sides: compare windows, versions or fleets that are apart"
        )
