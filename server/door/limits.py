"""How much may be asked of a device, by a client address, and by all: token buckets, bounded in number."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MOST_BUCKETS = 10_000
_IPV6_BITS = 64  # what one subscriber gets: the rest of an address is his to choose


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second in the long run, and how many may come at once."""

    per_s: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rates:
    """What the door lets in: of one device from one client address, of one address, and of all together.

    A board has a report an hour, and sends 16 that waited after an outage. An address may be that of a
    LoRaWAN server, or of a browser that plays a thousand boards.
    """

    device: Rate = Rate(1, 20)
    address: Rate = Rate(200, 2_000)
    total: Rate = Rate(1_000, 3_000)


class Buckets:
    """A bucket of tokens for each key, the `most` that were asked for last; clock: seconds, monotonic.

    A key that was forgotten begins with a full bucket: who uses many keys is held by the other limits.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float], most: int = MOST_BUCKETS) -> None:
        self._rate = rate
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[object, tuple[float, float]] = OrderedDict()  # key -> tokens, and when

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: object) -> int:
        """Take a token; returns 0, or where there is none the whole seconds until there is one."""
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
    """Return what stands for a client: its IPv4 address, or the first half of its IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""  # no TCP address: all of these are one client
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(parsed), _IPV6_BITS), strict=False))
    return str(parsed)
