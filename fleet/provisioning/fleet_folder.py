"""A fleet's folder on disk: its authority, and the files for its broker and its aggregators.

    fleet.json                  names, ports, hosts; no secrets
    authority/ca.key            the authority's key and certificate: keep this folder offline
    authority/ca-old.key        the previous authority, while a rotation is in progress
    authority/issued.jsonl      a line for everything that was issued or revoked
    authority/signing.key       the key that signs experiments
    broker/                     for the broker's machine: mosquitto.conf, acl, ca.pem, crl.pem, broker.pem
    broker/1/, /2/, /3/         for the NATS servers' machines: nats.conf, users.conf, ca.pem, broker.pem
    aggregator/                 for the aggregator's machine: ca.pem, aggregator_1.pem, master.key, share
    devices/                    boards' settings files

All folders have mode 0700 and all files 0600. Files are replaced atomically, so a process that dies leaves
either the old or the new file.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from ...server.plain_text import unusable_character
from ...server.wire.topics import NameRefused, check_device, check_fleet
from . import authority, nats
from . import journal as journal_file
from . import mosquitto as broker_config
from .authority import AuthorityError, CertifiedKey
from .fleet_spec import DOOR as DOOR_NAME
from .fleet_spec import NATS, FleetSpec
from .journal import Credential, Journal
from .master_key import create_keys

AUTHORITY = "authority/ca.key"
OLD_AUTHORITY = "authority/ca-old.key"
ISSUED = "authority/issued.jsonl"
ROOT = "broker/ca.pem"
MASTER = "aggregator/master.key"
SIGNING = "authority/signing.key"
SHARE = "aggregator/share"
DEVICES = "devices"
DOOR = f"door/{DOOR_NAME}.pem"
DOOR_CA = "door/ca.pem"
REVOKED = "device {} is permanently revoked: provision it under a new id"


class FolderError(ProvisionError):
    """Raised if a fleet's folder cannot be created, read or used; the message says what was expected."""


def now_utc() -> datetime.datetime:
    """Return the current time, UTC, in whole seconds, as in certificates."""
    return datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@dataclass(frozen=True)
