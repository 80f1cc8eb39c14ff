"""Who a board is: its id, its keys, its Wi-Fi and broker, in one JSON file that `hushmote flash` takes.

The file holds secrets: only its owner may read it (mode 0600). It is one board's; a board that is provisioned
again gets a new one.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import ipaddress
import json
import os
import re
import secrets
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

from .. import private_file
from ..errors import ProvisionError, refusing
from ..wire import keys
from ..wire.topics import NameRefused, check_device, check_fleet
from . import authority

_KEY_DIGITS = {"key": 64, "announce_key": 128}
_BROKER = re.compile(r"([^\s,:/@]+)(?::([0-9]{1,5}))?", re.ASCII)
_MAY_BE_MISSING = ("mqtt_cert", "mqtt_key", "ledger_made")  # in files of before there were such fields


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """What one board must know, as its settings file holds it.

    key: 64 hex digits; announce_key: 128, the public key that experiments are checked with; both None in an
    open fleet. mqtt_ca: the broker's CA certificate, base64 of
    its DER; None for a connection without TLS. mqtt_host: host or host:port, of a cluster several with commas
    between, of which a board tries the next where one does not answer; mqtt_port: of those that name none.
    mqtt_cert, mqtt_key: the board's own certificate and its key,
    base64 of DER, or None twice. ledger_made: whether these settings have made a board's ledger already;
    boards never see it.
    """

    fleet: str
    device_id: str
    key: str | None = dataclasses.field(default=None, repr=False)
    announce_key: str | None = dataclasses.field(default=None, repr=False)
    wifi_ssid: str = ""
    wifi_password: str = dataclasses.field(default="", repr=False)
    wifi_country: str = ""
    mqtt_host: str = ""
    mqtt_port: int = 1883
    mqtt_user: str | None = None
    mqtt_password: str | None = dataclasses.field(default=None, repr=False)
    mqtt_ca: str | None = None
    mqtt_cert: str | None = None
    mqtt_key: str | None = dataclasses.field(default=None, repr=False)
    ledger_made: bool = False

    def to_json(self) -> bytes:
        """The settings file's content."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=True).encode() + b"\n"

    def board_json(self, further: tuple[str, ...] = ()) -> bytes:
        """What is copied to the board as /settings.json; further: modules that main.py imports first."""
        values = dataclasses.asdict(self) | ({"with": further} if further else {})
        del values["ledger_made"]
        return json.dumps(values, ensure_ascii=True, separators=(",", ":")).encode()


_TYPES = {name: get_args(t) or (t,) for name, t in get_type_hints(DeviceSettings).items()}


def provision_device(
    fleet_keys: keys.FleetKeys | None,
    fleet: str,
    device_id: str | None = None,
    *,
    path: Path | None = None,
    wifi_ssid: str = "",
    wifi_password: str = "",
    wifi_country: str = "",
    mqtt_host: str = "",
    mqtt_port: int | None = None,
    mqtt_user: str | None = None,
    mqtt_password: str | None = None,
    mqtt_ca: Path | None = None,
    certificate: authority.Issued | None = None,
) -> DeviceSettings:
    """Make a board's settings; where path is given, write them to a new file that only its owner can read.

    fleet_keys: None for an open fleet. device_id: 64 random bits where none is given; never take a
    MAC address or a chip id, which would follow the board for life. mqtt_port: 8883 with a CA, else 1883,
    where none is given. mqtt_ca: PEM file with the broker's CA certificate. certificate: the board's own, of
    this device id. Raises ProvisionError, NameRefused or MasterKeyError; an existing file is never
    overwritten.
    """
    settings = DeviceSettings(
        fleet=check_fleet(fleet),
        device_id=check_device(secrets.token_hex(8) if device_id is None else device_id),
        wifi_ssid=wifi_ssid,
        wifi_password=wifi_password,
        wifi_country=wifi_country,
        mqtt_host=mqtt_host,
        mqtt_port=mqtt_port if mqtt_port is not None else 8883 if mqtt_ca else 1883,
        mqtt_user=mqtt_user,
        mqtt_password=mqtt_password,
    )
    settings = renewed(settings, fleet_keys, mqtt_ca, certificate)
    if path is not None:
        exists = f"{path} exists: it may be all that knows a board's keys; take another path"
        with refusing(ProvisionError, f"write {path}", exists):
            private_file.create(path, settings.to_json())
    return settings


