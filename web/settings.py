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
        store: URL of the store, which is only read.
        host, port: Where it listens.
        fleet: The one fleet that is shown, or None for all.
        aggregator: URL of the aggregator's HTTP endpoint, or None if it is not monitored.
        tokens: Required from readers, or None if only this machine's readers are admitted.
        door: The HTTP door as an ASGI application, or None: then the board counts in the browser.
        policy: Of the boards' firmware, for their remaining budgets, or None if it is unknown.
        statement: The public statement, as document.read_public() returns it, or None.
        audit_log: Records who opened the page, or None.
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

    def absent(self, fleets: Sequence[str]) -> str:
        """Return the message for a store without the fleet that the page should show, or ""."""
        statement_fleets = [] if self.statement is None else [self.statement["statement"]["fleet"]]
        try:
            for name in (self.fleet, *statement_fleets):
                if name is not None:
                    choose_name("fleet", name, fleets, "in this store")
        except UsageError as e:
            return str(e)
        return ""
