"""The analyst's definition of an experiment: a TOML file with the question, purpose, owner and last day.

`load(path)` returns a frozen `Definition`, and `Definition.payload()` returns the bytes to publish to boards.
If the analyst omits the mechanism or its parameters, variance formulas choose them for the requested
`statistics`, or for a list of `ranges` in the reading's unit.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError, model_validator

from ...device import ldp_client
from ..accounting import AccountingError, Guarantee
from ..epsilon import MICRO, check_epsilon
from ..errors import os_reason
from ..local_days import WEEKDAYS, check_zone
from ..mechanisms import MECHANISMS, MechanismError, class_of, mechanism_of
from ..mechanisms.custom import need_private
from ..mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload, WorkloadError
from ..wire.experiments import is_own, parse_experiment
from ..wire.limits import kept_hours, plain_keep
from ..wrong_value import wrong_toml, wrong_value
from .answerable import UnanswerableError, answerable_questions
from .asks import MAX_ASKS, asks_of, check_limits
from .budget import ExperimentBudget, Quantity, WholeNumber
from .judged import Direction, JudgedError, JudgedQuestion, Worse, check_direction, judged_questions
from .pair_workload import PAIR_STATISTICS, pair_workload
from .payload import AUTO, MECHANISM_NAMES, Fields, NoMechanism, chosen_fields, mechanism_fields, payload
from .planned_case import PlannedCase
from .reading import (
    DefinitionError,
    PartDefinition,
    ReadingDefinition,
    candidate_text,
    check_board_text,
    whole,
    without_nul,
)
from .units import UnitsError, edges_between, join_units, parse_bins, without_unit

if TYPE_CHECKING:
    from ..store.versions import Description

_LISTS = {
    "prefixes": "whole numbers such as [2, 3, 4, 4]",
    "labels": 'texts such as ["eco", "boost"]',
    "ranges": 'texts such as ["18:22"]',
    "asks": 'texts such as ["24:", "median"]',
    "candidates": 'texts such as ["1.4.1", "1.4.2"]',
    "groups": 'texts such as ["2.3.1", "2.4.0"]',
}
_WORKLOADS = {"ranges": ALL_RANGES, "frequencies": FREQUENCIES, "quantiles": PREFIXES, "mean": MEAN}


MAX_GROUPS = 15
MAX_GROUP_BYTES = 32
_NUMBER, _TABLE = (
    TypeAdapter(WholeNumber),
    TypeAdapter(dict[str, Annotated[WholeNumber, Field(ge=1, le=1 << 24)]]),
)
_QUANTITY, _QUANTITIES = TypeAdapter(Quantity), TypeAdapter(dict[str, Quantity])


def _check_every(value: Any) -> int | dict[str, int]:
    """Return the number or the table of a group's numbers, or raise ValueError."""
    if not isinstance(value, dict):
        return _NUMBER.validate_python(value)
    if any(isinstance(number, dict) for number in cast(dict[str, Any], value).values()):
        raise ValueError('put a group value with points into quotes, as in {"2.4.0" = 1, other = 130}')
    return _TABLE.validate_python(value)


def _check_worse_by(value: Any) -> Decimal | dict[str, Decimal]:
    """Return the number or the table of the questions' numbers, or raise ValueError."""
    if not isinstance(value, dict):
        return _QUANTITY.validate_python(value)
    return _QUANTITIES.validate_python(value)


