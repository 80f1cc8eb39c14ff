"""A question to an experiment in a store, all of it: its answers, both ε, the sentences, the command line.

The command `estimate` and the page ask through this one module, so that they say the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...device.ldp_client import Experiment
from ..experiments.asking import OF_VALUES, require
from ..mechanisms.factors import parts_of
from . import second_epsilon
from .answer import CONFIDENCE, Answer, Answers
from .candidates import MOST_SHOWN
from .fleet_estimate import MEAN, FleetEstimate
from .guide import Guide, guide
from .pair_tables import NO_QUESTION, PairQuestion
from .query import Selection, WeighBy, versions
from .second_epsilon import Shuffling, TwoEpsilons
from .store_reader import StoreReader

ROWS = 16
"""Rows of a number's histogram at most, where nobody says how many."""


@dataclass(frozen=True)
class EstimateQuestion:
    """What is asked of which reports.

    selection   the reports; its fleet and experiment are named
    against     the reports that they are compared with, or None
    ranges      low:high in the reading's unit, labels, or texts
    together    whether what lies in any of the ranges is asked for, in one row, and not each
    quantiles   each between 0 and 1
    top         how many of the most common values; 0 for none, of texts for MOST_SHOWN
    cdf         whether the share below every edge is asked for
    rows        of a number's histogram at most; None for ROWS
    post        a post-processing's name
    trend       a row for each window
    unit        what readings are in; None for what the store says
    alphabet    what texts that nobody listed are made of; None for printable ASCII
    pair        of a pair, which share or mean, given what
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
    confidence: float = CONFIDENCE
    weigh: WeighBy = "reports"
    shuffling: Shuffling = field(default_factory=Shuffling)
    unit: str | None = None
    alphabet: str | None = None
    pair: PairQuestion = NO_QUESTION

    @property
    def compares(self) -> bool:
        """Whether it is about more than one histogram, apart."""
        return self.trend or self.against is not None

    def seen(self) -> str:
        """What histograms the answers tell of, in words."""
        if self.against:
            return "both sides' histograms"
        return "the windows' histograms together" if self.trend else "the histogram"

    def arguments(self) -> list[str]:
        """The arguments of the command `estimate` that ask the same, but for the store, δ and the unit."""
        s = self.selection
        asked = [s.experiment, "--fleet", s.fleet, *_each("--window", s.windows)]
        asked += ["--version", s.version] if s.version else []
        asked += _each("--range", self.ranges) + _each("--quantile", [repr(float(q)) for q in self.quantiles])
        asked += ["--together"] if self.together else []
        asked += ["--top", f"{self.top}"] if self.top else []
        asked += ["--cdf"] if self.cdf else []
        asked += ["--rows", f"{self.rows}"] if self.rows else []
        asked += [] if self.alphabet is None else [f"--alphabet={self.alphabet}"]
        asked += ["--post", self.post] if self.post != "raw" else []
        asked += self.pair.arguments()
        asked += ["--trend"] if self.trend else []
        if self.against:
            asked += _each("--against-window", self.against.windows)
            asked += ["--against-fleet", self.against.fleet] if self.against.fleet != s.fleet else []
            version = self.against.version
            asked += ["--against-version", version] if version and version != s.version else []
        asked += ["--confidence", f"{self.confidence:g}"] if self.confidence != CONFIDENCE else []
        return asked + (["--weigh", self.weigh] if self.weigh != "reports" else [])


def _each(option: str, values: Sequence[str]) -> list[str]:
    # With =, so that a value that begins with - is no option of its own.
    return [f"{option}={value}" for value in values]


@dataclass(frozen=True)
class Reply:
    """A question's answers, and what belongs to all of them."""

    question: EstimateQuestion
    estimate: FleetEstimate
    answers: Answers
    epsilons: TwoEpsilons
    guide: Guide

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        first = self.answers[0]
        return {
            "experiment": self.estimate.experiment.name,
            "unit": first.unit,
            "selection": self.estimate.which,
            "against": first.against or None,
            "reports": self.estimate.reports,
            "confidence": self.question.confidence,
            "stderr_method": self.estimate.estimates.stderr_method,
            "epsilon": self.epsilons.to_dict(),
            "in_words": self.guide.to_dict(),
            "answers": [one.to_dict() for one in self.answers],
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


COMPARED = {"ranges", "mean", "candidates", "pairs"}
"""What has trends and changes, in the words of answers_of()."""


def ask(store: StoreReader, question: EstimateQuestion) -> Reply:
    """Answer a question. Raises UsageError, UnitsError or EstimateError for what cannot be answered."""
    selection = question.selection
    experiment = store.fleet(selection.fleet).experiment(selection.experiment, question.unit)
    selected = [v.experiment for v in versions(store.store, selection)]
    check_answered(selected, question)
    estimate = experiment.estimate(**_how(selection, question))
    if question.trend:
        asked = [*question.ranges, *([MEAN] if MEAN in estimate.answers else [])]
        how = _how(selection, question) | {"shuffling": question.shuffling, "quantiles": question.quantiles}
        answers = experiment.trend(*asked, pair=question.pair, **how)
    elif question.against:
        other = store.fleet(question.against.fleet).experiment(selection.experiment, question.unit)
        before = other.estimate(**_how(question.against, question))
        rows, how = question.rows or ROWS, {"quantiles": question.quantiles, "cdf": question.cdf}
        answers = estimate.change_since(before, *question.ranges, rows=rows, pair=question.pair, **how)
    else:
        answers = _answered(estimate, question)
    windows = len({source.window for source in estimate.sources}) if COMPARED & estimate.answers else 1
    epsilons = _epsilons(store, question)
    return Reply(question, estimate, answers, epsilons, guide(answers, epsilons, windows))


def _answered(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """What is asked of one estimate, in the way of its kind."""
    answer = next((OTHERWISE[word] for word in OTHERWISE if word in estimate.answers), _of_values)
    return answer(estimate, question)


def _of_values(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """Its histogram, ranges, quantiles, mean, top and cdf, in this order, as far as it has them."""
    answers: list[Answer] = []
    if "frequencies" in estimate.answers or question.post != "raw":
        answers.append(estimate.histogram(question.rows or ROWS, post=question.post))
    if question.ranges:
        shares = estimate.together if question.together else estimate.share
        answers.append(shares(*question.ranges, post=question.post))
    if question.quantiles:
        answers.append(estimate.quantile(*question.quantiles))
    if "mean" in estimate.answers:
        answers.append(estimate.mean())
    if question.top:
        answers += estimate.top(question.top)
    if question.cdf:
        answers.append(estimate.cdf())
    return Answers(answers)


def _of_texts(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """The shares of the texts that are named."""
    if question.together:
        return Answers([estimate.together(*question.ranges)])
    return Answers([estimate.candidates(question.ranges, most=question.top or MOST_SHOWN)])


def _of_unlisted(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    """The texts that are found."""
    return Answers([estimate.discover(question.alphabet)])


def _of_pair(estimate: FleetEstimate, question: EstimateQuestion) -> Answers:
    return estimate.pairs.ask(question.pair, question.rows or ROWS)


OTHERWISE: Mapping[str, Callable[[FleetEstimate, EstimateQuestion], Answers]] = {
    "candidates": _of_texts,
    "discovery": _of_unlisted,
    "pairs": _of_pair,
}
"""What answers an experiment that has neither shares of values nor a mean, by its word of answers_of()."""


def check_answered(asked: Sequence[Experiment], question: EstimateQuestion) -> None:
    """Raise NotAnswered for the first option that asks an experiment's versions for what they lack."""
    processed = question.post != "raw"
    options: tuple[tuple[str, set[str], object], ...] = (
        ("--range, --above and --below", {"ranges", "candidates"}, question.ranges),
        ("--quantile", {"quantiles"}, question.quantiles),
        ("--top", {"frequencies", "candidates"}, question.top),
        ("--alphabet", {"discovery"}, question.alphabet is not None),
        ("--cdf", {"quantiles"}, question.cdf),
        ("--rows", {"frequencies", "pairs", *(["mean"] if processed else [])}, question.rows),
        ("--post", {"frequencies", "mean"}, processed),
        ("--weigh fisher", {"frequencies", "candidates", "pairs"}, question.weigh == "fisher"),
        ("--of, --given, --versus and --joint", {"pairs"}, question.pair),
        ("--trend", COMPARED, question.trend),
        ("the options --against", COMPARED, question.against),
    )
    for option, words, wanted in options:
        if wanted:
            require(asked, words, f"leave {option} out{_instead(asked[-1])}")
    require(asked, OF_VALUES | OTHERWISE.keys(), "nothing here asks that")
    if not question.ranges:
        unnamed = OF_VALUES | OTHERWISE.keys() - {"candidates"}
        require(asked, unnamed, "name them, with --candidates FILE, one a line, or each with --range")


def _instead(experiment: Experiment) -> str:
    """How a pair is asked, which has its own options."""
    if experiment.type != "pair":
        return ""
    first, *_, last = (part.name for part in parts_of(experiment))
    return f", and ask with --of and --given, as in --of {last} --given {first}"


def _how(selection: Selection, question: EstimateQuestion) -> dict[str, Any]:
    """What estimates and trends are told alike."""
    which = {"windows": selection.windows, "version": selection.version}
    return which | {"weigh": question.weigh, "confidence": question.confidence}


def _epsilons(store: StoreReader, question: EstimateQuestion) -> TwoEpsilons:
    """Both ε of all histograms that the answers tell of."""
    if question.against:
        return second_epsilon.of_change(store.store, question.against, question.selection, question.shuffling)
    if question.trend:
        return second_epsilon.of_windows(store.store, question.selection, question.shuffling)
    return second_epsilon.of_selection(store.store, question.selection, question.shuffling)
