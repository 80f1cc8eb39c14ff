"""Both ε of a store's contents: of a report, against everyone, and of its histograms."""

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
"""Whom the ε of several windows' histograms protects against if only ended windows are shown."""

RUNNING = "A histogram's ε is – where its window has not ended: until then only the ε of a report holds."
"""Shown below a table with a window that has not ended."""


@dataclass(frozen=True)
class Shuffling:
    """The parameters for calculating the ε of a histogram.

    Attributes:
        delta: δ, above 0 and below 1.
        honest: The fraction of reports made by honest boards, above 0 and up to 1; a forged report hides
            nobody.
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
    """The ε of a report and that of the histograms in which it is counted, in nats.

    Attributes:
        report: The ε of one report, against everyone; the largest, if versions differ.
        histogram: The ε of the histograms together, for one board, rounded up, with `delta`; None if none
            holds.
        delta: The δ that goes with it.
        own: The largest number of reports that any one board can have in the histograms.
        reports: The number of reports of honest boards in them.
        holds: Whom the histogram's ε protects against, or why there is none.
    """

    report: float
    histogram: float | None
    delta: float
    own: int
    reports: int
    holds: str = LIMITS

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {{"holds": "histogram_holds"}.get(name, name): value for name, value in vars(self).items()}

    def words(self, what: str = "the histogram") -> str:
        """Return a sentence; `what` is the subject of the second ε."""
        both = f"ε of a report: {self.report:g}. ε of {what}: {rounded_up(self.histogram)}"
        if self.histogram is None:
            return f"{both}: {self.holds}."
        return f"{both} at δ = {self.delta:g}, {own_reports(self.own)}, {self.holds}."


def both_words(once: TwoEpsilons, every_day: TwoEpsilons) -> str:
    """Return the ε of a report, and of what is shown to two kinds of readers, in sentences."""
    head = f"ε of a report: {once.report:g}."
    ends = f"for someone who has seen every day: {rounded_up(every_day.histogram)}"
    if once.histogram is None:
        return f"{head} ε of what is shown: –: {once.holds}."
    sentence = f"ε for someone who sees this once: {rounded_up(once.histogram)}; {ends}"
    return f"{head} {sentence}, at δ = {once.delta:g} with {own_reports(every_day.own)}, {once.holds}."


def without(trends: Answers) -> Answers:
    """Return trends without what beside() added."""

    def without_epsilons(trend: Answer) -> Answer:
        rows = [
            replace(row, histogram_epsilon=None) if isinstance(row, TrendRow) else row for row in trend.rows
        ]
        return replace(trend, rows=tuple(rows), note=trend.note.removesuffix(RUNNING).strip())

    return Answers(map(without_epsilons, trends))


def of_histograms(
    parts: Sequence[tuple[Experiment, int]],
    own: int,
    shuffling: Shuffling | None = None,
    none_holds: str = "",
) -> TwoEpsilons:
    """Return both ε of complete histograms that are seen together.

    Args:
        parts: The experiment and the number of reports (above 0) of each histogram; no report may be counted
            into them any more.
        own: The largest number of reports that any one board can have in them.
        shuffling: The parameters of the calculation.
        none_holds: Why no ε of the histograms holds, or "".
    """
    how = shuffling or Shuffling()
    honest = [(e, max(1, math.floor(n * how.honest))) for e, n in parts]
    reports = sum(n for _, n in honest)
    own = max(1, min(own, reports))
    epsilon = None if none_holds else histograms_epsilon(honest, how.delta, own)
    report = max(e.epsilon for e, _ in honest) / MICRO
    return TwoEpsilons(report, epsilon, how.delta, own, reports, none_holds or LIMITS)


def of_selections(facts: Facts, *selections: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Return both ε of selections' histograms, seen side by side.

    The windows of a selection are added up, its versions are not. A window may be in several of the
    selections: its reports then count in each.
    """
    parts = [part for selection in selections for part in _added_up(facts, selection)]
    return _together(facts, parts, shuffling)


