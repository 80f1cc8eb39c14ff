"""Probabilities as people write them."""

from __future__ import annotations

from fractions import Fraction

from ...server.privacy.beliefs import DisclosureError


def fraction(text: str, what: str) -> Fraction:
    """Return the number in "0.25", "1/4" or "1e-6", exactly; DisclosureError otherwise."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise DisclosureError(f"{what} is a number such as 0.25 or 1/4, not {text}") from None
