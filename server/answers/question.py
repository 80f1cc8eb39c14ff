"""Questions about a store: the reports, the statistics and the comparison, and the windows they resolve to.

The options of `hushmote estimate`, the keyword arguments of the Python API and the page's query parameters
are all fields of a single model, Question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from unicodedata import normalize
from urllib.parse import urlencode

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from ..errors import UsageError
from ..hints import option
from ..typed_numbers import number_field, quantile_field, share_field, whole_number_field
from ..words.scope import plain_version, version_name
from ..wrong_value import wrong_value
from . import periods
from .periods import ALL, Period
from .rows import CONFIDENCE

if TYPE_CHECKING:
    from .query import Facts, Selected

BEFORE = "before"
"""A value of `against`: the preceding period of the same length."""

FINE = 0
"""A value of `rows`: as many rows as the reports can tell apart."""

WeighBy = Literal["reports", "variance"]
"""How to weight versions; see pool()."""

Texts = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]
"""Several texts; in Python, a single text needs no tuple."""


@dataclass(frozen=True)
class Selection:
    """An experiment's reports, from some or all windows, versions and values of its open group.

    Attributes:
        version: The first hexadecimal digits of the version's digest; "all" for all versions, seen
            through the values that they have in common; "" for the newest.
        group: A value of the open group, or "other"; "" for all reports.
    """

    experiment: str
    fleet: str
    windows: tuple[str, ...] = ()
    version: str = ""
    group: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self.version.lower())

    def __str__(self) -> str:
        parts = [f"fleet {self.fleet}", *self.windows]
        parts += [version_name(self.version)] if self.version else []
        parts += [f"group {self.group}"] if self.group else []
        return ", ".join(parts)


@dataclass(frozen=True)
class PairQuestion:
    """A question about a pair; if all fields are empty, it asks for the default tables.

    Attributes:
        of: A condition such as "crashed=yes", or a part: a bool's share of yes, or a number's mean.
        given: A condition, or a part, which gets one row for each of its values.
        versus: Two conditions to compare, instead of `given`.
        joint: Whether to return the joint table.
    """

    of: str = ""
    given: str = ""
    versus: tuple[str, str] | None = None
    joint: bool = False

    def __bool__(self) -> bool:
        return bool(self.of or self.given or self.versus or self.joint)


NO_QUESTION = PairQuestion()


class Question(BaseModel):
    """A question about selected reports; each field's description is its option's help text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str = Field(description="Name of the experiment.")
    fleet: str = Field(description="Name of the fleet; optional if there is only one.")
    windows: Texts = Field(
        default=(),
        serialization_alias="window",
        description="2026-11-21, 2026-W47, 2026-11, yesterday or 2026-11-01..2026-11-07; several are summed.",
    )
    last: str = Field(default="", description="The last 7d, 12h or 2w before today, or all; default: 7d.")
    version: Annotated[str, AfterValidator(plain_version)] = Field(
        default="",
        description="Use only this version (its digest, or the first digits), or all; default: the newest.",
    )
    group: Annotated[str, AfterValidator(partial(normalize, "NFC"))] = Field(
        default="",
        description="Use only reports with this value of the experiment's group, such as 2.4.0, or other.",
    )
    delta: Annotated[float, BeforeValidator(number_field)] = Field(
        default=1e-6, description="δ for the ε of a histogram."
    )
    honest: Annotated[float, BeforeValidator(share_field)] = Field(
        default=1.0, description="Share of the reports that are not forged."
    )
    ranges: Texts = Field(
        default=(),
        serialization_alias="range",
        description="LOW:HIGH in the reading's unit, LOW: or :HIGH, a label, or a text.",
    )
    together: bool = Field(
        default=False, description="Show one share of all ranges together instead of one each."
    )
    quantiles: Annotated[tuple[float, ...], BeforeValidator(quantile_field)] = Field(
        default=(), serialization_alias="quantile", description="Between 0 and 1."
    )
    top: Annotated[int, BeforeValidator(whole_number_field)] = Field(
        default=0, ge=0, description="Number of most common values to list, with probabilities."
    )
    cdf: bool = Field(default=False, description="Show the share below every bin's edge.")
    rows: Annotated[int | None, BeforeValidator(whole_number_field)] = Field(
        default=None, ge=FINE, description="Maximum rows of a number's histogram; default: 16."
    )
    post: str = Field(
        default="raw",
        description="Also show shares processed by nonnegative, smooth or package.module:function.",
    )
    alphabet: str | None = Field(
        default=None, description="For prefixes: characters of the texts, such as a-z0-9._-; default: ASCII."
    )
    of: str = Field(default="", description='For a pair: "crashed=yes", or a number part for its mean.')
    given: Texts = Field(
        default=(), description='Among devices with each value of a part, or "version=1.2"; two are compared.'
    )
    joint: bool = Field(default=False, description="Show the table of all parts together.")
    trend: bool = Field(
        default=False, description="Show the change over the windows; with --rows, a row for each."
    )
    by: Literal["day", "week", "month"] | None = Field(
        default=None, description="Show a trend by day, week or month."
    )
    against: Texts = Field(
        default=(),
        description="Compare with these windows, fleet=NAME, version=DIGEST, group=VALUE, or before.",
    )
    confidence: Annotated[float, BeforeValidator(share_field)] = Field(
        default=CONFIDENCE, description="Confidence of the intervals."
    )
    weigh: WeighBy = Field(default="reports", description="How to weight versions.")
    unit: str | None = Field(
        default=None, description="Unit of the readings to print, such as °C; default: the file's."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _check_types(cls, values: Any, handler: ModelWrapValidatorHandler[Question]) -> Question:
        try:
            return handler(values)
        except ValidationError as e:
            error = e.errors()[0]
            field = ".".join(map(str, error["loc"]))
            raise UsageError(f"{field} {wrong_value(error)}") from None

    @property
    def is_trend(self) -> bool:
        """Whether there is a row for each window, or for each day, week or month."""
        return self.trend or self.by is not None

    @property
    def names_rows(self) -> bool:
        """Whether it names shares or readings instead of leaving the choice to the experiment's file."""
        return bool(self.ranges or self.quantiles or self.top or self.of or self.given)

    @property
    def compares(self) -> bool:
        """Whether it compares histograms."""
        return self.is_trend or bool(self.against)

    @property
    def pair(self) -> PairQuestion:
        """The question about a pair.

        Raises:
            UsageError: If there are more than two conditions.
        """
        match self.given:
            case (first, second):
                return PairQuestion(self.of, "", (first, second), self.joint)
            case (_, _, _, *_):
                text = "can be given once, or twice to compare two conditions"
                raise UsageError(f"{option('given')} {text}")
            case given:
                return PairQuestion(self.of, "".join(given), None, self.joint)

    @property
    def all_windows(self) -> Selection:
        """The selection that includes all windows."""
        return Selection(self.experiment, self.fleet, (), self.version, self.group)

    def replace(self, **values: Any) -> Question:
        """Return a copy of the question with some fields replaced."""
        return self.model_copy(update=values)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments for ExperimentReader.ask() that express this question."""
        return self.model_dump(exclude_defaults=True, exclude={"experiment", "fleet"})

    def query(self) -> str:
        """Return the question as a URL's query string, without the "?"."""
        return urlencode(self.options(), doseq=True)

    def arguments(self) -> list[str]:
        """Return the arguments of the `estimate` command that express this question."""
        values = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"experiment", "fleet"}
        )
        arguments = [self.experiment, "--fleet", self.fleet]
        for name, value in values.items():
            if value is True:
                arguments.append(f"--{name}")
            else:  # with =, so that a value that begins with - is not mistaken for an option
                items = value if isinstance(value, list) else [value]
                arguments += [f"--{name}={item}" for item in items]
        return arguments

    def resolve(self, facts: Facts) -> ResolvedQuestion:
        """Resolve the question's periods to windows, and fill in defaults from the experiment's file.

        Without a period the windows are those of the newest completed days (periods.default_windows), and for
        a trend all completed windows. A comparison without ranges uses the questions in the experiment's
        file, and texts default to those that the file lists.

        Args:
            facts: The contents of the store.

        Raises:
            UsageError: If a fleet, experiment, version or value of the group does not exist, a period has no
                reports, or options conflict.
        """
        if self.last and self.windows:
            raise UsageError(
                f"{option('window')} and {option('last')} both name a period; use only one of them"
            )
        selected = facts.selected(self.all_windows)
        windows = self._windows(self.windows, selected, facts)
        selection = replace(self.all_windows, windows=windows)
        against = self._other_side(selection, facts)
        self._check_options()
        period = before = None
        if self.last not in ("", ALL):
            ends = [periods.period_of_length(self.last, facts.at, n, selected.calendar) for n in (0, 1)]
            period, before = ends[0], ends[1] if self.against == (BEFORE,) else None
        question = self
        if selected.newest.experiment.type == "number":
            from ..experiments.units import without_unit  # NumPy is slow to load

            unit = selected.unit
            question = self.replace(ranges=tuple(without_unit(text, unit) for text in self.ranges))
        if not self.ranges and "candidates" in selected.answerable:
            question = self.replace(ranges=tuple(selected.newest.asked.splitlines()))
        elif self.against:
            question = question._with_file_questions(facts)
        return ResolvedQuestion(question, selection, against, period, before)

    def _windows(self, periods_named: Sequence[str], selected: Selected, facts: Facts) -> tuple[str, ...]:
        """Return the windows of the named periods, of the last days or hours, or else the default windows."""
        available, calendar = selected.windows, selected.calendar
        if periods_named:
            return periods.resolve_periods(periods_named, available, calendar, facts.at)
        if self.last:
            return periods.last_windows(self.last, available, facts.at, calendar=calendar)
        return (
            periods.completed_windows(available, facts.at)
            if self.is_trend
            else periods.default_windows(available, facts.at, calendar)
        )

    def _other_side(self, selection: Selection, facts: Facts) -> Selection | None:
        """Return the reports to compare with, or None; raise UsageError if the option is invalid."""
        if not self.against:
            return None
        if self.against == (BEFORE,):
            return replace(selection, windows=self._windows_before(selection, facts))
        names_by_kind: dict[str, list[str]] = {"window": [], "fleet": [], "version": [], "group": []}
        for text in self.against:
            what, equals, name = text.partition("=")
            if equals and what not in names_by_kind:
                takes = f"{option('against')} takes a window, fleet=NAME, version=DIGEST or group=VALUE"
                raise UsageError(f"{takes}, not {text}")
            names_by_kind[what if equals else "window"].append(name if equals else text)
        windows, fleets, versions, groups = names_by_kind.values()
        if max(len(fleets), len(versions), len(groups)) > 1:
            raise UsageError(f"{option('against')} takes at most one fleet, one version and one group")
        if BEFORE in windows:
            raise UsageError(
                f"{option('against', BEFORE)} already names the preceding period; omit other windows"
            )
        fleet, version = "".join(fleets), plain_version("".join(versions))
        other = Selection(
            self.experiment,
            fleet or self.fleet,
            version=version or ("" if fleet else self.version),
            group="".join(groups) or self.group,
        )
        selected = facts.selected(other)  # another fleet or version may have other windows
        other = replace(other, windows=self._windows(windows or self.windows, selected, facts))
        if other == selection:
            raise UsageError(
                "both sides are the same; name another window, fleet, version or group to compare with"
            )
        return other

    def _windows_before(self, selection: Selection, facts: Facts) -> tuple[str, ...]:
        selected = facts.selected(selection)
        available, calendar = selected.windows, selected.calendar
        if self.last:
            return periods.last_windows(self.last, available, facts.at, 1, calendar)
        name = self.windows[0] if len(self.windows) == 1 else ""
        windows = periods.preceding_windows(selection.windows, available, calendar, name, facts.at)
        if not windows:
            raise UsageError("the preceding period has no reports; name a window to compare with")
        return windows

    def _check_options(self) -> None:
        """Raise UsageError for options that would have no effect."""
        if self.is_trend and self.against:
            both = f"{option('trend')} and {option('against')}"
            raise UsageError(f"{both} cannot be combined; use one at a time")
        if self.together and not self.ranges:
            text = f"combines ranges; name some, each with {option('range')}"
            raise UsageError(f"{option('together')} {text}")
        if not self.compares:
            return
        what = option("trend" if self.is_trend else "against")
        single = f"{option('range', 'LABEL')}, or {option('range', 'LOW:HIGH')} of a number"
        chance = "processed shares have no intervals, so change cannot be told from chance"
        below = f"ask for {option('range', ':HIGH')} or {option('quantile')}"
        unsupported: tuple[tuple[str, object, str], ...] = (
            (option("top"), self.top, f"ask for the shares of single values, {single}"),
            (option("post"), self.post != "raw", f"{chance}; omit {option('post')}"),
            (option("together"), self.together, "it reports each range separately"),
            (option("cdf"), self.is_trend and self.cdf, below),
        )
        for other, is_given, instead in unsupported:
            if is_given:
                raise UsageError(f"{what} does not support {other}: {instead}")
        if self.rows and self.ranges and not self.is_trend:
            text = "applies only to histograms; omit it"
            raise UsageError(f"{option('rows')} {text}")

    def _with_file_questions(self, facts: Facts) -> Question:
        """Fill in the ranges and quantiles of the experiment's file if a comparison names none."""
        # Imported lazily because it loads NumPy, which would delay error messages about options.
        from ..experiments.asks import asks_of

        newest = facts.selected(self.all_windows).newest
        names_statistics = self.ranges or self.quantiles or self.cdf or self.rows
        if names_statistics or newest.experiment.type in ("pair", "text"):
            return self
        has_questions = newest.asked or newest.experiment.type == "bool"
        asks = asks_of(newest.experiment, newest.asked.splitlines()) if has_questions else ()
        ranges = tuple(ask.text for ask in asks if ask.kind == "share")
        quantiles = tuple(ask.level for ask in asks if ask.kind == "quantile")
        return self.replace(ranges=ranges, quantiles=quantiles)


@dataclass(frozen=True)
class ResolvedQuestion:
    """A question with the reports that it covers; returned by Question.resolve().

    Attributes:
        selection: The reports, with their windows.
        against: The reports to compare them with, or None.
        period: The requested period, which may begin and end without reports.
        before: The same for `against`.
    """

    question: Question
    selection: Selection
    against: Selection | None = None
    period: Period | None = None
    before: Period | None = None
