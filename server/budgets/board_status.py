"""The reports that one device has left, from the output of its `client.status()`."""

import ast
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import HushmoteError
from ..wrong_value import wrong_value
from .policy import Policy

Count = Annotated[int, Field(ge=0)]
_NOT_STATUS = "not what client.status() returns"


class StatusRefused(HushmoteError):
    """A text is not the output of client.status(); the message says what would be right."""


class _Status(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True)


class BoardLine(_Status):
    """One experiment on a board: reports sent so far, left, and ε in micro-nats (None: not enrolled)."""

    name: str
    state: Literal["reporting", "spent", "refused", "absent"]
    made: Count = Field(validation_alias="reports")
    left: Count | None = None
    epsilon: Count | None = None
    reason: str | None = None

    def days(self, per_day: float) -> float | None:
        """Return the days until it is silent at per_day reports a day, > 0; None if `left` is unknown."""
        return None if self.left is None else self.left / per_day


class BoardStatus(_Status):
    """A board's ledger. sum: Σε in micro-nats, squares: Σε² in micro-nats squared, of its whole lifetime."""

    locked: str | None
    consent: bool | None
    pending: Count
    sum: Count
    squares: Count
    experiments: Annotated[tuple[BoardLine, ...], Field(strict=False)]

    def lifetime_use(self, policy: Policy) -> dict[str, Any]:
        """Return how much of a policy's lifetime budget is used, and whether it is spent."""
        reports_left = [
            policy.remaining_reports(e.epsilon, self.sum, self.squares) for e in self.experiments if e.epsilon
        ]
        return {
            "sum": self.sum / 1e6,
            "sum_cap": policy.sum / 1e6,
            "squares": self.squares / 1e12,
            "squares_cap": policy.squares / 1e12,
            "spent": bool(reports_left) and max(reports_left) == 0,
        }


def parse(text: str) -> BoardStatus:
    """Return the status in a text: JSON, or the dict as Python prints it, alone or on the last line.

    Raises StatusRefused.
    """
    fields = _fields(text)
    try:
        lines = [{"name": name, **line} for name, line in fields["experiments"].items()]
        return BoardStatus.model_validate({**fields, "experiments": lines})
    except ValidationError as e:
        first = e.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))} {wrong_value(first)}"
    except (KeyError, TypeError, AttributeError):
        wrong = "experiments must be a table of fields"
    raise StatusRefused(f"{_NOT_STATUS}: {wrong}")


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
    raise StatusRefused(f"{_NOT_STATUS}: it is a dict, as JSON or as Python prints it")
