"""The NATS servers' files for one fleet: their configurations, and which user may use which subject.

This module only generates text, for nats-server 2.15; the tests start it with exactly these files. A topic's
slashes become dots here.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath

from ...server.errors import ProvisionError
from ...server.plain_text import bracketed
from ...server.wire.subjects import STREAM, report_subject
from ...server.wire.topics import check_fleet, experiment_topic
from .authority import SERVER_URI, client_uri
from .fleet_spec import DOOR, FleetSpec, check_aggregator, fill_template, is_loopback
from .journal import Credential
from .mosquitto import DISCOVERED, MAX_CONNECTIONS, MAX_PACKET_BYTES

MAX_STORE_BYTES = 20_000_000_000
MAX_MEMORY_BYTES = 1_000_000_000
MAX_SUBSCRIPTIONS = 200
HANDSHAKE_S = 60
FORGOTTEN_MIN = 10


def check(fleet: FleetSpec) -> None:
    """Raise ProvisionError if NATS servers cannot serve such a fleet."""
    if len(fleet.hosts) not in (1, 3):
        raise ProvisionError(
            f"NATS needs one --host per server, for one or three servers, not {len(fleet.hosts)}: with two, "
            "both would have to stay up"
        )
    if fleet.password_port is not None:
        raise ProvisionError("NATS has one MQTT port, which requires certificates: omit password_port")


def nats_conf(fleet: FleetSpec, number: int) -> str:
    """Return nats.conf for the server with this number, from 1; raises ProvisionError and NameRefused."""
    check(fleet)
    experiment_topic(fleet.fleet, "any")  # raises NameRefused for an invalid fleet name
    where = PurePosixPath(fleet.broker_folder) / str(number)
    if not str(where).isprintable() or '"' in str(where) or "\\" in str(where):
        raise ProvisionError("the broker's folder must be printable text on one line, without quotes")
    count = len(fleet.hosts)
    public_address, local_address = _listen_addresses(fleet.hosts[number - 1])
    routes = [f'    "nats-route://{bracketed(host)}:{fleet.cluster_port}"' for host in fleet.hosts]
    values = {
        **asdict(fleet),
        "nats_port": fleet.nats_port,
        "number": number,
        "count": count,
        "where": where,
        "public_address": public_address,
        "local_address": local_address,
        "routes": "\n".join(routes),
        "servers": SERVER_URI,
        "handshake_s": HANDSHAKE_S,
        "forgotten_min": FORGOTTEN_MIN,
        "store_bytes": MAX_STORE_BYTES,
        "memory_bytes": MAX_MEMORY_BYTES,
        "packet_bytes": MAX_PACKET_BYTES,
        "connections": MAX_CONNECTIONS,
        "subscriptions": MAX_SUBSCRIPTIONS,
    }
    tls = fill_template("nats_tls", values).rstrip()
    text = fill_template("nats", values | {"tls": tls, "inner_tls": tls.replace("\n", "\n  ")})
    if count > 1:
        text += fill_template("nats_cluster", values | {"inner_tls": tls.replace("\n", "\n  ")})
    return text


def _listen_addresses(host: str) -> tuple[str, str]:
    """Return the addresses on which a server listens for other machines and for its own."""
    if is_loopback(host):  # a server that only this machine uses, perhaps one of three
        return bracketed(host), bracketed(host)
    return ("[::]", "[::1]") if ":" in host else ("0.0.0.0", "127.0.0.1")


def users_conf(fleet: FleetSpec, credentials: Iterable[Credential], trusted: Container[str]) -> str:
    """Return users.conf: an entry for each certificate that may connect, with its permissions.

    A user's name is the second name in its certificate, which NATS looks up directly. It would compare a
    subject with every entry.

    Args:
        fleet: The fleet's specification.
        credentials: All credentials that were issued.
        trusted: The trusted roots' names.
    """
    prefix = f"hushmote.v1.{check_fleet(fleet.fleet)}"
    discovery = [f"homeassistant.{name}.hushmote_{fleet.fleet}.*.config" for name in DISCOVERED]
    # The server uses these subjects for a client's own QoS 1 subscriptions; MQTT clients cannot subscribe to
    # them.
    answers = "$MQTT.sub.>"
    reads = [f"{prefix}.experiment.*", f"{prefix}.proof.*", f"{prefix}.result.*", answers]
    aggregators = set(fleet.aggregators)
    for name in aggregators:
        check_aggregator(name)
    users = []
    for c in credentials:
        if c.serial is None:
            continue
        valid, connection_types = c.revoked is None and c.authority in trusted, "[MQTT]"
        if c.kind == "device" and valid:
            publish = _list([f"{prefix}.report.{c.name}", f"{prefix}.status.{c.name}"])
            rights = f"{{publish: {publish}, subscribe: $BOARD_READS}}"
        elif c.kind == "aggregator" and c.name in aggregators:
            # NATS deletes a removed user's retained messages, so keep revoked users, but without a way in.
            rights, connection_types = "$AGGREGATOR", "[STANDARD, MQTT]" if valid else "[WEBSOCKET]"
        elif c.kind == "door" and c.name == DOOR and valid:
            rights = f"{{publish: {_list([f'{prefix}.report.*'])}, subscribe: {_list(reads)}}}"
        else:
            continue
        user = client_uri(c.name, int(c.serial, 16))
        users.append(
            f'{{user: "{user}", allowed_connection_types: {connection_types}, permissions: {rights}}}'
        )
    boards = any("$BOARD_READS" in user for user in users)  # NATS refuses unused names
    lines = [
        "# Written by `hushmote provision`: all users who may connect. After SIGHUP, new users can connect",
        "# and removed users are disconnected.",
        *([f"BOARD_READS: {_list([*reads, f'{prefix}.alert.*', *discovery])}"] if boards else []),
        "AGGREGATOR: {",
        f"  publish: {_list(_aggregator_publishes(prefix, discovery))}",
        f"  subscribe: {_list(_aggregator_subscribes(prefix, answers))}",
        "}",
        "users: [",
        *users,
        "]",
    ]
    return "\n".join(lines) + "\n"


def _aggregator_publishes(prefix: str, discovery: Sequence[str]) -> list[str]:
    """Return the subjects that an aggregator may publish to: what it retains, and JetStream requests."""
    consumer = "$JS.API.CONSUMER"
    return [
        f"{prefix}.experiment.*",
        f"{prefix}.proof.*",
        f"{prefix}.result.*",
        f"{prefix}.alert.*",
        *discovery,
        f"{consumer}.CREATE.{STREAM}.*.{report_subject()}",
        *(f"{consumer}.{verb}.{STREAM}.*" for verb in ("INFO", "MSG.NEXT", "DELETE")),
        f"$JS.ACK.{STREAM}.>",
    ]


def _aggregator_subscribes(prefix: str, answers: str) -> list[str]:
    # An aggregator whose store may get more fleets watches all fleets' experiments and proofs. If its
    # permissions were narrower, NATS would refuse these filters and send none at all.
    watched = "hushmote.v1.*.experiment.*", "hushmote.v1.*.proof.*"
    return [f"{prefix}.report.*", f"{prefix}.status.*", *watched, answers, "_INBOX.>"]


def _list(subjects: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{subject}"' for subject in subjects) + "]"
