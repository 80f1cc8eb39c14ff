"""Findings: one sentence for each question of an experiment, the same wherever it is shown.

The value covers the period that the reader chose, or the newest completed days. Whether it changed is
determined by a scan of all completed days (estimate/detector.py), so the claim does not depend on the period
or on how many times anyone looks: of 100 experiments without a change, at most 5 are reported to have changed
within a year, counting all their questions.
"""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...device.ldp_client import Experiment
from .. import special
from ..errors import HushmoteError
from ..estimate.detector import false_alarm_chance
from ..estimate.estimate import Estimates
from ..estimate.leaders import leaders
from ..estimate.reports_needed import (
    round_target,
)
from ..estimate.statistic import EstimateError, TooFewReports
from ..experiments.answerable import answerable_questions
from ..experiments.asks import Ask, asks_of
from ..experiments.units import bin_edges, index_names
from ..hints import command
from ..mechanisms import MechanismError, mechanism_of
from ..mechanisms.common_values import same_values
from ..mechanisms.views.factors import parts_of
from ..plain_text import visible
from ..wire.experiments import value_count
from ..words import answers as words
from ..words import findings as sentences
from ..words.numbers import ENGLISH, Numbers, counted, is_too_wide
from .daily import Series, series_of
from .fleet_estimate import FleetEstimate
from .last_change import (
    NOT_SCANNED,
    FindingChange,
    ScanOutcome,
    TrackedAnswer,
    conditional_weights,
    scan_days,
    subject_of,
    tracked_answer,
)
from .periods import (
    Period,
    completed_windows,
    day_of,
    default_windows,
    windows_of_completed_days,
)
from .query import Facts, Selected, Selection
from .report_rate import last_window_if_silent, reports_a_day, reports_needed_for
from .result_cache import version_key
from .rows import APPROXIMATE_MARK, CONFIDENCE, CandidateRow, DifferenceRow, Quantity, Row, TrendRow

_MAX_POINTS = 30  # points of a series
_MAX_VALUES = 1 << 16  # values of an experiment whose days are scanned

Direction = Literal["up", "down", "none", ""]


@dataclass(frozen=True)
class Finding:
    """The answer to one of an experiment's questions.

    Attributes:
        question: The question as written in the experiment's file: "24:", "median" or a label.
        title: The question in words.
        sentence: The answer, whether it changed, and how certain that is.
        value: The value with its interval, or None if there are too few reports or the answer is not a single
            number.
        quantity: "share" (0 to 1) or "reading" (in the unit).
        period: The dates that the value covers, or None if the windows have no dates.
        change: The last change, if it is recent.
        since: The day since which nothing has changed, or None if that is not yet known.
        detectable: The smallest change since then that would have been detected in 4 of 5 cases.
        series: The value in each window, or in each group of a few windows, oldest first.
        is_difference: Whether the value is the difference between two cases of a pair.
        approximate: Whether the mechanism has an error that more reports do not reduce; the interval includes
            it.
        error: Why the question cannot be answered, or "" if more reports would suffice.
    """

    question: str
    title: str
    sentence: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    quantity: Quantity = "share"
    unit: str = ""
    period: Period | None = None
    change: FindingChange | None = None
    since: datetime.date | None = None
    detectable: float | None = None
    series: tuple[TrendRow, ...] = ()
    is_difference: bool = False
    approximate: bool = False
    error: str = ""

    @property
    def enough(self) -> bool:
        """Return whether there are enough reports for an answer."""
        return self.value is not None

    @property
    def direction(self) -> Direction:
        """The direction of the change: up, down or none, or "" if it is not yet known."""
        if self.change is not None:
            return "up" if self.change.size > 0 else "down"
        return "none" if self.since is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that can be serialized as JSON, with days as 2026-11-21."""
        period, change = self.period, self.change
        return {
            "question": self.question,
            "title": self.title,
            "sentence": self.sentence,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "quantity": self.quantity,
            "unit": self.unit,
            "from": None if period is None else period.first_day.isoformat(),
            "to": None if period is None else period.last_day.isoformat(),
            "direction": self.direction,
            "change": change
            and {
                "since": change.since.isoformat(),
                "settled": change.settled.isoformat(),
                "before": change.before,
                "after": change.after,
                "size": change.size,
                "low": change.low,
                "high": change.high,
                "chance": change.chance,
            },
            "unchanged_since": None if self.since is None else self.since.isoformat(),
            "detectable": self.detectable,
            "approximate": self.approximate,
        }


@dataclass(frozen=True)
class Findings:
    """The answers to all of an experiment's questions, in the order of its file.

    Attributes:
        windows: The windows that the values are based on.
        enough: Whether any question has an answer.
        lines: One line for each answer, then one for each question that has none; if there are no answers, a
            line says how many reports one needs. If no reports have arrived for some time, another line says
            when the last one did.
    """

    fleet: str
    experiment: str
    purpose: str
    reports: int
    windows: tuple[str, ...]
    findings: tuple[Finding, ...]
    enough: bool
    lines: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The lines as one text."""
        return " ".join(self.lines)

    @property
    def histograms(self) -> tuple[tuple[str, ...], ...]:
        """The other groups of windows about whose summed histograms the sentence reveals something."""
        changes = [finding.change for finding in self.findings if finding.change]
        return tuple(dict.fromkeys(windows for change in changes for windows in change.windows if windows))

    def __str__(self) -> str:
        return self.sentence


