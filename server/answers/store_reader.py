"""Read-only access to a store: its fleets, their experiments and their estimates."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError, choose_name
from ..store.store import Store
from . import second_epsilon
from .answer import Answers
from .ask import Reply, ask, estimate_of, trend_tables
from .finding import Findings, find
from .fleet_estimate import FleetEstimate, Range
from .query import Facts, Selected
from .question import BEFORE, NO_QUESTION, PairQuestion, Question, Selection, WeighBy
from .releases.first_plan import PlanRequest
from .releases.installed import read_installed
from .releases.judge import judge
from .releases.result import JudgedRelease
from .rows import CONFIDENCE
from .second_epsilon import Shuffling, TwoEpsilons


class StoreReader:
    """A store; returned by hushmote.open() for an SQLAlchemy URL such as sqlite:///hushmote.sqlite.

    It is a context manager. Without `with`, it closes itself when it is no longer referenced.

    Raises:
        StoreError: If there is no store, or it cannot be read.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = Store(url, read_only=True)
        self._finalizer = weakref.finalize(self, self._store.close)

    def close(self) -> None:
        """Close all connections; the store's fleets and experiments can no longer be used."""
        self._finalizer()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def store(self) -> Store:
        """The open store.

        Raises:
            UsageError: After close().
        """
        if not self._finalizer.alive:
            raise UsageError(f"the store {self._store.where} is closed; use it before its with block ends")
        return self._store

    @property
    def fleets(self) -> tuple[str, ...]:
        """The names of the fleets, sorted."""
        return tuple(self.store.fleets())

    def fleet(self, name: str | None = None) -> FleetReader:
        """Return a fleet.

        Args:
            name: The fleet's name, optional if there is only one.

        Raises:
            UsageError: If there is no such fleet.
        """
        return FleetReader(self, choose_name("fleet", name, self.fleets, "in this store"), self._url)

    def __repr__(self) -> str:
        return f"<store {self._store.where}>"


