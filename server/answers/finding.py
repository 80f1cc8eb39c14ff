"""What an experiment knows now: a sentence for each of its questions, the same wherever it is shown.

Whether it moved is asked of the newest third of the windows and the oldest. Who looks after every window
looks often, so the p of that comparison is multiplied by looks(): with it at most 5 of 100 experiments in
which nothing changes are ever said to have moved, in up to a year of windows (benchmarks/findings.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..errors import HushmoteError
from ..estimate.statistic import EstimateError
from ..experiments.asks import Ask, asks_of
from ..experiments.units import bin_edges, index_names
from ..plain_text import visible
from ..words import answers as words
from ..words import findings as said
from ..words.numbers import ENGLISH, Numbers, counted
from .change import moved_quantile
from .fleet_estimate import FleetEstimate
from .periods import start_of, usual
from .query import Facts, Selection
from .rows import CONFIDENCE, WIDEST, ChangeRow, DifferenceRow, Quantity, Row, TrendRow

_POINTS = 30  # of a series
_TARGET = 0.1  # half an interval that says something, of all shares or all readings

Moved = Literal["up", "down", "steady", ""]


@dataclass(frozen=True)
class Finding:
    """One question of an experiment, answered now.

    asked     as the experiment's file has it: "24:", "median", a label
    title     the same in words
    sentence  what is known, whether it moved, how sure
    value     of its newest windows if it moved, otherwise of all, with its interval; None where too few
              reports say anything, or there is no one number
    quantity  "share" (0 to 1) or "reading", in the unit
    moved     "" where fewer than two windows tell
    series    its value in each window, or each few of them, oldest first
    """

    asked: str
    title: str
    sentence: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    quantity: Quantity = "share"
    unit: str = ""
    moved: Moved = ""
    series: tuple[TrendRow, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether reports are enough to tell."""
        return self.value is not None


@dataclass(frozen=True)
class Findings:
    """All that an experiment was to find out, its first question first.

    enough: whether any of them has an answer. sentence: of all; where none has, how many reports it takes.
    """

    fleet: str
    experiment: str
    purpose: str
    reports: int
    windows: tuple[str, ...]
    findings: tuple[Finding, ...]
    enough: bool
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def looks(windows: int) -> int:
    """By what p is multiplied after so many windows, each of which was looked at as it ended, >= 2.

    Octaves of windows share the chance of a false alarm as 1/(j (j + 1)): neighbours tell nearly the same.
    """
    octave = windows.bit_length() - 1
    return 3 * octave * (octave + 1)