class FleetFolder:
    """A fleet's existing folder.

    Attributes:
        path: The folder.
        fleet: Its specification.
        passphrase: The passphrase of the authority's key; None if it is not encrypted.
    """

    path: Path
    fleet: FleetSpec
    passphrase: bytes | None = field(default=None, repr=False)

    # Reading

    def signer(self) -> CertifiedKey:
        """Return the current authority; raises FolderError if its key is not here, and AuthorityError."""
        return self._signer(AUTHORITY)

    def old_signer(self) -> CertifiedKey | None:
        """Return the previous authority while a rotation is in progress."""
        return self._signer(OLD_AUTHORITY) if (self.path / OLD_AUTHORITY).exists() else None

    def _signer(self, name: str) -> CertifiedKey:
        return authority.parse(self._read(name), str(self.path / name), self.passphrase)

    def needs_passphrase(self) -> bool:
        """Return whether the authority's key is encrypted."""
        return authority.needs_passphrase(self._read(AUTHORITY))

    def root(self) -> x509.Certificate:
        """Return the certificate that devices use to check the broker; needs no key and no passphrase."""
        return self.certificate(ROOT)

    def certificate(self, name: str) -> x509.Certificate:
        """Return the first certificate in a file of the folder; raises FolderError."""
        return self.certificates(name)[0]

    def broker_certificates(self) -> list[x509.Certificate]:
        """Return each server's certificate, in the order of the fleet's servers."""
        return [self.certificate(f"{part}/broker.pem") for part, _ in self.fleet.servers]

    def certificates(self, name: str) -> list[x509.Certificate]:
        """Return all certificates in a file of the folder; raises FolderError."""
        try:
            return x509.load_pem_x509_certificates(self._read(name))
        except ValueError:
            raise FolderError(f"{self.path / name} has no certificate: restore it from a backup") from None

    def master_file(self) -> Path | None:
        """Return the master key's file, or None if the key is kept in the environment."""
        path = self.path / MASTER
        return path if path.exists() else None

    def signing_file(self) -> Path | None:
        """Return the signing key's file, or None if the key is with the master key or not here."""
        path = self.path / SIGNING
        return path if path.exists() else None

    def share(self) -> str:
        """Return the name of the aggregators' group."""
        return self._read(SHARE).decode("ascii", "replace").strip()

    def _read(self, name: str) -> bytes:
        path = self.path / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            needed = "this needs the complete folder in which the fleet was created"
            raise FolderError(f"there is no {path}: {needed}") from None
        except OSError as e:
            raise FolderError(f"cannot read {path}: {e.strerror}") from None

    # The journal

    def journal(self) -> Journal:
        """Return everything that was issued and revoked; raises FolderError and JournalError."""
        return journal_file.parse(self._read(ISSUED), str(self.path / ISSUED))

    def _note(self, lines: bytes) -> None:
        """Record certificates before they are issued or revoked; call this within _alone()."""
        path = self.path / ISSUED
        with refusing(FolderError, f"write {path}"):
            journal_file.add(path, lines)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the folder for issuing and revoking, and wait for other processes; not on Windows."""
        with contextlib.ExitStack() as lock:
            with refusing(FolderError, f"lock {self.path}"):
                lock.enter_context(private_file.locked(self.path, wait=True))
            yield

    # Writing

    def put(self, name: str, content: bytes) -> None:
        """Write a file, or replace it in one step; raises FolderError."""
        path = self.path / name
        with refusing(FolderError, f"write {path}", f"{path} exists; nothing is overwritten"):
            private_file.replace(path, content)

    def put_fleet(self, fleet: FleetSpec) -> FleetFolder:
        """Replace fleet.json and the files generated from it.

        These are the broker's configuration and access list, and the --broker files for the aggregators and
        the HTTP door.
        """
        shared = len(fleet.aggregators) > 1 and fleet.broker != NATS
        texts = _broker_texts(fleet)
        for name in fleet.aggregators:
            more = {"client_id": name, "share": self.share()} if shared else {}
            texts[f"aggregator/{name}.toml"] = _connection(fleet.url(), name, more)
        if self.has_door():
            texts["door/door.toml"] = _connection(fleet.url(door=True), DOOR_NAME, {})
        for name, text in texts.items():
            self.put(name, text.encode())
        self.put("fleet.json", json.dumps(asdict(fleet), indent=2).encode() + b"\n")
        changed = replace(self, fleet=fleet)
        changed.put_users()
        return changed

    def put_users(self, trusted: Sequence[str] | None = None) -> None:
        """Write which users may connect to the fleet's NATS servers, based on the journal.

        Args:
            trusted: The trusted roots' names, if they are not in the folder yet.
        """
        if self.fleet.broker == NATS:
            if trusted is None:
                trusted = [authority.common_name(c) for c in self.certificates(ROOT)]
            text = nats.users_conf(self.fleet, self.journal().credentials, trusted).encode()
            for part, _ in self.fleet.servers:
                self.put(f"{part}/users.conf", text)

    def put_trust(self, signers: Sequence[CertifiedKey]) -> None:
        """Write which roots are trusted, with the current one first, since devices get only the first."""
        pem = b"".join(s.certificate.public_bytes(Encoding.PEM) for s in signers)
        for name in ("aggregator/ca.pem", *(f"{part}/ca.pem" for part, _ in self.fleet.servers)):
            if name != ROOT:
                self.put(name, pem)
        if self.has_door():
            self.put(DOOR_CA, pem)
        self.put_users([s.name for s in signers])
        self.put(ROOT, pem)  # last: this file shows that a rotation is complete

    def put_revocations(self, signers: Sequence[CertifiedKey], now: datetime.datetime) -> None:
        """Give the broker each trusted root's revocation list; for NATS, write its users instead."""
        if self.fleet.broker == NATS:
            self.put_users()
            return
        revoked: dict[str, list[tuple[int, datetime.datetime]]] = {}
        for c in self.journal().credentials:
            if c.serial and c.revoked:
                revoked.setdefault(c.authority, []).append((int(c.serial, 16), c.revoked))
        lists = (authority.revocation_list(root, revoked.get(root.name, ()), now) for root in signers)
        self.put("broker/crl.pem", b"".join(lists))

    def put_broker(
        self, signer: CertifiedKey, now: datetime.datetime, old: CertifiedKey | None = None
    ) -> CertifiedKey:
        """Issue each server's certificate.

        Args:
            signer: The authority.
            now: The current time, UTC.
            old: A previous root, if it is the only one that some devices in the field trust.
        """
        chain = () if old is None else (authority.cross_sign(old, signer, now),)
        for part, hosts in self.fleet.servers:
            clustered = self.fleet.broker == NATS
            broker = replace(authority.issue_broker(signer, hosts, now, clustered=clustered), chain=chain)
            with self._alone():
                self._note(journal_file.certificate_line(broker, "broker"))
            self.put(f"{part}/broker.pem", broker.to_pem())
        return broker

    def put_aggregator(self, signer: CertifiedKey, name: str, now: datetime.datetime) -> CertifiedKey:
        """Issue an aggregator's client certificate."""
        aggregator = authority.issue_client(signer, name, now, authority.AGGREGATOR_DAYS)
        with self._alone():
            self._note(journal_file.certificate_line(aggregator, "aggregator"))
        self.put_users()
        self.put(f"aggregator/{name}.pem", aggregator.to_pem())
        return aggregator

    def has_door(self) -> bool:
        """Return whether an HTTP door has a certificate."""
        return (self.path / DOOR).exists()

    def put_door(self, signer: CertifiedKey, now: datetime.datetime) -> CertifiedKey:
        """Issue the HTTP door's client certificate, and write the CA file for checking the broker."""
        door = authority.issue_client(signer, DOOR_NAME, now, authority.AGGREGATOR_DAYS)
        with self._alone():
            self._note(journal_file.certificate_line(door, "door"))
        self.put_users()
        folder = (self.path / DOOR).parent
        with refusing(FolderError, f"create {folder}"):
            folder.mkdir(mode=0o700, exist_ok=True)
        self.put(DOOR_CA, self._read(ROOT))
        self.put(DOOR, door.to_pem())
        return door

    # Devices

    def issue_device(self, device: str, now: datetime.datetime, *, more_follow: bool = False) -> CertifiedKey:
        """Issue a device's client certificate.

        Args:
            device: The device's id.
            now: The current time, UTC.
            more_follow: Do not call put_users(), because the caller will after the last device.

        Raises:
            FolderError: If the device is revoked, or the folder cannot be written.
            AuthorityError: If the authority's key cannot be used.
        """
        with self._alone():
            self._check_not_revoked(device)
            signer = self.signer()
            client = authority.issue_client(signer, check_device(device), now, self.fleet.device_days)
            self._note(journal_file.certificate_line(client, "device"))
            if not more_follow:
                self.put_users()
        return client

    def issue_login(self, device: str) -> str:
        """Create a device's password and write its hash to the broker's file; raises FolderError."""
        self.check_logins()
        with self._alone():
            self._check_not_revoked(device)
            password = secrets.token_hex(20)  # 160 random bits
            lines = self._logins()
            lines[device] = broker_config.password_line(device, password)
            self._note(journal_file.login_line(device, self.root()))
            self.put("broker/passwords", broker_config.passwords(lines).encode())
        return password

    def device_ids(self) -> set[str]:
        """Return the ids of all devices that have or had a credential or settings, or were revoked."""
        journal = self.journal()
        ids = {c.name for c in journal.credentials if c.kind == "device"} | journal.revoked.keys()
        return ids | {p.name.split(".")[0] for p in (self.path / DEVICES).glob("*.settings.json")}

    def register_devices(self, certificates: Sequence[CertifiedKey], logins: Mapping[str, str]) -> None:
        """Let the broker admit new devices, whose certificates and passwords the caller has stored already.

        Repeating it changes nothing, so it can be repeated after a power cut.

        Args:
            certificates: Their certificates.
            logins: Device id to password, for devices without a certificate.

        Raises:
            FolderError: If a device is revoked or has another certificate or password, or the folder cannot
                be written.
        """
        with self._alone():
            journal = self.journal()
            credentials = {(c.name, c.serial) for c in journal.credentials if c.kind == "device"}
            names, root = {name for name, _ in credentials}, self.root()
            new = [c for c in certificates if (c.name, c.serial) not in credentials]
            new_logins = [device for device in logins if (device, None) not in credentials]
            for device in (*(c.name for c in certificates), *logins):
                if device in journal.revoked:
                    raise FolderError(REVOKED.format(device))
            for device in (*(c.name for c in new), *new_logins):
                if device in names:
                    raise FolderError(f"device {device} already exists: choose another id")
            if logins:
                lines = self._logins()
                for device, password in logins.items():
                    if device in lines and not broker_config.has_password(lines[device], password):
                        raise FolderError(f"device {device} already exists: choose another id")
                    if device not in lines:
                        lines[device] = broker_config.password_line(device, password)
                self.put("broker/passwords", broker_config.passwords(lines).encode())
            added = [journal_file.certificate_line(c, "device") for c in new]
            added += [journal_file.login_line(device, root) for device in new_logins]
            if added:  # one replacement: a kill could tear an appended block in the middle of a line
                self.put(ISSUED, self._read(ISSUED) + b"".join(added))
            self.put_users()

    def check_logins(self) -> None:
        """Raise FolderError if the fleet's broker accepts only certificates."""
        if self.fleet.password_port is None:
            raise FolderError(
                f"the broker of fleet {self.fleet.fleet} accepts only certificates: omit --password, "
                "or create the fleet with --set password_port=8884"
            )

    def keep_login(self, device: str) -> None:
        """Record that a device with a login now uses the current root to check the broker."""
        with self._alone():
            self._check_not_revoked(device)
            self._note(journal_file.login_line(device, self.root()))

    def _logins(self) -> dict[str, str]:
        return broker_config.parse_passwords(self._read("broker/passwords").decode())

    def _check_not_revoked(self, device: str) -> None:
        if device in self.journal().revoked:
            raise FolderError(REVOKED.format(device))

    def revoke(self, devices: Sequence[str], now: datetime.datetime) -> list[Credential]:
        """Revoke devices permanently: list their certificates as revoked, and remove their logins.

        Even if this fails, the devices cannot get new credentials.

        Returns:
            The credentials that were valid until now.

        Raises:
            FolderError: If the folder cannot be read or written.
            JournalError: If the journal is damaged.
            AuthorityError: If the authority's key cannot be used.
            NameRefused: If a device's id is invalid.
        """
        names = {check_device(d) for d in devices}
        signers = self.signers()
        with self._alone():
            before, at = self.journal(), now.isoformat()
            self._note(
                b"".join(journal_file.line(revoke=d, at=at) for d in sorted(names - set(before.revoked)))
            )
            self.put_revocations(signers, now)
            if self.fleet.password_port is not None:
                lines = self._logins()
                remaining = {d: line for d, line in lines.items() if d not in names}
                if remaining != lines:
                    self.put("broker/passwords", broker_config.passwords(remaining).encode())
        return [c for c in before.valid("device", now) if c.name in names]

    def issue_stand_in(self, device: str, now: datetime.datetime) -> CertifiedKey:
        """Issue a certificate in a revoked device's name, for the command that clears its status.

        It expires within a day, and forget() adds it to the broker's revocation list.

        Raises:
            FolderError: If the folder cannot be read or written, or does not allow this.
            AuthorityError: If a certificate or key cannot be made, read or used.
        """
        with self._alone():
            signer = self.signer()
            stand_in = authority.issue_client(signer, device, now, 1)
            self._note(journal_file.certificate_line(stand_in, "device"))
        return stand_in

    def device_files(self, device: str) -> list[Path]:
        """Return a device's files in devices/: its settings and the files generated from them."""
        files = (self.path / DEVICES).glob(f"{check_device(device)}*")
        return sorted(p for p in files if p.name.split(".")[0] == device)

    def delete_files(self, device: str) -> int:
        """Delete a device's files in devices/, and return their number; raises FolderError."""
        paths = self.device_files(device)
        for path in paths:
            with refusing(FolderError, f"delete {path}"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return len(paths)

    def forget(self, device: str, now: datetime.datetime) -> None:
        """Remove a device's id from the journal; its certificates are revoked and remain so.

        Raises:
            FolderError: If the folder cannot be read or written.
            JournalError: If the journal is damaged.
            AuthorityError: If the authority's key cannot be used.
        """
        with self._alone():
            self._note(journal_file.line(revoke=device, at=now.isoformat()))
            self.put_revocations(self.signers(), now)
            self.put(ISSUED, journal_file.forget(self.journal(), self._read(ISSUED), device))

    def withdraw(self, credentials: Sequence[Credential], now: datetime.datetime) -> None:
        """Revoke individual certificates."""
        with self._alone():
            signers, at = self.signers(), now.isoformat()
            self._note(b"".join(journal_file.line(withdraw=c.serial, at=at) for c in credentials if c.serial))
            self.put_revocations(signers, now)

    def signers(self) -> list[CertifiedKey]:
        """Return the current authority, and the previous one while both are trusted."""
        return [signer for signer in (self.signer(), self.old_signer()) if signer is not None]


def make(path: Path, fleet: FleetSpec, *, passphrase: bytes | None = None, write_master: bool) -> FleetFolder:
    """Create a fleet's folder, with everything that its broker and its aggregators need, and return it.

    If this fails, the files created so far remain, so that someone can inspect them.

    Args:
        path: Where to create it; an existing folder must be empty.
        fleet: The fleet's specification.
        passphrase: Encrypts the authority's key; None to leave it unencrypted.
        write_master: Write a new master key to aggregator/master.key and a signing key to
            authority/signing.key.

    Raises:
        FolderError: If the folder cannot be created, or is not empty.
        AuthorityError: If a certificate cannot be created.
        NameRefused: If a name is invalid.
        MasterKeyError: If a key file cannot be created.
    """
    check_fleet(fleet.fleet)
    for host in fleet.board_hosts:
        authority.host_name(host)
    if character := unusable_character(fleet.consent):
        raise FolderError(f"--consent contains {character}, which statements cannot show: remove it")
    if not fleet.hosts:
        raise AuthorityError("a broker needs a name: give --host, the name under which devices reach it")
    if fleet.broker_folder and not PurePosixPath(fleet.broker_folder).is_absolute():
        raise FolderError(
            f"--broker-folder {fleet.broker_folder!r} must start with /: {fleet.broker} can start anywhere"
        )
    fleet = replace(fleet, broker_folder=fleet.broker_folder or str((path / "broker").resolve()))
    _broker_texts(fleet)  # check this before anything is created
    with refusing(FolderError, f"create the folder {path}"):
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(path.iterdir()):
            raise FolderError(f"{path} is not empty: give a folder that does not exist yet")
        path.chmod(0o700)
        parts = [name for part, _ in fleet.servers for name in (part, f"{part}/data")]
        for name in dict.fromkeys(("authority", "broker", *parts, "aggregator", DEVICES)):
            (path / name).mkdir(mode=0o700)
            (path / name).chmod(0o700)
    folder = FleetFolder(path, fleet, passphrase)
    now = now_utc()
    root = authority.new_authority(fleet.fleet, now)
    folder.put(AUTHORITY, root.to_pem(passphrase))
    folder.put(ISSUED, b"")
    folder.put_trust([root])
    folder.put_revocations([root], now)
    folder.put_broker(root, now)
    for name in fleet.aggregators:
        folder.put_aggregator(root, name, now)
    if write_master:
        create_keys(path / MASTER, path / SIGNING)
    if fleet.broker != NATS:  # with NATS the group is a consumer, which devices may not use
        # A random name keeps devices from joining the aggregators' group to get reports they may not read.
        folder.put(SHARE, secrets.token_hex(16).encode() + b"\n")
    if fleet.password_port is not None:
        folder.put("broker/passwords", b"")
    return folder.put_fleet(fleet)


def _connection(url: str, name: str, more: dict[str, str]) -> str:
    values = {"url": url, "ca": "ca.pem", "cert": f"{name}.pem"} | more
    return "".join(f'{key} = "{value}"\n' for key, value in values.items())


def _broker_texts(fleet: FleetSpec) -> dict[str, str]:
    """Return the files generated from the specification alone, by their names in the folder."""
    if fleet.broker == NATS:
        servers = enumerate(fleet.servers, 1)
        return {f"{part}/nats.conf": nats.nats_conf(fleet, number) for number, (part, _) in servers}
    rights = broker_config.acl(fleet.fleet, fleet.aggregators)
    return {"broker/mosquitto.conf": broker_config.mosquitto_conf(fleet), "broker/acl": rights}


def find(path: Path) -> FleetFolder:
    """Return the fleet's folder at path; raises FolderError."""
    try:
        fleet = FleetSpec(**json.loads((path / "fleet.json").read_bytes()))
        check_fleet(fleet.fleet)
        _broker_texts(fleet)
    except FileNotFoundError:
        hint = f"create one with `hushmote provision fleet {path} --host ...`"
        raise FolderError(f"{path} is not a fleet's folder: {hint}") from None
    except OSError as e:
        raise FolderError(f"cannot read {path / 'fleet.json'}: {e.strerror}") from None
    except (NameRefused, ProvisionError, ValueError, TypeError):
        raise FolderError(f"{path / 'fleet.json'} is damaged: restore it from a backup") from None
    return FleetFolder(path, fleet)
