"""Answer questions: the entry point for the command, the page, the Python API and published results.

Names are resolved once, versions are read once, and estimates are cached by the counts that they are based
on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...device.ldp_client import Experiment
from ..errors import UsageError
from ..experiments.answerable import OF_VALUES, require
from ..experiments.asks import Ask
from ..experiments.units import bin_edges
from ..hints import command, option
from ..local_days import WEEKDAYS
from ..mechanisms.views.factors import parts_of
from ..plain import plain
from ..words import findings as sentences
from ..words import scope
from ..words.answers import bin_range, capitalize
from ..words.days import partial as partial_words
from ..words.days import weeks as weeks_words
from ..words.experiment import unprotected
from ..words.numbers import ENGLISH, Numbers
from ..words.scope import version_name, which_reports
from . import second_epsilon
from .answer import Answer, Answers, Frame
from .finding import Findings, answer_sentences, change_sentences, find
from .fleet_estimate import MEAN, FleetEstimate, trend
from .periods import Period, group_windows, partial_groups, span
from .query import Facts, Selected
from .question import FINE, Question, ResolvedQuestion, Selection
from .rows import (
    APPROXIMATE_MARK,
    CandidateRow,
    ChangeRow,
    DifferenceRow,
    Kind,
    Row,
    TrendRow,
    quantile_name,
)
from .second_epsilon import Shuffling, TwoEpsilons
from .summary import Guide, guide, is_noisy
from .suppression import GroupReports
from .texts import MAX_SHOWN

ROWS = 16
"""The default maximum number of rows in a number's histogram."""

_DEFAULT_KINDS = ("histogram", "moments")
_SENTENCE_KINDS = ("ranges", "quantiles", "top", "candidates", "conditional", "difference")
_MAX_IN_WORDS = 6  # rows of a table

_ROW_COUNTS = (16, 64)  # numbers of rows to try before single bins
_WITHOUT_VALUES = {"candidates", "discovery", "pairs"}  # experiments without shares of values or a mean
_WITH_CHANGES = {"ranges", "mean", "candidates", "pairs"}  # experiments with trends and changes


@dataclass(frozen=True)
class Reply:
    """The answers to a question, with findings and both ε values.

    Attributes:
        findings: The answers to the questions in the experiment's file, over the same period.
        comparison: A sentence describing the first change, if the question asked for a comparison.
        rows_words: Sentences describing the rows that the question names; "" if it names none.
        once: Both ε values of everything shown, for someone who sees it once.
        every_day: Both ε values for someone who has seen every completed window separately.
        left_out: A sentence on the reports of other versions that the answers leave out, or "".
        days_note: A sentence that says why days are approximate, or "".
        population_note: A sentence that says why shares are not of devices, or "".
        groups: The number of reports by value of the open group, or None if the experiment has none.
    """

    question: Question
    estimate: FleetEstimate
    answers: Answers
    once: TwoEpsilons
    every_day: TwoEpsilons
    guide: Guide
    findings: Findings | None
    comparison: str = ""
    rows_words: str = ""
    left_out: str = ""
    days_note: str = ""
    population_note: str = ""
    groups: GroupReports | None = None

    @property
    def headline(self) -> str:
        """The opening sentence, on the rows that the question names, or else on the findings; may be ""."""
        text = self.rows_words or self._finding
        left_out = "" if self.question.is_trend else self.left_out  # a note below a trend has it
        notes = (self.population_note, left_out, self.days_note)
        notes = (note for note in notes if note not in text)
        return " ".join([text, *notes]).strip()

    @property
    def reports(self) -> int:
        """The number of reports; those of a trend may be of versions that the estimate leaves out."""
        return self.answers[0].reports if self.question.is_trend else self.estimate.reports

    @property
    def which(self) -> str:
        """A description of these reports: their fleet, windows, version and boards."""
        return self.answers[0].about if self.question.is_trend else self.estimate.which

    @property
    def _finding(self) -> str:
        return self.comparison or ("" if self.findings is None else self.findings.sentence)

    @property
    def to_print(self) -> Answers:
        """The tables in printing order: those that the question names come before the histogram.

        Changes that a trend's headline already reports are not repeated below it.
        """
        ordered = sorted(self.answers, key=lambda table: table.kind in _DEFAULT_KINDS)
        return Answers(replace(table, changes=()) if self.rows_words else table for table in ordered)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that can be serialized as JSON."""
        first = self.answers[0]
        findings = () if self.findings is None or self.comparison else self.findings.findings
        return {
            "experiment": self.estimate.experiment.name,
            "unit": first.unit,
            "selection": self.which,
            "against": first.against or None,
            "group": None if self.groups is None else self.groups.to_dict(),
            "finding": self._finding,
            "findings": [finding.to_dict() for finding in findings],
            "reports": self.reports,
            "left_out": self.left_out,
            "day": self.estimate.calendar.zone_name,
            "week": WEEKDAYS[self.estimate.calendar.first_weekday],
            "days_note": self.days_note,
            "confidence": self.question.confidence,
            "stderr_method": self.estimate.estimates.stderr_method,
            "approximate": self.estimate.approximate,
            "epsilon": plain(self.once),
            "epsilon_every_day": plain(self.every_day),
            "in_words": plain(self.guide),
            "answers": plain(self.answers),
        }

    def to_json(self) -> str:
        """Return the reply as JSON text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def picture_answers(self) -> Answers:
        """Return the tables to plot: those that the question asked for, otherwise the histogram."""
        if self.estimate.experiment.type == "pair" and not self.question.compares and not self.question.pair:
            return Answers([self.estimate.pairs.joint(self.question.rows or ROWS)])
        selection = Answers(table for table in self.answers if table.kind not in _DEFAULT_KINDS)
        return selection or Answers(self.answers[:1])


