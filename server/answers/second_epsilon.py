"""Both ε of what a store holds: of a report, against everybody, and of its histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...device.ldp_client import Experiment
from ..accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..epsilon import MICRO, rounded_up
from ..errors import UsageError
from ..estimate.shuffled import LIMITS, histograms_epsilon
from ..store.store import Store, Version
from ..store.versions import most_reports
from . import query
from .answer import Answers, Row, TrendRow
from .query import Selection


@dataclass(frozen=True)
class Shuffling:
    """What the ε of a histogram is worked out with.

    delta   above 0, below 1
    honest  the part of the reports that honest boards made, above 0 up to 1: a forged one hides nobody
    """

    delta: float = USUAL_HISTOGRAM_DELTA
    honest: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is above 0 and below 1 (1e-6, say), not {self.delta:g}")
        if not 0 < self.honest <= 1:
            raise UsageError(f"the honest part of the reports is above 0 and at most 1, not {self.honest:g}")


@dataclass(frozen=True)
class TwoEpsilons:
    """ε of a report and of the histograms that reports are counted in, nats.

    report     of one report, against everybody; the largest, where versions differ
    histogram  of the histograms together, for one board, rounded up; with delta
    delta      that goes with it
    own        the most reports that any one board can have in them
    reports    how many of honest boards they hold
    """

    report: float
    histogram: float
    delta: float
    own: int
    reports: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"histogram_holds": LIMITS}

    def words(self, what: str = "the histogram") -> str:
        """A sentence; what: what is seen."""
        own = "1 report" if self.own == 1 else f"up to {self.own:,} reports"
        return (
            f"ε of a report: {self.report:g}. ε of {what}: {rounded_up(self.histogram)} "
            f"at δ = {self.delta:g}, {own} of a board, {LIMITS}."
        )


def of_histograms(
    parts: Sequence[tuple[Experiment, int]], own: int, shuffling: Shuffling | None = None
) -> TwoEpsilons:
    """Both ε of histograms that are seen together, each an experiment's with its number of reports, > 0."""
    how = shuffling or Shuffling()
    honest = [(e, max(1, math.floor(n * how.honest))) for e, n in parts]
    reports = sum(n for _, n in honest)
    own = max(1, min(own, reports))
    epsilon = histograms_epsilon(honest, how.delta, own)
    return TwoEpsilons(max(e.epsilon for e, _ in honest) / MICRO, epsilon, how.delta, own, reports)


@dataclass(frozen=True)
class Facts:
    """What a store says of each fleet, read once: for several questions to it."""

    store: Store
    _own: dict[str, dict[int, int]] = field(default_factory=dict)
    _reports: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)

    def own(self, fleet: str) -> dict[int, int]:
        """Return version id -> the most reports, >= 1, that one board can have to its experiment.

        What the budgets allow, and no more than any device has numbers in the store.
        """
        if fleet not in self._own:
            versions = self.store.experiments(fleet)
            # What cheaper versions allow counts too, whether or not they are asked about.
            allowed = most_reports(versions)
            # The devices are many: they are asked only where a budget allows a board more than one report.
            asked = any(n is None or n > 1 for n in allowed.values())
            sent = self.store.participation(fleet) if asked else {}
            names = {v.id: sent.get(v.experiment.name) for v in versions}
            bounds = {
                i: [n for n in (allowed[i], by and by.most) if n is not None] for i, by in names.items()
            }
            self._own[fleet] = {i: max(1, min(bound, default=2**31)) for i, bound in bounds.items()}
        return self._own[fleet]

    def reports(self, fleet: str) -> dict[int, dict[str, int]]:
        """Return version id -> window -> reports accepted in it."""
        if fleet not in self._reports:
            self._reports[fleet] = self.store.window_reports(fleet)
        return self._reports[fleet]


def of_selection(store: Store, selection: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Both ε of a selection's histogram: windows added up, versions each by themselves."""
    facts = Facts(store)
    return _together(facts, [_added_up(facts, selection)], shuffling)


def of_change(
    store: Store, before: Selection, after: Selection, shuffling: Shuffling | None = None
) -> TwoEpsilons:
    """Both ε of two selections' histograms that are seen side by side."""
    facts = Facts(store)
    return _together(facts, [_added_up(facts, one) for one in (before, after)], shuffling)


def of_each_window(
    store: Store, selection: Selection, shuffling: Shuffling | None = None
) -> Mapping[str, TwoEpsilons]:
    """Both ε of each window of a selection, by itself."""
    facts = Facts(store)
    apart = _apart(facts, selection)
    return {window: _together(facts, [parts], shuffling) for window, parts in apart.items()}


def of_windows(store: Store, selection: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Both ε of all windows of a selection, where each is seen."""
    facts = Facts(store)
    return _together(facts, list(_apart(facts, selection).values()), shuffling)


@dataclass(frozen=True)
class Overview:
    """Both ε of a selection: its newest window's, all windows added up, and all where each is seen."""

    newest_window: str
    newest: TwoEpsilons
    added_up: TwoEpsilons
    all_windows: TwoEpsilons


def overview(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> Overview:
    """Both ε of what is shown of a selection in a line; there must be reports in it."""
    apart = _apart(facts, selection)
    newest = max(apart)
    groups = ([apart[newest]], [_added_up(facts, selection)], list(apart.values()))
    return Overview(newest, *(_together(facts, group, shuffling) for group in groups))


def beside(trends: Answers, each: Mapping[str, TwoEpsilons]) -> Answers:
    """Trends with the ε of each window's histogram in its rows."""
    return Answers(replace(one, rows=tuple(_with_epsilon(row, each) for row in one.rows)) for one in trends)


def _with_epsilon(row: Row, each: Mapping[str, TwoEpsilons]) -> Row:
    return replace(row, histogram_epsilon=each[row.window].histogram) if isinstance(row, TrendRow) else row


def _counted(facts: Facts, selection: Selection) -> list[tuple[Version, dict[str, int]]]:
    """The selected versions with their reports in the selected windows."""
    reports = facts.reports(selection.fleet)
    chosen = [(v, reports.get(v.id, {})) for v in query.versions(facts.store, selection)]
    wanted = set(selection.windows)
    return [(v, {w: n for w, n in ws.items() if n and (not wanted or w in wanted)}) for v, ws in chosen]


def _added_up(facts: Facts, selection: Selection) -> list[tuple[Version, int]]:
    sums = [(v, sum(by_window.values())) for v, by_window in _counted(facts, selection)]
    return [(v, n) for v, n in sums if n]


def _apart(facts: Facts, selection: Selection) -> dict[str, list[tuple[Version, int]]]:
    """Each window's histograms, the oldest first."""
    counted = _counted(facts, selection)
    windows = sorted({window for _, by_window in counted for window in by_window})
    return {w: [(v, by_window[w]) for v, by_window in counted if w in by_window] for w in windows}


def _together(
    facts: Facts, groups: Sequence[Sequence[tuple[Version, int]]], shuffling: Shuffling | None
) -> TwoEpsilons:
    parts = [part for group in groups for part in group]
    # A board is in one fleet: in the histograms of one fleet its reports add up, in others' it has none.
    fleets = {v.fleet for v, _ in parts}
    of_fleets = [[(v, n) for v, n in parts if v.fleet == fleet] for fleet in sorted(fleets)]
    epsilons = [
        of_histograms(
            [(v.experiment, n) for v, n in mine],
            max(facts.own(v.fleet)[v.id] for v, _ in mine),
            shuffling,
        )
        for mine in of_fleets
    ]
    return max(epsilons, key=lambda one: one.histogram)
