"""What is worked out for a reader, in threads: each function is one question to the store."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from ...server.answers import fleet_estimate, second_epsilon
from ...server.answers.answer import Answer, Answers
from ...server.answers.fleet_estimate import MEAN, FleetEstimate
from ...server.answers.guide import NOISY, half_width
from ...server.answers.query import Selection
from ...server.answers.question import EstimateQuestion, ask
from ...server.answers.second_epsilon import Facts, Overview, TwoEpsilons
from ...server.answers.store_reader import StoreReader
from ...server.errors import UsageError
from ...server.estimate.statistic import EstimateError
from ...server.experiments.asking import NotAnswered
from .counted import Counted, Kept

EPSILONS_S = 60.0
"""How long both ε stand: to work them out, all devices' rows are read."""

_FINER = (16, 64)  # rows that are tried before single bins


@dataclass(frozen=True)
class BothEpsilons:
    """Both ε of what is looked at, and of everything that can be; at: when they were worked out, UTC."""

    shown: TwoEpsilons
    overview: Overview
    at: datetime.datetime


@dataclass
class Looked:
    """What the readers of one page share; its methods are called in threads."""

    kept: Kept = field(default_factory=Kept)
    _epsilons: dict[Hashable, tuple[float, BothEpsilons]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def estimate(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> FleetEstimate:
        """The estimate that a question rests on. Raises EstimateError for fewer than 2 reports."""
        return self.kept.estimate(store.store, of, asked.selection, asked.confidence)

    def histogram(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answer:
        """Its histogram; without a number of rows as fine as the reports can tell."""
        estimate = self.estimate(store, of, asked)
        rows = asked.rows or fine_enough(estimate)
        return estimate.histogram(rows, post=asked.post)

    def shares(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answer:
        """The share of the range or of all chosen labels together, in one row."""
        estimate = self.estimate(store, of, asked)
        share = estimate.together if asked.together else estimate.share
        return share(*asked.ranges, post=asked.post)

    def newest(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> tuple[str, Answer] | None:
        """The newest window with its share, where windows differ by more than chance makes them.

        Of several labels each is looked at, and p takes that into account (Bonferroni).
        """
        windows = self.kept.by_window(store.store, of, asked.selection)
        if len(windows) < 2:
            return None
        how = (of.unit_of(asked.selection), asked.confidence, (), of.fleet)
        (trend,) = fleet_estimate.trend(windows, asked.ranges, *how)
        if min(p for _, p in trend.p_values) * len(trend.p_values) >= 1 - asked.confidence:
            return None
        last = tuple(windows)[-1]
        return last, self.shares(
            store, of, replace(asked, selection=replace(asked.selection, windows=(last,)))
        )

    def mean(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answer:
        """A number's mean and standard deviation, where it has no more."""
        return self.estimate(store, of, asked).mean()

    def unasked(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answers:
        """What an experiment of another kind answers unasked; nothing where something has to be named."""
        try:
            return ask(store, asked).answers
        except (NotAnswered, UsageError):
            return Answers()

    def readings(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answers:
        """A number's mean, standard deviation and quantiles."""
        estimate = self.estimate(store, of, asked)
        return Answers([estimate.mean(), estimate.quantile(*asked.quantiles)])

    def over_time(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answers:
        """A row for each window; of a number without ranges and quantiles, its mean."""
        windows = self.kept.by_window(store.store, of, asked.selection)
        if len(windows) < 2:
            raise EstimateError("A trend needs at least 2 windows with 2 reports each.")
        statistics = asked.ranges
        if not statistics and not asked.quantiles and MEAN in of.can:
            statistics = (MEAN,)
        how = (of.unit_of(asked.selection), asked.confidence, asked.quantiles, of.fleet)
        return fleet_estimate.trend(windows, statistics, *how)

    def change(self, store: StoreReader, of: Counted, asked: EstimateQuestion) -> Answers:
        """What changed since other windows or another version."""
        assert asked.against
        before = self.kept.estimate(store.store, of, asked.against, asked.confidence)
        estimate = self.estimate(store, of, asked)
        return estimate.change_since(before, *asked.ranges, quantiles=asked.quantiles)

    def epsilons(self, store: StoreReader, of: Counted, selection: Selection) -> BothEpsilons:
        """Both ε, at most EPSILONS_S old."""
        key = selection, tuple(of.windows)  # a new window has not ended, whatever is known of the others
        with self._lock:
            kept = self._epsilons.get(key)
            if kept is not None and time.monotonic() - kept[0] < EPSILONS_S:
                return kept[1]
        facts = Facts(store.store)
        overview = second_epsilon.overview(facts, replace(selection, windows=()))
        shown = second_epsilon.overview(facts, selection).added_up
        result = BothEpsilons(shown, overview, datetime.datetime.now(datetime.UTC))
        with self._lock:
            self._epsilons[key] = time.monotonic(), result
            while len(self._epsilons) > 100:
                self._epsilons.pop(next(iter(self._epsilons)))
        return result


def fine_enough(estimate: FleetEstimate) -> int:
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
