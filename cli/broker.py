"""How a command reaches a broker: its URL, login and TLS are the same in every command that connects."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ..server.errors import UsageError, refusing
from ..server.ingest.broker_url import BrokerAddress, NatsAddress, is_nats, parse_broker_url, parse_nats_url
from ..server.provisioning.master_key import readable_by_others

if TYPE_CHECKING:
    import ssl

DEFAULT_BROKER = "mqtt://localhost:1883"
URLS = (
    "mqtt://[user@]host[:1883], or mqtts://[user@]host[:8883] for TLS; NATS servers: "
    "nats://[user@]host[:4222],host,...[?mqtt=1883], or tls://."
)
PASSWORD = "HUSHMOTE_BROKER_PASSWORD"

BrokerUrl = Annotated[
    str,
    typer.Option(
        "--broker",
        metavar="URL",
        help=URLS,
        envvar="HUSHMOTE_BROKER",
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help=f"File with the password of the broker's user; or set {PASSWORD} to the password.",
        envvar="HUSHMOTE_BROKER_PASSWORD_FILE",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        metavar="FILE",
        help="PEM file of the CA that vouches for the broker; else the system's CAs do.",
        show_default=False,
    ),
]
Cert = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        metavar="FILE",
        help="PEM file with this client's certificate, and its key where no --cert-key is given.",
        show_default=False,
    ),
]
CertKey = Annotated[
    Path | None,
    typer.Option(
        "--cert-key",
        metavar="FILE",
        help="PEM file with the key of --cert, where that is a file of its own.",
        show_default=False,
    ),
]


A = TypeVar("A", BrokerAddress, NatsAddress)


def connection(
    url: str,
    password_file: Path | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    cert_key: Path | None = None,
    *,
    typed: bool = True,
) -> tuple[BrokerAddress, ssl.SSLContext | None]:
    """Return where the broker is, with the login, and how it is checked: None without TLS.

    NATS servers are a broker at their ports for MQTT. typed: the URL was given on the command line, where it
    may hold no password. Raises UsageError, BrokerUrlError and CertificateError.
    """
    address, tls = reports_connection(url, password_file, ca, cert, cert_key, typed=typed)
    return (address.mqtt if isinstance(address, NatsAddress) else address), tls


def reports_connection(
    url: str,
    password_file: Path | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    cert_key: Path | None = None,
    *,
    typed: bool = True,
) -> tuple[BrokerAddress | NatsAddress, ssl.SSLContext | None]:
    """Return where reports come from, a broker or NATS servers, otherwise as connection() does."""
    address = broker_address(url, password_file, typed=typed)
    return address, _tls(address, ca, cert, cert_key)


def _tls(
    address: BrokerAddress | NatsAddress, ca: Path | None, cert: Path | None, cert_key: Path | None
) -> ssl.SSLContext | None:
    if not address.tls:
        if ca or cert or cert_key:
            scheme = "tls" if isinstance(address, NatsAddress) else "mqtts"
            raise UsageError(f"--ca, --cert and --cert-key are for TLS: write the broker as {scheme}://")
        return None
    from ..server.ingest.tls import client_context  # only here: few connections need it

    return client_context(ca, cert, cert_key or cert)


def broker_address(url: str, password_file: Path | None, *, typed: bool) -> BrokerAddress | NatsAddress:
    """Return the address with its password, which no other user of this machine can have read.

    The password is in one of three places: the URL of HUSHMOTE_BROKER, the file, HUSHMOTE_BROKER_PASSWORD.
    """
    if is_nats(url):
        return _with_password(parse_nats_url(url), password_file, typed=typed)
    return _with_password(parse_broker_url(url, tls=True), password_file, typed=typed)


def _with_password(address: A, password_file: Path | None, *, typed: bool) -> A:
    if typed and address.password is not None:
        raise UsageError(
            "every user of this machine can read a command line: put the password into a file and name it "
            f"with --password-file, or set {PASSWORD} to it"
        )
    given = {
        "the broker's URL": address.password is not None,
        "--password-file": password_file is not None,
        PASSWORD: PASSWORD in os.environ,
    }
    places = [place for place, holds_one in given.items() if holds_one]
    if len(places) > 1:
        raise UsageError(f"a password is given by {' and by '.join(places)}: take one of them")
    if address.password is not None or not places:
        return address
    if address.username is None:
        scheme = "nats" if isinstance(address, NatsAddress) else "mqtt"
        raise UsageError(f"{places[0]} needs the user's name: write the broker as {scheme}://user@host")
    password = os.environ[PASSWORD] if password_file is None else secret_in(password_file, "password")
    if not password:
        raise UsageError(f"{PASSWORD} is empty: set it to the password, or unset it")
    return dataclasses.replace(address, password=password)


def secret_in(path: Path, kind: str) -> str:
    """Return the first line of a file that only its owner may read; kind: "password" or "token".

    Raises UsageError.
    """
    try:
        with refusing(UsageError, f"read the {kind} {path}"), open(path, encoding="utf-8") as f:
            mode = os.fstat(f.fileno()).st_mode
            secret = f.readline().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(f"{path} must hold a {kind}, one line of text") from None
    if readable_by_others(path, mode):
        raise UsageError(f"{path} can be read by others: chmod 600 it")
    if not secret:
        raise UsageError(f"{path} must hold a {kind}, one line of text")
    return secret
