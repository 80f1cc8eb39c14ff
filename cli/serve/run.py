"""The implementation of `hushmote serve`, with few imports because a slow restart delays queued reports."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ...device.ldp_client import LDPError
from ...fleet.alerts.notifier import Notifier
from ...fleet.alerts.receivers import load_receivers
from ...fleet.provisioning.master_key import load_keys
from ...fleet.results.publication import DISCOVERY_PREFIX, Publication
from ...fleet.results.publisher import Publisher
from ...server.aggregator import CLIENT_ID, Aggregator, Counting
from ...server.errors import HushmoteError, UsageError
from ...server.extras import require
from ...server.ingest.broker_url import BrokerAddress, NatsAddress
from ...server.ingest.log_keeper import LogKeeper
from ...server.ingest.log_witnesses import load_witnesses
from ...server.ingest.pacing import BATCH_S
from ...server.ingest.pipeline import fleets
from ...server.ingest.status import health_problem
from ...server.local_days import WEEKDAYS
from ...server.log.key_file import load_key
from ...server.service import process as serving
from ...server.store.database import parse_url
from ...server.store.log import check_unlogged
from ...server.store.store import Store
from ...server.typed_numbers import plain_whole_number, typed_float
from ...server.wire.limits import BATCH_REPORTS
from ..broker import Connection, settings
from ..options import on_command_line

if TYPE_CHECKING:
    from ...server.service.metrics import Metrics

_CLIENT_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
PROTOCOLS: Mapping[str, Literal["auto", "5", "3.1.1"]] = {"auto": "auto", "5": "5", "3.1.1": "3.1.1"}
HOME_ASSISTANT = Path("home-assistant")
"""What --notify names in place of a file, for alerts only in Home Assistant."""
LOG_FORMAT, DISCOVERY = "HUSHMOTE_LOG_FORMAT", "HUSHMOTE_DISCOVERY_PREFIX"


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """The options of `hushmote serve`."""

    context: typer.Context
    store: str
    broker: str
    master_key: Path | None
    signing_key: Path | None
    log_key: Path | None
    witnesses: Path | None
    retire: bool
    rate: int | None
    batch: list[str] | None
    http: str | None
    publish: str | None
    notify: Path | None
    weekly: str | None


def run(options: ServeOptions) -> None:
    """Serve until a signal; raise HushmoteError or LDPError, or typer.Exit if the log is JSON."""
    with _log_errors(), contextlib.ExitStack() as stack:
        store = options.store
        if on_command_line(options.context, "store") and _has_password(store):
            raise UsageError(
                "every user of this machine can read a command line; give the store's URL in HUSHMOTE_STORE, "
                "or its password in PGPASSWORD or in the file named by PGPASSFILE"
            )
        connection = settings(options.broker)
        address, tls = connection.reports(typed=on_command_line(options.context, "broker"))
        name = _client_id(connection, isinstance(address, NatsAddress), options.retire)
        batch_reports, batch_s = _batch(options.batch or ())
        fleet_keys = load_keys(options.master_key, signing=options.signing_key)
        topic_prefix = address.prefix if isinstance(address, BrokerAddress) else ""
        publication = None if options.publish is None else _publication(options.publish, topic_prefix)
        if publication and options.retire:
            raise UsageError("--retire counts the remaining reports and exits; omit --publish")
        if options.notify and options.retire:
            raise UsageError("--retire counts the remaining reports and exits; omit --notify")
        if options.witnesses and not options.log_key:
            raise UsageError("--witnesses sign a log: also give its key with --log-key")
        secret = None if options.log_key is None else load_key(options.log_key)
        signers = () if options.witnesses is None else load_witnesses(options.witnesses)
        endpoint = None if options.http is None else _endpoint(options.http)
        publisher = None if publication is None else Publisher(store, publication)
        only_home_assistant = options.notify == HOME_ASSISTANT
        if only_home_assistant and not (publication and publication.home_assistant):
            raise UsageError(
                "--notify home-assistant announces alerts beside results: also give --publish "
                "ended,home-assistant, or name a file of addresses"
            )
        receivers = () if options.retire or only_home_assistant else load_receivers(options.notify)
        if options.weekly is not None:
            _check_weekly(options.weekly, receivers)
        files = {"HUSHMOTE_BROKER_CERT": connection.cert, "HUSHMOTE_BROKER_CA": connection.ca}
        certificates = {option: Path(file) for option, file in files.items() if file}
        notifier = (
            Notifier(store, receivers, name, certificates, publication, options.weekly)
            if receivers or only_home_assistant
            else None
        )
        opened = stack.enter_context(Store(store, wait_for_server=True))
        if not opened.fleets():
            message = (
                "%s is new and has no experiments; run hushmote experiment add FILE (hushmote "
                "plan creates a FILE)"
            )
            logging.getLogger(__name__).warning(message, opened.where)
        if secret is None and not options.retire:
            check_unlogged(opened)
        keeper = None if secret is None or options.retire else LogKeeper(opened, secret, signers)
        counting = Counting(
            fleet_keys=fleet_keys,
            client_id=name,
            share=connection.share or None,
            retire=options.retire,
            rate=options.rate,
            protocol=PROTOCOLS[connection.protocol],
            batch_reports=batch_reports,
            batch_s=batch_s,
        )
        metrics = None if endpoint is None else endpoint[1]
        aggregator = Aggregator(
            opened,
            address,
            counting,
            tls=tls,
            on_ready=serving.announce_ready,
            on_commit=None if metrics is None else metrics.note_commit,
            clear_options=_clear_options(options),
            retained_messages=_retained_messages(publisher, notifier),
            take_events=tuple if notifier is None else notifier.take_events,
            keeper=keeper,
        )
        if endpoint is not None:
            log_url = None if keeper is None else store
            stack.enter_context(
                _health_endpoint(aggregator, endpoint, connection, publisher, notifier, log_url)
            )
        if keeper is not None:
            stack.enter_context(keeper)  # after the endpoint, from which witnesses may read the log
        if publisher is not None:
            stack.enter_context(publisher)
        if notifier is not None:
            fleets(opened, fleet_keys)  # a refusal must come before the notifier writes to the store
            stack.enter_context(notifier)
        serving.run(aggregator)


def _check_weekly(weekday: str, receivers: Sequence[object]) -> None:
    if weekday not in WEEKDAYS:
        raise UsageError(f"--weekly must be a day of the week, such as monday, not {weekday}")
    if not receivers:
        raise UsageError("--weekly needs receivers: give their file with --notify")


def _retained_messages(
    publisher: Publisher | None, notifier: Notifier | None
) -> Callable[[], Mapping[str, bytes]] | None:
    """Return what an aggregator retains: results, and alerts for Home Assistant."""
    if publisher is None:
        return None  # without --publish nothing is announced for Home Assistant
    if notifier is None:
        return lambda: publisher.retained
    last: list[Mapping[str, bytes]] = [{}, {}, {}]

    def messages() -> Mapping[str, bytes]:
        parts = publisher.retained, notifier.retained
        if any(new is not old for new, old in zip(parts, last, strict=False)):
            last[:] = [*parts, {**parts[0], **parts[1]}]
        return last[2]

    return messages


def _clear_options(options: ServeOptions) -> str:
    """Return the options with which `hushmote experiment clear` uses the same store and broker."""
    typed = {name: getattr(options, name) for name in ("store", "broker")}
    return "".join(
        f" --{name} {shlex.quote(value)}"
        for name, value in typed.items()
        if on_command_line(options.context, name)
    )


def _endpoint(http: str) -> tuple[tuple[str, int], Metrics]:
    """Return the endpoint's address and metrics, which are imported lazily because that takes 0.1 s."""
    require("uvicorn", "--http")
    from ...server.service.bounded_http import parse_endpoint
    from ...server.service.metrics import Metrics

    return parse_endpoint(http), Metrics()


