"""One way to ask: a question in, a reply out; the command, the page, Python and published results go it.

Names are resolved once, versions are read once, and estimates are kept by the counts that they rest on.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...device.ldp_client import Experiment
from ..errors import UsageError
from ..experiments.asking import OF_VALUES, require
from ..experiments.asks import Ask, asks_of
from ..experiments.units import bin_edges
from ..hints import command, option
from ..mechanisms.views.factors import parts_of
from ..plain import plain
from ..words import findings as sentences
from ..words.answers import bins
from ..words.numbers import ENGLISH, Numbers
from ..words.which import which_reports
from . import second_epsilon
from .answer import Answer, Answers, Frame
from .finding import Findings, change_sentences, find
from .fleet_estimate import MEAN, FleetEstimate, trend
from .guide import NOISY, Guide, guide, half_width
from .pair_tables import NO_QUESTION, PairQuestion
from .periods import Period, completed, period_of, usual
from .query import Facts, Selection, WeighBy
from .rows import APPROXIMATE_MARK, CONFIDENCE, ChangeRow, Kind, Row, quantile_name
from .second_epsilon import Shuffling, TwoEpsilons
from .texts import MOST_SHOWN

ROWS = 16
"""Rows of a number's histogram at most, where nobody says how many."""

FINE = 0
"""Rows of a histogram that is as fine as its reports can tell."""

_FINER = (16, 64)  # rows that are tried before single bins
_OTHERWISE = {"candidates", "discovery", "pairs"}  # what has neither shares of values nor a mean
_COMPARED = {"ranges", "mean", "candidates", "pairs"}  # what has trends and changes


@dataclass(frozen=True)
class EstimateQuestion:
    """What is asked of which reports.

    selection   the reports; its fleet and experiment are named. Without windows, those of the newest
    completed
                days; of a trend, all completed ones
    against     the reports that they are compared with, or None; without windows, likewise
    period      the time that was asked for, if it may begin and end without reports; before: of `against`
    ranges      low:high in the reading's unit, labels, or texts
    together    whether what lies in any of the ranges is asked for, in one row, and not each
    quantiles   each between 0 and 1
    top         how many of the most common values; 0 for none, of texts for MOST_SHOWN
    cdf         whether the share below every edge is asked for
    rows        of a number's histogram at most; None for ROWS, FINE for as many as the reports tell apart
    post        a post-processing's name
    trend       a row for each window
    by          of a trend, what windows are put together by: one of periods.BY, or empty for none
    unit        what readings are in; None for what the store says
    alphabet    what texts that nobody listed are made of; None for printable ASCII
    pair        of a pair, which share or mean, given what
    tables      of values, the kinds of tables that are wanted; empty for all that the experiment has
    """

    selection: Selection
    against: Selection | None = None
    ranges: tuple[str, ...] = ()
    together: bool = False
    quantiles: tuple[float, ...] = ()
    top: int = 0
    cdf: bool = False
    rows: int | None = None
    post: str = "raw"
    trend: bool = False
    by: str = ""
    confidence: float = CONFIDENCE
    weigh: WeighBy = "reports"
    shuffling: Shuffling = field(default_factory=Shuffling)
    unit: str | None = None
    alphabet: str | None = None
    pair: PairQuestion = NO_QUESTION
    tables: tuple[Kind, ...] = ()
    period: Period | None = None
    before: Period | None = None

    @property
    def compares(self) -> bool:
        """Whether it is about more than one histogram, apart."""
        return self.trend or self.against is not None

    def arguments(self) -> list[str]:
        """The arguments of the command `estimate` that ask the same, but for the store, δ and the unit."""
        s, other = self.selection, self.against
        against: list[str] = []
        if other:
            against = list(other.windows)
            against += [f"fleet={other.fleet}"] if other.fleet != s.fleet else []
            against += [f"version={other.version}"] if other.version and other.version != s.version else []
        options: dict[str, Iterable[str]] = {
            "--window": s.windows,
            "--version": [s.version] if s.version else [],
            "--range": self.ranges,
            "--quantile": [repr(float(q)) for q in self.quantiles],
            "--top": [f"{self.top}"] if self.top else [],
            "--rows": [f"{self.rows}"] if self.rows else [],
            "--alphabet": [] if self.alphabet is None else [self.alphabet],
            "--post": [self.post] if self.post != "raw" else [],
            "--against": against,
            "--confidence": [f"{self.confidence:g}"] if self.confidence != CONFIDENCE else [],
            "--weigh": [self.weigh] if self.weigh != "reports" else [],
            "--by": [self.by] if self.by else [],
        }
        flags = {"--together": self.together, "--cdf": self.cdf, "--trend": self.trend}
        # With =, so that a value that begins with - is no option of its own.
        asked = [f"{option}={value}" for option, values in options.items() for value in values]
        asked += [flag for flag, on in flags.items() if on]
        return [s.experiment, "--fleet", s.fleet, *asked, *self.pair.arguments()]


