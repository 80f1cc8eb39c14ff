"""The specification of a fleet's folder: its broker, how to reach it, and its users."""

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from ...server.plain_text import bracketed
from ...server.wrong_value import wrong_value
from .authority import DEVICE_DAYS

# Device ids contain no underscores, so no device can get an aggregator's rights.
_AGGREGATOR = re.compile(r"aggregator_[0-9]{1,4}", re.ASCII)

DOOR = "door_1"
"""The user name of a fleet's HTTP door; no device can have it either."""

_TEMPLATES = Path(__file__).with_name("templates")

MOSQUITTO, NATS = "mosquitto", "nats"
NATS_PORT = 4222


def aggregator_name(number: int) -> str:
    """Return the user name of a fleet's aggregator, numbered from 1."""
    return f"aggregator_{number}"


def check_aggregator(name: str) -> None:
    """Raise ValueError unless a name is an aggregator's."""
    if not _AGGREGATOR.fullmatch(name):
        raise ValueError(f"an aggregator's user name must be aggregator_1, aggregator_2, ..., not {name!r}")


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def fill_template(name: str, values: Mapping[str, object]) -> str:
    """Return templates/NAME.conf with these values."""
    return Template((_TEMPLATES / f"{name}.conf").read_text(encoding="utf-8")).substitute(values)


def describe_error(error: ValidationError, cls: Any) -> str:
    """Return the first error in a dataclass's values, on one line and without secrets."""
    first = error.errors()[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "unexpected_keyword_argument":
        printable = "".join(c if c.isprintable() else "?" for c in name)
        return f"unknown field {printable}: use {', '.join(f.name for f in dataclasses.fields(cls))}"
    secret = cls.__pydantic_config__.get("hide_input_in_errors", False)
    text = wrong_value(first, include_value=not secret)
    if name.endswith("port") and first["type"].endswith("_equal"):
        text = "must be 1 to 65535"
    fields = {f.name: f for f in dataclasses.fields(cls)}
    null = " or null" if first["type"].endswith("_type") and fields[name].default is None else ""
    must, comma, value = text.partition(", not ")
    return f"{name} {must}{null}{comma}{value}".lstrip()


Port = Annotated[int, Field(ge=1, le=65535)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class FleetSpec:
    """The specification of a fleet's folder, as stored in fleet.json.

    Attributes:
        hosts: The broker's names and addresses, by which devices and aggregators reach it; with NATS one per
            server.
        port: The port for TLS with client certificates.
        password_port: The port for TLS with passwords, for devices that have no certificate, or None.
        broker_folder: Where broker/ will be on the broker's machine.
        broker_user: The user that mosquitto switches to when started as root.
        aggregators: The aggregators' user names.
        aggregator_port: A second port for client certificates, so that a firewall can distinguish aggregators
            from devices, or None; with NATS, the port on which aggregators speak NATS, by default 4222.
        broker: "mosquitto" or "nats".
        cluster_port: The port on which NATS servers reach each other.
        monitor_port: The port on which a NATS server reports its health to its own machine.
        board_host: An additional name for all NATS servers, or "".
        device_days: Lifetime of devices' certificates, in days.
        consent: Where the people being measured consented, so that boards do not ask; "" if each board asks.
    """

    fleet: str
    hosts: tuple[str, ...]
    port: Port = 8883
    password_port: Port | None = None
    broker_folder: str = ""
    broker_user: str = "mosquitto"
    aggregators: tuple[str, ...] = (aggregator_name(1),)
    aggregator_port: Port | None = None
    broker: Literal["mosquitto", "nats"] = MOSQUITTO
    cluster_port: Port = 6222
    monitor_port: Port = 8222
    board_host: str = ""
    device_days: Annotated[int, Field(ge=1)] = DEVICE_DAYS
    consent: str = ""

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        ports = (self.port, self.password_port, self.aggregator_port)
        if self.broker == NATS:
            ports = (self.port, self.nats_port, self.cluster_port, self.monitor_port)
        elif self.board_host:
            raise ValueError("board_host is for NATS: give mosquitto's names with --host")
        used_ports = [port for port in ports if port is not None]
        if len(set(used_ports)) < len(used_ports):
            raise ValueError(f"the broker's ports must differ, but are {', '.join(map(str, used_ports))}")
        return self

    @property
    def servers(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Each server's part of the folder, with the names in its certificate."""
        if self.broker == MOSQUITTO:
            return (("broker", self.hosts),)
        also = (self.board_host,) if self.board_host else ()
        return tuple((f"broker/{i}", (host, *also)) for i, host in enumerate(self.hosts, 1))

    @property
    def board_hosts(self) -> tuple[str, ...]:
        """The names by which devices may know the broker."""
        return (self.board_host, *self.hosts) if self.board_host else self.hosts

    @property
    def nats_port(self) -> int:
        """The port on which aggregators speak NATS."""
        return self.aggregator_port or NATS_PORT

    def url(self, door: bool = False) -> str:
        """Return the broker's URL for aggregators, or for the HTTP door."""
        if self.broker != NATS:
            port = self.port if door else self.aggregator_port or self.port
            return f"mqtts://{bracketed(self.hosts[0])}:{port}"
        port = "" if self.nats_port == NATS_PORT else f":{self.nats_port}"
        hosts = ",".join(bracketed(host) + port for host in self.hosts)
        return f"tls://{hosts}" + ("" if self.port == 8883 else f"?mqtt={self.port}")
