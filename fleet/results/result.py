"""The result of an experiment as one small JSON document, for MQTT, HTTP, pages and boards."""

import datetime
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...device.ldp_client import Experiment
from ...server.answers import second_epsilon
from ...server.answers.answer import Answers
from ...server.answers.ask import answers_of_estimate, estimate_of
from ...server.answers.finding import find
from ...server.answers.query import Facts, Selected
from ...server.answers.question import Question, Selection
from ...server.answers.rows import CONFIDENCE, Quantity, Row
from ...server.answers.second_epsilon import ENDED, LEARNS_SINGLE
from ...server.answers.suppression import GroupReports
from ...server.answers.windows import has_ended
from ...server.epsilon import MICRO
from ...server.estimate.statistic import EstimateError
from ...server.experiments.answerable import OF_VALUES, answerable_questions, answers_only
from ...server.experiments.units import index_names
from ...server.plain import plain
from ...server.plain_text import shorten, visible
from ...server.store.store import Store, Version
from ...server.words.epsilon import rounded_up

MAX_BYTES = 4000
"""Limit of a document: with its topic it fits into a packet of 4 KiB."""

MAX_ROWS = 16
_MAX_WINDOWS = 8  # listed by name; a year of days would fill the document
_MAX_UNIT = 40
_MAX_WORDS = 200  # characters of the purpose and of the owner
_FEW_WORDS = 40  # if long labels leave no room for more

LIVE = (
    "only the ε of a report applies: this is also shown inside a window that has not ended, and "
    f"{LEARNS_SINGLE}"
)
"""The reason given if the histogram's ε is null because a running window is shown."""

NOTHING = "nothing is shown yet"
ASK = "ask it with hushmote estimate"
ENDLESS = 'its window is "all", which never ends: only live results show it'


@dataclass(frozen=True)
class Epsilons:
    """The two ε of a result, in nats.

    Attributes:
        report: ε of one report, against everyone.
        histogram: ε of everything ever shown of the experiment, for one board, rounded up; None if no ε
            applies.
        delta: The histogram's δ.
        holds: The observers that the histogram's ε protects against, or why no ε applies.
    """

    report: float
    histogram: float | None
    delta: float
    holds: str


