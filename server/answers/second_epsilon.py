"""Both ε values of a store's contents: that of a report, against everyone, and that of the histograms."""

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
from ..words.epsilon import reports_per_device, rounded_up
from .answer import Answer, Answers
from .periods import group_windows
from .query import Facts, Selection
from .rows import TrendRow
from .windows import has_ended

LEARNS_SINGLE = "anyone who sees a histogram again after every few reports learns individual reports"

ENDED = f"for anyone who sees each window's histogram once it has ended, {LIMITS}"
"""The observers that the ε of several windows protects against if only ended windows are shown."""

RUNNING = "If a window has not ended, its histogram's ε is –: until then, only the ε of a report applies."
"""Shown below a table with a window that has not ended."""


@dataclass(frozen=True)
class Shuffling:
    """The parameters for computing a histogram's ε.

    Attributes:
        delta: δ, above 0 and below 1.
        honest: The fraction of reports from honest boards, above 0 and at most 1; forged reports do not hide
            anyone.
    """

    delta: float = USUAL_HISTOGRAM_DELTA
    honest: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise UsageError(f"delta must be above 0 and below 1, such as 1e-6, not {self.delta:g}")
        if not 0 < self.honest <= 1:
            raise UsageError(
                f"the honest share of the reports must be above 0 and at most 1, not {self.honest:g}"
            )


@dataclass(frozen=True)
class TwoEpsilons:
    """The ε of a report and the ε of the histograms that count it, in nats.

    Attributes:
        report: The ε of one report, against everyone; if versions differ, the largest.
        histogram: The combined ε of the histograms for one board, rounded up, with `delta`; None if no ε
            applies.
        delta: The δ that goes with it.
        own: The maximum number of reports from any one board in the histograms.
        reports: The number of reports from honest boards in the histograms.
        holds: The observers that the histograms' ε protects against, or why no ε applies.
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
        return f"{both} at δ = {self.delta:g}, {reports_per_device(self.own)}, {self.holds}."


def both_words(once: TwoEpsilons, every_day: TwoEpsilons) -> str:
    """Describe the ε of a report, and the ε of everything shown for two kinds of readers."""
    head = f"ε of a report: {once.report:g}."
    ends = f"for someone who has seen every day: {rounded_up(every_day.histogram)}"
    if once.histogram is None:
        return f"{head} ε of what is shown: –: {once.holds}."
    sentence = f"ε for someone who sees this once: {rounded_up(once.histogram)}; {ends}"
    return f"{head} {sentence}, at δ = {once.delta:g} with {reports_per_device(every_day.own)}, {once.holds}."


def remove_epsilons(trends: Answers) -> Answers:
    """Return trends without the ε values and notes that add_epsilons() added."""

    def without_epsilons(table: Answer) -> Answer:
        rows = [
            replace(row, histogram_epsilon=None) if isinstance(row, TrendRow) else row for row in table.rows
        ]
        return replace(table, rows=tuple(rows), note=table.note.removesuffix(RUNNING).strip())

    return Answers(map(without_epsilons, trends))


def of_histograms(
    parts: Sequence[tuple[Experiment, int]],
    own: int,
    shuffling: Shuffling | None = None,
    none_holds: str = "",
) -> TwoEpsilons:
    """Return both ε values of complete histograms that are seen together.

    Args:
        parts: Each histogram's experiment and number of reports (above 0); the histograms must be final.
        own: The maximum number of reports from any one board in them.
        shuffling: The parameters of the computation.
        none_holds: Why no ε applies to the histograms, or "".
    """
    params = shuffling or Shuffling()
    honest = [(e, max(1, math.floor(n * params.honest))) for e, n in parts]
    reports = sum(n for _, n in honest)
    own = max(1, min(own, reports))
    epsilon = None if none_holds else histograms_epsilon(honest, params.delta, own)
    report = max(e.epsilon for e, _ in honest) / MICRO
    return TwoEpsilons(report, epsilon, params.delta, own, reports, none_holds or LIMITS)


def of_selections(facts: Facts, *selections: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Return both ε values of the selections' histograms, seen side by side.

    Windows within a selection are summed; versions are not. If several selections include a window, its
    reports count in each of them. The values of an open group do not share reports.

    Raises:
        EstimateError: If a selected value of the group is suppressed.
    """
    for selection in selections:
        facts.selected(selection).check_shown()
    parts = [part for selection in selections for part in _summed_parts(facts, selection)]
    return _combined_epsilons(facts, parts, shuffling)


