"""`hushmote serve`: the aggregator; it is restarted most and waited for, so it loads little."""

from __future__ import annotations

import contextlib
import enum
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..device.ldp_client import LDPError
from ..server.aggregator import CLIENT_ID, Aggregator
from ..server.errors import HushmoteError, UsageError
from ..server.ingest.broker_url import NatsAddress
from ..server.ingest.clock import SIMULATED, HurryingClock, now
from ..server.ingest.pacing import BATCH_S
from ..server.ingest.status import trouble
from ..server.provisioning.master_key import load_keys
from ..server.results.publication import DISCOVERY_PREFIX, Publication
from ..server.results.publisher import Publisher
from ..server.service import process as serving
from ..server.store.database import parse_url
from ..server.store.store import Store
from ..server.wire.limits import BATCH_REPORTS
from .broker import DEFAULT_BROKER, BrokerUrl, Ca, Cert, CertKey, PasswordFile, reports_connection
from .options import DEFAULT_STORE, StoreUrl, on_command_line

SIMULATED_CLIENT_ID = "hushmote-simulated"  # not the session of an aggregator of real fleets
_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class Protocol(enum.StrEnum):
    """MQTT versions to speak; auto tries 5 first."""

    auto = "auto"
    v5 = "5"
    v311 = "3.1.1"


class LogFormat(enum.StrEnum):
    """How the log is written."""

    text = "text"
    json = "json"


def serve_command(
    context: typer.Context,
    store: StoreUrl = DEFAULT_STORE,
    broker: BrokerUrl = DEFAULT_BROKER,
    password_file: PasswordFile = None,
    ca: Ca = None,
    cert: Cert = None,
    cert_key: CertKey = None,
    master_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Master key file, for keyed fleets; or set HUSHMOTE_MASTER_KEY to the keys.",
            show_default=False,
        ),
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="MQTT version; auto tries 5 first.")] = Protocol.auto,
    client_id: Annotated[
        str | None,
        typer.Option(
            help=f"Name of what the broker keeps for it, a session or NATS' consumer; else {CLIENT_ID}.",
            envvar="HUSHMOTE_CLIENT_ID",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(
            help="Name of the group of aggregators on one store that divide the reports; needs MQTT 5. On "
            "NATS all with one --client-id do.",
            envvar="HUSHMOTE_SHARE",
            show_default=False,
        ),
    ] = None,
    retire: Annotated[
        bool,
        typer.Option(
            "--retire", help="Count what the broker keeps for --client-id, end that for good, and exit."
        ),
    ] = False,
    rate: Annotated[
        int | None,
        typer.Option(
            help="Most reports of one device that are counted in an hour; else all.",
            min=1,
            max=65_535,
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option(help="Most reports that are committed together.", min=1, max=30_000)
    ] = BATCH_REPORTS,
    batch_s: Annotated[float, typer.Option(help="Most seconds between two commits.", min=0.01)] = BATCH_S,
    simulated_days: Annotated[
        int | None,
        typer.Option(
            help="Only for fleets of simulated boards, named sim...: the clock begins so many days ago "
            "and runs through each in 10 s.",
            min=1,
            max=365,
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics and /healthz there, without a login: 127.0.0.1:9417.",
            show_default=False,
        ),
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Retain each experiment's result at the broker, over windows that have ended.",
        ),
    ] = False,
    publish_live: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="The same inside running windows too, so often: then only the ε of a report holds.",
            min=1,
            max=86_400,
            show_default=False,
        ),
    ] = None,
    publish_windows: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Over the newest N windows; else over all.",
            min=1,
            show_default=False,
        ),
    ] = None,
    home_assistant: Annotated[
        bool,
        typer.Option(
            "--home-assistant",
            help="Announce each published statistic as a sensor to Home Assistant.",
        ),
    ] = False,
    discovery_prefix: Annotated[
        str,
        typer.Option(help="Home Assistant's discovery prefix."),
    ] = DISCOVERY_PREFIX,
    log: Annotated[
        LogFormat,
        typer.Option("--log-format", help="Form of the log: lines of text, or a JSON object a line."),
    ] = LogFormat.text,
) -> None:
    """Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge."""
    with _mistakes(log), contextlib.ExitStack() as stack:
        if on_command_line(context, "store") and _has_password(store):
            raise UsageError(
                "every user of this machine can read a command line: give the store's URL in HUSHMOTE_STORE, "
                "or its password in PGPASSWORD or in a file that PGPASSFILE names"
            )
        typed = on_command_line(context, "broker")
        address, tls = reports_connection(broker, password_file, ca, cert, cert_key, typed=typed)
        nats, host, port = None, "", 0
        if isinstance(address, NatsAddress):
            _check_for_nats(client_id, share, protocol)
            nats = address
        else:
            host, port = address.host, address.port
        if protocol is Protocol.v311 and (share or retire):
            raise UsageError("--share and --retire need MQTT 5: leave --protocol out")
        name = _client_id(client_id, share, CLIENT_ID if simulated_days is None else SIMULATED_CLIENT_ID)
        fleet_keys = load_keys(master_key)
        metrics = where = None
        if http is not None:
            # Only here: they take a tenth of a second to load.
            from ..server.service.bounded_http import parse_endpoint
            from ..server.service.http_endpoint import Endpoint
            from ..server.service.metrics import CertificateEnds, Metrics

            where = parse_endpoint(http)
            metrics = Metrics()
        publisher = None
        if publish or publish_live is not None:
            if retire or simulated_days is not None:
                raise UsageError("--publish is for real fleets: leave --retire and --simulated-days out")
            prefix = discovery_prefix if home_assistant else None
            publisher = Publisher(store, Publication(publish_live, publish_windows, prefix))
        elif publish_windows is not None or home_assistant:
            raise UsageError("--publish-windows and --home-assistant need --publish or --publish-live")
        opened = stack.enter_context(Store(store, patient=True))
        fleets, clock = (None, now) if simulated_days is None else _simulated(opened, simulated_days)
        aggregator = Aggregator(
            opened,
            host,
            port,
            nats=nats,
            username=address.username,
            password=address.password,
            tls=tls,
            fleets=fleets,
            fleet_keys=fleet_keys,
            client_id=name,
            share=share,
            retire=retire,
            rate=rate,
            protocol=protocol.value,
            batch_reports=batch,
            batch_s=batch_s,
            on_ready=serving.announce_ready,
            on_commit=None if metrics is None else metrics.committed,
            retained=None if publisher is None else lambda: publisher.retained,
            clock=clock,
        )
        if where is not None and metrics is not None:
            metrics.watch(lambda: aggregator.counters, lambda: aggregator.condition)
            metrics.add(CertificateEnds({"cert": cert, "ca": ca}))
            if publisher is not None:
                from ..server.results.gauges import Gauges

                metrics.add(Gauges(lambda: publisher.findings))
            stack.enter_context(Endpoint(*where, metrics.text, lambda: trouble(aggregator.condition)))
        if publisher is not None:
            stack.enter_context(publisher)
        serving.run(aggregator)