def find(
    facts: Facts,
    selection: Selection,
    write: Numbers = ENGLISH,
    *,
    unit: str | None = None,
    series: bool = False,
    period: Period | None = None,
    comparisons: int | None = None,
    left_out: str | None = None,
) -> Findings:
    """Answer an experiment's questions.

    Args:
        facts: The contents of the store.
        selection: The reports; if it names no windows, those of the newest completed days
            (periods.default_windows()).
        write: The number format.
        unit: The unit of the readings, or None for the unit in the store.
        series: Whether to include each window's value, which requires one estimate per window.
        period: The requested period, which may begin and end with windows that have no reports.
        comparisons: The number of comparisons that share the false-alarm allowance; None for those of this
            experiment's questions.
        left_out: A sentence on the reports that the whole answer leaves out; None for that of the selection.

    Raises:
        UsageError: If the fleet, name or version does not exist.
        EstimateError: If a window has no reports.
    """
    selected = facts.selected(selection)
    newest = selected.newest
    selected_windows = _with_windows(selected, selection.windows)
    windows = selected_windows.selection.windows
    name, purpose = selection.experiment, visible(newest.purpose)
    if refusal := selected_windows.refusal:
        lines = (words.capitalize(f"{refusal}."),)
        return Findings(selection.fleet, name, purpose, 0, windows, (), False, lines)
    reports = selected_windows.answering.reports if windows else 0
    questions = _file_questions(selected_windows)
    unit = selected.unit if unit is None else unit
    asker = _Asker(selected_windows, selected, unit, write, questions, series, period, comparisons)
    findings = tuple(asker.finding(ask) for ask in questions)
    enough = any(finding.enough for finding in findings)
    parts = [finding.sentence for finding in findings if finding.enough or not enough]
    if enough:
        parts += [sentences.unanswered(f.title, visible(f.error)) for f in findings if not f.enough]
    if last := last_window_if_silent(tuple(selected.all_counts), facts.at, selected.calendar):
        parts.append(sentences.last_report(last, selected.now, write))
    if any(finding.enough and finding.quantity == "share" for finding in findings):
        parts.append(selected_windows.population_note(write))
    left_out = selected_windows.left_out(write) if left_out is None else left_out
    parts += [left_out, selected_windows.days_note] if windows else []
    lines = tuple(dict.fromkeys(filter(None, parts)))
    return Findings(selection.fleet, name, purpose, reports, windows, findings, enough, lines)


def comparisons_of(experiment: Experiment, questions: Iterable[Ask]) -> int:
    """Return the number of series and differences that an experiment's questions compare, at least 1."""
    total = 0
    for ask in questions:
        if ask.kind == "most common":
            total += value_count(experiment)
        elif ask.kind == "pair":
            cases = 2 if len(ask.given) == 2 else len(_cases(experiment, ask))
            total += cases + math.comb(cases, 2)
        else:
            total += 1
    return max(total, 1)


