"""Variance of one value's share in mechanisms for single values (rr, grr, olh and pgr), in closed form.

With s_v = 1 if a report supports v, else 0, and T the number of values that it supports, the estimate of a
share is the mean over reports of (s_v - q - (T - E T) / D) / (p - q): shares sum to 1, so the deviation of T
carries no information. The probability that a report of a third value supports two values at once depends on
whether the three are on one line in the space of digits. Lines through three values of range(D) are counted
exactly, over all values v.
"""

from functools import lru_cache

from ..channel import Channel


def frequency_variance(channel: Channel, share: float | None) -> float:
    """Return the variance, times reports, of the frequency of a value with a given share.

    The other values share the rest evenly. The variance includes the sampling of the population, and is a
    mean over values.

    Args:
        channel: The channel.
        share: The share, or None for the one with the largest variance.
    """
    constant, linear = _parabola(channel)
    if share is None:
        share = min(max(linear / 2, 0.0), 1.0)
    return constant + share * (linear - share)


@lru_cache(maxsize=4096)
def _parabola(channel: Channel) -> tuple[float, float]:
    """Return a and b of the variance a + b f - f² of the share f."""
    n, p, q, c, lie = channel.domain, channel.p, channel.q, channel.collision, channel.lie
    spread = p - q
    a, b = q * (1 - q), spread * (1 - 2 * q)
    if c and n > 2:
        on_line = channel.collinear / (n * (n - 1) * (n - 2))
        third = channel.off_line
        # The probability that a report of one of two values, or of a third (on average), supports both.
        own = c * p
        other = on_line * own + (1 - on_line) * (third * p + (c - third) * lie)
        supported = p + (n - 1) * q  # E T, whatever the value
        squared = supported + 2 * (n - 1) * own + (n - 1) * (n - 2) * other  # E T²
        a -= 2 / n * (q + own + (n - 2) * other - q * supported)
        a += (squared - supported**2) / n**2
        b -= 2 / n * (spread + (n - 2) * (own - other) - spread * supported)
    return a / spread**2, b / spread**2
