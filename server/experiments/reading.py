"""An experiment's reading as the analyst wrote it: its type, labels or range, and unit."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    WrapValidator,
    model_validator,
)

from ..errors import HushmoteError
from ..plain_text import describe_character, unusable_character
from ..wire.experiments import is_own_type
from .budget import Quantity, WholeNumber
from .payload import Fields
from .units import NO_READING

MILLI = 1_000
MAX_LOG_BINS = 256
"""The largest number of bins on a logarithmic scale; boards keep an edge for each in memory."""
MAX_SALT_BYTES, MAX_LABEL_BYTES = 32, 64
USUAL_SLOTS = 1 << 16
"""The default number of slots for texts; of 100 common texts, two share a slot with probability 7%."""
MAX_SLOTS = 1 << 20
LONGEST_PREFIX = 16
LONGEST_TEXT = 255
"""The number of a text's bytes that a board uses."""
MIN_SEARCH_SLOTS = 1 << 13  # with fewer slots, too many texts share a slot


class DefinitionError(HushmoteError):
    """Raised for an invalid experiment file; the message names the field and says what was expected.

    Attributes:
        field: The field's name, with which the message starts, or "" if the error is not about a single
            field.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def without_nul(text: str) -> str:
    """Return a text, or raise ValueError if it contains a NUL character, which databases reject."""
    if "\0" in text:
        raise ValueError("it contains the character \\u0000, which databases cannot store: remove it")
    return text


def check_board_text(what: str, text: str, max_bytes: int) -> None:
    """Raise ValueError unless boards accept a text and everyone who types it writes the same bytes.

    Args:
        what: What the text is, with which the message starts.
        text: The text. Boards accept what is_plain() does, without quotes. The form NFC is required, and soft
            hyphens and the like are refused, because two spellings that look the same would be different
            values, which boards cannot notice.
        max_bytes: The largest size in UTF-8.
    """
    refused = next((describe_character(c) for c in text if c in '"\\'), None) or unusable_character(text)
    if refused:
        raise ValueError(f"{what} {text!r:.100} contains {refused}, which boards refuse: remove it")
    # Joiners, which emoji and some scripts need, are allowed.
    if unseen := next((describe_character(c) for c in text if c in "\u00ad\u200b\u2060"), None):
        raise ValueError(f"{what} {text!a:.100} contains {unseen}, which nobody sees: remove it")
    if not unicodedata.is_normalized("NFC", text):
        raise ValueError(
            f"{what} {text!a:.100} is not in the Unicode form NFC, in which a letter and its accent are "
            f"one character: write {unicodedata.normalize('NFC', text)!r:.100}"
        )
    if not 1 <= (size := len(text.encode())) <= max_bytes:
        raise ValueError(f"{what} {text!r:.100} must have 1 to {max_bytes} bytes in UTF-8, not {size}")


def candidate_text(text: str) -> str:
    """Return a candidate text; raise ValueError unless it is a single line that a board uses in full."""
    size = len(text.encode(errors="surrogatepass"))
    if not 1 <= size <= LONGEST_TEXT:
        raise ValueError(
            f"a text must have 1 to {LONGEST_TEXT} bytes, all that boards use; {text[:20]!r} has {size:,}"
        )
    if text.splitlines() != [text]:
        raise ValueError(f"a text must be one line; {text[:20]!r} has more")
    return without_nul(text)


class _Values(BaseModel):
    """The possible values of a single reading; low and high are in the reading's unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    labels: tuple[str, ...] | None = None
    unit: Annotated[str, Field(max_length=20), AfterValidator(without_nul)] = ""
    low: Quantity | None = None
    high: Quantity | None = None
    bins: WholeNumber | None = None
    scale: Literal["log"] | None = None
    missing: StrictBool = False

    @property
    def domain(self) -> int:
        """The reading's number of indices, including the one for a missing reading."""
        if self.type == "choice":
            return len(self.labels or ()) + 1 + self.missing
        return (2 if self.type == "bool" else (self.bins or 0)) + self.missing

    def type_fields(self, name: str = "") -> Fields:
        """Return the fields for boards; raise DefinitionError if low or high is not whole in milli-units."""
        fields: Fields = {"type": self.type}
        if self.type == "choice":
            fields["labels"] = list(self.labels or ())
        if self.type == "number":
            fields["low"] = whole(self.low, MILLI, "low", "thousandths of its unit")
            fields["high"] = whole(self.high, MILLI, "high", "thousandths of its unit")
            fields["bins"] = self.bins
            fields |= {"scale": self.scale} if self.scale else {}
        if self.missing:
            fields["missing"] = 1
        return fields

    def check_values(self) -> None:
        """Raise ValueError if labels or a range are missing or do not belong to the type."""
        for label in self.labels or ():
            check_board_text("label", label, MAX_LABEL_BYTES)
        number = (self.low, self.high, self.bins)
        if self.type == "number" and None in number:
            raise ValueError("low, high and bins are needed for a number")
        if self.type != "number" and number != (None, None, None):
            raise ValueError("low, high and bins are only for a number")
        if self.scale is not None:
            self._check_scale()
        if (self.type == "choice") != (self.labels is not None) or self.labels == ():
            raise ValueError("labels are needed for a choice and only for a choice")
        if self.labels and "other" in self.labels:
            raise ValueError("the label other is always added as the last one: omit it")
        if self.labels and self.missing and NO_READING in self.labels:
            raise ValueError(f"the label {NO_READING} is added by missing: omit it")
        if self.missing and self.type == "pair":
            raise ValueError("missing belongs under [[of]], in each part that may have no reading")
        if self.missing and self.type == "text":
            raise ValueError(
                'a text does not support missing, as it is hashed: report a text such as "none" instead'
            )
        if self.missing and self.type not in ("bool", "choice", "number"):
            raise ValueError(f"a {self.type} does not support missing: omit it")

    def _check_scale(self) -> None:
        """Raise ValueError if the range or the bins do not suit a logarithmic scale."""
        if self.low is None or self.high is None or self.bins is None:
            raise ValueError("scale is only for a number")
        if self.low <= 0:
            raise ValueError(
                f'scale = "log" needs a low above 0, not {self.low}: lower readings fall into the first bin'
            )
        if self.bins > MAX_LOG_BINS:
            raise ValueError(f'scale = "log" needs at most {MAX_LOG_BINS} bins, not {self.bins}')
        if self.low < self.high and self.bins > (self.high - self.low) * MILLI:
            raise ValueError(
                f'scale = "log" needs bins of at least 0.001: {self.bins} do not fit between {self.low} and '
                f"{self.high}"
            )


