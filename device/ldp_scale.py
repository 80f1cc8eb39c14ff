"""Bins on a logarithmic scale, for a number with `scale` "log". Copy this file next to ldp_client.py.

The edges e_0 < e_1 < ... < e_bins are integers in milli-units, the same on every board and server:

    e_0 = low,   e_i+1 = e_i + max(1, floor(e_i * growth / 2**20))

growth is the largest integer with e_bins <= high; then e_bins is set to high. Bin i holds readings from e_i
up to, but not including, e_i+1. Everything below low, such as 0 and negative numbers, is in bin 0, and
everything from high upwards in the last bin. low is at least 1, and high - low at least `bins`, of which
there are at most 256.

Only the step from a reading to its index differs from that of equal bins; it takes the same number of steps
for every reading.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from array import array

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client

const = ldp_client.const
_MAX_BINS = const(256)
_UNIT_BITS = const(20)  # growth is in units of 2**-20
_GROWTH_BITS = const(40)  # high is at most 2**40, so growth is below 2**40 for 2 bins or more

_take_number, _bucket_number = ldp_client.TYPES["number"]


def edges(low, high, bins):  # type: (int, int, int) -> array[int]
    """Return the edges in milli-units, bins + 1 integers, such as 1, 2, 4, 8 for low 1, high 8 and 3 bins."""
    growth = 0
    for bit in range(_GROWTH_BITS - 1, -1, -1):
        larger = growth | 1 << bit
        edge = low
        for _ in range(bins):
            edge += max(1, edge * larger >> _UNIT_BITS)
            if edge > high:
                break
        else:
            growth = larger
    result = array("q", [low])
    for _ in range(bins - 1):
        low += max(1, low * growth >> _UNIT_BITS)
        result.append(low)
    result.append(high)
    return result


class _Thousandths:
    """A number whose bins are 1 milli-unit wide, so that a reading's index is its distance from low."""

    type = "number"
    missing = None

    def __init__(self, low, high):
        self.low = low
        self.high = high
        self.domain = high - low


def _take(reading, fields):
    _take_number(reading, fields)
    if "scale" in fields:
        ldp_client.take_choice(fields, "scale", ("log",))
        low, high, bins = reading.low, reading.high, reading.missing or reading.domain
        ldp_client.check(low > 0, "scale log requires low above 0")
        ldp_client.check(
            bins <= min(_MAX_BINS, high - low), "scale log requires at most 256 bins of at least 0.001"
        )
        reading.edges = edges(low, high, bins)
        reading.thousandths = _Thousandths(low, high)
        reading._bucket = _bucket


def _bucket(reading, value):
    milli = _bucket_number(reading.thousandths, value)
    if milli < 0:  # the wrong type
        return -1
    milli += reading.low
    bins = len(reading.edges) - 1
    index = 0
    step = _MAX_BINS // 2
    while step:  # always 8 steps; milli is below high, the last edge
        index += step * (reading.edges[min(index + step, bins)] <= milli)
        step >>= 1
    return index


ldp_client.TYPES["number"] = (_take, _bucket_number)
