"""The case that an experiment's file was planned for, for simulations; boards never see it."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Part = Annotated[Decimal, Field(ge=0, le=1)]


class PlannedCase(BaseModel):
    """The table [planned]: the question and the fleet that the planned error is for.

    Attributes:
        of: The kind of question, as in planning's Question.
        share: As in planning's Question.
        width: As in planning's Question.
        ranges: As in planning's Question.
        spread: As in planning's Question.
        missing: The assumed share of the devices without a reading.
        devices: The number of devices.
        calls: How often each device calls report() in its lifetime.
        error: The half-width of the 95% interval of all their reports, a share of the devices or, for a mean,
            a fraction of the range.
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