@dataclass(frozen=True)
class Result:
    """The result of an experiment at a time.

    Attributes:
        windows: Names of the newest windows included, at most 8, oldest first.
        window_count: Number of all windows included.
        reports: Number of reports included.
        finding: The conclusion, in a sentence.
        note: Why there are no statistics, or "".
        statistics: The statistics by id: mean, median or share_NUMBER of a label, which keeps its number in
            later versions. Ids contain only letters, digits and _.
        histogram: A row for each bar. Like statistics, it is unbiased, as in `hushmote estimate`. If a choice
            has many or long labels, both include only the largest shares; both are empty if the experiment
            does not answer them.
        purpose, owner: The newest version's texts, shortened; empty if the store does not have them.
        approximate: Whether the mechanism has an error that more reports do not remove; the intervals include
            it.
        group: The number of reports by value of the open group, or None if the experiment has none; all else
            is pooled over the values.
    """

    fleet: str
    experiment: str
    type: str
    unit: str
    purpose: str
    owner: str
    windows: tuple[str, ...]
    window_count: int
    reports: int
    at: datetime.datetime
    confidence: float
    epsilon: Epsilons
    statistics: Mapping[str, Row] = field(default_factory=dict)
    histogram: tuple[Row, ...] = ()
    note: str = ""
    finding: str = ""
    approximate: bool = False
    group: GroupReports | None = None

    @property
    def quantity(self) -> Quantity:
        """The kind of statistics: readings in the unit, or shares of the fleet, 0 to 1."""
        return "reading" if self.type == "number" else "share"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON, without NaN or infinity."""
        values = {field.name: plain(getattr(self, field.name)) for field in fields(self)}
        values["statistics"] = [
            {"id": id, "name": row.name, "quantity": self.quantity, "value": row.value, **_ends(row)}
            for id, row in self.statistics.items()
        ]
        values["histogram"] = [
            {"name": row.name, "from": row.lower, "to": row.upper, "share": row.value, **_ends(row)}
            for row in self.histogram
        ]
        values["group"] = self.group and self.group.to_dict()
        return {"v": 1} | values | {"at": f"{self.at.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"}

    def to_json(self) -> bytes:
        """Return the document in UTF-8, at most MAX_BYTES."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def result_of(
    store: Store,
    fleet: str,
    name: str,
    at: datetime.datetime,
    *,
    live: bool = False,
    newest: int | None = None,
    facts: Facts | None = None,
) -> Result:
    """Return the result of an experiment over its newest completed days, with its versions pooled.

    If there are fewer than 2 reports, or the versions cannot be pooled, the result has a note instead of
    statistics.

    Args:
        store: The store.
        fleet: The fleet's name.
        name: The experiment's name.
        at: The time of the result, UTC.
        live: Include running windows; then no ε of the histogram holds.
        newest: The number of newest windows to include instead.
        facts: Facts of this store to share between several experiments.

    Raises:
        UsageError: If the fleet or the experiment does not exist.
        StoreError: If the store cannot be read.
    """
    facts = replace(facts, at=at) if facts else Facts(store, at)
    whole = facts.selected(Selection(name, fleet))
    question = Question(experiment=name, fleet=fleet)
    windows = [window for window in whole.all_counts if live or has_ended(window, at)]
    if newest is None:
        selected = [window for window in question.resolve(facts).selection.windows if window in windows]
    else:
        selected = windows[-newest:]
    selection = Selection(name, fleet, tuple(selected))
    answering = facts.selected(selection).answering
    experiment = answering.newest.experiment
    included = tuple(answering.counts) if selected else ()  # those of other versions are left out
    empty = Result(
        fleet=fleet,
        experiment=name,
        type=experiment.type,
        unit=shorten(whole.unit, _MAX_UNIT),
        purpose=shorten(visible(whole.newest.purpose), _MAX_WORDS),
        owner=shorten(visible(whole.newest.owner), _MAX_WORDS),
        windows=included[-_MAX_WINDOWS:],
        window_count=len(included),
        reports=answering.reports if selected else 0,
        at=at,
        confidence=CONFIDENCE,
        epsilon=_empty_epsilons(whole),
    )
    if not selected:
        ended = ENDLESS if "all" in whole.all_counts else "no window with reports has ended yet"
        return replace(empty, note="no reports have been counted yet" if live else ended)
    if not answerable_questions(experiment) & OF_VALUES:
        return replace(empty, note=f"{answers_only(experiment)}: {ASK}")
    question = question.replace(quantiles=(0.5,), unit=empty.unit)
    try:
        estimate = estimate_of(facts, selection, question)
    except EstimateError as e:
        return replace(empty, note=visible(str(e)))
    # Published results cannot be taken back, so ε covers every window, even if fewer are shown now.
    live_epsilons = replace(empty.epsilon, holds=LIVE)
    epsilons = live_epsilons if live else _window_epsilons(facts, Selection(name, fleet, tuple(windows)))
    if "quantiles" not in estimate.answers:
        question = question.replace(quantiles=())
    answers = answers_of_estimate(estimate, question)
    sentence = find(facts, selection).sentence
    content = {
        "statistics": _statistics(experiment, answers, _label_ids(whole.versions)),
        "histogram": _histogram(answers),
        "finding": sentence,
    }
    content |= {"approximate": estimate.approximate, "group": facts.selected(selection).reports_by_value}
    return _shorten_to_fit(replace(empty, reports=estimate.reports, epsilon=epsilons, **content))


def _empty_epsilons(whole: Selected) -> Epsilons:
    report = max(v.experiment.epsilon for v in whole.versions) / MICRO
    return Epsilons(report, None, second_epsilon.Shuffling().delta, NOTHING)