def of_each_window(
    facts: Facts, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Mapping[str, TwoEpsilons]:
    """Return both ε of each window of a selection by itself.

    Args:
        facts: The contents of the store.
        selection: The selection.
        shuffling: The parameters of the calculation.
        by: "day", "week" or "month" to add windows up by, or ""; see periods.grouped().
    """
    groups = grouped(tuple(sorted(facts.selected(selection).counts)), by)
    added = {name: replace(selection, windows=windows) for name, windows in groups.items()}
    return {name: of_selections(facts, of, shuffling=shuffling) for name, of in added.items()}


def of_windows(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Return both ε of a selection for someone who sees each of its windows."""
    return _together(facts, _all(_apart(facts, selection)), shuffling)


@dataclass(frozen=True)
class Overview:
    """Both ε of a selection: of its newest window, of all windows added up, and of every ended one seen."""

    newest_window: str
    newest: TwoEpsilons
    added_up: TwoEpsilons
    all_windows: TwoEpsilons


def overview(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> Overview:
    """Return the overview of a selection, which must have reports."""
    apart = _apart(facts, selection)
    newest = max(apart)
    ended = {w: parts for w, parts in apart.items() if has_ended(w, facts.at)}
    groups = (apart[newest], _added_up(facts, selection), _all(ended or apart))
    return Overview(newest, *(_together(facts, parts, shuffling) for parts in groups))


def beside(
    facts: Facts, trends: Answers, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Answers:
    """Return trends with the ε of its histogram in each row whose window has ended.

    Args:
        facts: The contents of the store.
        trends: The trends.
        selection: The selection that they are of.
        shuffling: The parameters of the calculation.
        by: As in of_each_window().
    """
    each = {w: one.histogram for w, one in of_each_window(facts, selection, shuffling, by).items()}
    note = f"\n{RUNNING}" if None in each.values() else ""

    def with_epsilons(trend: Answer) -> Answer:
        rows = [replace(r, histogram_epsilon=each[r.window]) for r in trend.rows if isinstance(r, TrendRow)]
        return replace(trend, rows=tuple(rows), note=f"{trend.note}{note}".strip())

    return Answers(map(with_epsilons, trends))


_Part = tuple[Version, tuple[str, ...], int]  # a version's histogram: its windows and number of reports


def _added_up(facts: Facts, selection: Selection) -> list[_Part]:
    selected = facts.selected(selection)
    counts = selected.counts
    of = [(v, tuple(w for w, n in counts.items() if v.id in n)) for v in selected.versions]
    return [(v, windows, sum(counts[w][v.id] for w in windows)) for v, windows in of if windows]


def _apart(facts: Facts, selection: Selection) -> dict[str, list[_Part]]:
    """Return each window's histograms, oldest first."""
    selected = facts.selected(selection)
    counts = selected.counts
    return {
        w: [(v, (w,), counts[w][v.id]) for v in selected.versions if v.id in counts[w]]
        for w in sorted(counts)
    }


def _all(apart: Mapping[str, list[_Part]]) -> list[_Part]:
    return [part for parts in apart.values() for part in parts]


def _why_none(windows: set[str], at: datetime.datetime) -> str:
    """Return why histograms of these windows have no ε, or ""."""
    running = [window for window in windows if not has_ended(window, at)]
    if not running:
        return ""
    which = 'window "all" never ends' if "all" in running else f"window {max(running)} has not ended"
    return f"only the ε of a report holds: {which}, and {LEARNS_SINGLE}"


def _overlap(parts: Sequence[_Part], fleet: str) -> int:
    """Return how many of a fleet's histograms one report can be in."""
    times = Counter((v.id, window) for v, windows, _ in parts if v.fleet == fleet for window in windows)
    return max(times.values(), default=1)


def _together(facts: Facts, parts: Sequence[_Part], shuffling: Shuffling | None) -> TwoEpsilons:
    none_holds = _why_none({w for _, windows, _ in parts for w in windows}, facts.at)
    # A board belongs to one fleet: its reports add up over that fleet's histograms only.
    epsilons: list[TwoEpsilons] = []
    for fleet in sorted({v.fleet for v, _, _ in parts}):
        mine = [(v, n) for v, _, n in parts if v.fleet == fleet]
        own = max(facts.own(v.fleet)[v.id] for v, _ in mine) * _overlap(parts, fleet)
        epsilons.append(of_histograms([(v.experiment, n) for v, n in mine], own, shuffling, none_holds))
    # Take both maxima over the fleets: the one with the largest ε of a report may not have the largest ε of
    # its histogram.
    worst = max(epsilons, key=lambda one: one.histogram or 0.0)
    return replace(worst, report=max(one.report for one in epsilons), own=max(one.own for one in epsilons))
