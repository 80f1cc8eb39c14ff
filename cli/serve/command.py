"""`hushmote serve`: the aggregator."""

from pathlib import Path
from typing import Annotated

import typer

from ...server.ingest.pacing import BATCH_S
from ...server.wire.limits import BATCH_REPORTS
from ..broker import DEFAULT_BROKER, BrokerUrl
from ..options import DEFAULT_STORE, SigningKey, StoreUrl


def serve_command(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    store: StoreUrl = DEFAULT_STORE,
    broker: BrokerUrl = DEFAULT_BROKER,
    master_key: Annotated[
        Path | None,
        typer.Option(
            help="Master key file, for keyed fleets. Or set HUSHMOTE_MASTER_KEY to the keys.", metavar="FILE"
        ),
    ] = None,
    signing_key: SigningKey = None,
    log_key: Annotated[
        Path | None,
        typer.Option(
            help="Key file of `hushmote log key`: announce only experiments that are in the store's log.",
            metavar="FILE",
        ),
    ] = None,
    witnesses: Annotated[
        Path | None,
        typer.Option(
            help="Have witnesses sign the log. Each line of FILE is a witness's URL and its public keys; "
            "list those of all boards' policies.",
            metavar="FILE",
        ),
    ] = None,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire",
            help="Count the reports that the broker has queued for client_id, end its session, and exit.",
        ),
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of reports to count per device and hour; default: no limit.",
            min=1,
            max=65_535,
        ),
    ] = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Commit after this many reports or this time, such as 500 or 0.5s. May be repeated.  "
            f"[default: {BATCH_REPORTS}, {BATCH_S:g}s]",
            metavar="N|SECONDSs",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            help="Serve /metrics, /healthz and the log's files at this address without a login, such as "
            "127.0.0.1:9417.",
            metavar="HOST:PORT",
        ),
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(
            help="Retain each experiment's result on the broker: for windows that have ended, or every "
            "SECONDS including running ones, to which only a report's ε applies. N: only for the newest N "
            "windows. home-assistant: also announce a sensor for each statistic.",
            metavar="ended|SECONDS[,N][,home-assistant]",
        ),
    ] = None,
    notify: Annotated[
        Path | None,
        typer.Option(
            help="Send alerts to the addresses in FILE, one per line in Apprise's format. Or set "
            "HUSHMOTE_NOTIFY to the addresses. home-assistant: only as entities beside those of --publish.",
            metavar="FILE|home-assistant",
        ),
    ] = None,
    weekly: Annotated[
        str | None,
        typer.Option(
            help="Also send the receivers of alerts a summary each week on this day, at 8:00 local time.",
            metavar="WEEKDAY",
        ),
    ] = None,
) -> None:
    """Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge.

    In a keyed fleet, it signs experiments if it has the signing key. Otherwise it publishes experiments from
    `hushmote experiment sign` and lists those that still need to be signed.

    Several aggregators on one store divide the reports. Each needs its own client_id, and all need the same
    share; set both in FILE.toml or in HUSHMOTE_CLIENT_ID, _SHARE and _PROTOCOL. HUSHMOTE_LOG_FORMAT is text
    or json.
    """
    from .run import ServeOptions, run  # imported lazily so that usage errors are fast

    run(
        ServeOptions(
            context=context,
            store=store,
            broker=broker,
            master_key=master_key,
            signing_key=signing_key,
            log_key=log_key,
            witnesses=witnesses,
            retire=retire,
            rate=rate,
            batch=batch,
            http=http,
            publish=publish,
            notify=notify,
            weekly=weekly,
        )
    )