def ask(facts: Facts, question: Question) -> Reply:
    """Answer a question.

    Raises:
        UsageError: If options conflict, a name does not exist, or a period has no reports.
        UnitsError: If a range, label or quantile does not fit the experiment.
        EstimateError: If the reports cannot answer the question.
    """
    shuffling = Shuffling(question.delta, question.honest)
    resolved = question.resolve(facts)
    selection, against = resolved.selection, resolved.against
    estimate, answers = answer_question(facts, resolved)
    findings, comparison = None, ""
    left_out = estimate.left_out if question.is_trend else _left_out(facts, resolved)
    if against:
        comparison = describe_change(facts, answers, resolved)
    elif estimate.experiment.type != "text" or question.ranges in ((), _listed_texts(facts, selection)):
        finding_selection = _finding_selection(question, resolved)
        findings = find(
            facts,
            finding_selection,
            unit=question.unit,
            period=resolved.period,
            left_out="" if question.is_trend else None,
        )
    sides = [selection, *([against] if against else [])]
    if findings is not None:
        sums = [findings.windows, *findings.histograms]
        sides += [
            replace(selection, windows=windows) for windows in sums if {*windows} != {*selection.windows}
        ]
    whole = replace(selection, windows=())
    every_day = second_epsilon.overview(facts, whole, shuffling).all_windows
    if question.is_trend:
        answers = second_epsilon.add_epsilons(facts, answers, selection, shuffling, question.by or "")
        once = second_epsilon.of_windows(facts, selection, shuffling)
    else:
        once = second_epsilon.seen_once(facts, sides, every_day, shuffling)
    windows = len(facts.selected(whole).windows) if _WITH_CHANGES & estimate.answers else 1
    words = guide(answers, every_day, windows, unprotected(estimate.experiment))
    rows_words = "" if against else describe_rows(facts, answers, question, resolved)
    selected = facts.selected(selection)
    states_shares = any(table.quantity == "share" for table in answers)
    return Reply(
        resolved.question,
        estimate,
        answers,
        once,
        every_day,
        words,
        findings,
        comparison,
        rows_words,
        left_out,
        selected.days_note,
        "" if against or not states_shares else selected.population_note(),
        selected.reports_by_value,
    )


def _listed_texts(facts: Facts, selection: Selection) -> tuple[str, ...]:
    """Return the texts listed in the experiment's file; its findings cover only these."""
    return tuple(facts.selected(selection).newest.asked.splitlines())


