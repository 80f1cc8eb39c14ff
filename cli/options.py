"""Options that several commands share, and how a command prints JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

StoreUrl = Annotated[
    str, typer.Option("--store", help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")
]
FleetName = Annotated[str, typer.Option("--fleet", help="Name of the fleet.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))
