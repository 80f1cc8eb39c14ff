"""`hushmote page`: look at a store in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..server.errors import UsageError
from .options import DEFAULT_STORE, FleetName, StoreUrl


def page_command(
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the page listens.")
    ] = "127.0.0.1:9419",
    aggregator: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The aggregator's own HTTP, to show how it is: http://127.0.0.1:9417.",
            envvar="HUSHMOTE_AGGREGATOR",
            show_default=False,
        ),
    ] = None,
    policy_file: Annotated[
        Path | None, typer.Option("--policy", help="Firmware file with the boards' POLICY, or it as .json.")
    ] = None,
) -> None:
    """Look at a store in a browser: fleets, experiments, budgets, plans; live, and only read."""
    try:
        from ..web.app import serve
        from ..web.settings import PageSettings
    except ImportError as e:
        if e.name not in ("nicegui", "babel"):
            raise
        raise UsageError("the page needs NiceGUI: pip install 'hushmote[page]'") from None
    from ..server.planning import policy
    from ..server.service.http_endpoint import parse_endpoint

    known = None if policy_file is None else policy.read(policy_file)
    host, port = parse_endpoint(http)
    settings = PageSettings(store, host, port, fleet, aggregator, policy=known)
    serve(settings, lambda url: print(f"the page is at {url}", flush=True))
