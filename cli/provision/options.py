"""The fleet's folder as the commands take it: --folder, HUSHMOTE_FOLDER or the folder one is in."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from ...server.errors import UsageError
from ...server.provisioning import fleet_folder
from ...server.provisioning.authority import Issued
from ...server.provisioning.fleet_folder import FleetFolder
from ...server.provisioning.fleet_spec import NATS
from ...server.provisioning.settings import broker_names

PASSPHRASE = "HUSHMOTE_CA_PASSPHRASE"
WIFI_PASSWORD = "HUSHMOTE_WIFI_PASSWORD"
MQTT_PASSWORD = "HUSHMOTE_MQTT_PASSWORD"

Folder = Annotated[
    Path | None,
    typer.Option(
        "--folder",
        metavar="FOLDER",
        help="The fleet's folder, which `hushmote provision fleet` made; else the one that one is in.",
        envvar="HUSHMOTE_FOLDER",
        show_default=False,
    ),
]
FleetOf = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        help="Name of the fleet; else the folder's, or the only one.",
        show_default=False,
    ),
]

MasterKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Master key file; else the folder's; or set HUSHMOTE_MASTER_KEY to the keys.",
        show_default=False,
    ),
]
Days = Annotated[int, typer.Option(help="Days for which a certificate holds.", min=1)]


@dataclasses.dataclass(frozen=True)
class Network:
    """How a board reaches its Wi-Fi and its broker; see the options of the same names."""

    wifi_ssid: str
    wifi_password: str | None
    wifi_country: str
    mqtt_host: str
    mqtt_port: int | None
    mqtt_user: str | None
    mqtt_password: str | None
    mqtt_ca: Path | None
    certificate: Issued | None = None

    def asked(self) -> Network:
        """The same with the Wi-Fi's password, asked for where only its name was given; raises UsageError."""
        password = self.wifi_password or os.environ.get(WIFI_PASSWORD)  # empty for a network without one
        if self.wifi_ssid and password is None:
            if not sys.stdin.isatty():
                asked = f"the password of {self.wifi_ssid} is asked for at a terminal"
                raise UsageError(f"{asked}: use one, or set {WIFI_PASSWORD}")
            question = f"password of {self.wifi_ssid}"
            password = typer.prompt(question, hide_input=True, default="", show_default=False)
        return dataclasses.replace(self, wifi_password=password or "")

    def at_broker(self, folder: FleetFolder, login: bool) -> Network:
        """The same with how boards of a folder's fleet reach its broker; raises UsageError, FolderError."""
        fleet = folder.fleet
        if not set(broker_names(self.mqtt_host)) <= set(fleet.board_hosts):
            raise UsageError(
                f"the broker's certificate names {', '.join(fleet.board_hosts)} and not {self.mqtt_host}, so "
                "boards would refuse it: `hushmote provision rotate broker --host ...` gives it other names"
            )
        if login:
            folder.check_logins()
        # One broker may have several names; of several servers a board tries the next where one is silent.
        hosts = ",".join(fleet.hosts) if fleet.broker == NATS else fleet.hosts[0]
        return dataclasses.replace(
            self,
            mqtt_host=self.mqtt_host or fleet.board_host or hosts,
            mqtt_port=fleet.password_port if login else fleet.port,
            mqtt_ca=folder.path / "broker/ca.pem",
        )


def open_folder(path: Path | None, *, signs: bool = False) -> FleetFolder:
    """Return the folder at path, or the one that one is in.

    signs: the authority's key will be used, so its passphrase is asked for. Raises UsageError, FolderError.
    """
    if path is None:
        if not Path("fleet.json").exists():
            raise UsageError("give the fleet's folder with --folder, or in HUSHMOTE_FOLDER")
        path = Path()
    folder = fleet_folder.find(path)
    if signs and folder.needs_passphrase():
        return dataclasses.replace(folder, passphrase=ask_passphrase(new=False))
    return folder


def fleet_name(fleet: str | None, folder: FleetFolder | None) -> str:
    """Return the fleet that is meant, "home" where nothing says; raises UsageError where two are named."""
    if folder is None:
        return fleet or "home"
    if fleet not in (None, folder.fleet.fleet):
        raise UsageError(f"{folder.path} is the folder of fleet {folder.fleet.fleet}: leave out --fleet")
    return folder.fleet.fleet


def ask_passphrase(*, new: bool) -> bytes:
    """Return the passphrase of the authority's key, or that which a new one gets."""
    text = os.environ.get(PASSPHRASE)
    if text is None:
        if not sys.stdin.isatty():
            raise UsageError(f"the authority's key needs a passphrase: set {PASSPHRASE}")
        text = typer.prompt("passphrase of the authority's key", hide_input=True, confirmation_prompt=new)
    if new and len(text) < 8:
        raise UsageError("a passphrase of the authority's key has at least 8 characters")
    return text.encode()
