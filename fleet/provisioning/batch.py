"""Settings of many devices for a production line; a batch that was killed continues where it stopped.

    roster.csv        device id, file and SHA-256 of each finished device; no secrets
    DEVICE.page.bin   a device's file, or DEVICE.nvs.csv; secret
    batch.json        the batch's options, with a hash of settings that include passwords, and the settings of
                      devices in progress; secret
    mfg_config.csv    with NVS, the two files for Espressif's mfg_gen, written last; the second one is secret
    mfg_values.csv

Devices are made in groups. A group's keys are on disk, in batch.json, before anything else knows them; then
the fleet's registers get the devices; then each device gets its file; then the roster names it. Each step
replaces files atomically and can be repeated, so a killed run leaves no half-written file, no second key for
an id, and no file of a device that the fleet does not admit.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import datetime
import hashlib
import io
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from ...server.store.versions import VersionRefused
from ...server.wire.keys import FleetKeys
from ...server.wire.topics import check_device
from . import authority, firmware
from . import settings as provision
from .firmware import Firmware
from .fleet_folder import DEVICES, FleetFolder
from .settings import DeviceSettings, Network

if TYPE_CHECKING:
    from ...server.store.store import Store

ROSTER, STATE = "roster.csv", "batch.json"
MFG_CONFIG, MFG_VALUES = "mfg_config.csv", "mfg_values.csv"
GROUP = 200  # devices in progress at the same time
MAX_COUNT = 1_000_000
_OPTIONS = {
    "fleet": "--fleet {}",
    "for": "--for {}",
    "first": "--first {}",
    "settings": "another network, other keys or other options",
}
_HEADINGS = ("device_id", "file", "sha256")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Batch:
    """The devices to make.

    Attributes:
        fleet_keys: The fleet's keys; None for an open fleet.
        fleet: The fleet's name.
        network: Every device's network; without credentials.
        target: The kind of the devices' files: PAGE or NVS.
        count: Number of devices that the finished batch has.
        first: The first id, which ends in digits; the following ids count up. None: random ids.
        folder: The fleet's folder, which issues certificates or logins and keeps the devices' settings.
        login: Whether devices get logins instead of certificates.
        consent_given: The people measured have consented elsewhere.
        store: A store whose allow-list gets the devices.
    """

    fleet_keys: FleetKeys | None
    fleet: str
    network: Network
    target: Firmware
    count: int
    first: str | None = None
    folder: FleetFolder | None = None
    login: bool = False
    consent_given: bool = False
    store: Store | None = None

    def check(self) -> None:
        """Raise ProvisionError if the batch cannot be made, before anything is written."""
        if self.target not in (Firmware.PAGE, Firmware.NVS):
            raise ProvisionError(f"many devices are made for {Firmware.PAGE} or {Firmware.NVS}")
        if not 1 <= self.count <= MAX_COUNT:
            raise ProvisionError(f"--count must be 1 to {MAX_COUNT:,}")
        if self.first is not None:
            check_device(self.first)
            if not self.first[-1].isdigit():
                raise ProvisionError(f"--first {self.first}: must end in digits, as in {self.first}-0001")
            check_device(_numbered(self.first, self.count - 1))
        # Invalid settings fail here with a message about the option.
        firmware.identity_record(self._settings("any", self.network))

    def description(self) -> dict[str, Any]:
        """Return what must stay the same when the batch is continued."""
        template = dataclasses.replace(self._settings("any", self.network), key=None, announce_key=None)
        keys = self.fleet_keys and self.fleet_keys.announce_key
        values = [template.to_json().decode(), keys and keys.hex(), self.login, self.folder is not None]
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
        return {"fleet": self.fleet, "for": str(self.target), "first": self.first, "settings": digest}

    def _settings(self, device: str, network: Network) -> DeviceSettings:
        return provision.provision_device(
            self.fleet_keys, self.fleet, device, network, consent_given=self.consent_given
        )

    def make(self, devices: Sequence[str], now: datetime.datetime) -> Iterator[DeviceSettings]:
        """Yield devices' settings with new keys, which nobody else knows yet."""
        signer = self.folder.signer() if self.folder is not None and not self.login else None
        for device in devices:
            network = self.network
            if self.login:
                network = dataclasses.replace(
                    network, mqtt_user=device, mqtt_password=secrets.token_hex(20)
                )  # 160 random bits, as issue_login()
            elif signer is not None and self.folder is not None:
                days = self.folder.fleet.device_days
                certificate = authority.issue_client(signer, device, now, days)
                network = dataclasses.replace(network, certificate=certificate)
            yield self._settings(device, network)

    def register(self, devices: Sequence[DeviceSettings], *, are_new: bool) -> None:
        """Let the fleet admit devices.

        Args:
            devices: The devices.
            are_new: Whether they have never been registered, so that others have their ids if they exist.

        Raises:
            ProvisionError: If another device has one of the ids.
        """
        if self.folder is not None:
            self.folder.register_devices(
                [
                    authority.parse_board_fields(s.mqtt_cert, s.mqtt_key)
                    for s in devices
                    if s.mqtt_cert is not None and s.mqtt_key is not None
                ],
                {s.device_id: s.mqtt_password or "" for s in devices if self.login},
            )
        if self.store is not None:
            self.store.allow_devices(self.fleet, [s.device_id for s in devices], are_new=are_new)


