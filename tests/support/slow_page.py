"""`hushmote page` whose store and plan answer only once a file is there, and whose /fails always fails.

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
MOST_S = 30.0  # that an answer takes


def held(work: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same work, begun once the gate is open."""

    def wait(*arguments: Any) -> Any:
        end = time.monotonic() + MOST_S
        while not GATE.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return work(*arguments)

    return wait


async def slow(live: LiveStore, question: Any, answer: Callable[..., Any], **how: Any) -> Any:
    return await ask(live, question, held(answer), **how)


def fails() -> None:
    raise RuntimeError("a secret of the process")


ask, LiveStore.ask = LiveStore.ask, slow  # type: ignore[method-assign]
plan.solve = held(plan.solve)
ui.page("/fails")(fails)
main()
