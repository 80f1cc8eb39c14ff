"""`hushmote status`: the contents of a store, optionally live, and the devices' health."""

from typing import Annotated

import typer

from ..broker import FILE, URLS
from ..options import DEFAULT_STORE, AggregatorUrl, AsJson, PolicyFile, Privacy, StoreUrl, Verbose, read_store


def status_command(
    store: StoreUrl = DEFAULT_STORE,
    follow: Annotated[
        bool, typer.Option("--follow", help="Redraw after every commit, until Ctrl-C.")
    ] = False,
    aggregator: AggregatorUrl = None,
    broker: Annotated[
        str | None,
        typer.Option(
            help=f"Read the devices' health from this broker: {URLS}; {FILE}", metavar="URL|FILE.toml"
        ),
    ] = None,
    policy_file: PolicyFile = None,
    privacy: Privacy = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Show a store's health, each experiment's finding, and the rejected reports.

    With --follow in a terminal, the display is live and fills the screen; otherwise it is printed once. A
    store has no certificates; --aggregator shows when the aggregator's expire, and `hushmote provision list`
    with the fleet's folder shows all of them.
    """
    if follow:
        from .run import live

        if live(store, aggregator, broker or policy_file, as_json=as_json):
            return
    with read_store(store) as opened:
        from .run import run  # imported lazily so that usage errors are fast

        run(opened, aggregator, broker, policy_file, as_json=as_json, privacy=privacy, verbose=verbose)
