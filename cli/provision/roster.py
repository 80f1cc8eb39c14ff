"""`hushmote provision list` and `revoke`: which boards may report."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...server.answers import tables as show
from ...server.errors import UsageError, refusing
from ...server.provisioning import fleet_folder
from ...server.provisioning.authority import common_name, host_names
from ...server.provisioning.fleet_folder import FleetFolder, now_utc
from ...server.provisioning.fleet_spec import NATS
from ...server.provisioning.rotation import reload_broker
from ...server.store.store import Store
from ...server.wire.topics import check_device
from .. import tables
from ..options import DEFAULT_STORE, AsJson, StoreUrl, print_json, the_fleet
from .options import FleetOf, Folder, fleet_name, open_folder, say_next

MaybeStore = Annotated[
    str | None,
    typer.Option("--store", help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE", show_default=False),
]


def list_command(
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="DEVICE",
            help="Put a board on the list, or @ids.txt: one on each line. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    listed: Annotated[
        bool | None,
        typer.Option("--listed/--not-listed", help="Count only allowed boards, or any but revoked ones."),
    ] = None,
    fleet: FleetOf = None,
    folder: Folder = None,
    store: MaybeStore = None,
    as_json: AsJson = False,
) -> None:
    """Show a fleet's boards and certificates, and when they end; or change which boards count.

    It shows what a store, a folder or both say. With --allow or --listed it changes the list in the store.
    """
    if allow or listed is not None:
        _allow(_ids(allow or ()), listed, fleet, folder, store or DEFAULT_STORE, as_json)
        return
    if folder is None and Path("fleet.json").exists():
        folder = Path()
    opened = None if folder is None else open_folder(folder)
    roster: dict[str, str] = {}
    listed = None
    if store is not None or opened is None:
        with Store(store or DEFAULT_STORE, create=False) as counted:
            fleet = _fleet_in(counted, fleet, opened)
            roster = counted.roster(fleet)
            listed = fleet in counted.listed_fleets()
    else:
        fleet = fleet_name(fleet, opened)
    boards = _boards(opened, roster)
    certificates = [] if opened is None else _certificates(opened)
    if as_json:
        print_json({"fleet": fleet, "listed": listed, "certificates": certificates, "boards": boards})
        return
    if certificates:
        table = tables.table(f"fleet {fleet}", ("certificate", "for", "until"), 3)
        for c in certificates:
            table.add_row(c["what"], c["name"], _ends(c["until"]))
        show.out.print(table)
        show.out.print()
    table = tables.table("boards", ("board", "state", "broker", "until"), 4)
    for b in boards:
        table.add_row(b["device"], b["state"], b["opens"], _ends(b["until"]))
    show.out.print(table if boards else "no boards are named")
    if listed is not None:
        show.out.print("only allowed boards count" if listed else "all boards count but revoked ones")


def _ids(words: Sequence[str]) -> list[str]:
    """Device ids, of which @FILE holds one on each line; raises UsageError and NameRefused."""
    names: list[str] = []
    for word in words:
        names += _in_file(Path(word[1:])) if word.startswith("@") else [word]
    for name in names:
        check_device(name)
    return names


def _in_file(file: Path) -> list[str]:
    try:
        with refusing(UsageError, f"read {file}"):
            return file.read_text(encoding="ascii").split()
    except UnicodeDecodeError:
        raise UsageError(f"{file} must hold a device id on each line") from None


def _allow(
    names: Sequence[str],
    listed: bool | None,
    fleet: str | None,
    folder: Path | None,
    store: str,
    as_json: bool,
) -> None:
    made = None if folder is None else open_folder(folder)
    with Store(store, create=False) as opened:
        fleet = _fleet_in(opened, fleet, made)
        # Boards first: a list that is in force before it is written would drop everybody's reports.
        if names:
            opened.allow_devices(fleet, names)
        if listed is not None:
            opened.set_listed(fleet, listed)
        in_force = fleet in opened.listed_fleets()
        allowed = sum(state == "allowed" for state in opened.roster(fleet).values())
    if as_json:
        print_json({"fleet": fleet, "named": len(names), "allowed": allowed, "listed": in_force})
        return
    rule = "only these count" if in_force else "others count as well (--listed ends that)"
    show.out.print(f"fleet {fleet}: boards allowed: {allowed:,}; {rule}")


def revoke_command(
    devices: Annotated[list[str], typer.Argument(metavar="DEVICE", help="Device ids.")],
    fleet: FleetOf = None,
    folder: Folder = None,
    store: StoreUrl = DEFAULT_STORE,
    only_folder: Annotated[
        bool,
        typer.Option(
            "--only-folder", help="Not in the store, which is elsewhere: there too, it works at once."
        ),
    ] = False,
    unknown_too: Annotated[
        bool, typer.Option("--unknown-too", help="Also boards that nobody has heard of yet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Drop boards for good: their reports count no more, and the broker lets them in no more."""
    for name in devices:
        check_device(name)
    opened = None if folder is None else open_folder(folder, signs=True)
    if opened is None and only_folder:
        raise UsageError("--only-folder needs the fleet's folder: give --folder")
    known = _named_in(opened)
    # The store first: it works at once, and on boards without a certificate too.
    if not only_folder:
        with Store(store, create=False) as counted:
            fleet = _fleet_in(counted, fleet, opened)
            _check_known(devices, known | counted.known_devices(fleet, devices), unknown_too)
            counted.revoke_devices(fleet, devices)
    else:
        fleet = fleet_name(fleet, opened)
        _check_known(devices, known, unknown_too)
    ended = [] if opened is None else opened.revoke(devices, now_utc())
    if as_json:
        credentials = [c.serial or "login" for c in ended]
        result = {"fleet": fleet, "revoked": sorted(set(devices)), "store": not only_folder}
        print_json(result | {"credentials_ended": credentials})
        return
    count = f"{len(set(devices)):,} board" + ("s are" if len(set(devices)) > 1 else " is")
    if not only_folder:
        show.out.print(f"fleet {fleet}: {count} revoked; their reports count no more")
    if opened is None:
        show.out.print(
            "a certificate still opens the broker: revoke it too, with --folder where the fleet was made",
        )
        return
    certificates = sum(c.serial is not None for c in ended)
    show.out.print(f"ended: {certificates} certificates, {len(ended) - certificates} logins")
    left = [reload_broker(opened.fleet)]
    if opened.fleet.broker != NATS:  # which ends it at once
        left.append("a connection that is open stays until it ends: restart mosquitto to end it now")
    if only_folder:
        left.append("`hushmote provision revoke` with the aggregator's --store: only that drops reports")
    say_next(left)


