"""umqtt.simple, the MQTT client for boards whose firmware lacks it: one version, known by its hash."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from http.client import HTTPException

from .usb import FlashError

VERSION = "1.8.0"
# Of the index's umqtt/simple.py, which is micropython-lib's file and a line with the version.
SHA256 = "de2fbae737b0e69a256a0602a333d241ed6235ab093c80ad955082d9006c06e2"
INDEX = "https://micropython.org/pi/v2"

_MOST_BYTES = 64 * 1024


def fetch(index: str = INDEX, timeout_s: float = 30.0) -> bytes:
    """Return umqtt/simple.py of MicroPython's package index; raises FlashError unless it is this version."""
    give = "give the file with --umqtt"
    # The index names files by the first eight digits of their SHA-256.
    url = f"{index}/file/{SHA256[:2]}/{SHA256[:8]}"
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            content = answer.read(_MOST_BYTES)
    except (OSError, HTTPException, urllib.error.URLError):
        raise FlashError(f"the board has no umqtt.simple and it could not be downloaded: {give}") from None
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise FlashError(f"what {url} gave is not umqtt.simple {VERSION}: {give}")
    return content