def _window_epsilons(facts: Facts, selection: Selection) -> Epsilons:
    """Return the ε of all windows, each seen separately: the difference of two sums reveals a window."""
    two = second_epsilon.overview(facts, selection).all_windows
    assert two.histogram is not None  # every window of the selection has ended
    return Epsilons(two.report, float(rounded_up(two.histogram)), two.delta, ENDED)


def _statistics(experiment: Experiment, answers: Answers, ids: Mapping[str, str]) -> dict[str, Row]:
    """Return a number's mean and median, or else the share of each label, without "no" of a bool."""
    if experiment.type == "number":
        kinds = {"moments": "mean", "quantiles": "median"}
        rows = {kinds[answer.kind]: _reading(answer.rows[0]) for answer in answers if answer.kind in kinds}
        return dict(sorted((id, row) for id, row in rows.items() if _finite(row)))
    rows = {ids[row.name]: _share(row) for row in _bars(answers)}
    if experiment.type == "bool":
        rows.pop("share_0", None)
    return _largest_shares({id: row for id, row in rows.items() if _finite(row)})


def _bars(answers: Answers) -> Sequence[Row]:
    return next((answer.rows for answer in answers if answer.kind == "histogram"), ())


def _histogram(answers: Answers) -> tuple[Row, ...]:
    return _largest(filter(_finite, map(_share, _bars(answers))))


def _largest(rows: Iterable[Row], max_rows: int = MAX_ROWS) -> tuple[Row, ...]:
    """Return the rows with the largest values, in their original order."""
    rows = tuple(rows)
    smallest = sorted(rows, key=lambda row: row.value)[: max(0, len(rows) - max_rows)]
    return tuple(row for row in rows if row not in smallest)


def _largest_shares(rows: Mapping[str, Row], max_rows: int = MAX_ROWS) -> dict[str, Row]:
    largest = _largest(rows.values(), max_rows)
    return {id: row for id, row in rows.items() if row in largest}


def _shorten_to_fit(result: Result) -> Result:
    """Return a result that fits: shorten its texts, then drop the labels with the smallest shares."""
    if len(result.to_json()) > MAX_BYTES:
        words = shorten(result.purpose, _FEW_WORDS), shorten(result.owner, _FEW_WORDS)
        result = replace(
            result, purpose=words[0], owner=words[1], finding=shorten(result.finding, _MAX_WORDS)
        )
    for max_rows in range(MAX_ROWS, 0, -1):
        if len(result.to_json()) <= MAX_BYTES:
            break
        statistics = _largest_shares(result.statistics, max_rows)
        result = replace(result, statistics=statistics, histogram=_largest(result.histogram, max_rows))
    return result


def _share(row: Row) -> Row:
    """Return a share as published: with fewer digits and without control characters."""
    value, low, high = (round(x, 6) for x in (row.value, row.low, row.high))
    lower, upper = (None if edge is None else float(f"{edge:.9g}") for edge in (row.lower, row.upper))
    return Row(visible(row.name), value, low, high, lower=lower, upper=upper)


def _reading(row: Row) -> Row:
    value, low, high = (float(f"{x:.6g}") for x in (row.value, row.low, row.high))
    return Row(row.name, value, low, high)


def _ends(row: Row) -> dict[str, float]:
    return {"low": row.low, "high": row.high}


def _finite(row: Row) -> bool:
    return all(map(math.isfinite, (row.value, row.low, row.high)))


def _label_ids(versions: Iterable[Version]) -> dict[str, str]:
    """Return the ids of labels by name: a label has the same id in every version, even in another place."""
    ids: dict[str, str] = {}
    for version in sorted(versions, key=lambda version: version.first_serial):
        if version.experiment.type in ("bool", "choice"):
            for name in index_names(version.experiment):
                ids.setdefault(name, f"share_{len(ids)}")
    return ids


def possible_statistics(versions: Iterable[Version]) -> list[str]:
    """Return the ids that an experiment's statistics can have in any of these versions of it."""
    versions = tuple(versions)
    of_number = ["mean", "median"] if any(v.experiment.type == "number" for v in versions) else []
    return [*of_number, *_label_ids(versions).values()]
