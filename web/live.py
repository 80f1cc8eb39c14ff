"""The page's read-only store, which is watched for commits and answers each question once for all readers."""

import asyncio
import datetime
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from nicegui import background_tasks, context

from ..server.answers.store_reader import StoreReader
from ..server.errors import HushmoteError
from ..server.overview.fleets import StoreOverview, overview
from ..server.overview.watch import StoreState, StoreWatch
from ..server.plain_text import visible
from ..server.store.store import StoreError

T = TypeVar("T")
log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 0.25  # short enough to show a commit within a second
_MAX_ANSWERS = 256  # cached answers; the oldest is dropped first
_WORKERS = 2  # few, because the aggregator may share the machine
_PAUSE_FACTOR = 2  # pause after a view's update, as a multiple of its duration, to limit the load
_MAX_PAUSE_S = 5.0


class LiveStore:
    """One store for all of the page's readers.

    All methods must be called in the event loop's thread.

    Attributes:
        state: The store's condition and version; see StoreState.
        at: The time of the last observed change.
    """

    def __init__(self, url: str) -> None:
        self._watch = StoreWatch(url)
        # Separate pools, because questions must not delay checks, nor slow questions the others.
        self._check_pool = ThreadPoolExecutor(1, "check")
        self._pool = ThreadPoolExecutor(_WORKERS, "answer")
        self._slow_pool = ThreadPoolExecutor(1, "slow")
        self.state = StoreState("absent", "The store has not been checked yet.", 0)
        self.at = _now()
        self._answers: dict[Hashable, tuple[int, asyncio.Future[Any]]] = {}
        self._followers: set[Callable[[], None]] = set()
        self._overview: tuple[StoreReader | None, StoreOverview | None] = None, None

    @property
    def version(self) -> int:
        """A number that changes after each commit, and after each hour when its windows are settled."""
        return self.state.version

    async def run(self) -> None:
        """Check for commits until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def check(self) -> None:
        """Check the store once, and wake the followers if its state has changed."""
        state = await asyncio.get_running_loop().run_in_executor(self._check_pool, self._watch.refresh)
        if state != self.state:
            self.state, self.at = state, _now()
            self.wake()

    def wake(self) -> None:
        """Make all followers update, as after a commit."""
        for wake in tuple(self._followers):
            wake()

    def close(self) -> None:
        """Close the store without waiting for running questions."""
        for pool in (self._check_pool, self._pool, self._slow_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        self._watch.close()

    async def ask(self, question: Hashable, answer: Callable[[StoreReader], T], *, slow: bool = False) -> T:
        """Return answer(reader), computed in a thread once per commit for all readers with the same question.

        Args:
            question: The question's unique key, such as ("share", fleet, name, low, high).
            answer: The computation.
            slow: Whether the computation takes seconds; slow computations run one after another.

        Raises:
            StoreError: If the store cannot be read. Errors in `answer` are passed on.
        """
        previous = self._answers.get(question)
        if previous is not None and previous[0] == self.version and not _failed(previous[1]):
            return await asyncio.shield(previous[1])
        while len(self._answers) >= _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
        pool = self._slow_pool if slow else self._pool
        work = asyncio.get_running_loop().run_in_executor(pool, lambda: answer(self._watch.reader()))
        future = asyncio.ensure_future(work)
        self._answers.pop(question, None)
        self._answers[question] = self.version, future
        return await asyncio.shield(future)

    async def error_message(self, error: HushmoteError) -> str:
        """Return the error message, or "" if the store itself failed, which the frame shows once."""
        if isinstance(error, StoreError):
            await self.check()  # the question may have failed before a check noticed
        return "" if self.state.words else visible(str(error))

    async def overview(self) -> StoreOverview:
        """Return the store's overview, in which new histograms may not have been checked yet.

        Raises:
            StoreError: If the store cannot be read.
        """
        return await self.ask("overview", partial(self._read_overview, check=False))

    async def checked_overview(self) -> StoreOverview:
        """Return the same with all histograms checked, which can take seconds."""
        return await self.ask("checked overview", partial(self._read_overview, check=True), slow=True)

    def _read_overview(self, reader: StoreReader, *, check: bool) -> StoreOverview:
        latest = self._overview
        previous = latest[1] if latest[0] is reader else None
        store_overview = overview(reader.store, _now(), previous, check=check)
        if check or self._overview is latest:  # otherwise its histograms have been checked in the meantime
            self._overview = reader, store_overview
        return store_overview

    def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Await refresh() when the reader's browser has connected, and after each commit, until it leaves.

        Commits during a call cause one further call. The calls run in the context of the reader's page.
        """
        client = context.client
        due = asyncio.Event()
        due.set()

        async def update() -> None:
            # Questions must not delay the page, or run for readers who never connect.
            await client.connected()
            self._followers.add(due.set)
            try:
                while not client.is_deleted:
                    await due.wait()
                    due.clear()
                    start_s = time.monotonic()
                    with client:
                        await _guarded(refresh)
                    await asyncio.sleep(min(_PAUSE_FACTOR * (time.monotonic() - start_s), _MAX_PAUSE_S))
            finally:
                self._followers.discard(due.set)

        task = background_tasks.create(update(), name="follow")
        client.on_delete(lambda: task.cancel())

    def on_each_change(self, show: Callable[[], None]) -> None:
        """Call show() now and after each commit, until the current reader leaves."""

        async def refresh() -> None:
            show()

        show()
        self.follow(refresh)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


async def _guarded(refresh: Callable[[], Awaitable[None]]) -> None:
    """Await refresh(); log an unexpected error and show one line on the page."""
    try:
        await refresh()
    except HushmoteError as e:
        log.warning("could not update the page: %s", e)
    except Exception as e:
        log.exception("unexpected error in the page")
        context.client.handle_exception(e)
