"""`hushmote provision list` and `revoke`: the devices that may report."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...fleet.provisioning import fleet_folder
from ...fleet.provisioning.authority import common_name, host_names
from ...fleet.provisioning.fleet_folder import FleetFolder, now_utc
from ...fleet.provisioning.fleet_spec import NATS
from ...fleet.provisioning.rotation import reload_broker
from ...server.answers import tables as show
from ...server.errors import UsageError, refusing
from ...server.wire.topics import check_device
from ...server.words import numbers
from ...server.words.numbers import counted
from ..options import DEFAULT_STORE, AsJson, Folder, FolderFleet, StoreUrl, choose_fleet, print_json
from .options import fleet_name, open_folder, print_next

if TYPE_CHECKING:
    from ...server.store.store import Store


def list_command(
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="Allow a device, or all in @ids.txt, one per line. May be repeated.",
            metavar="DEVICE",
        ),
    ] = None,
    listed: Annotated[
        bool | None,
        typer.Option("--listed/--not-listed", help="Count only allowed devices, or all except revoked ones."),
    ] = None,
    fleet: FolderFleet = None,
    folder: Folder = None,
    store: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a fleet's devices and certificates and when they expire, or change which devices count.

    The data comes from a store, a folder or both. With --allow or --listed, change the list in the store.
    """
    changes = allow or listed is not None
    if folder is None and not changes and Path("fleet.json").exists():
        folder = Path()
    opened = None if folder is None else open_folder(folder)
    if changes:
        names = _device_ids(allow or ())
        with open_store(store or DEFAULT_STORE) as opened_store:
            _change(opened_store, _fleet_in(opened_store, fleet, opened), names, listed, as_json)
        return
    roster: dict[str, str] = {}
    if store is not None or opened is None:
        with open_store(store or DEFAULT_STORE) as opened_store:
            fleet = _fleet_in(opened_store, fleet, opened)
            roster = opened_store.roster(fleet)
            listed = fleet in opened_store.listed_fleets()
    else:
        fleet = fleet_name(fleet, opened)
    boards = _boards(opened, roster)
    certificates = [] if opened is None else _certificates(opened)
    if as_json:
        print_json({"fleet": fleet, "listed": listed, "certificates": certificates, "devices": boards})
        return
    if certificates:
        rows = [(c["what"], c["name"], _format_end(c["until"])) for c in certificates]
        _print(f"fleet {fleet}", ("certificate", "for", "until"), rows)
        show.out.print()
    if boards:
        rows = [(b["device"], b["state"], b["opens"], _format_end(b["until"])) for b in boards]
        _print("devices", ("device", "state", "broker", "until"), rows)
    else:
        show.out.print("no devices are listed")
    if listed is not None:
        show.out.print("only allowed devices count" if listed else "all devices except revoked ones count")