@dataclass(frozen=True, repr=False)
class FleetReader:
    """A fleet in a store; returned by StoreReader.fleet().

    Attributes:
        name: The fleet's name.
    """

    _reader: StoreReader
    name: str
    _url: str

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of the experiments, sorted."""
        return Facts(self._reader.store).names(self.name)

    def experiment(self, name: str | None = None, unit: str | None = None) -> ExperimentReader:
        """Return an experiment.

        Args:
            name: The experiment's name, optional if there is only one.
            unit: The unit of readings, such as "°C"; by default, the one in the store.

        Raises:
            UsageError: If there is no such experiment.
        """
        name = Facts(self._reader.store).choose_experiment(self.name, name)
        return ExperimentReader(self._reader, self.name, name, unit)

    def release(
        self,
        version: str,
        against: str | Sequence[str] = (),
        *,
        group: str = "",
        installed: int | str | Mapping[str, Any] | None = None,
        days: int | None = None,
        reports: int | None = None,
        alpha: float | None = None,
        not_randomized: str | None = None,
    ) -> JudgedRelease:
        """Return whether a new version is worse than others; the first look stores the plan.

        Args:
            version: The new version, a value of the experiments' open group.
            against: The versions to compare it with; by default those of the stored plan.
            group: The open group's name, optional if only one lists the version.
            installed: The installed devices: "1200/20000", {"2.4.0": 1200, "2.3.1": 18800}, or a file or an
                http(s) address that contains this.
            days: The days to plan for, from the version's first report; 14 by default.
            reports: The reports of the new version to plan for.
            alpha: The probability of a false stop, and of a false proceed; 0.05 by default.
            not_randomized: How boards were chosen, if not at random.

        Raises:
            UsageError: If a version or the group does not exist, or `installed` cannot be used.
            PlanChanged: If the stored plan differs.
        """

        def add_plan(*plan: str) -> str:
            with Store(self._url, create=False) as store:
                return store.add_release_plan(*plan)

        others = (against,) if isinstance(against, str) else tuple(against)
        request = PlanRequest(version, others, days, reports, alpha, not_randomized)
        devices = None if installed is None else read_installed(installed)
        facts = Facts(self._reader.store)
        return judge(facts, self.name, request, add_plan, group=group, installed=devices)

    def __repr__(self) -> str:
        return f"<fleet {self.name}>"


@dataclass(frozen=True, repr=False)
class ExperimentReader:
    """A fleet's experiment; returned by FleetReader.experiment().

    Attributes:
        fleet: The fleet's name.
        name: The experiment's name.
    """

    _reader: StoreReader
    fleet: str
    name: str
    _unit: str | None

    @property
    def unit(self) -> str:
        """The unit of readings: the one passed in, or the one from the experiment's file, or ""."""
        return self._selected.unit if self._unit is None else self._unit

    @property
    def windows(self) -> tuple[str, ...]:
        """The windows with reports, oldest first: days (2026-11-21), hours (2026-11-21T14), or "all"."""
        return tuple(self._selected.all_counts)

    @property
    def versions(self) -> tuple[str, ...]:
        """The digests of the versions in hexadecimal, in the order of publication, the current one last."""
        return self._selected.digests

    @property
    def groups(self) -> tuple[str, ...]:
        """The values of the open group, such as firmware versions, and "other"; () without a group."""
        return self._selected.group_values

    @property
    def finding(self) -> Findings:
        """The answers to its questions over the newest completed days, and whether they have changed."""
        return find(self._facts, Selection(self.name, self.fleet), unit=self._unit, series=True)

    def question(self, **options: Any) -> Question:
        """Return a question about this experiment.

        Args:
            options: The other fields of Question.

        Raises:
            UsageError: If options do not exist or conflict.
        """
        fields: dict[str, Any] = {"experiment": self.name, "fleet": self.fleet, "unit": self._unit}
        return Question(**fields | options)

    def ask(self, **options: Any) -> Reply:
        """Return everything that `hushmote estimate` shows: tables, findings and both ε values.

        Args:
            options: The command's options, named as the fields of Question: ranges=["24:"], last="7d".

        Raises:
            UsageError: If options do not exist or conflict, or a period has no reports.
            EstimateError: If a window has no reports, or there are fewer than 2 reports in total.
        """
        return ask(self._facts, self.question(**options))

    def estimate(
        self,
        windows: str | Sequence[str] = (),
        *,
        last: str = "",
        version: str = "",
        group: str = "",
        weigh: WeighBy = "reports",
        confidence: float = CONFIDENCE,
    ) -> FleetEstimate:
        """Return an estimate for the sum of several windows; by default the newest 7 completed days.

        Args:
            windows: Names of windows, months, or ranges of days: "2026-11", "2026-11-01..2026-11-07".
            last: Instead of windows, "7d", "12h" or "2w" before today, or "all" for all completed windows.
            version: The first digits of a version's digest, to use only that version; by default all are
                pooled.
            group: A value of the open group, to use only its reports; by default all are pooled.
            weigh: How to weight the versions.
            confidence: The confidence of the intervals, between 0 and 1.

        Raises:
            UsageError: If there is no such version or value.
            EstimateError: If a window has no reports, there are fewer than 2 reports in total, or the group's
                value has too few to be shown.
        """
        question = self.question(
            windows=windows, last=last, version=version, group=group, weigh=weigh, confidence=confidence
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
        group: str = "",
    ) -> Answers:
        """Return trends: a row for each window, with its histogram's ε, and a test for change.

        Args:
            statistics: "mean", ranges or labels; if this and `quantiles` are empty, a number's mean or the
                shares of the labels.
            windows: As in estimate(); by default all completed windows.
            version: See estimate().
            weigh: See estimate().
            confidence: See estimate().
            shuffling: The parameters for computing a histogram's ε.
            quantiles: Quantiles of a number, between 0 and 1.
            pair: The question about a pair.
            by: "day", "week" or "month" to sum windows by, or "".
            group: See estimate(); windows in which the value has too few reports are omitted.

        Raises:
            HushmoteError: In the same cases as estimate().
        """
        how: dict[str, Any] = {"weigh": weigh, "confidence": confidence, "quantiles": tuple(quantiles)}
        how |= {"of": pair.of, "given": pair.versus or pair.given or (), "joint": pair.joint}
        how |= {"version": version, "group": group}
        question = self.question(windows=windows, trend=True, by=by or None, **how)
        facts = self._facts
        resolved = question.resolve(facts)
        trends, _ = trend_tables(facts, resolved, statistics)
        return second_epsilon.add_epsilons(facts, trends, resolved.selection, shuffling, by)

    def compare(
        self,
        length: str,
        *ranges: Range,
        version: str = "",
        weigh: WeighBy = "reports",
        confidence: float = CONFIDENCE,
        quantiles: Sequence[float] = (),
        group: str = "",
    ) -> Answers:
        """Compare the last days, hours or weeks before today with the preceding period of the same length.

        Args:
            length: "7d", "12h" or "2w".
            ranges: Ranges or labels; by default those of the histogram.
            version: See estimate().
            weigh: See estimate().
            confidence: See estimate().
            quantiles: Quantiles of a number, between 0 and 1.
            group: See estimate().

        Returns:
            The tables of FleetEstimate.change_since().

        Raises:
            UsageError: If either period has no reports, or `length` is malformed.
            EstimateError: If the group's value has too few reports in either period.
        """
        how: dict[str, Any] = {"version": version, "weigh": weigh, "confidence": confidence, "group": group}
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
        group: str = "",
        shuffling: Shuffling | None = None,
        apart: bool = False,
    ) -> TwoEpsilons:
        """Return the ε of a report, and that of the windows' histogram as summed by estimate().

        The latter applies only to someone who sees nothing but histograms.

        Args:
            windows: See estimate().
            version: See estimate().
            group: See estimate().
            shuffling: The parameters for computing a histogram's ε.
            apart: Whether the windows are seen individually rather than summed.
        """
        facts = self._facts
        selection = self.question(windows=windows, version=version, group=group).resolve(facts).selection
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
