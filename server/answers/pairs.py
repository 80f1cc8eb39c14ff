"""Answers about a pair: shares of cells and of parts, one part given another, how these changed and went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..estimate.conditional import Ratio, difference_apart, reports_needed
from ..estimate.estimate import Estimates
from ..estimate.pooling import check_same_quantity
from ..estimate.statistic import EstimateError, Statistic, difference
from ..experiments.cells import CellCondition
from . import change, pair_tables
from .answer import Answer, Answers
from .pair_tables import PairQuestion, PairStatistic, PairTable
from .rows import CONFIDENCE, CellRow, ChangeRow, DifferenceRow, Row

ROWS = 16


@dataclass(frozen=True)
class PairAnswers:
    """What an estimate of a pair can be asked; made by FleetEstimate.pairs.

    Conditions are texts: "version=1.2", "version=1.2|1.3", "version!=1.2", "delay=15:", and several of them
    with &. Methods raise UnitsError for parts and values that the experiment does not have, and EstimateError
    for what its reports do not tell.
    """

    estimates: Estimates
    about: str = ""
    unit: str = ""
    confidence: float = CONFIDENCE
    truth: Floats | None = None

    @property
    def _experiment(self) -> Experiment:
        return self.estimates.experiment

    def joint(self, rows: int = ROWS) -> Answer:
        """The share of every cell of the joint table, a number's values in at most so many ranges."""
        return self._answer(pair_tables.joint(self._experiment, rows))

    def marginal(self, part: str, rows: int = ROWS) -> Answer:
        """The share of each value of a part, a number's in at most so many ranges."""
        return self._answer(pair_tables.marginal(self._experiment, part, rows))

    def conditional(self, of: str = "", given: str = "", rows: int = ROWS) -> Answer:
        """The share of a condition, or the mean of a number, among those of each value of a part.

        of: "crashed=yes", or a part, left out the last one. given: a part, left out the first one, or a
        condition. Conditions that too few boards meet are left out, which the note says.
        """
        return self._answer(pair_tables.conditional(self._experiment, of, given, rows))

    def difference(self, of: str, first: str, second: str) -> Answers:
        """A share or a mean among those of one condition and of another, and the first less the second."""
        return Answers(map(self._answer, pair_tables.difference(self._experiment, of, (first, second))))

    def summary(self, rows: int = ROWS) -> Answers:
        """The joint table if it is small, that of each part, the last part given the first.

        What its reports do not tell is left out; a note says so.
        """
        shown, missing = list[Answer](), list[str]()
        for table in pair_tables.summary(self._experiment, rows):
            try:
                shown.append(self._answer(table))
            except EstimateError as e:
                missing.append(f"Not shown, {table.title}: {e}.")
        if not shown:
            raise EstimateError(missing[0].removesuffix("."))
        last = shown.pop()
        note = "\n".join(text for text in (last.note, *missing) if text)
        return Answers([*shown, replace(last, note=note)])

    def ask(self, question: PairQuestion, rows: int = ROWS) -> Answers:
        """All that a question asks for."""
        if not question:
            return self.summary(rows)
        return Answers(map(self._answer, pair_tables.tables(self._experiment, question, rows)))

    def change_since(self, before: Estimates, question: PairQuestion, rows: int = ROWS) -> Answers:
        """What changed of it since other estimates, which share no reports with these."""
        check_same_quantity([before, self.estimates])
        shown: list[Answer] = []
        for table in pair_tables.tables(self._experiment, question, rows):
            old = pair_tables.statistics(before, table.asked)
            new = pair_tables.statistics(self.estimates, table.asked)
            made, lost = list[ChangeRow](), list[tuple[CellCondition, Ratio, int]]()
            for one, a, b in zip(table.asked, old, new, strict=True):
                unknown = [*_unknown(one, a, before.reports), *_unknown(one, b, self.estimates.reports)]
                lost += unknown
                if not unknown:
                    made.append(self._changed(one.name, a, b))
            note = _note(made, lost)
            common = {"quantity": table.quantity, "unit": self.unit, "confidence": self.confidence}
            answer = change.together(before, self.estimates, made, **common)
            shown.append(replace(answer, note=note, about=self.about, title=f"change of {table.title}"))
        return Answers(shown)

    def _changed(self, name: str, before: Statistic, after: Statistic) -> ChangeRow:
        if isinstance(before, Ratio) and isinstance(after, Ratio):
            moved = difference_apart(after, before)
        else:
            moved = difference(after, before)
        ends = moved.interval(self.confidence)
        return ChangeRow(name, moved.value, *ends, before=before.value, after=after.value, p=moved.p)

    def _answer(self, table: PairTable) -> Answer:
        found = pair_tables.statistics(self.estimates, table.asked)
        made, lost = list[Row](), list[tuple[CellCondition, Ratio, int]]()
        for one, statistic in zip(table.asked, found, strict=True):
            unknown = _unknown(one, statistic, self.estimates.reports)
            lost += unknown
            if not unknown:
                made.append(self._row(one, statistic))
        note = _note(made, lost)
        common = (self._experiment.name, table.quantity, self.unit, self.estimates.reports, self.confidence)
        return Answer(table.kind, *common, tuple(made), note, self.about, title=table.title)

    def _row(self, one: PairStatistic, statistic: Statistic) -> Row:
        truth = None if self.truth is None else one.of_truth(self.truth)
        row = Row(one.name, statistic.value, *statistic.interval(self.confidence), truth)
        if one.cell:
            return CellRow(**vars(row), cell=one.cell)
        if one.versus:
            sides = (ratio.value for _, ratio in pair_tables.denominators(one, statistic))
            first, second = sides
            return DifferenceRow(**vars(row), first=first, second=second, p=statistic.p_value())
        return row


