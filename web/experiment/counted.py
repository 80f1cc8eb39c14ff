"""Estimates that are kept: a window that no report came into since is never worked out again.

What is kept is named by the counts it rests on, so that it is right whoever asks, and however many.
"""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...server.answers import query
from ...server.answers.fleet_estimate import FleetEstimate
from ...server.answers.query import ReportSource, Selection
from ...server.answers.store_reader import StoreReader
from ...server.estimate.estimate import Estimates
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asking import answers_of
from ...server.plain_text import visible
from ...server.store.store import Store, Version

_MOST = 400  # estimates kept; the one that nobody asked for longest goes first


@dataclass(frozen=True)
class Counted:
    """What a store says of an experiment without an estimate.

    versions  oldest first
    windows   window -> version id -> its reports, oldest first
    mark      what changes with every report
    """

    fleet: str
    name: str
    versions: tuple[Version, ...]
    windows: Mapping[str, Mapping[int, int]]
    mark: int

    @property
    def can(self) -> frozenset[str]:
        """What all its versions answer, in the words of server/experiments/asking.py."""
        return answers_of(*(v.experiment for v in self.versions))

    @property
    def unit(self) -> str:
        """What readings are in, or an empty text."""
        return self.unit_of(Selection(self.name, self.fleet))

    @property
    def newest(self) -> Version:
        """The version that was published last."""
        return max(self.versions, key=lambda v: v.serial)

    @property
    def digests(self) -> tuple[str, ...]:
        """Digests of the versions in hexadecimal digits, oldest first."""
        return tuple(v.experiment.digest.hex() for v in self.versions)

    def unit_of(self, selection: Selection) -> str:
        """What a selection's readings are in, as query.unit() has it."""
        chosen = [v for v in self.versions if v.experiment.digest.hex().startswith(selection.version)]
        newest_first = sorted(chosen, key=lambda v: v.serial, reverse=True)
        return visible(next((v.unit for v in newest_first if v.unit), ""))

    def digest(self, version: int) -> bytes:
        """The digest of a version, by its id."""
        return next(v.experiment.digest for v in self.versions if v.id == version)

    @property
    def reports(self) -> int:
        """All reports that were counted."""
        return sum(sum(counts.values()) for counts in self.windows.values())

    def reports_on(self, day: datetime.date) -> int | None:
        """Reports of one day, UTC; None where counts are not kept by the day."""
        if self.newest.experiment.window == "all":
            return None
        return sum(sum(n.values()) for window, n in self.windows.items() if window[:10] == day.isoformat())

    def counts(self, selection: Selection) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """What a selection's estimate rests on: windows, and the reports of each version."""
        chosen = {v.id for v in self.versions if v.experiment.digest.hex().startswith(selection.version)}
        wanted = selection.windows or tuple(self.windows)
        of = {w: self.windows.get(w, {}) for w in wanted}
        return tuple((w, tuple(sorted((i, n) for i, n in of[w].items() if i in chosen))) for w in wanted)


def described(store: StoreReader, fleet: str, name: str) -> Counted:
    """What a store says of an experiment. Raises UsageError where fleet or name is not there."""
    selection = Selection(name, fleet)
    versions = query.versions(store.store, selection)
    reports = store.store.window_reports(fleet)
    windows: dict[str, dict[int, int]] = {}
    for version in versions:
        for window, count in reports.get(version.id, {}).items():
            windows.setdefault(window, {})[version.id] = count
    in_order = {window: windows[window] for window in sorted(windows)}
    mark = hash(tuple((window, *sorted(counts.items())) for window, counts in in_order.items()))
    return Counted(fleet, name, tuple(versions), in_order, mark)


class Kept:
    """Estimates by what they rest on; for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._estimates: OrderedDict[object, Estimates] = OrderedDict()
        self._reports: dict[tuple[str, str], int] = {}

    def estimate(self, store: Store, of: Counted, selection: Selection, confidence: float) -> FleetEstimate:
        """The estimate of a selection. Raises EstimateError for fewer than 2 reports, as query.read()."""
        estimates = self._read(store, of, selection)
        sources = frozenset(
            ReportSource(store.where, of.fleet, of.digest(i), window)
            for window, counts in of.counts(selection)
            for i, _ in counts
        )
        return FleetEstimate(estimates, str(selection), of.unit_of(selection), confidence, None, sources)

    def by_window(self, store: Store, of: Counted, selection: Selection) -> dict[str, Estimates]:
        """Window -> its estimate, oldest first, without those of too few reports."""
        estimates: dict[str, Estimates] = {}
        for window in selection.windows or of.windows:
            try:
                estimates[window] = self._read(store, of, replace(selection, windows=(window,)))
            except EstimateError:
                continue
        return estimates

    def _read(self, store: Store, of: Counted, selection: Selection) -> Estimates:
        key = (of.fleet, of.name, of.counts(selection))
        with self._lock:
            if of.reports < self._reports.get(key[:2], 0):  # another store took its place
                self._estimates.clear()
            self._reports[key[:2]] = of.reports
            if key in self._estimates:
                self._estimates.move_to_end(key)
                return self._estimates[key]
        estimates = query.read(store, selection)
        with self._lock:
            self._estimates[key] = estimates
            while len(self._estimates) > _MOST:
                self._estimates.popitem(last=False)
        return estimates