def renewed(
    settings: DeviceSettings,
    fleet_keys: keys.FleetKeys | None,
    mqtt_ca: Path | None,
    certificate: authority.Issued | None,
) -> DeviceSettings:
    """Return the same board's settings with the keys, CA and certificate that are in force.

    The device id and whether a ledger was made stay, so `hushmote flash` leaves the board's ledger alone.
    """
    own, own_key = (None, None) if certificate is None else certificate.board_fields()
    key, announce_key = None, None
    if fleet_keys is not None:
        key = keys.device_key(fleet_keys.masters[0], settings.fleet, settings.device_id).hex()
        announce_key = keys.public_key_bytes(fleet_keys.signing).hex()
    made = dataclasses.replace(
        settings,
        key=key,
        announce_key=announce_key,
        mqtt_ca=None if mqtt_ca is None else _certificate(mqtt_ca),
        mqtt_cert=own,
        mqtt_key=own_key,
    )
    _check(dataclasses.asdict(made), "these settings")
    return made


def describe(settings: DeviceSettings, path: Path) -> str:
    """One line on a settings file, without its secrets."""
    keyed = "without keys (open fleet)" if settings.key is None else "with keys"
    if settings.mqtt_cert is not None and settings.mqtt_key is not None:
        until = authority.parse_board_fields(settings.mqtt_cert, settings.mqtt_key, str(path)).until
        keyed += f", certificate until {until:%Y-%m-%d}"
    missing = [name for name in ("wifi_ssid", "mqtt_host") if not getattr(settings, name)]
    line = f"{path}: device {settings.device_id} of fleet {settings.fleet}, {keyed}; only you can read it"
    return line + (f"; fill in {' and '.join(missing)} before `hushmote flash`" if missing else "")


def settings_path(device_id: str, folder: Path = Path()) -> Path:
    """Where `hushmote provision` puts a board's settings: <device id>.settings.json."""
    return folder / f"{device_id}.settings.json"


def load_settings(path: Path) -> DeviceSettings:
    """Read a settings file; raises ProvisionError where it is missing, malformed or readable by others."""
    values = _read(path)
    _check(values, str(path))
    return DeviceSettings(**values)


def with_announce_key(path: Path, announce_key: str) -> DeviceSettings | None:
    """Return the settings in a file with this announce key, None where they need no other.

    They need none where they have this one, and in an open fleet. Settings of before experiments were signed
    with a key pair are read as well. Raises what load_settings does.
    """
    values = _read(path)
    as_it_is = values.get("announce_key") in (None, announce_key)
    if not as_it_is:
        values["announce_key"] = announce_key
    _check(values, str(path))
    return None if as_it_is else DeviceSettings(**values)


