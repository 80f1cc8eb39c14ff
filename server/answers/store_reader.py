"""A store, read and never written: its fleets, their experiments, and the estimates of those."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError, choose_name
from ..store.store import Store
from . import second_epsilon
from .answer import Answers
from .ask import Reply, ask, estimate_of, over_time
from .finding import Findings, find
from .fleet_estimate import FleetEstimate, Range
from .query import Facts, Selected
from .question import BEFORE, NO_QUESTION, PairQuestion, Question, Selection, WeighBy
from .rows import CONFIDENCE
from .second_epsilon import Shuffling, TwoEpsilons


class StoreReader:
    """A store by SQLAlchemy URL, such as sqlite:///hushmote.sqlite; made by hushmote.open().

    A context manager; without `with` it closes itself when nothing refers to it any more. Raises StoreError
    where there is no store, or it cannot be read.
    """

    def __init__(self, url: str) -> None:
        self._store = Store(url, read_only=True)
        self._finalizer = weakref.finalize(self, self._store.close)

    def close(self) -> None:
        """Close all connections; fleets and experiments that were taken from it end with it."""
        self._finalizer()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        """The open store. Raises UsageError after close()."""
        if not self._finalizer.alive:
            raise UsageError(f"the store {self._store.where} is closed: ask before the end of its with block")
        return self._store

    @property
    def fleets(self) -> tuple[str, ...]:
        """Names of the fleets, sorted."""
        return tuple(self.store.fleets())

    def fleet(self, name: str | None = None) -> FleetReader:
        """Return a fleet by its name, optional if there is only one. Raises UsageError for another."""
        return FleetReader(self, choose_name("fleet", name, self.fleets, "in this store"))

    def __repr__(self) -> str:
        return f"<store {self._store.where}>"


@dataclass(frozen=True, repr=False)
class FleetReader:
    """A fleet of a store; made by StoreReader.fleet(). name: of the fleet."""

    _reader: StoreReader
    name: str

    @property
    def experiments(self) -> tuple[str, ...]:
        """Names of the experiments, sorted."""
        return Facts(self._reader.store).names(self.name)

    def experiment(self, name: str | None = None, unit: str | None = None) -> ExperimentReader:
        """Return an experiment by its name, optional if there is only one.

        unit: what readings are in, such as "°C"; left out, what the store says. UsageError for another name.
        """
        name = choose_name("experiment", name, self.experiments, f"in fleet {self.name}")
        return ExperimentReader(self._reader, self.name, name, unit)

    def __repr__(self) -> str:
        return f"<fleet {self.name}>"


@dataclass(frozen=True, repr=False)
class ExperimentReader:
    """An experiment of a fleet; made by FleetReader.experiment().

    fleet: its name. name: of the experiment.
    """

    _reader: StoreReader
    fleet: str
    name: str
    _unit: str | None

    @property
    def unit(self) -> str:
        """The unit of readings: as given, or as in the experiment's file; otherwise ""."""
        return self._selected.unit if self._unit is None else self._unit

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows with reports, oldest first: days such as 2026-11-21, hours 2026-11-21T14, or all."""
        return tuple(self._selected.there)

    @property
    def versions(self) -> tuple[str, ...]:
        """Digests of the versions in hexadecimal digits, oldest first."""
        return self._selected.digests

    @property
    def finding(self) -> Findings:
        """The answers to its questions over the newest completed days, and whether they changed."""
        return find(self._facts, Selection(self.name, self.fleet), unit=self._unit, series=True)

    def question(self, **options: Any) -> Question:
        """Return a question about this experiment; options: other fields of Question. Raises UsageError."""
        fields: dict[str, Any] = {"experiment": self.name, "fleet": self.fleet, "unit": self._unit}
        return Question(**fields | options)

    def ask(self, **options: Any) -> Reply:
        """Return all that `hushmote estimate` answers: tables, findings and both ε.

        Args:
            options: Those of the command by the names that Question has, such as ranges=["24:"], last="7d".

        Raises:
            UsageError: Options do not exist or do not go together, or no report came in a period.
            EstimateError: A window has no reports, or there are fewer than 2 reports in all.
        """
        return ask(self._facts, self.question(**options))

    def estimate(
        self,
        windows: str | Sequence[str] = (),
        *,
        last: str = "",
        version: str = "",
        weigh: WeighBy = "reports",
        confidence: float = CONFIDENCE,
    ) -> FleetEstimate:
        """Return the estimate over windows added up; by default over the newest 7 completed days.

        windows: their names, or months and spans of days: "2026-11", "2026-11-01..2026-11-07". last: those of
        the last "7d", "12h" or "2w" before today in their place, or "all" completed ones.
        version: one version only, by its digest or how that begins; otherwise all are pooled, by weigh.
        confidence: of the intervals, between 0 and 1. Raises UsageError for a version that is not there, and
        EstimateError for a window without reports or fewer than 2 reports in all.
        """
        question = self.question(
            windows=windows, last=last, version=version, weigh=weigh, confidence=confidence
        )
        facts = self._facts
        return estimate_of(facts, question.resolve(facts).selection, question)

    def trend(
        self,
        *statistics: str,
        windows: str | Sequence[str] = (),
        version: str = "",
        weigh: WeighBy = "reports",
        confidence: float = CONFIDENCE,
        shuffling: Shuffling | None = None,
        quantiles: Sequence[float] = (),
        pair: PairQuestion = NO_QUESTION,
        by: str = "",
    ) -> Answers:
        """Return trends of "mean", ranges, labels or quantiles: a row for each window, with a test.

        windows: without any, all completed ones. by: "day", "week" or "month", which they are put together
        by. Without statistics a number's mean, or the shares of the labels; pair: what of a pair. Each row
        has the ε of its window's histogram; shuffling: what that is worked out with. Otherwise as estimate().
        """
        how: dict[str, Any] = {"weigh": weigh, "confidence": confidence, "quantiles": tuple(quantiles)}
        how |= {"of": pair.of, "given": pair.versus or pair.given or (), "joint": pair.joint}
        question = self.question(windows=windows, version=version, trend=True, by=by or None, **how)
        facts = self._facts
        resolved = question.resolve(facts)
        trends = over_time(facts, resolved, statistics)
        return second_epsilon.beside(facts, trends, resolved.selection, shuffling, by)

    def compare(
        self,
        length: str,
        *ranges: Range,
        version: str = "",
        weigh: WeighBy = "reports",
        confidence: float = CONFIDENCE,
        quantiles: Sequence[float] = (),
    ) -> Answers:
        """Compare the last days, hours or weeks before today with as long before.

        Args:
            length: "7d", "12h" or "2w".
            ranges: Ranges or labels; without any, those of the histogram.
            version: As for estimate().
            weigh: As for estimate().
            confidence: As for estimate().
            quantiles: Of a number, each between 0 and 1.

        Returns:
            The tables of FleetEstimate.change_since().

        Raises:
            UsageError: If one of the two periods has no report, or `length` is another text.
        """
        how: dict[str, Any] = {"version": version, "weigh": weigh, "confidence": confidence}
        question = self.question(last=length, against=BEFORE, **how)
        facts = self._facts
        resolved = question.resolve(facts)
        sides = (resolved.selection, resolved.against)
        after, before = (estimate_of(facts, side, question) for side in sides if side)
        return after.change_since(before, *ranges, quantiles=quantiles)

    def two_epsilons(
        self,
        windows: str | Sequence[str] = (),
        *,
        version: str = "",
        shuffling: Shuffling | None = None,
        apart: bool = False,
    ) -> TwoEpsilons:
        """ε of a report, and of the histogram over windows, as estimate() adds them up.

        The latter holds against whoever sees histograms only. apart: for whom each window is seen by itself.
        """
        facts = self._facts
        selection = self.question(windows=windows, version=version).resolve(facts).selection
        if apart:
            return second_epsilon.of_windows(facts, selection, shuffling)
        return second_epsilon.of_selections(facts, selection, shuffling=shuffling)

    @property
    def _facts(self) -> Facts:
        return Facts(self._reader.store)

    @property
    def _selected(self) -> Selected:
        return self._facts.selected(Selection(self.name, self.fleet))

    def __repr__(self) -> str:
        return f"<experiment {self.name} of fleet {self.fleet}>"
