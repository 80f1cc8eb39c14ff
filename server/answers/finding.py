"""Findings: one sentence for each question of an experiment, the same wherever it is shown.

The value is of the period that the reader chose, or of the newest completed days. Whether it changed comes
from a scan of all completed days (estimate/detector.py), so the claim does not depend on the period or on how
often anyone looks: of 100 experiments without a change, at most 5 are ever reported to have changed within a
year, over all their questions together.
"""

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ...device.ldp_client import Experiment
from .. import special
from ..arrays import Floats
from ..errors import HushmoteError
from ..estimate.daily import LinearDays, Weights
from ..estimate.detector import Scan, false_alarm_chance
from ..estimate.estimate import Estimates
from ..estimate.leaders import leaders
from ..estimate.reports_needed import (
    MOST,
    Answer,
    MeanIndex,
    QuantileLevel,
    RangeShare,
    likely_population,
    reports_needed,
    rounded_target,
)
from ..estimate.statistic import EstimateError
from ..experiments.answerable import answers_of
from ..experiments.asks import Ask, asks_of
from ..experiments.units import bin_edges, bin_middles, index_names, parse_range
from ..hints import command
from ..mechanisms import mechanism_of
from ..mechanisms.views.factors import parts_of
from ..plain_text import visible
from ..wire.experiments import value_count
from ..words import answers as words
from ..words import findings as sentences
from ..words.numbers import ENGLISH, Numbers, counted, is_too_wide
from . import moments, pair_tables
from .daily import Series, below_edge, scan_quantile, series_of
from .fleet_estimate import FleetEstimate
from .periods import Period, completed, day_of, of_whole_days, period_of, start_of, usual
from .query import Facts, Selected, Selection, version_key
from .rows import APPROXIMATE_MARK, CONFIDENCE, CandidateRow, DifferenceRow, Quantity, Row, TrendRow
from .windows import end_of

_MOST_POINTS = 30  # points of a series
_FEWEST_KNOWN = 1_000  # reports above which the population is estimated from them
_RECENT_DAYS = 28  # days for which a change is news
_MOST_VALUES = 1 << 16  # values of an experiment whose days are scanned
_SILENT_WINDOWS = 2  # windows without a report after which the finding gives the date of the last one

_SAME_VALUES = ("type", "domain", "low", "high", "labels", "missing")

Direction = Literal["up", "down", "none", ""]


