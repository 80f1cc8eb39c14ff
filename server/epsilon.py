"""The ε of a report: an integer number of micro-nats in code and on boards, nats in text for people."""

import math
from collections.abc import Callable
from decimal import Decimal

from ..device.ldp_client import EPSILON_MAX, EPSILON_MIN

MICRO = 1_000_000
"""Micro-nats in a nat."""

SCALES = {"sum": MICRO, "squares": MICRO * MICRO, "count": 1}
"""The factor that converts a file's cap to a board's, for each rule with a cap."""

LEAST: int = EPSILON_MIN
"""The smallest ε of a report that boards accept, micro-nats."""

MOST: int = EPSILON_MAX
"""The largest ε of a report that boards accept, micro-nats."""


def micro_nats(nats: float, error: type[Exception]) -> int:
    """Convert an ε in nats to micro-nats; raise `error` unless the result is an integer above 0."""
    whole = round(nats * MICRO) if math.isfinite(nats) else 0
    if whole < 1 or abs(whole - nats * MICRO) > 1e-6:
        raise error(f"epsilon must be a positive multiple of one millionth, not {nats}")
    return whole


def nats(micro: int) -> str:
    """Format micro-nats exactly as nats, without trailing zeros."""
    return f"{Decimal(micro) / MICRO:f}"


def check_epsilon(
    micro: float, error: Callable[[str], Exception], name: str = "epsilon", original: object = None
) -> None:
    """Raise `error` unless boards accept this ε for a report: 1,000 to 16,000,000 micro-nats.

    Args:
        micro: ε in micro-nats.
        error: The class of the error.
        name: The name in the message.
        original: The value as the user wrote it, if not in micro-nats.
    """
    if not EPSILON_MIN <= micro <= EPSILON_MAX:
        value = f"{micro / MICRO:.12g}" if original is None else original
        text = f"{name} must be from 0.001 to 16, not {value}"
        if EPSILON_MIN <= micro / MICRO <= EPSILON_MAX:
            text += f"; boards count in millionths, but here write {micro / MICRO**2:g}"
        raise error(text)
