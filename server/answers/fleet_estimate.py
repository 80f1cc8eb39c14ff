"""An estimate of an experiment in a fleet; its methods return tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType

from ...device.ldp_client import Experiment
from ..estimate.custom_post import method_of
from ..estimate.estimate import Estimates
from ..estimate.postprocess import Shares
from ..estimate.readings import missing_share
from ..estimate.statistic import DoesNotFit, Floats, HasInterval
from ..estimate.top_k import RankedValue, top
from ..experiments import units
from ..experiments.answerable import OF_VALUES, answerable_questions, answers_only, require
from ..experiments.units import range_in
from ..local_days import UTC_DAYS, Calendar
from ..mechanisms.common_values import same_values
from ..wire.experiments import value_count
from ..words import versions
from ..words.numbers import counted
from ..words.scope import Population, which_reports
from . import change, moments, pairs, texts
from .answer import PLAIN, Answer, Answers, Frame, Tables
from .pairs import PairAnswers
from .periods import span
from .query import ReportSource, check_apart
from .question import NO_QUESTION, PairQuestion
from .rows import CONFIDENCE, Kind, PostRow, Quantity, Row, TopRow, TrendRow, VersionMark, quantile_name
from .tables import plain
from .texts import MAX_SHOWN

IndexRanges = Sequence[units.IndexRange]
Range = str | tuple[float | None, float | None]
_MAX_CHANGES = 5  # maximum changes of the question that a trend's note describes
MEAN = "mean"  # the name of a number's mean, where a trend accepts ranges or labels


@dataclass(frozen=True, repr=False)
class FleetEstimate(Tables):
    """An estimate of an experiment; it prints as the histogram and, for a number, the mean.

    A range is "18:22" or (18, 22), "18:" or (18, None), in the reading's unit; "yes" or "no"; or a label.
    `post` is a post-processing method, "raw", "nonnegative" or "smooth"; its shares are listed next to the
    unbiased ones. Methods raise UnitsError for a range that does not fit, UnanswerableError if the experiment
    cannot answer the question, and EstimateError if the reports cannot.

    Attributes:
        estimates: Unbiased statistics by index: frequencies, errors, linear().
        about: A description of the reports that the estimate is based on.
        unit: The unit of the readings, or "".
        confidence: The confidence of the intervals, between 0 and 1.
        truth: The true shares of the values, shape (domain,), if known from a simulation.
        sources: The places where the reports were counted.
        texts: The true shares of texts, if the experiment is about texts and they are known from a
            simulation.
        missing_truth: The true share of the fleet without a reading, if known from a simulation.
        version: The first digits of the version that was chosen, "all", or "" for the newest.
        boards: The boards whose reports were used, such as "boards with firmware 2.4.0", or "" for all.
        left_out: A sentence on the reports of other versions that the estimate leaves out, or "".
        calendar: The experiment's calendar.
        population: What shares are shares of; see Selected.population.
    """

    estimates: Estimates
    about: str = ""
    unit: str = ""
    confidence: float = CONFIDENCE
    truth: Floats | None = None
    sources: frozenset[ReportSource] = frozenset()
    texts: Mapping[str, float] | None = None
    missing_truth: float | None = None
    version: str = ""
    boards: str = ""
    left_out: str = ""
    calendar: Calendar = UTC_DAYS
    population: Population = "devices"
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
        """The number of reports in the estimate."""
        return self.estimates.reports

    @property
    def approximate(self) -> bool:
        """Whether the mechanism has an error that more reports do not reduce; intervals include it."""
        return self.estimates.approximate

    @property
    def answers(self) -> frozenset[str]:
        """The kinds of questions that it can answer, named as in experiments/answerable.py."""
        return answerable_questions(*self.estimates.versions)

    @property
    def frequencies(self) -> npt.NDArray[np.float64]:
        """The share of each index, shape (domain,); unbiased, so some may be negative."""
        self._require("frequencies")
        return self.estimates.frequencies

    @property
    def pairs(self) -> PairAnswers:
        """The methods for a pair: joint(), marginal(), conditional() and difference()."""
        self._require("pairs")
        return PairAnswers(self.estimates, self._frame, self.truth)

    def histogram(self, rows: int = 16, *, post: str = "raw") -> Answer:
        """Return the shares over the whole domain.

        An experiment that supports a mean but no shares has a histogram only with post-processing.

        Args:
            rows: The maximum number of rows in a number's histogram.
            post: The post-processing.
        """
        if post == "raw" or MEAN not in self.answers:
            self._require("frequencies")
        index_ranges = units.histogram_ranges(self.experiment, rows)
        if "frequencies" not in self.answers:  # a custom mechanism may not estimate shares, so try some
            sample = index_ranges[:: -(-len(index_ranges) // 16)]
            if not moments.can_estimate(self.estimates, _indicators(self.experiment, sample)):
                self._require("frequencies")
        return self._shares("histogram", index_ranges, post)

    def share(self, *ranges: Range, post: str = "raw") -> Answer:
        """Return the shares of the fleet in the given ranges, or with the given labels or texts."""
        if "candidates" in self.answers:
            return self.candidates(map(range_text, ranges), most=0)
        self._require("ranges")
        return self._shares("ranges", parse_ranges(self.experiment, ranges), post)

    def together(self, *ranges: Range, post: str = "raw") -> Answer:
        """Return the share inside any of the ranges, or with any of the labels or texts, as one row."""
        if "candidates" in self.answers:
            return texts.share_together(self.estimates, map(range_text, ranges), self._frame, self.texts)
        self._require("ranges")
        index_ranges = parse_ranges(self.experiment, ranges)
        weights = _indicators(self.experiment, index_ranges).max(axis=1)
        true = None if self.truth is None else float(self.truth @ weights)
        row = self._row(" or ".join(r.text for r in index_ranges), self.estimates.linear(weights), true)
        return self._of_shares("ranges", index_ranges, [row], [weights > 0], post)

    @property
    def _mixed_note(self) -> str:
        """A sentence to show if only some versions set `missing`, otherwise ""."""
        if len({version.missing is None for version in self.estimates.versions}) < 2:
            return ""
        return "Only some versions set missing; in the others, missing readings are spread over all values."

    def _shares(self, kind: Kind, index_ranges: IndexRanges, post: str) -> Answer:
        statistics = self.estimates.ranges([r.low for r in index_ranges], [r.high for r in index_ranges])
        rows: list[Row] = []
        for i, r in enumerate(index_ranges):
            true, edges = self._true_share(r.low, r.high), units.range_edges(self.experiment, r)
            rows.append(self._row(r.text, statistics[i], true, *edges))
        return self._of_shares(kind, index_ranges, rows, [slice(r.low, r.high) for r in index_ranges], post)

    def _of_shares(
        self, kind: Kind, index_ranges: IndexRanges, rows: Sequence[Row], inside: Sequence[Any], post: str
    ) -> Answer:
        """Return a table of shares, post-processed if requested; `inside` selects each row's indices."""
        note, method = units.moved_note(self.experiment, index_ranges, self.unit), ""
        note = f"{note}\n{self._mixed_note}".strip()
        processed = self._processed(post)
        if processed is not None:
            sums = [float(processed.frequencies[indices].sum()) for indices in inside]
            rows = [PostRow(**vars(row), processed=x) for row, x in zip(rows, sums, strict=True)]
            method = processed.method
            note = f"{note}\n{method}: {' '.join(processed.notes)}".strip()
        return self._answer(kind, rows, note, post=method)

    def candidates(self, candidates: Iterable[str], *, most: int = MAX_SHOWN) -> Answer:
        """Return the shares of the given texts, largest first, and the combined share of all others.

        Candidates that share a slot form a single row.

        Args:
            candidates: The texts to look up in an experiment of type "text".
            most: The number of rows to print or plot; 0 for all.
        """
        return texts.candidate_shares(self.estimates, candidates, self._frame, self.texts, most)

    def discover(self, alphabet: str | None = None) -> Answer:
        """Return texts that many boards sent, without a list of candidates; requires prefixes.

        Args:
            alphabet: The characters of the texts, such as "a-z0-9._-"; printable ASCII if None.
        """
        return texts.discovery_table(self.estimates, alphabet, self._frame, self.texts)

    def cdf(self) -> Answer:
        """Return the share below each of a number's bin edges, except the last, which is always 100%."""
        edges = units.bin_edges(self.experiment)
        self._require("quantiles")
        values, (low, high) = self.estimates.cdf(), self.estimates.cdf_intervals(self.confidence)
        truths = [None] * len(values) if self.truth is None else np.cumsum(self.truth).tolist()
        first, names = float(edges[0]), units.edge_names(edges)
        rows: list[Row] = []
        for i in range(self.estimates.domain - 1):
            numbers = (float(values[i]), float(low[i]), float(high[i]), truths[i])
            rows.append(Row(names[i + 1], *numbers, first, float(edges[i + 1])))
        return self._answer("cdf", rows)

    def quantile(self, *q: float) -> Answer:
        """Return a number's quantiles.

        Each value is the midpoint of the quantile's bin; its interval covers whole bins.

        Args:
            q: Quantiles between 0 and 1; 0.5 is the median.
        """
        middles, rows = units.bin_middles(self.experiment), list[Row]()
        self._require("quantiles")
        for level in q or (0.5,):
            true = None
            if self.truth is not None:
                at = int(np.searchsorted(np.cumsum(self.truth), level))
                true = float(middles[min(at, self.estimates.domain - 1)])
            rows.append(self._row(quantile_name(level), moments.BinQuantile(self.estimates, level), true))
        return self._answer("quantiles", rows, quantity="reading")

    def mean(self) -> Answer:
        """Return a number's mean and, if it can be estimated, its standard deviation.

        Each reading is counted at the midpoint of its bin.
        """
        self._require(MEAN)
        middles = units.bin_middles(self.experiment)
        true = None if self.truth is None else float(self.truth @ middles)
        rows = [self._row("mean", moments.mean(self.estimates), true)]
        note = moments.bins_note(self.estimates, self.unit, rows[0].half_width)
        if moments.has_deviation(self.estimates):
            if true is not None and self.truth is not None:
                true = float(np.sqrt(self.truth @ (middles - true) ** 2))
            rows.append(self._row("standard deviation", moments.deviation(self.estimates), true))
        return self._answer("moments", rows, note, quantity="reading")

    def top(self, k: int) -> Answers:
        """Return the k most common values, each with the probability that it belongs to the true top k.

        If the reports cannot tell values around rank k apart, a second table lists other possible values.
        """
        self._require("frequencies")
        common = top(self.estimates, k)
        tables = [self._answer("top", self._ranked(common.listed))]
        if common.near:
            note = "The reports cannot tell these apart from the last rows above."
            tables.append(self._answer("ties", self._ranked(common.near), note))
        return Answers(tables)

    def _ranked(self, values: Sequence[RankedValue]) -> list[TopRow]:
        names, rows = units.index_names(self.experiment), list[TopRow]()
        for value in values:
            i, end = value.index, value.index + 1
            edges = units.range_edges(self.experiment, units.IndexRange(i, end, ""))
            row = self._row(names[i], value.frequency, self._true_share(i, end), *edges)
            rows.append(TopRow(**vars(row), probability=value.probability))
        return rows

    def summary(self, rows: int = 16) -> Answers:
        """Return the histogram and a number's mean and standard deviation, if the experiment has them."""
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
        """Return changes since another window, or differences from another fleet or version.

        Args:
            before: The other estimate.
            ranges: The ranges or labels whose shares to compare; by default those of the histogram.
            quantiles: Quantiles of a number, in addition to its mean and standard deviation.
            rows: The maximum number of rows in the histogram.
            cdf: Whether to compare the shares below each of a number's bin edges.
            pair: The question about a pair.

        Raises:
            UsageError: If the two estimates share reports.
            DoesNotFit: If they have different units, or are of versions without common values.
        """
        check_apart(before.sources, self.sources)
        if self.unit and before.unit and self.unit != before.unit:
            raise DoesNotFit(
                f"{before.which} is in {before.unit}, and {self.which} in {self.unit}: readings in two units "
                "cannot be compared; choose versions with the same unit"
            )
        sides, frame = (before.estimates, self.estimates), replace(self._frame, against=before.which)
        other, is_same = before.experiment, same_values(before.experiment, self.experiment)
        how = "" if is_same else versions.difference(other, self.experiment, self.unit)
        difference = f"{before.which} is of another version {how}"
        if other.type != self.experiment.type:
            raise DoesNotFit(f"{self.experiment.name} cannot be compared: {difference}")
        if self.experiment.type == "pair":
            return PairAnswers(self.estimates, frame).change_since(before.estimates, pair, rows)
        if "candidates" in self.answers:
            return Answers([texts.changed_candidates(*sides, map(range_text, ranges), frame)])
        index_ranges = parse_ranges(self.experiment, ranges)
        note = units.moved_note(self.experiment, index_ranges, self.unit)
        answerable, tables = self.answers & before.answers, list[Answer]()
        if not is_same:
            note = f"{note}\n{difference}: only values that both versions count are compared.".strip()
        if "ranges" in answerable:
            index_ranges = index_ranges or units.common_ranges(self.experiment, other, rows)
            tables.append(replace(change.changed_shares(*sides, index_ranges, frame), note=note))
        if cdf:
            names = units.edge_names(units.bin_edges(self.experiment))
            below = [units.IndexRange(0, i, f"below {names[i]}") for i in range(1, self.estimates.domain)]
            tables.append(change.changed_shares(*sides, below, frame))
        if "mean" in answerable and is_same:
            tables.append(change.changed_readings(*sides, quantiles, frame))
        if not tables:
            raise DoesNotFit(f"{self.experiment.name} cannot be compared: {difference}")
        return Answers(tables)

    @property
    def which(self) -> str:
        """A description of the reports that the estimate uses, with their windows."""
        if not self.sources:
            return self.about
        fleet = " and ".join(sorted({source.fleet for source in self.sources}))
        windows = span({source.window for source in self.sources}, self.calendar)
        return which_reports(fleet, windows, self.version, self.boards)

    def _require(self, *words: str) -> None:
        require(self.estimates.versions, words)

    @property
    def _frame(self) -> Frame:
        unit = "" if self.experiment.type == "text" else self.unit
        return Frame(unit, self.confidence, self.which, calendar=self.calendar, population=self.population)

    def _answer(
        self, kind: Kind, rows: Sequence[Row], note: str = "", quantity: Quantity = "share", post: str = ""
    ) -> Answer:
        extent = float(np.ptp(units.bin_edges(self.experiment))) if quantity == "reading" else math.inf
        more = {"note": note, "post": post, "extent": extent, "missing": self.missing}
        return self._frame.answer(kind, self.estimates, rows, quantity, **more)

    @property
    def missing(self) -> Row | None:
        """The share of the fleet without a reading, or None if the experiment does not estimate it."""
        share = missing_share(self.estimates)
        return share and self._row(units.NO_READING, share, self.missing_truth)

    def _row(self, name: str, statistic: HasInterval, truth: float | None, *edges: float | None) -> Row:
        ends = edges or (None, None)
        return Row(
            name, statistic.value, *statistic.interval(self.confidence), truth, *ends, statistic=statistic
        )

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
        title = f"{self.experiment.name}: {counted(self.reports)}" + (f", {self.which}" if self.which else "")
        title = f"{title}\n{self.left_out}".strip()
        return title if self.answers & OF_VALUES else f"{title}\n{answers_only(self.experiment)}"

    def __rich__(self) -> RenderableType:
        return Group(plain(self._title()), self.summary())

    def _repr_html_(self) -> str:
        return f"<p>{self._title()}</p>{self.summary()._repr_html_()}"


