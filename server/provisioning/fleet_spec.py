"""What a fleet's folder is for: which broker it has, where that is reached, and who else has a user name."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

# An underscore: no device id has one, so no board can be given an aggregator's rights.
_AGGREGATOR = re.compile(r"aggregator_[0-9]{1,4}", re.ASCII)

DOOR = "door_1"
"""The user name of a fleet's HTTP door, which no board can have either."""

MOSQUITTO, NATS = "mosquitto", "nats"
NATS_PORT = 4222


def aggregator_name(number: int) -> str:
    """The user name of a fleet's aggregator, numbered from 1."""
    return f"aggregator_{number}"


def check_aggregator(name: str) -> None:
    """Raise ValueError for a name that is not an aggregator's."""
    if not _AGGREGATOR.fullmatch(name):
        raise ValueError(f"an aggregator's user name is aggregator_1, aggregator_2, ..., not {name!r}")


def is_loopback(host: str) -> bool:
    """Whether a host is an address of every machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class FleetSpec:
    """What a fleet's folder is for, as fleet.json holds it.

    hosts: names and addresses of the broker, as boards and aggregators reach it; with NATS one for each
    server. port: TLS with client certificates. password_port: TLS with passwords for boards that have no
    certificate, or None. broker_folder: where broker/ will lie on the broker's machine. broker_user: whom
    mosquitto becomes when it is started as root. aggregators: their user names. aggregator_port: a second
    port with client certificates, so that a firewall can tell aggregators from boards, or None; with NATS the
    port on which aggregators speak NATS, 4222 where there is none. broker: "mosquitto" or "nats".
    cluster_port: where NATS servers reach each other. monitor_port: where a NATS server tells its own machine
    how it is. board_host: one more name, of all NATS servers, or "".
    """

    fleet: str
    hosts: tuple[str, ...]
    port: int = 8883
    password_port: int | None = None
    broker_folder: str = ""
    broker_user: str = "mosquitto"
    aggregators: tuple[str, ...] = (aggregator_name(1),)
    aggregator_port: int | None = None
    broker: str = MOSQUITTO
    cluster_port: int = 6222
    monitor_port: int = 8222
    board_host: str = ""

    @property
    def servers(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each server's part of the folder, and the names that its certificate has."""
        if self.broker == MOSQUITTO:
            return (("broker", self.hosts),)
        also = (self.board_host,) if self.board_host else ()
        return tuple((f"broker/{i}", (host, *also)) for i, host in enumerate(self.hosts, 1))

    @property
    def board_hosts(self) -> tuple[str, ...]:
        """The names by which boards may know the broker."""
        return (self.board_host, *self.hosts) if self.board_host else self.hosts

    @property
    def nats_port(self) -> int:
        """Where aggregators speak NATS."""
        return self.aggregator_port or NATS_PORT
