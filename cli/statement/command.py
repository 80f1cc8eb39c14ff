"""`hushmote statement`: a fleet's papers, and whether they are as they were signed."""

import datetime
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ...server.answers import tables as show
from ...server.errors import UsageError, refusing
from ...server.plain_text import visible
from ...server.provisioning import flash, fleet_folder
from ...server.provisioning.fleet_folder import FleetFolder
from ...server.provisioning.master_key import load_keys
from ...server.statement import document, facts, page
from ...server.store.store import Store
from ...server.wire import keys
from ..options import DEFAULT_STORE, StoreUrl, the_fleet
from ..output import by_name, checked, output_option

statement_app = typer.Typer()
_KINDS = (".html", ".json", ".pdf")


@statement_app.command("write")
def write(
    fleet: Annotated[
        str | None,
        typer.Argument(
            help="The fleet's folder; or its name, where it has none; the only one of a store needs neither."
        ),
    ] = None,
    store: StoreUrl = DEFAULT_STORE,
    policy: Annotated[
        Path,
        typer.Option(
            help="Firmware file with the devices' POLICY, or its .json.",
            show_default="device/main.py",
        ),
    ] = flash.EXAMPLE,
    master_key: Annotated[
        Path | None,
        "Master key file, which signs; else the folder's; or set HUSHMOTE_MASTER_KEY to the keys.",
        "FILE",
    ] = None,
    public: Annotated[bool, "Only label and files, without counts: for anybody to read."] = False,
    output: Annotated[list[Path] | None, output_option(by_name(*_KINDS))] = None,
) -> None:
    """Write a fleet's statement: the label, tables for ETSI EN 303 645 and the GDPR, the registry's entry.

    Without --output it prints the label. Every number is read from store, policy and folder; what only a
    lawyer or the maker can write is marked. The JSON is signed with the key that signs the experiments.
    """
    paths = checked(output, *_KINDS)
    folder = fleet_folder.find(Path(fleet)) if fleet and Path(fleet, "fleet.json").exists() else None
    with Store(store, read_only=True) as opened:
        name = the_fleet(opened, folder.fleet.fleet if folder else fleet)
        statement = document.document(facts.read(opened, name, folder, policy, _now()), public=public)
        fleet_keys = _keys(opened, name, folder, master_key) if paths else None
    if not paths:
        _show(statement["label"])
        return
    whole = document.signed(statement, fleet_keys)
    for path in paths:
        kind = path.suffix.lower()
        text = json.dumps(whole, indent=2) + "\n" if kind == ".json" else page.html(whole)
        made = page.pdf(text) if kind == ".pdf" else text.encode()
        with refusing(UsageError, f"write {path}"):
            path.write_bytes(made)
        show.out.print(f"wrote {path}", soft_wrap=True)


def _now() -> datetime.datetime:
    """Now, or the time of SOURCE_DATE_EPOCH, so that the same facts give the same bytes."""
    said = os.environ.get("SOURCE_DATE_EPOCH")
    if said is None:
        return datetime.datetime.now(datetime.UTC)
    try:
        return datetime.datetime.fromtimestamp(int(said), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is a time in seconds since 1970, not {said}") from None


def _keys(store: Store, name: str, folder: FleetFolder | None, file: Path | None) -> keys.FleetKeys | None:
    """The keys that sign; None for an open fleet. Raises StatementError where they are not the fleet's."""
    if not store.fleets()[name]:
        return None
    fleet_keys = load_keys(file or (folder and folder.master_file()))
    facts.check_keys(store, name, fleet_keys)
    return fleet_keys


def _show(label: dict[str, list[str]]) -> None:
    show.out.print(page.TITLE, style="bold")
    for question, answers in label.items():
        show.out.print(f"\n{question}", style="bold")
        for text in answers:
            show.out.print(visible(text), markup=False)


@statement_app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="A statement in JSON.")],
) -> None:
    """Check that a statement is as it was signed, and that a device's files are those that it names.

    They are compared with this package's, and an application of one's own with the file beside the statement.
    """
    for line in document.verify(file):
        show.out.print(line, soft_wrap=True, markup=False)
