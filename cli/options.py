"""Options that several commands share, and how a command prints JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

StoreUrl = Annotated[
    str, typer.Option("--store", help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")
]
FleetName = Annotated[str, typer.Option("--fleet", help="Name of the fleet.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"


class UsageError(ValueError):
    """Options that do not go together; the text says what would be right."""


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def output_folder(path: Path) -> Path:
    """Make a folder for results before they are worked out; raises UsageError where none can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"cannot make the folder {path}: {e.strerror}") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write into the folder {path}")
    return path
