"""Access to an HTTP server: from this machine only or with a token, and from which web pages."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

Headers = Mapping[str, str]
"""A request's headers, with lower-case names."""


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(headers: Headers) -> str:
    """Return the name or address in a Host header, without its port, or ""."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_own_page(headers: Headers) -> bool:
    """Return whether a request comes from no web page, or from a page of the host that it addresses."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def bearer(headers: Headers) -> str | None:
    """Return the token in Authorization: Bearer, or None if there is no such header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
