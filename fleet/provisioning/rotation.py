"""New keys for a running fleet: each step leaves a folder whose old and new keys both work.

A separate step, named finish_*, ends the overlap. SIGHUP tells programs that read the broker's folder.
"""

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from ...server.wire import keys
from ...server.words.numbers import counted
from . import authority
from . import settings as provision
from .fleet_folder import (
    AUTHORITY,
    DEVICES,
    DOOR,
    MASTER,
    OLD_AUTHORITY,
    ROOT,
    SIGNING,
    FleetFolder,
    FolderError,
)
from .fleet_spec import NATS, FleetSpec, aggregator_name
from .master_key import (
    MAX_MASTERS,
    load_keys,
    load_signing_key,
    load_unsigned,
    new_signing_key,
    signing_text,
    to_text,
    without_signing,
)
from .settings import DeviceSettings


@dataclass(frozen=True)
class Rotation:
    """The result of a rotation: a line for each thing done and for each next step."""

    done: tuple[str, ...]
    next_steps: tuple[str, ...]


def reload_broker(fleet: FleetSpec) -> str:
    """Return how to make the broker read its part of the folder again."""
    if fleet.broker == NATS:
        return (
            "copy broker/1/ and the others to where each server has its own, if that is elsewhere, and send "
            "every nats-server SIGHUP: `pkill -HUP -x nats-server`, or `systemctl reload hushmote-nats@1`"
        )
    return (
        "copy broker/ to where the broker has it, if that is elsewhere, and send mosquitto SIGHUP: "
        "`pkill -HUP -x mosquitto`, or `systemctl reload mosquitto`"
    )


SERVE_AGAIN = (
    "copy aggregator/ to where the aggregator has it, if that is elsewhere, and restart `hushmote serve`"
)
SIGN_AGAIN = (
    "sign every experiment again and add it: `hushmote experiment sign`, then `hushmote experiment add`"
)


def device_settings(folder: FleetFolder) -> list[Path]:
    """Return the settings files of devices that are not revoked, in the order of their names."""
    revoked, files = folder.journal().revoked, (folder.path / DEVICES).glob("*.settings.json")
    return sorted(path for path in files if path.name.split(".")[0] not in revoked)


def rotate_broker(folder: FleetFolder, hosts: Sequence[str], now: datetime.datetime) -> Rotation:
    """Give the broker new keys and certificates.

    Args:
        folder: The fleet's folder.
        hosts: The broker's names from now on; empty to keep them.
        now: The current time, UTC.

    Raises:
        FolderError: If that would change the number of NATS servers, or leave a board none of the names in
            its settings.
    """
    if hosts:
        if folder.fleet.broker == NATS and len(hosts) != len(folder.fleet.hosts):
            raise FolderError(
                f"the fleet has {len(folder.fleet.hosts)} NATS servers: name that many, in their order"
            )
        for host in hosts:
            authority.host_name(host)
        fleet = replace(folder.fleet, hosts=tuple(hosts))
        for path in device_settings(folder):
            names = provision.broker_names(provision.load_settings(path).mqtt_host)
            if names and not set(names) & set(fleet.board_hosts):
                raise FolderError(
                    f"{path.name} has the broker {', '.join(names)}, and its board would reject others: "
                    "include that name until the board is flashed with another mqtt_host"
                )
        folder = folder.put_fleet(fleet)
    broker = folder.put_broker(folder.signer(), now, folder.old_signer())
    folder.put_users()  # a folder that took over another's authority lets its devices in
    names = ", ".join(folder.fleet.board_hosts)
    return Rotation(
        (f"broker: new key and certificate for {names}, until {broker.until:%Y-%m-%d}",),
        (
            reload_broker(folder.fleet),
            "devices read no revocation list: a thief of the old key can pose as the broker until the old "
            "certificate ends; after a theft rotate the ca",
        ),
    )


def add_aggregator(folder: FleetFolder, now: datetime.datetime) -> Rotation:
    """Give one more aggregator a user name, a certificate and an aggregator's rights."""
    name = aggregator_name(len(folder.fleet.aggregators) + 1)
    aggregator = folder.put_aggregator(folder.signer(), name, now)
    folder.put_fleet(replace(folder.fleet, aggregators=(*folder.fleet.aggregators, name)))
    file = folder.path / f"aggregator/{name}.pem"
    return Rotation(
        (f"{name}: certificate until {aggregator.until:%Y-%m-%d} in {file}",),
        (reload_broker(folder.fleet), _start_aggregator(folder, name)),
    )


def _start_aggregator(folder: FleetFolder, name: str) -> str:
    share = "" if folder.fleet.broker == NATS else ": all name the same share"
    return f"start every aggregator with its own file as --broker, here {name}.toml{share}"


