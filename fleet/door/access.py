"""Who may use the door: with which token, under which of its names, and from which web pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...server.service.http_access import Headers, bearer, host_name, is_own_page
from ...server.service.tokens import Tokens

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Access:
    """Who may use the door.

    tokens: Authorization: Bearer must have one of them; None to ask for none. hosts: names and addresses
    that a request may use, None for any; on loopback they keep out web pages whose name was made to point
    there. origins: of web pages, such as https://board.example, besides the door's own host. trust_proxy:
    take the client's address from the end of X-Forwarded-For, where the nearest proxy put it.
    """

    tokens: Tokens | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()
    trust_proxy: bool = False

    def host_allowed(self, headers: Headers) -> bool:
        """Return whether the request asks for one of our names."""
        return self.hosts is None or host_name(headers) in self.hosts

    def origin_allowed(self, headers: Headers) -> bool:
        """Return whether it comes from no web page, one of our own host, or one of `origins`."""
        return headers.get("origin") in self.origins or is_own_page(headers)

    def token_right(self, headers: Headers) -> bool:
        """Return whether it carries a valid token."""
        return self.tokens is None or self.tokens.name_of(bearer(headers)) is not None

    def address(self, client: tuple[str, int] | None, forwarded: Sequence[str]) -> str:
        """Return the client's address, "" if it has none; forwarded: the lines of X-Forwarded-For."""
        # The last line: HAProxy adds one of its own to those that the client sent.
        proxy_address = "".join(forwarded[-1:]).rpartition(",")[2].strip() if self.trust_proxy else ""
        return proxy_address or (client[0] if client else "")
