"""Kill a child process at a chosen step of its work on a store."""

import os
import signal
from collections.abc import Callable

STATEMENTS = ("before_cursor_execute", "after_cursor_execute", "commit")
"""SQLAlchemy's events that are steps."""


def kill_at(step: int, act: Callable[[Callable[..., None]], object]) -> bool:
    """Run act(count) in a child process, and kill it when it calls count() after `step` earlier calls.

    Returns whether it was killed; False if act() ended before.
    """
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    left = step

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        act(count)
    finally:
        os._exit(0)
