"""The NATS servers' files for one fleet: each one's configuration, and who may use which subject.

Pure text. Written for nats-server 2.15; the tests start it on exactly this. A topic's slashes are dots here.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict
from pathlib import PurePosixPath

from ...server.errors import ProvisionError
from ...server.wire.subjects import STREAM, report_subject
from ...server.wire.topics import check_fleet, experiment_topic
from .authority import SERVER_URI, client_uri
from .fleet_spec import DOOR, FleetSpec, check_aggregator, fill_template, is_loopback
from .journal import Credential
from .mosquitto import MOST_CONNECTIONS, MOST_PACKET_BYTES

MOST_STORE_BYTES = 20_000_000_000
MOST_MEMORY_BYTES = 1_000_000_000
MOST_SUBSCRIPTIONS = 200
HANDSHAKE_S = 60
FORGOTTEN_MIN = 10


def check(fleet: FleetSpec) -> None:
    """Raise ProvisionError if NATS servers cannot serve such a fleet."""
    if len(fleet.hosts) not in (1, 3):
        raise ProvisionError(
            f"NATS takes one --host for one server, or three for three, not {len(fleet.hosts)}: with two "
            "both would have to stay up"
        )
    if fleet.password_port is not None:
        raise ProvisionError("NATS has one port for MQTT, which takes certificates: leave out password_port")


def nats_conf(fleet: FleetSpec, number: int) -> str:
    """Return nats.conf of the server with this number, from 1; raises ProvisionError and NameRefused."""
    check(fleet)
    experiment_topic(fleet.fleet, "any")  # raises NameRefused for an invalid fleet name
    where = PurePosixPath(fleet.broker_folder) / str(number)
    if not str(where).isprintable() or '"' in str(where) or "\\" in str(where):
        raise ProvisionError("the broker's folder must be printable and one line, without quotes")
    count = len(fleet.hosts)
    own, here = _listens(fleet.hosts[number - 1])
    routes = [f'    "nats-route://{_in_url(host)}:{fleet.cluster_port}"' for host in fleet.hosts]
    values = {
        **asdict(fleet),
        "nats_port": fleet.nats_port,
        "number": number,
        "count": count,
        "where": where,
        "own": own,
        "here": here,
        "routes": "\n".join(routes),
        "servers": SERVER_URI,
        "handshake_s": HANDSHAKE_S,
        "forgotten_min": FORGOTTEN_MIN,
        "store_bytes": MOST_STORE_BYTES,
        "memory_bytes": MOST_MEMORY_BYTES,
        "packet_bytes": MOST_PACKET_BYTES,
        "connections": MOST_CONNECTIONS,
        "subscriptions": MOST_SUBSCRIPTIONS,
    }
    tls = fill_template("nats_tls", values).rstrip()
    text = fill_template("nats", values | {"tls": tls, "inner_tls": tls.replace("\n", "\n  ")})
    if count > 1:
        text += fill_template("nats_cluster", values | {"inner_tls": tls.replace("\n", "\n  ")})
    return text


def _listens(host: str) -> tuple[str, str]:
    """Return the addresses on which a server listens, for others and for its own machine."""
    if is_loopback(host):  # a server for this machine alone, perhaps one of three
        return _in_url(host), _in_url(host)
    return ("[::]", "[::1]") if ":" in host else ("0.0.0.0", "127.0.0.1")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def users_conf(fleet: FleetSpec, credentials: Iterable[Credential], trusted: Container[str]) -> str:
    """Return users.conf: an entry for each certificate that may connect, with its rights.

    A user's name is the second name of its certificate: NATS finds that at once, but would compare a subject
    with every entry.

    Args:
        fleet: The fleet's specification.
        credentials: All that were issued.
        trusted: Names of the trusted roots.
    """
    prefix = f"hushmote.v1.{check_fleet(fleet.fleet)}"
    discovery = f"homeassistant.sensor.hushmote_{fleet.fleet}.*.config"
    # The server sends a client this for its own subscriptions at QoS 1; nobody can subscribe to it over MQTT.
    answers = "$MQTT.sub.>"
    reads = [f"{prefix}.experiment.*", f"{prefix}.result.*", answers]
    aggregators = set(fleet.aggregators)
    for name in aggregators:
        check_aggregator(name)
    users = []
    for c in credentials:
        if c.serial is None:
            continue
        valid, ways = c.revoked is None and c.authority in trusted, "[MQTT]"
        if c.kind == "device" and valid:
            publish = _list([f"{prefix}.report.{c.name}", f"{prefix}.status.{c.name}"])
            rights = f"{{publish: {publish}, subscribe: $BOARD_READS}}"
        elif c.kind == "aggregator" and c.name in aggregators:
            # NATS forgets what a removed user retained: so a revoked one stays, without a way in.
            rights, ways = "$AGGREGATOR", "[STANDARD, MQTT]" if valid else "[WEBSOCKET]"
        elif c.kind == "door" and c.name == DOOR and valid:
            rights = f"{{publish: {_list([f'{prefix}.report.*'])}, subscribe: {_list(reads)}}}"
        else:
            continue
        user = client_uri(c.name, int(c.serial, 16))
        users.append(f'{{user: "{user}", allowed_connection_types: {ways}, permissions: {rights}}}')
    boards = any("$BOARD_READS" in user for user in users)  # NATS refuses an unused name
    lines = [
        "# Written by `hushmote provision`: all who may connect. SIGHUP lets in new users and ends the",
        "# connections of those who were removed.",
        *([f"BOARD_READS: {_list([*reads, discovery])}"] if boards else []),
        "AGGREGATOR: {",
        f"  publish: {_list(_aggregator_publishes(prefix, discovery))}",
        f"  subscribe: {_list(_aggregator_subscribes(prefix, answers))}",
        "}",
        "users: [",
        *users,
        "]",
    ]
    return "\n".join(lines) + "\n"


def _aggregator_publishes(prefix: str, discovery: str) -> list[str]:
    """Return the subjects that an aggregator may publish: experiments, results, and JetStream for reports."""
    consumer = "$JS.API.CONSUMER"
    return [
        f"{prefix}.experiment.*",
        f"{prefix}.result.*",
        discovery,
        f"{consumer}.CREATE.{STREAM}.*.{report_subject()}",
        *(f"{consumer}.{verb}.{STREAM}.*" for verb in ("INFO", "MSG.NEXT", "DELETE")),
        f"$JS.ACK.{STREAM}.>",
    ]


def _aggregator_subscribes(prefix: str, answers: str) -> list[str]:
    # An aggregator whose store may get more fleets watches the experiments of all: NATS refuses such a filter
    # if a right is narrower, and would show it none.
    experiments = "hushmote.v1.*.experiment.*"
    return [f"{prefix}.report.*", f"{prefix}.status.*", experiments, answers, "_INBOX.>"]


def _list(subjects: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{subject}"' for subject in subjects) + "]"