def comparison(facts: Facts, question: Question, write: Numbers = ENGLISH) -> str:
    """Return the headline of a comparison; by default it compares the answers to the file's questions."""
    resolved = question.resolve(facts)
    text = describe_change(facts, answer_question(facts, resolved)[1], resolved, write)
    notes = [_left_out(facts, resolved, write), facts.selected(resolved.selection).days_note]
    return " ".join(filter(None, [text, *notes]))


def _left_out(facts: Facts, resolved: ResolvedQuestion, write: Numbers = ENGLISH) -> str:
    """Return the sentences on what the answers leave out; of a comparison, on each side."""
    after = facts.selected(resolved.selection).left_out(write)
    before = "" if resolved.against is None else facts.selected(resolved.against).left_out(write)
    if not before:
        return after
    return f"{after} On the other side, {before[:1].lower()}{before[1:]}".strip()


def describe_change(
    facts: Facts, answers: Answers, resolved: ResolvedQuestion, write: Numbers = ENGLISH
) -> str:
    """Describe the first change in a sentence: the values after and before, and how certain the change is."""
    question, selection, against = resolved.question, resolved.selection, resolved.against
    table = next((table for table in answers if table.kind == "change" and table.rows), None)
    if table is None or against is None:
        return ""
    names = [quantile_name(q) for q in question.quantiles[:1] if not question.ranges]
    if names:
        table = next((table for table in answers if any(row.name in names for row in table.rows)), table)
    rows = [row for row in table.rows if isinstance(row, ChangeRow)]
    named_rows = [row for row in rows if row.name in names]
    # Without a chosen row, report the change in the histogram that is least likely to be due to chance.
    row = named_rows[0] if named_rows else rows[0] if question.ranges else min(rows, key=lambda row: row.p)
    one_fleet = against.fleet == selection.fleet
    sides = [(against, resolved.before), (selection, resolved.period)]
    before, after = (_side(facts, side, period, one_fleet, write) for side, period in sides)
    unit = None if table.quantity == "share" else table.unit
    name = _title(row, facts.selected(selection).answering.newest.experiment, table.unit, write)
    name += APPROXIMATE_MARK * table.approximate
    return sentences.comparison(row, name, (before, after), unit, question.confidence, write)


def describe_rows(facts: Facts, answers: Answers, question: Question, resolved: ResolvedQuestion) -> str:
    """Describe the rows that a question names: "18 to 24 °C: 37% of devices (29 to 45%), ...".

    For a trend, the sentences give the value over the newest completed days and say whether it changed. The
    result is "" if the question names no rows.
    """
    if not question.names_rows:
        return ""
    experiment = facts.selected(resolved.selection).answering.newest.experiment
    if question.is_trend and experiment.type != "pair":
        asks = [ask for table in answers for ask in _asks_by_name(question, table, question.ranges).values()]
        selection = _finding_selection(question, resolved)
        return " ".join(answer_sentences(facts, selection, asks, question.unit, resolved.period))
    selection, period = resolved.selection, resolved.period
    if question.is_trend:
        selected = facts.selected(selection)
        windows = list(group_windows(selection.windows, question.by or "", selected.calendar).values())[-1]
        selection, period = replace(selection, windows=windows), None
    selected = facts.selected(selection)
    dates = sentences.dates(selected.period(period), selected.now)
    scope = ", ".join(filter(None, [selected.boards, dates]))
    tables = [table for table in answers if question.is_trend or table.kind in _SENTENCE_KINDS]
    return " ".join(_table_in_words(table, experiment, scope) for table in tables)


def _finding_selection(question: Question, resolved: ResolvedQuestion) -> Selection:
    """Return the reports that a finding covers; for a trend without a period, those from the newest days."""
    has_period = question.windows or question.last
    selection = resolved.selection
    return selection if has_period or not question.is_trend else replace(selection, windows=())