class Definition(ReadingDefinition):
    """An experiment as the analyst wrote it; numbers are exact decimals in whole units and nats."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")]
    purpose: Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(without_nul)]
    owner: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(without_nul)]
    expires: datetime.date
    statistics: Literal[*_WORKLOADS, *PAIR_STATISTICS] | None = None  # pyright: ignore[reportInvalidTypeForm]
    given: str | None = None
    ranges: tuple[str, ...] | None = None
    asks: tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] = Field((), max_length=MAX_ASKS)
    candidates: tuple[Annotated[str, AfterValidator(candidate_text)], ...] = Field((), max_length=1000)
    mechanism: str = AUTO
    parameters: dict[str, Any] = Field(default_factory=dict)
    epsilon: Quantity
    group: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,32}$")] | None = None
    groups: tuple[str, ...] = ()
    every: Annotated[int | dict[str, int], PlainValidator(_check_every)] = 1
    worse: Annotated[Direction | dict[str, Direction], PlainValidator(check_direction)] = "more"
    worse_by: Annotated[Decimal | dict[str, Decimal] | None, PlainValidator(_check_worse_by)] = None
    budget: ExperimentBudget
    window: Literal["hour", "day", "all"] = "day"
    keep: Annotated[str, AfterValidator(plain_keep)] = ""
    day: Annotated[str, AfterValidator(check_zone)] = ""
    week: Literal[*WEEKDAYS] = "monday"  # pyright: ignore[reportInvalidTypeForm]
    planned: PlannedCase | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_parameters(cls, data: Any) -> Any:
        """Move the mechanism's fields, which the file lists among the others, to `parameters`."""
        if not isinstance(data, dict) or "parameters" in data:
            return data
        table = cast(dict[str, Any], data)
        names = {name for mechanism in MECHANISMS.values() for name in mechanism.parameters}
        word = table.get("mechanism")
        if isinstance(word, str) and is_own(word):
            with contextlib.suppress(MechanismError):  # _fields_fit_type() reports it
                names |= set(class_of(word).parameters)
        names &= table.keys()
        other_fields = {name: value for name, value in table.items() if name not in names}
        parameters = {name: _plain(name, table[name]) for name in table if name in names}
        return other_fields | {"parameters": parameters}

    @model_validator(mode="before")
    @classmethod
    def _omit_units(cls, data: Any) -> Any:
        """Remove the unit from the limits of a number's questions, wherever the file names them."""
        if not isinstance(data, dict) or cast(dict[str, Any], data).get("type") != "number":
            return data
        table = cast(dict[str, Any], data)
        unit = table.get("unit", "")
        if not isinstance(unit, str):
            return table  # the field's own type reports it
        result = dict(table)
        for name in ("asks", "ranges", "worse", "worse_by"):
            value = table.get(name)
            if isinstance(value, list | tuple):
                result[name] = [_question(name, text, unit) for text in cast(list[Any], value)]
            elif isinstance(value, dict):
                questions = cast(dict[Any, Any], value)
                result[name] = {_question(name, text, unit): each for text, each in questions.items()}
        return result

    @model_validator(mode="after")
    def _fields_fit_type(self) -> Definition:
        self.check_values()
        self._check_pair()
        self._check_group()
        self._check_worse()
        self._check_days()
        try:
            kept_hours(self.keep, self.window)
        except ValueError as e:
            raise ValueError(f"keep: {e}") from None
        if self.mechanism not in MECHANISM_NAMES and not is_own(self.mechanism):
            raise ValueError(
                "mechanism must be auto, one listed by hushmote mechanisms, or package.module:Class, "
                f"not {self.mechanism!r}"
            )
        try:
            parameters = class_of(self.mechanism).parameters if self.mechanism != AUTO else ()
        except MechanismError as e:
            raise ValueError(str(e)) from None
        self._check_reads()
        self._check_candidates()
        if self.type == "text" and self.statistics not in (None, "frequencies"):
            raise ValueError("a text supports only shares: omit statistics")
        self._check_mean()
        if self.planned is not None and self.type not in ("bool", "choice", "number"):
            raise ValueError(f"planned supports a bool, a choice or a number, not a {self.type}")
        for name in self.parameters:
            if name not in parameters:
                words = (word for word, mechanism in MECHANISMS.items() if name in mechanism.parameters)
                raise ValueError(f"{name} is only for mechanism = {' or '.join(map(json.dumps, words))}")
        if self.ranges is not None:
            if self.type != "number":
                raise ValueError("ranges are only for a number")
            if self.statistics is not None:
                raise ValueError("give ranges or statistics, not both")
            if self.parameters:
                raise ValueError("the mechanism is chosen for the ranges: omit mechanism and its parameters")
        return self

    def _check_mean(self) -> None:
        """Raise ValueError if the mean of these readings cannot be planned."""
        if self.statistics == "mean" and self.type != "number":
            raise ValueError(f"only a number has a mean, not a {self.type}: omit statistics")
        if self.statistics == "mean" and self.scale:
            raise ValueError(
                'a mechanism for the mean needs equal bins: omit scale = "log"; or omit statistics, and the '
                "mean is estimated from the shares of the bins"
            )
        if self.planned is not None and self.planned.of == "mean" and self.scale:
            raise ValueError("a mean can be planned only for equal bins: omit planned")

    def _check_candidates(self) -> None:
        """Raise ValueError if the candidate texts do not fit the experiment."""
        if not self.candidates:
            return
        if self.type != "text":
            raise ValueError("candidates are only for a text")
        if self.prefixes is not None:
            raise ValueError(
                "candidates do not apply to a text with prefixes, which finds texts without a list"
            )
        if self.asks:
            raise ValueError("asks and candidates both list texts: give only one of them")
        for text in self.candidates:
            if self.candidates.count(text) > 1:
                raise ValueError(f"candidates: {text} is listed twice")

    def _check_group(self) -> None:
        """Raise ValueError if the open group, its values or their `every` do not fit together."""
        if self.group is None and self.groups:
            raise ValueError('groups need the name of their group, such as group = "firmware"')
        if self.group is not None and not 1 <= len(self.groups) <= MAX_GROUPS:
            raise ValueError(
                f"groups must list 1 to {MAX_GROUPS} values of the group {self.group}, not {len(self.groups)}"
            )
        for value in self.groups:
            check_board_text("groups:", value, MAX_GROUP_BYTES)
            if self.groups.count(value) > 1:
                raise ValueError(f"groups: {value} is listed twice")
        if "other" in self.groups:
            raise ValueError("groups: other is always added as the last value: omit it")
        if isinstance(self.every, int):
            return
        if self.group is None:
            raise ValueError("every must be a whole number: only a group has a table")
        for value in self.every:
            if value not in (*self.groups, "other"):
                raise ValueError(f"every: {value!r:.40} is not one of groups: list it there, or omit it")
        if "other" not in self.every:
            raise ValueError("every needs a number for other, which covers all values without one")

    def _check_worse(self) -> None:
        """Raise ValueError if there is no group whose values could be worse."""
        for name in ("worse", "worse_by"):
            if self.group is None and name in self.model_fields_set:
                raise ValueError(f"{name} compares the values of a group: add the group, or omit it")

    def _check_days(self) -> None:
        """Raise ValueError if windows cannot be grouped by local days or other weeks."""
        for name in ("day", "week"):
            if self.window != "hour" and name in self.model_fields_set:
                raise ValueError(
                    f'{name} needs hourly windows: add window = "hour", or omit {name} for days in UTC '
                    "and weeks from Monday"
                )

    def _every_fields(self) -> int | list[int]:
        """Return `every` for boards: a number, or a list of each group value's and of other's."""
        if isinstance(self.every, int):
            return self.every
        return [self.every.get(value, self.every["other"]) for value in (*self.groups, "other")]

    def _check_reads(self) -> None:
        """Raise ValueError if the mechanism does not support these readings."""
        if self.mechanism == AUTO:
            return
        if self.missing and not class_of(self.mechanism).takes_missing:
            raise ValueError(
                f"mechanism {self.mechanism} does not support missing readings: omit missing or the mechanism"
            )
        if self.missing and self.mechanism == "rr":
            raise ValueError("mechanism rr supports only two values, and missing is a third: use grr or auto")
        reads = class_of(self.mechanism).reads
        has = {"pair": self.type == "pair", "prefixes": self.prefixes is not None}
        if reads and not has[reads]:
            alone = {"pair": "a pair", "prefixes": "texts with prefixes"}[reads]
            raise ValueError(f"mechanism {self.mechanism} supports only {alone}: use auto")
        if self.prefixes is not None and reads != "prefixes":
            suitable = " or ".join(
                word for word, mechanism in MECHANISMS.items() if mechanism.reads == "prefixes"
            )
            raise ValueError(
                f"mechanism {self.mechanism} does not support texts with prefixes: use {suitable}, or omit "
                "the mechanism"
            )

    def _check_pair(self) -> None:
        words = _WORKLOADS if self.type != "pair" else PAIR_STATISTICS
        if self.statistics is not None and self.statistics not in words:
            raise ValueError(f"statistics of a {self.type} must be one of {', '.join(words)}")
        if self.given is None:
            return
        names = [part.name for part in self.of or ()]
        if self.statistics not in (None, "conditional", "differences") or not names:
            raise ValueError('given is only for a pair, with statistics = "conditional" or "differences"')
        if self.given not in names:
            raise ValueError(f"given must be one of {', '.join(names)}")

    @property
    def expired(self) -> bool:
        """Whether the experiment's last day has passed."""
        return self.expires < datetime.datetime.now(datetime.UTC).date()

    def check_not_expired(self) -> None:
        """Raise DefinitionError if the experiment's last day has passed."""
        if self.expired:
            raise DefinitionError(
                f"{self.name} expired on {self.expires}; set a later day if it is still needed"
            )

    def payload(self) -> bytes:
        """Return the JSON published to boards in UTF-8 with only integers, always the same bytes.

        Raises:
            DefinitionError: If a board would reject it, or a custom mechanism exceeds its ε.
        """
        reading, epsilon = self.type_fields(self.name), self._epsilon()
        check_epsilon(epsilon, DefinitionError, original=self.epsilon)
        published = payload(
            self.name,
            reading,
            self._mechanism_fields(epsilon),
            epsilon,
            every=self._every_fields(),
            group=None if self.group is None else {"group": self.group, "groups": list(self.groups)},
            budget=self._budget_fields(epsilon),
            window=self.window,
        )
        try:
            experiment = parse_experiment(published)
            mechanism = mechanism_of(experiment)
            need_private(mechanism)
        except (ldp_client.ExperimentRefused, MechanismError) as e:
            too_long = f"boards accept 1,024 bytes of JSON, not {len(published):,}: shorten or omit labels"
            raise DefinitionError(too_long if len(published) > 1024 else str(e)) from None
        if experiment.type == "number" and not answerable_questions(experiment):
            raise DefinitionError(
                f'{self.mechanism} supports only equal bins: omit the mechanism, or scale = "log"'
            )
        if self.statistics and self.type == "number":
            answers = mechanism.answers
            if self.statistics not in answers:
                only = f"{self.mechanism} answers {' and '.join(sorted(answers))}, not {self.statistics}"
                raise DefinitionError(f"{only}: omit the mechanism or the statistics")
        try:
            check_limits(experiment, self.asks, self.unit)
            asks_of(experiment, self.asks)
        except (UnitsError, UnanswerableError) as e:
            raise DefinitionError(f"asks: {e}") from None
        try:
            self.judged(experiment)
        except JudgedError as e:
            raise DefinitionError(str(e)) from None
        if experiment.rule != "unlimited" and experiment.cost() > experiment.cap:
            raise DefinitionError("the budget's cap is below the cost of one report: no board would report")
        return published

    def experiment(self) -> ldp_client.Experiment:
        """Return the experiment as boards will parse it from payload()."""
        return parse_experiment(self.payload())

    def judged(self, experiment: ldp_client.Experiment) -> tuple[JudgedQuestion, ...]:
        """Return the questions by which a release is judged; none without a group.

        Raises:
            JudgedError: If `worse` or `worse_by` does not fit the questions.
        """
        return () if self.group is None else judged_questions(experiment, self.asks, self._worse)

    @property
    def _worse(self) -> Worse:
        margin = self.worse_by
        if isinstance(margin, dict):
            return Worse(self.worse, {name: float(value) for name, value in margin.items()})
        return Worse(self.worse, None if margin is None else float(margin))

    def mechanism_fields(self) -> Fields:
        """Return the mechanism's name and fields as in the payload."""
        return self._mechanism_fields(self._epsilon())

    def _mechanism_fields(self, epsilon: int) -> Fields:
        if self.parameters:
            return mechanism_fields(self.mechanism, **self.parameters)
        if not 2 <= self.domain <= 1 << 24 and not self.prefixes:
            subject = "values of all parts together" if self.type == "pair" else "bins"
            raise DefinitionError(f"{subject} must be from 2 to 16777216, not {self.domain}")
        try:
            return chosen_fields(self.domain, epsilon, self._workload(), self.mechanism, self.missing)
        except (NoMechanism, WorkloadError) as e:
            raise DefinitionError(str(e)) from None

    def _workload(self) -> Workload:
        if self.ranges is not None:
            reading = self.type_fields()
            edges = edges_between(reading["low"], reading["high"], reading["bins"], self.scale)
            return Workload.of(_bins_of(edges, text) for text in self.ranges)
        if self.prefixes is not None:
            return Workload("texts", levels=len(self.prefixes))
        if self.of is not None:
            names = [part.name for part in self.of]
            return pair_workload(self.statistics, names, self.shape, self.given)
        usual = "ranges" if self.type == "number" else "frequencies"
        return _WORKLOADS[self.statistics or usual]

    def description(self) -> Description:
        """Return the description for the store, in which UTC and Monday are empty texts."""
        # Imported lazily because it is slow to load and planning does not need it.
        from ..store.versions import Description

        # For texts, both keys list the texts whose shares are requested, so the store has a single field for
        # them.
        questions = "\n".join(self.asks or self.candidates)
        return Description(
            self.unit or join_units({part.name: part.unit for part in self.of or ()}),
            self.purpose,
            self.owner,
            questions,
            self.keep,
            self._worse.to_text(),
            "" if self.day == "UTC" else self.day,
            "" if self.week == WEEKDAYS[0] else self.week,
        )

    def guarantee(self) -> Guarantee:
        """Return the guarantee for all of a board's reports to this experiment combined."""
        return self.budget.guarantee(self._epsilon())

    def spent(self) -> tuple[int, float] | None:
        """Return a board's number of reports and their total in nats, or None without a theorem."""
        return self.budget.spent(self._epsilon())

    def _epsilon(self) -> int:
        return whole(self.epsilon, MICRO, "epsilon", "millionths (micro-nats)")

    def _budget_fields(self, epsilon: int) -> Fields:
        try:
            return self.budget.board_fields(epsilon)
        except AccountingError as e:
            raise DefinitionError(f"budget: {e}") from None