class PartDefinition(_Values):
    """A part of a pair."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")]
    type: Literal["bool", "choice", "number"]

    @model_validator(mode="after")
    def _fits(self) -> PartDefinition:
        self.check_values()
        return self


def _own_type(value: Any, check: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, str) and is_own_type(value) else check(value)


class ReadingDefinition(_Values):
    """An experiment's reading as the analyst wrote it.

    Attributes:
        type: One of these types, or a type that a custom mechanism's board file registers, whose fields are
            the mechanism's parameters.
        salt: The salt for hashing texts.
        slots: A text's number of slots.
        prefixes: The lengths of a text's prefixes.
        of: A pair's parts.
    """

    type: Annotated[Literal["bool", "choice", "number", "text", "pair"], WrapValidator(_own_type)]
    salt: str | None = None
    slots: WholeNumber | None = None
    prefixes: tuple[int, ...] | None = None
    of: tuple[PartDefinition, ...] | None = None

    @model_validator(mode="after")
    def _texts_are_hashed(self) -> ReadingDefinition:
        if self.type != "text":
            if (self.salt, self.slots, self.prefixes) != (None, None, None):
                raise ValueError("salt, slots and prefixes are only for a text")
            return self
        if self.salt is not None:
            check_board_text("salt", self.salt, MAX_SALT_BYTES)
        if self.slots is not None and not (2 <= self.slots <= MAX_SLOTS and self.slots.bit_count() == 1):
            raise ValueError(f"slots must be a power of 2 from 2 to {MAX_SLOTS}, not {self.slots}")
        if self.prefixes is not None:
            sizes = list(self.prefixes)
            is_rising = sizes == sorted(sizes) and all(1 <= size <= LONGEST_PREFIX for size in sizes)
            if not is_rising or not 2 <= len(sizes) <= LONGEST_PREFIX or sizes[-1] != sizes[-2]:
                raise ValueError(
                    f"prefixes must rise from 1 to at most {LONGEST_PREFIX} bytes, with the last one twice, "
                    "as in [2, 3, 4, 5, 6, 6]: once for the search and once for the shares"
                )
            if (self.slots or USUAL_SLOTS) < MIN_SEARCH_SLOTS:
                raise ValueError(f"with prefixes slots must be at least {MIN_SEARCH_SLOTS}, not {self.slots}")
        return self

    @model_validator(mode="before")
    @classmethod
    def _take_unit(cls, data: Any) -> Any:
        """Use the unit of a pair's number, if it has any, as the pair's unit."""
        parts_value = data.get("of") if isinstance(data, dict) else None
        if not isinstance(parts_value, list | tuple) or "unit" in data:
            return data
        parts = cast(Sequence[Any], parts_value)
        units = {part["unit"] for part in parts if isinstance(part, dict) and "unit" in part}
        return {**data, "unit": units.pop()} if len(units) == 1 else data

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each of a pair's parts."""
        return tuple(part.domain for part in self.of or ())

    @property
    def domain(self) -> int:
        if self.type == "text":
            return (self.slots or USUAL_SLOTS) ** len(self.prefixes or (0,))
        return math.prod(self.shape) if self.type == "pair" else super().domain

    def type_fields(self, name: str = "") -> Fields:
        """Return the fields for boards.

        Args:
            name: The experiment's name, from which the default salt is derived.

        Raises:
            DefinitionError: If low or high is not whole in milli-units.
        """
        fields = super().type_fields()
        if self.type == "text":
            usual = hashlib.sha256(name.encode()).hexdigest()[:16]
            fields |= {"salt": self.salt or usual, "slots": self.slots or USUAL_SLOTS}
            fields |= {"prefixes": list(self.prefixes)} if self.prefixes else {}
        if self.type == "pair":
            fields["of"] = [{"name": part.name, **part.type_fields()} for part in self.of or ()]
        return fields

    def check_values(self) -> None:
        super().check_values()
        if (self.type == "pair") != (self.of is not None):
            raise ValueError("[[of]] tables, one for each part, are needed for a pair and only for a pair")
        if self.of is not None and not 2 <= len(self.of) <= 3:
            raise ValueError("of: a pair has 2 or 3 parts, each in a table [[of]]")
        names = [part.name for part in self.of or ()]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"of: two parts are called {name}")


def whole(value: Decimal | None, scale: int, name: str, grain: str) -> int:
    """Return a quantity times scale.

    Raises:
        DefinitionError: If the product is not a whole number.
    """
    scaled = (value or Decimal(0)) * scale
    if scaled != scaled.to_integral_value():
        raise DefinitionError(f"{name} must be a whole number of {grain}, not {value}")
    return int(scaled)
