"""The page's settings."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..server.budgets.policy import Policy
from ..server.errors import UsageError, choose_name
from ..server.service.audit_log import AuditLog
from ..server.service.tokens import Tokens

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9419
_SELF = "'self'"
# An origin, whose host may begin with "*." for all of a domain's sites.
_SITE = re.compile(r"https?://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?")


@dataclass(frozen=True)
class PageSettings:
    """The page's address and content.

    Attributes:
        store: The URL of the store, which the page only reads.
        host: The address at which the page listens.
        port: The port at which the page listens.
        fleet: The only fleet to show, or None for all.
        aggregator: The URL of the aggregator's HTTP endpoint, or None not to monitor it.
        tokens: The tokens that readers need, or None to admit only this machine's readers.
        door: The HTTP door as an ASGI application, or None to let the board count reports in the browser.
        policy: The firmware's policy, to compute remaining budgets, or None if it is unknown.
        statement: The public statement, as document.read_public() returns it, or None.
        audit_log: The log of readers who opened the page, or None.
        frame_ancestors: The sites that may show the page in a frame, as parse_frame_ancestors() returns them.
        trusted_proxy: The IP address of a proxy that authenticates readers, or None.
    """

    store: str
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    fleet: str | None = None
    aggregator: str | None = None
    tokens: Tokens | None = field(default=None, repr=False)
    door: Any = field(default=None, repr=False)
    policy: Policy | None = None
    statement: dict[str, Any] | None = None
    audit_log: AuditLog | None = None
    frame_ancestors: tuple[str, ...] = ()
    trusted_proxy: str | None = None

    def missing_fleet_message(self, fleets: Sequence[str]) -> str:
        """Return an error message if the store does not have the page's fleet, otherwise ""."""
        statement_fleets = [] if self.statement is None else [self.statement["statement"]["fleet"]]
        try:
            for name in (self.fleet, *statement_fleets):
                if name is not None:
                    choose_name("fleet", name, fleets, "in this store")
        except UsageError as e:
            return str(e)
        return ""


def parse_address(text: str) -> str:
    """Return an IP address as connections state it.

    Raises:
        UsageError: If the text is not an address.
    """
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise UsageError(
            f"--trusted-proxy {text} is not an address; give the proxy's IP address, such as 172.30.32.2"
        ) from None


def parse_frame_ancestors(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the sites in texts, in the form of a Content-Security-Policy's frame-ancestors.

    Args:
        texts: Origins such as https://grafana.example:3000, or self, several to a text if separated by
            spaces or commas.

    Raises:
        UsageError: If one is neither.
    """
    sites: list[str] = []
    for site in " ".join(texts).replace(",", " ").split():
        if site in ("self", _SELF):
            sites.append(_SELF)
        elif _SITE.fullmatch(origin := site.lower().removesuffix("/")):
            sites.append(origin)
        else:
            raise UsageError(
                f"--frame-ancestors {site} is not a site; give its scheme and name without a path, such as "
                "https://grafana.example:3000 or https://*.example.org, or self"
            )
    return tuple(dict.fromkeys(sites))
