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
from ...server.provisioning.fleet_folder import FleetFolder

PASSPHRASE = "HUSHMOTE_CA_PASSPHRASE"

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="The fleet's folder.", envvar="HUSHMOTE_FOLDER", show_default=False),
]
FleetOf = Annotated[
    str | None, typer.Option("--fleet", help="Name of the fleet; else the folder's.", show_default=False)
]


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
        return dataclasses.replace(folder, passphrase=_passphrase(new=False))
    return folder


def fleet_name(fleet: str | None, folder: FleetFolder | None) -> str:
    """Return the fleet that is meant, "home" where nothing says; raises UsageError where two are named."""
    if folder is None:
        return fleet or "home"
    if fleet not in (None, folder.fleet.fleet):
        raise UsageError(f"{folder.path} is the folder of fleet {folder.fleet.fleet}: leave out --fleet")
    return folder.fleet.fleet


def new_passphrase() -> bytes:
    """Return the passphrase that a new authority's key gets."""
    return _passphrase(new=True)


def _passphrase(*, new: bool) -> bytes:
    text = os.environ.get(PASSPHRASE)
    if text is None:
        if not sys.stdin.isatty():
            raise UsageError(f"the authority's key needs a passphrase: set {PASSPHRASE}")
        text = typer.prompt("passphrase of the authority's key", hide_input=True, confirmation_prompt=new)
    if new and len(text) < 8:
        raise UsageError("a passphrase of the authority's key has at least 8 characters")
    return text.encode()
