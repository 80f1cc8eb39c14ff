"""Queries that all readers of a page share: facts of a commit, estimates, both ε for a minute."""

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
from ...server.answers.query import Facts, ResultCache, Selected
from ...server.answers.question import Question, Selection
from ...server.answers.rows import Kind
from ...server.answers.second_epsilon import TwoEpsilons
from ...server.answers.store_reader import StoreReader
from ...server.errors import UsageError
from ...server.words.numbers import Numbers
from ..live import LiveStore
from ..period import windows_of
from .choices import Choices
from .defaults import with_opening

EPSILONS_S = 60.0
"""Seconds for which both ε are reused: computing them reads all devices' rows."""


class NoReportsInPeriod(UsageError):
    """An experiment has reports, but none in a period."""


@dataclass(frozen=True)
class BothEpsilons:
    """Both ε of the numbers shown, for two kinds of readers.

    Attributes:
        once: For someone who sees them once: over all sums that are shown.
        every_day: For someone who has seen each completed window by itself.
        at: Time of the computation, UTC.
    """

    once: TwoEpsilons
    every_day: TwoEpsilons
    at: datetime.datetime


@dataclass
class Asking:
    """Queries that the readers of one page share."""

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
        """Return the reports of a selection; raise UsageError if its fleet or name does not exist."""
        facts = await self.facts_now()

        def read(_: StoreReader) -> Selected:
            selected = facts.selected(selection)
            assert selected.there is not None  # read here, in a thread, because it is lazy
            return selected

        return await self.live.ask(("selected", selection), read)

    async def in_period(self, question: Question) -> Selection:
        """Return the selection of the windows of a question.

        Raises:
            UsageError: If the fleet or name does not exist.
            NoReportsInPeriod: If the period has no reports.
        """
        of = await self.selected(question.all_windows)
        windows = windows_of(question, of.facts)
        if of.there and not windows:
            raise NoReportsInPeriod("no report came in this period")
        return replace(of.selection, windows=windows)

    async def with_opening(self, choices: Choices, of: Selected) -> Choices:
        """Return the choices with a view's defaults, like the module's function."""
        question = "with opening", of.selection, choices
        return await self.live.ask(question, lambda _: with_opening(choices, of))

    async def answers(self, question: Question, *kinds: Kind, slow: bool = False) -> Answers:
        """Return the answers to a question, or only some kinds, without any ε; raises the errors of ask().

        See LiveStore.ask() for `slow`.
        """
        facts = await self.facts_now()

        def work(_: StoreReader) -> Answers:
            return answer_question(facts, question.resolve(facts), kinds)[1]

        return await self.live.ask((question, kinds), work, slow=slow)

    async def finding(self, selection: Selection, write: Numbers, *, series: bool = False) -> Findings:
        """Return the findings in a reader's numbers, optionally with their series; errors as find()."""
        facts = await self.facts_now()
        work = functools.partial(find, facts, selection, write, series=series)
        return await self.live.ask(("finding", selection, write, series), lambda _: work(), slow=series)

    async def comparison(self, question: Question, write: Numbers) -> str:
        """Return the headline of a comparison in a reader's numbers; errors as ask()."""
        facts = await self.facts_now()
        work = functools.partial(comparison, facts, question, write)
        return await self.live.ask(("comparison", question, write), lambda _: work(), slow=True)

    async def epsilons(self, selection: Selection, compared: tuple[Selection, ...] = ()) -> BothEpsilons:
        """Return both ε, at most EPSILONS_S old.

        Args:
            selection: The reports that are shown.
            compared: Both sides of the comparison that is shown with them.
        """
        facts = await self.facts_now()
        question = "ε", selection, compared
        return await self.live.ask(question, lambda _: self._both(facts, selection, compared), slow=True)

    def _both(self, facts: Facts, selection: Selection, compared: tuple[Selection, ...]) -> BothEpsilons:
        # A new window is still running, whatever is known of the others.
        key = selection, compared, tuple(facts.selected(replace(selection, windows=(), version="")).there)
        with self._lock:
            entry = self._epsilons.get(key)
            if entry is not None and time.monotonic() - entry[0] < EPSILONS_S:
                return entry[1]
        facts = replace(facts, at=datetime.datetime.now(datetime.UTC))
        once = second_epsilon.of_selections(facts, *_sums(facts, selection, compared))
        every_day = second_epsilon.overview(facts, replace(selection, windows=())).all_windows
        result = BothEpsilons(once, every_day, facts.at)
        with self._lock:
            self._epsilons[key] = time.monotonic(), result
            while len(self._epsilons) > 100:
                self._epsilons.pop(next(iter(self._epsilons)))
        return result


def _sums(facts: Facts, selection: Selection, compared: Sequence[Selection]) -> tuple[Selection, ...]:
    """Return the sums of windows that are shown: the period, those around a change, a comparison's sides."""
    counted = _with_windows(facts, selection)
    beside = [replace(counted, windows=tuple(sorted(windows))) for windows in find(facts, counted).histograms]
    sides = [_with_windows(facts, side) for side in compared]
    return tuple(dict.fromkeys([counted, *beside, *sides]))


def _with_windows(facts: Facts, selection: Selection) -> Selection:
    """Return a selection that lists its windows, which by default are all."""
    return replace(selection, windows=tuple(sorted(selection.windows or facts.selected(selection).there)))
