"""Workers for a simulation or a study: this process, several local processes, or a Dask scheduler's.

    with workers(4) as pool:
        for result in pool.map(function, parts, common):
            ...

Each part has its own seed, and results are in the order of the parts, so numbers do not depend on where the
parts ran or on the number of workers.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..server.extras import is_installed, require
from .worker_pool import THIS_PROCESS, Workers, WorkersError

# Limit on machines with fewer cores, where more workers would fill the memory without being faster.
_MAX_WORKERS = 64


@contextmanager
def workers(choice: int | str | None = None, cores: bool = False) -> Iterator[Workers]:
    """Yield workers for the block: local processes, a Dask scheduler's workers, or this process alone.

    Args:
        choice: Number of processes, 1 or more, or a scheduler's address, such as tcp://10.0.0.5:8786;
            default: this process.
        cores: Whether to default to one single-threaded process per core, if Dask is installed.

    Raises:
        ExtraMissing: If Dask is needed and not installed.
        WorkersError: If the scheduler does not answer, or its workers run other versions.
    """
    count = os.cpu_count() or 1
    if choice is None:
        cores = cores and is_installed("distributed")
        choice = count if cores else 1
    elif isinstance(choice, str) and choice.removeprefix("-").isdecimal():
        choice = int(choice)
    if isinstance(choice, int):
        if choice < 1:
            raise WorkersError(f"the number of workers must be 1 or more, not {choice}")
        if choice > max(_MAX_WORKERS, count):
            raise WorkersError(
                f"each worker is a process, and this machine has {count} cores; use at most "
                f"{max(_MAX_WORKERS, count)} workers"
            )
        if choice == 1 and not cores:
            yield THIS_PROCESS
            return
    require("distributed", "work in several processes")
    from . import dask_workers  # imported lazily because distributed is slow to load

    with dask_workers.local(choice) if isinstance(choice, int) else dask_workers.remote(choice) as pool:
        yield pool
