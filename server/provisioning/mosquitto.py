"""What mosquitto is told for one fleet: its configuration, who may use which topic, and passwords' hashes.

Pure text. Written for mosquitto 2.0 (Debian's 2.0.11 and later); the tests start it on exactly this.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ..errors import ProvisionError
from ..wire.limits import BATCH_REPORTS
from ..wire.topics import check_device, check_fleet, experiment_topic, report_filter
from .fleet_spec import DOOR, FleetSpec, check_aggregator

_ITERATIONS = 101  # mosquitto_passwd's own; the passwords are 160 random bits, which no stretching helps
_SALT_BYTES = 12

MOST_PACKET_BYTES = 4096
MOST_CONNECTIONS = 100_000
# What waits for an absent aggregator takes QUEUE_BYTES at most, and 400 bytes for each message. It must stay
# below the broker's memory: at that limit the broker can send nothing any more, so that nothing drains.
MOST_QUEUED = 2_000_000
QUEUE_BYTES = 300_000_000
MEMORY_BYTES = 1_500_000_000
MOST_INFLIGHT = 2 * BATCH_REPORTS  # twice the aggregator's batch: it acknowledges only what is committed


def acl(fleet: str, aggregators: Sequence[str]) -> str:
    """Return mosquitto's access list: who may use which topic of a fleet; what is not named is refused."""
    prefix = f"hushmote/v1/{check_fleet(fleet)}"
    discovery = f"homeassistant/sensor/hushmote_{fleet}/+/config"
    lines = [
        "# Written by `hushmote provision`; what is not allowed here is refused.",
        "# A board: its own reports and status, the experiments, and what was learned, also in the form for",
        "# Home Assistant. %u is its certificate's or login's name; mosquitto refuses names with + or # in",
        "# a pattern, and none is ever issued.",
        f"pattern write {prefix}/report/%u",
        f"pattern write {prefix}/status/%u",
        f"pattern read {prefix}/experiment/+",
        f"pattern read {prefix}/result/+",
        f"pattern read {discovery}",
    ]
    for name in aggregators:
        check_aggregator(name)
        lines += [
            "",
            f"user {name}",
            f"topic read {report_filter(fleet)}",
            f"topic read {prefix}/status/+",
            f"topic readwrite {prefix}/experiment/+",
            f"topic write {prefix}/result/+",
            f"topic write {discovery}",
        ]
    lines += [
        "",
        "# The HTTP door, which has this name once a certificate was issued for it: any board's reports.",
        f"user {DOOR}",
        f"topic write {prefix}/report/+",
    ]
    return "\n".join(lines) + "\n"


def mosquitto_conf(plan: FleetSpec) -> str:
    """Return mosquitto.conf: TLS only, nobody anonymous, nothing larger than Hushmote needs."""
    where = PurePosixPath(plan.broker_folder)
    experiment_topic(plan.fleet, "any")  # NameRefused for a fleet that no topic can carry
    for text in (str(where), plan.broker_user):
        if "\n" in text or not text.isprintable():
            raise ProvisionError("the broker's folder and user must be printable and one line")
    certificates = (f"crlfile {where}/crl.pem", "require_certificate true", "use_identity_as_username true")
    lines = [
        f"# mosquitto for the fleet {plan.fleet}, written by `hushmote provision`; needs mosquitto 2.0.",
        "",
        "# Whom it becomes when started as root; this folder must be that user's.",
        f"user {plan.broker_user}",
        "",
        "# One set of logins and rights for all listeners.",
        "per_listener_settings false",
        "allow_anonymous false",
        f"acl_file {where}/acl",
        *([f"password_file {where}/passwords"] if plan.password_port is not None else []),
        "",
        "# Reports wait here while the aggregator is away, on disk within two seconds (the default is half",
        "# an hour): two million of them, in 800 MB (the default drops what comes after 1,000). What comes",
        "# later is dropped, though boards are told it was received. On a smaller machine lower all three",
        "# numbers alike: where memory_limit is reached first, the broker can send nothing more, and what",
        "# waits stays. 0 is no limit, but with it mosquitto 2.0.11 disconnects whoever publishes what the",
        "# access list refuses, as an aggregator whose store has a second fleet does at each start.",
        "persistence true",
        f"persistence_location {where}/data/",
        "autosave_interval 1",
        f"max_queued_messages {MOST_QUEUED}",
        f"max_queued_bytes {QUEUE_BYTES}",
        f"memory_limit {MEMORY_BYTES}",
        "# An aggregator acknowledges what it has committed, a batch at a time; the default, 20, would stall",
        "# one that speaks MQTT 3.1.1.",
        f"max_inflight_messages {MOST_INFLIGHT}",
        "# No persistent_client_expiration: it would throw away the reports that wait for an aggregator. A",
        "# board's session cannot pile up: it has one client id, and may read little else than experiments.",
        "",
        "# The largest that Hushmote sends is a result: 4,000 bytes on a topic of 85. Who sends more is",
        "# disconnected.",
        f"max_packet_size {MOST_PACKET_BYTES}",
        "set_tcp_nodelay true",
        "",
        "# The log names no client and no address; mosquitto's own statistics are off, as nobody may read",
        "# them (to watch the broker: sys_interval 10, and `topic read $SYS/#` for a user in the acl).",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "connection_messages false",
        "sys_interval 0",
        "",
        "# Clients with a certificate of this fleet's authority.",
        *_listener(where, plan.port),
        *certificates,
    ]
    if plan.aggregator_port is not None:
        lines += [
            "",
            "# The same for aggregators: open it in the firewall to their machines only. The others can then",
            "# be closed until an aggregator is back, and no crowd of boards can take its place.",
            *_listener(where, plan.aggregator_port),
            *certificates,
        ]
    if plan.password_port is not None:
        lines += [
            "",
            "# Boards without a certificate: the same TLS, and a login.",
            *_listener(where, plan.password_port),
            "require_certificate false",
        ]
    return "\n".join(lines) + "\n"


def _listener(where: PurePosixPath, port: int) -> list[str]:
    return [
        f"listener {port}",
        f"cafile {where}/ca.pem",
        f"certfile {where}/broker.pem",
        f"keyfile {where}/broker.pem",
        "tls_version tlsv1.2",
        "# For TLS 1.2; all that TLS 1.3 knows is good.",
        "ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"
        "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES128-CCM:ECDHE-ECDSA-AES128-SHA256",
        "# Else a board could name itself like the aggregator, end its connection and take its session.",
        "use_username_as_clientid true",
        "max_qos 1",
        "# Each costs a file handle and 40 kB outside memory_limit, with or without a certificate: start",
        "# mosquitto with as many handles (systemd: LimitNOFILE), and lower this where memory is short.",
        f"max_connections {MOST_CONNECTIONS}",
    ]


def password_line(device: str, password: str) -> str:
    """Return a line of mosquitto's password file: PBKDF2 with SHA-512, as mosquitto_passwd writes it."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = "$".join(base64.b64encode(b).decode() for b in (salt, digest))
    return f"{check_device(device)}:$7${_ITERATIONS}${encoded}"


def passwords(lines: Mapping[str, str]) -> str:
    """Return mosquitto's password file from device id -> line, sorted."""
    return "".join(lines[device] + "\n" for device in sorted(lines))


def parse_passwords(text: str) -> dict[str, str]:
    """Return device id -> line of a password file."""
    return {line.split(":", 1)[0]: line for line in text.splitlines() if line}