@dataclass(frozen=True)
class Reply:
    """A question's answers, and what belongs to all of them.

    findings    the answers to the questions of the experiment's file, over the same period
    comparison  if a comparison was asked for, its first change in a sentence
    once        both ε of all that is shown, for someone who sees it once
    every_day   both ε for someone who has seen every completed window by itself
    """

    question: EstimateQuestion
    estimate: FleetEstimate
    answers: Answers
    once: TwoEpsilons
    every_day: TwoEpsilons
    guide: Guide
    findings: Findings | None
    comparison: str = ""

    @property
    def headline(self) -> str:
        """The first sentence: the comparison if one was asked for, otherwise the findings; or ""."""
        return self.comparison or ("" if self.findings is None else self.findings.sentence)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        first = self.answers[0]
        findings = () if self.findings is None or self.comparison else self.findings.findings
        return {
            "experiment": self.estimate.experiment.name,
            "unit": first.unit,
            "selection": self.estimate.which,
            "against": first.against or None,
            "finding": self.headline,
            "findings": [one.to_dict() for one in findings],
            "reports": self.estimate.reports,
            "confidence": self.question.confidence,
            "stderr_method": self.estimate.estimates.stderr_method,
            "approximate": self.estimate.approximate,
            "epsilon": plain(self.once),
            "epsilon_every_day": plain(self.every_day),
            "in_words": plain(self.guide),
            "answers": plain(self.answers),
        }

    def to_json(self) -> str:
        """A file of JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def pictured(self) -> Answers:
        """What a picture shows: what was asked for, and where nothing was, the histogram."""
        if self.estimate.experiment.type == "pair" and not self.question.compares and not self.question.pair:
            return Answers([self.estimate.pairs.joint(self.question.rows or ROWS)])
        asked = Answers(one for one in self.answers if one.kind not in ("histogram", "moments"))
        return asked or Answers(self.answers[:1])


def ask(facts: Facts, question: EstimateQuestion) -> Reply:
    """Answer a question. Raises UsageError, UnitsError or EstimateError for what cannot be answered."""
    given = question.selection.windows
    question = _completed(facts, question)
    selection, shuffling = question.selection, question.shuffling
    estimate, answers = answered(facts, question)
    findings, comparison = None, ""
    if question.against:
        comparison = compared(facts, answers, question)
    elif estimate.experiment.type != "text" or question.ranges in ((), _own_texts(facts, selection)):
        shown = selection if given or not question.trend else replace(selection, windows=())
        findings = find(facts, shown, unit=question.unit, wanted=question.period)
    sides = [selection, *([question.against] if question.against else [])]
    if findings is not None:
        sums = [findings.windows, *findings.histograms]
        sides += [
            replace(selection, windows=windows) for windows in sums if {*windows} != {*selection.windows}
        ]
    if question.trend:
        answers = second_epsilon.beside(facts, answers, selection, shuffling, question.by)
        once = second_epsilon.of_windows(facts, selection, shuffling)
    else:
        once = second_epsilon.of_selections(facts, *sides, shuffling=shuffling)
    whole = replace(selection, windows=())
    every_day = second_epsilon.overview(facts, whole, shuffling).all_windows
    windows = len(facts.selected(whole).there) if _COMPARED & estimate.answers else 1
    words = guide(answers, every_day, windows)
    return Reply(question, estimate, answers, once, every_day, words, findings, comparison)


def _own_texts(facts: Facts, selection: Selection) -> tuple[str, ...]:
    """Return the texts of the experiment's file: a finding about others would ask for their names."""
    return tuple(facts.selected(selection).newest.asked.splitlines())


def comparison(facts: Facts, question: EstimateQuestion, write: Numbers = ENGLISH) -> str:
    """Return the headline of a comparison; it is of what the experiment's file asks by default."""
    question = _completed(facts, question)
    return compared(facts, answered(facts, question)[1], question, write)