def _fleet_in(store: Store, fleet: str | None, folder: FleetFolder | None) -> str:
    """The fleet that is meant, which the store must have."""
    return the_fleet(store, fleet if folder is None else fleet_name(fleet, folder))


def _named_in(folder: FleetFolder | None) -> frozenset[str]:
    """The boards that a folder has given anything."""
    if folder is None:
        return frozenset()
    journal = folder.journal()
    return frozenset(c.name for c in journal.credentials if c.kind == "device") | frozenset(journal.revoked)


def _check_known(devices: Iterable[str], known: frozenset[str], unknown_too: bool) -> None:
    """A misspelled id would leave the board that is meant in the fleet, and nobody would notice."""
    unknown = sorted(set(devices) - known)
    if unknown and not unknown_too:
        raise UsageError(
            f"nobody has heard of board {unknown[0]}: correct the id, or say --unknown-too to revoke a board "
            "that has never reported"
        )


def _ends(until: str | None) -> str:
    if until is None:
        return "-"
    left = datetime.datetime.fromisoformat(until) - now_utc()
    date = until[:10]
    if left < datetime.timedelta(0):
        return f"{date}, over"
    return f"{date}, in {left.days} days" if left.days < 90 else date


def _certificates(folder: FleetFolder) -> list[dict[str, Any]]:
    named = [("ca", folder.certificate("broker/ca.pem"))]
    named += [("broker", certificate) for certificate in folder.broker_certificates()]
    named += [
        ("aggregator", folder.certificate(f"aggregator/{name}.pem")) for name in folder.fleet.aggregators
    ]
    if folder.has_door():
        named.append(("door", folder.certificate(fleet_folder.DOOR)))
    lines = []
    for what, certificate in named:
        name = ", ".join(host_names(certificate)) if what == "broker" else common_name(certificate)
        lines.append({"what": what, "name": name, "until": certificate.not_valid_after_utc.isoformat()})
    return lines


def _boards(folder: FleetFolder | None, roster: dict[str, str]) -> list[dict[str, Any]]:
    """One line per board: what the store says of it, and its newest certificate or login."""

    def unknown(device: str) -> dict[str, Any]:
        return {"device": device, "state": "-", "opens": "-", "until": None}

    boards = {device: unknown(device) | {"state": state} for device, state in roster.items()}
    if folder is not None:
        journal = folder.journal()
        for c in journal.credentials:
            if c.kind != "device":
                continue
            line = boards.setdefault(c.name, unknown(c.name))
            line["opens"] = "revoked" if c.revoked else "login" if c.serial is None else "certificate"
            line["until"] = None if c.until is None else c.until.isoformat()
        for device in journal.revoked:
            boards.setdefault(device, unknown(device))["opens"] = "revoked"
    return [boards[device] for device in sorted(boards)]
