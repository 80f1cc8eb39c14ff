"""Mosquitto's files for one fleet: its configuration, access list and password hashes.

This module only generates text, for mosquitto 2.0 (Debian's 2.0.11 and later); the tests start mosquitto with
exactly these files.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ...server.errors import ProvisionError
from ...server.wire.limits import BATCH_REPORTS
from ...server.wire.topics import check_device, check_fleet, experiment_topic, report_filter
from .fleet_spec import DOOR, FleetSpec, check_aggregator, fill_template

_ITERATIONS = 101  # same as mosquitto_passwd; stretching does not help passwords of 160 random bits
_SALT_BYTES = 12

MAX_PACKET_BYTES = 4096
MAX_CONNECTIONS = 100_000
# The queue for an absent aggregator uses at most QUEUE_BYTES, plus 400 bytes per message. It must stay below
# the broker's memory limit, at which the broker cannot send anything, so the queue could not drain.
MAX_QUEUED = 2_000_000
QUEUE_BYTES = 300_000_000
MEMORY_BYTES = 1_500_000_000
MAX_INFLIGHT = 2 * BATCH_REPORTS  # twice the aggregator's batch, which acknowledges only after a commit


_FOR_AGGREGATORS = """\
# The same for aggregators. In the firewall, open this port only to their machines. The other ports
# can then be closed until an aggregator is back, so that no crowd of boards can take its place."""
DISCOVERED = ("sensor", "binary_sensor", "event")
"""The kinds of Home Assistant's entities that an aggregator announces."""
_FOR_LOGINS = "# For boards without a certificate: the same TLS, with a login."


def acl(fleet: str, aggregators: Sequence[str]) -> str:
    """Return mosquitto's access list: which user may use which of a fleet's topics, and nothing else."""
    prefix = f"hushmote/v1/{check_fleet(fleet)}"
    discovery = [f"homeassistant/{name}/hushmote_{fleet}/+/config" for name in DISCOVERED]
    lines = [
        "# Written by `hushmote provision`; anything not allowed here is refused.",
        "# A board: its own reports and status, the experiments, their proofs, results and alerts, also",
        "# in the form for Home Assistant. %u is the name in its certificate or login; mosquitto refuses",
        "# names with + or # in patterns, and we never issue such names.",
        f"pattern write {prefix}/report/%u",
        f"pattern write {prefix}/status/%u",
        f"pattern read {prefix}/experiment/+",
        f"pattern read {prefix}/proof/+",
        f"pattern read {prefix}/result/+",
        f"pattern read {prefix}/alert/+",
        *(f"pattern read {topic}" for topic in discovery),
    ]
    for name in aggregators:
        check_aggregator(name)
        lines += [
            "",
            f"user {name}",
            f"topic read {report_filter(fleet)}",
            f"topic read {prefix}/status/+",
            f"topic readwrite {prefix}/experiment/+",
            f"topic readwrite {prefix}/proof/+",
            f"topic write {prefix}/result/+",
            f"topic write {prefix}/alert/+",
            *(f"topic write {topic}" for topic in discovery),
        ]
    lines += [
        "",
        "# The HTTP door, which has this name once a certificate is issued for it: any board's reports.",
        f"user {DOOR}",
        f"topic write {prefix}/report/+",
    ]
    return "\n".join(lines) + "\n"


def mosquitto_conf(plan: FleetSpec) -> str:
    """Return mosquitto.conf: only TLS, no anonymous clients, and no packets larger than Hushmote needs."""
    where = PurePosixPath(plan.broker_folder)
    experiment_topic(plan.fleet, "any")  # raises NameRefused for an invalid fleet name
    for text in (str(where), plan.broker_user):
        if "\n" in text or not text.isprintable():
            raise ProvisionError("the broker's folder and user must be printable text on one line")
    values = {
        "fleet": plan.fleet,
        "user": plan.broker_user,
        "where": where,
        "passwords": "" if plan.password_port is None else f"\npassword_file {where}/passwords",
        "queued": MAX_QUEUED,
        "queue_bytes": QUEUE_BYTES,
        "memory_bytes": MEMORY_BYTES,
        "inflight": MAX_INFLIGHT,
        "packet_bytes": MAX_PACKET_BYTES,
        "connections": MAX_CONNECTIONS,
    }
    certificates = f"crlfile {where}/crl.pem\nrequire_certificate true\nuse_identity_as_username true\n"
    text = fill_template("mosquitto", values)
    for port, what, clients in (
        (plan.port, "# For clients with a certificate from this fleet's authority.", certificates),
        (plan.aggregator_port, _FOR_AGGREGATORS, certificates),
        (plan.password_port, _FOR_LOGINS, "require_certificate false\n"),
    ):
        if port is not None:
            text += f"\n{what}\n{fill_template('mosquitto_listener', values | {'port': port})}{clients}"
    return text


def password_line(device: str, password: str) -> str:
    """Return a line for mosquitto's password file: PBKDF2 with SHA-512, as written by mosquitto_passwd."""
    return _password_line(device, password, secrets.token_bytes(_SALT_BYTES))


def _password_line(device: str, password: str, salt: bytes) -> str:
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = "$".join(base64.b64encode(b).decode() for b in (salt, digest))
    return f"{check_device(device)}:$7${_ITERATIONS}${encoded}"


def has_password(line: str, password: str) -> bool:
    """Return whether a line of password_line() is for this password."""
    device, _, rest = line.partition(":")
    salt = base64.b64decode(rest.split("$")[3])
    return secrets.compare_digest(line, _password_line(device, password, salt))


def passwords(lines: Mapping[str, str]) -> str:
    """Return mosquitto's password file for device id -> line, sorted."""
    return "".join(lines[device] + "\n" for device in sorted(lines))


def parse_passwords(text: str) -> dict[str, str]:
    """Return device id -> line from a password file."""
    return {line.split(":", 1)[0]: line for line in text.splitlines() if line}
