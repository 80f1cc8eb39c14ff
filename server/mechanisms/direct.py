"""rr and grr: the value itself, kept with probability p, else one of the others: randomized response.

Privacy: p = e^ε/(e^ε + D - 1), rounded down, so that no code's chances differ by more than e^ε. Utility: the
least variance there is for domains below 3 e^ε + 2. Cost: D codes.
Citation: Warner, JASA 1965; Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local
privacy", ICML 2016.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from .supports import SupportMechanism


class Direct(SupportMechanism):
    """The mechanisms rr and grr; a report supports one value, so that all moments have closed forms."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "bool", "mechanism": "rr"},
        {"type": "bool", "mechanism": "grr"},
        {"type": "choice", "labels": ["a", "b", "c"], "mechanism": "grr"},
        {"type": "number", "low": 0, "high": 1000, "bins": 12, "mechanism": "grr"},
    )
    direct: ClassVar[bool] = True