def _indicators(experiment: Experiment, index_ranges: IndexRanges) -> Floats:
    """Return 1 for the values of each range and 0 for all others, shape (domain, ranges)."""
    index = np.arange(value_count(experiment))[:, None]
    inside = (index >= [r.low for r in index_ranges]) & (index < [r.high for r in index_ranges])
    return inside.astype(float)


def range_text(limits: Range) -> str:
    """Return a range as text: (18, None) becomes "18:"."""
    return limits if isinstance(limits, str) else ":".join("" if end is None else str(end) for end in limits)


def parse_ranges(experiment: Experiment, ranges: Sequence[Range]) -> list[units.IndexRange]:
    """Return the indices of the given ranges or labels.

    Raises:
        UnitsError: If any of them does not fit the experiment.
    """
    return [units.parse_range(experiment, range_text(limits)) for limits in ranges]


def trend(
    windows: Mapping[str, Estimates],
    statistics: Sequence[str],
    frame: Frame = PLAIN,
    quantiles: Sequence[float] = (),
    pair: PairQuestion = NO_QUESTION,
    all_versions: Sequence[Experiment] = (),
) -> Answers:
    """Return trends: tables of shares, of a number's mean and of its quantiles over time.

    Args:
        windows: The estimate of each window, oldest first.
        statistics: Ranges, labels, and "mean" for a number's mean; if this and `quantiles` are empty, a
            number's mean (or median, if it has no mean), the shares of all labels, or the share of "yes".
        frame: The fields shared by the tables of one question.
        quantiles: Quantiles of a number, between 0 and 1.
        pair: The question about a pair.
        all_versions: The experiment's versions, from whose digests the ones in notes must differ.

    Raises:
        EstimateError: If there are fewer than two windows.
        UnanswerableError: If the newest window's versions have no mean, but it is requested.
        UnitsError: If a range does not fit, or quantiles are requested for a type other than number.
    """
    *_, newest = windows.values()
    experiment = newest.experiment
    windows = {window: e for window, e in windows.items() if _continues(e.experiment, experiment)}
    estimates = list(windows.values())
    if experiment.type == "text":
        return Answers([texts.candidates_over_time(windows, statistics, replace(frame, unit=""))])
    if experiment.type == "pair":
        return pairs.trend(windows, pair, frame)
    is_number = experiment.type == "number"
    ranges = parse_ranges(experiment, [text for text in statistics if not (is_number and text == MEAN)])
    note = units.moved_note(experiment, ranges, frame.unit)
    if not ranges and not is_number and not quantiles:
        ranges = units.histogram_ranges(experiment, experiment.domain)
        ranges = ranges[1:] if experiment.type == "bool" else ranges
    tables: list[Answer] = []
    if ranges:
        change.check_windows(windows)
        shares = {
            r.text: [
                None if (own := range_in(e.experiment, r, experiment)) is None else e.range(own.low, own.high)
                for e in estimates
            ]
            for r in ranges
        }
        edges = {r.text: units.range_edges(experiment, r) for r in ranges}
        table = change.trend(windows, shares, frame)
        placed = [replace(row, lower=edges[row.name][0], upper=edges[row.name][1]) for row in table.rows]
        tables.append(replace(table, rows=tuple(placed), note=f"{note}\n{table.note}".strip()))
    answers_mean = [MEAN in answerable_questions(*e.versions) for e in estimates]
    if is_number and not answers_mean[-1]:
        if MEAN in statistics:
            require(estimates[-1].versions, MEAN)
        quantiles = quantiles or (() if ranges else (0.5,))
    if is_number and (MEAN in statistics or not (ranges or quantiles)):
        means = [moments.mean(e) if can else None for e, can in zip(estimates, answers_mean, strict=True)]
        tables.append(change.trend(windows, {MEAN: means}, frame, "reading"))
    if quantiles:
        tables.append(change.quantile_trend(windows, quantiles, frame))
    return Answers(_with_marks(table, windows, all_versions) for table in tables)


