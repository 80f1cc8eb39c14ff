"""The benchmarks' experiments, in their published form."""

import json
from functools import cache
from typing import Any

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms.hashing.choice import best_hash
from hushmote.server.mechanisms.workload import ALL_RANGES


def payload(mechanism: str, domain: int, epsilon: int, **fields: Any) -> bytes:
    """Return an experiment's JSON over `domain` bins.

    Args:
        mechanism: The mechanism's name.
        domain: Number of bins.
        epsilon: Privacy parameter in micro-nats.
        **fields: Further fields; missing parameters of olh and hh are chosen by the variance formulas.
    """
    base = {"v": 1, "name": "bench", "type": "number", "low": 0, "high": 1_000_000, "bins": domain}
    base |= {"mechanism": mechanism, "epsilon": epsilon, "budget": {"rule": "unlimited"}, "window": "all"}
    if mechanism == "olh" and "g" not in fields:
        channel = best_hash(domain, epsilon)
        assert channel is not None
        fields |= {"g": channel.g}
    if mechanism == "hh" and "fanout" not in fields:
        fields |= oracle.choose(domain, epsilon, ALL_RANGES).fields()
    return json.dumps(base | fields).encode()


@cache
def _experiment(text: bytes) -> Experiment:
    return Experiment.parse(text)


def experiment(mechanism: str, domain: int, epsilon: int, **fields: Any) -> Experiment:
    """Return an experiment over `domain` bins, cached; see payload."""
    return _experiment(payload(mechanism, domain, epsilon, **fields))
