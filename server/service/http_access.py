"""Decide who may access an HTTP server: this machine only or token holders, and which web pages."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

Headers = Mapping[str, str]
"""A request's headers, with lower-case names."""


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach a server that listens on this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(headers: Headers) -> str:
    """Return the name or address in the Host header without its port, or "" if it is missing."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        return ""


def is_own_page(headers: Headers) -> bool:
    """Return whether a request does not come from a web page, or comes from a page of this host."""
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower() != ""


def bearer(headers: Headers) -> str | None:
    """Return the token in Authorization: Bearer, or None if there is no such header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
