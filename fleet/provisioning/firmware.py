"""A device's settings for firmware in C or ESPHome.

They are compiled in (a header, or a file for YAML to include), or in flash beside one image for all boards
(a page, or a CSV file for ESP-IDF's nvs_partition_gen). All contain the settings' secrets, so only their
owner may read them (mode 0600).
"""

from __future__ import annotations

import base64
import enum
import hashlib
import textwrap
from pathlib import Path

from ...server import private_file
from ...server.errors import ProvisionError, refusing
from .settings import DeviceSettings


class Firmware(enum.StrEnum):
    """The toolchain of a device's firmware; MicroPython uses the settings file itself."""

    C = "c"
    ESPHOME = "esphome"
    PAGE = "page"
    NVS = "nvs"


MAGIC = b"HUSHMOTE"
VERSION = 1
PAGE_BYTES = 4096
_HEADER_BYTES = 44
NVS_NAMESPACE, NVS_KEY = "hushmote", "identity"


def write(settings: DeviceSettings, folder: Path, target: Firmware) -> Path:
    """Write a device's file for a target into a folder, replacing an older one; raises ProvisionError."""
    path, content = folder / file_name(settings.device_id, target), file_content(settings, target)
    with refusing(ProvisionError, f"write {path}"):
        private_file.replace(path, content)
    return path


def file_name(device: str, target: Firmware) -> str:
    """Return the name of a device's file for a target."""
    ends = {
        Firmware.C: "h",
        Firmware.ESPHOME: "esphome.yaml",
        Firmware.PAGE: "page.bin",
        Firmware.NVS: "nvs.csv",
    }
    return f"{device}.{ends[target]}"


def file_content(settings: DeviceSettings, target: Firmware) -> bytes:
    """Return the content of a device's file for a target; raises ProvisionError if it does not fit."""
    match target:
        case Firmware.C:
            return c_header(settings).encode()
        case Firmware.ESPHOME:
            return esphome_yaml(settings).encode()
        case Firmware.PAGE:
            return identity_record(settings).ljust(PAGE_BYTES, b"\xff")
        case Firmware.NVS:
            return nvs_csv(settings).encode()


def identity_record(settings: DeviceSettings) -> bytes:
    """Return a device's identity as clients/c/identity.c reads it: at most a page, without its padding.

    The header is MAGIC, the version and the fields' length in 2 bytes each, and the SHA-256 of these 12 bytes
    and the fields. A field is its tag (1 byte), its length (2 bytes) and its value; a text ends with a zero
    byte, which its length includes. Numbers are big-endian; a missing field is empty or, for a key, absent.

    Raises:
        ProvisionError: If it does not fit into a page.
    """
    flags = (not settings.mqtt_status) | (not settings.mqtt_last_will) << 1 | settings.consent_given << 2
    texts = {
        1: settings.fleet,
        2: settings.device_id,
        5: settings.mqtt_host,
        7: settings.mqtt_prefix,
        8: settings.mqtt_user,
        9: settings.mqtt_password,
        10: _pem("CERTIFICATE", settings.mqtt_ca),
        11: _pem("CERTIFICATE", settings.mqtt_cert),
        12: _pem("EC PRIVATE KEY", settings.mqtt_key),
        14: settings.wifi_ssid,
        15: settings.wifi_password,
    }
    values = {tag: text.encode() + b"\0" for tag, text in texts.items() if text}
    values |= {6: settings.mqtt_port.to_bytes(2, "big"), 13: bytes([flags])}
    values |= {3: bytes.fromhex(settings.key or ""), 4: bytes.fromhex(settings.announce_key or "")}
    values = {tag: value for tag, value in sorted(values.items()) if value}
    size = _HEADER_BYTES + sum(3 + len(value) for value in values.values())
    if size > PAGE_BYTES:
        raise ProvisionError(
            f"these settings need {size:,} bytes, but a page has {PAGE_BYTES:,}: give a --ca file with fewer "
            "certificates, or shorter texts"
        )
    fields = b"".join(bytes([tag]) + len(value).to_bytes(2, "big") + value for tag, value in values.items())
    start = MAGIC + VERSION.to_bytes(2, "big") + len(fields).to_bytes(2, "big")
    return start + hashlib.sha256(start + fields).digest() + fields


def nvs_csv(settings: DeviceSettings) -> str:
    """Return a CSV file for nvs_partition_gen, with the identity as one item of type blob."""
    value = base64.b64encode(identity_record(settings)).decode()
    return f"key,type,encoding,value\n{NVS_NAMESPACE},namespace,,\n{NVS_KEY},data,base64,{value}\n"


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
