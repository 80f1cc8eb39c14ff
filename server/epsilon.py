"""The ε of one report: a whole number of micro-nats in code and on boards, nats where people read it."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ..device.ldp_client import EPSILON_MAX, EPSILON_MIN

MICRO = 1_000_000
"""Micro-nats in a nat."""

LEAST: int = EPSILON_MIN
"""The smallest ε of a report that boards take, micro-nats."""

MOST: int = EPSILON_MAX
"""The largest one."""


def micro_nats(nats: float, error: type[Exception]) -> int:
    """Return an ε in nats as micro-nats; raises error where they are not a whole number above 0."""
    whole = round(nats * MICRO) if math.isfinite(nats) else 0
    if whole < 1 or abs(whole - nats * MICRO) > 1e-6:
        raise error(f"epsilon is a whole number of millionths above 0, not {nats}")
    return whole


def nats(micro: int) -> str:
    """The exact number of nats in micro-nats, without zeros at its end."""
    return f"{Decimal(micro) / MICRO:f}"


def rounded_up(nats: float | None) -> str:
    """An ε in nats with three digits, never less than it is: 0.0516 for 0.051513; a dash where none holds."""
    if nats is None:
        return "–"
    if not nats:
        return "0"
    unit = Decimal(10) ** (math.floor(math.log10(nats)) - 2)
    return f"{float((Decimal(repr(nats)) / unit).to_integral_value(ROUND_CEILING) * unit):g}"


def rounded_down(nats: float) -> str:
    """An ε in nats with three digits or three decimals, never more than it is: 1.098 for 1.098612."""
    if not nats:
        return "0"
    unit = Decimal(10) ** min(math.floor(math.log10(nats)) - 2, -3)
    return f"{(Decimal(repr(nats)) / unit).to_integral_value(ROUND_FLOOR) * unit:f}".rstrip("0").rstrip(".")


def belief(nats: float, what: str = "a reading", seen: str = "the report") -> str:
    """What reports can tell at most, as a sentence that needs no ε; rounded up.

    nats: of all the reports that are seen. what: a value that somebody gave 1 chance in 10 beforehand. seen:
    the reports. The bound holds for any prior and any knowledge (Kasiviswanathan and Smith 2014): odds
    grow by e^ε at most.
    """
    odds = math.exp(min(nats, 700.0)) / 9
    in_100 = math.ceil(100 * odds / (1 + odds))
    if in_100 >= 100:
        return f"Who gave {what} 1 chance in 10 can be all but certain of it after seeing {seen}."
    return f"Who gave {what} 1 chance in 10 gives it at most {in_100} in 100 after seeing {seen}."


def check_epsilon(micro: float, error: type[Exception], name: str = "epsilon", shown: object = None) -> None:
    """Raise error unless boards take the micro-nats for one report: 1,000 to 16,000,000.

    name: what the text calls them. shown: how they were given, if not as micro-nats.
    """
    if not EPSILON_MIN <= micro <= EPSILON_MAX:
        given = f"{micro / MICRO:g}" if shown is None else shown
        raise error(f"{name} must be from 0.001 to 16, not {given}")