def _table_in_words(table: Answer, experiment: Experiment, scope: str) -> str:
    """Describe the first rows of a table in a sentence; for a trend, the newest rows."""
    unit = None if table.quantity == "share" else table.unit
    if isinstance(difference := table.rows[0], DifferenceRow):
        return sentences.difference(difference, unit, table.confidence)
    rows = [row for row in table.rows if not (isinstance(row, CandidateRow) and not row.texts)]
    if table.kind == "trend":
        rows = list({row.name: row for row in rows}.values())
    listed = list[str]()
    for row in rows[:_MAX_IN_WORDS]:
        # A pair's share is of the devices that meet a condition.
        population = "" if experiment.type == "pair" else table.population
        has_enough = table.tells(row)
        value = sentences.amount(row, unit, ENGLISH, population) if has_enough else "too few reports to say"
        value += APPROXIMATE_MARK * table.approximate
        title = _title(row, experiment, table.unit)
        if experiment.type == "pair":
            listed.append(f"{value} with {title}")
        elif unit is None and row.lower is None:
            listed.append(f"{title}: {value}")
        else:
            listed.append(f"{capitalize(title)}: {value}")
    if len(rows) > _MAX_IN_WORDS:
        listed.append(f"{len(rows) - _MAX_IN_WORDS:,} more below")
    about = table.title.partition(" given")[0]
    text = "; ".join(listed) + (f", {scope}" if scope else "")
    return sentences.end_sentence(f"{about}: {text}" if about else text)


def _title(row: Row, experiment: Experiment, unit: str, write: Numbers = ENGLISH) -> str:
    """Return the row's name with its edges and unit: "24 °C and above"."""
    if row.lower is None or row.upper is None:
        return row.name
    edges = bin_edges(experiment)
    return bin_range(row.lower, row.upper, (float(edges[0]), float(edges[-1])), unit, write)


def _side(facts: Facts, selection: Selection, period: Period | None, one_fleet: bool, write: Numbers) -> str:
    """Return the fleet (if the two differ), version, boards and dates of one side of a comparison."""
    parts = [] if one_fleet else [f"fleet {selection.fleet}"]
    parts.append(version_name(selection.version))
    selected = facts.selected(selection)
    parts.append(selected.boards)
    dates = sentences.dates(selected.period(period), selected.now, write)
    return ", ".join(filter(None, [*parts, dates])) or "all reports"


def answer_question(
    facts: Facts, resolved: ResolvedQuestion, kinds: tuple[Kind, ...] = ()
) -> tuple[FleetEstimate, Answers]:
    """Return the estimate that a question is based on, and its answers, without any ε.

    Args:
        facts: The contents of the store.
        resolved: The question.
        kinds: For an experiment with values, the kinds of tables to return; empty for all available kinds.

    Raises:
        HushmoteError: In the same cases as ask().
    """
    question = resolved.question
    answering = facts.selected(resolved.selection).answering
    _check_answerable([v.experiment for v in answering.versions], question)
    estimate = estimate_of(facts, resolved.selection, question)
    if question.is_trend:
        wants_mean = MEAN in estimate.answers and not (question.ranges or question.quantiles)
        statistics = [*question.ranges, *([MEAN] if wants_mean else [])]
        if "quantiles" in estimate.answers and not (statistics or question.quantiles):
            resolved = replace(resolved, question=question.replace(quantiles=(0.5,)))
        tables, left_out = trend_tables(facts, resolved, statistics)
        return replace(estimate, left_out=left_out), tables
    if resolved.against is None:
        return estimate, answers_of_estimate(estimate, question, kinds)
    before = estimate_of(facts, resolved.against, question)
    rows, how = question.rows or ROWS, {"quantiles": question.quantiles, "cdf": question.cdf}
    return estimate, estimate.change_since(before, *question.ranges, rows=rows, pair=question.pair, **how)


def estimate_of(facts: Facts, selection: Selection, question: Question) -> FleetEstimate:
    """Return the estimate of a selection, with the question's weights, unit and confidence.

    Raises:
        HushmoteError: In the same cases as ask().
    """
    selected = facts.selected(selection)
    unit = selected.unit if question.unit is None else question.unit
    estimates = selected.estimate(question.weigh)
    sources = selected.answering.sources
    estimate = FleetEstimate(estimates, str(selection), unit, question.confidence, None, sources)
    version, left_out = selection.version, selected.left_out()
    more = {"boards": selected.boards, "left_out": left_out, "calendar": selected.calendar}
    return replace(estimate, version=version, population=selected.population, **more)