def compared(facts: Facts, answers: Answers, question: EstimateQuestion, write: Numbers = ENGLISH) -> str:
    """Return the first change in a sentence: what it is, what it was, and how sure that is."""
    table = next((one for one in answers if one.kind == "change" and one.rows), None)
    if table is None or question.against is None:
        return ""
    names = [quantile_name(q) for q in question.quantiles[:1] if not question.ranges]
    if names:
        table = next((one for one in answers if any(row.name in names for row in one.rows)), table)
    rows = [row for row in table.rows if isinstance(row, ChangeRow)]
    named = [row for row in rows if row.name in names]
    # Of a histogram nobody chose a row: the one that is surest to have changed is the first sentence.
    row = named[0] if named else rows[0] if question.ranges else min(rows, key=lambda one: one.p)
    one_fleet = question.against.fleet == question.selection.fleet
    sides = [
        (question.against, question.before),
        (question.selection, question.period),
    ]
    before, after = (_side(facts, selection, period, one_fleet, write) for selection, period in sides)
    unit = None if table.quantity == "share" else table.unit
    name = _title(row, facts.selected(question.selection).newest.experiment, table.unit, write)
    name += APPROXIMATE_MARK * table.approximate
    return sentences.compared(row, name, (before, after), unit, question.confidence, write)


def _title(row: Row, experiment: Experiment, unit: str, write: Numbers = ENGLISH) -> str:
    """Return what a row is of, with the unit: "24 °C and above"."""
    if row.lower is None or row.upper is None:
        return row.name
    edges = bin_edges(experiment)
    return bins(row.lower, row.upper, (float(edges[0]), float(edges[-1])), unit, write)


def _side(facts: Facts, selection: Selection, wanted: Period | None, one_fleet: bool, write: Numbers) -> str:
    """Return the fleet, version and dates of one side of a comparison, as far as they may differ."""
    parts = [] if one_fleet else [f"fleet {selection.fleet}"]
    parts += [f"version {selection.version}"] if selection.version else []
    dates = sentences.dates(period_of(selection.windows, wanted), facts.at, write)
    return ", ".join(filter(None, [*parts, dates])) or "all reports"


def _completed(facts: Facts, question: EstimateQuestion) -> EstimateQuestion:
    """Return the question with its windows; a comparison asks what the experiment's file asks by default."""
    selection, against = question.selection, question.against
    if not selection.windows:
        there = tuple(facts.selected(selection).there)
        windows = completed(there, facts.at) if question.trend else usual(there, facts.at)
        selection = replace(selection, windows=windows)
    if against is not None and not against.windows:
        against = replace(against, windows=usual(tuple(facts.selected(against).there), facts.at))
    question = replace(question, selection=selection, against=against)
    newest = facts.selected(question.selection).newest
    given = question.ranges or question.quantiles or question.cdf or question.rows
    if question.against is None or given or newest.experiment.type in ("pair", "text"):
        return question
    own = newest.asked or newest.experiment.type == "bool"
    asks = asks_of(newest.experiment, newest.asked.splitlines()) if own else ()
    ranges = tuple(one.text for one in asks if one.kind == "share")
    return replace(
        question, ranges=ranges, quantiles=tuple(one.level for one in asks if one.kind == "quantile")
    )


def answered(facts: Facts, question: EstimateQuestion) -> tuple[FleetEstimate, Answers]:
    """The estimate that a question rests on, and its answers, without any ε. Errors as ask()."""
    _check_answered([v.experiment for v in facts.selected(question.selection).versions], question)
    estimate = estimate_of(facts, question.selection, question)
    if question.trend:
        usual = MEAN in estimate.answers and not (question.ranges or question.quantiles)
        asked = [*question.ranges, *([MEAN] if usual else [])]
        return estimate, over_time(facts, question, asked)
    if question.against is None:
        return estimate, asked_of(estimate, question)
    before = estimate_of(facts, question.against, question)
    rows, how = question.rows or ROWS, {"quantiles": question.quantiles, "cdf": question.cdf}
    return estimate, estimate.change_since(before, *question.ranges, rows=rows, pair=question.pair, **how)


def estimate_of(facts: Facts, selection: Selection, question: EstimateQuestion) -> FleetEstimate:
    """The estimate of a selection, with a question's weights, unit and confidence. Errors as ask()."""
    selected = facts.selected(selection)
    unit = selected.unit if question.unit is None else question.unit
    estimates = selected.estimate(question.weigh)
    return FleetEstimate(estimates, str(selection), unit, question.confidence, None, selected.sources)


def over_time(facts: Facts, question: EstimateQuestion, statistics: Sequence[str]) -> Answers:
    """How "mean", ranges, labels and a question's quantiles or pair went over windows. Errors as ask()."""
    selected = facts.selected(question.selection)
    unit = selected.unit if question.unit is None else question.unit
    windows = selected.by_window(question.weigh, question.by)
    frame = Frame(unit, question.confidence, which_reports(question.selection.fleet, list(windows)))
    tables = trend(windows, statistics, frame, question.quantiles, question.pair)
    if selected.newest.experiment.type == "pair":
        return tables
    return Answers(_with_changes(facts, question, table, statistics) for table in tables)