def thirds(windows: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The oldest and the newest third of at least two windows, both equally many."""
    part = max(1, round(len(windows) / 3))
    return windows[:part], windows[-part:]


def find(
    facts: Facts,
    selection: Selection,
    write: Numbers = ENGLISH,
    *,
    unit: str | None = None,
    series: bool = False,
) -> Findings:
    """What an experiment knows from selected windows; without any, from those of its newest 30 days.

    unit: what readings are in; None for what the store says. series: whether each finding has its value in
    each window, which takes an estimate for each. Raises UsageError where fleet, name or version is not
    there, EstimateError where a window has no reports.
    """
    whole = facts.selected(selection)
    newest = whole.newest
    windows = tuple(sorted(selection.windows)) or usual(tuple(whole.there))
    selection = replace(selection, windows=windows)
    counts = replace(whole, selection=selection).counts if windows else {}
    reports = sum(sum(of.values()) for of in counts.values())
    some = len(windows) < len(whole.there) and start_of(windows[-1])  # those left out bring no more reports
    when = f"in {counted(len(windows), 'hour' if 'T' in windows[-1] else 'day', write)}" if some else "so far"
    a_day = 0.0 if some else reports_a_day(list(counts), reports)
    asker = _Asker(facts, selection, whole.unit if unit is None else unit, write, when, a_day, series)
    findings = tuple(asker.finding(ask) for ask in asks_of(newest.experiment, newest.asked.splitlines()))
    enough = any(one.enough for one in findings)
    sentences = [one.sentence for one in findings if one.enough or not enough]
    name, purpose, told = selection.experiment, visible(newest.purpose), " ".join(dict.fromkeys(sentences))
    return Findings(selection.fleet, name, purpose, reports, windows, findings, enough, told)


def reports_a_day(windows: Sequence[str], reports: int) -> float:
    """Reports a day over windows; 0 where these are not of days or hours, or of one day, which may go on."""
    days = {start.date() for window in windows if (start := start_of(window))}
    return reports / ((max(days) - min(days)).days + 1) if len(days) > 1 else 0.0


@dataclass(frozen=True)
class _Asker:
    """Answers questions over one selection of windows, in which so many reports a day came.

    when: "so far" of all windows, "in 30 days" of some.
    """

    facts: Facts
    selection: Selection
    unit: str
    write: Numbers
    when: str
    a_day: float
    series: bool

    def finding(self, ask: Ask) -> Finding:
        """The finding of one question; what hinders an answer is its sentence."""
        none = Finding(ask.text, ask.text, "")
        try:
            of = self._estimate(self.selection.windows)
        except EstimateError:  # fewer than 2 reports, or versions that do not go together
            reports = self.facts.selected(self.selection).reports if self.selection.windows else 0
            return replace(none, sentence=words.too_few(reports, self.write))
        try:
            return self._of_pair(ask, of) if ask.kind == "pair" else self._of_values(ask, of)
        except HushmoteError as e:
            return replace(none, sentence=words.begun(f"{visible(str(e))}."))

    def _estimate(self, windows: Sequence[str]) -> FleetEstimate:
        of = self.facts.selected(replace(self.selection, windows=tuple(windows)))
        return FleetEstimate(of.estimate(), "", self.unit, CONFIDENCE, None, of.sources)

    def _of_values(self, ask: Ask, of: FleetEstimate) -> Finding:
        asked, tries = ask, 1
        if ask.kind == "most common":  # which label is looked for among all, so each of them is compared
            asked, tries = replace(ask, text=_most_common(of), kind="share"), of.experiment.domain
        moved, shown, tail = self._moved(asked, tries, of)
        row, quantity = _row(asked, shown)
        # What was most common in all windows may no longer be so in the newest ones, which are shown.
        most = ask.kind == "texts" or (ask.kind == "most common" and asked.text == _most_common(shown))
        title = self._title(row, of, most)
        unit = None if quantity == "share" else self.unit
        known = Finding(ask.text, title, "", quantity=quantity, unit=unit or "")
        scale = 1.0 if unit is None else float(np.ptp(bin_edges(of.experiment)))
        if _width(row) > WIDEST * scale:
            needed = shown.reports * (_width(row) / 2 / (_TARGET * scale)) ** 2
            return replace(known, sentence=self._too_few(of.reports, needed, scale, unit))
        sentence = f"{title}: {said.amount(row, unit, self.write)}{tail}."
        told = {"value": row.value, "low": row.low, "high": row.high, "moved": moved}
        series = self._series(asked) if self.series and ask.kind != "texts" else ()
        return replace(known, sentence=sentence, series=series, **told)

    def _moved(self, ask: Ask, tries: int, of: FleetEstimate) -> tuple[Moved, FleetEstimate, str]:
        """Whether it moved, what is shown of it, the newest third or all, and how a sentence says that."""
        windows = self.selection.windows
        if len(windows) < 2 or ask.kind == "texts" or not all(map(start_of, windows)):  # "all" has no start
            return "", of, ""
        oldest, newest = thirds(windows)
        try:
            after = self._estimate(newest)
            change = changed(ask, self._estimate(oldest), after, looks(len(windows)) * tries)
        except EstimateError:  # too few reports in a third
            change = None
        if change is None:
            return "", of, ""
        moved = _moved(*change)
        if moved == "steady":
            return moved, of, f", {said.STEADY}"
        unit = None if ask.kind == "share" else self.unit
        lengths = said.newest(len(newest), "T" in newest[-1]), said.apart(_hours(windows))
        return moved, after, said.moved(*change, unit, *lengths, self.write)

    def _title(self, row: Row, of: FleetEstimate, most: bool) -> str:
        if row.lower is not None and row.upper is not None:
            edges = bin_edges(of.experiment)
            ends = float(edges[0]), float(edges[-1])
            return words.begun(words.bins(row.lower, row.upper, ends, self.unit, self.write))
        name = visible(row.name)
        return f"Most common is {name}" if most else words.begun(name)

    def _too_few(self, reports: int, needed: float, scale: float, unit: str | None) -> str:
        size = f"{10 if unit is None else _TARGET * scale:.1g}"
        target = f"±{words.reading(float(size), 'points' if unit is None else unit, self.write)}"
        return said.too_few(reports, needed, target, self.when, self.a_day, self.facts.at, self.write)

    def _series(self, ask: Ask) -> tuple[TrendRow, ...]:
        """The answer in each window, or in each few of them where windows are many."""
        windows, rows = self.selection.windows, list[TrendRow]()
        each = -(-len(windows) // _POINTS)
        for first in range(0, len(windows), each):
            try:
                row, _ = _row(ask, of := self._estimate(windows[first : first + each]))
            except EstimateError:  # too few reports there
                continue
            ends = {"window": windows[first], "reports": of.reports}
            rows.append(TrendRow(row.name, row.value, row.low, row.high, **ends))
        return tuple(rows)

    def _of_pair(self, ask: Ask, of: FleetEstimate) -> Finding:
        """What holds in two cases, the most and the least likely one where more are asked about."""
        cases, tries = ask.given, 1
        if len(cases) != 2:
            table = of.pairs.conditional(ask.of, "".join(cases))
            share = table.quantity == "share"
            known = sorted((r for r in table.rows if not share or _width(r) <= WIDEST), key=lambda r: r.value)
            if len(known) < 2:
                second = sorted(map(_width, table.rows))[1] if share and len(table.rows) > 1 else math.inf
                needed = of.reports * (second / 2 / _TARGET) ** 2
                return Finding(ask.text, ask.text, self._too_few(of.reports, needed, 1.0, None))
            cases, tries = (known[-1].name, known[0].name), math.comb(len(known), 2)
        both, less = of.pairs.difference(ask.of, *cases)
        (row,) = less.rows
        assert isinstance(row, DifferenceRow)
        unit = None if less.quantity == "share" else less.unit
        title = both.title.removesuffix(" given")
        p = min(1.0, row.p * tries)
        sentence = said.pair([(one.name, one) for one in both.rows], title, unit, p, CONFIDENCE, self.write)
        told = {"value": row.value, "low": row.low, "high": row.high, "moved": _moved(row.value, p)}
        return Finding(ask.text, row.name, sentence, quantity=less.quantity, unit=unit or "", **told)


def _row(ask: Ask, of: FleetEstimate) -> tuple[Row, Quantity]:
    """The row of an answer; HushmoteError where there is none."""
    match ask.kind:
        case "mean":
            return of.mean().rows[0], "reading"
        case "quantile":
            return of.quantile(ask.level).rows[0], "reading"
        case "share":
            return of.share(ask.text).rows[0], "share"
        case "texts" if texts := of.discover().rows:
            return texts[0], "share"
        case "texts":
            raise EstimateError("no text stands out yet")
        case _:
            which = of.experiment.name
            raise EstimateError(f"name the texts to ask about: hushmote estimate {which} --candidates FILE")


def _most_common(of: FleetEstimate) -> str:
    return index_names(of.experiment)[int(np.argmax(of.frequencies))]


def _moved(by: float, p: float) -> Moved:
    return "steady" if p >= 1 - CONFIDENCE else "up" if by > 0 else "down"


def _width(row: Row) -> float:
    return row.high - row.low


def _hours(windows: Sequence[str]) -> float:
    """How far the middles of both thirds are from each other."""
    starts = [[start.timestamp() for w in part if (start := start_of(w))] for part in thirds(windows)]
    before, after = (sum(part) / len(part) for part in starts)
    return (after - before) / 3600


def changed(ask: Ask, before: FleetEstimate, after: FleetEstimate, tries: int) -> tuple[float, float] | None:
    """By how much an answer rose between estimates, and p, for so many tries; None if none can tell."""
    if ask.kind == "quantile":
        rise, p = moved_quantile(before.estimates, after.estimates, ask.level)
        return rise, min(1.0, p * tries)
    changes = after.change_since(before, *([ask.text] if ask.kind == "share" else []))
    rows = [one for table in changes for one in table.rows if isinstance(one, ChangeRow)]
    row = next((one for one in rows if ask.kind == "share" or one.name == "mean"), None)
    return row and (row.value, min(1.0, row.p * tries))
