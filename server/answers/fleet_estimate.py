"""What a fleet says of an experiment: ask the estimate a question, get a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType

from ...device.ldp_client import Experiment
from ..estimate.estimate import Estimates
from ..estimate.own_post import method_of
from ..estimate.postprocess import Shares
from ..estimate.statistic import Floats, Statistic
from ..estimate.top_k import RankedValue, top
from ..experiments.asking import OF_VALUES, answers_of, answers_only, require
from ..experiments.units import (
    IndexRange,
    bin_edges,
    edge_names,
    histogram_ranges,
    index_names,
    moved_note,
    parse_range,
    range_edges,
)
from . import change, headline, moments, pairs
from .answer import Answer, Answers, Tables
from .candidates import MOST_SHOWN, candidate_shares, candidates_over_time, changed_candidates, share_together
from .discovery import discovered
from .pair_tables import NO_QUESTION, PairQuestion
from .pairs import PairAnswers
from .query import ReportSource, check_apart
from .rows import CONFIDENCE, Kind, PostRow, Row, TopRow, quantile_name
from .tables import plain

Range = str | tuple[float | None, float | None]
MEAN = "mean"  # of a number, where trends take a range or a label otherwise


@dataclass(frozen=True, repr=False)
class FleetEstimate(Tables):
    """An estimate of an experiment; printed, it is the histogram and a number's mean.

    estimates   unbiased statistics by index: frequencies, errors, linear()
    about       which reports it rests on, in words
    unit        of the readings, or an empty text
    confidence  of the intervals, between 0 and 1
    truth       shares of the indices, shape (domain,), where a simulation knows them
    texts       shares of texts, of an experiment of those, where a simulation knows them
    sources     where the reports were counted

    Ranges are "18:22" or (18, 22), "18:" or (18, None), in the reading's unit, "yes" or "no", or a label.
    post is the name of a post-processing: "raw", "nonnegative", "smooth" or "ems"; its shares stand beside
    the unbiased ones. Methods raise UnitsError for a range that does not fit, NotAnswered for what the
    experiment does not answer, EstimateError for what cannot be estimated.
    """

    estimates: Estimates
    about: str = ""
    unit: str = ""
    confidence: float = CONFIDENCE
    truth: Floats | None = None
    sources: frozenset[ReportSource] = frozenset()
    texts: Mapping[str, float] | None = None
    _post: dict[str, Shares] = field(default_factory=dict, init=False, compare=False)

    @property
    def experiment(self) -> Experiment:
        """The experiment, in its newest version."""
        return self.estimates.experiment

    @property
    def _tables(self) -> Answers:
        return self.summary()

    @property
    def reports(self) -> int:
        """How many reports it rests on."""
        return self.estimates.reports

    @property
    def answers(self) -> frozenset[str]:
        """What it can be asked, in the words of experiments/asking.py."""
        return answers_of(*self.estimates.versions)

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        """Share of each index, shape (domain,); unbiased, so that some may be negative."""
        self._require("frequencies")
        return self.estimates.frequencies

    @property
    def pairs(self) -> PairAnswers:
        """What a pair can be asked: joint(), marginal(), conditional(), difference()."""
        self._require("pairs")
        return PairAnswers(self.estimates, self.which, self.unit, self.confidence, self.truth)

    def histogram(self, rows: int = 16, *, post: str = "raw") -> Answer:
        """The whole domain, a number's in at most rows rows.

        Of an experiment that answers a mean and no shares there is one beside post-processed shares alone.
        """
        if post == "raw" or MEAN not in self.answers:
            self._require("frequencies")
        wanted = histogram_ranges(self.experiment, rows)
        if "frequencies" not in self.answers:  # one's own may tell no share at all: some of them say so
            some = wanted[:: -(-len(wanted) // 16)]
            if not moments.tells(self.estimates, _indicators(self.experiment, some)):
                self._require("frequencies")
        return self._shares("histogram", wanted, post)

    def share(self, *ranges: Range, post: str = "raw") -> Answer:
        """Shares of the fleet inside ranges, with labels, or with texts."""
        if "candidates" in self.answers:
            return self.candidates(map(range_text, ranges), most=0)
        self._require("ranges")
        return self._shares("ranges", parse_ranges(self.experiment, ranges), post)

    def together(self, *ranges: Range, post: str = "raw") -> Answer:
        """The share of the fleet inside any of the ranges, or with any of the labels or texts: one row."""
        if "candidates" in self.answers:
            one = share_together(self.estimates, [*map(range_text, ranges)], self.confidence, self.texts)
            return replace(one, about=self.which)
        self._require("ranges")
        wanted = parse_ranges(self.experiment, ranges)
        weights = _indicators(self.experiment, wanted).max(axis=1)
        true = None if self.truth is None else float(self.truth @ weights)
        row = self._row(" or ".join(r.text for r in wanted), self.estimates.linear(weights), true)
        processed = self._processed(post)
        if processed is not None:
            row = PostRow(**asdict(row), processed=float(processed.frequencies @ weights))
        return self._of_shares("ranges", wanted, [row], processed)

    def _shares(self, kind: Kind, wanted: Sequence[IndexRange], post: str) -> Answer:
        processed = self._processed(post)
        statistics = self.estimates.ranges([r.low for r in wanted], [r.high for r in wanted])
        rows = []
        for i, r in enumerate(wanted):
            lower, upper = range_edges(self.experiment, r)
            row = self._row(r.text, statistics[i], self._true_share(r.low, r.high), lower, upper)
            if processed is not None:
                share = float(processed.frequencies[r.low : r.high].sum())
                row = PostRow(**asdict(row), processed=share)
            rows.append(row)
        return self._of_shares(kind, wanted, rows, processed)

    def _of_shares(
        self, kind: Kind, wanted: Sequence[IndexRange], rows: Sequence[Row], processed: Shares | None
    ) -> Answer:
        words = "" if processed is None else f"{processed.method}: {' '.join(processed.notes)}"
        note = "\n".join(text for text in (moved_note(self.experiment, wanted, self.unit), words) if text)
        return self._answer(kind, rows, note, "" if processed is None else processed.method)

    def candidates(self, texts: Iterable[str], *, most: int = MOST_SHOWN) -> Answer:
        """Shares of texts that an experiment of type "text" is asked about, and of all others together.

        The largest come first; most: how many are printed or drawn, 0 for all. Candidates that share a slot
        are one row.
        """
        answer = candidate_shares(self.estimates, texts, self.confidence, self.texts, most)
        return replace(answer, about=self.which)

    def discover(self, alphabet: str | None = None) -> Answer:
        """The texts that nobody listed and many boards sent, of an experiment with prefixes.

        alphabet: what texts are made of, such as "a-z0-9._-"; printable ASCII if None.
        """
        answer = discovered(self.estimates, alphabet, self.confidence, self.texts)
        return replace(answer, about=self.which)

    def cdf(self) -> Answer:
        """The share below every edge of a number's bins but the last, which all are below."""
        edges = bin_edges(self.experiment)
        self._require("quantiles")
        values, (low, high) = self.estimates.cdf(), self.estimates.cdf_intervals(self.confidence)
        truths = [None] * len(values) if self.truth is None else np.cumsum(self.truth).tolist()
        first, names = float(edges[0]), edge_names(edges)
        rows = []
        for i in range(self.estimates.domain - 1):
            interval = (float(low[i]), float(high[i]))
            rows.append(Row(names[i + 1], float(values[i]), *interval, truths[i], first, float(edges[i + 1])))
        return self._answer("cdf", rows)

    def quantile(self, *q: float) -> Answer:
        """Quantiles of a number, each between 0 and 1; 0.5 is the median.

        A value is the middle of the quantile's bin; its interval runs over whole bins.
        """
        edges, middles = bin_edges(self.experiment), moments.bin_middles(self.estimates)
        self._require("quantiles")
        rows = []
        for level in q or (0.5,):
            quantile = self.estimates.quantile(level, self.confidence)
            true = None
            if self.truth is not None:
                at = int(np.searchsorted(np.cumsum(self.truth), level))
                true = float(middles[min(at, self.estimates.domain - 1)])
            low, high = float(edges[quantile.low]), float(edges[quantile.high + 1])
            rows.append(Row(quantile_name(level), float(middles[quantile.index]), low, high, true))
        return self._answer("quantiles", rows)

    def mean(self) -> Answer:
        """Mean of a number and, where it is known, standard deviation; readings count as bins' middles."""
        middles = moments.bin_middles(self.estimates)
        true = None if self.truth is None else float(self.truth @ middles)
        rows = [self._row("mean", moments.mean(self.estimates), true)]
        note = moments.bins_note(self.estimates, self.unit, (rows[0].high - rows[0].low) / 2)
        if moments.has_deviation(self.estimates):
            spread = moments.deviation(self.estimates)
            if true is not None and self.truth is not None:
                true = float(np.sqrt(self.truth @ (middles - true) ** 2))
            ends = spread.interval(self.confidence)
            rows.append(Row("standard deviation", spread.value, *ends, true))
        return self._answer("moments", rows, note)

    def top(self, k: int) -> Answers:
        """The k most common values, each with the probability that it is one; below, others that may be.

        The second table is there where reports do not tell values apart around rank k.
        """
        self._require("frequencies")
        common = top(self.estimates, k)
        tables = [self._answer("top", self._ranked(common.listed))]
        if common.near:
            note = "Reports do not tell these apart from the last ones above."
            tables.append(self._answer("ties", self._ranked(common.near), note))
        return Answers(tables)

    def _ranked(self, values: Sequence[RankedValue]) -> list[TopRow]:
        names, rows = index_names(self.experiment), []
        for one in values:
            edges = range_edges(self.experiment, IndexRange(one.index, one.index + 1, ""))
            truth = self._true_share(one.index, one.index + 1)
            row = self._row(names[one.index], one.frequency, truth, *edges)
            rows.append(TopRow(**asdict(row), probability=one.probability))
        return rows

    def summary(self, rows: int = 16) -> Answers:
        """The histogram, and a number's mean and standard deviation, as far as the experiment has them."""
        if "pairs" in self.answers:
            return self.pairs.summary(rows)
        tables = [self.histogram(rows)] if "frequencies" in self.answers else []
        return Answers([*tables, self.mean()] if "mean" in self.answers else tables)

    def change_since(
        self,
        before: FleetEstimate,
        *ranges: Range,
        quantiles: Sequence[float] = (),
        rows: int = 16,
        cdf: bool = False,
        pair: PairQuestion = NO_QUESTION,
    ) -> Answers:
        """What changed since another window, or differs from another fleet or version.

        Shares of ranges, without any those of the histogram; of a number also mean, standard deviation and
        quantiles, and with cdf the share below every edge; of a pair what a PairQuestion asks. UsageError
        where reports are on both sides.
        """
        check_apart(before.sources, self.sources)
        if self.experiment.type == "pair":
            changed = self.pairs.change_since(before.estimates, pair, rows)
            return Answers(replace(one, against=before.which) for one in changed)
        sides, common = (before.estimates, self.estimates), (self.unit, self.confidence)
        if "candidates" in self.answers:
            shares = changed_candidates(*sides, [*map(range_text, ranges)], self.confidence)
            return Answers([replace(shares, about=self.which, against=before.which)])
        wanted = parse_ranges(self.experiment, ranges)
        note = moved_note(self.experiment, wanted, self.unit)
        can, tables = self.answers & before.answers, list[Answer]()
        if "ranges" in can:
            wanted = wanted or histogram_ranges(self.experiment, rows)
            tables.append(replace(change.changed_shares(*sides, wanted, *common), note=note))
        if cdf:
            names = edge_names(bin_edges(self.experiment))
            below = [IndexRange(0, i, f"below {names[i]}") for i in range(1, self.estimates.domain)]
            tables.append(change.changed_shares(*sides, below, *common))
        if "mean" in can:
            tables.append(change.changed_readings(*sides, quantiles, *common))
        return Answers(replace(one, about=self.which, against=before.which) for one in tables)

    @property
    def which(self) -> str:
        """Which reports it rests on, in words, with the windows that they came in."""
        if not self.sources:
            return self.about
        fleet = " and ".join(sorted({source.fleet for source in self.sources}))
        version = self.about.partition(", version ")[2]
        return headline.about(fleet, sorted({source.window for source in self.sources}), version)

    def _require(self, *words: str) -> None:
        require(self.estimates.versions, words)

    def _answer(self, kind: Kind, rows: Sequence[Row], note: str = "", post: str = "") -> Answer:
        quantity = "reading" if kind in ("quantiles", "moments") else "share"
        common = (kind, self.experiment.name, quantity, self.unit, self.reports, self.confidence)
        return Answer(*common, tuple(rows), note, self.which, post=post)

    def _row(
        self,
        name: str,
        statistic: Statistic,
        truth: float | None,
        lower: float | None = None,
        upper: float | None = None,
    ) -> Row:
        return Row(name, statistic.value, *statistic.interval(self.confidence), truth, lower, upper)

    def _true_share(self, low: int, high: int) -> float | None:
        return None if self.truth is None else float(self.truth[low:high].sum())

    def _processed(self, method: str) -> Shares | None:
        process = method_of(method)
        if method == "raw":
            return None
        if method not in self._post:
            self._post[method] = process(self.estimates)
        return self._post[method]

    def _title(self) -> str:
        title = f"{self.experiment.name}: {self.reports:,} reports" + (
            f", {self.which}" if self.which else ""
        )
        return title if self.answers & OF_VALUES else f"{title}\n{answers_only(self.experiment)}"

    def __rich__(self) -> RenderableType:
        return Group(plain(self._title()), self.summary())

    def _repr_html_(self) -> str:
        return f"<p>{self._title()}</p>{self.summary()._repr_html_()}"


