"""`hushmote door`: accept reports over HTTP."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..server.errors import UsageError
from ..server.extras import require
from ..server.typed_numbers import typed_float
from .broker import DEFAULT_BROKER, BrokerUrl, ExperimentNames, connection, subscribed_names
from .options import on_command_line

if TYPE_CHECKING:
    from ..fleet.door.limits import Rates

DEFAULT_HTTP = "127.0.0.1:9418"
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[a-z0-9.-]+)(:[0-9]{1,5})?", re.ASCII)


def door_command(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    broker: BrokerUrl = DEFAULT_BROKER,
    fleet: Annotated[
        list[str] | None,
        typer.Option(
            help="Accept reports only for this fleet; may be repeated. Default: every fleet that has an "
            "experiment on the broker."
        ),
    ] = None,
    experiment: ExperimentNames = None,
    proofs: Annotated[
        bool,
        typer.Option(
            "--proofs", help="Also serve the proofs of a public log, for devices whose policy has a log."
        ),
    ] = False,
    http: Annotated[str, typer.Option(help="Address to listen on.", metavar="HOST:PORT")] = DEFAULT_HTTP,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with a token, or NAME TOKEN on each line; every request must include one as "
            "Authorization: Bearer TOKEN. Changes take effect immediately.",
            envvar="HUSHMOTE_DOOR_TOKEN_FILE",
            metavar="FILE",
        ),
    ] = None,
    open_door: Annotated[
        bool,
        typer.Option("--open", help="Let anyone send reports, which in an open fleet includes forged ones."),
    ] = False,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Let web pages of this origin use the door, such as https://board.example; may be repeated.",
            metavar="URL",
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            help="Also serve the log in this store as files, at /log/ without a token.", metavar="STORE"
        ),
    ] = None,
    trust_proxy: Annotated[
        bool,
        typer.Option(
            "--trust-proxy", help="A reverse proxy is in front: read client addresses from X-Forwarded-For."
        ),
    ] = False,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            help="Reports per second from all devices, requests from one address, or reports from one device "
            "and address. May be repeated.  [default: 1000, address=200, device=1]",
            metavar="[address=|device=]N",
        ),
    ] = None,
) -> None:
    """Accept reports over HTTP and publish them: for LoRaWAN servers, scripts and browsers.

    POST /v1/FLEET/report/DEVICE accepts the bytes that a board sends over MQTT, and returns 204 once the
    broker has them.
    """
    require("uvicorn", "the door")
    # Imported lazily because they take a tenth of a second to load.
    from ..fleet.door import process
    from ..fleet.door.access import LOOPBACK, Access
    from ..fleet.door.app import door_application
    from ..fleet.door.publisher import ReportPublisher
    from ..server.service.bounded_http import parse_endpoint
    from ..server.service.http_access import is_loopback
    from ..server.service.log_files import LogFiles
    from ..server.service.process import set_up_log
    from ..server.service.tokens import TokenFile

    host, port = parse_endpoint(http)
    local = is_loopback(host)
    if token_file is not None and open_door:
        raise UsageError("--token-file requires a token but --open does not; give only one of them")
    if not local and token_file is None and not open_door:
        raise UsageError(
            f"{host} can be reached from other machines: give --token-file FILE, or --open to accept reports "
            "from anyone (which in an open fleet includes forged ones)"
        )
    tokens = None if token_file is None else TokenFile(token_file)
    checks_host = local and tokens is None and not open_door
    access = Access(
        tokens,
        LOOPBACK | {host} if checks_host else None,
        frozenset(map(_origin, origin or ())),
        trust_proxy,
    )
    rates = _rates(rate or ())
    address, tls = connection(broker, typed=on_command_line(context, "broker"))
    names = subscribed_names(experiment, fleet)
    publisher = ReportPublisher(address, tls, fleets=fleet or None, experiments=names, proofs=proofs)
    set_up_log(as_json=False)
    files = None if log is None else LogFiles(log)
    process.run(publisher, door_application(publisher, access=access, rates=rates, log=files), host, port)


def _rates(texts: Sequence[str]) -> Rates:
    from ..fleet.door.limits import Rate, Rates

    defaults = Rates()
    rates = {"device": defaults.device, "address": defaults.address, "": defaults.total}
    for text in texts:
        scope, _, number = text.rpartition("=")
        per_s = 0.0
        with contextlib.suppress(ValueError):
            per_s = typed_float(number)
        if scope not in rates or not 0.01 <= per_s < float("inf"):
            raise UsageError(
                f"--rate must be N, address=N or device=N with N at least 0.01 a second, not {text}"
            )
        rates[scope] = Rate(per_s, rates[scope].burst)
    return Rates(rates["device"], rates["address"], rates[""])


def _origin(text: str) -> str:
    """Return an origin as browsers write it; raises UsageError for any other text."""
    if _ORIGIN.fullmatch(text) is None:
        raise UsageError(f"--origin {text!r} must be https://host or https://host:port, without a path")
    return text