def _question(name: str, text: Any, unit: str) -> Any:
    try:
        return without_unit(text, unit) if isinstance(text, str) else text
    except UnitsError as e:
        raise ValueError(f"{name}: {e}") from None


def _plain(name: str, value: Any) -> Any:
    """Return a parameter as a JSON value: text, a whole number, or a list of these."""
    if isinstance(value, list):
        return [_plain(name, item) for item in cast(list[Any], value)]
    if not isinstance(value, int | str):
        raise ValueError(f"{name} must be a whole number or a list of them, not {value}")
    return value


def _bins_of(edges: np.ndarray, text: str) -> tuple[int, int]:
    try:
        bins = parse_bins(edges, text)
    except UnitsError as e:
        raise DefinitionError(f"ranges: {e}") from None
    return bins.low, bins.high


def _decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except ArithmeticError:
        value = None
    # As an integer, 1e999999999 would not fit in memory.
    if value is None or (value.is_finite() and abs(value.adjusted()) > 30):
        raise DefinitionError(f"{text:.40} is out of range: write 0, or a number from 1e-30 to 1e30")
    return value


def parse(text: str) -> Definition:
    """Parse the Definition in a TOML text.

    Raises:
        DefinitionError: If the definition is invalid; the message is one line.
    """
    try:
        fields = tomllib.loads(text, parse_float=_decimal)
    except DefinitionError:
        raise
    except tomllib.TOMLDecodeError as e:
        raise DefinitionError(wrong_toml(text, e)) from None
    except ValueError:
        raise DefinitionError("a number in it has thousands of digits") from None
    except RecursionError:
        raise DefinitionError("it is nested too deeply") from None
    if "parameters" in fields:
        raise DefinitionError("an experiment has no field parameters", "parameters")
    fields.pop("$schema", None)  # for editors
    try:
        return Definition.model_validate(fields)
    except ValidationError as e:
        raise DefinitionError(*_one_line(e)) from None


