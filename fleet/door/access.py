"""Access control for the door: tokens, host names and web origins."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...server.service.http_access import Headers, bearer, host_name, is_own_page
from ...server.service.tokens import Tokens

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Access:
    """The rules for using the door.

    Args:
        tokens: The valid bearer tokens, or None if no token is required.
        hosts: The names and addresses that a request may use, or None for any. On loopback they prevent DNS
            rebinding.
        origins: Allowed origins of web pages, such as https://board.example, besides the door's own host.
        trust_proxy: Read the client's address from the end of X-Forwarded-For, where the nearest proxy puts
            it.
    """

    tokens: Tokens | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()
    trust_proxy: bool = False

    def is_host_allowed(self, headers: Headers) -> bool:
        """Return whether the request's Host is allowed.

        A request without one comes from a client of HTTP/1.0, such as a modem, and never from a browser.
        """
        return self.hosts is None or "host" not in headers or host_name(headers) in self.hosts

    def is_origin_allowed(self, headers: Headers) -> bool:
        """Return whether the request's web page, if any, is on our own host or one of `origins`."""
        return headers.get("origin") in self.origins or is_own_page(headers)

    def has_valid_token(self, headers: Headers) -> bool:
        """Return whether the request carries a valid token, if one is required."""
        return self.tokens is None or self.tokens.name_of(bearer(headers)) is not None

    def address(self, client: tuple[str, int] | None, forwarded: Sequence[str]) -> str:
        """Return the client's address, or "" if it has none.

        Args:
            client: The connection's address and port, or None.
            forwarded: The X-Forwarded-For lines.
        """
        # Use the last line: HAProxy adds its own after those that the client sent.
        proxy_address = "".join(forwarded[-1:]).rpartition(",")[2].strip() if self.trust_proxy else ""
        return proxy_address or (client[0] if client else "")
