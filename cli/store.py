"""`hushmote store`: the store itself, apart from what is in it: upgrade, back up, check."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.store import schema
from ..server.store.backup import backup
from ..server.store.check import check
from ..server.store.database import Database
from ..server.store.store import Store
from .options import AsJson, print_json

store_app = typer.Typer(help="The store itself: upgrade, back up, check.", no_args_is_help=True)

_HELP = "SQLAlchemy URL of the store."
Url = Annotated[str, typer.Argument(metavar="URL", help=_HELP, envvar="HUSHMOTE_STORE")]


@store_app.command("upgrade")
def store_upgrade(url: Url, as_json: AsJson = False) -> None:
    """Bring a store that an earlier Hushmote made to this one's schema: wholly, or not at all.

    Stop its aggregators and back it up first; there is no way back but the backup.
    """
    database = Database(url, create=False, upgrade=True)
    database.close()
    if as_json:
        print_json({"store": database.where, "from": database.version_before, "to": schema.VERSION})
    elif database.version_before == schema.VERSION:
        _say(f"{database.where} has schema version {schema.VERSION} already: nothing was changed")
    else:
        _say(f"{database.where} has schema version {schema.VERSION} now, up from {database.version_before}")


@store_app.command("backup")
def store_backup(
    url: Annotated[str, typer.Argument(metavar="URL", help=_HELP)],
    file: Annotated[Path, typer.Argument(help="File to write; there must be none of that name.")],
    as_json: AsJson = False,
) -> None:
    """Copy an SQLite store as it is at one moment, while aggregators go on.

    The copy is a store. To restore it, stop the aggregators, move the other away with its -wal and -shm, and
    put the copy in its place.
    """
    size_bytes = backup(url, file)
    if as_json:
        print_json({"file": str(file), "bytes": size_bytes})
    else:
        _say(f"{file} holds a copy, {size_bytes:,} bytes, checked")


@store_app.command("check")
def store_check(url: Url, as_json: AsJson = False) -> None:
    """Check that every report counted is one accepted once, and that every row can be read.

    Prints a line for each contradiction, and exits with status 1 where there is any.
    """
    with Store(url, create=False) as store:
        found = check(store)
        where = store.where
    if as_json:
        print_json({"store": where} | asdict(found))
    else:
        for line in found.violations:
            _say(line)
        if not found.violations:
            _say(
                f"{where} is sound: {found.reports:,} reports of {found.devices:,} devices, each counted once"
            )
    if found.violations:
        raise typer.Exit(1)


def _say(text: str) -> None:
    show.out.print(text, markup=False, soft_wrap=True)
