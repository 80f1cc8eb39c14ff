"""Functions that tests run in workers, in a separate module so that worker processes can import them."""

import os
import signal
import time


def product(part: int, factor: int, seconds: float = 0.0) -> int:
    """Return part * factor after `seconds`."""
    time.sleep(seconds)
    return part * factor


def deadly(part: int, victim: int) -> int:
    """Kill the worker, as a part that runs out of memory would."""
    if part == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def surroundings(part: int) -> tuple[int, str | None]:
    """Return the worker's process id and its maximum number of linear algebra threads."""
    return os.getpid(), os.environ.get("OPENBLAS_NUM_THREADS")
