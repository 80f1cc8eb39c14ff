"""`hushmote estimate`: what the fleet says, whether it changed, and how it went over the windows."""

from dataclasses import replace

from ...server.errors import choose_name
from .. import output
from ..options import command, read_store
from ..output import PICTURES
from .options import EstimateOptions


def _estimate(options: EstimateOptions) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    --trend shows how the fleet changed, --against what differs from another window, fleet or version. A
    picture shows all that was asked for, or else the histogram. Missing readings are spread over all values
    unless the experiment sets missing.
    """
    outputs = output.checked(options.outputs, ".csv", ".json", *PICTURES)
    with read_store(options.store) as store:
        fleet = choose_name("fleet", options.fleet, tuple(store.fleets()), "in this store")
        versions = store.experiments(fleet)
        names = sorted({version.experiment.name for version in versions})
        choose_name("experiment", options.name, names, f"in fleet {fleet}")
        from .run import run  # here: a mistake waits for no more than it needs

        run(replace(options, fleet=fleet, outputs=[*outputs]), store, versions)


estimate_command = command(EstimateOptions, _estimate)
