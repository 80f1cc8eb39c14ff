"""`hushmote estimate`: what the fleet says, whether it changed, and how it went over the windows."""

from ..options import command
from .options import EstimateOptions


def _estimate(options: EstimateOptions) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    With --trend there is a row for each window; with --against, what changed since then, or differs
    from there. A picture shows what was asked for, all of it; where nothing was, the histogram.
    """
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


estimate_command = command(EstimateOptions, _estimate)
