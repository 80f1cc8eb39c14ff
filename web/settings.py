"""What the page is told when it starts."""

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
    """Where the page listens and what it shows.

    store       URL of the store, which is only read
    host, port  where it listens
    fleet       the one fleet that is shown, or None for all
    aggregator  URL of the aggregator's HTTP endpoint, or None where nobody is to ask it
    tokens      readers have to know one, or None where only this machine's readers come
    door        the HTTP door as an ASGI application, or None: then the board counts in the browser
    policy      of the boards' firmware, for what they can still give, or None where nobody said it
    asked       the statement for everybody, as document.read_public() returns it, or None to show nobody
    audit_log   where it is noted who opened the page, or None to note it nowhere
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
        """What the page says if the store lacks a fleet that it should show; else empty."""
        statement_fleets = [] if self.statement is None else [self.statement["statement"]["fleet"]]
        try:
            for name in (self.fleet, *statement_fleets):
                if name is not None:
                    choose_name("fleet", name, fleets, "in this store")
        except UsageError as e:
            return str(e)
        return ""
