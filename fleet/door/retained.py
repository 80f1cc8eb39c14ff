"""What is retained at the broker for everybody: experiments and published results, by fleet and name."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ...server.wire.keys import is_withdrawal
from ...server.wire.topics import check_fleet

_NAME = r"[a-z0-9_-]{1,32}"
_TOPIC = re.compile(rf"hushmote/v1/({_NAME})/(experiment|result)/({_NAME})", re.ASCII)
_MOST_BYTES = {"experiment": 2048, "result": 16_384}  # the largest experiment has 1,093 with its signature
_MOST_NAMES = 1024  # of each kind; anyone who may publish there could retain any number


def filters(fleets: Sequence[str] | None) -> list[str]:
    """Return the MQTT topic filters of what is kept; fleets: names, None for all. Raises NameRefused."""
    names = ["+"] if fleets is None else [check_fleet(name) for name in fleets]
    return [f"hushmote/v1/{name}/{kind}/+" for name in names for kind in _MOST_BYTES]


class Retained:
    """Experiments and results as the broker last sent them; one thread writes, any may read.

    fleets: names of fleets that are known even without an experiment. known: these and those with one.
    """

    def __init__(self, fleets: Iterable[str] | None) -> None:
        self._named = frozenset(itertools.islice(fleets or (), _MOST_NAMES))
        self._payloads: dict[str, dict[tuple[str, str], bytes]] = {kind: {} for kind in _MOST_BYTES}
        self.fleets = self._named

    def take(self, topic: str, payload: bytes) -> None:
        """Note a message; an empty one clears its topic, and messages that cannot be ours are ignored."""
        match = _TOPIC.fullmatch(topic)
        if match is None:
            return
        fleet, kind, name = match.groups()
        payloads = dict(self._payloads[kind])  # replaced at once: a reader has the old or the new one
        if not payload or len(payload) > _MOST_BYTES[kind]:
            payloads.pop((fleet, name), None)
        elif len(payloads) < _MOST_NAMES or (fleet, name) in payloads:
            payloads[fleet, name] = payload
        self._payloads[kind] = payloads
        self.fleets = self._named | {fleet for fleet, _ in self._payloads["experiment"]}

    def experiments(self, fleet: str) -> list[str]:
        """Return the names of a fleet's experiments, sorted, without withdrawn ones."""
        payloads = self._payloads["experiment"].items()
        return sorted(
            name for (owner, name), payload in payloads if owner == fleet and not is_withdrawal(payload)
        )

    def get(self, kind: str, fleet: str, name: str) -> bytes | None:
        """Return the bytes of an "experiment" or "result", None if nothing is retained."""
        return self._payloads[kind].get((fleet, name))
