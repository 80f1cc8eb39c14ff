"""What the readers of one page ask of a store together: facts of a commit, estimates, both ε for a minute."""

import datetime
import functools
import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from ...server.answers import second_epsilon
from ...server.answers.answer import Answers
from ...server.answers.ask import EstimateQuestion, answered
from ...server.answers.finding import Findings, find
from ...server.answers.query import Facts, Kept, Selected, Selection
from ...server.answers.second_epsilon import Overview, TwoEpsilons
from ...server.answers.store_reader import StoreReader
from ...server.errors import UsageError
from ...server.words.numbers import Numbers
from ..live import LiveStore
from ..period import windows_of
from .choices import Choices
from .opening import with_opening

EPSILONS_S = 60.0
"""How long both ε stand: to work them out, all devices' rows are read."""


class NoReportsInPeriod(UsageError):
    """An experiment has reports, but none in a period."""


@dataclass(frozen=True)
class BothEpsilons:
    """Both ε of what is looked at, and of everything that can be; at: when they were worked out, UTC."""

    shown: TwoEpsilons
    overview: Overview
    at: datetime.datetime


@dataclass
class Asking:
    """What the readers of one page share."""

    live: LiveStore
    _kept: Kept = field(default_factory=Kept)
    _epsilons: dict[Hashable, tuple[float, BothEpsilons]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def facts(self, store: StoreReader) -> Facts:
        """What a store says now."""
        return Facts(store.store, kept=self._kept)

    async def facts_now(self) -> Facts:
        """The same, read once for each commit. Raises StoreError."""
        return await self.live.ask("facts", self.facts)

    async def selected(self, selection: Selection) -> Selected:
        """What a selection's reports are. Raises UsageError where fleet or name is not there."""
        facts = await self.facts_now()

        def read(_: StoreReader) -> Selected:
            selected = facts.selected(selection)
            assert selected.there is not None  # it is read here, in a thread
            return selected

        return await self.live.ask(("selected", selection), read)

    async def in_period(self, selection: Selection, period: str) -> Selection:
        """Return a selection of a period's windows.

        Raises UsageError if fleet or name is not there, and NoReportsInPeriod.
        """
        of = await self.selected(selection)
        windows = windows_of(period, tuple(of.there), of.facts.at)
        if of.there and not windows:
            raise NoReportsInPeriod("no report came in this period")
        return replace(selection, windows=windows)

    async def with_opening(self, choices: Choices, of: Selected) -> Choices:
        """Return the choices with what a view opens with, as with_opening()."""
        question = "with opening", of.selection, choices
        return await self.live.ask(question, lambda _: with_opening(choices, of))

    async def answers(self, question: EstimateQuestion, *, slow: bool = False) -> Answers:
        """The answers to a question, without any ε. Errors as ask(); slow: see LiveStore.ask()."""
        facts = await self.facts_now()
        return await self.live.ask(question, lambda _: answered(facts, question)[1], slow=slow)

    async def finding(self, selection: Selection, write: Numbers, *, series: bool = False) -> Findings:
        """What is known now, in a reader's numbers, and with series how it went; errors as find()."""
        facts = await self.facts_now()
        work = functools.partial(find, facts, selection, write, series=series)
        return await self.live.ask(("finding", selection, write, series), lambda _: work(), slow=series)

    async def epsilons(self, selection: Selection) -> BothEpsilons:
        """Both ε, at most EPSILONS_S old."""
        facts = await self.facts_now()
        return await self.live.ask(("ε", selection), lambda _: self._both(facts, selection), slow=True)

    def _both(self, facts: Facts, selection: Selection) -> BothEpsilons:
        # A new window has not ended, whatever is known of the others.
        key = selection, tuple(facts.selected(replace(selection, windows=(), version="")).there)
        with self._lock:
            kept = self._epsilons.get(key)
            if kept is not None and time.monotonic() - kept[0] < EPSILONS_S:
                return kept[1]
        facts = replace(facts, at=datetime.datetime.now(datetime.UTC))
        overview = second_epsilon.overview(facts, replace(selection, windows=()))
        shown = second_epsilon.overview(facts, selection).added_up
        result = BothEpsilons(shown, overview, facts.at)
        with self._lock:
            self._epsilons[key] = time.monotonic(), result
            while len(self._epsilons) > 100:
                self._epsilons.pop(next(iter(self._epsilons)))
        return result