def seen_once(
    facts: Facts, selections: Sequence[Selection], every_day: TwoEpsilons, shuffling: Shuffling | None = None
) -> TwoEpsilons:
    """Return both ε values of the selections' histograms, seen side by side; at most those of all windows.

    Sums of ended windows reveal no more than the windows do.

    Args:
        facts: The contents of the store.
        selections: The selections, as in of_selections().
        every_day: Both ε values for someone who sees each ended window of the first selection's experiment,
            version and group.
        shuffling: The parameters of both computations.
    """
    once = of_selections(facts, *selections, shuffling=shuffling)
    is_same = len({replace(selection, windows=()) for selection in selections}) == 1
    if not is_same or once.histogram is None or every_day.histogram is None:
        return once
    return replace(once, histogram=min(once.histogram, every_day.histogram))


def of_each_window(
    facts: Facts, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Mapping[str, TwoEpsilons]:
    """Return both ε values of each of a selection's windows separately, omitting those that are not shown.

    Args:
        facts: The contents of the store.
        selection: The selection.
        shuffling: The parameters of the computation.
        by: "day", "week" or "month" to combine windows, or ""; see periods.group_windows().
    """
    selected = facts.selected(selection)
    windows = sorted({*(selection.windows or selected.windows)} & {*selected.windows})
    selections = {
        name: replace(selection, windows=members)
        for name, members in group_windows(windows, by, selected.calendar).items()
    }
    return {
        name: of_selections(facts, part, shuffling=shuffling)
        for name, part in selections.items()
        if (shown := facts.selected(part)).counts and not shown.refusal
    }


def of_windows(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> TwoEpsilons:
    """Return both ε values of a selection for someone who sees each of its windows.

    Windows in which the group's value is suppressed count as well, because the differences of overlapping
    periods reveal them.

    Raises:
        EstimateError: If the value is suppressed in all windows together.
    """
    facts.selected(selection).check_shown()
    return _combined_epsilons(facts, _flatten(_parts_by_window(facts, selection)), shuffling)


@dataclass(frozen=True)
class Overview:
    """Both ε values of a selection: for its newest window, for the sum of all, and for all ended ones."""

    newest_window: str
    newest: TwoEpsilons
    added_up: TwoEpsilons
    all_windows: TwoEpsilons


def overview(facts: Facts, selection: Selection, shuffling: Shuffling | None = None) -> Overview:
    """Return the overview of a selection that has reports."""
    by_window = _parts_by_window(facts, selection)
    newest = max(by_window)
    ended = {w: parts for w, parts in by_window.items() if has_ended(w, facts.at)}
    groups = (by_window[newest], _summed_parts(facts, selection), _flatten(ended or by_window))
    return Overview(newest, *(_combined_epsilons(facts, parts, shuffling) for parts in groups))


def of_messages(facts: Facts, fleet: str, name: str) -> TwoEpsilons | None:
    """Return both ε values for someone to whom messages about an experiment are sent, or None without any.

    Messages are about sums of ended windows, and the difference of two sums reveals a window. So they count
    like seeing each ended window, of all devices and of each value of the open group, whichever were sent.
    """
    whole = Selection(name, fleet)
    selections = [whole, *(replace(whole, group=value) for value in facts.selected(whole).group_values)]
    windows = [by for selection in selections for by in _parts_by_window(facts, selection).items()]
    parts = [part for window, parts in windows if has_ended(window, facts.at) for part in parts]
    return _combined_epsilons(facts, parts, None) if parts else None


def add_epsilons(
    facts: Facts, trends: Answers, selection: Selection, shuffling: Shuffling | None = None, by: str = ""
) -> Answers:
    """Add each window's histogram ε to trends, in the rows whose window has ended.

    Args:
        facts: The contents of the store.
        trends: The trends.
        selection: The selection that the trends cover.
        shuffling: The parameters of the computation.
        by: See of_each_window().
    """
    epsilons = {w: both.histogram for w, both in of_each_window(facts, selection, shuffling, by).items()}
    note = f"\n{RUNNING}" if None in epsilons.values() else ""

    def with_epsilons(trend: Answer) -> Answer:
        rows = [
            replace(r, histogram_epsilon=epsilons[r.window]) for r in trend.rows if isinstance(r, TrendRow)
        ]
        return replace(trend, rows=tuple(rows), note=f"{trend.note}{note}".strip())

    return Answers(map(with_epsilons, trends))


_Part = tuple[Version, str, tuple[str, ...], int]
"""A version's histogram: the value of its group ("" for all), its windows and its number of reports."""


def _summed_parts(facts: Facts, selection: Selection) -> list[_Part]:
    selected = facts.selected(selection)
    counts = selected.counts
    versions = [(v, tuple(w for w, n in counts.items() if v.id in n)) for v in selected.versions]
    group = selection.group
    return [(v, group, windows, sum(counts[w][v.id] for w in windows)) for v, windows in versions if windows]


def _parts_by_window(facts: Facts, selection: Selection) -> dict[str, list[_Part]]:
    """Return each window's histograms, oldest first."""
    selected = facts.selected(selection)
    counts = selected.counts
    return {
        w: [(v, selection.group, (w,), counts[w][v.id]) for v in selected.versions if v.id in counts[w]]
        for w in sorted(counts)
    }


def _flatten(by_window: Mapping[str, list[_Part]]) -> list[_Part]:
    return [part for parts in by_window.values() for part in parts]


def _missing_reason(windows: set[str], at: datetime.datetime) -> str:
    """Return why these windows' histograms have no ε, or ""."""
    running = [window for window in windows if not has_ended(window, at)]
    if not running:
        return ""
    reason = 'window "all" never ends' if "all" in running else f"window {max(running)} has not ended"
    return f"only the ε of a report applies: {reason}, and {LEARNS_SINGLE}"


def _max_overlap(parts: Sequence[_Part], fleet: str) -> int:
    """Return the maximum number of a fleet's histograms that count the same report."""
    times = Counter(
        (v.id, window, group) for v, group, windows, _ in parts if v.fleet == fleet for window in windows
    )
    # A report is counted once in its group's value, and once with those of all values.
    return max((n + times[v, w, ""] * bool(group) for (v, w, group), n in times.items()), default=1)


def _combined_epsilons(facts: Facts, parts: Sequence[_Part], shuffling: Shuffling | None) -> TwoEpsilons:
    none_holds = _missing_reason({w for _, _, windows, _ in parts for w in windows}, facts.at)
    # A board belongs to one fleet, so its reports add up only over that fleet's histograms.
    epsilons: list[TwoEpsilons] = []
    for fleet in sorted({v.fleet for v, *_ in parts}):
        fleet_parts = [(v, n) for v, _, _, n in parts if v.fleet == fleet]
        board_reports = max(facts.max_reports_per_board(v.fleet)[v.id] for v, _ in fleet_parts)
        board_reports *= _max_overlap(parts, fleet)
        epsilons.append(
            of_histograms([(v.experiment, n) for v, n in fleet_parts], board_reports, shuffling, none_holds)
        )
    # Use both maxima over the fleets, because the fleet with the largest ε of a report may not have the
    # largest ε of a histogram.
    largest = max(epsilons, key=lambda epsilon: epsilon.histogram or 0.0)
    return replace(largest, report=max(e.report for e in epsilons), own=max(e.own for e in epsilons))
