"""The case for which an experiment was planned; simulations use it, and boards never see it."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Part = Annotated[Decimal, Field(ge=0, le=1)]


class PlannedCase(BaseModel):
    """The [planned] table: the question and the fleet for which the error was planned.

    Attributes:
        of: The kind of question, as in planning's Question.
        share: The value's or range's share, as in planning's Question.
        width: The range's width, as in planning's Question.
        ranges: The ranges, as in planning's Question.
        spread: The population's spread, as in planning's Question.
        missing: The assumed share of devices without a reading.
        devices: The number of devices.
        calls: How many times each device calls report() in its lifetime.
        error: The half-width of the 95% interval from all reports, as a share of the devices or, for a mean,
            as a fraction of the range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: Literal["frequency", "range", "quantile", "mean"]
    share: Part | None = None
    width: Annotated[int, Field(ge=1)] | None = None
    ranges: tuple[tuple[int, int], ...] = ()
    spread: Part | None = None
    missing: Part | None = None
    devices: Annotated[int, Field(ge=2)]
    calls: Annotated[int, Field(ge=1)] = 1
    error: Annotated[Decimal, Field(gt=0, le=1)]
