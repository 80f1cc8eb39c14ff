"""Where a broker is, written as one URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ..errors import HushmoteError

_PORTS = {"mqtt": 1883, "mqtts": 8883}


class BrokerUrlError(HushmoteError):
    """A broker's URL that cannot be read; the text says how it is written."""


@dataclass(frozen=True)
class BrokerAddress:
    """Where a broker listens, the login it wants, and whether it speaks TLS."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = None
    tls: bool = False


def parse_broker_url(url: str, *, tls: bool = False) -> BrokerAddress:
    """Return the address in mqtt://[user:password@]host[:port]; raises BrokerUrlError.

    tls: whether mqtts://, of port 8883, is a broker's URL as well.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    schemes = _PORTS if tls else ("mqtt",)
    if parts.scheme not in schemes or not parts.hostname or parts.path not in ("", "/") or parts.query:
        # Without the URL itself: it may hold a password.
        also = "; mqtts:// for TLS" if tls else ""
        raise BrokerUrlError(f"a broker is written mqtt://[user:password@]host[:port]{also}")
    username = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return BrokerAddress(
        parts.hostname, port or _PORTS[parts.scheme], username, password, parts.scheme == "mqtts"
    )
