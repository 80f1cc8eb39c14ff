"""The package's exception, and the checks that raise it."""

import math
from numbers import Real

from ..errors import HushmoteError


class AccountingError(HushmoteError):
    """Raised for an invalid budget; the message says what was expected."""


def positive_number(name: str, value: float) -> float:
    """Return value as a float, or raise AccountingError unless it is positive and finite."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < math.inf:
        raise AccountingError(f"{name} must be a positive number of nats, not {value}")
    return float(value)


def probability(name: str, value: float, zero: bool = True) -> float:
    """Return value as a float, or raise AccountingError unless it is in [0, 1) and, without `zero`, not 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value < 1:
        raise AccountingError(f"{name} must be at least 0 and below 1, not {value}")
    if value == 0 and not zero:
        raise AccountingError(
            f"{name} must be above 0 (such as 1e-6), because at 0 only basic composition holds"
        )
    return float(value)


def whole_number(name: str, value: int, low: int = 1, high: int | None = None) -> int:
    """Return value as an int, or raise AccountingError unless it is a whole number in [low, high]."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < low:
        raise AccountingError(f"{name} must be a whole number of at least {low:,}, not {value}")
    if high is not None and value > high:
        raise AccountingError(f"{name} must be at most {high:,}, not {value:,}")
    return int(value)
