"""`hushmote simulate`: a fleet before it is built."""

import shlex

from ...server.errors import UsageError
from ..options import check_there, command
from .options import SimulateOptions

DATA = (".csv", ".tsv", ".txt")
"""Ends of names of files with readings."""


def _simulate(options: SimulateOptions) -> None:
    """Simulate a fleet before it is built, and compare its estimates with the truth.

    With --to the fleet's reports of the last days go into a store, for estimate --trend, ledger, status.
    """
    check_there(options.file)
    if options.file.suffix.lower() in DATA:
        from ...planning.proposal import column_of

        name = shlex.quote(f"{options.file}:{column_of(options.file)}")
        raise UsageError(f"{options.file} is data, not an experiment's file: hushmote plan --input {name}")
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


simulate_command = command(SimulateOptions, _simulate)