def trend_tables(facts: Facts, resolved: ResolvedQuestion, statistics: Sequence[str]) -> tuple[Answers, str]:
    """Return the trends of the statistics, and of the question's quantiles or pair, and what they leave out.

    Args:
        facts: The contents of the store.
        resolved: The question.
        statistics: Ranges, labels or "mean".

    Raises:
        HushmoteError: In the same cases as ask().
    """
    question, selection = resolved.question, resolved.selection
    selected = facts.selected(selection)
    unit = selected.unit if question.unit is None else question.unit
    windows, calendar = selected.by_window(question.weigh, question.by or ""), selected.calendar
    names = scope.span(list(windows)) if question.by else span(windows, calendar)
    names += f", days in {calendar.day}" if question.by and calendar.is_local else ""
    about = which_reports(selection.fleet, names, boards=selected.boards)
    frame = Frame(unit, question.confidence, about, calendar=calendar, population=selected.population)
    versions = [v.experiment for v in selected.versions]
    tables = trend(windows, statistics, frame, question.quantiles, question.pair, versions)
    tables = Answers(_with_partial_groups(table, facts, selected, question.by or "") for table in tables)
    names = {row.window for table in tables for row in table.rows if isinstance(row, TrendRow)}
    shown = {name: estimates for name, estimates in windows.items() if name in names}
    if left_out := selected.left_out_of_trend(question.by or "", shown):
        tables = Answers([replace(tables[0], note=f"{tables[0].note}\n{left_out}".strip()), *tables[1:]])
    newest = list(windows.values())[-1].experiment
    if newest.type == "pair":
        return tables, left_out
    # All tables share one false-alarm allowance, so their statistics are scanned together.
    asks = dict[str, Ask]()
    for table in tables:
        asks |= _asks_by_name(question, table, statistics)
    changes = change_sentences(facts, selection, asks, question.unit)
    return Answers(_with_changes(table, changes, newest) for table in tables), left_out


def _with_partial_groups(table: Answer, facts: Facts, selected: Selected, by: str) -> Answer:
    """Return the trend table with partial days, weeks or months marked, and a note on when weeks begin."""
    windows, calendar = selected.selection.windows or selected.windows, selected.calendar
    names = {row.window for row in table.rows if isinstance(row, TrendRow)}
    groups = partial_groups(windows, selected.windows, by, facts.at, calendar)
    groups = tuple(group for group in groups if group.name in names)
    partial = {group.name for group in groups}
    rows = tuple(
        replace(row, partial=True) if isinstance(row, TrendRow) and row.window in partial else row
        for row in table.rows
    )
    notes = [
        table.note,
        partial_words(groups, by, selected.now),
        weeks_words(calendar) if by == "week" else "",
    ]
    return replace(table, rows=rows, note="\n".join(filter(None, notes)))


def _with_changes(table: Answer, changes: Mapping[str, str], experiment: Experiment) -> Answer:
    """Return the trend table with the sentences that say whether its statistics changed, by name."""
    titles = {row.name: _title(row, experiment, table.unit) for row in table.rows}
    return replace(
        table,
        changes=tuple(
            f"{titles[name]}: {text[:1].lower()}{text[1:]}"
            for name, text in changes.items()
            if name in titles
        ),
    )


def _asks_by_name(question: Question, table: Answer, statistics: Sequence[str]) -> dict[str, Ask]:
    """Return the question behind each statistic of a trend, by name."""
    asks = dict[str, Ask]()
    texts = [text for text in statistics if text != MEAN]
    for index, name in enumerate(dict.fromkeys(row.name for row in table.rows)):
        level = next((q for q in question.quantiles if quantile_name(q) == name), None)
        if level is not None:
            asks[name] = Ask(name, "quantile", level)
        elif table.quantity == "reading":
            asks[name] = Ask(name, "mean")
        else:
            asks[name] = Ask(texts[index] if index < len(texts) else name, "share")
    return asks


