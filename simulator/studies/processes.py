"""Processes that a study's parts run in, on all cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def processes(count: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """As many as there are cores, with one thread of linear algebra each: more would fight over the cores."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        pool = ProcessPoolExecutor(
            count or os.cpu_count() or 1, mp_context=multiprocessing.get_context("spawn")
        )
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