@dataclasses.dataclass
class _Roster:
    """The finished devices, in a file to which people add columns, such as the board of each device.

    Attributes:
        content: The file's content; what people and spreadsheets wrote there stays.
        files: Device id to name of the device's file.
    """

    content: bytes = b""
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def _delimiter(self) -> str:
        semicolons = (_HEADINGS[0] + ";").encode() in self.content.partition(b"\n")[0].replace(b'"', b"")
        return ";" if semicolons else ","  # as Excel writes in many languages

    @classmethod
    def read(cls, path: Path, target: Firmware) -> _Roster:
        """Return a file's roster, empty if there is none; raise ProvisionError if it is damaged."""
        if not path.exists():
            return cls(_csv([_HEADINGS]))
        with refusing(ProvisionError, f"read {path}"):
            roster = cls(path.read_bytes())
        text = io.StringIO(roster.content.decode("utf-8-sig", "replace"), newline="")
        try:
            table = [row for row in csv.reader(text, delimiter=roster._delimiter) if any(row)]
        except csv.Error:  # such as a quote that never ends
            table = []
        headings, *rows = table or [[]]
        roster.files = {row[0]: row[1] for row in rows if len(row) >= len(_HEADINGS)}
        # Spreadsheets change ids of digits; the files' names show that.
        unchanged = all(firmware.file_name(device, target) == name for device, name in roster.files.items())
        if tuple(headings[:3]) != _HEADINGS or len(roster.files) != len(rows) or not unchanged:
            raise ProvisionError(
                f"{path} is damaged: restore it from a backup; without it, ids could be used twice"
            )
        return roster

    def add(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Add the rows of finished devices."""
        end = b"" if self.content.endswith(b"\n") else b"\n"
        self.content += end + _csv(rows, self._delimiter)
        self.files |= {device: name for device, name, _ in rows}


@dataclasses.dataclass(frozen=True)
class BatchResult:
    """The result of a finished batch.

    Attributes:
        devices: Number of devices in the roster.
        new: Number of devices that this run finished.
    """

    devices: int
    new: int


def provision_devices(
    batch: Batch, out: Path, now: datetime.datetime, advance: Callable[[float], None] = lambda _: None
) -> BatchResult:
    """Make a batch's devices in a new folder, or those that are missing in the folder of the same batch.

    Args:
        batch: What to make.
        out: The folder; the only one with the devices' files, which are secret.
        now: The current time, UTC.
        advance: Called with the number of devices that were finished.

    Raises:
        ProvisionError: If a value is invalid, the folder contains something else, or a file cannot be
            written.
        NameRefused: If an id is invalid.
        StoreError: If the store cannot be used.
    """
    batch.check()
    with _open(out):
        in_progress, roster = _read_state(out, batch), _Roster.read(out / ROSTER, batch.target)
        in_progress = [s for s in in_progress if s.device_id not in roster.files]
        begun = {*roster.files, *(s.device_id for s in in_progress)}
        if len(begun) > batch.count:
            raise ProvisionError(
                f"{out} has {len(begun):,} devices already: give that --count or more, or another --out"
            )
        before, ids = len(roster.files), _ids(batch, begun)
        _claim(out, batch, in_progress)
        advance(before)
        if in_progress:
            _finish(out, batch, in_progress, roster, are_new=False)
            advance(len(in_progress))
        while len(roster.files) < batch.count:
            group: list[DeviceSettings] = []
            for settings in batch.make([*islice(ids, min(GROUP, batch.count - len(roster.files)))], now):
                group.append(settings)
                advance(0.5)
            _finish(out, batch, group, roster, are_new=True)
            advance(0.5 * len(group))
        if batch.target is Firmware.NVS:
            _put_mfg(out, roster.files)
        _put_state(out, batch, ())
        return BatchResult(len(roster.files), len(roster.files) - before)


def _finish(
    out: Path, batch: Batch, group: Sequence[DeviceSettings], roster: _Roster, *, are_new: bool
) -> None:
    """Store a group's keys, register its devices, write their files, and add them to the roster."""
    settings_files: dict[Path, bytes] = {}
    files: dict[Path, bytes] = {}
    rows: list[tuple[str, str, str]] = []
    for settings in group:
        name, content = (
            firmware.file_name(settings.device_id, batch.target),
            firmware.file_content(settings, batch.target),
        )
        rows.append((settings.device_id, name, hashlib.sha256(content).hexdigest()))
        files[out / name] = content
        if batch.folder is not None:
            folder = batch.folder.path / DEVICES
            settings_files[provision.settings_path(settings.device_id, folder)] = settings.to_json()
    _put_state(out, batch, group)
    try:
        batch.register(group, are_new=are_new)
    except VersionRefused:  # the ids are another's, and may not be registered when the batch continues
        _put_state(out, batch, ())
        raise
    with refusing(ProvisionError, f"write the devices' files in {out}"):
        private_file.replace_all(settings_files | files)
    roster.add(rows)
    _put(out / ROSTER, roster.content)


def _numbered(first: str, at: int) -> str:
    """Return the id `at` places after the first one, with at least as many digits."""
    match = _NUMBERED.fullmatch(first)
    assert match
    return f"{match[1]}{int(match[2]) + at:0{len(match[2])}}"


def _claim(out: Path, batch: Batch, in_progress: Sequence[DeviceSettings]) -> None:
    """Reserve a batch's numbered ids among the batches beside it.

    A fleet without a folder or a list of devices has no other record of its ids.

    Raises:
        ProvisionError: If another batch has one of them.
    """
    if batch.first is None:
        return
    ids = {_numbered(batch.first, i) for i in range(batch.count)}
    with refusing(ProvisionError, f"lock {out.parent}"), private_file.locked(out.parent, wait=True):
        for path in sorted(out.parent.glob(f"*/{STATE}")):
            if path.parent.samefile(out):
                continue
            if device := min(ids & _claimed_ids(path, batch), default=None):
                raise ProvisionError(
                    f"device {device} of fleet {batch.fleet} is in {path.parent}: give another --first"
                )
        _put_state(out, batch, in_progress)


def _claimed_ids(path: Path, batch: Batch) -> set[str]:
    """Return the ids of the fleet's batch with this state, finished or not; none if it cannot be read."""
    try:
        state = json.loads(path.read_bytes())
        if state["fleet"] != batch.fleet:
            return set()
        claimed = min(int(state.get("count", 0)), MAX_COUNT) if state["first"] else 0
        ids = {_numbered(state["first"], i) for i in range(claimed)}
        ids |= {device["device_id"] for device in state["pending"]}
        roster = _Roster.read(path.with_name(ROSTER), Firmware(state["for"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, AssertionError, ProvisionError):
        return set()
    return ids | roster.files.keys()


def _ids(batch: Batch, done: Collection[str]) -> Iterator[str]:
    """Return the ids of the devices that are still to be made.

    Raises:
        ProvisionError: If a device outside this batch has one of them.
    """
    folder_ids = batch.folder.device_ids() if batch.folder is not None else set[str]()
    if batch.first is None:
        random = (secrets.token_hex(8) for _ in count())
        return (device for device in random if device not in folder_ids and device not in done)
    numbered = (_numbered(batch.first, i) for i in range(batch.count))
    ids = [device for device in numbered if device not in done]
    store_ids = batch.store.known_devices(batch.fleet, ids) if batch.store is not None else frozenset[str]()
    for device in ids:
        if device in folder_ids or device in store_ids:
            raise ProvisionError(
                f"device {device} of fleet {batch.fleet} already exists: give another --first"
            )
    return iter(ids)


@contextlib.contextmanager
def _open(out: Path) -> Iterator[None]:
    """Create the folder if it is missing, and lock it."""
    with refusing(ProvisionError, f"create the folder {out}"):
        if not out.exists():
            out.mkdir(mode=0o700)
    with contextlib.ExitStack() as lock:
        with refusing(ProvisionError, f"lock {out}"):
            try:
                lock.enter_context(private_file.locked(out, wait=False))
            except BlockingIOError:
                raise ProvisionError(f"another command is writing {out}: wait until it has ended") from None
            names = {path.name for path in out.iterdir()}
        # A run that was killed while it wrote its first file leaves only that.
        if names - {f"{STATE}.new"} and STATE not in names:
            raise ProvisionError(
                f"{out} contains other files, not a batch to continue: give a folder that does not exist yet"
            )
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                out.rmdir()  # if it is empty
            raise


def _read_state(out: Path, batch: Batch) -> list[DeviceSettings]:
    """Return the settings of the devices in progress; raise ProvisionError if this is another batch."""
    path, description = out / STATE, batch.description()
    if not path.exists():
        return []
    try:
        with refusing(ProvisionError, f"read {path}"):
            state = json.loads(path.read_bytes())
        began = {name: state[name] for name in description}
        pending = [DeviceSettings(**values) for values in state["pending"]]
    except (ValueError, KeyError, TypeError):
        raise ProvisionError(f"{path} is damaged: restore it from a backup, or give another --out") from None
    for name, value in began.items():
        if value != description[name]:
            options = "without --first" if value is None else f"with {_OPTIONS[name].format(value)}"
            raise ProvisionError(f"{out} was started {options}: give the same again, or another --out")
    return pending


def _put_state(out: Path, batch: Batch, pending: Sequence[DeviceSettings]) -> None:
    state = batch.description() | {"count": batch.count, "pending": [dataclasses.asdict(s) for s in pending]}
    _put(out / STATE, json.dumps(state).encode() + b"\n")


def _put_mfg(out: Path, files: dict[str, str]) -> None:
    """Write the files with all devices for Espressif's mfg_gen."""
    rows: list[tuple[str, str]] = []
    for device, name in files.items():
        path = out / name
        with refusing(ProvisionError, f"read {path}"):
            rows.append((device, path.read_text("ascii").rstrip().rpartition(",")[2]))
    _put(out / MFG_CONFIG, f"{firmware.NVS_NAMESPACE},namespace,\n{firmware.NVS_KEY},data,base64\n".encode())
    _put(out / MFG_VALUES, _csv([("id", firmware.NVS_KEY), *rows]))


def _csv(rows: Iterable[Sequence[str]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _put(path: Path, content: bytes) -> None:
    with refusing(ProvisionError, f"write {path}"):
        private_file.replace(path, content)
