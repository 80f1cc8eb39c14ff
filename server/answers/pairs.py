"""Answers about a pair: shares of cells and parts, one part given another, changes and trends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...device.ldp_client import Experiment
from ..arrays import Floats
from ..estimate.conditional import Ratio, reports_needed
from ..estimate.estimate import Estimates
from ..estimate.pooling import check_same_quantity
from ..estimate.statistic import EstimateError, Statistic, TooFewReports
from ..experiments.cells import CellCondition
from ..experiments.units import unit_of_part
from ..mechanisms.views.factors import parts_of
from . import change, pair_tables
from .answer import PLAIN, Answer, Answers, Frame
from .pair_tables import PairStatistic, PairTable
from .question import PairQuestion
from .rows import CellRow, DifferenceRow, Row

ROWS = 16

_MissingRatio = tuple[CellCondition, Ratio, int]
"""A condition that too few boards meet, the ratio that uses it, and the number of reports."""


@dataclass(frozen=True)
class PairAnswers:
    """Methods for an estimate of a pair; returned by FleetEstimate.pairs.

    Conditions are strings: "version=1.2", "version=1.2|1.3", "version!=1.2", "delay=15:", or several of these
    joined by &. Methods raise UnitsError for parts and values that the experiment does not have, and
    EstimateError if the reports cannot answer the question.
    """

    estimates: Estimates
    frame: Frame = PLAIN
    truth: Floats | None = None

    @property
    def _experiment(self) -> Experiment:
        return self.estimates.experiment

    def joint(self, rows: int = ROWS) -> Answer:
        """Return the share of each cell of the joint table, with at most `rows` ranges for a number."""
        return self._answer(pair_tables.joint(self._experiment, rows))

    def marginal(self, part: str, rows: int = ROWS) -> Answer:
        """Return the share of each of a part's values, or of at most `rows` ranges if it is a number."""
        return self._answer(pair_tables.marginal(self._experiment, part, rows))

    def conditional(self, of: str = "", given: str = "", rows: int = ROWS) -> Answer:
        """Return the share of a condition, or a number's mean, for each value of another part.

        Conditions that too few boards meet are omitted, with a note.

        Args:
            of: A part, or a condition such as "crashed=yes"; by default the last part.
            given: A part or a condition; by default the first part.
            rows: The maximum number of ranges for a number.
        """
        return self._answer(pair_tables.conditional(self._experiment, of, given, rows))

    def difference(self, of: str, first: str, second: str) -> Answers:
        """Return a share or a mean under each of two conditions, and the first minus the second."""
        return Answers(map(self._answer, pair_tables.difference(self._experiment, of, (first, second))))

    def summary(self, rows: int = ROWS) -> Answers:
        """Return the joint table if it is small, a table for each part, and the last part given the first.

        A note lists the tables that are omitted because they cannot be estimated from the reports.
        """
        answers, missing, errors = list[Answer](), list[str](), list[EstimateError]()
        for table in pair_tables.summary(self._experiment, rows):
            try:
                answers.append(self._answer(table))
            except EstimateError as e:
                missing.append(f"The table {table.title} is not shown: {e}.")
                errors.append(e)
        if not answers:
            raise type(errors[0])(missing[0].removesuffix("."))
        last = answers.pop()
        note = "\n".join(text for text in (last.note, *missing) if text)
        return Answers([*answers, replace(last, note=note)])

    def ask(self, question: PairQuestion, rows: int = ROWS) -> Answers:
        """Return all tables that a question asks for; without a question, the summary."""
        if not question:
            return self.summary(rows)
        return Answers(map(self._answer, pair_tables.tables(self._experiment, question, rows)))

    def change_since(self, before: Estimates, question: PairQuestion, rows: int = ROWS) -> Answers:
        """Return changes since other estimates, which must not share reports with these."""
        check_same_quantity([before, self.estimates])
        sides, confidence = (before, self.estimates), self.frame.confidence
        answers: list[Answer] = []
        for table in pair_tables.tables(self._experiment, question, rows):
            statistics, note = _known_statistics(table, sides)
            change_rows = [
                change.change_row(one.name, old, new, confidence) for one, (old, new) in statistics
            ]
            more = {"note": note, "title": f"change of {table.title}", "quantity": table.quantity}
            frame = _frame_of(table, self._experiment, self.frame)
            answers.append(change.change_table(*sides, change_rows, frame, **more))
        return Answers(answers)

    def _answer(self, table: PairTable) -> Answer:
        statistics, note = _known_statistics(table, [self.estimates])
        rows = [self._row(one, statistic) for one, (statistic,) in statistics]
        return _frame_of(table, self._experiment, self.frame).answer(
            table.kind, self.estimates, rows, table.quantity, note=note, title=table.title
        )

    def _row(self, one: PairStatistic, statistic: Statistic) -> Row:
        truth = None if self.truth is None else one.of_truth(self.truth)
        row = Row(
            one.name, statistic.value, *statistic.interval(self.frame.confidence), truth, statistic=statistic
        )
        if one.cell:
            return CellRow(**vars(row), cell=one.cell)
        if one.versus:
            first, second = (ratio.value for _, ratio in pair_tables.denominators(one, statistic))
            return DifferenceRow(**vars(row), first=first, second=second, p=statistic.p_value())
        return row


