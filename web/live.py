"""The store as the page sees it: read only, watched for commits, each question answered once for all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from nicegui import background_tasks, context

from ..server.answers.store_reader import StoreReader
from ..server.errors import HushmoteError
from ..server.overview.watch import StoreWatch

T = TypeVar("T")
log = logging.getLogger(__name__)

TURN_S = 0.25  # between two looks: a commit shows within a second
_MOST_ANSWERS = 256  # kept at once; the oldest goes first


class LiveStore:
    """One store for all readers of the page.

    version: grows by one with every commit that was noticed. trouble: why it cannot be read now, in one
    sentence, or None. All methods belong to the event loop's thread.
    """

    def __init__(self, url: str) -> None:
        self._watch = StoreWatch(url)
        self.version = 0
        self.trouble: str | None = None
        self._answers: dict[Hashable, tuple[int, asyncio.Future[Any]]] = {}
        self._followers: set[Callable[[], None]] = set()

    async def run(self) -> None:
        """Look for commits until cancelled."""
        while True:
            changed = await asyncio.to_thread(self._watch.look)
            if changed or self._watch.trouble != self.trouble:
                self.trouble = self._watch.trouble
                self.version += 1
                for wake in tuple(self._followers):
                    wake()
            await asyncio.sleep(TURN_S)

    def close(self) -> None:
        """Close the store."""
        self._watch.close()

    async def ask(self, question: Hashable, answer: Callable[[StoreReader], T]) -> T:
        """Return answer(reader), worked out in a thread once for each commit, whoever else asks the same.

        question: what names it among all questions, such as ("share", fleet, name, low, high). Raises what
        answer raises, and StoreError where the store cannot be read.
        """
        kept = self._answers.get(question)
        if kept is not None and kept[0] == self.version and not _failed(kept[1]):
            return await asyncio.shield(kept[1])
        while len(self._answers) >= _MOST_ANSWERS:
            del self._answers[next(iter(self._answers))]
        future = asyncio.ensure_future(asyncio.to_thread(lambda: answer(self._watch.reader())))
        self._answers.pop(question, None)
        self._answers[question] = self.version, future
        return await asyncio.shield(future)

    async def follow(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Await refresh() now and again after each commit, until the reader who is being served leaves.

        Commits that come while it runs are one more call after it. It runs with the reader's page as context.
        """
        client = context.client
        due = asyncio.Event()
        self._followers.add(due.set)

        async def turn() -> None:
            try:
                while not client.is_deleted:
                    await due.wait()
                    due.clear()
                    with client:
                        await _guarded(refresh)
            finally:
                self._followers.discard(due.set)

        await _guarded(refresh)
        task = background_tasks.create(turn(), name="follow")
        client.on_delete(lambda: task.cancel())


def _failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


async def _guarded(refresh: Callable[[], Awaitable[None]]) -> None:
    """Await refresh(); what it did not expect is a line in the log, never a trace on the page."""
    try:
        await refresh()
    except HushmoteError as e:
        log.warning("the page could not be brought up to date: %s", e)
    except Exception:
        log.exception("a fault in the page")
