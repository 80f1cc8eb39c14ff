"""The messages that wait for a board while it is away, and what it answers afterwards, for every client."""

import hashlib
from dataclasses import dataclass
from typing import Any

from experiments import experiment_json


@dataclass(frozen=True)
class Waiting:
    """A retained message that replaces another one while the board is away.

    Attributes:
        name: The experiment's name in the topic.
        before: The message that the board knows, or None.
        message: The message that waits; empty for a withdrawal.
        in_force: The experiment that the board answers afterwards, or None.
        reason: Why boards refuse the message, or "".
    """

    name: str
    before: bytes | None
    message: bytes
    in_force: bytes | None
    reason: str = ""


def _usual(name: str, **changes: Any) -> bytes:
    return experiment_json(name=name, **changes)


def _refused(name: str, message: bytes, reason: str) -> Waiting:
    """Return a case whose message leaves the earlier experiment in force."""
    return Waiting(name, _usual(name), message, _usual(name), reason)


_CHANGED = _usual("changed", epsilon=500_000)
_UNLIMITED = _usual("wrong_rule", budget={"rule": "unlimited"})
WAITING = (
    Waiting("changed", _usual("changed"), _CHANGED, _CHANGED),
    _refused("garbled", b"{}", "v is missing"),
    _refused("large", _usual("large", epsilon=500_000) + b" " * 1024, "larger than 1024 bytes"),
    Waiting("new", None, _usual("new"), _usual("new")),
    # Processed after the experiment that it would replace.
    _refused("other_name", _usual("changed", epsilon=400_000), "its name is changed"),
    _refused(
        "pinned", _usual("pinned", budget={"rule": "count", "cap": 4}), "its budget rule was pinned as sum"
    ),
    _refused("too_high", _usual("too_high", epsilon=3_000_000), "epsilon is above the policy's 2000000"),
    Waiting("unchanged", _usual("unchanged"), _usual("unchanged"), _usual("unchanged")),
    Waiting("withdrawn", _usual("withdrawn"), b"", None),
    Waiting("wrong_rule", None, _UNLIMITED, None, "the policy forbids budget rule unlimited"),
)
WAITING_NAMES = [case.name for case in WAITING]
WAITING_POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 2_000_000,
    "rules": ["sum", "count"],
    "experiments": WAITING_NAMES,
}
WAITING_REASONS = {case.name: case.reason for case in WAITING if case.reason}
REFUSED_WORDS = "".join(f" refused:{name}" for name in WAITING_REASONS)
"""The end of the status message of a board that has read all of them."""


def digests_of(reports: list[bytes]) -> list[bytes]:
    """Return the digests of the experiments that the reports answer, sorted."""
    return sorted(report[1:5] for report in reports)


def digests_in_force() -> list[bytes]:
    """Return the sorted digests of the experiments that are in force afterwards."""
    in_force = [case.in_force for case in WAITING if case.in_force is not None]
    return sorted(hashlib.sha256(payload).digest()[:4] for payload in in_force)
