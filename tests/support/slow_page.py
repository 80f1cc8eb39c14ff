"""Run `hushmote page` with a store and plan that wait until a file exists, and a /fails that always fails.

python tests/support/slow_page.py FILE page --store URL --http 127.0.0.1:0
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import ui

from hushmote.cli.main import main
from hushmote.web.live import LiveStore
from hushmote.web.plan import view as plan

GATE = Path(sys.argv.pop(1))
MAX_S = 30.0  # the longest wait for an answer


def delayed(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same work, delayed until the gate is open."""

    def wait(*arguments: Any) -> Any:
        end = time.monotonic() + MAX_S
        while not GATE.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return work(*arguments)

    return wait


async def slow(live: LiveStore, question: Any, answer: Callable[..., Any], **how: Any) -> Any:
    return await ask(live, question, delayed(answer), **how)


def fails() -> None:
    raise RuntimeError("a secret of the process")


ask, LiveStore.ask = LiveStore.ask, slow  # type: ignore[method-assign]
plan.solve = delayed(plan.solve)
ui.page("/fails")(fails)
main()
