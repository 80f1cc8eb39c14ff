"""Who may use the door: with which token, by which of its names, and from which web pages."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..service.http_access import Headers, bearer, host_name, is_own_page, is_token

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


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
        return self.hosts is None or host_name(headers) in self.hosts

    def origin_allowed(self, headers: Headers) -> bool:
        """Whether no web page sent it, one of our own host, or one of `origins`."""
        return headers.get("origin") in self.origins or is_own_page(headers)

    def token_right(self, headers: Headers) -> bool:
        """Whether it carries the token."""
        return self.token is None or is_token(bearer(headers), self.token)

    def address(self, client: tuple[str, int] | None, headers: Headers) -> str:
        """The client's address, "" where it has none."""
        if self.trust_proxy and (forwarded := headers.get("x-forwarded-for")):
            return forwarded.rpartition(",")[2].strip()
        return client[0] if client else ""
