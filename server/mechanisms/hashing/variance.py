"""The closed-form variance of a single value's share in rr, grr, olh and pgr.

Let s_v be 1 if a report supports v, else 0, and T the number of values that it supports. The estimate of a
share is the mean over reports of (s_v - q - (T - E T) / D) / (p - q), where the deviation of T carries no
information because shares sum to 1. The probability that a report of a third value supports two given values
depends on whether the three are collinear in digit space. Collinear triples in range(D) are counted exactly,
over all values v.
"""

from functools import lru_cache

from ..channel import Channel


def frequency_variance(channel: Channel, share: float | None) -> float:
    """Return the variance of a value's frequency at this share, times the number of reports.

    The other values share the rest evenly. The variance includes population sampling and is averaged over
    values.

    Args:
        channel: The channel.
        share: The share, or None for the share with the largest variance.
    """
    constant, linear = _parabola(channel)
    if share is None:
        share = min(max(linear / 2, 0.0), 1.0)
    return constant + share * (linear - share)


@lru_cache(maxsize=4096)
def _parabola(channel: Channel) -> tuple[float, float]:
    """Return a and b in the variance a + b f - f² at a share of f."""
    n, p, q, c, lie = channel.domain, channel.p, channel.q, channel.collision, channel.lie
    spread = p - q
    a, b = q * (1 - q), spread * (1 - 2 * q)
    if c and n > 2:
        on_line = channel.collinear / (n * (n - 1) * (n - 2))
        third = channel.off_line
        # The probability that a report of either of two values, or of a third (on average), supports both.
        if_own = c * p
        if_third = on_line * if_own + (1 - on_line) * (third * p + (c - third) * lie)
        supported = p + (n - 1) * q  # E T, for any value
        squared = supported + 2 * (n - 1) * if_own + (n - 1) * (n - 2) * if_third  # E T²
        a -= 2 / n * (q + if_own + (n - 2) * if_third - q * supported)
        a += (squared - supported**2) / n**2
        b -= 2 / n * (spread + (n - 2) * (if_own - if_third) - spread * supported)
    return a / spread**2, b / spread**2
