"""`hushmote statement`: write and verify a fleet's compliance documents."""

import datetime
import json
import os
import re
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from ...fleet.provisioning import fleet_folder
from ...fleet.provisioning.fleet_folder import FleetFolder
from ...fleet.provisioning.master_key import load_keys
from ...fleet.provisioning.settings import load_settings
from ...fleet.statement import document, fleet_facts, junit, page
from ...fleet.statement.fleet_facts import Evidence
from ...fleet.statement.vex import read as read_vex
from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.plain_text import visible
from ...server.store.store import Store
from ...server.wire import keys
from ...server.words.label import Language, words_in
from ..options import DEFAULT_STORE, MasterKey, SigningKey, StoreUrl, choose_fleet
from ..output import check_paths, describe_suffixes, output_option
from ..output import write as write_text

statement_app = typer.Typer()
_KINDS = (".html", ".json")
_HEX = re.compile(r"[0-9a-fA-F]{128}", re.ASCII)
_UNKNOWN_SIGNER = "the signature is valid, but the owner of the key is unknown; give --announce-key"
UNKNOWN_SIGNER_STATUS = 3  # exit status for an intact statement whose signer is unknown


@statement_app.command("write")
def write(  # noqa: PLR0913 - one for each option
    fleet: Annotated[
        str | None,
        typer.Argument(
            help="The fleet's folder, or the fleet's name; optional if the store has only one fleet."
        ),
    ] = None,
    store: StoreUrl = DEFAULT_STORE,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Firmware file with the devices' POLICY, such as their main.py, or a .py or .json with the "
            "output of `hushmote budget policy`.  [required]"
        ),
    ] = None,
    master_key: MasterKey = None,
    signing_key: SigningKey = None,
    lang: Annotated[Language, typer.Option(help="Language of the label.")] = "en",
    vulnerable: Annotated[
        list[str] | None,
        typer.Option(
            help="Version of the firmware with a known vulnerability, as the open group firmware names it. "
            "May be repeated.",
            metavar="VERSION",
        ),
    ] = None,
    vex: Annotated[
        list[Path] | None,
        typer.Option(
            help="OpenVEX file to list known vulnerabilities from. May be repeated.", metavar="FILE.json"
        ),
    ] = None,
    tests: Annotated[
        list[Path] | None,
        typer.Option(
            help="JUnit file of tests that were run, such as from `pytest --junitxml=FILE.xml`. May be "
            "repeated.",
            metavar="FILE.xml",
        ),
    ] = None,
    micropython: Annotated[
        str, typer.Option(help="Version of MicroPython on the devices, such as 1.28.0.", metavar="VERSION")
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="Write only the label and files for the public, without counts.")
    ] = False,
    output: Annotated[list[Path] | None, output_option(describe_suffixes(*_KINDS))] = None,
) -> None:
    """Write a fleet's statement: the label, tables for standards and laws, and the registry entry.

    Without --output, print the label. The tables support ETSI EN 303 645, EN 18031-2, the GDPR, the Cyber
    Resilience Act, the Data Act and NIST SP 800-226. All numbers come from the store, policy and folder;
    passages that only a lawyer or the manufacturer can write are marked. The JSON is signed with the
    experiments' signing key.
    """
    if policy is None:
        raise UsageError(
            "--policy is missing; give the devices' firmware file, such as their main.py; "
            "`hushmote budget policy --write` writes POLICY into it"
        )
    paths = check_paths(output, *_KINDS)
    evidence = Evidence(
        tuple(vulnerable or ()),
        tuple(statement for path in vex or () for statement in read_vex(path)),
        tuple(map(junit.read, tests or ())),
        _version(micropython),
    )
    if public and (vulnerable or vex or tests):
        raise UsageError(
            "--vulnerable, --vex and --tests are for chapters that a --public statement does not have; "
            "leave one or the other out"
        )
    folder = fleet_folder.find(Path(fleet)) if fleet and Path(fleet, "fleet.json").exists() else None
    with Store(store, read_only=True) as opened:
        name = choose_fleet(opened, folder.fleet.fleet if folder else fleet)
        facts = fleet_facts.read(opened, name, folder, policy, _now(), evidence)
        statement = document.document(facts, public=public, language=lang)
        fleet_keys = _keys(opened, name, folder, master_key, signing_key) if paths else None
    for question in facts.undecided:
        show.err.print(
            f'{question}: the retention of its counts is not set; add keep = "400d" to its '
            "experiment's file, and run `hushmote experiment add` again",
            soft_wrap=True,
        )
    if not paths:
        _show(words_in(lang).texts["title"], statement["label"])
        return
    signed_document = document.sign(statement, fleet_keys)
    for path in paths:
        is_json = path.suffix.lower() == ".json"
        write_text(
            path, json.dumps(signed_document, indent=2) + "\n" if is_json else page.html(signed_document)
        )
        show.out.print(f"wrote {path}", soft_wrap=True)


