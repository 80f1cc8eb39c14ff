"""A device's id, keys, Wi-Fi and broker, in one JSON file that `hushmote flash` takes.

The file holds secrets: only its owner may read it (mode 0600). It belongs to one device; a board that is
provisioned again gets a new one.
"""

import base64
import binascii
import dataclasses
import ipaddress
import json
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self

from cryptography import x509
from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from ...server.ingest.broker_url import BrokerUrlError, check_prefix
from ...server.plain_text import unusable_character
from ...server.wire import keys
from ...server.wire.topics import NameRefused, check_device, check_fleet
from . import authority
from .fleet_spec import describe_error

_BROKER = re.compile(
    r"(?:\[(?P<address>[^]]+)]|(?P<name>[^][,:/@\\\x00-\x20\x7f-\U0010ffff]+))(?::(?P<port>[0-9]{1,5}))?",
    re.ASCII,
)
_FOUR = (
    "must be address,mask,gateway,name server, as in 10.0.0.9,255.0.0.0,10.0.0.1,10.0.0.1; or empty, for DHCP"
)
# `openssl x509 -text` writes text, in any encoding, around the certificates.
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
MAX_CERTIFICATES = 8
_MAY_BE_MISSING = {  # in older files
    "wifi_address",
    "time_server",
    "mqtt_prefix",
    "mqtt_cert",
    "mqtt_key",
    "mqtt_status",
    "mqtt_last_will",
    "ledger_made",
    "consent_given",
}


def _by(check: Callable[[str], object]) -> AfterValidator:
    """Return a validator that calls a function which raises for a wrong text; None is always valid."""

    def checked(text: str | None) -> str | None:
        try:
            if text is not None:
                check(text)
        except (NameRefused, BrokerUrlError) as e:
            raise ValueError(str(e)) from None
        return text

    return AfterValidator(checked)


def _like(pattern: bytes, requirement: str) -> AfterValidator:
    """Return a validator of a text's UTF-8. No message quotes it: it may be nearly a real key."""

    def check(text: str) -> None:
        if not re.fullmatch(pattern, text.encode(), re.DOTALL):
            raise ValueError(requirement)

    return _by(check)


def _typed(pattern: bytes, requirement: str) -> AfterValidator:
    """Return a validator of a typed text's UTF-8, in which an invisible character is a mistake."""

    def check(text: str) -> None:
        if character := unusable_character(text):
            raise ValueError(f"contains {character}, which is invisible: remove it")
        if not re.fullmatch(pattern, text.encode()):
            raise ValueError(requirement)

    return _by(check)


def _certificates(text: str) -> None:
    try:
        for der in text.split(" "):
            base64.b64decode(der, validate=True)
    except binascii.Error:
        raise ValueError("must be base64 of certificates' DER, separated by spaces, or null") from None


def _hex(digits: int) -> AfterValidator:
    return _like(b"[0-9a-f]{%d}" % digits, f"must be {digits} hex digits, or null in an open fleet")