def _continues(version: Experiment, newest: Experiment) -> bool:
    """Return whether a trend of the newest version can continue a trend of another version."""
    return version.type == newest.type and (newest.type != "pair" or same_values(version, newest))


def _with_marks(
    table: Answer, windows: Mapping[str, Estimates], all_versions: Sequence[Experiment]
) -> Answer:
    """Return a trend with a sentence and a mark for each change to a version that counts other values."""
    experiments = [estimate.experiment for estimate in windows.values()]
    steps = zip(list(windows)[1:], experiments, experiments[1:], strict=False)
    changes = [step for step in steps if not same_values(*step[1:])]
    if not changes:
        return table
    others, unit = [*experiments, *all_versions], table.unit
    digests = {w: versions.short_digest(e.experiment, others) for w, e in windows.items()}
    rows = [replace(row, version=digests[row.window]) for row in table.rows if isinstance(row, TrendRow)]
    marks = [VersionMark(w, digests[w], versions.difference(new, old, unit)) for w, old, new in changes]
    notes = [versions.changed(w, old, new, others, unit) for w, old, new in changes[-_MAX_CHANGES:]]
    if earlier := len(changes) - len(notes):
        number, (window, *_) = counted(earlier, "earlier change"), changes[earlier]
        notes.insert(0, f"Not listed: {number} of the question before {window}.")
    note = "\n".join(filter(None, [table.note, *notes]))
    return replace(table, rows=tuple(rows), marks=tuple(marks), note=note)