def _version(text: str) -> str:
    """Return a version of MicroPython as it was given; raise UsageError for any other text."""
    if text and not re.fullmatch(r"v?\d+\.\d+[\w.+-]{0,40}", text, re.ASCII):
        raise UsageError(f"--micropython must be a version such as 1.28.0, not {text}")
    return text.removeprefix("v")


def _now() -> datetime.datetime:
    """Return the time, or SOURCE_DATE_EPOCH if set, so that the same facts produce the same bytes."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        return datetime.datetime.now(datetime.UTC)
    try:
        return datetime.datetime.fromtimestamp(int(epoch), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH must be a time in seconds since 1970, not {epoch}") from None


def _keys(
    store: Store, name: str, folder: FleetFolder | None, file: Path | None, signing: Path | None
) -> keys.FleetKeys | None:
    """Return the signing keys, or None for an open fleet; raise StatementError if they belong to another."""
    if not store.fleets()[name]:
        return None
    if folder is not None and file is None:
        file, signing = folder.master_file(), signing or folder.signing_file()
    fleet_keys = load_keys(file, signing=signing)
    fleet_facts.check_keys(store, name, fleet_keys)
    return fleet_keys


def _show(title: str, label: dict[str, list[str]]) -> None:
    show.out.print(title, style="bold")
    for question, answers in label.items():
        show.out.print(f"\n{question}", style="bold")
        for text in answers:
            # rich would break lines at no-break spaces
            show.out.print(textwrap.fill(visible(text), show.out.width), markup=False)


@statement_app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="JSON file of a statement.")],
    announce_key: Annotated[
        str | None,
        typer.Option(
            help="The fleet's announce key, from a place you trust: 128 hex digits, a device's settings "
            "file, or the fleet's folder.",
            metavar="HEX|SETTINGS.json|FOLDER",
        ),
    ] = None,
) -> None:
    """Verify a statement's signature and that the device files match the statement.

    The files are compared with those in this package, and your application with the file next to the
    statement. Without --announce-key, the exit status is 3 even if everything else is correct, because
    anyone can sign with their own key.
    """
    key = None if announce_key is None else _announce_key(announce_key, document.fleet_of(file))
    for line in document.verify(file, key):
        show.out.print(line, soft_wrap=True, markup=False)
    if key is None:
        typer.echo(f"hushmote: {_UNKNOWN_SIGNER}", err=True)
        raise typer.Exit(UNKNOWN_SIGNER_STATUS)


def _announce_key(text: str, fleet: str) -> bytes:
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    path = Path(text)
    if (path / "fleet.json").exists():
        folder = fleet_folder.find(path)
        owner, fleet_keys = folder.fleet.fleet, load_keys(folder.master_file())
        key = fleet_keys and fleet_keys.announce_key.hex()
    elif path.is_file() and path.name != "fleet.json":
        settings = load_settings(path)
        owner, key = settings.fleet, settings.announce_key
    else:
        raise UsageError(
            f"--announce-key {text} must be 128 hex digits, the fleet's folder, in which fleet.json is, or a "
            "device's settings file, such as devices/k3f9x1.settings.json"
        )
    if owner != fleet:
        raise UsageError(
            f"{text} belongs to fleet {owner} and the statement to fleet {fleet}; give that fleet's key"
        )
    if key is None:
        raise UsageError(f"{text} contains no announce key; give the settings of a device in a keyed fleet")
    return bytes.fromhex(key)
