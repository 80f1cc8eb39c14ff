"""Questions to a store: the reports, the statistics and the comparison, and the windows they resolve to.

The options of `hushmote estimate`, the keyword arguments of the Python API and the addresses of the page are
all fields of one model, Question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

from pydantic import (
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
from ..wrong_value import wrong_value
from . import periods
from .periods import ALL, Period
from .rows import CONFIDENCE

if TYPE_CHECKING:
    from .query import Facts

BEFORE = "before"
"""As `against`: the preceding period of the same length."""

FINE = 0
"""As `rows`: as many rows as the reports can tell apart."""

WeighBy = Literal["reports", "variance"]
"""The way to weigh versions against each other; see pool()."""

Texts = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]
"""Several texts; in Python one may be given by itself."""


@dataclass(frozen=True)
class Selection:
    """Reports of an experiment, of some windows or all, and of one version or all.

    Attributes:
        version: The first hexadecimal digits of the version's digest, or "" for all versions.
    """

    experiment: str
    fleet: str
    windows: tuple[str, ...] = ()
    version: str = ""

    def __str__(self) -> str:
        parts = [f"fleet {self.fleet}", *self.windows]
        return ", ".join(parts + ([f"version {self.version}"] if self.version else []))


@dataclass(frozen=True)
class PairQuestion:
    """A question about a pair; if all fields are empty, the default tables.

    Attributes:
        of: A condition such as "crashed=yes", or a part: whether a bool is yes, or the mean of a number.
        given: A part, each of whose values gets a row, or a condition.
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
    """A question about selected reports; a field's description is the help of its option."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str = Field(description="Name of the experiment.")
    fleet: str = Field(description="Name of the fleet; the only one needs none.")
    windows: Texts = Field(
        default=(),
        serialization_alias="window",
        description="2026-11-21, 2026-11 or 2026-11-01..2026-11-07; several add up.",
    )
    last: str = Field(default="", description="The last 7d, 12h or 2w before today, or all; else 7d.")
    version: str = Field(default="", description="One version only: its digest, or the first digits.")
    delta: float = Field(default=1e-6, description="δ that goes with the ε of a histogram.")
    honest: float = Field(default=1.0, description="Share of the reports that are not forged.")
    ranges: Texts = Field(
        default=(),
        serialization_alias="range",
        description="LOW:HIGH in the reading's unit, LOW: or :HIGH, a label, or a text.",
    )
    together: bool = Field(default=False, description="One share of them all, not of each.")
    quantiles: tuple[float, ...] = Field(
        default=(), serialization_alias="quantile", description="Between 0 and 1."
    )
    top: int = Field(default=0, ge=0, description="The most common values, and how sure that is.")
    cdf: bool = Field(default=False, description="The share below every bin's edge.")
    rows: int | None = Field(default=None, ge=FINE, description="Rows of a number's histogram; else 16.")
    post: str = Field(
        default="raw", description="Also processed shares: nonnegative, smooth, package.module:function."
    )
    alphabet: str | None = Field(
        default=None, description="For prefixes: characters of the texts, as a-z0-9._-; else ASCII."
    )
    of: str = Field(default="", description='For a pair: "crashed=yes", or a number part for its mean.')
    given: Texts = Field(
        default=(), description='Among devices with each value of a part, or "version=1.2"; two are compared.'
    )
    joint: bool = Field(default=False, description="The table of all parts together.")
    trend: bool = Field(
        default=False, description="The change over the windows; with --rows, a row for each."
    )
    by: Literal["day", "week", "month"] | None = Field(
        default=None, description="A trend by the day, week or month."
    )
    against: Texts = Field(
        default=(),
        description="Compare with this window, or these; or fleet=NAME, or version=DIGEST; or before.",
    )
    confidence: float = Field(default=CONFIDENCE, description="Confidence of the intervals.")
    weigh: WeighBy = Field(default="reports", description="How to weigh versions.")
    unit: str | None = Field(
        default=None, description="Unit of the readings to print, such as °C; else the file's."
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
        """Return whether there is a row for each window, or for each day, week or month."""
        return self.trend or self.by is not None

    @property
    def names_rows(self) -> bool:
        """Return whether it names shares or readings, rather than leaving that to the experiment's file."""
        return bool(self.ranges or self.quantiles or self.top or self.of or self.given)

    @property
    def compares(self) -> bool:
        """Return whether it compares histograms."""
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
                text = "is there once, or twice for two conditions and their difference"
                raise UsageError(f"{option('given')} {text}")
            case given:
                return PairQuestion(self.of, "".join(given), None, self.joint)

    @property
    def all_windows(self) -> Selection:
        """The selection of the reports of all windows."""
        return Selection(self.experiment, self.fleet, (), self.version)

    def replace(self, **values: Any) -> Question:
        """Return the question with other values of some fields."""
        return self.model_copy(update=values)

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of ExperimentReader.ask() that ask the same question."""
        return self.model_dump(exclude_defaults=True, exclude={"experiment", "fleet"})

    def query(self) -> str:
        """Return the question as the query string of an address, without the ?."""
        return urlencode(self.options(), doseq=True)

    def arguments(self) -> list[str]:
        """Return the arguments of the command `estimate` that ask the same question."""
        values = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"experiment", "fleet"}
        )
        arguments = [self.experiment, "--fleet", self.fleet]
        for name, value in values.items():
            if value is True:
                arguments.append(f"--{name}")
            else:  # with =, so that a value that begins with - is not taken for an option
                several = value if isinstance(value, list) else [value]
                arguments += [f"--{name}={one}" for one in several]
        return arguments

    def resolve(self, facts: Facts) -> ResolvedQuestion:
        """Return the question with the windows of its periods, and with defaults from the experiment's file.

        Without a period the windows are those of the newest completed days (periods.usual), and for a trend
        all completed ones. A comparison without ranges is about what the experiment's file asks, and texts
        are those that the file lists.

        Args:
            facts: The contents of the store.

        Raises:
            UsageError: If a fleet, experiment or version does not exist, no report came in a period, or
                options do not go together.
        """
        if self.last and self.windows:
            raise UsageError(f"{option('window')} and {option('last')} name periods that differ: name one")
        selected = facts.selected(self.all_windows)
        windows = self._windows(self.windows, tuple(selected.there), facts)
        selection = replace(self.all_windows, windows=windows)
        against = self._other_side(selection, facts)
        self._check_options()
        period = before = None
        if self.last not in ("", ALL):
            period = periods.period_of_length(self.last, facts.at)
            before = periods.period_of_length(self.last, facts.at, 1) if self.against == (BEFORE,) else None
        question = self
        if not self.ranges and "candidates" in selected.can:
            question = self.replace(ranges=tuple(selected.newest.asked.splitlines()))
        elif self.against:
            question = self._of_the_file(facts)
        return ResolvedQuestion(question, selection, against, period, before)

    def _windows(self, named: Sequence[str], there: tuple[str, ...], facts: Facts) -> tuple[str, ...]:
        """Return the windows of the named periods, otherwise of the last ones, otherwise the usual ones."""
        if named:
            return periods.resolve_periods(named, there)
        if self.last:
            return periods.last(self.last, there, facts.at)
        return periods.completed(there, facts.at) if self.is_trend else periods.usual(there, facts.at)

    def _other_side(self, selection: Selection, facts: Facts) -> Selection | None:
        """Return the reports to compare with, if any; raise UsageError if the option names none."""
        if not self.against:
            return None
        if self.against == (BEFORE,):
            return replace(selection, windows=self._windows_before(selection, facts))
        named: dict[str, list[str]] = {"window": [], "fleet": [], "version": []}
        for text in self.against:
            what, equals, name = text.partition("=")
            if equals and what not in named:
                takes = f"{option('against')} takes a window, fleet=NAME or version=DIGEST"
                raise UsageError(f"{takes}, not {text}")
            named[what if equals else "window"].append(name if equals else text)
        windows, fleets, versions = named.values()
        if max(len(fleets), len(versions)) > 1:
            raise UsageError(f"{option('against')} takes one fleet, and one version")
        if BEFORE in windows:
            raise UsageError(f"{option('against', BEFORE)} is the time just before: name nothing else")
        fleet, version = "".join(fleets), "".join(versions)
        other = Selection(
            self.experiment,
            fleet or self.fleet,
            version=version or ("" if fleet else self.version),
        )
        there = tuple(facts.selected(other).there)  # another fleet or version has windows of its own
        other = replace(other, windows=self._windows(windows or self.windows, there, facts))
        if other == selection:
            raise UsageError("both sides are the same: name another window, fleet or version to compare with")
        return other

    def _windows_before(self, selection: Selection, facts: Facts) -> tuple[str, ...]:
        there = tuple(facts.selected(selection).there)
        if self.last:
            return periods.last(self.last, there, facts.at, before=1)
        windows = periods.preceding(selection.windows, there)
        if not windows:
            raise UsageError("no report came in the time just before: name a window to compare with")
        return windows

    def _check_options(self) -> None:
        """Raise UsageError for options that would have no effect."""
        if self.is_trend and self.against:
            both = f"{option('trend')} and {option('against')}"
            raise UsageError(f"{both} are two questions: ask one at a time")
        if self.together and not self.ranges:
            text = f"is about ranges: name some, each with {option('range')}"
            raise UsageError(f"{option('together')} {text}")
        if not self.compares:
            return
        what = option("trend" if self.is_trend else "against")
        single = f"{option('range', 'LABEL')}, or {option('range', 'LOW:HIGH')} of a number"
        chance = "processed shares have no intervals, and chance cannot be told from change without"
        below = f"ask for {option('range', ':HIGH')} or {option('quantile')}"
        lacking: tuple[tuple[str, object, str], ...] = (
            (option("top"), self.top, f"ask for the shares of single values, {single}"),
            (option("post"), self.post != "raw", f"{chance}; leave {option('post')} out"),
            (option("together"), self.together, "it tells of each range by itself"),
            (option("cdf"), self.is_trend and self.cdf, below),
        )
        for other, is_given, instead in lacking:
            if is_given:
                raise UsageError(f"{what} has no {other}: {instead}")
        if self.rows and self.ranges and not self.is_trend:
            text = "is for histograms, and there is none here: leave it out"
            raise UsageError(f"{option('rows')} {text}")

    def _of_the_file(self, facts: Facts) -> Question:
        """Fill in the ranges and quantiles of the experiment's file if a comparison names none."""
        # Imported here because it loads NumPy, which would delay the refusal of an option.
        from ..experiments.asks import asks_of

        newest = facts.selected(self.all_windows).newest
        names_statistics = self.ranges or self.quantiles or self.cdf or self.rows
        if names_statistics or newest.experiment.type in ("pair", "text"):
            return self
        own = newest.asked or newest.experiment.type == "bool"
        asks = asks_of(newest.experiment, newest.asked.splitlines()) if own else ()
        ranges = tuple(one.text for one in asks if one.kind == "share")
        quantiles = tuple(one.level for one in asks if one.kind == "quantile")
        return self.replace(ranges=ranges, quantiles=quantiles)


@dataclass(frozen=True)
class ResolvedQuestion:
    """A question with the reports that it is about; made by Question.resolve().

    Attributes:
        selection: The reports, with their windows.
        against: The reports to compare them with, or None.
        period: The time that was asked for, which may begin and end without reports.
        before: The same for `against`.
    """

    question: Question
    selection: Selection
    against: Selection | None = None
    period: Period | None = None
    before: Period | None = None
