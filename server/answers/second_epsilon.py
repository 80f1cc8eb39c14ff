"""Both ε of what a store holds: of a report, against everybody, and of its histograms."""

import datetime
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...device.ldp_client import Experiment
from ..accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ..epsilon import MICRO
from ..errors import UsageError
from ..estimate.shuffled import LIMITS, histograms_epsilon
from ..store.store import Version
from ..words.epsilon import own_reports, rounded_up
from .answer import Answer, Answers
from .periods import grouped
from .query import Facts, Selection
from .rows import TrendRow
from .windows import has_ended

LEARNS_SINGLE = "whoever sees a histogram again after every few reports learns single reports"

ENDED = f"for whoever sees each window's histogram once it has ended, {LIMITS}"
"""Whom the ε of several windows' histograms holds against where only ended windows are shown."""

RUNNING = "A histogram's ε is – where its window has not ended: until then only the ε of a report holds."
"""Shown below a table with such a window."""


@dataclass(frozen=True)
class Shuffling:
    """The parameters for calculating the ε of a histogram.

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
    histogram  of the histograms together, for one board, rounded up; with delta; None where none holds
    delta      that goes with it
    own        the most reports that any one board can have in them
    reports    how many of honest boards they hold
    holds      whom the histogram's holds against, or why there is none
    """

    report: float
    histogram: float | None
    delta: float
    own: int
    reports: int
    holds: str = LIMITS

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {{"holds": "histogram_holds"}.get(name, name): value for name, value in vars(self).items()}

    def words(self, what: str = "the histogram") -> str:
        """Return a sentence; what: the subject of the second ε."""
        both = f"ε of a report: {self.report:g}. ε of {what}: {rounded_up(self.histogram)}"
        if self.histogram is None:
            return f"{both}: {self.holds}."
        return f"{both} at δ = {self.delta:g}, {own_reports(self.own)}, {self.holds}."


def both_words(once: TwoEpsilons, every_day: TwoEpsilons) -> str:
    """Return the ε of a report, and of what is shown for two kinds of readers, in sentences."""
    head = f"ε of a report: {once.report:g}."
    ends = f"for someone who has seen every day: {rounded_up(every_day.histogram)}"
    if once.histogram is None:
        return f"{head} ε of what is shown: –: {once.holds}."
    sentence = f"ε for someone who sees this once: {rounded_up(once.histogram)}; {ends}"
    return f"{head} {sentence}, at δ = {once.delta:g} with {own_reports(every_day.own)}, {once.holds}."


def of_histograms(
    parts: Sequence[tuple[Experiment, int]],
    own: int,
    shuffling: Shuffling | None = None,
    none_holds: str = "",
) -> TwoEpsilons:
    """Both ε of histograms that are seen together, each an experiment's with its number of reports, > 0.

    They are whole: no report is counted into them any more. none_holds: why no ε of them holds, if so.
    """
    how = shuffling or Shuffling()
    honest = [(e, max(1, math.floor(n * how.honest))) for e, n in parts]
    reports = sum(n for _, n in honest)
    own = max(1, min(own, reports))
    epsilon = None if none_holds else histograms_epsilon(honest, how.delta, own)
    report = max(e.epsilon for e, _ in honest) / MICRO
    return TwoEpsilons(report, epsilon, how.delta, own, reports, none_holds or LIMITS)


