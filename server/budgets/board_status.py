"""Parse the output of a device's `client.status()`, which contains its remaining reports."""

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
    """Raised if a text is not the output of client.status(); the message says what was expected."""


class _Status(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, populate_by_name=True)


class BoardLine(_Status):
    """One experiment on a board.

    Attributes:
        name: The experiment's name.
        state: Whether the experiment is reporting, has spent its budget, is refused, or is absent.
        made: The number of reports made so far.
        left: The number of reports left, or None if unknown.
        epsilon: The ε of a report, in micro-nats, or None if the board is not enrolled.
        reason: Why the board refuses it, or None.
    """

    name: str
    state: Literal["reporting", "spent", "refused", "absent"]
    made: Count = Field(validation_alias="reports")
    left: Count | None = None
    epsilon: Count | None = None
    reason: str | None = None

    def days(self, per_day: float) -> float | None:
        """Return the days until the budget runs out at `per_day` (> 0) reports per day; None if unknown."""
        return None if self.left is None else self.left / per_day


class BoardStatus(_Status):
    """A board's ledger.

    Attributes:
        locked: Why the ledger is locked, or None.
        consent: The board's consent, or None if it has not been asked for.
        pending: The number of reports waiting to be sent.
        sum: The lifetime's Σε, in micro-nats.
        squares: The lifetime's Σε², in micro-nats squared.
        experiments: The experiments.
    """

    locked: str | None
    consent: bool | None
    pending: Count
    sum: Count
    squares: Count
    experiments: Annotated[tuple[BoardLine, ...], Field(strict=False)]

    def lifetime_use(self, policy: Policy) -> dict[str, Any]:
        """Return how much of a policy's lifetime budget is used, and whether all of it is spent."""
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
    """Parse a status from a text: JSON, or a dict as Python prints it, alone or on the last line.

    Raises:
        StatusRefused: If the text is neither.
    """
    fields = _parse_fields(text)
    try:
        lines = [{"name": name, **line} for name, line in fields["experiments"].items()]
        return BoardStatus.model_validate({**fields, "experiments": lines})
    except ValidationError as e:
        first = e.errors()[0]
        wrong = f"{'.'.join(map(str, first['loc']))} {wrong_value(first)}"
    except (KeyError, TypeError, AttributeError):
        wrong = "experiments must be a table of fields"
    raise StatusRefused(f"{_NOT_STATUS}: {wrong}")


def _parse_fields(text: str) -> Mapping[str, Any]:
    lines = text.strip().splitlines()
    for part in (text.strip(), lines[-1] if lines else ""):
        for read in (json.loads, ast.literal_eval):
            try:
                status = read(part)
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
                continue
            if isinstance(status, dict):
                return status
    raise StatusRefused(f"{_NOT_STATUS}: give a dict, as JSON or as Python prints it")