def put_door(folder: FleetFolder, now: datetime.datetime) -> Rotation:
    """Give the HTTP door a new key and certificate, and revoke its older ones."""
    old = folder.journal().valid("door", now)
    door = folder.put_door(folder.signer(), now)
    folder.put_fleet(folder.fleet)  # the access list may be older than doors
    folder.withdraw(old, now)
    revoked = (_revoked(len(old), "the door"),) if old else ()
    pem = folder.path / DOOR
    return Rotation(
        (f"{door.name}: certificate until {door.until:%Y-%m-%d} in {pem}", *revoked),
        (
            reload_broker(folder.fleet),
            f"copy {pem.parent} to the door's machine if it is another one, and start `hushmote door` "
            f"with --broker {pem.with_suffix('.toml')}",
        ),
    )


def rotate_aggregator(folder: FleetFolder, now: datetime.datetime) -> Rotation:
    """Give every aggregator a new key and certificate; the old ones work until finish_aggregator."""
    signer = folder.signer()
    aggregators = [folder.put_aggregator(signer, name, now) for name in folder.fleet.aggregators]
    return Rotation(
        tuple(f"{m.name}: new key and certificate, until {m.until:%Y-%m-%d}" for m in aggregators),
        (
            SERVE_AGAIN,
            "then `hushmote provision rotate aggregator --finish`: the old certificates are revoked",
        ),
    )


def finish_aggregator(folder: FleetFolder, now: datetime.datetime) -> Rotation:
    """Revoke all certificates of aggregators except each one's newest."""
    valid = folder.journal().valid("aggregator", now)
    newest = {c.name: c for c in valid}
    old = [c for c in valid if newest[c.name] is not c]
    folder.withdraw(old, now)
    summary = _revoked(len(old), "aggregators")
    return Rotation((summary,), (reload_broker(folder.fleet),))


def rotate_ca(folder: FleetFolder, now: datetime.datetime) -> Rotation:
    """Make a new root that signs everything from now on; devices that know only the old one still connect.

    The broker's new certificate comes with one of the old root for the new, so that both kinds of boards
    accept it.

    Raises:
        FolderError: If a rotation is in progress.
    """
    folder.journal()  # refuse a damaged journal before a root is replaced: it lists what to sign again
    old, new = folder.old_signer(), folder.signer()
    if old is None or old.name == new.name:
        old, new = new, authority.new_authority(folder.fleet.fleet, now)
        _replace_authority(folder, new)
    elif authority.common_name(folder.root()) == new.name:
        raise FolderError("a rotation of the ca is in progress: end it with --finish first")
    _sign_again(folder, now)
    return Rotation(
        (
            f"authority: {new.name}, until {new.until:%Y-%m-%d}; {old.name} remains trusted until --finish",
            "broker and aggregators: new keys and certificates",
        ),
        (
            reload_broker(folder.fleet),
            SERVE_AGAIN,
            "`hushmote provision rotate devices`, then `hushmote flash` every board: it keeps its ledger",
            "then `hushmote provision rotate ca --finish`. After a theft of ca.key, finish at once: until "
            "then the thief's certificates work",
        ),
    )


def _replace_authority(folder: FleetFolder, new: authority.CertifiedKey) -> None:
    path, old_path = folder.path / AUTHORITY, folder.path / OLD_AUTHORITY
    fresh = path.with_name("ca-new.key")
    with refusing(FolderError, f"write {path}"):
        # A complete ca.key exists at all times.
        fresh.unlink(missing_ok=True)
        old_path.unlink(missing_ok=True)
        private_file.create(fresh, new.to_pem(folder.passphrase))
        os.link(path, old_path)
        os.replace(fresh, path)


def finish_ca(folder: FleetFolder, now: datetime.datetime, *, cut_off: bool) -> Rotation:
    """Trust only the new root, and delete the old one's key.

    This may be repeated: the old root is recorded as trusted until everything else is done.

    Args:
        folder: The fleet's folder.
        now: The current time, UTC.
        cut_off: Continue even if devices without anything from the new root can no longer connect.

    Raises:
        FolderError: If there are such devices, and cut_off is False.
    """
    new, old = folder.signer(), authority.common_name(folder.certificates(ROOT)[-1])
    if old == new.name:
        raise FolderError("no rotation of the ca is in progress: start one without --finish")
    boards = left_behind(folder, new.name, now)
    if boards and not cut_off:
        know = f"{counted(len(boards), 'device')} {'knows' if len(boards) == 1 else 'know'}"
        raise FolderError(
            f"{know} only the old ca, such as {boards[0]}: rotate and flash them first, or disconnect "
            "them with --cut-off"
        )
    with refusing(FolderError, f"remove {folder.path / OLD_AUTHORITY}"):
        (folder.path / OLD_AUTHORITY).unlink(missing_ok=True)
    _sign_again(folder, now)
    cut = (f"{counted(len(boards), 'device')} cannot connect until flashed again",) if boards else ()
    return Rotation(
        (f"authority: only {new.name} is trusted; {old} is deleted", *cut),
        (reload_broker(folder.fleet), SERVE_AGAIN),
    )