def broker_names(mqtt_host: str) -> tuple[str, ...]:
    """Return the brokers of mqtt_host without their ports: the names that their certificates must have.

    Raises:
        ValueError: If the text is malformed.
    """
    names: list[str] = []
    try:
        for broker in mqtt_host.split(",") if mqtt_host else ():
            match = _BROKER.fullmatch(broker)
            if match and not 1 <= int(match["port"] or 1) <= 65535:
                raise ValueError
            # An IPv6 address without brackets has no port.
            names.append(
                (match and match["name"]) or str(ipaddress.IPv6Address(match["address"] if match else broker))
            )
    except ValueError:
        raise ValueError(
            "must be host or host:port in ASCII, or several separated by commas: a,b,[fd00::5]:1884"
        ) from None
    return tuple(names)


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True))
class DeviceSettings:
    """The settings of one device, as stored in its settings file.

    Attributes:
        key: 64 hex digits; None in an open fleet.
        announce_key: 128 hex digits, the public key that verifies experiments; None in an open fleet.
        time_server: The time server, for TLS; empty for pool.ntp.org.
        mqtt_ca: The certificates of the trusted CAs, base64 of DER, separated by spaces; None without TLS.
        mqtt_host: host or host:port, for a cluster several separated by commas: if one does not answer, the
            device tries the next.
        mqtt_port: For hosts without one.
        mqtt_prefix: Topic levels before hushmote/v1, such as tenants/acme, or empty.
        mqtt_cert, mqtt_key: The device's own certificate and its key, base64 of DER, or both None.
        mqtt_status, mqtt_last_will: Whether the device publishes its status topic and sets a last will on it.
            Devices leave out by themselves what the broker does not permit; these settings save the attempts.
        ledger_made: Whether these settings have made a ledger already; boards never get this field.
        consent_given: The people measured have consented elsewhere; the ledger records that from the start.
    """

    fleet: Annotated[str, _by(check_fleet)]
    device_id: Annotated[str, _by(check_device)]
    key: Annotated[str | None, _hex(64)] = dataclasses.field(default=None, repr=False)
    announce_key: Annotated[str | None, _hex(128)] = dataclasses.field(default=None, repr=False)
    wifi_ssid: Annotated[
        str, _typed(b".{0,32}", "must be at most 32 bytes: an umlaut takes 2, an emoji 4 or more")
    ] = ""
    wifi_password: Annotated[
        str,
        _typed(
            b"(.{8,63}|[0-9A-Fa-f]{64})?",
            "must be 8 to 63 bytes, or 64 hex digits; or empty for an open network",
        ),
    ] = dataclasses.field(default="", repr=False)
    wifi_country: Annotated[
        str, _like(b"([A-Z]{2})?", "must be two capital letters, such as DE, or empty")
    ] = ""
    wifi_address: Annotated[str, _like(rb"(([0-9.]+,){3}[0-9.]+)?", _FOUR)] = ""
    time_server: Annotated[
        str,
        _like(rb"([A-Za-z0-9._:-]{1,253})?", "must be a host name or an address, or empty for pool.ntp.org"),
    ] = ""
    mqtt_host: Annotated[str, _by(broker_names)] = ""
    mqtt_port: Annotated[int, Field(ge=1, le=65535)] = 1883
    mqtt_prefix: Annotated[str, _by(check_prefix)] = ""
    mqtt_user: Annotated[str | None, _typed(b".{0,255}", "must be at most 255 bytes")] = None
    mqtt_password: Annotated[str | None, _typed(b".{0,255}", "must be at most 255 bytes")] = (
        dataclasses.field(default=None, repr=False)
    )
    mqtt_ca: Annotated[str | None, _by(_certificates)] = None
    mqtt_cert: str | None = None
    mqtt_key: str | None = dataclasses.field(default=None, repr=False)
    mqtt_status: bool = True
    mqtt_last_will: bool = True
    ledger_made: bool = False
    consent_given: bool = False

    @model_validator(mode="after")
    def _certificate_of_this_board(self) -> Self:
        if (self.mqtt_cert is None) != (self.mqtt_key is None):
            raise ValueError("mqtt_cert and mqtt_key belong together: give both, or null for both")
        if self.mqtt_cert is not None and self.mqtt_key is not None:
            if self.mqtt_ca is None:
                raise ValueError("mqtt_cert needs TLS: mqtt_ca is missing")
            if authority.parse_board_fields(self.mqtt_cert, self.mqtt_key).name != self.device_id:
                raise ValueError("mqtt_cert is another device's: its name must be the device_id")
        return self

    def to_json(self) -> bytes:
        """Return the settings file's content, without escapes: boards cannot read emoji in that form."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False).encode() + b"\n"

    def board_json(self, further: tuple[str, ...] = ()) -> bytes:
        """Return the content of the board's /settings.json.

        Args:
            further: Modules that main.py imports first.
        """
        values = dataclasses.asdict(self) | ({"with": further} if further else {})
        del values["ledger_made"], values["consent_given"]
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


@dataclasses.dataclass(frozen=True)
class Network:
    """The Wi-Fi and the broker of a device.

    Attributes:
        wifi_password: Empty for an open network.
        mqtt_host, mqtt_port: As in DeviceSettings; if the port is None, it is 8883 with a CA, else 1883.
        mqtt_ca: PEM file with the certificates of the CAs to trust, None without TLS.
        certificate: The device's own.
    """

    wifi_ssid: str = ""
    wifi_password: str = dataclasses.field(default="", repr=False)
    wifi_country: str = ""
    mqtt_host: str = ""
    mqtt_port: int | None = None
    mqtt_prefix: str = ""
    mqtt_user: str | None = None
    mqtt_password: str | None = dataclasses.field(default=None, repr=False)
    mqtt_ca: Path | None = None
    certificate: authority.CertifiedKey | None = None


def provision_device(
    fleet_keys: keys.FleetKeys | None,
    fleet: str,
    device_id: str | None = None,
    network: Network = Network(),
    *,
    path: Path | None = None,
    consent_given: bool = False,
) -> DeviceSettings:
    """Make a device's settings; if path is given, write them to a new file that only its owner can read.

    Args:
        fleet_keys: The fleet's keys; None for an open fleet.
        fleet: The fleet's name.
        device_id: 64 random bits by default; never use a MAC address or a chip id, which would identify the
            board for life.
        network: The device's Wi-Fi and broker.
        path: The file; an existing one is never overwritten.
        consent_given: The people measured have consented elsewhere.

    Raises:
        ProvisionError: If a value is invalid, or the file cannot be made.
        NameRefused: If a name is invalid.
        MasterKeyError: If a key is malformed.
    """
    values = dict(vars(network))
    ca, certificate = values.pop("mqtt_ca"), values.pop("certificate")
    if network.mqtt_port is None:
        values["mqtt_port"] = 8883 if ca else 1883
    device_id = check_device(secrets.token_hex(8) if device_id is None else device_id)
    values |= {"fleet": check_fleet(fleet), "device_id": device_id, "consent_given": consent_given}
    settings = _build_settings(
        values | _secrets(fleet_keys, fleet, device_id, ca, certificate), "these settings"
    )
    if path is not None:
        exists = f"{path} exists: it may be the only copy of a device's keys; use another path"
        with refusing(ProvisionError, f"write {path}", exists):
            private_file.create(path, settings.to_json())
    return settings


def renew_settings(
    settings: DeviceSettings,
    fleet_keys: keys.FleetKeys | None,
    mqtt_ca: Path | None,
    certificate: authority.CertifiedKey | None,
) -> DeviceSettings:
    """Return the same device's settings with the keys, CA and certificate that are in use now.

    The device id stays, and so does ledger_made, so `hushmote flash` leaves the board's ledger alone.
    """
    fresh = _secrets(fleet_keys, settings.fleet, settings.device_id, mqtt_ca, certificate)
    return _build_settings(dataclasses.asdict(settings) | fresh, "these settings")


def _secrets(
    fleet_keys: keys.FleetKeys | None,
    fleet: str,
    device_id: str,
    ca: Path | None,
    certificate: authority.CertifiedKey | None,
) -> dict[str, str | None]:
    own, own_key = (None, None) if certificate is None else certificate.board_fields()
    key = fleet_keys and keys.device_key(fleet_keys.masters[0], fleet, device_id).hex()
    return {
        "key": key,
        "announce_key": fleet_keys and fleet_keys.announce_key.hex(),
        "mqtt_ca": None if ca is None else _trusted_certificates(ca),
        "mqtt_cert": own,
        "mqtt_key": own_key,
    }


def _build_settings(values: dict[str, Any], where: str) -> DeviceSettings:
    """Return the settings with these values; raises ProvisionError in one line that begins with where."""
    missing = {f.name for f in dataclasses.fields(DeviceSettings)} - _MAY_BE_MISSING - values.keys()
    announce_key = values.get("announce_key")
    if isinstance(announce_key, str) and len(announce_key) == 64:
        raise ProvisionError(
            f"{where}: announce_key is from before experiments were signed with a key pair: "
            "run `hushmote provision upgrade`, then `hushmote flash`"
        )
    try:
        settings = DeviceSettings(**values)
    except ValidationError as e:
        raise ProvisionError(f"{where}: {describe_error(e, DeviceSettings)}") from None
    if missing:
        raise ProvisionError(f"{where}: {min(missing)} is missing")
    return settings


def describe(settings: DeviceSettings, path: Path, *, for_flash: bool = True) -> str:
    """Return one line about a settings file, without its secrets.

    Args:
        settings: The file's content.
        path: The file.
        for_flash: Include what it lacks for `hushmote flash`.
    """
    keyed = "without keys (open fleet)" if settings.key is None else "with keys"
    if settings.mqtt_cert is not None and settings.mqtt_key is not None:
        until = authority.parse_board_fields(settings.mqtt_cert, settings.mqtt_key).until
        keyed += f", certificate until {until:%Y-%m-%d}"
    missing = [name for name in ("wifi_ssid", "mqtt_host") if not getattr(settings, name)]
    line = f"{path}: device {settings.device_id} of fleet {settings.fleet}, {keyed}; only you can read it"
    return line + (
        f"; fill in {' and '.join(missing)} before `hushmote flash`" if missing and for_flash else ""
    )


def settings_path(device_id: str, folder: Path = Path()) -> Path:
    """Return where `hushmote provision` puts a device's settings: <device id>.settings.json."""
    return folder / f"{device_id}.settings.json"


