"""rr and grr: randomized response, which reports the true value with probability p, otherwise another one.

Privacy:
    p = e^ε/(e^ε + D - 1), rounded down, which keeps the ratio of a code's probabilities at most e^ε.

Utility:
    The lowest possible variance for domains smaller than 3 e^ε + 2.

Cost:
    D codes.

Auto:
    yes-or-no questions; shares of single values if they are few for their ε.

Citation:
    Warner, JASA 1965; Kairouz, Bonawitz, Ramage, "Discrete distribution estimation under local privacy", ICML
    2016.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..arrays import Counts, Floats
from .choice import Choice
from .decoded_histogram import Spread
from .hashing.choice import flat_channel
from .hashing.variance import frequency_variance
from .support_mechanisms import SupportDecoded, SupportMechanism
from .workload import Workload


class Direct(SupportMechanism):
    """The mechanisms rr and grr; a report supports one value, so all moments have closed forms."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "bool", "mechanism": "rr"},
        {"type": "bool", "mechanism": "grr"},
        {"type": "bool", "missing": 1, "mechanism": "grr"},
        {"type": "choice", "labels": ["a", "b", "c"], "mechanism": "grr"},
        {"type": "number", "low": 0, "high": 1000, "bins": 12, "mechanism": "grr"},
    )
    direct: ClassVar[bool] = True

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        channel = flat_channel(domain, domain, epsilon)
        if channel is not None and domain == 2:  # one value's share determines the other's
            yield Choice("rr", (), channel.variance)
        elif channel is not None and workload.kind == "frequencies":
            yield Choice("grr", (), frequency_variance(channel, workload.share))

    def frequency_variance(self, share: float | None) -> float:
        return frequency_variance(self.codes[0].channel, share)

    @property
    def plainly(self) -> str:
        if self.experiment.type == "bool":
            return "Each device tells the truth somewhat more often than the opposite."
        return "Each device names its true value somewhat more often than any other one."

    def decode(self, counts: Counts) -> SupportDecoded:
        return DirectDecoded(self, self.collapse(counts))


class DirectDecoded(SupportDecoded):
    """A histogram of direct answers, each of which either supports a statistic or does not."""

    @cached_property
    def frequency_spread(self) -> Spread:
        return self._binomial(self._leaf.supports)

    @cached_property
    def cdf_spread(self) -> Spread:
        return self._binomial(np.cumsum(self._leaf.supports))

    def ranges(self, low: npt.NDArray[np.integer], high: npt.NDArray[np.integer]) -> Spread | None:
        supports = np.append(0.0, np.cumsum(self._leaf.supports))
        return self._binomial(supports[high] - supports[low])

    def rare_variance(self) -> float:
        return self.codes[0].channel.variance / self.reports[0]

    def _binomial(self, supports: Floats) -> Spread:
        """Return the moments of statistics that a report supports or not, from shares of shape (n,)."""
        share = np.clip(supports, 0, 1)
        variance = share * (1 - share)
        data = self._leaf.data
        skew = (1 - 2 * share) * data.code.scale / data.reports
        return Spread(variance * data.factor, np.where(variance > 0, skew, 0))