def change_sentences(
    facts: Facts, selection: Selection, asks: Mapping[str, Ask], unit: str | None = None
) -> dict[str, str]:
    """For each question, return a sentence on whether its answer changed over all completed days.

    Args:
        facts: The contents of the store.
        selection: The fleet, experiment and version; its windows are ignored.
        asks: The questions by name; they share one false-alarm allowance with the questions in the file.
        unit: The unit of the readings, or None for the unit in the store.

    Returns:
        The sentences by name, omitting questions without a known result.
    """
    asker = _asker(facts, replace(selection, windows=()), asks.values(), unit, None)
    sentences_of = {name: asker.change_sentence(ask) for name, ask in asks.items()}
    return {name: text for name, text in sentences_of.items() if text}


def answer_sentences(
    facts: Facts, selection: Selection, asks: Iterable[Ask], unit: str | None, period: Period | None
) -> list[str]:
    """Return a sentence for each question: its value and whether it changed; see find() for arguments."""
    asks = tuple(asks)
    asker = _asker(facts, selection, asks, unit, period)
    return [asker.finding(ask).sentence for ask in asks]


def _asker(
    facts: Facts, selection: Selection, asks: Iterable[Ask], unit: str | None, period: Period | None
) -> "_Asker":
    """Return an _Asker for these questions, which share one false-alarm allowance with those in the file."""
    selected = facts.selected(replace(selection, windows=()))
    unit = selected.unit if unit is None else unit
    selected_windows = _with_windows(selected, selection.windows)
    questions = {subject_of(ask): ask for ask in [*_file_questions(selected_windows), *asks]}
    return _Asker(selected_windows, selected, unit, ENGLISH, tuple(questions.values()), False, period)


def _file_questions(selected: Selected) -> tuple[Ask, ...]:
    """Return the questions in the newest version's file; the default is one that all its versions answer."""
    newest = selected.newest
    return asks_of(newest.experiment, newest.asked.splitlines(), selected.answerable)


def _with_windows(selected: Selected, windows: Sequence[str]) -> Selected:
    """Return the same selection with these windows, or if there are none, those shown by default."""
    windows = tuple(sorted(windows)) or default_windows(
        selected.windows, selected.facts.at, selected.calendar
    )
    return replace(selected, selection=replace(selected.selection, windows=windows))


