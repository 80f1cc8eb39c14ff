"""umqtt.simple, the MQTT client for boards whose firmware lacks it: bundled, one version, checked by hash.

device/umqtt/simple.py is the file from MicroPython's package index, byte for byte: micropython-lib's own,
plus a line with the version, under the MIT licence of device/umqtt/LICENSE.
"""

import hashlib
from pathlib import Path

from ...server.errors import refusing
from .usb import FlashError

VERSION = "1.8.0"
SHA256 = "de2fbae737b0e69a256a0602a333d241ed6235ab093c80ad955082d9006c06e2"
PATH = Path(__file__).resolve().parents[2] / "device" / "umqtt" / "simple.py"


def bundled(path: Path = PATH) -> bytes:
    """Return umqtt/simple.py as bundled; raises FlashError unless it is this version, byte for byte."""
    with refusing(FlashError, f"read {path}"):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise FlashError(
            f"{path} is not umqtt.simple {VERSION}: install Hushmote again, or give --with umqtt/simple.py"
        )
    return content