def left_behind(folder: FleetFolder, root: str, now: datetime.datetime) -> list[str]:
    """Return ids of devices whose newest credential is not from the root with this name; sorted."""
    newest = {c.name: c.authority for c in folder.journal().valid("device", now)}
    return sorted(device for device, name in newest.items() if name != root)


def _sign_again(folder: FleetFolder, now: datetime.datetime) -> None:
    """Issue the broker's and the aggregators' certificates under the new root; may be repeated."""
    signer, *old = signers = folder.signers()
    folder.put_revocations(signers, now)
    folder.put_broker(signer, now, *old)
    newest = {c.name: c.authority for c in folder.journal().valid("aggregator", now)}
    for name in folder.fleet.aggregators:
        if newest.get(name) != signer.name:
            folder.put_aggregator(signer, name, now)
    doors = {c.authority for c in folder.journal().valid("door", now)}
    if folder.has_door() and signer.name not in doors:
        folder.put_door(signer, now)
    folder.put_trust(signers)


def rotate_master(folder: FleetFolder) -> Rotation:
    """Put a new master key before the one in use; tags under the others count until finish_master."""
    fleet_keys = _keys(folder)
    masters = fleet_keys.masters
    if len(masters) >= MAX_MASTERS:
        raise FolderError(
            f"{folder.path / MASTER} already contains {len(masters)} keys: finish that rotation with --finish"
        )
    fresh = os.urandom(keys.KEY_BYTES)
    folder.put(MASTER, to_text(replace(fleet_keys, masters=(fresh, *masters))).encode())
    return Rotation(
        (f"{folder.path / MASTER}: a new master key, followed by {len(masters)} older",),
        (
            SERVE_AGAIN,
            "`hushmote provision rotate devices`, then `hushmote flash` each: it keeps its ledger. Until "
            "then it reports as before, and its reports count",
            "then `hushmote provision rotate master --finish`: until then a thief's tags count as well",
        ),
    )


def finish_master(folder: FleetFolder) -> Rotation:
    """Forget all master keys except the one in use."""
    fleet_keys = _keys(folder)
    older = len(fleet_keys.masters) - 1
    if not older:
        raise FolderError("no rotation of the master key is in progress: start one without --finish")
    folder.put(MASTER, to_text(replace(fleet_keys, masters=fleet_keys.masters[:1])).encode())
    return Rotation(
        (f"{folder.path / MASTER}: {counted(older, 'older master key')} deleted",),
        (
            f"{SERVE_AGAIN}: tags under the old keys no longer count",
            "a board that was not flashed spends its budget on reports that do not count: flash it",
        ),
    )


def rotate_signing(folder: FleetFolder) -> Rotation:
    """Replace the signing key with a new one; they are never valid at the same time."""
    fresh = replace(_keys(folder), signing=new_signing_key(), announce=None)
    file = folder.path / SIGNING
    if file.exists():
        folder.put(SIGNING, signing_text(fresh).encode())
        folder.put(MASTER, to_text(without_signing(fresh)).encode())
    else:
        file = folder.path / MASTER
        folder.put(MASTER, to_text(fresh).encode())
    return Rotation(
        (f"{file}: a new signing key; the old one is deleted",),
        (
            SERVE_AGAIN,
            SIGN_AGAIN,
            "`hushmote provision rotate devices`, then `hushmote flash` each: it keeps its ledger. Until "
            "then it accepts only the old key's experiments, and a thief of that key can still sign for it",
        ),
    )


def _keys(folder: FleetFolder) -> keys.FleetKeys:
    path = folder.master_file()
    if path is None:
        raise FolderError(
            f"the keys are not in {folder.path}: change them in {keys.ENVIRONMENT_VARIABLE}, with a new "
            "master key before the old one and a comma between"
        )
    fleet_keys = load_keys(path)
    assert fleet_keys is not None  # because the file exists
    return fleet_keys