def _health_endpoint(
    aggregator: Aggregator,
    endpoint: tuple[tuple[str, int], Metrics],
    connection: Connection,
    publisher: Publisher | None,
    notifier: Notifier | None,
    log_url: str | None,
) -> contextlib.AbstractContextManager[Any]:
    """Return an aggregator's HTTP endpoint: health, counters, certificates, results, alerts and the log."""
    from ...fleet.results.gauges import Gauges
    from ...server.service.http_endpoint import Endpoint
    from ...server.service.log_files import LogFiles
    from ...server.service.metrics import CertificateEnds

    (where, metrics), files = endpoint, {"cert": connection.cert, "ca": connection.ca}
    metrics.watch(lambda: aggregator.counters, lambda: aggregator.condition)
    metrics.add(CertificateEnds({key: Path(file) if file else None for key, file in files.items()}))
    if publisher is not None:
        metrics.add(Gauges(lambda: publisher.findings))
    if notifier is not None:
        metrics.add(Gauges(lambda: notifier.findings, "alerts"))
    return Endpoint(
        *where,
        metrics.text,
        lambda: health_problem(aggregator.condition),
        lambda: aggregator.condition.warnings,
        None if log_url is None else LogFiles(log_url),
    )


@contextlib.contextmanager
def _log_errors() -> Iterator[None]:
    """Set up the log; if it is JSON, also log the user's errors as JSON."""
    form = os.environ.get(LOG_FORMAT) or "text"
    if form not in ("text", "json"):
        raise UsageError(f"{LOG_FORMAT} must be text or json, not {form}")
    serving.set_up_log(as_json=form == "json")
    try:
        yield
    except (HushmoteError, LDPError) as e:
        if form != "json":
            raise
        logging.getLogger(__name__).critical("%s", e)
        raise typer.Exit(getattr(e, "exit_status", 1)) from None


