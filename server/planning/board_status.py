"""What one board can still give, from what `client.status()` returned there."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import HushmoteError
from .policy import Policy

_STATES = ("reporting", "spent", "refused", "absent")


class StatusRefused(HushmoteError):
    """A text that is not what client.status() returns; the text says what would be right."""


@dataclass(frozen=True)
class BoardLine:
    """One experiment on a board: reports made in its life, left, and ε in micro-nats (None: not enrolled)."""

    name: str
    state: str
    made: int
    left: int | None
    epsilon: int | None
    reason: str | None

    def days(self, per_day: float) -> float | None:
        """Days until it is silent at per_day reports a day, > 0; None where what is left is not known."""
        return None if self.left is None else self.left / per_day


@dataclass(frozen=True)
class BoardStatus:
    """A board's own ledger. sum: Σε in micro-nats, squares: Σε² in micro-nats squared, of its whole life."""

    locked: str | None
    enabled: bool
    pending: int
    sum: int
    squares: int
    experiments: tuple[BoardLine, ...]

    def life(self, policy: Policy) -> dict[str, Any]:
        """How much of a policy's life is spent; whether its sum or its squares lets more reports through."""
        left = [policy.left(e.epsilon, self.sum, self.squares) for e in self.experiments if e.epsilon]
        return {
            "sum": self.sum / 1e6,
            "sum_cap": policy.sum / 1e6,
            "squares": self.squares / 1e12,
            "squares_cap": policy.squares / 1e12,
            "spent": bool(left) and max(left) == 0,
        }


def parse(text: str) -> BoardStatus:
    """Return the status in a text: JSON, or the dict as Python prints it, alone or as the last line.

    Raises StatusRefused.
    """
    fields = _fields(text)
    try:
        return BoardStatus(
            _text(fields["locked"]),
            _is(fields["enabled"], bool),
            _count(fields["pending"]),
            _count(fields["sum"]),
            _count(fields["squares"]),
            tuple(_line(name, line) for name, line in _is(fields["experiments"], dict).items()),
        )
    except (KeyError, TypeError, ValueError) as e:
        raise StatusRefused(
            f"not what client.status() returns: {e.args[0] if e.args else e} is wrong"
        ) from None


def _fields(text: str) -> Mapping[str, Any]:
    lines = text.strip().splitlines()
    for part in (text.strip(), lines[-1] if lines else ""):
        for read in (json.loads, ast.literal_eval):
            try:
                status = read(part)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(status, dict):
                return status
    raise StatusRefused("not what client.status() returns: it is a dict, as JSON or as Python prints it")


def _line(name: str, fields: Any) -> BoardLine:
    if not isinstance(name, str) or fields.get("state") not in _STATES:
        raise ValueError(f"the line of {name}")
    left, epsilon = fields.get("left"), fields.get("epsilon")
    return BoardLine(
        name,
        fields["state"],
        _count(fields["reports"]),
        None if left is None else _count(left),
        None if epsilon is None else _count(epsilon),
        _text(fields.get("reason")),
    )


def _is(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(str(value))
    return value


def _count(value: Any) -> int:
    if _is(value, int) < 0:
        raise ValueError(str(value))
    return value


def _text(value: Any) -> str | None:
    return None if value is None else _is(value, str)
