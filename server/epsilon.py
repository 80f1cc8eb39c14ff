"""The ε of one report: a whole number of micro-nats in code and on boards, nats in texts for people."""

import math
from collections.abc import Callable
from decimal import Decimal

from ..device.ldp_client import EPSILON_MAX, EPSILON_MIN

MICRO = 1_000_000
"""Micro-nats in a nat."""

SCALES = {"sum": MICRO, "squares": MICRO * MICRO, "count": 1}
"""The factor from a file's cap to a board's, for each rule that has one."""

LEAST: int = EPSILON_MIN
"""The smallest ε of a report that boards accept, micro-nats."""

MOST: int = EPSILON_MAX
"""The largest one."""


def micro_nats(nats: float, error: type[Exception]) -> int:
    """Return an ε in nats as micro-nats; raise `error` unless that is a whole number above 0."""
    whole = round(nats * MICRO) if math.isfinite(nats) else 0
    if whole < 1 or abs(whole - nats * MICRO) > 1e-6:
        raise error(f"epsilon is a whole number of millionths above 0, not {nats}")
    return whole


def nats(micro: int) -> str:
    """Return the exact number of nats in micro-nats, without trailing zeros."""
    return f"{Decimal(micro) / MICRO:f}"


def check_epsilon(
    micro: float, error: Callable[[str], Exception], name: str = "epsilon", original: object = None
) -> None:
    """Raise `error` unless boards accept the micro-nats for one report: 1,000 to 16,000,000.

    Args:
        micro: ε in micro-nats.
        error: The class of the error.
        name: The name in the message.
        original: The value as it was written, if it was not in micro-nats.
    """
    if not EPSILON_MIN <= micro <= EPSILON_MAX:
        value = f"{micro / MICRO:.12g}" if original is None else original
        text = f"{name} must be from 0.001 to 16, not {value}"
        if EPSILON_MIN <= micro / MICRO <= EPSILON_MAX:
            text += f": boards count millionths, here write {micro / MICRO**2:g}"
        raise error(text)
