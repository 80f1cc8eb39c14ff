"""The options --workers and --dask of benchmarks whose runs are independent of each other."""

import argparse
from contextlib import AbstractContextManager

from hushmote.simulator.crew import Workers
from hushmote.simulator.workers import workers


def add_worker_options(parser: argparse.ArgumentParser) -> None:
    """Without them there is a process for each core. The numbers are the same with any of them."""
    parser.add_argument("--workers", type=int, help="processes on this machine, by Dask")
    parser.add_argument(
        "--dask", metavar="URL", help="a Dask scheduler; its workers have benchmarks/ in PYTHONPATH"
    )


def chosen_workers(arguments: argparse.Namespace) -> AbstractContextManager[Workers]:
    """The workers that were asked for."""
    return workers(arguments.workers, arguments.dask, pool=True)