def _indicators(experiment: Experiment, wanted: Sequence[IndexRange]) -> Floats:
    """1 for the values of each range and 0 for all others, shape (domain, ranges)."""
    index = np.arange(experiment.domain)[:, None]
    inside = (index >= [r.low for r in wanted]) & (index < [r.high for r in wanted])
    return inside.astype(float)


def range_text(asked: Range) -> str:
    """A range as it is written: (18, None) is "18:"."""
    return asked if isinstance(asked, str) else ":".join("" if end is None else str(end) for end in asked)


def parse_ranges(experiment: Experiment, ranges: Sequence[Range]) -> list[IndexRange]:
    """The indices of several ranges or labels; UnitsError where one does not fit."""
    return [parse_range(experiment, range_text(one)) for one in ranges]


def trend(
    windows: Mapping[str, Estimates],
    statistics: Sequence[str],
    unit: str = "",
    confidence: float = CONFIDENCE,
    quantiles: Sequence[float] = (),
    about: str = "",
    pair: PairQuestion = NO_QUESTION,
) -> Answers:
    """How statistics went over the windows: tables of shares, of a number's mean, and of its quantiles.

    statistics: ranges and labels, and "mean" for a number's; without any, and without quantiles, a number's
    mean, the shares of all labels, or that of "yes". about: of which reports, in words. pair: of a pair, what
    is asked. Raises EstimateError for fewer than two windows, UnitsError as parse_range(), and for quantiles
    of another type than a number.
    """
    experiment, which = next(iter(windows.values())).experiment, headline.about(about, list(windows))
    if experiment.type == "text":
        return Answers([replace(candidates_over_time(windows, statistics, confidence), about=which)])
    if experiment.type == "pair":
        shown = pairs.trend(windows, pair, unit, confidence)
        return Answers(replace(one, about=which) for one in shown)
    number = experiment.type == "number"
    ranges = parse_ranges(experiment, [text for text in statistics if not (number and text == MEAN)])
    note = moved_note(experiment, ranges, unit)
    if not ranges and not number and not quantiles:
        ranges = histogram_ranges(experiment, experiment.domain)
        ranges = ranges[1:] if experiment.type == "bool" else ranges
    tables: list[Answer] = []
    if ranges:
        shares: dict[str, Callable[[Estimates], Statistic]] = {
            r.text: partial(Estimates.range, lo=r.low, hi=r.high) for r in ranges
        }
        shown = change.trend(windows, shares, "share", unit, confidence)
        edges = {r.text: range_edges(experiment, r) for r in ranges}
        placed = [replace(row, lower=edges[row.name][0], upper=edges[row.name][1]) for row in shown.rows]
        tables.append(replace(shown, rows=tuple(placed), note=f"{note}\n{shown.note}".strip()))
    if number and (MEAN in statistics or not (ranges or quantiles)):
        tables.append(change.trend(windows, {MEAN: moments.mean}, "reading", unit, confidence))
    if quantiles:
        tables.append(change.quantile_trend(windows, quantiles, unit, confidence))
    return Answers(replace(one, about=which) for one in tables)
