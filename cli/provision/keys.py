"""`hushmote provision keys`: the key that all others are derived from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...server.answers import tables as show
from ...server.provisioning.master_key import create_keys


def keys_command(
    file: Annotated[Path, typer.Argument(help="File to write, for its owner's eyes alone (mode 0600).")],
) -> None:
    """Make the master key of a server's fleets and the key that signs their experiments, without a folder.

    `hushmote provision fleet` makes both for a fleet with an authority of its own.
    """
    create_keys(file)
    show.out.print(
        f"{file} holds a new master key and signing key: they never leave the server, and no copy exists"
    )
