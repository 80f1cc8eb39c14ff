"""Read the settings that `hushmote flash` wrote, or that someone typed. main.py imports this briefly."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import json
import os

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from .ldp_client import SettingsError
else:
    from ldp_client import SettingsError


def load_settings(path):
    """Return the settings that `hushmote flash` wrote.

    Raises:
        SettingsError: With what a person must do, if there are none.
    """
    try:
        blocks = os.statvfs("/")[2]
    except OSError:
        blocks = 0
    if not blocks:  # a root folder without a file system has no blocks
        raise SettingsError(
            "no file system: erase the flash, install MicroPython again, then `hushmote flash`"
        )
    try:
        with open(path, "rb") as f:
            if f.read(3) != b"\xef\xbb\xbf":  # the byte-order mark of some editors
                f.seek(0)
            settings = json.load(f)
        for name, value in settings.items():
            check(name, value)
    except OSError:
        raise SettingsError("no %s: run `hushmote provision`, then `hushmote flash`" % path)
    except (ValueError, AttributeError):  # AttributeError: not an object
        raise SettingsError("%s is damaged: run `hushmote flash` again" % path)
    for name in ("fleet", "device_id", "wifi_ssid", "mqtt_host"):
        if not settings.get(name):
            raise SettingsError("%s is empty: fill it in and run `hushmote flash` again" % name)
    return settings


def check(name, value):
    """Raise SettingsError for a value, typed by hand, that could only fail later."""
    ours = "fleet device key announce wifi time mqtt".split()  # first words of our settings' names
    kind, what = str, "text in quotes, or null"
    if name == "mqtt_port":
        kind, what = int, "a number without quotes"
    elif name in ("mqtt_status", "mqtt_last_will"):
        kind, what = bool, "true or false without quotes"
    if value is not None and type(value) is not kind and name.split("_")[0] in ours:
        raise SettingsError("%s must be %s" % (name, what))
    if name == "wifi_ssid" and isinstance(value, str) and len(value.encode()) > 32:
        raise SettingsError("wifi_ssid has more than 32 bytes in UTF-8: write the network's own name")
    for c in value if isinstance(value, str) else "":
        if 0xD800 <= ord(c) < 0xE000:  # MicroPython does not join two \u escapes
            raise SettingsError("%s has an emoji as two \\u escapes: write the emoji itself" % name)
