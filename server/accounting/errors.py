"""The package's exception, and the checks that raise it."""

import math
from numbers import Real

from ..errors import HushmoteError


class AccountingError(HushmoteError):
    """Raised for an invalid budget; the message says what was wrong and what would be right."""


def positive(name: str, value: float) -> float:
    """Return value as a float, or raise AccountingError unless it is a finite number above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
        raise AccountingError(f"{name} is a number above 0 (nats), not {value}")
    return float(value)


def probability(name: str, value: float, zero: bool = True) -> float:
    """Return value as a float, or raise AccountingError unless in [0, 1), or in (0, 1) without `zero`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise AccountingError(f"{name} is a number from 0 to below 1, not {value}")
    if value == 0 and not zero:
        raise AccountingError(f"{name} must be above 0 here (1e-6, say): at 0 only basic composition holds")
    return float(value)


def whole(name: str, value: int, low: int = 1, high: int | None = None) -> int:
    """Return value as an int, or raise AccountingError unless it is a whole number in [low, high]."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < low:
        raise AccountingError(f"{name} is a whole number from {low:,} up, not {value}")
    if high is not None and value > high:
        raise AccountingError(f"{name} is at most {high:,}, not {value:,}")
    return int(value)