def trend(
    windows: Mapping[str, Estimates],
    question: PairQuestion,
    unit: str = "",
    confidence: float = CONFIDENCE,
    rows: int = ROWS,
) -> Answers:
    """How what a question asks for went over the windows; without one, the last part given the first.

    Raises EstimateError for fewer than two windows, and where none of it is known in all of them.
    """
    experiment = next(iter(windows.values())).experiment
    asked = pair_tables.tables(experiment, question, rows)
    shown: list[Answer] = []
    for table in asked if question else asked[-1:]:
        by_window = {w: pair_tables.statistics(e, table.asked) for w, e in windows.items()}
        lost: list[tuple[CellCondition, Ratio, int]] = []
        known: dict[str, dict[str, Statistic]] = {}
        for number, one in enumerate(table.asked):
            unknown = [x for w, e in windows.items() for x in _unknown(one, by_window[w][number], e.reports)]
            lost += unknown[:1]
            if not unknown:
                name = "difference" if one.versus else one.name  # which the title has
                known[name] = {w: found[number] for w, found in by_window.items()}
        note = _note(list(known), lost)
        answer = change.trend_of(windows, known, table.quantity, unit, confidence)
        title = f"{table.title}, over time"
        shown.append(replace(answer, note=f"{note}\n{answer.note}".strip(), title=title))
    return Answers(shown)


def _unknown(
    one: PairStatistic, statistic: Statistic, reports: int
) -> list[tuple[CellCondition, Ratio, int]]:
    """The conditions that too few boards meet for a statistic, with the reports that it rests on."""
    return [(c, ratio, reports) for c, ratio in pair_tables.denominators(one, statistic) if not ratio.known]


def _note(made: Sequence[object], lost: Sequence[tuple[CellCondition, Ratio, int]]) -> str:
    """What is left out, in words; raises EstimateError where that is all."""
    if not lost:
        return ""
    conditions = dict.fromkeys(condition.text for condition, _, _ in lost)
    first = {condition.text: ratio.below for condition, ratio, _ in reversed(lost)}
    shares = (
        f"{text} ({100 * first[text].value:.2g} ± {196 * first[text].stderr:.2g} %)" for text in conditions
    )
    needed = max(reports_needed(reports, [ratio]) for _, ratio, reports in lost)
    about = f"{float(f'{needed:.2g}'):,.0f}"
    text = f"too few boards have {', '.join(shares)} to divide by; it takes about {about} reports"
    if not made:
        raise EstimateError(text)
    return f"Left out: {text}."