def _print(title: str, headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table = show.table(title, headings, range(len(headings)))
    for row in rows:
        table.add_row(*row)
    show.out.print(table)


def _device_ids(words: Sequence[str]) -> list[str]:
    """Return the device ids of --allow, including those in files."""
    names: list[str] = []
    for word in words:
        names += _ids(Path(word[1:])) if word.startswith("@") else [word]
    for name in names:
        check_device(name)
    return names


def _change(store: Store, fleet: str, names: Sequence[str], listed: bool | None, as_json: bool) -> None:
    """Put devices on the list, and set whether only listed devices count."""
    # Add devices first, because a list that applies while still empty would drop all reports.
    if names:
        store.allow_devices(fleet, names)
    if listed is not None:
        store.set_listed(fleet, listed)
    in_force = fleet in store.listed_fleets()
    allowed = sum(state == "allowed" for state in store.roster(fleet).values())
    if as_json:
        print_json({"fleet": fleet, "named": len(names), "allowed": allowed, "listed": in_force})
        return
    rule = "only these count" if in_force else "other devices also count (--listed changes that)"
    show.out.print(f"fleet {fleet}: devices allowed: {allowed:,}; {rule}")


def _ids(file: Path) -> list[str]:
    try:
        with refusing(UsageError, f"read {file}"):
            return file.read_text(encoding="utf-8-sig").split()
    except UnicodeDecodeError:
        raise UsageError(f"{file} must contain one device id per line") from None


def revoke_command(
    devices: Annotated[list[str], typer.Argument(metavar="DEVICE", help="Device ids.")],
    fleet: FolderFleet = None,
    folder: Folder = None,
    store: StoreUrl = DEFAULT_STORE,
    only_folder: Annotated[
        bool,
        typer.Option(
            "--only-folder",
            help="Change only the folder, for a store on another machine; revoke the devices there too.",
        ),
    ] = False,
    unknown_too: Annotated[
        bool, typer.Option("--unknown-too", help="Also revoke devices that have never reported.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Revoke devices permanently, so that their reports no longer count and the broker rejects them."""
    revoked = sorted(set(devices))
    for name in revoked:
        check_device(name)
    opened = None if folder is None else open_folder(folder, signs=True)
    if opened is None and only_folder:
        raise UsageError("--only-folder requires the fleet's folder; give --folder")
    known_devices: set[str] = set()
    if opened is not None:
        journal = opened.journal()
        known_devices = {c.name for c in journal.credentials if c.kind == "device"} | set(journal.revoked)
    # Change the store first because that takes effect at once, even for boards without a certificate.
    if only_folder:
        fleet = fleet_name(fleet, opened)
        _check_known(revoked, known_devices, unknown_too)
    else:
        with open_store(store) as opened_store:
            fleet = _fleet_in(opened_store, fleet, opened)
            _check_known(revoked, known_devices | opened_store.known_devices(fleet, devices), unknown_too)
            opened_store.revoke_devices(fleet, devices)
    ended = [] if opened is None else opened.revoke(devices, now_utc())
    if as_json:
        result = {"fleet": fleet, "revoked": revoked, "store": not only_folder}
        print_json(result | {"credentials_ended": [c.serial or "login" for c in ended]})
        return
    if not only_folder:
        count = f"{len(revoked):,} device" + ("s are" if len(revoked) > 1 else " is")
        show.out.print(f"fleet {fleet}: {count} revoked; their reports no longer count")
    if opened is None:
        show.out.print(
            "the broker still accepts the certificate; also revoke it with --folder on the machine "
            "with that folder",
        )
        return
    certificates = sum(c.serial is not None for c in ended)
    logins = len(ended) - certificates
    show.out.print(
        f"ended: {numbers.counted(certificates, 'certificate')}, {numbers.counted(logins, 'login')}"
    )
    next_steps = [reload_broker(opened.fleet)]
    if opened.fleet.broker != NATS:  # NATS ends connections at once
        next_steps.append("open connections stay open; restart mosquitto to close them now")
    if only_folder:
        next_steps.append(
            "run `hushmote provision revoke` with the aggregator's --store; only that drops reports"
        )
    print_next(next_steps)


def open_store(url: str) -> Store:
    """Return an existing store."""
    from ...server.store.store import Store  # imported lazily because it is slow to load

    return Store(url, create=False)


def _fleet_in(store: Store, fleet: str | None, folder: FleetFolder | None) -> str:
    return choose_fleet(store, fleet if folder is None else fleet_name(fleet, folder))


def _check_known(devices: Sequence[str], known_devices: set[str], unknown_too: bool) -> None:
    """Refuse unknown ids, because after a typo the intended device would stay in the fleet unnoticed."""
    unknown = [device for device in devices if device not in known_devices]
    if unknown and not unknown_too:
        raise UsageError(
            f"device {unknown[0]} is unknown; correct the id, or add --unknown-too to revoke a device that "
            "has never reported"
        )


def _format_end(until: str | None) -> str:
    if until is None:
        return "-"
    remaining = datetime.datetime.fromisoformat(until) - now_utc()
    date = until[:10]
    if remaining < datetime.timedelta(0):
        return f"{date}, expired"
    return f"{date}, in {counted(remaining.days, 'day')}" if remaining.days < 90 else date


def _certificates(folder: FleetFolder) -> list[dict[str, Any]]:
    certificates = [("ca", folder.certificate("broker/ca.pem"))]
    certificates += [("broker", certificate) for certificate in folder.broker_certificates()]
    certificates += [
        ("aggregator", folder.certificate(f"aggregator/{a}.pem")) for a in folder.fleet.aggregators
    ]
    if folder.has_door():
        certificates.append(("door", folder.certificate(fleet_folder.DOOR)))
    return [
        {
            "what": what,
            "name": ", ".join(host_names(certificate)) if what == "broker" else common_name(certificate),
            "until": certificate.not_valid_after_utc.isoformat(),
        }
        for what, certificate in certificates
    ]


def _boards(folder: FleetFolder | None, roster: dict[str, str]) -> list[dict[str, Any]]:
    def empty_row(device: str) -> dict[str, Any]:
        return {"device": device, "state": roster.get(device, "-"), "opens": "-", "until": None}

    boards = {device: empty_row(device) for device in roster}
    if folder is not None:
        journal = folder.journal()
        for c in journal.credentials:
            if c.kind == "device":
                opens = "revoked" if c.revoked else "login" if c.serial is None else "certificate"
                until = None if c.until is None else c.until.isoformat()
                boards[c.name] = empty_row(c.name) | {"opens": opens, "until": until}
        for device in journal.revoked:
            boards.setdefault(device, empty_row(device))["opens"] = "revoked"
    return [boards[device] for device in sorted(boards)]
