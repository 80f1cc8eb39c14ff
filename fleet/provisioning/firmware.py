"""A device's settings for firmware in C or ESPHome: a header, or a file for YAML to include.

Both contain the settings' secrets, so only their owner may read them (mode 0600). The firmware that is built
with them contains the secrets as well.
"""

from __future__ import annotations

import base64
import enum
import textwrap
from pathlib import Path

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from .settings import DeviceSettings


class Firmware(enum.StrEnum):
    """The toolchain of a device's firmware; MicroPython uses the settings file itself."""

    C = "c"
    ESPHOME = "esphome"


def write(settings: DeviceSettings, folder: Path, target: Firmware) -> Path:
    """Write a device's file for a target into a folder, replacing an older one; raises ProvisionError."""
    if target is Firmware.C:
        path, text = folder / f"{settings.device_id}.h", c_header(settings)
    else:
        path, text = folder / f"{settings.device_id}.esphome.yaml", esphome_yaml(settings)
    with refusing(ProvisionError, f"write {path}"):
        private_file.replace(path, text.encode())
    return path


def c_header(settings: DeviceSettings) -> str:
    """Return a header with macros: texts, numbers and, for keys, array initializers."""
    values = {
        "FLEET": _quoted(settings.fleet),
        "DEVICE_ID": _quoted(settings.device_id),
        "KEY": _initializer(settings.key),
        "ANNOUNCE_KEY": _initializer(settings.announce_key),
        "CONSENT_GIVEN": str(int(settings.consent_given)),
        "BROKER": _quoted(settings.mqtt_host),
        "BROKER_PORT": str(settings.mqtt_port),
        "TOPIC_PREFIX": _quoted(settings.mqtt_prefix) or '""',
        "BROKER_USER": _quoted(settings.mqtt_user),
        "BROKER_PASSWORD": _quoted(settings.mqtt_password),
        "BROKER_CA": _quoted(_pem("CERTIFICATE", settings.mqtt_ca)),
        "CERTIFICATE": _quoted(_pem("CERTIFICATE", settings.mqtt_cert)),
        "CERTIFICATE_KEY": _quoted(_pem("EC PRIVATE KEY", settings.mqtt_key)),
        "OMIT_STATUS": str(int(not settings.mqtt_status)),
        "OMIT_WILL": str(int(not settings.mqtt_last_will)),
        "WIFI_SSID": _quoted(settings.wifi_ssid),
        "WIFI_PASSWORD": _quoted(settings.wifi_password),
    }
    lines = [
        f"/* Device {settings.device_id} of fleet {settings.fleet}. SECRET: contains this device's keys.",
        "   Keep it and the firmware that is built with it to yourself; no two boards may share it. Settings",
        "   that the device does not have are undefined: without HUSHMOTE_KEY, its fleet is open. */",
        "#ifndef HUSHMOTE_DEVICE_H",
        "#define HUSHMOTE_DEVICE_H",
        "",
        *(f"#define HUSHMOTE_{name} {value}" for name, value in values.items() if value),
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def esphome_yaml(settings: DeviceSettings) -> str:
    """Return the YAML for `identity: !include FILE` in ESPHome's `hushmote:` block."""
    values = {
        "fleet": settings.fleet,
        "device_id": settings.device_id,
        "key": settings.key,
        "announce_key": settings.announce_key,
        "broker": settings.mqtt_host,
        "port": settings.mqtt_port,
        "topic_prefix": settings.mqtt_prefix,
        "username": settings.mqtt_user,
        "password": settings.mqtt_password,
        "ca": _pem("CERTIFICATE", settings.mqtt_ca),
        "certificate": _pem("CERTIFICATE", settings.mqtt_cert),
        "certificate_key": _pem("EC PRIVATE KEY", settings.mqtt_key),
        "omit_status": not settings.mqtt_status,
        "omit_will": not settings.mqtt_last_will,
        "consent_given": settings.consent_given,
    }
    lines = [
        f"# Device {settings.device_id} of fleet {settings.fleet}. SECRET: contains this device's keys.",
        "# Keep it and the firmware that is built with it to yourself; no two boards may share it.",
    ]
    for name, value in values.items():
        if isinstance(value, str) and "\n" in value:
            lines += [f"{name}: |", textwrap.indent(value, "  ").rstrip()]
        elif value:
            lines.append(f"{name}: {_yaml(value) if isinstance(value, str) else str(value).lower()}")
    return "\n".join(lines) + "\n"


def _pem(label: str, ders: str | None) -> str | None:
    """Return PEM blocks for base64 texts separated by spaces."""
    if ders is None:
        return None
    blocks = (textwrap.fill(base64.b64encode(base64.b64decode(der)).decode(), 64) for der in ders.split(" "))
    return "".join(f"-----BEGIN {label}-----\n{block}\n-----END {label}-----\n" for block in blocks)


def _initializer(digits: str | None) -> str | None:
    return digits and "{" + ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(digits)) + "}"


def _quoted(text: str | None) -> str | None:
    """Return a C string, with special characters in octal, since hex escapes have no fixed length."""
    if not text:
        return None
    escapes = {byte: f"\\{byte:03o}" for byte in (*range(0x20), *b'"\\?', *range(0x7F, 0x100))} | {10: "\\n"}
    return '"' + "".join(escapes.get(byte, chr(byte)) for byte in text.encode()) + '"'


def _yaml(text: str) -> str:
    characters = (c if " " <= c <= "~" and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(characters)}"'