def of_selections(facts: Facts, *selections: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Return both ε of histograms that are seen side by side.

    Each selection's windows are summed, versions apart. A window may be in several of the sums: its reports
    then count in each.
    """
    parts = [part for selection in selections for part in _added_up(facts, selection)]
    return _together(facts, parts, shuffling)


def of_each_window(
    facts: Facts, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Mapping[str, TwoEpsilons]:
    """Both ε of each window of a selection, by itself; by: or of their sums, see periods.grouped()."""
    groups = grouped(tuple(sorted(facts.selected(selection).counts)), by)
    added = {name: replace(selection, windows=windows) for name, windows in groups.items()}
    return {name: of_selections(facts, of, shuffling=shuffling) for name, of in added.items()}


def of_windows(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Both ε of all windows of a selection, where each is seen."""
    return _together(facts, _all(_apart(facts, selection)), shuffling)


@dataclass(frozen=True)
class Overview:
    """Both ε of a selection: its newest window's, all windows added up, and where each ended one is seen."""

    newest_window: str
    newest: TwoEpsilons
    added_up: TwoEpsilons
    all_windows: TwoEpsilons


def overview(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> Overview:
    """Both ε of what is shown of a selection in a line; there must be reports in it."""
    apart = _apart(facts, selection)
    newest = max(apart)
    ended = {w: parts for w, parts in apart.items() if has_ended(w, facts.at)}
    groups = (apart[newest], _added_up(facts, selection), _all(ended or apart))
    return Overview(newest, *(_together(facts, parts, shuffling) for parts in groups))


def beside(
    facts: Facts, trends: Answers, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Answers:
    """Trends with the ε of each window's histogram in its rows; none in those of a window that still runs.

    by: as of_each_window() takes it.
    """
    each = {w: one.histogram for w, one in of_each_window(facts, selection, shuffling, by).items()}
    note = f"\n{RUNNING}" if None in each.values() else ""

    def with_epsilons(trend: Answer) -> Answer:
        rows = [replace(r, histogram_epsilon=each[r.window]) for r in trend.rows if isinstance(r, TrendRow)]
        return replace(trend, rows=tuple(rows), note=f"{trend.note}{note}".strip())

    return Answers(map(with_epsilons, trends))


_Part = tuple[Version, tuple[str, ...], int]  # a version's histogram: the windows in it, and its reports


def _added_up(facts: Facts, selection: Selection) -> list[_Part]:
    selected = facts.selected(selection)
    counts = selected.counts
    of = [(v, tuple(w for w, n in counts.items() if v.id in n)) for v in selected.versions]
    return [(v, windows, sum(counts[w][v.id] for w in windows)) for v, windows in of if windows]


def _apart(facts: Facts, selection: Selection) -> dict[str, list[_Part]]:
    """Each window's histograms, the oldest first."""
    selected = facts.selected(selection)
    counts = selected.counts
    return {
        w: [(v, (w,), counts[w][v.id]) for v in selected.versions if v.id in counts[w]]
        for w in sorted(counts)
    }


def _all(apart: Mapping[str, list[_Part]]) -> list[_Part]:
    return [part for parts in apart.values() for part in parts]


def _why_none(windows: set[str], at: datetime.datetime) -> str:
    """Why histograms of these windows have no ε, or an empty text."""
    running = [window for window in windows if not has_ended(window, at)]
    if not running:
        return ""
    which = 'window "all" never ends' if "all" in running else f"window {max(running)} has not ended"
    return f"only the ε of a report holds: {which}, and {LEARNS_SINGLE}"


def _overlap(parts: Sequence[_Part], fleet: str) -> int:
    """Return in how many of a fleet's histograms one report can be."""
    times = Counter((v.id, window) for v, windows, _ in parts if v.fleet == fleet for window in windows)
    return max(times.values(), default=1)


def _together(facts: Facts, parts: Sequence[_Part], shuffling: Shuffling | None) -> TwoEpsilons:
    none_holds = _why_none({w for _, windows, _ in parts for w in windows}, facts.at)
    # A board is in one fleet: in the histograms of one fleet its reports add up, in others' it has none.
    epsilons: list[TwoEpsilons] = []
    for fleet in sorted({v.fleet for v, _, _ in parts}):
        mine = [(v, n) for v, _, n in parts if v.fleet == fleet]
        own = max(facts.own(v.fleet)[v.id] for v, _ in mine) * _overlap(parts, fleet)
        epsilons.append(of_histograms([(v.experiment, n) for v, n in mine], own, shuffling, none_holds))
    # Each is the largest of all fleets: one with the larger ε of a report may have the better histogram.
    worst = max(epsilons, key=lambda one: one.histogram or 0.0)
    return replace(worst, report=max(one.report for one in epsilons), own=max(one.own for one in epsilons))
