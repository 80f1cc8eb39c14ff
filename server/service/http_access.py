"""Who reaches an HTTP server: only this machine, or anyone with a token; and from which web pages."""

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
    """Return whether only programs of this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(headers: Headers) -> str:
    """Return the name or address in a Host header, without its port; "" if it has none."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_own_page(headers: Headers) -> bool:
    """Return whether a request comes from no web page, or from a page of the host that it asks."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def bearer(headers: Headers) -> str | None:
    """Return the token in Authorization: Bearer, None if there is no such header."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def is_token(given: str | None, token: str) -> bool:
    """Return whether a token is the right one, compared in constant time."""
    return given is not None and hmac.compare_digest(given.encode(), token.encode())


def check_token(token: str, path: Path) -> str:
    """Return a token read from a file; raises UsageError for one that is easy to guess or mistype."""
    if len(token) < _LEAST_TOKEN or not all("!" <= c <= "~" for c in token):
        raise UsageError(
            f"{path} must hold a token of {_LEAST_TOKEN} or more letters and digits: openssl rand -hex 16"
        )
    return token
