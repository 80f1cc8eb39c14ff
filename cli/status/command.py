"""`hushmote status`: what a store holds, live if wanted, and how the devices are."""

from typing import Annotated

import typer

from ..broker import FILE, URLS
from ..options import DEFAULT_STORE, AggregatorUrl, AsJson, PolicyFile, StoreUrl, read_store


def status_command(
    store: StoreUrl = DEFAULT_STORE,
    follow: Annotated[
        bool, typer.Option("--follow", help="Draw it again after every commit, until Ctrl-C.")
    ] = False,
    aggregator: AggregatorUrl = None,
    broker: Annotated[
        str | None,
        typer.Option(help=f"Ask this broker how the devices are: {URLS}; {FILE}", metavar="URL|FILE.toml"),
    ] = None,
    policy_file: PolicyFile = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also show each version, with the ε of its histograms.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a store's health, what each experiment has found out, what was rejected, and why.

    With --follow in a terminal it is live and takes the whole screen; elsewhere it is printed once.
    A store has no certificates: --aggregator shows when the aggregator's end, and `hushmote provision list`
    with the fleet's folder when all of them do.
    """
    if follow:
        from .run import live

        if live(store, aggregator, broker or policy_file, as_json=as_json):
            return
    with read_store(store) as opened:
        from .run import run  # here: a mistake waits for no more than it needs

        run(opened, aggregator, broker, policy_file, as_json=as_json, verbose=verbose)