def load_settings(path: Path) -> DeviceSettings:
    """Read a settings file; raises ProvisionError if it is missing, malformed or readable by others."""
    return _build_settings(_read(path), str(path))


def with_announce_key(path: Path, announce_key: str) -> DeviceSettings | None:
    """Return the settings in a file with this announce key, None if they need no change.

    They need none if they have it already, or belong to an open fleet. Settings from before experiments were
    signed with a key pair can be read, too. Raises what load_settings does.
    """
    values = _read(path)
    is_current = values.get("announce_key") in (None, announce_key)
    settings = _build_settings(values if is_current else values | {"announce_key": announce_key}, str(path))
    return None if is_current else settings


def _read(path: Path) -> dict[str, Any]:
    if path.exists() and not path.is_file():  # reading a board's port would wait forever
        raise ProvisionError(f"{path} is not a settings file: make one with `hushmote provision`")
    wrote = "it must be a file that `hushmote provision` wrote"
    try:
        with open(path, "rb") as f:
            mode = os.fstat(f.fileno()).st_mode
            values = json.loads(f.read(65536))
    except FileNotFoundError:
        raise ProvisionError(f"no settings {path}: make them with `hushmote provision`") from None
    except OSError as e:
        raise ProvisionError(f"cannot read the settings {path}: {e.strerror}") from None
    except ValueError:
        raise ProvisionError(f"{path} is not JSON: {wrote}") from None
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ProvisionError(f"{path} contains secrets and can be read by others; run `chmod 600` on it")
    if not isinstance(values, dict):
        raise ProvisionError(f"{path} is not a JSON object: {wrote}")
    return values


