"""Who reaches an HTTP server: only this machine, or whoever has a token; and from which web pages."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import UsageError

_LEAST_TOKEN = 16  # characters

Headers = Mapping[str, str]
"""A request's headers, their names in small letters."""


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(headers: Headers) -> str:
    """Return the name or address in a Host header, without its port; "" where it has none."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_own_page(headers: Headers) -> bool:
    """Whether no web page sent a request, or one of the host that it asks."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def bearer(headers: Headers) -> str | None:
    """Return the token in Authorization: Bearer, None where there is no such header."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def is_token(given: str | None, token: str) -> bool:
    """Whether a token is the right one, compared in constant time."""
    return given is not None and hmac.compare_digest(given.encode(), token.encode())


def check_token(token: str, path: Path) -> str:
    """Return a token that a file held; raises UsageError for one that can be guessed or typed wrong."""
    if len(token) < _LEAST_TOKEN or not all("!" <= c <= "~" for c in token):
        raise UsageError(
            f"{path} must hold a token of {_LEAST_TOKEN} or more letters and digits: openssl rand -hex 16"
        )
    return token
