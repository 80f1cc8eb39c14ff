"""`hushmote provision forget`: erase everything that contains a device's id, at a person's request."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ...fleet.provisioning.fleet_folder import FleetFolder, now_utc
from ...fleet.provisioning.fleet_spec import NATS
from ...fleet.provisioning.forget import clear_status, reload_here
from ...fleet.provisioning.master_key import load_keys
from ...fleet.provisioning.rotation import reload_broker
from ...server.answers import tables as show
from ...server.errors import ProvisionError, UsageError
from ...server.ingest.device_health import BrokerUnreachable
from ...server.wire.topics import check_device
from ...server.words.numbers import counted
from ..options import DEFAULT_STORE, AsJson, Folder, StoreUrl, choose_fleet, print_json
from .options import open_folder, print_next

if TYPE_CHECKING:
    from ...server.service.audit_log import AuditLog
    from ...server.store.store import Store
    from ...server.wire.keys import FleetKeys

_LASTING = (
    "Its contribution to the counts remains, because a histogram does not contain device ids. Backups of "
    "the store and the folder are not changed; after restoring one, forget the device again."
)


@dataclasses.dataclass
class _Account:
    """The completed steps, one line per place, the steps left for a person, and the error message or ""."""

    device: str
    fleet: str
    done: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    failure: str = ""


def forget_command(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="Device id.")],
    folder: Folder = None,
    store: StoreUrl = DEFAULT_STORE,
    only_folder: Annotated[
        bool, typer.Option("--only-folder", help="Change only the folder, for a store on another machine.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Forget the device without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase everything that contains a device's id, in the store, in the folder and on the broker.

    Revoke the device, erase its numbers in the store, end its connection, clear its status on the broker, and
    delete its settings and keys. After a failure, run the command again: it continues where it stopped.
    """
    check_device(device)
    opened = open_folder(folder, signs=True)
    account = _Account(device, opened.fleet.fleet)
    journal = opened.journal()
    names = {c.name for c in journal.credentials if c.kind == "device"} | set(journal.revoked)
    is_here = device in names or bool(opened.device_files(device))
    if only_folder:
        _agree(is_here, account, yes)
        ended = opened.revoke([device], now_utc())
        account.left.append(
            f"`hushmote provision revoke {device}` and `hushmote store erase --device {device}` at the store"
        )
    else:
        # Imported lazily because they are slow to load.
        from ...server.service.audit_log import audit_log
        from ...server.store.store import Store

        log = audit_log(store)
        log.check()
        with Store(store, create=False) as counts:
            from ...server.store.erase import was_erased

            choose_fleet(counts, account.fleet)
            fleet_keys = load_keys(opened.master_file())
            is_known = is_here or device in counts.known_devices(account.fleet, [device])
            _agree(is_known or was_erased(counts, account.fleet, device, fleet_keys), account, yes)
            # Revoke it first so that its reports no longer count, even after the erasure.
            counts.revoke_devices(account.fleet, [device])
            ended = opened.revoke([device], now_utc())
            _forget_in_store(counts, log, fleet_keys, account)
    files = opened.delete_files(device)
    account.done.append(
        f"folder: {counted(len(ended), 'credential')} revoked, {counted(files, 'file')} deleted"
    )
    _forget_at_broker(opened, account)
    if not account.failure:  # a retry still needs the id
        opened.forget(device, now_utc())
        account.done.append("folder: id removed from the list of issued credentials")
    account.left.append("the board still has its id and keys: erase its flash, or flash it with a new id")
    _print(account, as_json)


def _agree(is_known: bool, account: _Account, yes: bool) -> None:
    """Ask for confirmation unless --yes was given; refuse an unknown id, which may be a typo."""
    if not is_known:
        raise UsageError(f"device {account.device} is unknown; correct the id")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("cannot ask without a terminal, so nothing was forgotten; add --yes")
    show.out.print(f"device {account.device} of fleet {account.fleet}. {_LASTING}", markup=False)
    typer.confirm("Forget it permanently?", abort=True)


def _forget_in_store(store: Store, log: AuditLog, fleet_keys: FleetKeys | None, account: _Account) -> None:
    """Erase the device's rows, or queue the erasure for an aggregator if this process cannot."""
    from ...server.service.audit_log import system_user
    from ...server.store.database import StoreError, StoreLocked
    from ...server.store.erase import NotRewritten, erase, queue_erasure

    fleet = account.fleet
    try:
        erasure = erase(store, fleet, device=account.device, fleet_keys=fleet_keys)
        notices = erasure.notices
        account.done.append(f"store: report numbers of {counted(erasure.reports, 'report')} erased")
    except NotRewritten as e:
        notices = (str(e),)
        account.done.append("store: report numbers erased")
    except StoreError as e:
        reason = "because the store is in use" if isinstance(e, StoreLocked) else f"because this failed: {e}"
        erasure = queue_erasure(store, fleet, account.device)
        log.note(system_user(), "queue erasure", what="device", fleet=fleet)  # never the device's id
        account.done.append(
            f"store: erasing report numbers of {counted(erasure.reports, 'report')} is queued, {reason}"
        )
        account.left.append(
            "a running aggregator erases them within seconds; `hushmote status` lists pending erasures"
        )
        return
    log.note(system_user(), "erase", what="device", fleet=fleet, experiment=None)
    account.left += [f"the database did not rewrite all files; its owner can do so: {n}" for n in notices]


def _forget_at_broker(folder: FleetFolder, account: _Account) -> None:
    """Reload the broker's list of revoked devices, then clear the device's retained status."""
    is_nats = folder.fleet.broker == NATS
    is_reloaded = reload_here(folder) >= len(folder.fleet.servers)
    if not is_reloaded:
        account.left.append(reload_broker(folder.fleet))
    if is_nats:
        if is_reloaded:
            account.done.append("broker: reloaded; it ends the device's connections and drops its status")
        return
    try:
        clear_status(folder, account.device, now_utc())
    except BrokerUnreachable as e:
        account.failure = f"its status may still be retained: {e}; then run the same command again"
        return
    account.done.append(
        f"broker: {'reloaded, ' if is_reloaded else ''}the device's connection ended, its status cleared"
    )
    if not is_reloaded:
        account.left.append(
            "then run the same command again, because until then the board can connect and publish its status"
        )


def _print(account: _Account, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(account) | {"lasting": _LASTING})
    else:
        for line in account.done:
            show.out.print(line, markup=False)
        show.out.print(_LASTING)
        print_next(account.left)
    if account.failure:
        raise ProvisionError(f"device {account.device} is not forgotten yet: {account.failure}")
