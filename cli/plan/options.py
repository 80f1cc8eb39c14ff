"""The options of `hushmote plan`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from ...server.planning.wish import Wish
from ..options import AsJson

EXPERIMENT = ".toml"
"""The end of an experiment file's name."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Wish):
    """All of the command's options: the wish, whose fields have their help, and what comes out."""

    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "--plot",
            metavar="FILE",
            help="Write a file: the experiment as .toml, a picture as .png, .pdf or .svg. May be repeated. "
            "HUSHMOTE_OVERWRITE=1 overwrites.",
        ),
    ] = None
    as_json: AsJson = False

    @property
    def says_nothing(self) -> bool:
        """Whether no option says what is to be planned."""
        return all(getattr(self, f.name) == f.default for f in fields(self) if f.name != "output")
