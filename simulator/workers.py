"""Where the parts of a simulation or a study run: in this process, in several of this machine, or elsewhere.

    with workers(4) as crew:
        for result in crew.map(function, parts, common):
            ...

A part has a seed of its own, and results come in the order of the parts: numbers do not depend on where the
parts ran, nor on how many worked on them.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..server.extras import is_installed, require
from .crew import THIS_PROCESS, Workers, WorkersError

_MOST_WORKERS = 64  # where there are not as many cores: more would fill the memory and do nothing sooner


@contextmanager
def workers(wanted: int | str | None = None, cores: bool = False) -> Iterator[Workers]:
    """Workers for the block: processes of this machine, those of a Dask scheduler, or this process alone.

    wanted: how many processes, 1 or more, or a scheduler's address, such as tcp://10.0.0.5:8786. cores:
    without it as many as there are cores, each with one thread of linear algebra; this process where Dask is
    not installed. Raises ExtraMissing where Dask is not installed, and WorkersError where no scheduler
    answers, or its workers do not fit.
    """
    count = os.cpu_count() or 1
    if wanted is None:
        cores = cores and is_installed("distributed")
        wanted = count if cores else 1
    elif isinstance(wanted, str) and wanted.removeprefix("-").isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if wanted < 1:
            raise WorkersError(f"there must be 1 worker or more, not {wanted}")
        if wanted > max(_MOST_WORKERS, count):
            raise WorkersError(
                f"each worker is a process, and this machine has {count} cores: take "
                f"{max(_MOST_WORKERS, count)} workers at most"
            )
        if wanted == 1 and not cores:
            yield THIS_PROCESS
            return
    require("distributed", "work in several processes")
    from . import dask_workers  # distributed takes a second to load

    with dask_workers.local(wanted) if isinstance(wanted, int) else dask_workers.remote(wanted) as crew:
        yield crew
