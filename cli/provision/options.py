"""Options of the provision commands: the fleet's folder, and secrets read from a terminal."""

import dataclasses
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import typer

from ...fleet.provisioning import fleet_folder
from ...fleet.provisioning.fleet_folder import FleetFolder
from ...fleet.provisioning.rotation import Rotation
from ...server.answers import tables as show
from ...server.errors import UsageError
from ..options import print_json

PASSPHRASE = "HUSHMOTE_CA_PASSPHRASE"
WIFI_PASSWORD = "HUSHMOTE_WIFI_PASSWORD"
MQTT_PASSWORD = "HUSHMOTE_MQTT_PASSWORD"


def open_folder(path: Path | None, *, signs: bool = False) -> FleetFolder:
    """Return the fleet's folder at path, or the current folder.

    Args:
        path: The folder, or None for the current one.
        signs: Whether the authority's key will be used, which requires its passphrase.

    Raises:
        UsageError, FolderError: If the folder is missing or unusable.
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
    """Return the chosen fleet, or "home" by default; raise UsageError if folder and option disagree."""
    if folder is None:
        return fleet or "home"
    if fleet not in (None, folder.fleet.fleet):
        raise UsageError(f"{folder.path} is the folder of fleet {folder.fleet.fleet}; omit --fleet")
    return folder.fleet.fleet


def ask_passphrase(*, new: bool) -> bytes:
    """Return the passphrase of the authority's key, or of a new one."""
    text = _ask_secret("the authority's key", PASSPHRASE, word="passphrase", confirm=new)
    if new and len(text) < 8:
        raise UsageError("the passphrase of the authority's key must have at least 8 characters")
    return text.encode()


def ask_wifi_password(ssid: str) -> str:
    """Return the password of a network, or "" without a network or for an open one."""
    return _ask_secret(ssid, WIFI_PASSWORD, default="") if ssid else ""


def _ask_secret(
    subject: str, variable: str, *, word: str = "password", confirm: bool = False, default: str | None = None
) -> str:
    """Return a secret from the environment or a prompt, because other users can read command lines."""
    if variable in os.environ:
        return os.environ[variable]
    if not sys.stdin.isatty():
        raise UsageError(f"the {word} of {subject} is read from a terminal; use one, or set {variable}")
    return typer.prompt(
        f"{word} of {subject}",
        hide_input=True,
        confirmation_prompt=confirm,
        default=default,
        show_default=False,
    )


def print_done(rotation: Rotation, as_json: bool) -> None:
    """Print the completed steps and the remaining steps."""
    if as_json:
        print_json({"done": rotation.done, "left": rotation.next_steps})
        return
    for line in rotation.done:
        show.out.print(line)
    print_next(rotation.next_steps)


def print_next(lines: Sequence[str]) -> None:
    """Print the steps that a person has to take now as a list."""
    fill = textwrap.TextWrapper(
        show.out.width,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    show.out.print("next:")
    for line in lines:
        show.out.print(fill.fill(line), soft_wrap=True)
