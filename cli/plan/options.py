"""What `hushmote plan` is asked: a wish, how it is checked, and which files come out."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from ...server.planning.devices import PlanError
from ...server.planning.experiment_file import NEEDS_RANGE, Named, name_from
from ...server.planning.wish import Wish, reading_of
from ..options import AsJson
from ..output import PICTURES, checked
from ..workers import WhichWorkers

EXPERIMENT = ".toml"
"""The end of an experiment file's name."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Wish):
    """All of the command's options: the wish, whose fields have their help, and what comes out besides."""

    labels: Annotated[
        str | None, typer.Option(help="Labels of a choice: a,b,c. 'other' is added as the last one.")
    ] = None
    statistics: Annotated[
        str | None,
        typer.Option(
            "--statistics",
            "--for",
            help="What the error is of: frequencies (the share of one value), ranges, quantiles or mean.",
        ),
    ] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="low:high in the unit, or in bins without --low; either may be empty."),
    ] = None
    check: Annotated[bool, typer.Option("--check", help="Draw fleets and measure the plan's errors.")] = False
    fleets: Annotated[int, typer.Option(help="With --check: fleets to draw.")] = 1000
    seed: Annotated[int | None, typer.Option(help="With --check: repeat a run exactly.", min=0)] = None
    workers: WhichWorkers = None
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
    name: Annotated[str | None, typer.Option(help="Of the experiment, in its file.")] = None
    purpose: Annotated[str | None, typer.Option(help="Why it is asked, in its file.")] = None
    owner: Annotated[str, typer.Option(help="Who answers for it, in its file.")] = "owner@example.org"
    as_json: AsJson = False

    @property
    def says_nothing(self) -> bool:
        """Whether no option says what is to be planned."""
        about_files = ("output", "name", "purpose", "owner")
        return all(getattr(self, f.name) == f.default for f in fields(self) if f.name not in about_files)

    def files(self) -> tuple[Path, ...]:
        """The files to write. Raises UsageError or PlanError where one cannot be."""
        paths, reading = checked(self.output, EXPERIMENT, *PICTURES), reading_of(self)
        number = not reading.yes_no and not reading.labels
        if number and reading.low is None and any(path.suffix.lower() == EXPERIMENT for path in paths):
            raise PlanError(NEEDS_RANGE)
        return paths

    def named(self, path: Path, purpose: str | None = None) -> Named:
        """What people say of an experiment in the file at path, from today on."""
        today = datetime.datetime.now(datetime.UTC).date()
        return Named(self.name or name_from(path), self.purpose or purpose, self.owner, today)
