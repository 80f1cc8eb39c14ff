"""How many requests a device, a client address and all together may make: bounded token buckets."""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_BUCKETS = 10_000
_IPV6_BITS = 64  # one subscriber's prefix: a subscriber can choose the rest of the address


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second in the long run, and how many may come at once."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rates:
    """The door's limits: for one device from one client address, for one address, and for all together.

    A device has a report an hour, and sends 16 that waited after an outage. An address may belong to a
    LoRaWAN server, or to a browser that plays a thousand devices.
    """

    device: Rate = Rate(1, 20)
    address: Rate = Rate(200, 2_000)
    total: Rate = Rate(1_000, 3_000)


class Buckets:
    """A bucket of tokens for each key, for the `most` most recent keys; clock: seconds, monotonic.

    A forgotten key begins with a full bucket: the other limits hold a client that uses many keys.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()  # key -> tokens, and time

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: object) -> int:
        """Take a token; returns 0, or the whole seconds until there is one."""
        now = self._clock()
        tokens, then = self._buckets.get(key, (float(self._rate.burst), now))
        tokens = min(self._rate.burst, tokens + (now - then) * self._rate.per_s)
        wait_s = 0 if tokens >= 1 else math.ceil((1 - tokens) / self._rate.per_s)
        self._buckets[key] = (tokens if wait_s else tokens - 1, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return wait_s


def client_of(address: str) -> str:
    """Return a client's key: its IPv4 address, or the first half of its IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""  # no TCP address: they count as one client
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(parsed), _IPV6_BITS), strict=False))
    return str(parsed)
