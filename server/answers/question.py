"""A question to an experiment in a store, all of it; an option, a form and Python ask through it alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...device.ldp_client import Experiment
from ..experiments.asking import OF_VALUES, require
from ..mechanisms.views.factors import parts_of
from .pair_tables import NO_QUESTION, PairQuestion
from .query import Selection, WeighBy
from .rows import CONFIDENCE, Kind
from .second_epsilon import Shuffling

ROWS = 16
"""Rows of a number's histogram at most, where nobody says how many."""

FINE = 0
"""Rows of a histogram that is as fine as its reports can tell."""

OTHERWISE = {"candidates", "discovery", "pairs"}
"""What an experiment answers that has neither shares of values nor a mean, in the words of answers_of()."""

COMPARED = {"ranges", "mean", "candidates", "pairs"}
"""What has trends and changes, in the words of answers_of()."""


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
    rows        of a number's histogram at most; None for ROWS, FINE for as many as the reports tell apart
    post        a post-processing's name
    trend       a row for each window
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
    confidence: float = CONFIDENCE
    weigh: WeighBy = "reports"
    shuffling: Shuffling = field(default_factory=Shuffling)
    unit: str | None = None
    alphabet: str | None = None
    pair: PairQuestion = NO_QUESTION
    tables: tuple[Kind, ...] = ()

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
    require(asked, OF_VALUES | OTHERWISE, "nothing here asks that")
    if not question.ranges:
        unnamed = OF_VALUES | OTHERWISE - {"candidates"}
        require(asked, unnamed, "name them, with --candidates FILE, one a line, or each with --range")


def _instead(experiment: Experiment) -> str:
    """How a pair is asked, which has its own options."""
    if experiment.type != "pair":
        return ""
    first, *_, last = (part.name for part in parts_of(experiment))
    return f", and ask with --of and --given, as in --of {last} --given {first}"
