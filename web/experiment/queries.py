"""Queries whose results all of the page's readers share; both ε are reused for a minute."""

import datetime
import functools
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from ...server.answers import second_epsilon
from ...server.answers.answer import Answers
from ...server.answers.ask import answer_question, comparison
from ...server.answers.finding import Findings, find
from ...server.answers.query import Facts, Selected
from ...server.answers.question import Question, Selection
from ...server.answers.result_cache import ResultCache
from ...server.answers.rows import Kind
from ...server.answers.second_epsilon import TwoEpsilons
from ...server.answers.store_reader import StoreReader
from ...server.errors import UsageError
from ...server.words.numbers import Numbers
from ..live import LiveStore
from ..period import windows_of
from .choices import Choices
from .defaults import with_defaults

EPSILONS_S = 60.0
"""Seconds for which both ε are reused, because computing them reads all devices' rows."""


class NoReportsInPeriod(UsageError):
    """The experiment has reports, but none in the period."""


@dataclass(frozen=True)
class BothEpsilons:
    """Both ε of the displayed numbers, for two kinds of readers.

    Attributes:
        once: Both ε for someone who sees the numbers once, over all displayed sums.
        every_day: Both ε for someone who has seen each completed window individually.
        at: The time of the computation, in UTC.
    """

    once: TwoEpsilons
    every_day: TwoEpsilons
    at: datetime.datetime


@dataclass
class SharedQueries:
    """Queries whose results all of the page's readers share."""

    live: LiveStore
    _cache: ResultCache = field(default_factory=ResultCache)
    _epsilons: dict[Hashable, tuple[float, BothEpsilons]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def facts(self, store: StoreReader) -> Facts:
        """Return a store's facts."""
        return Facts(store.store, cache=self._cache)

    async def facts_now(self) -> Facts:
        """Return the facts, read once per commit; raise StoreError if that fails."""
        return await self.live.ask("facts", self.facts)

    async def selected(self, selection: Selection) -> Selected:
        """Return a selection's reports; raise UsageError if its fleet or experiment does not exist."""
        facts = await self.facts_now()

        def read(_: StoreReader) -> Selected:
            selected = facts.selected(selection)
            # Read them here, in a thread, because they are lazy.
            assert selected.all_counts is not None
            assert selected.group_reports is not None
            return selected

        return await self.live.ask(("selected", selection), read)

    async def in_period(self, question: Question) -> Selection:
        """Return the selection with the windows in a question's period.

        Raises:
            UsageError: If the fleet or experiment does not exist.
            NoReportsInPeriod: If the period has no reports.
        """
        selected = await self.selected(question.all_windows)
        windows = windows_of(question, selected.facts)
        if selected.all_counts and not windows:
            raise NoReportsInPeriod("no reports arrived in this period")
        return replace(selected.selection, windows=windows)

    async def with_defaults(self, choices: Choices, selected: Selected) -> Choices:
        """Return the choices with a view's defaults; see defaults.with_defaults()."""
        question = "with defaults", selected.selection, choices
        return await self.live.ask(question, lambda _: with_defaults(choices, selected))

    async def answers(self, question: Question, *kinds: Kind, slow: bool = False) -> Answers:
        """Return the answers to a question, or only these kinds, without any ε.

        Args:
            question: The question.
            kinds: The kinds of answers; all if empty.
            slow: Whether the computation takes seconds; see LiveStore.ask().

        Raises:
            HushmoteError: In the same cases as LiveStore.ask().
        """
        facts = await self.facts_now()

        def work(_: StoreReader) -> Answers:
            return answer_question(facts, question.resolve(facts), kinds)[1]

        return await self.live.ask((question, kinds), work, slow=slow)

    async def finding(self, selection: Selection, write: Numbers, *, series: bool = False) -> Findings:
        """Return the findings in a reader's number format, optionally with series; raise like find()."""
        facts = await self.facts_now()
        work = functools.partial(find, facts, selection, write, series=series)
        return await self.live.ask(("finding", selection, write, series), lambda _: work(), slow=series)

    async def comparison(self, question: Question, write: Numbers) -> str:
        """Return a comparison's headline in a reader's number format; raise like LiveStore.ask()."""
        facts = await self.facts_now()
        work = functools.partial(comparison, facts, question, write)
        return await self.live.ask(("comparison", question, write), lambda _: work(), slow=True)

    async def epsilons(self, selection: Selection, compared: tuple[Selection, ...] = ()) -> BothEpsilons:
        """Return both ε, at most EPSILONS_S old.

        Args:
            selection: The displayed reports.
            compared: Both sides of the displayed comparison, or () without one.
        """
        facts = await self.facts_now()
        question = "ε", selection, compared
        return await self.live.ask(question, lambda _: self._both(facts, selection, compared), slow=True)

    def _both(self, facts: Facts, selection: Selection, compared: tuple[Selection, ...]) -> BothEpsilons:
        # A new window is still running, so the cached ε of the others must not be used.
        key = (
            selection,
            compared,
            tuple(facts.selected(replace(selection, windows=(), version="")).all_counts),
        )
        with self._lock:
            entry = self._epsilons.get(key)
            if entry is not None and time.monotonic() - entry[0] < EPSILONS_S:
                return entry[1]
        facts = replace(facts, at=datetime.datetime.now(datetime.UTC))
        every_day = second_epsilon.overview(facts, replace(selection, windows=())).all_windows
        once = second_epsilon.seen_once(facts, _sums(facts, selection, compared), every_day)
        result = BothEpsilons(once, every_day, facts.at)
        with self._lock:
            self._epsilons[key] = time.monotonic(), result
            while len(self._epsilons) > 100:
                self._epsilons.pop(next(iter(self._epsilons)))
        return result


def _sums(facts: Facts, selection: Selection, compared: Sequence[Selection]) -> tuple[Selection, ...]:
    """Return the displayed sums of windows for the period, around a change, and for a comparison's sides."""
    period = _with_windows(facts, selection)
    around = [replace(period, windows=tuple(sorted(windows))) for windows in find(facts, period).histograms]
    sides = [_with_windows(facts, side) for side in compared]
    return tuple(dict.fromkeys([period, *around, *sides]))


def _with_windows(facts: Facts, selection: Selection) -> Selection:
    """Return a selection with an explicit list of its windows, which by default are all."""
    return replace(
        selection, windows=tuple(sorted(selection.windows or facts.selected(selection).all_counts))
    )