def check_complete(settings: DeviceSettings, path: Path) -> None:
    """Raise ProvisionError if a board could not reach its broker with these settings."""
    for name in ("wifi_ssid", "mqtt_host"):
        if not getattr(settings, name):
            raise ProvisionError(f"{name} is empty in {path}: fill it in")


def mark_ledger(path: Path, settings: DeviceSettings, ledger_made: bool) -> DeviceSettings:
    """Record in the settings file whether they have made a ledger; the file is replaced in one step."""
    marked = dataclasses.replace(settings, ledger_made=ledger_made)
    if marked != settings:
        replace_settings(path, marked)
    return marked


def replace_settings(path: Path, settings: DeviceSettings) -> None:
    """Replace a settings file in one step; raises ProvisionError."""
    with refusing(ProvisionError, f"write {path}"):
        private_file.replace(path, settings.to_json())


def _trusted_certificates(path: Path) -> str:
    """Return all certificates of a PEM file, base64 of their DER, for the TLS of any MicroPython port."""
    must = "it must be a PEM file with the broker's CA"
    try:
        content = path.read_bytes()
    except OSError:
        raise ProvisionError(f"cannot read {path}: {must}") from None
    try:
        ders = [base64.b64decode(re.sub(rb"\s", b"", body), validate=True) for body in _PEM.findall(content)]
        for der in ders:
            x509.load_der_x509_certificate(der)
    except ValueError:
        raise ProvisionError(f"{path} contains a damaged certificate: {must}") from None
    if not ders:
        raise ProvisionError(f"{path} contains no certificate: {must}")
    if len(ders) > MAX_CERTIFICATES:
        raise ProvisionError(
            f"{path} contains {len(ders)} certificates: a board has memory for {MAX_CERTIFICATES}; "
            "give a file with only the CAs of your broker"
        )
    return " ".join(base64.b64encode(der).decode() for der in dict.fromkeys(ders))
