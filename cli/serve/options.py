"""The options of `hushmote serve`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...server.ingest.pacing import BATCH_S
from ...server.wire.limits import BATCH_REPORTS
from ..broker import DEFAULT_BROKER, BrokerUrl
from ..options import DEFAULT_STORE, SigningKey, StoreUrl


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What is counted into which store, from which broker, and what is told of it."""

    context: typer.Context
    store: StoreUrl = DEFAULT_STORE
    broker: BrokerUrl = DEFAULT_BROKER
    master_key: Annotated[
        Path | None,
        "Master key file, for keyed fleets; or set HUSHMOTE_MASTER_KEY to the keys.",
        "FILE",
    ] = None
    signing_key: SigningKey = None
    retire: Annotated[
        bool, "Count what the broker keeps for client_id, end its session for good, and exit."
    ] = False
    rate: Annotated[
        int | None,
        typer.Option(
            help="Count at most this many reports of one device an hour; else all.", min=1, max=65_535
        ),
    ] = None
    batch: Annotated[
        list[str] | None,
        f"Commit after this many reports or this time: 500, 0.5s. May be repeated.  "
        f"[default: {BATCH_REPORTS}, {BATCH_S:g}s]",
        "N|SECONDSs",
    ] = None
    http: Annotated[
        str | None, "Serve /metrics and /healthz there, without a login: 127.0.0.1:9417.", "HOST:PORT"
    ] = None
    publish: Annotated[
        str | None,
        "Retain each experiment's result at the broker: over windows that have ended, or every "
        "SECONDS over running ones too, where only a report's ε holds. N: over the newest N windows. "
        "home-assistant: a sensor for each statistic.",
        "ended|SECONDS[,N][,home-assistant]",
    ] = None
