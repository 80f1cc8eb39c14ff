"""Who reaches an HTTP server: only this machine, or whoever has a token."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import UsageError

_LEAST_TOKEN = 16  # characters


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """Return the name or address in a Host header, without its port; "" where it has none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def check_token(token: str, path: Path) -> str:
    """Return a token that a file held; raises UsageError for one that can be guessed or typed wrong."""
    if len(token) < _LEAST_TOKEN or not all("!" <= c <= "~" for c in token):
        raise UsageError(
            f"{path} must hold a token of {_LEAST_TOKEN} or more letters and digits: openssl rand -hex 16"
        )
    return token
