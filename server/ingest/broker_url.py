"""Parse a broker's address from its URL."""

import re
from dataclasses import dataclass, field
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from ..errors import HushmoteError
from ..plain_text import bracketed

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_WEB_SOCKETS = ("ws", "wss")
_USUAL_PATH = "/mqtt"
_LEVEL = "[A-Za-z0-9_.-]+"
_PREFIX = re.compile(rf"{_LEVEL}(/{_LEVEL})*", re.ASCII)
MAX_PREFIX_BYTES = 64
_MQTT_OF_NATS = {"nats": 1883, "tls": 8883}
_NATS_PORT = 4222


class BrokerUrlError(HushmoteError):
    """Raised for an invalid broker URL; the message says how to write it."""


@dataclass(frozen=True)
class BrokerAddress:
    """A broker's address and login.

    Attributes:
        host: The host name or address.
        port: The MQTT port.
        username: The user name; None for no login.
        password: The password; None for no password.
        tls: Whether to use TLS.
        others: Host and port of the cluster's other servers, any of which can be used.
        websocket: The path for MQTT over WebSocket, such as /mqtt; empty for MQTT over TCP.
        prefix: Topic levels before "hushmote/v1", with a trailing slash; empty for none.
    """

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    others: tuple[tuple[str, int], ...] = ()
    websocket: str = ""
    prefix: str = ""

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each server."""
        return (self.host, self.port), *self.others

    def __str__(self) -> str:
        name = "the cluster" if self.others else "the broker"
        return f"{name} at " + ",".join(f"{bracketed(host)}:{port}" for host, port in self.servers)


@dataclass(frozen=True)
class NatsAddress:
    """A NATS cluster's addresses and login.

    Attributes:
        servers: Host, NATS port and MQTT port of each server.
        username: The user name; None for no login.
        password: The password; None for no password.
        tls: Whether to use TLS.
    """

    servers: tuple[tuple[str, int, int], ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    @property
    def mqtt(self) -> BrokerAddress:
        """The same servers with their MQTT ports."""
        first, *others = [(host, port) for host, _, port in self.servers]
        return BrokerAddress(*first, self.username, self.password, self.tls, tuple(others))

    def __str__(self) -> str:
        return "the NATS servers at " + ",".join(
            f"{bracketed(host)}:{port}" for host, port, _ in self.servers
        )


def is_nats(url: str) -> bool:
    """Return whether a URL points to NATS servers."""
    return url.partition("://")[0] in _MQTT_OF_NATS


def parse_nats_url(url: str) -> NatsAddress:
    """Return the addresses in nats://[user:password@]host[:port],...[?mqtt=port,...].

    Use tls:// for TLS with both NATS and MQTT. The option mqtt lists the servers' MQTT ports: one for all or
    one for each.

    Raises:
        BrokerUrlError: If the URL is invalid.
    """
    try:
        parts = urlsplit(url)
        login, _, hosts = parts.netloc.rpartition("@")
        name, colon, password = login.partition(":")
        hosts_and_ports = [urlsplit(f"//{host}") for host in hosts.split(",")]
        default_port = str(_MQTT_OF_NATS[parts.scheme])
        queries = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        mqtt = queries.pop("mqtt", [default_port])[0].split(",")
        mqtt = [int(port) for port in (mqtt * len(hosts_and_ports) if len(mqtt) == 1 else mqtt)]
        servers = tuple(
            (h.hostname or "", _NATS_PORT if h.port is None else h.port, port)
            for h, port in zip(hosts_and_ports, mqtt, strict=True)
        )
        is_invalid = (
            parts.path not in ("", "/") or queries or parts.fragment or not all(h for h, _, _ in servers)
        )
        if is_invalid or not all(0 < port < 65_536 for _, *ports in servers for port in ports):
            raise ValueError
    except (ValueError, KeyError):
        # Omit the URL itself, because it may contain a password.
        raise BrokerUrlError(
            "NATS servers are written nats://[user@]host[:4222],host,...[?mqtt=1883], with one "
            "mqtt port for all or one for each; use tls:// for TLS; ports are 1 to 65535"
        ) from None
    return NatsAddress(
        servers, unquote(name) if login else None, unquote(password) if colon else None, parts.scheme == "tls"
    )


def check_prefix(text: str) -> str:
    """Return a topic prefix that has no trailing slash unchanged; it may be empty.

    Raises:
        BrokerUrlError: If the text cannot be a topic's first levels.
    """
    if text and (len(text) > MAX_PREFIX_BYTES or not _PREFIX.fullmatch(text)):
        raise BrokerUrlError(
            f"a topic prefix must be at most {MAX_PREFIX_BYTES} of A-Z, a-z, 0-9, _, . and -, "
            "with / between its levels, as in tenants/acme"
        )
    return text


def parse_broker_url(url: str, *, tls: bool = False) -> BrokerAddress:
    """Return the address in mqtt://[user:password@]host[:port].

    Args:
        url: The URL.
        tls: Whether mqtts:// (port 8883), ws:// (80) and wss:// (443) with a path, and ?prefix=LEVELS for a
            topic prefix are also accepted.

    Raises:
        BrokerUrlError: If the URL is invalid.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    try:
        port = parts.port
    except ValueError:
        port = 0
    schemes = _PORTS if tls else ("mqtt",)
    is_websocket = parts.scheme in _WEB_SOCKETS
    queries = dict(parse_qsl(parts.query, keep_blank_values=True))
    has_path = parts.path not in ("", "/")
    is_invalid = (has_path and not is_websocket) or not queries.keys() <= ({"prefix"} if tls else set())
    if parts.scheme not in schemes or not parts.hostname or is_invalid or port == 0:
        # Omit the URL itself, because it may contain a password.
        suffix = ", the port from 1 to 65535" if port == 0 else ""
        suffix += (
            "; mqtts:// for TLS; ws://host/path or wss://host/path for WebSocket; ?prefix=LEVELS for a topic "
            "prefix; NATS servers as nats:// or tls://"
            if tls
            else ""
        )
        raise BrokerUrlError(f"a broker is written mqtt://[user@]host[:port]{suffix}")
    username = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    prefix = check_prefix(queries.get("prefix", "").removesuffix("/"))
    return BrokerAddress(
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        username,
        password,
        parts.scheme in ("mqtts", "wss"),
        websocket=(parts.path.rstrip("/") or _USUAL_PATH) if is_websocket else "",
        prefix=prefix and f"{prefix}/",
    )