@dataclass(frozen=True)
class FindingChange:
    """A change of the answer.

    Attributes:
        since: The earliest day on which the change may have happened; all days before it are before the
            change.
        settled: The latest such day; all days from it on are after the change.
        before: The value between the previous change and this one.
        after: The value after this change.
        size: The size of the change, with its interval `low` to `high`.
        chance: The probability that a year of looks at an unchanging fleet shows a change as clear as this
            one.
        earlier: The day of the previous change, or None.
        text: The change in words, without its certainty: "Up from 6% before 8 Nov".
        windows: The windows that `before` rests on, and those that `after` rests on.
    """

    since: datetime.date
    settled: datetime.date
    before: float
    after: float
    size: float
    low: float
    high: float
    chance: float
    earlier: datetime.date | None = None
    text: str = ""
    windows: tuple[tuple[str, ...], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Finding:
    """One question of an experiment, answered.

    Attributes:
        question: The question as in the experiment's file: "24:", "median", a label.
        title: The same in words.
        sentence: The answer, whether it changed, and how certain that is.
        value: The value with its interval, or None if there are too few reports or the answer is not one
            number.
        quantity: "share" (0 to 1) or "reading" (in the unit).
        period: The dates of the value, or None if the store does not keep any.
        change: The last change, if it is recent.
        since: The day since which nothing has changed, or None if that is not known yet.
        detectable: The smallest change since then that would have been reported in 4 of 5 cases.
        series: The value in each window, or in each group of a few windows, oldest first.
        is_difference: Whether the value is a difference between two cases of a pair.
        approximate: Whether the mechanism has an error that more reports do not remove; the interval includes
            it.
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

    @property
    def enough(self) -> bool:
        """Return whether there are enough reports for an answer."""
        return self.value is not None

    @property
    def direction(self) -> Direction:
        """The direction of the change: up, down or none, or "" if it is not known yet."""
        if self.change is not None:
            return "up" if self.change.size > 0 else "down"
        return "none" if self.since is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, with days as 2026-11-21."""
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
    """The answers to all questions of an experiment, in the order of its file.

    Attributes:
        windows: The windows that the values rest on.
        enough: Whether any question has an answer.
        lines: One line for each answer; if there is none, a line says how many reports an answer takes. If
            the last report came some time ago, a further line says when.
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
        """The sums of windows, besides `windows`, whose histograms the sentence reveals something about."""
        changes = [one.change for one in self.findings if one.change]
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
) -> Findings:
    """Answer the questions of an experiment.

    Args:
        facts: The contents of the store.
        selection: The reports; if it names no windows, those of the newest completed days (periods.usual()).
        write: The way to write numbers.
        unit: The readings' unit, or None for the store's.
        series: Whether to include the value in each window, which takes an estimate for each.
        period: The period that was asked for, which may begin and end without reports.

    Raises:
        UsageError: If the fleet, name or version does not exist.
        EstimateError: If a window has no reports.
    """
    whole = facts.selected(selection)
    newest = whole.newest
    there = tuple(whole.there)
    windows = tuple(sorted(selection.windows)) or usual(there, facts.at)
    chosen = replace(whole, selection=replace(selection, windows=windows))
    reports = chosen.reports if windows else 0
    questions = asks_of(newest.experiment, newest.asked.splitlines())
    asker = _Asker(chosen, whole, whole.unit if unit is None else unit, write, questions, series, period)
    findings = tuple(asker.finding(ask) for ask in questions)
    enough = any(one.enough for one in findings)
    parts = [one.sentence for one in findings if one.enough or not enough]
    if last := _silent_since(there, facts.at):
        parts.append(sentences.last_report(last, facts.at, write))
    name, purpose, lines = selection.experiment, visible(newest.purpose), tuple(dict.fromkeys(parts))
    return Findings(selection.fleet, name, purpose, reports, windows, findings, enough, lines)


def change_sentences(
    facts: Facts, selection: Selection, asks: Mapping[str, Ask], unit: str | None = None
) -> dict[str, str]:
    """Return a sentence for each question on whether its answer changed, over all completed days.

    Args:
        facts: The contents of the store.
        selection: The fleet, experiment and version; its windows are ignored.
        asks: The questions by name; they share one allowance of false alarms with those of the file.
        unit: The readings' unit, or None for the store's.

    Returns:
        The sentences by name, without the questions for which it is not known.
    """
    asker = _asker(facts, replace(selection, windows=()), asks.values(), unit, None)
    sentences_of = {name: asker.change_sentence(ask) for name, ask in asks.items()}
    return {name: text for name, text in sentences_of.items() if text}


def answer_sentences(
    facts: Facts, selection: Selection, asks: Iterable[Ask], unit: str | None, period: Period | None
) -> list[str]:
    """Return several answers, each with its value and whether it changed; arguments as of find()."""
    asks = tuple(asks)
    asker = _asker(facts, selection, asks, unit, period)
    return [asker.finding(ask).sentence for ask in asks]


def _asker(
    facts: Facts, selection: Selection, asks: Iterable[Ask], unit: str | None, period: Period | None
) -> "_Asker":
    """Return what answers these questions, which share one allowance of false alarms with the file's."""
    whole = facts.selected(replace(selection, windows=()))
    windows = tuple(sorted(selection.windows)) or usual(tuple(whole.there), facts.at)
    chosen = replace(whole, selection=replace(selection, windows=windows))
    unit, newest = whole.unit if unit is None else unit, whole.newest
    own = {_subject(ask): ask for ask in asks_of(newest.experiment, newest.asked.splitlines())}
    questions = own | {_subject(ask): ask for ask in asks}
    return _Asker(chosen, whole, unit, ENGLISH, tuple(questions.values()), False, period)


def _subject(ask: Ask) -> tuple[object, ...]:
    """Return what two questions have in common if they ask the same under different names."""
    return ask.kind, ask.level, ask.text if ask.kind in ("share", "pair") else ""


def _silent_since(there: Sequence[str], at: datetime.datetime) -> Period | None:
    """Return the window of the last report if no report has come for _SILENT_WINDOWS windows since."""
    ends = [(end, window) for window in there if (end := end_of(window))]
    if not ends or len(ends) < len(there):  # one of them has no end
        return None
    end, newest = max(ends)
    last = period_of([newest])
    return last if last and at - end >= _SILENT_WINDOWS * (end - last.begin) else None


def reports_a_day(windows: Sequence[str], reports: int, at: datetime.datetime) -> float:
    """Return the mean number of reports per day, or 0 if the windows are not days or hours.

    The running day counts only as far as it has passed.
    """
    starts = [start for window in windows if (start := start_of(window))]
    if not starts:
        return 0.0
    ends = [min(end, at) for window in windows if (end := end_of(window))]
    return reports / max((max(ends) - min(starts)).total_seconds() / 86_400, 1 / 24)


@dataclass(frozen=True)
class _Answer:
    """An answer that is followed over days.

    Attributes:
        subject: What distinguishes it from other answers of the experiment.
        weights: The weights of a share, mean or ratio, or None for a quantile.
        level: The level of a quantile.
    """

    subject: tuple[object, ...]
    weights: Weights | None
    level: float = 0.5


@dataclass(frozen=True)
class _Outcome:
    """The outcome of a scan: a recent change, or the days without one and the smallest detectable change."""

    change: FindingChange | None = None
    since: datetime.date | None = None
    detectable: float | None = None


_NOT_SCANNED = _Outcome()


@dataclass(frozen=True)
class _Asker:
    """Answers questions over one selection of windows.

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

    @property
    def _facts(self) -> Facts:
        return self.whole.facts

    @cached_property
    def _period(self) -> Period | None:
        return period_of(self.chosen.selection.windows, self.requested_period)

    @cached_property
    def _dates(self) -> str:
        return sentences.dates(self._period, self._facts.at, self.write)

    @cached_property
    def _scanned_versions(self) -> Selected:
        """The versions that count the same values as the newest one, so that their days form one series."""
        newest = self.whole.newest.experiment
        same = tuple(v for v in self.whole.versions if _is_comparable(v.experiment, newest))
        return replace(self.whole, versions=same)

    @cached_property
    def _approximate(self) -> bool:
        return any(mechanism_of(v.experiment).approximate for v in self.whole.versions)

    @cached_property
    def _days(self) -> Series | None:
        return series_of(self._scanned_versions)

    @cached_property
    def _comparisons(self) -> int:
        """The number of series and differences that share the allowance of false alarms."""
        total, experiment = 0, self.whole.newest.experiment
        for ask in self.questions:
            if ask.kind == "most common":
                total += value_count(experiment)
            elif ask.kind == "pair":
                cases = 2 if len(ask.given) == 2 else len(_cases(experiment, ask))
                total += cases + math.comb(cases, 2)
            else:
                total += 1
        return max(total, 1)

    def finding(self, ask: Ask) -> Finding:
        """Return the finding of one question; if it cannot be answered, its sentence says why."""
        none = Finding(ask.text, ask.text, "", period=self._period)
        windows = self.chosen.selection.windows
        try:
            of = self._estimate(windows)
        except EstimateError as e:  # fewer than 2 reports, or versions that cannot be pooled
            reports = self.chosen.reports if windows else 0
            erased = sum(v.erased for v in self.whole.versions)
            if reports >= 2:
                return replace(none, sentence=words.capitalize(f"{visible(str(e))}."))
            if erased and not reports:
                return replace(none, sentence=sentences.all_erased(erased, self.write))
            return replace(none, sentence=words.too_few(reports, self.write))
        try:
            if ask.kind == "pair":
                return self._of_pair(ask, of)
            return self._of_label(ask, of) if ask.kind == "most common" else self._of_value(ask, of)
        except HushmoteError as e:
            return replace(none, sentence=words.capitalize(f"{visible(str(e))}."))

    def _estimate(self, windows: Sequence[str]) -> FleetEstimate:
        selected = replace(self.whole, selection=replace(self.whole.selection, windows=tuple(windows)))
        return FleetEstimate(selected.estimate(), "", self.unit, CONFIDENCE, None, selected.sources)

    def _pooled(self, windows: Sequence[str]) -> Estimates:
        versions = self._scanned_versions
        return replace(versions, selection=replace(versions.selection, windows=tuple(windows))).estimate()

    def _of_value(self, ask: Ask, of: FleetEstimate) -> Finding:
        row, quantity = _row(ask, of)
        is_text = ask.kind in ("texts", "named")
        title = f"Most common is {visible(row.name)}" if is_text else self._title(row, of)
        unit = None if quantity == "share" else self.unit
        none = Finding(ask.text, title, "", quantity=quantity, unit=unit or "", period=self._period)
        scale = self._extent(unit)
        if is_too_wide(row.half_width, scale):
            return replace(none, sentence=self._too_few(of, ask, title, row.half_width, scale, unit))
        if ask.kind == "named":
            if isinstance(row, CandidateRow) and (row.p_adjusted or 0.0) >= 1 - CONFIDENCE:
                text = f"None of the {len(ask.texts)} listed texts stands out yet."
                return replace(none, title="Listed texts", sentence=text)
            title = f"Most common of the {len(ask.texts)} listed texts is {visible(row.name)}"
        head = f"{title}: {sentences.amount(row, unit, self.write)}"
        answer = _answer(ask)
        none = replace(none, sentence=head, approximate=of.approximate)
        return self._complete(none, row, unit, answer, lambda one: _row(ask, one)[0])

    def _of_label(self, ask: Ask, of: FleetEstimate) -> Finding:
        """Return a finding about the most common label, or about the labels that may be the most common."""
        first = leaders(of.estimates)
        at = first.indices[0] if first.indices else int(np.argmax(of.frequencies))
        names = [visible(name) for name in index_names(of.experiment)]
        share = replace(ask, text=index_names(of.experiment)[at], kind="share")
        row, _ = _row(share, of)
        none = Finding(ask.text, "Most common", "", period=self._period)
        if is_too_wide(row.half_width):
            return replace(none, sentence=self._too_few(of, share, "Most common", row.half_width, 1.0, None))
        named = [names[i] for i in first.indices]
        text = sentences.leading(named, first.chance, sentences.amount(row, None, self.write))
        none = replace(none, title=words.capitalize(names[at]), sentence=text, approximate=of.approximate)
        answer = _answer(share) if first.one_leads else None
        return self._complete(none, row, None, answer, lambda one: _row(share, one)[0])

    def _complete(
        self,
        head: Finding,
        row: Row,
        unit: str | None,
        answer: _Answer | None,
        again: Callable[[FleetEstimate], Row],
    ) -> Finding:
        """Add value, dates and changes to a finding, whose sentence begins with the value."""
        when = (APPROXIMATE_MARK if head.approximate else "") + (f", {self._dates}" if self._dates else "")
        finding = replace(head, value=row.value, low=row.low, high=row.high)
        finding = replace(finding, sentence=sentences.ended(f"{head.sentence}{when}"))
        finding = self._with_change(finding, row, unit, answer)
        return (
            replace(finding, series=self._series(again, self._extent(unit))) if self.wants_series else finding
        )

    def _with_change(self, finding: Finding, row: Row, unit: str | None, answer: _Answer | None) -> Finding:
        """Add to a finding whether its answer changed, as far as that is known."""
        outcome = self._scan(answer)
        if (change := outcome.change) is not None:
            text = self._change_text(change, row, unit)
            line = sentences.with_certainty(text, sentences.certainty(change.chance, self.write))
            sentence = f"{finding.sentence} {line}"
            return replace(finding, sentence=sentence, change=replace(change, text=text))
        since, detectable = outcome.since, outcome.detectable
        if since is None or detectable is None or is_too_wide(detectable, self._extent(unit)):
            return finding
        size = sentences.size(detectable, unit, self.write)
        text = sentences.unchanged(sentences.day(since, self._facts.at, self.write), size)
        return replace(finding, sentence=f"{finding.sentence} {text}", since=since, detectable=detectable)

    def _change_text(self, change: FindingChange, row: Row, unit: str | None) -> str:
        """Return a change in words, including the value after it if the period also has days before it."""
        at, write = self._facts.at, self.write
        day = sentences.day(change.since, at, write)
        size = sentences.size(change.size, unit, write)
        before, after = (sentences.level(x, row, unit, write) for x in (change.before, change.after))
        if before == after or (change.after - change.before) * change.size <= 0:
            return sentences.moved_by(change.size, size, day)
        begun = self._period is not None and self._period.first_day >= change.settled
        later = "" if begun else f" to {after} since {sentences.day(change.settled, at, write)}"
        if change.earlier is None:
            return sentences.moved(change.size, f"{before} before {day}{later}")
        length = datetime.timedelta(days=1)
        dates = write.days(change.earlier, max(change.since - length, change.earlier), False)
        return sentences.moved(change.size, f"{before} ({dates}){later}")

    def change_sentence(self, ask: Ask) -> str:
        """Return a sentence on whether the answer changed, or "" if that is not known."""
        try:
            row, quantity = _row(ask, self._estimate(self.chosen.selection.windows))
        except HushmoteError:
            return ""
        unit = None if quantity == "share" else self.unit
        empty = Finding(ask.text, ask.text, "", period=self._period)
        return self._with_change(empty, row, unit, _answer(ask)).sentence.strip()

    def _scan(self, answer: _Answer | None) -> _Outcome:
        """Scan the completed days, or return the cached scan if no further day has ended."""
        if self._approximate:  # the error of a value depends on the shares of the values that share its cells
            return _NOT_SCANNED
        if answer is None or max(v.experiment.domain for v in self.whole.versions) > _MOST_VALUES:
            return _NOT_SCANNED
        facts, there = self._facts, self._scanned_versions.there
        windows = tuple((w, *there[w].items()) for w in of_whole_days(tuple(there), facts.at))
        versions = tuple(map(version_key, self._scanned_versions.versions))
        left_out = facts.store.interrupted_days()
        key = facts.store, versions, windows, left_out, answer.subject, self._comparisons
        try:
            return facts.cache.result(key, lambda: self._scanned(answer))
        except HushmoteError:  # some days cannot determine it: show the value without a change
            return _NOT_SCANNED

    def _scanned(self, answer: _Answer) -> _Outcome:
        days = self._days
        if days is None:
            return _NOT_SCANNED
        if answer.weights is None:
            scan, edge = scan_quantile(days, answer.level, self._pooled, self._comparisons)
            scale = _QuantileScale(days, answer.level, edge, self._pooled)
        else:
            scan, series = days.scan_linear(answer.weights, self._comparisons)
            scale = _LinearScale(days, series)
        if scan.changes and days.days - scan.changes[-1].last <= _RECENT_DAYS:
            return _Outcome(change=scale.change(scan))
        if scan.detectable is None:
            return _NOT_SCANNED
        return _Outcome(since=days.day(scan.start), detectable=scale.detectable(scan))

    def _title(self, row: Row, of: FleetEstimate) -> str:
        if row.lower is not None and row.upper is not None:
            edges = bin_edges(of.experiment)
            ends = float(edges[0]), float(edges[-1])
            return words.capitalize(words.bins(row.lower, row.upper, ends, self.unit, self.write))
        return words.capitalize(visible(row.name))

    def _too_few(
        self, of: FleetEstimate, ask: Ask, title: str, half_width: float, scale: float, unit: str | None
    ) -> str:
        half, reports = rounded_target(scale), of.reports
        needed = _needed(of, ask, half / scale, half_width / scale)
        size, noun = (100 * half, "points") if unit is None else (half, unit)
        target = f"±{words.reading(size, noun, self.write)}"
        at, there, windows = self._facts.at, tuple(self.whole.there), self.chosen.selection.windows
        period, days = self._period, None
        if period is None or not {*completed(there, at)} - {*windows}:  # the period still grows
            windows, reports, when = there, self.whole.reports, "so far"
        else:
            when = f"in {counted(period.units, 'day' if period.is_days else 'hour', self.write)}"
            days = period.units if period.is_days else 1
        a_day = 0.0 if _silent_since(there, at) else reports_a_day(windows, reports, at)
        text = sentences.too_few(reports, needed, target, when, a_day, days, at, self.write)
        return f"{title}: {text}" if len(self.questions) > 1 else text

    def _extent(self, unit: str | None) -> float:
        """Return the distance from the lowest to the highest possible answer; `unit` is None for a share."""
        return 1.0 if unit is None else float(np.ptp(bin_edges(self.whole.newest.experiment)))

    def _series(self, row_of: Callable[[FleetEstimate], Row], extent: float) -> tuple[TrendRow, ...]:
        """Return the answer in each completed window, or in each group of windows if there are many.

        Answers whose interval is too wide for `extent` (see is_too_wide()) are left out.
        """
        windows, rows = completed(tuple(self.whole.there), self._facts.at), list[TrendRow]()
        each = -(-len(windows) // _MOST_POINTS)
        for first in range(0, len(windows), each or 1):
            try:
                row = row_of(of := self._estimate(windows[first : first + each]))
            except HushmoteError:  # too few reports in the window, or an older version that cannot answer
                continue
            if is_too_wide(row.half_width, extent):
                continue
            ends = {"window": windows[first], "reports": of.reports}
            rows.append(TrendRow(row.name, row.value, row.low, row.high, **ends))
        return tuple(rows)

    def _of_pair(self, ask: Ask, of: FleetEstimate) -> Finding:
        """Return a finding that compares two cases: the most and the least likely one if there are more."""
        cases = ask.given
        none = Finding(ask.text, ask.text, "", period=self._period)
        if len(cases) != 2:
            table = of.pairs.conditional(ask.of, "".join(cases))
            clear = sorted(filter(table.tells, table.rows), key=lambda row: row.value)
            if len(clear) < 2:
                halves = sorted(row.half_width for row in table.rows)
                second = halves[1] if table.quantity == "share" and len(halves) > 1 else math.inf
                return replace(none, sentence=self._too_few(of, ask, ask.text, second, 1.0, None))
            cases = (clear[-1].name, clear[0].name)
        both, less = of.pairs.difference(ask.of, *cases)
        (row,) = less.rows
        assert isinstance(row, DifferenceRow)
        unit = None if less.quantity == "share" else less.unit
        title = both.title.removesuffix(" given")
        days = len({day_of(window) for window in self.whole.there})
        z = abs(float(special.ndtri(max(row.p, 1e-300) / 2)))
        chance = false_alarm_chance(z, days, self._comparisons)
        differs = chance < 1 - CONFIDENCE
        named = [(one.name, one) for one in both.rows]
        text = sentences.pair(named, title, unit, self._dates, chance if differs else 1.0, self.write)
        ends = {"value": row.value, "low": row.low, "high": row.high}
        name, quantity = f"{title}: {row.name}", less.quantity
        finding = replace(none, title=name, sentence=text, quantity=quantity, unit=unit or "", **ends)
        finding = replace(finding, is_difference=True)
        finding = self._with_case_change(finding, ask, cases, both.rows, unit)
        if not self.wants_series:
            return finding
        extent = 1.0 if unit is None else math.inf
        series = self._series(lambda one: one.pairs.difference(ask.of, *cases)[1].rows[0], extent)
        return replace(finding, series=series)

    def _with_case_change(
        self, finding: Finding, ask: Ask, cases: Sequence[str], rows: Sequence[Row], unit: str | None
    ) -> Finding:
        """Add the last change of one of its cases to a pair's finding."""
        answers = [_Answer(("given", ask.of, case), _conditional(ask.of, case)) for case in cases]
        scans = [self._scan(answer) for answer in answers]
        changed = [(scan.change.since, i) for i, scan in enumerate(scans) if scan.change is not None]
        if changed:
            _, last = max(changed)
            one = self._with_change(replace(finding, sentence=""), rows[last], unit, answers[last])
            text = one.sentence.strip()
            sentence = f"{finding.sentence} With {cases[last]}: {text[:1].lower()}{text[1:]}"
            assert one.change is not None  # its scan has a change
            in_words = f"With {cases[last]}: {one.change.text[:1].lower()}{one.change.text[1:]}"
            return replace(finding, sentence=sentence, change=replace(one.change, text=in_words))
        days = [scan.since for scan in scans if scan.since is not None]
        if len(days) < len(scans):
            return finding
        text = sentences.unchanged(sentences.day(max(days), self._facts.at, self.write), "")
        return replace(finding, sentence=f"{finding.sentence} {text}", since=max(days))


def _is_comparable(version: Experiment, newest: Experiment) -> bool:
    """Return whether a version counts the same values as the newest one and answers the same questions."""
    same = all(getattr(version, name) == getattr(newest, name) for name in _SAME_VALUES)
    parts = [
        [(part.name, *(getattr(part, name) for name in _SAME_VALUES)) for part in parts_of(of)]
        for of in (version, newest)
    ]
    return same and parts[0] == parts[1] and answers_of(version) >= answers_of(newest)


@dataclass(frozen=True)
class _LinearScale:
    """Converts a scan of a share, mean or ratio to changes of that statistic."""

    days: Series
    series: LinearDays | None

    def change(self, scan: Scan) -> FindingChange:
        last, start = scan.changes[-1], _start_of_last(scan)
        before, after = (
            (self.series.level(*days) if self.series else None) or 0.0
            for days in ((start, last.first), (last.last, self.days.days))
        )
        return _change_of(self.days, scan, before, after, (last.size, last.low, last.high))

    def detectable(self, scan: Scan) -> float | None:
        return scan.detectable


@dataclass(frozen=True)
class _QuantileScale:
    """Converts a scan of the share below an edge to changes of a quantile, by the shares before it."""

    days: Series
    level: float
    edge: int | None
    pooled: Callable[[Sequence[str]], Estimates]

    def change(self, scan: Scan) -> FindingChange | None:
        last, start = scan.changes[-1], _start_of_last(scan)
        sides = (start, last.first), (last.last, self.days.days)
        before, after = (self.pooled(self.days.windows_of(*days)) for days in sides)
        edge = int(np.argmin(np.abs(before.cdf()[:-1] - self.level))) + 1
        size, low, high = (_shift(before, edge, step) for step in (last.size, last.high, last.low))
        old, new = (moments.BinQuantile(of, self.level).value for of in (before, after))
        return _change_of(self.days, scan, old, new, (size, low, high))

    def detectable(self, scan: Scan) -> float | None:
        if scan.detectable is None or self.edge is None:
            return None
        now = self.pooled(self.days.windows_of(scan.start, self.days.days))
        return max(abs(_shift(now, self.edge, sign * scan.detectable)) for sign in (-1, 1))


def _change_of(
    days: Series, scan: Scan, before: float, after: float, sizes: tuple[float, float, float]
) -> FindingChange:
    """Return the last change of a scan; `sizes` are its size and the ends of its interval."""
    last, start = scan.changes[-1], _start_of_last(scan)
    windows = days.windows_of(start, last.first), days.windows_of(last.last, days.days)
    earlier = days.day(start) if len(scan.changes) > 1 else None
    first, settled = days.day(last.first), days.day(last.last)
    return FindingChange(first, settled, before, after, *sizes, last.chance, earlier, windows=windows)


def _shift(of: Estimates, edge: int, step: float) -> float:
    """Return how far all readings moved if the share below an edge rose by `step`."""
    edges = bin_edges(of.experiment)
    below = np.maximum.accumulate(np.clip(np.append(0.0, of.cdf()), 0.0, 1.0))
    below[-1] = 1.0
    return float(edges[edge] - np.interp(below[edge] + step, below, edges))


def _start_of_last(scan: Scan) -> int:
    """Return the first day of the scan that reported the last change."""
    return scan.changes[-2].last if len(scan.changes) > 1 else 0


def _answer(ask: Ask) -> _Answer | None:
    """Return how to follow a question's answer over days, or None if that is not possible."""
    match ask.kind:
        case "mean":
            return _Answer(_subject(ask), lambda of: bin_middles(of)[:, None])
        case "quantile":
            return _Answer(_subject(ask), None, ask.level)
        case "share":
            return _Answer(_subject(ask), lambda of: _share_weights(of, ask.text))
        case _:
            return None


def _share_weights(experiment: Any, text: str) -> Floats:
    if experiment.type == "text":
        weights = np.full((experiment.domain, 1), -1 / (experiment.domain - 1))
        weights[experiment.bucket(text)] = 1.0
        return weights
    indices = parse_range(experiment, text)
    return below_edge(experiment, indices.high) - below_edge(experiment, indices.low)


def _conditional(of: str, case: str) -> Weights:
    """Return weights of a share or mean given a condition: numerator and denominator."""

    def weights(experiment: Any) -> Floats:
        table = pair_tables.conditional(experiment, of, case, 1)
        (one,) = table.statistics
        assert one.condition is not None
        return np.stack([one.of * one.condition.cells, one.condition.cells], axis=1)

    return weights


def _cases(experiment: Any, ask: Ask) -> Sequence[object]:
    condition = "".join(ask.given)
    part = next((one for one in parts_of(experiment) if one.name == condition), None)
    return range(part.domain if part is not None else 2)


def _row(ask: Ask, of: FleetEstimate) -> tuple[Row, Quantity]:
    """Return the row that answers a question; raise HushmoteError if there is none."""
    match ask.kind:
        case "mean":
            return of.mean().rows[0], "reading"
        case "quantile":
            return of.quantile(ask.level).rows[0], "reading"
        case "share":
            return of.share(ask.text).rows[0], "share"
        case "texts" if texts := of.discover().rows:
            return texts[0], "share"
        case "named" if ask.texts:
            return of.candidates(ask.texts).rows[0], "share"
        case "texts":
            raise EstimateError("no text stands out yet")
        case _:
            raise EstimateError(
                "name the texts to look for: with candidates in the experiment's file, or "
                + command(f"hushmote estimate {of.experiment.name} --candidates FILE", "candidates")
            )


def _needed(of: FleetEstimate, ask: Ask, target: float, now: float) -> int | None:
    """Return how many reports an answer takes, or None if that is not known.

    The present interval is used only if the mechanism's own variance is not known: with few reports it is
    mostly noise.

    Args:
        of: The present estimate.
        ask: The question.
        target: The half-width to reach, as a fraction of all shares or of all readings.
        now: The present half-width, likewise.
    """
    experiment, answer = of.experiment, _needed_for(of, ask)
    if of.approximate:
        return None
    if (
        answer is None or value_count(experiment) < experiment.domain
    ):  # the variance of a ratio cannot be predicted here
        return math.ceil(of.reports * (now / target) ** 2) if math.isfinite(now) else None
    target *= 1 if isinstance(answer, RangeShare) else experiment.domain
    population = likely_population(of.estimates) if of.reports >= _FEWEST_KNOWN else None
    count = reports_needed(experiment, answer, target, population)
    return count if count < MOST else None


def _needed_for(of: FleetEstimate, ask: Ask) -> Answer | None:
    if ask.kind == "mean":
        return MeanIndex()
    if ask.kind == "quantile":
        return QuantileLevel(ask.level)
    if ask.kind != "share" or of.experiment.type == "text":
        return None
    indices = parse_range(of.experiment, ask.text)
    return RangeShare(indices.low, indices.high)
