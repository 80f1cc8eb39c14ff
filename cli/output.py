"""Output files: the --output option and the OVERWRITE variable. The suffix selects the format."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..server.errors import UsageError, refusing
from ..server.extras import require
from ..server.plain_text import CsvDialect

PICTURES = (".png", ".pdf", ".svg")

OVERWRITE = "HUSHMOTE_OVERWRITE"
"""The environment variable that lets commands overwrite files, if it is not empty."""


def output_option(kinds: str) -> typer.models.OptionInfo:
    """Return the --output option for these kinds of files; --plot is its older name."""
    return typer.Option(
        "--output",
        "--plot",
        metavar="FILE",
        help=f"Write a file: {kinds}. May be repeated. HUSHMOTE_OVERWRITE=1 overwrites.",
    )


def describe_suffixes(*suffixes: str) -> str:
    """Return the help text for files whose suffix selects the format, for output_option."""
    return f"{', '.join(suffixes)}, chosen by the suffix"


CsvDialectOption = Annotated[
    CsvDialect,
    typer.Option(
        "--csv-dialect",
        help="excel-eu writes CSV for spreadsheets in languages with a decimal comma: semicolons, decimal "
        "commas and a byte-order mark.",
    ),
]
Pictures = Annotated[list[Path] | None, output_option(describe_suffixes(*PICTURES))]
Results = Annotated[list[Path] | None, output_option(describe_suffixes(".csv", ".json", *PICTURES))]


def check_paths(paths: Iterable[Path] | None, *suffixes: str) -> tuple[Path, ...]:
    """Return the paths to write; call this before computing anything.

    Raises:
        UsageError: If a path has another suffix, is in a folder that does not exist, or exists while
            OVERWRITE is not set.
        ExtraMissing: If a path is a picture, but Matplotlib is not installed.
    """
    files = tuple(paths or ())
    for path in files:
        if path.suffix.lower() not in suffixes:
            choices = " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
            raise UsageError(f"{path} must end in {choices}, which selects the format")
        if not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: folder {path.parent} does not exist")
        if path.is_dir():
            raise UsageError(f"cannot write {path}: it is a folder")
        if path.exists() and not os.environ.get(OVERWRITE):
            raise UsageError(f"{path} already exists: choose another name, or set {OVERWRITE}=1")
    if any(path.suffix.lower() in PICTURES for path in files):
        require("matplotlib", "a picture")
    return files


def check_dialect(dialect: CsvDialect, paths: Iterable[Path]) -> None:
    """Raise UsageError if a dialect was chosen, but none of the paths is a CSV file."""
    if dialect != "plain" and not any(path.suffix.lower() == ".csv" for path in paths):
        raise UsageError("--csv-dialect applies to a CSV file: add --output FILE.csv")


def write(path: Path, text: str) -> None:
    """Write a text file; raises UsageError if that fails."""
    with refusing(UsageError, f"write {path}"):
        path.write_text(text, encoding="utf-8", newline="")