def _has_password(store: str) -> bool:
    url = parse_url(store)
    return url.password is not None or any("password" in option for option in url.query)


def _batch(texts: Sequence[str]) -> tuple[int, float]:
    reports, seconds = BATCH_REPORTS, BATCH_S
    for text in texts:
        try:
            if text.endswith("s"):
                seconds = typed_float(text[:-1])
            else:
                reports = int(plain_whole_number(text))
        except ValueError:
            raise UsageError(
                f"--batch must be a number of reports or seconds, such as 500 or 0.5s, not {text}"
            ) from None
    if not (1 <= reports <= 30_000 and seconds >= 0.01):
        raise UsageError("--batch must be 1 to 30000 reports, and at least 0.01s")
    return reports, seconds


def _publication(text: str, topic_prefix: str) -> Publication:
    when, *options = text.split(",")
    is_announced = "home-assistant" in options
    prefix = os.environ.get(DISCOVERY, DISCOVERY_PREFIX) if is_announced else None
    windows = [word for word in options if word != "home-assistant"]
    with contextlib.suppress(ValueError):
        seconds, newest = None if when == "ended" else float(when), [int(word) for word in windows]
        if (seconds is None or 1 <= seconds <= 86_400) and len(newest) < 2 and all(n > 0 for n in newest):
            return Publication(seconds, newest[0] if newest else None, prefix, topic_prefix)
    raise UsageError(
        "--publish must be ended or 1 to 86400 seconds, optionally with a number of windows and "
        f"home-assistant, as in ended,7,home-assistant; not {text}"
    )


def _client_id(connection: Connection, nats: bool, retire: bool) -> str:
    name, share, protocol = connection.client_id, connection.share, connection.protocol
    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol must be one of {', '.join(PROTOCOLS)}, not {protocol}")
    if nats and share:
        raise UsageError("on NATS, aggregators with the same client_id divide the reports; omit share")
    if nats and protocol != "auto":
        raise UsageError("protocol applies only to MQTT brokers; omit it for NATS")
    if nats and "." in name:
        raise UsageError("on NATS, client_id names a consumer and cannot contain a dot; use - or _")
    if protocol == "3.1.1" and (share or retire):
        raise UsageError("share and --retire require MQTT 5; omit protocol")
    if share and not name:
        # Do not derive it from the host name; if that changed, the old session would still get a share.
        raise UsageError(
            "share requires client_id, a name for each aggregator that is unique and the same at every start"
        )
    if name and _CLIENT_ID.fullmatch(name) is None:
        raise UsageError("client_id must have 1 to 64 letters, digits, ., _ or -")
    return name or CLIENT_ID
