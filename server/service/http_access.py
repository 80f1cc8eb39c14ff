"""Who reaches an HTTP server: only this machine, or whoever has a token."""

from __future__ import annotations

import ipaddress
from pathlib import Path

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


def check_token(token: str, path: Path) -> str:
    """Return a token that a file held; raises UsageError for one that can be guessed or typed wrong."""
    if len(token) < _LEAST_TOKEN or not all("!" <= c <= "~" for c in token):
        raise UsageError(
            f"{path} must hold a token of {_LEAST_TOKEN} or more letters and digits: openssl rand -hex 16"
        )
    return token
