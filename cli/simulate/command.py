"""`hushmote simulate`: a fleet before it is built."""

from ..options import check_there, command
from .options import SimulateOptions


def _simulate(options: SimulateOptions) -> None:
    """Simulate a fleet before it is built: what would be estimated, beside the truth.

    With --to the fleet's reports of the last days go into a store, for estimate --trend, ledger, status; or
    through a broker to an aggregator.
    """
    check_there(options.file)
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


simulate = command(SimulateOptions, _simulate)
