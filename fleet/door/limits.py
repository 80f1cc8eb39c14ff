"""Rate limits for a device, for a client address and overall: bounded token buckets."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_BUCKETS = 10_000
_IPV6_BITS = 64  # one subscriber's prefix; the subscriber can choose the rest of the address


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second in the long run, and the largest burst."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rates:
    """The door's limits: for one device from one client address, for one address, and overall.

    A device makes one report per hour, and sends up to 16 queued ones after an outage. An address may belong
    to a LoRaWAN server, or to a browser that simulates a thousand devices.
    """

    device: Rate = Rate(1, 20)
    address: Rate = Rate(200, 2_000)
    total: Rate = Rate(1_000, 3_000)


class Buckets:
    """A token bucket for each of the most recent keys.

    A forgotten key starts again with a full bucket; the other limits stop a client that uses many keys.

    Args:
        rate: Each bucket's rate and burst.
        max_keys: The number of keys to remember.
        clock: Returns monotonic seconds.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], max_keys: int = MAX_BUCKETS) -> None:
        self._rate = rate
        self._clock = clock
        self._max_keys = max_keys
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()  # key -> tokens, and time

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: object) -> int:
        """Take a token and return 0, or return the whole seconds until one is available."""
        now = self._clock()
        tokens, last = self._buckets.get(key, (float(self._rate.burst), now))
        tokens = min(self._rate.burst, tokens + (now - last) * self._rate.per_s)
        wait_s = 0 if tokens >= 1 else math.ceil((1 - tokens) / self._rate.per_s)
        self._buckets[key] = (tokens if wait_s else tokens - 1, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait_s


def client_of(address: str) -> str:
    """Return a client's key: its IPv4 address, or the first half of its IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""  # not a TCP address: all of these count as one client
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(parsed), _IPV6_BITS), strict=False))
    return str(parsed)
