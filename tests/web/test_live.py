"""The page's store: an answer is shared until the next commit, and a failed one is not kept."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from boards import ask_fleet, experiment
from filled_store import write

from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.overview.fleets import StoreOverview, overview
from hushmote.server.store import Store, StoreError
from hushmote.web import live as module
from hushmote.web.live import LiveStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    with Store(f"sqlite:///{path}") as store:
        ask_fleet(store, "home", experiment())
    return path


def run(path: Path, steps: Callable[[LiveStore], Awaitable[None]]) -> None:
    """Run the steps on a store that was checked once."""

    async def checked() -> None:
        live = LiveStore(f"sqlite:///{path}")
        try:
            await live.check()
            await asyncio.wait_for(steps(live), 20)
        finally:
            live.close()

    asyncio.run(checked())


class TestAsk:
    def test_repeats_a_question_that_failed(self, path: Path) -> None:
        attempts: list[bool] = []  # whether each one fails

        def answer(_reader: StoreReader) -> int:
            if attempts[-1]:
                raise StoreError("the disk is slow")
            return len(attempts)

        async def steps(live: LiveStore) -> None:
            for outages in (1, 2):
                for fails in (True, True, False):
                    attempts.append(fails)
                    if fails:
                        with pytest.raises(StoreError, match="the disk is slow"):
                            await live.ask("share", answer)
                    else:
                        assert await live.ask("share", answer) == len(attempts)
                assert await live.ask("share", answer) == 3 * outages
                with Store(f"sqlite:///{path}") as store:
                    store.withdraw_experiment("home", "temp")
                await live.check()

        run(path, steps)

    def test_shows_no_answer_from_before_an_outage(self, path: Path) -> None:
        away = path.with_suffix(".away")

        async def steps(live: LiveStore) -> None:
            for number in range(2):
                assert await live.ask("n", lambda _, n=number: n) == number
                fleets = [fleet.name for fleet in (await live.overview()).fleets]
                assert fleets == [*(f"f{n}" for n in range(number)), "home"]
                path.rename(away)
                await live.check()
                assert live.state.kind == "absent"
                for ask in (live.ask("n", lambda _: -1), live.overview()):
                    with pytest.raises(StoreError, match="there is no store at"):
                        await ask
                with Store(f"sqlite:///{away}") as store:
                    ask_fleet(store, f"f{number}", experiment())
                away.rename(path)
                await live.check()

        run(path, steps)

    def test_keeps_the_256_newest_answers(self, path: Path) -> None:
        answers: list[int] = []

        async def ask(live: LiveStore, number: int) -> None:
            await live.ask(number, lambda _: answers.append(number))

        async def steps(live: LiveStore) -> None:
            for number in range(257):
                await ask(live, number)
            for number in (1, 256, 0):
                await ask(live, number)

        run(path, steps)
        assert answers == [*range(257), 0]

    def test_slow_question_does_not_delay_others(self, path: Path) -> None:
        async def steps(live: LiveStore) -> None:
            release = asyncio.Event()
            loop = asyncio.get_running_loop()

            def wait(_reader: StoreReader) -> None:
                asyncio.run_coroutine_threadsafe(release.wait(), loop).result()

            slow = [asyncio.ensure_future(live.ask(("slow", n), wait, slow=True)) for n in range(3)]
            await asyncio.sleep(0)  # all three are asked
            assert await live.ask("quick", lambda _: "answer") == "answer"
            assert not any(question.done() for question in slow)
            release.set()
            await asyncio.gather(*slow)

        run(path, steps)


class TestOverview:
    def test_keeps_checks_that_end_while_it_is_read(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checked = threading.Event()

        def overlapping(*arguments: Any, check: bool) -> StoreOverview:
            result = overview(*arguments, check=check)
            if not check:
                checked.wait(20)
            return result

        async def steps(live: LiveStore) -> None:
            unchecked = asyncio.ensure_future(live.overview())
            await asyncio.sleep(0)  # it has begun
            assert (await live.checked_overview()).is_checked
            checked.set()
            assert not (await unchecked).is_checked
            ask_fleet(store, "work", experiment())
            await live.check()
            assert (await live.overview()).is_checked

        monkeypatch.setattr(module, "overview", overlapping)
        with Store(f"sqlite:///{path}") as store:  # stays open, as an aggregator's does
            write(store, "home", experiment(), {("2026-11-21", code): 100 for code in range(64)})
            run(path, steps)
