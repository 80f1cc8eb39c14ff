"""The store for the page: read-only, watched for commits, with each question answered once for all."""

import asyncio
import datetime
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
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

TURN_S = 0.25  # between two checks: a commit is visible within a second
_MOST_ANSWERS = 256  # cached at once; the oldest goes first
_ANSWERING = 2  # questions answered at once: the aggregator needs the machine too
_REST = 2  # pause after a view's update, in multiples of its duration, to limit the load
_MOST_REST_S = 5.0


class LiveStore:
    """One store for all readers of the page.

    All methods must be called in the event loop's thread.

    Attributes:
        state: Its condition and version, see StoreState.
        at: Time of its last observed change.
    """

    def __init__(self, url: str) -> None:
        self._watch = StoreWatch(url)
        self._looking = ThreadPoolExecutor(1, "look")  # slow questions must not delay a check
        self._answering = ThreadPoolExecutor(_ANSWERING, "answer")
        self._taking_long = ThreadPoolExecutor(1, "slow")  # slow questions must not delay quick ones
        self.state = StoreState("absent", "The store was not looked at yet.", 0)
        self.at = _now()
        self._answers: dict[Hashable, tuple[int, asyncio.Future[Any]]] = {}
        self._followers: set[Callable[[], None]] = set()
        self._overview: tuple[StoreReader | None, StoreOverview | None] = None, None

    @property
    def version(self) -> int:
        """A number that changes after each commit, and each hour once its windows are settled."""
        return self.state.version

    async def run(self) -> None:
        """Check for commits until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(TURN_S)

    async def look(self) -> None:
        """Check once, and wake the followers if something changed."""
        state = await asyncio.get_running_loop().run_in_executor(self._looking, self._watch.refresh)
        if state != self.state:
            self.state, self.at = state, _now()
            self.wake()

    def wake(self) -> None:
        """Let all followers update, as after a commit."""
        for wake in tuple(self._followers):
            wake()

    def close(self) -> None:
        """Close the store without waiting for running questions."""
        for pool in (self._looking, self._answering, self._taking_long):
            pool.shutdown(wait=False, cancel_futures=True)
        self._watch.close()

    async def ask(self, question: Hashable, answer: Callable[[StoreReader], T], *, slow: bool = False) -> T:
        """Return answer(reader), computed in a thread once per commit for all readers who ask the same.

        Args:
            question: Its unique key, such as ("share", fleet, name, low, high).
            answer: The computation.
            slow: It takes seconds, and waits for other slow ones.

        Raises:
            StoreError: If the store cannot be read. Errors of `answer` are raised too.
        """
        previous = self._answers.get(question)
        if previous is not None and previous[0] == self.version and not _failed(previous[1]):
            return await asyncio.shield(previous[1])
        while len(self._answers) >= _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        pool = self._taking_long if slow else self._answering
        work = asyncio.get_running_loop().run_in_executor(pool, lambda: answer(self._watch.reader()))
        future = asyncio.ensure_future(work)
        self._answers.pop(question, None)
        self._answers[question] = self.version, future
        return await asyncio.shield(future)

    async def error_message(self, error: HushmoteError) -> str:
        """Return the error message, or "" if the store itself failed, which the frame shows once."""
        if isinstance(error, StoreError):
            await self.look()  # the question may have failed before the check noticed
        return "" if self.state.words else visible(str(error))

    async def overview(self) -> StoreOverview:
        """Return the overview of the store; raise StoreError if it cannot be read."""
        return await self.ask("overview", self._look_over)

    def _look_over(self, reader: StoreReader) -> StoreOverview:
        of, before = self._overview
        store_overview = overview(reader.store, _now(), before if of is reader else None)
        self._overview = reader, store_overview
        return store_overview

    def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Await refresh() once the reader's browser has the page, and after each commit, until it leaves.

        Commits during a call cause one more call after it. It runs in the context of the reader's page.
        """
        client = context.client
        due = asyncio.Event()
        due.set()

        async def turn() -> None:
            await client.connected()  # questions must not delay the page, nor serve readers who never came
            self._followers.add(due.set)
            try:
                while not client.is_deleted:
                    await due.wait()
                    due.clear()
                    began_s = time.monotonic()
                    with client:
                        await _guarded(refresh)
                    await asyncio.sleep(min(_REST * (time.monotonic() - began_s), _MOST_REST_S))
            finally:
                self._followers.discard(due.set)

        task = background_tasks.create(turn(), name="follow")
        client.on_delete(lambda: task.cancel())

    def each_change(self, show: Callable[[], None]) -> None:
        """Call show() now and after each commit, until the reader who is being served leaves."""

        async def refresh() -> None:
            show()

        show()
        self.follow(refresh)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


async def _guarded(refresh: Callable[[], Awaitable[None]]) -> None:
    """Await refresh(); an unexpected error becomes a log entry and one line on the page."""
    try:
        await refresh()
    except HushmoteError as e:
        log.warning("the page could not be brought up to date: %s", e)
    except Exception as e:
        log.exception("a fault in the page")
        context.client.handle_exception(e)
