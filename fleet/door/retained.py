"""The messages that the broker retains for everyone: experiments, proofs and results, by fleet and name."""

import itertools
import re
from collections.abc import Iterable, Sequence

from ...server.wire.keys import is_withdrawal
from ...server.wire.topics import check_fleet

_NAME = r"[a-z0-9_-]{1,32}"
_TOPIC = re.compile(rf"hushmote/v1/({_NAME})/(experiment|proof|result)/({_NAME})", re.ASCII)
# A signed experiment has at most 1,093 bytes, a proof 1,600.
_MAX_BYTES = {"experiment": 2048, "proof": 2048, "result": 16_384}
_MAX_NAMES = 1024  # of each kind, since anyone who may publish could retain any number


def filters(
    fleets: Sequence[str] | None, experiments: Sequence[str] = ("+",), *, proofs: bool = False
) -> list[str]:
    """Return the MQTT topic filters to subscribe to.

    Args:
        fleets: Names of fleets; None for all.
        experiments: Names of experiments, or "+" for all.
        proofs: Whether to read the proofs of experiments from a public log.

    Raises:
        NameRefused: If a name is invalid.
    """
    levels = ["+"] if fleets is None else [check_fleet(name) for name in fleets]
    names = [name if name == "+" else check_fleet(name) for name in experiments]
    kinds = ["experiment", *(["proof"] if proofs else []), "result"]
    return [f"hushmote/v1/{f}/{kind}/{name}" for f in levels for kind in kinds for name in names]


class Retained:
    """Experiments, proofs and results as the broker last sent them; one thread writes, any thread may read.

    Args:
        fleets: Fleets that are valid even without an experiment. The attribute also has those that have one.
    """

    def __init__(self, fleets: Iterable[str] | None) -> None:
        self._named = frozenset(itertools.islice(fleets or (), _MAX_NAMES))
        self._payloads: dict[str, dict[tuple[str, str], bytes]] = {kind: {} for kind in _MAX_BYTES}
        self.fleets = self._named

    def take(self, topic: str, payload: bytes) -> None:
        """Store a message; an empty one clears its topic. Messages that are not ours are ignored."""
        match = _TOPIC.fullmatch(topic)
        if match is None:
            return
        fleet, kind, name = match.groups()
        payloads = dict(self._payloads[kind])  # copy, so that readers in other threads never see a change
        if not payload or len(payload) > _MAX_BYTES[kind]:
            payloads.pop((fleet, name), None)
        elif len(payloads) < _MAX_NAMES or (fleet, name) in payloads:
            payloads[fleet, name] = payload
        self._payloads[kind] = payloads
        self.fleets = self._named | {fleet for fleet, _ in self._payloads["experiment"]}

    def experiments(self, fleet: str) -> list[str]:
        """Return the names of a fleet's experiments that are not withdrawn, sorted."""
        payloads = self._payloads["experiment"].items()
        return sorted(
            name for (owner, name), payload in payloads if owner == fleet and not is_withdrawal(payload)
        )

    def get(self, kind: str, fleet: str, name: str) -> bytes | None:
        """Return the payload of an "experiment", a "proof" or a "result", or None if nothing is retained."""
        return self._payloads[kind].get((fleet, name))
