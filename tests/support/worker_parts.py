"""Functions that tests have workers run: a module of its own, so that their processes can import it."""

import os
import signal
import time


def product(part: int, factor: int, seconds: float = 0.0) -> int:
    """Return part * factor, after a while."""
    time.sleep(seconds)
    return part * factor


def deadly(part: int, victim: int) -> int:
    """End the worker, as a part does that needs more memory than there is."""
    if part == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def surroundings(part: int) -> tuple[int, str | None]:
    """Return the worker's process id, and the threads that its linear algebra may use."""
    return os.getpid(), os.environ.get("OPENBLAS_NUM_THREADS")
