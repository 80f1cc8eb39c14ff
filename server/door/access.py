"""Who may use the door: with which token, by which of its names, and from which web pages."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..service.http_access import host_name

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Headers = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Access:
    """Who may use the door.

    token: what Authorization: Bearer must have, None for anybody. hosts: names and addresses that a request
    must ask for, None for any; on loopback they keep out web pages whose name was made to lead there.
    origins: of web pages, such as https://board.example, besides those of the door's own host. trust_proxy:
    the client's address is what the nearest proxy put at the end of X-Forwarded-For.
    """

    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()
    trust_proxy: bool = False

    def host_allowed(self, headers: Headers) -> bool:
        """Whether the request asks for a name that is ours."""
        return self.hosts is None or host_name(headers.get(b"host", b"").decode("latin-1")) in self.hosts

    def origin_allowed(self, headers: Headers) -> bool:
        """Whether no web page sent it, one of our own host, or one of `origins`."""
        origin = headers.get(b"origin")
        if origin is None:
            return True
        text = origin.decode("latin-1")
        return text in self.origins or text.partition("://")[2] == headers.get(b"host", b"").decode("latin-1")

    def token_right(self, headers: Headers) -> bool:
        """Whether it carries the token, compared in constant time."""
        if self.token is None:
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode())

    def address(self, client: tuple[str, int] | None, headers: Headers) -> str:
        """The client's address, "" where it has none."""
        if self.trust_proxy and (forwarded := headers.get(b"x-forwarded-for")):
            return forwarded.decode("latin-1").rpartition(",")[2].strip()
        return client[0] if client else ""