def _read(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():  # reading a board's port would wait for ever
        raise ProvisionError(f"{path} is no file of settings: make one with `hushmote provision`")
    try:
        with open(path, "rb") as f:
            mode = os.fstat(f.fileno()).st_mode
            values = json.loads(f.read(65536))
    except FileNotFoundError:
        raise ProvisionError(f"no settings {path}: make them with `hushmote provision`") from None
    except OSError as e:
        raise ProvisionError(f"cannot read the settings {path}: {e.strerror}") from None
    except ValueError:
        raise ProvisionError(
            f"{path} is not JSON: it must be a file that `hushmote provision` wrote"
        ) from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ProvisionError(f"{path} holds secrets and can be read by others: chmod 600 it")
    if not isinstance(values, dict):
        raise ProvisionError(f"{path} must hold a JSON object: take what `hushmote provision` wrote")
    return values


def check_complete(settings: DeviceSettings, path: Path) -> None:
    """Raise ProvisionError where a board could not reach its broker with these settings."""
    for name in ("wifi_ssid", "mqtt_host"):
        if not getattr(settings, name):
            raise ProvisionError(f"{name} is empty in {path}: fill it in")


def mark_ledger(path: Path, settings: DeviceSettings, made: bool) -> DeviceSettings:
    """Note in the settings file whether they have made a ledger; the file is replaced in one step."""
    marked = dataclasses.replace(settings, ledger_made=made)
    if marked != settings:
        replace_settings(path, marked)
    return marked


def replace_settings(path: Path, settings: DeviceSettings) -> None:
    """Write settings in the place of those that are there, in one step; raises ProvisionError."""
    with refusing(ProvisionError, f"write {path}"):
        private_file.replace(path, settings.to_json())


def _check(values: dict[str, Any], where: str) -> None:
    for name in values:
        if name not in _TYPES:
            raise ProvisionError(f"{where}: unknown field {name}")
    for name, types in _TYPES.items():
        if name not in values and name not in _MAY_BE_MISSING:
            raise ProvisionError(f"{where}: {name} is missing")
        # bool is an int: a port of True is a mistake all the same.
        if name in values and type(values[name]) not in types:
            wanted = " or ".join("null" if t is type(None) else t.__name__ for t in types)
            raise ProvisionError(f"{where}: {name} must be {wanted}")
    for name, check in (("fleet", check_fleet), ("device_id", check_device)):
        try:
            check(values[name])
        except NameRefused as e:
            raise ProvisionError(f"{where}: {name}: {e}") from None
    if len(values["announce_key"] or "") == 64:
        raise ProvisionError(
            f"{where}: announce_key is of before experiments were signed with a key pair: "
            "run `hushmote provision upgrade`, then `hushmote flash`"
        )
    for name, digits in _KEY_DIGITS.items():
        # The text is never part of the message: it may be all but one digit of a real key.
        if values[name] is not None and not re.fullmatch(rf"[0-9a-f]{{{digits}}}", values[name], re.ASCII):
            raise ProvisionError(f"{where}: {name} must be {digits} hex digits, or null in an open fleet")
    if not 1 <= values["mqtt_port"] <= 65535:
        raise ProvisionError(f"{where}: mqtt_port must be 1 to 65535")
    try:
        broker_names(values["mqtt_host"])
    except ProvisionError as e:
        raise ProvisionError(f"{where}: {e}") from None
    if len(values["wifi_ssid"].encode()) > 32:
        raise ProvisionError(f"{where}: wifi_ssid is at most 32 bytes")
    if values["wifi_password"] and not 8 <= len(values["wifi_password"].encode()) <= 64:
        raise ProvisionError(f"{where}: wifi_password is 8 to 64 bytes, or empty for an open network")
    if values["wifi_country"] and not re.fullmatch(r"[A-Z]{2}", values["wifi_country"]):
        raise ProvisionError(f"{where}: wifi_country is two capital letters, such as DE, or empty")
    if values["mqtt_ca"] is not None:
        try:
            base64.b64decode(values["mqtt_ca"], validate=True)
        except binascii.Error:
            raise ProvisionError(f"{where}: mqtt_ca must be base64 of a certificate's DER, or null") from None
    own, own_key = values.get("mqtt_cert"), values.get("mqtt_key")
    if (own is None) != (own_key is None):
        raise ProvisionError(f"{where}: mqtt_cert and mqtt_key belong together: give both, or null twice")
    if own is not None and own_key is not None:
        if values["mqtt_ca"] is None:
            raise ProvisionError(f"{where}: mqtt_cert is shown to a broker over TLS only: mqtt_ca is missing")
        if authority.parse_board_fields(own, own_key, where).name != values["device_id"]:
            raise ProvisionError(f"{where}: mqtt_cert is another board's: its name must be the device_id")


def broker_names(mqtt_host: str) -> tuple[str, ...]:
    """Return the brokers of mqtt_host without their ports: what their certificates must name.

    Raises ProvisionError.
    """
    names: list[str] = []
    try:
        for broker in mqtt_host.split(",") if mqtt_host else ():
            found = _BROKER.fullmatch(broker)  # else an IPv6 address, which has no port here
            names.append(found[1] if found else str(ipaddress.IPv6Address(broker)))
            if found and not 1 <= int(found[2] or 1) <= 65535:
                raise ValueError
    except ValueError:
        raise ProvisionError(
            "mqtt_host must be host or host:port, of a cluster several with commas between: a,b,c"
        ) from None
    return tuple(names)


def _certificate(path: Path) -> str:
    """The first certificate of a PEM file, base64 of its DER: what every MicroPython port's TLS reads."""
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise ProvisionError(f"cannot read {path}: it must be a PEM file with the broker's CA") from None
    pem = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[0] if pem else "")
    except ValueError:
        raise ProvisionError(
            f"{path} holds no certificate: it must be a PEM file with the broker's CA"
        ) from None
    return base64.b64encode(der).decode()