@contextlib.contextmanager
def _mistakes(log: LogFormat) -> Iterator[None]:
    """Set up the log; where it is JSON, a user's mistake is an object of it too."""
    serving.set_up_log(as_json=log is LogFormat.json)
    try:
        yield
    except (HushmoteError, LDPError) as e:
        if log is not LogFormat.json:
            raise
        logging.getLogger(__name__).critical("%s", e)
        raise typer.Exit(1) from None


def _has_password(store: str) -> bool:
    url = parse_url(store)
    return url.password is not None or any("password" in option for option in url.query)


def _simulated(store: Store, days: int) -> tuple[list[str], HurryingClock]:
    """The store's fleets, which alone are subscribed to, and their clock; UsageError for a real fleet."""
    fleets = sorted(store.fleets())
    for fleet in fleets:
        if not fleet.startswith(SIMULATED):
            raise UsageError(
                f"--simulated-days is for fleets whose names begin with {SIMULATED}, and {store.where} has "
                f"{fleet}: give simulated fleets a store of their own"
            )
    if not fleets:
        raise UsageError("there is no fleet yet: hushmote experiment add FILE --fleet simulated --open")
    return fleets, HurryingClock(days)


def _check_for_nats(client_id: str | None, share: str | None, protocol: Protocol) -> None:
    if share is not None:
        raise UsageError("on NATS all aggregators with one --client-id divide the reports: leave --share out")
    if protocol is not Protocol.auto:
        raise UsageError("--protocol is for MQTT brokers: leave it out, NATS has one protocol")
    if client_id is not None and "." in client_id:
        raise UsageError("on NATS --client-id names a consumer, which cannot have a dot: write - or _")


def _client_id(name: str | None, share: str | None, usual: str) -> str:
    if name is None and share is not None:
        # Not derived: a host's name that changes would leave a session behind that still gets its share.
        raise UsageError(
            "--share needs --client-id: a name of its own for each aggregator, the same at every start"
        )
    if name is not None and _CLIENT_ID.fullmatch(name) is None:
        raise UsageError("--client-id must be 1 to 64 of letters, digits, ., _ and -")
    return name or usual