@dataclass(frozen=True)
class _Asker:
    """Answers questions about one selection of windows.

    Attributes:
        chosen: The windows whose values are shown.
        whole: All windows, which are scanned for changes.
    """

    chosen: Selected
    whole: Selected
    unit: str
    write: Numbers
    questions: Sequence[Ask]
    wants_series: bool
    requested_period: Period | None
    allowed_comparisons: int | None = None

    @property
    def _facts(self) -> Facts:
        return self.whole.facts

    @property
    def _now(self) -> datetime.datetime:
        return self.whole.now

    @cached_property
    def _period(self) -> Period | None:
        return self.chosen.period(self.requested_period)

    @cached_property
    def _scope(self) -> str:
        """The boards with the selected value of the group, and the dates."""
        dates = sentences.dates(self._period, self._now, self.write)
        return ", ".join(filter(None, [self.whole.boards, dates]))

    @cached_property
    def _scanned_versions(self) -> Selected:
        """The versions that count the same values as the newest one, so their days form a single series."""
        answering = replace(self.whole, versions=self.chosen.answering.versions)
        newest = answering.newest.experiment
        same = tuple(v for v in answering.versions if _is_comparable(v.experiment, newest))
        return replace(answering, versions=same)

    @cached_property
    def _approximate(self) -> bool:
        return any(mechanism_of(v.experiment).approximate for v in self.whole.versions)

    @cached_property
    def _days(self) -> Series | None:
        return series_of(self._scanned_versions)

    @cached_property
    def _comparisons(self) -> int:
        """The number of series and differences that share the false-alarm allowance."""
        own = comparisons_of(self.whole.newest.experiment, self.questions)
        return own if self.allowed_comparisons is None else self.allowed_comparisons

    def finding(self, ask: Ask) -> Finding:
        """Return the finding for one question; if it cannot be answered, its sentence says why."""
        none = Finding(ask.text, ask.text, "", period=self._period)
        windows = self.chosen.selection.windows
        try:
            estimate = self._estimate(windows)
        except (EstimateError, MechanismError) as e:
            reports = self.chosen.answering.reports if windows else 0
            erased = sum(v.erased for v in self.whole.versions)
            if reports >= 2 or not isinstance(e, TooFewReports):
                return replace(none, sentence=words.capitalize(f"{visible(str(e))}."))
            if erased and not reports:
                return replace(none, sentence=sentences.nothing_left(erased, self.write))
            return replace(none, sentence=words.too_few(reports, self.write))
        try:
            if ask.kind == "pair":
                return self._pair_finding(ask, estimate)
            return (
                self._label_finding(ask, estimate)
                if ask.kind == "most common"
                else self._value_finding(ask, estimate)
            )
        except HushmoteError as e:
            error = "" if isinstance(e, TooFewReports) else str(e)
            return replace(none, sentence=words.capitalize(f"{visible(str(e))}."), error=error)

    def _check_shown(self, windows: Sequence[str]) -> None:
        """Raise EstimateError if the group's value is suppressed from the first to the last window."""
        selected = self._scanned_versions
        period = tuple(w for w in selected.windows if windows and windows[0] <= w <= windows[-1])
        replace(selected, selection=replace(selected.selection, windows=period)).check_shown()

    def _estimate(self, windows: Sequence[str]) -> FleetEstimate:
        selected = replace(self.whole, selection=replace(self.whole.selection, windows=tuple(windows)))
        sources = selected.answering.sources
        return FleetEstimate(selected.estimate(), "", self.unit, CONFIDENCE, None, sources)

    def _pooled(self, windows: Sequence[str]) -> Estimates:
        versions = self._scanned_versions
        return replace(versions, selection=replace(versions.selection, windows=tuple(windows))).estimate()

    def _value_finding(self, ask: Ask, estimate: FleetEstimate) -> Finding:
        row, quantity = _row(ask, estimate)
        is_text = ask.kind in ("texts", "named")
        title = f"Most common is {visible(row.name)}" if is_text else self._title(row, estimate)
        unit = None if quantity == "share" else self.unit
        none = Finding(ask.text, title, "", quantity=quantity, unit=unit or "", period=self._period)
        scale = self._value_extent(unit)
        if is_too_wide(row.half_width, scale):
            return replace(none, sentence=self._too_few(estimate, ask, title, row.half_width, scale, unit))
        if ask.kind == "named":
            if isinstance(row, CandidateRow) and (row.p_adjusted or 0.0) >= 1 - CONFIDENCE:
                text = f"None of the {len(ask.texts)} listed texts stands out yet."
                return replace(none, title="Listed texts", sentence=text)
            title = f"Most common of the {len(ask.texts)} listed texts is {visible(row.name)}"
        head = f"{title}: {sentences.amount(row, unit, self.write, self.chosen.population)}"
        answer = tracked_answer(ask)
        none = replace(none, sentence=head, approximate=estimate.approximate)
        return self._complete_finding(none, row, unit, answer, lambda estimate: _row(ask, estimate)[0])

    def _label_finding(self, ask: Ask, estimate: FleetEstimate) -> Finding:
        """Return a finding on the most common label, or on the labels that may be the most common."""
        likely_leaders = leaders(estimate.estimates)
        index = likely_leaders.indices[0] if likely_leaders.indices else int(np.argmax(estimate.frequencies))
        names = [visible(name) for name in index_names(estimate.experiment)]
        share = replace(ask, text=index_names(estimate.experiment)[index], kind="share")
        row, _ = _row(share, estimate)
        none = Finding(ask.text, "Most common", "", period=self._period)
        if is_too_wide(row.half_width):
            return replace(
                none, sentence=self._too_few(estimate, share, "Most common", row.half_width, 1.0, None)
            )
        leader_names = [names[i] for i in likely_leaders.indices]
        text = sentences.most_common(
            leader_names,
            likely_leaders.chance,
            sentences.amount(row, None, self.write, self.chosen.population),
        )
        none = replace(
            none, title=words.capitalize(names[index]), sentence=text, approximate=estimate.approximate
        )
        answer = tracked_answer(share) if likely_leaders.has_single_leader else None
        return self._complete_finding(none, row, None, answer, lambda estimate: _row(share, estimate)[0])

    def _complete_finding(
        self,
        head: Finding,
        row: Row,
        unit: str | None,
        answer: TrackedAnswer | None,
        again: Callable[[FleetEstimate], Row],
    ) -> Finding:
        """Add the value, dates and changes to a finding whose sentence already states the value."""
        when = (APPROXIMATE_MARK if head.approximate else "") + (f", {self._scope}" if self._scope else "")
        finding = replace(head, value=row.value, low=row.low, high=row.high)
        finding = replace(finding, sentence=sentences.end_sentence(f"{head.sentence}{when}"))
        finding = self._with_change(finding, row, unit, answer)
        return (
            replace(finding, series=self._series(again, self._value_extent(unit)))
            if self.wants_series
            else finding
        )

    def _with_change(
        self, finding: Finding, row: Row, unit: str | None, answer: TrackedAnswer | None
    ) -> Finding:
        """Add to a finding whether its answer changed, if that is known."""
        outcome = self._scan(answer)
        if (change := outcome.change) is not None:
            text = self._change_text(change, row, unit)
            line = sentences.with_certainty(text, sentences.certainty(change.chance, self.write))
            sentence = f"{finding.sentence} {line}"
            return replace(finding, sentence=sentence, change=replace(change, text=text))
        since, detectable = outcome.since, outcome.detectable
        if since is None or detectable is None or is_too_wide(detectable, self._value_extent(unit)):
            return finding
        size = sentences.size(detectable, unit, self.write)
        text = sentences.no_change(sentences.day(since, self._now, self.write), size)
        return replace(finding, sentence=f"{finding.sentence} {text}", since=since, detectable=detectable)

    def _change_text(self, change: FindingChange, row: Row, unit: str | None) -> str:
        """Describe a change, including the value after it if the period also includes days before it."""
        at, write = self._now, self.write
        day = sentences.day(change.since, at, write)
        size = sentences.size(change.size, unit, write)
        before, after = (sentences.level(x, row, unit, write) for x in (change.before, change.after))
        if before == after or (change.after - change.before) * change.size <= 0:
            return sentences.movement_by_size(change.size, size, day)
        starts_after_change = self._period is not None and self._period.first_day >= change.settled
        later = "" if starts_after_change else f" to {after} since {sentences.day(change.settled, at, write)}"
        if change.earlier is None:
            return sentences.movement(change.size, f"{before} before {day}{later}")
        length = datetime.timedelta(days=1)
        dates = write.days(change.earlier, max(change.since - length, change.earlier), False)
        return sentences.movement(change.size, f"{before} ({dates}){later}")

    def change_sentence(self, ask: Ask) -> str:
        """Return a sentence on whether the answer changed, or "" if that is not known."""
        try:
            row, quantity = _row(ask, self._estimate(self.chosen.selection.windows))
        except HushmoteError:
            return ""
        unit = None if quantity == "share" else self.unit
        empty = Finding(ask.text, ask.text, "", period=self._period)
        return self._with_change(empty, row, unit, tracked_answer(ask)).sentence.strip()

    def _scan(self, answer: TrackedAnswer | None) -> ScanOutcome:
        """Scan the completed days, or return the cached scan if no day has ended since."""
        if self._approximate:  # the error of a value depends on the shares of the values that share its cells
            return NOT_SCANNED
        if answer is None or max(v.experiment.domain for v in self.whole.versions) > _MAX_VALUES:
            return NOT_SCANNED
        facts, counts = self._facts, self._scanned_versions.all_counts
        calendar = self.whole.calendar
        windows = tuple(
            (w, *counts[w].items()) for w in windows_of_completed_days(tuple(counts), facts.at, calendar)
        )
        versions = tuple(map(version_key, self._scanned_versions.versions))
        interrupted_days = facts.store.interrupted_days()
        group = self._scanned_versions.selection.group
        key = (
            facts.store,
            versions,
            calendar,
            group,
            windows,
            interrupted_days,
            answer.subject,
            self._comparisons,
        )
        try:
            outcome = facts.cache.result(
                key, lambda: scan_days(self._days, answer, self._pooled, self._comparisons)
            )
            for windows in outcome.change.windows if outcome.change else ():
                self._check_shown(windows)
        except HushmoteError:  # too few reports on some days: show the value without a change
            return NOT_SCANNED
        return outcome

    def _title(self, row: Row, estimate: FleetEstimate) -> str:
        if row.lower is not None and row.upper is not None:
            edges = bin_edges(estimate.experiment)
            ends = float(edges[0]), float(edges[-1])
            return words.capitalize(words.bin_range(row.lower, row.upper, ends, self.unit, self.write))
        return words.capitalize(visible(row.name))

    def _too_few(
        self, estimate: FleetEstimate, ask: Ask, title: str, half_width: float, scale: float, unit: str | None
    ) -> str:
        half, reports = round_target(scale), estimate.reports
        needed = reports_needed_for(estimate, ask, half / scale, half_width / scale)
        size, noun = (100 * half, "points") if unit is None else (half, unit)
        target = f"±{words.reading(size, noun, self.write)}"
        at, available, windows = self._now, self.whole.windows, self.chosen.selection.windows
        period, days = self._period, None
        if period is None or not {*completed_windows(available, at)} - {*windows}:  # the period still grows
            windows, reports, when = available, self.whole.reports, "so far"
        else:
            when = f"in {counted(period.units, 'day' if period.is_days else 'hour', self.write)}"
            days = period.units if period.is_days else 1
        when += f" from {self.whole.boards}" if self.whole.boards else ""
        a_day = (
            0.0
            if last_window_if_silent(available, at, self.whole.calendar)
            else reports_a_day(windows, reports, at)
        )
        text = sentences.too_few(reports, needed, target, when, a_day, days, at, self.write)
        return f"{title}: {text}" if len(self.questions) > 1 else text

    def _value_extent(self, unit: str | None) -> float:
        """Return the distance between the lowest and highest possible answers; `unit` is None for a share."""
        return 1.0 if unit is None else float(np.ptp(bin_edges(self.whole.newest.experiment)))

    def _series(self, row_of: Callable[[FleetEstimate], Row], extent: float) -> tuple[TrendRow, ...]:
        """Return the answer for each completed window, or for groups of windows if there are many.

        Answers whose intervals are too wide for `extent` (see is_too_wide()) are omitted.
        """
        windows, rows = completed_windows(self.whole.windows, self._facts.at), list[TrendRow]()
        group_size = -(-len(windows) // _MAX_POINTS)
        for first in range(0, len(windows), group_size or 1):
            try:
                row = row_of(estimate := self._estimate(windows[first : first + group_size]))
            except HushmoteError:  # too few reports in the window, or an older version that cannot answer
                continue
            if is_too_wide(row.half_width, extent):
                continue
            ends = {"window": windows[first], "reports": estimate.reports}
            rows.append(TrendRow(row.name, row.value, row.low, row.high, **ends))
        return tuple(rows)

    def _pair_finding(self, ask: Ask, estimate: FleetEstimate) -> Finding:
        """Return a finding that compares two cases: if there are more, those with the extreme values."""
        cases = ask.given
        none = Finding(ask.text, ask.text, "", period=self._period)
        if len(cases) != 2:
            table = estimate.pairs.conditional(ask.of, "".join(cases))
            clear = sorted(filter(table.tells, table.rows), key=lambda row: row.value)
            if len(clear) < 2:
                halves = sorted(row.half_width for row in table.rows)
                second = halves[1] if table.quantity == "share" and len(halves) > 1 else math.inf
                return replace(none, sentence=self._too_few(estimate, ask, ask.text, second, 1.0, None))
            cases = (clear[-1].name, clear[0].name)
        case_table, difference_table = estimate.pairs.difference(ask.of, *cases)
        (row,) = difference_table.rows
        assert isinstance(row, DifferenceRow)
        unit = None if difference_table.quantity == "share" else difference_table.unit
        title = case_table.title.removesuffix(" given")
        days = len({day_of(window, self.whole.calendar) for window in self.whole.all_counts})
        z = abs(float(special.ndtri(max(row.p, 1e-300) / 2)))
        chance = false_alarm_chance(z, days, self._comparisons)
        differs = chance < 1 - CONFIDENCE
        named_cases = [(case.name, case) for case in case_table.rows]
        text = sentences.pair(named_cases, title, unit, self._scope, chance if differs else 1.0, self.write)
        ends = {"value": row.value, "low": row.low, "high": row.high}
        name, quantity = f"{title}: {row.name}", difference_table.quantity
        finding = replace(none, title=name, sentence=text, quantity=quantity, unit=unit or "", **ends)
        finding = replace(finding, is_difference=True)
        finding = self._with_case_change(finding, ask, cases, case_table.rows, unit)
        if not self.wants_series:
            return finding
        extent = 1.0 if unit is None else math.inf
        series = self._series(lambda estimate: estimate.pairs.difference(ask.of, *cases)[1].rows[0], extent)
        return replace(finding, series=series)

    def _with_case_change(
        self, finding: Finding, ask: Ask, cases: Sequence[str], rows: Sequence[Row], unit: str | None
    ) -> Finding:
        """Add the most recent change in any of its cases to a pair's finding."""
        answers = [
            TrackedAnswer(("given", ask.of, case), conditional_weights(ask.of, case)) for case in cases
        ]
        scans = [self._scan(answer) for answer in answers]
        changed = [(scan.change.since, i) for i, scan in enumerate(scans) if scan.change is not None]
        if changed:
            _, last = max(changed)
            changed_finding = self._with_change(
                replace(finding, sentence=""), rows[last], unit, answers[last]
            )
            text = changed_finding.sentence.strip()
            sentence = f"{finding.sentence} With {cases[last]}: {text[:1].lower()}{text[1:]}"
            assert changed_finding.change is not None  # its scan has a change
            change_text = changed_finding.change.text
            in_words = f"With {cases[last]}: {change_text[:1].lower()}{change_text[1:]}"
            return replace(finding, sentence=sentence, change=replace(changed_finding.change, text=in_words))
        days = [scan.since for scan in scans if scan.since is not None]
        if len(days) < len(scans):
            return finding
        text = sentences.no_change(sentences.day(max(days), self._now, self.write), "")
        return replace(finding, sentence=f"{finding.sentence} {text}", since=max(days))


def _is_comparable(version: Experiment, newest: Experiment) -> bool:
    """Return whether a version counts the same indices as the newest one and answers the same questions."""
    return (
        same_values(version, newest)
        and (version.domain, version.missing) == (newest.domain, newest.missing)
        and answerable_questions(version) >= answerable_questions(newest)
    )


def _cases(experiment: Any, ask: Ask) -> Sequence[object]:
    condition = "".join(ask.given)
    part = next((part for part in parts_of(experiment) if part.name == condition), None)
    return range(part.domain if part is not None else 2)


def _row(ask: Ask, estimate: FleetEstimate) -> tuple[Row, Quantity]:
    """Return the row that answers a question; raise HushmoteError if there is none."""
    match ask.kind:
        case "mean":
            return estimate.mean().rows[0], "reading"
        case "quantile":
            return estimate.quantile(ask.level).rows[0], "reading"
        case "share":
            return estimate.share(ask.text).rows[0], "share"
        case "texts" if texts := estimate.discover().rows:
            return texts[0], "share"
        case "named" if ask.texts:
            return estimate.candidates(ask.texts).rows[0], "share"
        case "texts":
            raise TooFewReports("no text stands out yet")
        case _:
            raise EstimateError(
                "name the texts to look for, either as candidates in the experiment's file or with "
                + command(
                    f"hushmote estimate {estimate.experiment.name} --candidates FILE",
                    "candidates",
                    page='the field "Texts to look for" in the experiment\'s view',
                )
            )
