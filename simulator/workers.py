"""Where the parts of a simulation or a study run: in this process, on all cores, or on Dask.

    with workers(4) as crew:
        for result in crew.map(function, parts, common):
            ...

A part has a seed of its own, and results come in the order of the parts: numbers do not depend on where the
parts ran, nor on how many worked on them.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from .crew import THIS_PROCESS, Result, Workers, WorkersError

_MOST_WORKERS = 64  # where there are not as many cores: more would fill the memory and do nothing sooner
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Pool(Workers):
    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def _run(
        self, function: Callable[..., Result], parts: Sequence[Any], given: tuple[Any, ...]
    ) -> Iterator[tuple[int, Result]]:
        futures = {self._pool.submit(function, part, *given): n for n, part in enumerate(parts)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise WorkersError(
                "a process of this study was ended from outside: with --workers, others do its part"
            ) from None


@contextmanager
def workers(count: int | None = None, dask: str | None = None, pool: bool = False) -> Iterator[Workers]:
    """Workers for the block: processes of this machine, those of a Dask scheduler, or this process alone.

    count: processes, 1 or more. dask: a scheduler's address, such as tcp://10.0.0.5:8786. pool: what Dask
    does not do, processes of one thread do, as many as there are cores, rather than this one: linear algebra
    on several threads rounds otherwise. Raises WorkersError where Dask is not installed, no scheduler
    answers, or its workers do not fit.
    """
    if count is not None and dask is not None:
        raise WorkersError("work is done either by --workers of this machine or by those of --dask, not both")
    if count is not None and count < 1:
        raise WorkersError(f"there must be 1 worker or more, not {count}")
    cores = os.cpu_count() or 1
    if count is not None and count > max(_MOST_WORKERS, cores):
        raise WorkersError(
            f"each worker is a process, and this machine has {cores} cores: take {max(_MOST_WORKERS, cores)} "
            "workers at most"
        )
    if dask is not None or (count or 1) > 1:
        try:
            from . import dask_workers  # distributed takes a second to load
        except ModuleNotFoundError:
            raise WorkersError("--workers and --dask need Dask: pip install 'hushmote[dask]'") from None
        with dask_workers.remote(dask) if dask is not None else dask_workers.local(count or 1) as crew:
            yield crew
    elif pool:
        with _pool(count or os.cpu_count() or 1) as crew:
            yield crew
    else:
        yield THIS_PROCESS


@contextmanager
def _pool(count: int) -> Iterator[Workers]:
    """Processes with one thread of linear algebra each: more would fight over the cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield _Pool(pool)
        finally:
            pool.shutdown(cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
