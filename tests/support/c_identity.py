"""struct hushmote_identity, and the settings of a device that has every field of it."""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char_p, c_uint16

from hushmote.fleet.provisioning import authority, fleet_folder
from hushmote.fleet.provisioning.settings import DeviceSettings

HARD_TO_QUOTE = 'a "\\??  é😀1'
KEY_DIGITS = bytes(range(32)).hex()


def keyed() -> DeviceSettings:
    """Return settings with every field."""
    now = fleet_folder.now_utc()
    root = authority.new_authority("home", now)
    certificate, key = authority.issue_client(root, "line-1", now, 9).board_fields()
    return DeviceSettings(
        "home_1", "line-1", KEY_DIGITS, 2 * KEY_DIGITS, mqtt_host="a,b:1884", mqtt_port=8883,
        mqtt_prefix="tenants/acme",
        mqtt_user=HARD_TO_QUOTE, mqtt_password="😀" * 20, mqtt_ca=authority.der_text(root.certificate),
        mqtt_cert=certificate, mqtt_key=key, wifi_ssid="é" * 16, wifi_password=HARD_TO_QUOTE,
        mqtt_status=False, consent_given=True,
    )  # fmt: skip


class Identity(ctypes.Structure):
    """struct hushmote_identity."""

    _fields_ = (
        *((name, c_char_p) for name in ("hosts", "prefix", "user", "password", "ca", "certificate")),
        *((name, c_char_p) for name in ("certificate_key", "wifi_ssid", "wifi_password")),
        ("port", c_uint16),
        *((name, c_bool) for name in ("omit_status", "omit_will", "consent_given")),
    )
