"""Who reaches an HTTP server: only this machine, or anyone with a token; and from which web pages."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

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
