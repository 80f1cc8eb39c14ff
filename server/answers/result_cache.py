"""Cache counts and estimates between questions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ..arrays import Counts
from ..store.store import Store, Version

T = TypeVar("T")


class ResultCache:
    """A thread-safe cache of counts by window and group, and of estimates by their counts.

    A window is read and estimated again only when its number of reports changes, through a late report or a
    merge. Entries are no longer used once windows are erased or another file replaces the store.
    """

    _MAX_RESULTS = 400  # beyond this, the least recently used result is dropped

    def __init__(self, max_codes: int = 1 << 21) -> None:
        self._max_codes = max_codes  # in all windows, which takes 32 MiB
        self._lock = threading.Lock()
        self._results: OrderedDict[Hashable, Any] = OrderedDict()
        self._windows: OrderedDict[Hashable, tuple[Counts, Counts]] = OrderedDict()
        self._codes = 0

    def result(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return the cached result for this key, such as an estimate or a scan, or compute it with `work`."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = work()
        with self._lock:
            self._results[key] = result
            while len(self._results) > self._MAX_RESULTS:
                self._results.popitem(last=False)
        return result

    def counts(
        self, store: Store, version: Version, reports: Mapping[str, int], group: int | None = None
    ) -> Counts:
        """Return the counts of a version's codes, shape (code_count,); arguments as in windows()."""
        total = np.zeros(version.experiment.code_count, np.int64)
        for _, codes, counts in self.windows(store, version, reports, group):
            total[codes] += counts
        return total

    def windows(
        self, store: Store, version: Version, reports: Mapping[str, int], group: int | None = None
    ) -> Iterator[tuple[str, Counts, Counts]]:
        """Yield (window, codes, counts of these codes) for each window.

        Args:
            store: The store.
            version: The version.
            reports: The number of reports in each window.
            group: The index of the open group's value; None for the sum over all groups.
        """
        missing, version_part = list[str](), (store, version_key(version), group)
        for window, n in reports.items():
            with self._lock:
                entry = self._windows.get((*version_part, window))
            if entry is not None and entry[1].sum() == n:
                yield window, *entry
            else:
                missing.append(window)
        for window, codes, counts in store.window_counts(version, *missing, group=group) if missing else ():
            self._keep((*version_part, window), (codes, counts))
            yield window, codes, counts

    def _keep(self, key: Hashable, counted: tuple[Counts, Counts]) -> None:
        with self._lock:
            before = self._windows.pop(key, ((), ()))
            self._windows[key] = counted
            self._codes += len(counted[0]) - len(before[0])
            while self._codes > self._max_codes:
                self._codes -= len(self._windows.popitem(last=False)[1][0])


def version_key(version: Version) -> Hashable:
    """Return a key that changes if any of a version's windows are erased, or if its id is reused."""
    return version.id, version.first_serial, version.erased
