"""`hushmote keygen`: the key that all others are derived from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.provisioning.master_key import create_master_key


def keygen_command(file: Annotated[Path, typer.Argument(help="File to write, mode 0600.")]) -> None:
    """Make the master key that all keys of a server's fleets are derived from."""
    create_master_key(file)
    show.out.print(f"{file} holds a new master key; it never leaves the server, and nobody can make it again")
