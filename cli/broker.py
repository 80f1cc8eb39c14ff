"""Broker options that all commands share: URL, login and TLS."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from ..server.errors import UsageError, refusing
from ..server.ingest.broker_url import BrokerAddress, NatsAddress, is_nats, parse_broker_url, parse_nats_url
from ..server.private_file import readable_by_others
from ..server.wrong_value import wrong_toml

if TYPE_CHECKING:
    import ssl

DEFAULT_BROKER = "mqtt://localhost:1883"
URLS = (
    "mqtt://[user@]host[:1883], or mqtts://[user@]host[:8883] for TLS; MQTT over WebSocket: "
    "ws://host[:80]/path, or wss://host[:443]/path; add ?prefix=tenants/acme for a topic prefix; "
    "NATS servers: nats://[user@]host[:4222],host,...[?mqtt=1883], or tls://"
)
FILE = (
    "or a file with url, password_file, ca, cert, cert_key (HUSHMOTE_BROKER_CA, ...: docs/commands-fleet.md)"
)
PASSWORD = "HUSHMOTE_BROKER_PASSWORD"
FILES = ("password_file", "ca", "cert", "cert_key")
VARIABLES = {name: f"HUSHMOTE_BROKER_{name.upper()}" for name in FILES} | {
    name: f"HUSHMOTE_{name.upper()}" for name in ("client_id", "share", "protocol")
}

BrokerUrl = Annotated[
    str, typer.Option("--broker", help=f"{URLS}; {FILE}", envvar="HUSHMOTE_BROKER", metavar="URL|FILE.toml")
]
ExperimentNames = Annotated[
    list[str] | None,
    typer.Option(
        help="Subscribe to this experiment by name, for a broker that sends no retained messages to "
        "subscriptions with wildcards, such as AWS IoT; needs --fleet; may be repeated. Default: all."
    ),
]


def subscribed_names(experiments: Sequence[str] | None, fleets: Sequence[str] | None) -> Sequence[str]:
    """Return the values of --experiment for ReportPublisher, or its wildcard.

    Raises:
        UsageError: If there are experiments but no fleets.
    """
    if experiments and not fleets:
        raise UsageError("--experiment subscribes to topics without wildcards: add --fleet NAME")
    return experiments or ("+",)


@dataclasses.dataclass(frozen=True)
class Connection:
    """Settings for a broker connection: each field is a FILE.toml key; all but url are also in VARIABLES."""

    url: str
    password_file: str = ""
    ca: str = ""
    cert: str = ""
    cert_key: str = ""
    client_id: str = ""
    share: str = ""
    protocol: str = "auto"

    def reports(self, *, typed: bool = True) -> tuple[BrokerAddress | NatsAddress, ssl.SSLContext | None]:
        """Return the reports' address with its login, and the TLS context.

        Args:
            typed: Whether the URL was given on the command line, where it must not contain a password.

        Returns:
            The address, and the TLS context, or None without TLS.

        Raises:
            UsageError, BrokerUrlError, CertificateError: If the settings cannot be used.
        """
        address = self.address(typed=typed)
        if address.tls:
            from ..server.ingest.tls import client_context  # imported lazily because few connections need it

            files = (
                Path(name) if name else None for name in (self.ca, self.cert, self.cert_key or self.cert)
            )
            return address, client_context(*files)
        if self.ca or self.cert or self.cert_key:
            scheme = "tls" if isinstance(address, NatsAddress) else "mqtts"
            raise UsageError(f"ca, cert and cert_key require TLS; start the broker URL with {scheme}://")
        return address, None

    def address(self, *, typed: bool = True) -> BrokerAddress | NatsAddress:
        """Return the address with its password, which must be hidden from other users of this machine.

        The password comes from the URL in HUSHMOTE_BROKER, from a file, or from HUSHMOTE_BROKER_PASSWORD.
        """
        password_file = Path(self.password_file) if self.password_file else None
        if is_nats(self.url):
            return _with_password(parse_nats_url(self.url), password_file, typed=typed)
        return _with_password(parse_broker_url(self.url, tls=True), password_file, typed=typed)


def settings(broker: str) -> Connection:
    """Return the connection settings from a URL or a FILE.toml, and from the environment.

    The file takes precedence over the environment. Paths in the file are relative to it.

    Raises:
        UsageError: If the file cannot be used.
    """
    from_environment = {key: os.environ[name] for key, name in VARIABLES.items() if os.environ.get(name)}
    if not broker.endswith(".toml"):
        return Connection(broker, **from_environment)
    path = Path(broker)
    try:
        with refusing(UsageError, f"read {path}"):
            text = path.read_text(encoding="utf-8-sig")
        from_file = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise UsageError(f"{path}: {wrong_toml(text, e)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    keys = ("url", *VARIABLES)
    for key, value in from_file.items():
        if key not in keys or not isinstance(value, str):
            raise UsageError(
                f"{path}: {key} is not valid: each value must be a string under one of these keys: "
                f"{', '.join(keys)}"
            )
        if key in FILES:
            from_file[key] = str(path.parent / value)
    if urlsplit(from_file.get("url", "")).password is not None:
        raise UsageError(f"{path}: put the password in a separate file and set password_file to its path")
    if "url" not in from_file:
        raise UsageError(f'{path} has no broker URL; add url = "mqtt://host"')
    return Connection(**from_environment | from_file)


def connection(broker: str, *, typed: bool = True) -> tuple[BrokerAddress, ssl.SSLContext | None]:
    """Return a broker's address and TLS context; for NATS servers, the address of their MQTT ports."""
    address, tls = settings(broker).reports(typed=typed)
    return (address.mqtt if isinstance(address, NatsAddress) else address), tls


A = TypeVar("A", BrokerAddress, NatsAddress)


def _with_password(address: A, password_file: Path | None, *, typed: bool) -> A:
    if typed and address.password is not None:
        raise UsageError(
            "every user of this machine can read a command line; put the password in a file and set "
            f"HUSHMOTE_BROKER_PASSWORD_FILE to its path, or set {PASSWORD} to the password"
        )
    sources = {
        "the broker's URL": address.password is not None,
        "password_file": password_file is not None,
        PASSWORD: PASSWORD in os.environ,
    }
    places = [place for place, is_set in sources.items() if is_set]
    if len(places) > 1:
        raise UsageError(f"a password is given by {' and by '.join(places)}; use only one of them")
    if address.password is not None or not places:
        return address
    if address.username is None:
        scheme = "nats" if isinstance(address, NatsAddress) else "mqtt"
        raise UsageError(f"{places[0]} requires a user name; write the broker as {scheme}://user@host")
    password = os.environ[PASSWORD] if password_file is None else _password_in(password_file)
    if not password:
        raise UsageError(f"{PASSWORD} is empty: set it to the password, or unset it")
    return dataclasses.replace(address, password=password)


def _password_in(path: Path) -> str:
    """Return the first line of a file that only its owner may read; raises UsageError."""
    try:
        with refusing(UsageError, f"read the password {path}"), open(path, encoding="utf-8-sig") as f:
            mode = os.fstat(f.fileno()).st_mode
            password = f.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(f"{path} must contain the password as one line of text") from None
    if readable_by_others(path, mode):
        raise UsageError(f"{path} is readable by other users; run chmod 600 on it")
    if not password:
        raise UsageError(f"{path} must contain the password as one line of text")
    return password
