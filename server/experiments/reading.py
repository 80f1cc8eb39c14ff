"""What boards read, as the analyst wrote it: its type, its labels or its range, its unit."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..errors import HushmoteError
from .budget import Quantity
from .payload import Fields

MILLI = 1_000


class DefinitionError(HushmoteError):
    """An experiment file that does not fit; the text says which field and what would be right.

    field: its name, as the text begins with it; empty where it is about several or about none.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def without_nul(text: str) -> str:
    """Return a text; ValueError where a database would not keep it."""
    if "\0" in text:
        raise ValueError("the character \\u0000 is in it, which no database keeps: leave it out")
    return text


class ReadingDefinition(BaseModel):
    """What a board reads, as the analyst wrote it; low and high in its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["bool", "choice", "number"]
    labels: tuple[str, ...] | None = None
    unit: Annotated[str, Field(max_length=20), AfterValidator(without_nul)] = ""
    low: Quantity | None = None
    high: Quantity | None = None
    bins: int | None = None

    @property
    def domain(self) -> int:
        """Number of indices a reading can fall into."""
        if self.type == "choice":
            return len(self.labels or ()) + 1
        return 2 if self.type == "bool" else (self.bins or 0)

    def type_fields(self) -> Fields:
        """The same for boards; DefinitionError for low or high that no integer holds."""
        fields: Fields = {"type": self.type}
        if self.type == "choice":
            fields["labels"] = list(self.labels or ())
        if self.type == "number":
            fields["low"] = whole(self.low, MILLI, "low", "thousandths of its unit")
            fields["high"] = whole(self.high, MILLI, "high", "thousandths of its unit")
            fields["bins"] = self.bins
        return fields


def whole(value: Decimal | None, scale: int, name: str, grain: str) -> int:
    """A quantity times scale; DefinitionError where that is not whole."""
    scaled = (value or Decimal(0)) * scale
    if scaled != scaled.to_integral_value():
        raise DefinitionError(f"{name} must be a whole number of {grain}, not {value}")
    return int(scaled)