def renew(
    folder: FleetFolder, path: Path, fleet_keys: keys.FleetKeys | None, now: datetime.datetime
) -> DeviceSettings:
    """Update one device's settings to the keys, the certificate and the CA in use now.

    The old certificate stays valid. Call folder.put_users() after the last device.

    Args:
        folder: The fleet's folder.
        path: The settings file.
        fleet_keys: The keys in use; None in an open fleet.
        now: The current time, UTC.

    Raises:
        ProvisionError: If the device is revoked, or the file cannot be used.
    """
    settings = provision.load_settings(path)
    if settings.fleet != folder.fleet.fleet:
        raise ProvisionError(f"{path} belongs to fleet {settings.fleet}, the folder to {folder.fleet.fleet}")
    names = provision.broker_names(settings.mqtt_host)
    if not names or not set(names) <= set(folder.fleet.board_hosts):
        hosts = " or ".join(folder.fleet.board_hosts)
        raise ProvisionError(
            f"{path} has the broker {settings.mqtt_host!r}, this fleet's is {hosts}: correct its mqtt_host"
        )
    if settings.key is not None and fleet_keys is None:
        raise ProvisionError(
            f"devices of this fleet have keys, but the folder has none: set {keys.ENVIRONMENT_VARIABLE}"
        )
    certificate = None
    if settings.mqtt_cert is not None:
        certificate = folder.issue_device(settings.device_id, now, more_follow=True)
    else:
        folder.keep_login(settings.device_id)
    fleet_keys = fleet_keys if settings.key is not None else None
    renewed = provision.renew_settings(settings, fleet_keys, folder.path / "broker/ca.pem", certificate)
    provision.replace_settings(path, renewed)
    return renewed


def upgrade(key_file: Path | None, settings: Sequence[Path], signing_file: Path | None = None) -> Rotation:
    """Put a fleet's signing key into a separate file, and its public half into devices' settings.

    A fleet that already has one only needs its boards flashed: firmware from before withdrawals were signed
    rejects those. Upgraded files stay as they are, so this may be repeated, even after it was killed.

    Args:
        key_file: None if the keys are in HUSHMOTE_MASTER_KEY, which must then have a signing key.
        settings: The devices' settings files.
        signing_file: Where to write a file's signing key; None for signing.key in the same folder.

    Raises:
        MasterKeyError: If a key is missing or malformed, or others can read its file.
        ProvisionError: If a settings file cannot be used or written.
    """
    if key_file is not None and signing_file is None:
        signing_file = key_file.with_name("signing.key")
    fleet_keys = _upgraded_keys(key_file, signing_file)
    if fleet_keys is None:
        raise keys.MasterKeyError("there are no keys to upgrade: give --folder, or --master-key FILE")
    announce_key = fleet_keys.announce_key.hex()
    # Everything is read before anything is written.
    boards = [(path, provision.with_announce_key(path, announce_key)) for path in settings]
    changed = [(path, new_settings) for path, new_settings in boards if new_settings is not None]
    summary = [f"settings with a new announce key: {len(changed)} of {len(settings)}"]
    next_steps = [SERVE_AGAIN]
    if key_file is not None and signing_file is not None and fleet_keys.signing is not None:
        with refusing(keys.MasterKeyError, f"write {signing_file}"):
            private_file.replace(signing_file, signing_text(fleet_keys).encode())
        with refusing(keys.MasterKeyError, f"write {key_file}"):
            private_file.replace(key_file, to_text(without_signing(fleet_keys)).encode())
        summary.insert(0, f"{signing_file}: the signing key; {key_file}: the master keys")
        next_steps.append(
            f"{SIGN_AGAIN}. Or start `hushmote serve` with --signing-key, which signs automatically"
        )
    for path, new_settings in changed:
        provision.replace_settings(path, new_settings)
    return Rotation(
        tuple(summary),
        (
            *next_steps,
            "`hushmote flash` every board: it keeps its ledger. Until then a board without this announce key "
            "refuses every experiment and reports nothing, and one with firmware older than signed "
            "withdrawals continues with withdrawn experiments",
        ),
    )


def _upgraded_keys(key_file: Path | None, signing_file: Path | None) -> keys.FleetKeys | None:
    masters = None if key_file is None else load_unsigned(key_file)
    # An earlier run that was killed may have written it.
    is_there = key_file is not None and signing_file is not None and signing_file.exists()
    stored_key = load_signing_key(signing_file) if is_there else None
    if masters is not None:
        return keys.FleetKeys(masters, stored_key or new_signing_key())
    fleet_keys = load_keys(key_file)
    if fleet_keys and None not in (stored_key, fleet_keys.signing) and stored_key != fleet_keys.signing:
        raise keys.MasterKeyError(
            f"{signing_file} and {key_file} contain different signing keys: keep the right one"
        )
    return fleet_keys


def _revoked(count: int, of: str) -> str:
    return f"{counted(count, 'older certificate')} of {of} {'is' if count == 1 else 'are'} revoked"
