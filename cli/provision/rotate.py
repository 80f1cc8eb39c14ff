"""`hushmote provision rotate` and `aggregator`: new keys for a fleet that is running, and its boards."""

from __future__ import annotations

import dataclasses
import enum
import textwrap
from collections.abc import Sequence
from typing import Annotated

import typer

from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.provisioning import fleet_folder, rotation
from ...server.provisioning import settings as provision
from ...server.provisioning.authority import DEVICE_DAYS
from ...server.provisioning.fleet_folder import DEVICES, FleetFolder, now_utc
from ...server.provisioning.fleet_spec import NATS
from ...server.provisioning.master_key import load_keys
from ...server.wire.keys import FleetKeys
from ...server.wire.topics import check_device
from ..options import AsJson, print_json
from .first_steps import put_connections
from .options import Days, Folder, MasterKey, open_folder


class What(enum.StrEnum):
    """What gets new keys."""

    BROKER = "broker"
    AGGREGATOR = "aggregator"
    DOOR = "door"
    BOARDS = "boards"
    CA = "ca"
    MASTER = "master"
    SIGNING = "signing"


_OVERLAPPING = (What.AGGREGATOR, What.CA, What.MASTER)


def say(done: rotation.Rotated, as_json: bool) -> None:
    """Print what was done and what is left to do."""
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    for line in done.done:
        show.out.print(line)
    say_next(done.left)


def say_next(lines: Sequence[str]) -> None:
    """Print what a person has to do now, one item under the other."""
    show.out.print("next:")
    for line in lines:
        text = textwrap.fill(
            line,
            show.out.width,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        show.out.print(text, soft_wrap=True)


def rotate_command(
    what: Annotated[What, typer.Argument(help="What gets new ones.", show_default=False)],
    boards: Annotated[
        list[str] | None,
        typer.Argument(metavar="DEVICE", help="With boards: only these; else all.", show_default=False),
    ] = None,
    folder: Folder = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="With broker: a name or address from now on; else those it has.", show_default=False
        ),
    ] = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="End the overlap: only the new ones hold from now on.")
    ] = False,
    cut_off: Annotated[
        bool, typer.Option("--cut-off", help="With ca --finish: although boards know only the old one.")
    ] = False,
    master_key: MasterKey = None,
    days: Days = DEVICE_DAYS,
    as_json: AsJson = False,
) -> None:
    """New keys and certificates. Of aggregator, ca and master the old ones hold too, until --finish.

    broker: boards need not know. door: the first certificate, or one for those it had, which are revoked.
    boards: their settings get the keys, certificate and CA in force now, and `flash` then keeps the ledger.
    signing: boards refuse experiments until they are flashed.
    """
    if boards and what is not What.BOARDS:
        raise UsageError(f"{what} takes no names of boards: leave {boards[0]} out")
    if host and what is not What.BROKER:
        raise UsageError("--host is the broker's: hushmote provision rotate broker")
    if finish and what not in _OVERLAPPING:
        raise UsageError(f"{what} has no overlap: --finish is for {', '.join(_OVERLAPPING)}")
    if cut_off and not (finish and what is What.CA):
        raise UsageError("--cut-off is for the end of a CA: hushmote provision rotate ca --finish --cut-off")
    opened = open_folder(folder, signs=what not in (What.MASTER, What.SIGNING))
    if what is What.BOARDS:
        _renew(opened, boards or (), load_keys(master_key or opened.master_file()), days, as_json)
        return
    match what:
        case What.BROKER:
            done = rotation.rotate_broker(opened, host or (), now_utc())
        case What.DOOR:
            done = rotation.put_door(opened, now_utc())
        case What.AGGREGATOR:
            done = (rotation.finish_aggregator if finish else rotation.rotate_aggregator)(opened, now_utc())
        case What.CA:
            finished = finish and rotation.finish_ca(opened, now_utc(), cut_off=cut_off)
            done = finished or rotation.rotate_ca(opened, now_utc())
        case What.MASTER:
            done = (rotation.finish_master if finish else rotation.rotate_master)(opened)
        case What.SIGNING:
            done = rotation.rotate_signing(opened)
    if what in (What.BROKER, What.DOOR):
        put_connections(fleet_folder.find(opened.path))
    say(done, as_json)


def _renew(
    opened: FleetFolder, devices: Sequence[str], fleet_keys: FleetKeys | None, days: int, as_json: bool
) -> None:
    """Give boards' settings the keys, certificate and CA in force now."""
    paths = [provision.settings_path(check_device(d), opened.path / DEVICES) for d in devices]
    if not devices:
        gone = opened.journal().revoked
        everyone = sorted((opened.path / DEVICES).glob("*.settings.json"))
        paths = [p for p in everyone if p.name.split(".")[0] not in gone]
    for path in paths:
        provision.load_settings(path)  # before the first is changed
    try:
        made = [(path, rotation.renew(opened, path, fleet_keys, now_utc(), days)) for path in paths]
    finally:
        opened.put_users()
    if as_json:
        print_json([{"device_id": s.device_id, "settings": str(path)} for path, s in made])
        return
    for path, settings in made:
        show.out.print(provision.describe(settings, path))
    show.out.print(f"{len(made)} boards have new settings: `hushmote flash` them; their ledgers stay")
    if opened.fleet.broker == NATS:
        say_next([f"first: {rotation.reload_broker(opened.fleet)}"])


def aggregator_command(folder: Folder = None, as_json: AsJson = False) -> None:
    """A certificate and rights for one more aggregator, to share the reports with the others."""
    opened = open_folder(folder, signs=True)
    done = rotation.add_aggregator(opened, now_utc())
    put_connections(fleet_folder.find(opened.path))
    say(done, as_json)
