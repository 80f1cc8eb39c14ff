"""The page's settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..server.budgets.policy import Policy
from ..server.errors import UsageError, choose_name
from ..server.service.audit_log import AuditLog
from ..server.service.tokens import Tokens

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 9419


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
