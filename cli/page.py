"""`hushmote page`: show a store in a browser."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from ..server.errors import UsageError
from ..server.extras import require
from ..server.plain_text import bracketed
from .broker import FILE, URLS, ExperimentNames, connection, subscribed_names
from .options import DEFAULT_STORE, AggregatorUrl, PolicyFile, StoreUrl, on_command_line

if TYPE_CHECKING:
    from ..server.ingest.broker_url import BrokerAddress
    from ..server.service.tokens import Tokens

DEFAULT_HTTP = "127.0.0.1:9419"


def page_command(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    store: StoreUrl = DEFAULT_STORE,
    fleet: Annotated[str | None, typer.Option(help="Show only this fleet; default: all fleets.")] = None,
    http: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST:PORT")] = DEFAULT_HTTP,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a token that readers must give, or NAME TOKEN on each line; required if "
            "other machines can reach the page. Changes take effect immediately.",
            envvar="HUSHMOTE_PAGE_TOKEN_FILE",
            metavar="FILE",
        ),
    ] = None,
    aggregator: AggregatorUrl = None,
    policy_file: PolicyFile = None,
    what_is_asked: Annotated[
        Path | None,
        typer.Option(
            help="File from `statement write --public`; anyone can read it on the page without a token.",
            metavar="FILE.json",
        ),
    ] = None,
    frame_ancestors: Annotated[
        list[str] | None,
        typer.Option(
            help="Site that may show the page in a frame, such as https://grafana.example, or self; "
            "repeatable. Default: none.",
            metavar="SITE",
        ),
    ] = None,
    trusted_proxy: Annotated[
        str | None,
        typer.Option(
            help="Address of a proxy that admits only people whom it knows, such as 172.30.32.2 of Home "
            "Assistant's ingress. Its requests need no token; without --token-file, others are refused.",
            metavar="IP",
        ),
    ] = None,
    broker: Annotated[
        str | None,
        typer.Option(
            help=f"Publish the in-browser board's reports to this broker: {URLS}; {FILE}",
            envvar="HUSHMOTE_BROKER",
            metavar="URL|FILE.toml",
        ),
    ] = None,
    experiment: ExperimentNames = None,
) -> None:
    """Show a store in a browser, live and read-only.

    The page shows fleets, experiments, budgets and plans, and runs a board in the browser to try.
    """
    require("nicegui", "the page")
    from ..fleet.statement import document
    from ..server.budgets import policy
    from ..server.overview.aggregator import check_url
    from ..server.service.audit_log import audit_log
    from ..server.service.bounded_http import parse_endpoint
    from ..server.service.http_access import is_loopback
    from ..server.service.process import set_up_log
    from ..server.service.tokens import TokenFile
    from ..web.app import serve
    from ..web.settings import PageSettings, parse_address, parse_frame_ancestors

    fleets = None if fleet is None else [fleet]
    names = subscribed_names(experiment, fleets)
    if experiment and broker is None:
        raise UsageError("--experiment names what the in-browser board subscribes to: add --broker URL")
    host, port = parse_endpoint(http)
    ancestors = parse_frame_ancestors(frame_ancestors or ())
    proxy = None if trusted_proxy is None else parse_address(trusted_proxy)
    tokens = None if token_file is None else TokenFile(token_file)
    if tokens is None and proxy is None and not is_loopback(host):
        raise UsageError(
            f"{host} can be reached from other machines; give --token-file FILE to admit only people who "
            "know the token, or listen on 127.0.0.1"
        )
    public = None if what_is_asked is None else document.read_public(what_is_asked)
    if public and fleet not in (None, public["statement"]["fleet"]):
        raise UsageError(f"{what_is_asked} is not a statement for fleet {fleet}; write one for that fleet")
    board_policy = None if policy_file is None else policy.read(policy_file)
    aggregator_url = None if aggregator is None else check_url(aggregator)
    set_up_log(as_json=False)
    with contextlib.ExitStack() as stack:
        door, reports_to = None, None
        if broker is not None:
            from ..fleet.door.app import door_application
            from ..fleet.door.publisher import ReportPublisher

            is_typed = on_command_line(context, "broker")
            broker_connection = connection(broker, typed=is_typed)
            reports_to = None if is_typed else _without_login(broker_connection[0])
            publisher = ReportPublisher(*broker_connection, fleets=fleets, experiments=names)
            door = door_application(stack.enter_context(publisher))
        os.nice(5)  # an aggregator on the same machine takes precedence
        settings = PageSettings(
            store,
            host,
            port,
            fleet,
            aggregator_url,
            tokens,
            door,
            board_policy,
            public,
            audit_log(store),
            ancestors,
            proxy,
        )
        serve(settings, lambda url: _print_link(url, reports_to, tokens))


def _without_login(address: BrokerAddress) -> str:
    return f"mqtt{'s' if address.tls else ''}://{bracketed(address.host)}:{address.port}"


def _print_link(url: str, reports_to: str | None, tokens: Tokens | None) -> None:
    """Print the page's address, and the broker unless it was given on the command line.

    The link contains the token only on a terminal, because a service's output is kept in a journal.
    """
    current = [] if tokens is None else list(tokens.current().values())
    token = current[0] if len(current) == 1 else None
    link = f"{url.rstrip('/')}/?token={quote(token)}" if token and sys.stdout.isatty() else url
    typer.echo(f"the page is at {link}")
    if reports_to is not None:
        typer.echo(f"its in-browser board reports to {reports_to} (HUSHMOTE_BROKER)")
