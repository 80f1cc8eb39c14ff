"""Look up composition theorems by name."""

import pkgutil

from .basic import Advanced, Basic, Unlimited
from .errors import AccountingError
from .filters import ZcdpFilter
from .optimal import Optimal
from .theorem import Theorem

THEOREMS: dict[str, type[Theorem]] = {x.name: x for x in (Basic, ZcdpFilter, Optimal, Advanced, Unlimited)}


def choose(name: str, total: float | None = None, delta: float = 0.0) -> Theorem:
    """Return the named theorem with this total and delta.

    Args:
        name: One of THEOREMS, or "package.module:Class" for a custom theorem.
        total: The limit on the loss of all reports, in nats; None only for "none".
        delta: The probability that the limit may fail, in [0, 1).

    Raises:
        AccountingError: If the name is unknown, or total and delta do not fit the theorem.
    """
    cls = THEOREMS.get(name) or _import_theorem(name)
    if total is None:
        if cls is not Unlimited:
            raise AccountingError(f"{name} composition needs a total in nats")
        return Unlimited(delta=delta)
    return cls(total, delta)


def _import_theorem(name: str) -> type[Theorem]:
    try:
        candidate = pkgutil.resolve_name(name) if ":" in name else None
    except (ImportError, AttributeError, ValueError) as error:
        raise AccountingError(f"unknown theorem {name}: {error}") from None
    if not (isinstance(candidate, type) and issubclass(candidate, Theorem)):
        names = ", ".join(THEOREMS)
        raise AccountingError(f"unknown theorem {name}; choose from {names}, or give package.module:Class")
    return candidate
