"""`hushmote provision rotate`: new keys and certificates for a running fleet and its devices."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from ...fleet.provisioning import rotation
from ...fleet.provisioning import settings as provision
from ...fleet.provisioning.fleet_folder import DEVICES, FleetFolder, now_utc
from ...fleet.provisioning.fleet_spec import NATS
from ...fleet.provisioning.master_key import load_keys
from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.wire.topics import check_device
from ...server.words.numbers import counted
from ..options import AsJson, Folder, print_json
from .options import open_folder, print_done, print_next

What = Literal["broker", "aggregator", "new-aggregator", "door", "devices", "ca", "master", "signing"]
_OVERLAPPING = ("aggregator", "ca", "master")


def rotate_command(
    what: Annotated[What, typer.Argument(help="Part that gets new keys or certificates.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="With devices: only these devices; default: all. With broker: its new names; default: "
            "the current names.",
        ),
    ] = None,
    folder: Folder = None,
    finish: Annotated[
        bool, typer.Option("--finish", help="End the overlap, so that only the new keys are valid.")
    ] = False,
    cut_off: Annotated[
        bool,
        typer.Option("--cut-off", help="With ca --finish: finish even if some boards have only the old CA."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create new keys and certificates; old ones of aggregator, ca and master stay valid until --finish.

    broker: does not affect boards. new-aggregator: adds an aggregator, which shares the reports with the
    others. door: creates its first certificate, or replaces and revokes the old ones. devices: puts the
    current keys, certificate and CA into their settings; `flash` keeps the ledger. signing: boards reject
    experiments until they are flashed again.
    """
    if names and what not in ("devices", "broker"):
        raise UsageError(f"{what} takes no names; omit {names[0]}")
    if finish and what not in _OVERLAPPING:
        raise UsageError(f"{what} has no overlap; --finish is only for {', '.join(_OVERLAPPING)}")
    if cut_off and not (finish and what == "ca"):
        raise UsageError(
            "--cut-off works only with ca --finish, as in hushmote provision rotate ca --finish --cut-off"
        )
    opened = open_folder(folder, signs=what not in ("master", "signing"))
    match what:
        case "devices":
            _renew(opened, names or (), as_json)
            return
        case "broker":
            result = rotation.rotate_broker(opened, names or (), now_utc())
        case "door":
            result = rotation.put_door(opened, now_utc())
        case "new-aggregator":
            result = rotation.add_aggregator(opened, now_utc())
        case "aggregator":
            result = (rotation.finish_aggregator if finish else rotation.rotate_aggregator)(opened, now_utc())
        case "ca":
            finished = finish and rotation.finish_ca(opened, now_utc(), cut_off=cut_off)
            result = finished or rotation.rotate_ca(opened, now_utc())
        case "master":
            result = (rotation.finish_master if finish else rotation.rotate_master)(opened)
        case "signing":
            result = rotation.rotate_signing(opened)
    print_done(result, as_json)


def _renew(opened: FleetFolder, devices: Sequence[str], as_json: bool) -> None:
    fleet_keys = load_keys(opened.master_file())
    paths = [provision.settings_path(check_device(d), opened.path / DEVICES) for d in devices]
    paths = paths or rotation.device_settings(opened)
    for path in paths:
        provision.load_settings(path)  # check all before changing any
    try:
        new_settings = [(path, rotation.renew(opened, path, fleet_keys, now_utc())) for path in paths]
    finally:
        opened.put_users()
    if as_json:
        print_json([{"device_id": s.device_id, "settings": str(path)} for path, s in new_settings])
        return
    for path, settings in new_settings:
        show.out.print(provision.describe(settings, path))
    show.out.print(
        f"new settings for {counted(len(new_settings), 'device')}; run `hushmote flash` for each, which "
        "keeps its ledger"
    )
    if opened.fleet.broker == NATS:
        print_next([f"first: {rotation.reload_broker(opened.fleet)}"])