def _with_changes(
    facts: Facts, question: EstimateQuestion, table: Answer, statistics: Sequence[str]
) -> Answer:
    """Return a trend with a note on whether each of its statistics changed."""
    names, asks = list(dict.fromkeys(row.name for row in table.rows)), dict[str, Ask]()
    texts = [text for text in statistics if text != MEAN]
    for number, name in enumerate(names):
        level = next((q for q in question.quantiles if quantile_name(q) == name), None)
        if level is not None:
            asks[name] = Ask(name, "quantile", level)
        elif table.quantity == "reading":
            asks[name] = Ask(name, "mean")
        else:
            asks[name] = Ask(texts[number] if number < len(texts) else name, "share")
    changes = change_sentences(facts, question.selection, asks, question.unit)
    experiment = facts.selected(question.selection).newest.experiment
    titles = {row.name: _title(row, experiment, table.unit) for row in table.rows}
    lines = [f"{titles[name]}: {text[:1].lower()}{text[1:]}" for name, text in changes.items()]
    return replace(table, note="\n".join(filter(None, [table.note, *lines])))


def asked_of(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """What a question asks of one estimate, in the way of its kind."""
    q, can = question, estimate.answers
    if "candidates" in can and not q.together:
        return Answers([estimate.candidates(q.ranges, most=q.top or MOST_SHOWN)])
    if "candidates" in can:
        return Answers([estimate.together(*q.ranges)])
    if "discovery" in can:
        return Answers([estimate.discover(q.alphabet)])
    return estimate.pairs.ask(q.pair, q.rows or ROWS) if "pairs" in can else _of_values(estimate, q)


def _of_values(estimate: FleetEstimate, q: EstimateQuestion) -> Answers:
    """Its histogram, ranges, quantiles, mean, top and cdf, in this order, as far as it has them."""
    can, tables = estimate.answers, list[Answer]()

    def wanted(kind: Kind, there: object) -> bool:
        return bool(there) and (not q.tables or kind in q.tables)

    if wanted("histogram", "frequencies" in can or q.post != "raw"):
        rows = _fine_enough(estimate) if q.rows == FINE else q.rows or ROWS
        tables.append(estimate.histogram(rows, post=q.post))
    if wanted("ranges", q.ranges):
        tables.append((estimate.together if q.together else estimate.share)(*q.ranges, post=q.post))
    if wanted("quantiles", q.quantiles):
        tables.append(estimate.quantile(*q.quantiles))
    if wanted("moments", MEAN in can):
        tables.append(estimate.mean())
    if wanted("top", q.top):
        tables += estimate.top(q.top)
    if wanted("cdf", q.cdf):
        tables.append(estimate.cdf())
    return Answers(tables)


def _fine_enough(estimate: FleetEstimate) -> int:
    """Rows of a number's histogram: as many as its reports can tell apart, at least 16."""
    good = _FINER[0]
    for rows in (*_FINER, estimate.experiment.domain):
        if rows > estimate.experiment.domain or estimate.experiment.type != "number":
            break
        answer = estimate.histogram(rows)
        if half_width(answer) > NOISY * max(row.value for row in answer.rows):
            break
        good = rows
    return good


def _check_answered(asked: Sequence[Experiment], question: EstimateQuestion) -> None:
    """Raise NotAnswered for the first option that asks an experiment's versions for what they lack."""
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
        (option("trend"), _COMPARED, question.trend),
        (option("against"), _COMPARED, question.against),
    )
    instead = ""
    if asked[-1].type == "pair":  # which has its own options
        first, *_, last = (part.name for part in parts_of(asked[-1]))
        asks = f"{option('of')} and {option('given')}"
        instead = f", and ask with {asks}, as in {option('of', last)} {option('given', first)}"
    for name, words, wanted in options:
        if wanted:
            require(asked, words, f"leave {name} out{instead}")
    require(asked, OF_VALUES | _OTHERWISE, "nothing here asks that")
    numbers = [one for one in parts_of(asked[-1]) or asked[-1:] if one.type == "number"]
    if question.rows and not (numbers or question.trend):
        raise UsageError(f"{option('rows')} groups a number, and {asked[-1].name} has none: leave it out")
    if not question.ranges:
        unnamed = OF_VALUES | _OTHERWISE - {"candidates"}
        listed = command(f"{option('candidates', 'FILE')}, one a line", "candidates")
        require(asked, unnamed, f"name them, with {listed}, or each with {option('range')}")