def load(path: Path) -> Definition:
    """Load the Definition in a TOML file.

    Raises:
        DefinitionError: If the file cannot be read or is invalid; the message is one line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        reason = os_reason(e) if isinstance(e, OSError) else "not UTF-8 text"
        raise DefinitionError(f"cannot read {path}: {reason}") from None
    try:
        return parse(text)
    except DefinitionError as e:
        raise DefinitionError(f"{path}: {e}") from None


def _one_line(error: ValidationError) -> tuple[str, str]:
    """Return a one-line message and the field's name."""
    errors = error.errors()
    # A misspelled field is also missing, but the name in the file is more helpful.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    if first["type"] != "extra_forbidden":
        missing = [".".join(map(str, e["loc"])) for e in errors if e["type"] == "missing"]
        if len(missing) > 1:
            return f"{', '.join(missing[:-1])} and {missing[-1]} are missing", missing[0]
    where = ".".join(str(x) for x in first["loc"])
    where = "".join(c if c.isprintable() else "?" for c in where)  # a quoted key may contain a line break
    if first["type"] == "extra_forbidden":
        return f"{where} is not a field of an experiment" + _suggestion(first["loc"]), where
    name = next((str(x) for x in reversed(first["loc"]) if isinstance(x, str)), "")
    if name in _LISTS and first["type"] != "value_error":
        return f"{name} must be a list of {_LISTS[name]}", where
    text = wrong_value(first)
    delimiter = ": " if first["type"] == "value_error" else " "
    return (f"{where}{delimiter}{text}" if where else text), where


def _suggestion(where: tuple[int | str, ...]) -> str:
    name, in_budget = str(where[-1]), len(where) > 1
    above, budget = Definition.model_fields, ExperimentBudget.model_fields
    if where[0] == "of":
        close = difflib.get_close_matches(name, PartDefinition.model_fields, 1)
        belongs = f": {name} belongs above the first line [[of]]"
        return f": did you mean {close[0]}?" if close else belongs if name in above else ""
    fields, others = (budget, above) if in_budget else (above, budget)
    if name in others:
        return f": {name} belongs {'above the line [budget]' if in_budget else 'under the line [budget]'}"
    close = difflib.get_close_matches(name, fields, 1)
    return f": did you mean {close[0]}?" if close else ""