def trend(windows: Mapping[str, Estimates], question: PairQuestion, frame: Frame) -> Answers:
    """Return the trends of a question's answers; without a question, of the last part given the first.

    Raises:
        EstimateError: If there are fewer than two windows, or no statistic can be estimated in all of them.
    """
    experiment = next(iter(windows.values())).experiment
    tables = pair_tables.tables(experiment, question, ROWS)
    answers: list[Answer] = []
    for table in tables if question else tables[-1:]:
        statistics, note = _known_statistics(table, list(windows.values()))
        # The title names the two sides of the difference.
        by_name = {"difference" if one.versus else one.name: each for one, each in statistics}
        answer = change.trend(windows, by_name, _frame_of(table, experiment, frame), table.quantity)
        title = f"{table.title}, over time"
        answers.append(replace(answer, note=f"{note}\n{answer.note}".strip(), title=title))
    return Answers(answers)


def _frame_of(table: PairTable, experiment: Experiment, frame: Frame) -> Frame:
    """Return the frame with the unit of the part whose mean the table shows."""
    if not table.mean_of:
        return frame
    return replace(frame, unit=unit_of_part(frame.unit, parts_of(experiment), table.mean_of))


def _known_statistics(
    table: PairTable, of: Sequence[Estimates]
) -> tuple[list[tuple[PairStatistic, list[Statistic]]], str]:
    """Return the statistics that all estimates provide, each with its values, and a note on the others."""
    statistics_by_estimate = [pair_tables.statistics(estimates, table.statistics) for estimates in of]
    results: list[tuple[PairStatistic, list[Statistic]]] = []
    missing_ratios: list[_MissingRatio] = []
    for number, one in enumerate(table.statistics):
        values = [statistics[number] for statistics in statistics_by_estimate]
        unknown = [
            (condition, ratio, estimates.reports)
            for estimates, statistic in zip(of, values, strict=True)
            for condition, ratio in pair_tables.denominators(one, statistic)
            if not ratio.is_known
        ]
        missing_ratios += unknown
        if not unknown:
            results.append((one, values))
    return results, _note(results, missing_ratios)


def _note(results: Sequence[object], missing_ratios: Sequence[_MissingRatio]) -> str:
    """Return a note on the omitted statistics; raise TooFewReports if none remain."""
    if not missing_ratios:
        return ""
    first = {condition.text: ratio.denominator for condition, ratio, _ in reversed(missing_ratios)}
    conditions = dict.fromkeys(condition.text for condition, _, _ in missing_ratios)
    shares = (
        f"{text} ({100 * first[text].value:.2g} ± {196 * first[text].stderr:.2g}%)" for text in conditions
    )
    needed = max(reports_needed(reports, [ratio]) for _, ratio, reports in missing_ratios)
    about = f"{float(f'{needed:.2g}'):,.0f}"
    text = f"too few boards have {', '.join(shares)} for a reliable ratio; about {about} reports are needed"
    if not results:
        raise TooFewReports(text)
    return f"Left out: {text}."