def answers_of_estimate(estimate: FleetEstimate, question: Question, kinds: tuple[Kind, ...] = ()) -> Answers:
    """Return the tables that a question asks for, based on one estimate.

    Args:
        estimate: The estimate.
        question: The question.
        kinds: See answer_question().
    """
    q, answerable = question, estimate.answers
    if "candidates" in answerable and not q.together:
        return Answers([estimate.candidates(q.ranges, most=q.top or MAX_SHOWN)])
    if "candidates" in answerable:
        return Answers([estimate.together(*q.ranges)])
    if "discovery" in answerable:
        return Answers([estimate.discover(q.alphabet)])
    return (
        estimate.pairs.ask(q.pair, q.rows or ROWS)
        if "pairs" in answerable
        else _value_tables(estimate, q, kinds)
    )


def _value_tables(estimate: FleetEstimate, q: Question, kinds: tuple[Kind, ...]) -> Answers:
    """Return the tables that the experiment supports: histogram, ranges, quantiles, mean, top and cdf."""
    answerable, tables = estimate.answers, list[Answer]()

    def is_included(kind: Kind, requested: object) -> bool:
        return bool(requested) and (not kinds or kind in kinds)

    if is_included("histogram", "frequencies" in answerable or q.post != "raw"):
        rows = _finest_rows(estimate) if q.rows == FINE else q.rows or ROWS
        tables.append(estimate.histogram(rows, post=q.post))
    if is_included("ranges", q.ranges):
        tables.append((estimate.together if q.together else estimate.share)(*q.ranges, post=q.post))
    if is_included("quantiles", q.quantiles):
        tables.append(estimate.quantile(*q.quantiles))
    if is_included("moments", MEAN in answerable):
        tables.append(estimate.mean())
    if is_included("top", q.top):
        tables += estimate.top(q.top)
    if is_included("cdf", q.cdf):
        tables.append(estimate.cdf())
    return Answers(tables)


def _finest_rows(estimate: FleetEstimate) -> int:
    """Return the largest number of histogram rows that the reports can tell apart, but at least 16."""
    finest = _ROW_COUNTS[0]
    for rows in (*_ROW_COUNTS, estimate.experiment.domain):
        if rows > estimate.experiment.domain or estimate.experiment.type != "number":
            break
        if is_noisy(estimate.histogram(rows)):
            break
        finest = rows
    return finest


def check_rows(experiment: Experiment) -> None:
    """Raise UsageError if a number of rows cannot apply to an experiment, because it has no number."""
    if not any(part.type == "number" for part in parts_of(experiment) or [experiment]):
        raise UsageError(
            f"{option('rows')} groups a number's bins, but {experiment.name} has no number; omit it"
        )


def _check_answerable(experiments: Sequence[Experiment], question: Question) -> None:
    """Raise UnanswerableError for the first option that one of the experiment's versions cannot answer."""
    processed = question.post != "raw"
    options: tuple[tuple[str, set[str], object], ...] = (
        (option("range"), {"ranges", "candidates"}, question.ranges),
        (option("quantile"), {"quantiles"}, question.quantiles),
        (option("top"), {"frequencies", "candidates"}, question.top),
        (option("alphabet"), {"discovery"}, question.alphabet is not None),
        (option("cdf"), {"quantiles"}, question.cdf),
        (option("rows"), {"frequencies", "pairs", *(["mean"] if processed else [])}, question.rows),
        (option("post"), {"frequencies", "mean"}, processed),
        (f"{option('of')}, {option('given')} and {option('joint')}", {"pairs"}, question.pair),
        (option("trend"), _WITH_CHANGES, question.is_trend),
        (option("against"), _WITH_CHANGES, question.against),
    )
    instead = ""
    if experiments[-1].type == "pair":  # a pair has separate options
        first, *_, last = (part.name for part in parts_of(experiments[-1]))
        asks = f"{option('of')} and {option('given')}"
        instead = f", and use {asks}, as in {option('of', last)} {option('given', first)}"
    for name, kinds, is_set in options:
        if is_set:
            require(experiments, kinds, f"omit {name}{instead}")
    require(experiments, OF_VALUES | _WITHOUT_VALUES, "nothing here asks that")
    if question.rows and not question.is_trend:
        check_rows(experiments[-1])
    if not question.ranges:
        unnamed = OF_VALUES | _WITHOUT_VALUES - {"candidates"}
        listed = command(f"{option('candidates', 'FILE')}, one per line", "candidates")
        require(experiments, unnamed, f"name them, with {listed}, or each with {option('range')}")
