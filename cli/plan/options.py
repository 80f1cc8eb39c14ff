"""What `hushmote plan` is asked: its options, checked, as frozen classes."""

from __future__ import annotations

import datetime
import enum
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from ...server.accounting.shuffle import USUAL_HISTOGRAM_DELTA
from ...server.epsilon import MICRO
from ...server.planning import experiment_file as plan_file
from ...server.planning.devices import PlanError, check_ranges, check_sizes
from ...server.planning.expected_error import Kind, Question
from ...server.planning.experiment_file import Named, Reading
from ...server.planning.lifetime import DEFAULT_LIMIT, LifetimeBudget, Rhythm, parse_duration
from ...server.planning.second_epsilon import epsilon_for_histogram
from ..options import AsJson
from ..output import PICTURES, Force, checked
from ..workers import DaskUrl, WorkerCount

EXPERIMENT = ".toml"
"""The end of an experiment file's name."""


class For(enum.StrEnum):
    """What the error is of."""

    frequency = "frequency"
    range = "range"
    quantile = "quantile"
    mean = "mean"


@dataclass(frozen=True)
class QuestionOptions:
    """Devices, ε, what a board reads and what is asked of it, as the command's options say."""

    devices: Annotated[int | None, typer.Option(help="Number of devices.")] = None
    epsilon: Annotated[float | None, typer.Option(help="Privacy of one report, nats: 0.001 to 16.")] = None
    histogram_epsilon: Annotated[
        float | None,
        typer.Option(
            help="In place of --epsilon: the ε that the histogram of all reports may have, against whoever"
            " sees histograms only; not against the broker, the aggregator's operator or the database's"
            " journal."
        ),
    ] = None
    bins: Annotated[int | None, typer.Option(help="Bins of a number.")] = None
    labels: Annotated[str | None, typer.Option(help="Labels of a choice: a,b,c. 'other' comes on top.")] = (
        None
    )
    yes_no: Annotated[bool, typer.Option("--yes-no", help="The reading is yes or no.")] = False
    error: Annotated[
        float | None,
        typer.Option(
            help="Wanted half-width of the 95 % interval, share of devices, of a mean part of the range: 0.01"
            " is ±1 %."
        ),
    ] = None
    unit_error: Annotated[
        float | None,
        typer.Option(help="The same for a mean or a quantile, in the reading's unit; see --density."),
    ] = None
    kind: Annotated[For | None, typer.Option("--for", help="What the error is of.", show_default=False)] = (
        None
    )
    share: Annotated[
        float | None,
        typer.Option(
            help="Share that the value or range holds; without it the worst one.", show_default=False
        ),
    ] = None
    width: Annotated[int | None, typer.Option(help="Ranges of n bins; without it all ranges.")] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="low:high in the unit, or in bins without --low; either may be empty."),
    ] = None
    quantile: Annotated[float | None, typer.Option(help="Which quantile.", show_default="0.5")] = None
    deviation: Annotated[
        float | None,
        typer.Option(
            help="With --for mean: standard deviation of the readings, in the unit, or part of the range"
            " without --low; without it the worst readings there can be.",
            show_default=False,
        ),
    ] = None
    low: Annotated[float | None, typer.Option(help="Least reading of a number.")] = None
    high: Annotated[float | None, typer.Option(help="Largest reading of a number.")] = None
    unit: Annotated[str, typer.Option(help="The reading's unit, for what is printed.")] = ""
    density: Annotated[
        float | None,
        typer.Option(
            help="Share of devices for each unit around the quantile; else evenly from low to high."
        ),
    ] = None

    def reading(self) -> Reading:
        """What a reading is; raises PlanError where options contradict each other."""
        bins, labels, yes_no, low, high = self.bins, self.labels, self.yes_no, self.low, self.high
        if sum((bins is not None, labels is not None, yes_no)) > 1:
            raise PlanError("a reading is one of --bins (a number), --labels (a choice) and --yes-no")
        if (low is None) != (high is None):
            raise PlanError("--low and --high go together")
        if low is not None and high is not None:
            if labels is not None or yes_no:
                raise PlanError("--low and --high are for a number: they go with --bins")
            if not finite("low", low) < finite("high", high):
                raise PlanError(f"--low must be below --high, unlike {low:g} and {high:g}")
        names = () if labels is None else plan_file.labels_in(labels, "--labels")
        return Reading(yes_no, names, bins, low, high, self.unit)

    def question(self, reading: Reading) -> Question:
        """What is asked of the readings; raises PlanError where it cannot be."""
        single = reading.yes_no or bool(reading.labels)
        kind, share, width, quantile = self.kind, self.share, self.width, self.quantile
        if kind is None:
            kind = For.quantile if quantile is not None else For.frequency if single else For.range
        if self.deviation is not None and kind is not For.mean:
            raise PlanError(f"--deviation goes with --for mean, not {kind.value}")
        wanted: Kind = kind.value
        if single and wanted != "frequency":
            raise PlanError(
                f"a {wanted} is asked of a number (--bins); labels and yes or no have frequencies"
            )
        if (width is not None or self.ranges) and wanted != "range":
            raise PlanError(f"--width and --range go with --for range, not {wanted}")
        if width is not None and self.ranges:
            raise PlanError("--width and --range do not go together: one is any place, the other stated ones")
        if share is not None and not 0 <= share <= 1:
            raise PlanError(f"--share must be from 0 to 1, not {share:g}")
        if wanted == "quantile":
            if share is not None:
                raise PlanError("a quantile's share is its own: say --quantile 0.9, not --share")
            quantile = 0.5 if quantile is None else quantile
            if not 0 < quantile < 1:
                raise PlanError(f"--quantile must be between 0 and 1, not {quantile:g}")
            return Question("quantile", quantile)
        if quantile is not None:
            raise PlanError(f"--quantile goes with --for quantile, not {wanted}")
        if wanted == "mean":
            if share is not None:
                raise PlanError("a mean has no share: say --deviation, or nothing for the worst case")
            return Question("mean", spread=self._spread(reading))
        pairs = tuple(_indices(text, reading) for text in self.ranges or ())
        question = Question(wanted, share, width, pairs)
        if reading.domain is not None and reading.domain >= 2:
            check_ranges(question, reading.domain)
        return question

    def _spread(self, reading: Reading) -> float | None:
        """--deviation as a part of the range; raises PlanError."""
        if self.deviation is None:
            return None
        span = 1.0 if reading.low is None or reading.high is None else reading.high - reading.low
        if not 0 <= self.deviation <= span / 2:
            raise PlanError(
                f"--deviation must be from 0 to half of the range, {span / 2:g}, not {self.deviation:g}"
            )
        return self.deviation / span

    def devices_per_unit(self, reading: Reading, question: Question) -> float | None:
        """Share of devices for each unit around a quantile, a unit's part of the range for a mean.

        None where it is not known.
        """
        density = self.density
        if density is not None:
            if question.kind != "quantile":
                raise PlanError("--density goes with --for quantile: it turns shares into the reading's unit")
            if not (density > 0 and math.isfinite(density)):
                raise PlanError(f"--density must be above 0, not {density:g}")
            return density
        if question.kind not in ("quantile", "mean") or reading.low is None or reading.high is None:
            return None
        return 1 / (reading.high - reading.low)

    def share_error(self, density: float | None, question: Question) -> float | None:
        """The wanted error as a share of devices, if one is wanted; raises PlanError."""
        if self.unit_error is None:
            return self.error
        if self.error is not None or question.kind not in ("quantile", "mean") or density is None:
            raise PlanError(
                "--unit-error is for a mean with --low and --high, or for a quantile with these or --density,"
                " in the place of --error"
            )
        error = self.unit_error * density
        if not 0 < error < 0.5:
            of = "range" if question.kind == "mean" else "fleet"
            raise PlanError(
                f"--unit-error {self.unit_error:g} is {error:.3g} of the {of}, {density:.3g} of it a unit: it"
                " must be between 0 and 0.5"
            )
        return error


@dataclass(frozen=True)
class PlanOptions(QuestionOptions):
    """All of the command's options: the question, how a life is spent, and what comes out besides."""

    lifetime: Annotated[
        float | None, typer.Option(help="Plan a life: the ε that all of a board's reports may cost.")
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(
            help="With --lifetime: the δ that goes with it; with --histogram-epsilon: the histogram's.",
            show_default="0 of a lifetime, 1e-6 of a histogram",
        ),
    ] = None
    horizon: Annotated[str | None, typer.Option(help="With --lifetime: how long, such as 2y.")] = None
    call: Annotated[
        str | None, typer.Option(help="With --lifetime: time between calls to report(), such as 10min.")
    ] = None
    limit: Annotated[
        float | None,
        typer.Option(
            help="With --lifetime: most ε that the boards' policy allows one report.",
            show_default=f"{DEFAULT_LIMIT / MICRO:g}",
        ),
    ] = None
    check: Annotated[bool, typer.Option("--check", help="Draw fleets and measure the plan's errors.")] = False
    fleets: Annotated[int, typer.Option(help="With --check: fleets to draw.")] = 1000
    seed: Annotated[int | None, typer.Option(help="With --check: repeat a run exactly.", min=0)] = None
    worker_count: WorkerCount = None
    dask: DaskUrl = None
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "--write",
            "--plot",
            metavar="FILE",
            help="Write a file: the experiment as .toml, a picture as .png, .pdf or .svg. May be repeated.",
        ),
    ] = None
    force: Force = False
    name: Annotated[str | None, typer.Option(help="Of the experiment, in its file.")] = None
    purpose: Annotated[str | None, typer.Option(help="Why it is asked, in its file.")] = None
    owner: Annotated[str, typer.Option(help="Who answers for it, in its file.")] = "owner@example.org"
    as_json: AsJson = False

    def check_no_lifetime(self) -> None:
        """Raise PlanError for an option that needs --lifetime."""
        for option in ("horizon", "call", "limit", "delta"):
            given = getattr(self, option) is not None
            if given and not (option == "delta" and self.histogram_epsilon is not None):
                raise PlanError(f"--{option} goes with --lifetime, the budget of a board's whole life")

    def epsilon_of_report(self, question: Question, domain: int | None) -> int | None:
        """Micro-nats of --epsilon, or of what --histogram-epsilon allows; raises PlanError."""
        if self.histogram_epsilon is None:
            return micro("epsilon", self.epsilon)
        if self.epsilon is not None:
            raise PlanError("--histogram-epsilon finds the ε of a report: leave --epsilon out")
        if self.devices is None or domain is None or self.error is not None or self.unit_error is not None:
            raise PlanError(
                "--histogram-epsilon needs --devices and one of --bins, --labels and --yes-no, and no error:"
                " what ε a report may have depends on how many there are, and the error follows"
            )
        check_sizes(question, self.devices, domain)
        wanted = finite("histogram-epsilon", self.histogram_epsilon)
        return epsilon_for_histogram(question, self.devices, domain, wanted, self.histogram_delta)

    @property
    def histogram_delta(self) -> float:
        """δ of the histograms' ε."""
        if self.histogram_epsilon is None or self.delta is None:
            return USUAL_HISTOGRAM_DELTA
        return finite("delta", self.delta)

    def lifetime_parts(self) -> tuple[LifetimeBudget, Rhythm, int]:
        """LifetimeBudget, rhythm, and the most micro-nats of one report; raises PlanError."""
        if self.histogram_epsilon is not None:
            raise PlanError("--histogram-epsilon is for one report of each device: leave --lifetime out")
        if self.horizon is None or self.call is None:
            raise PlanError("--lifetime needs --horizon and --call, for example --horizon 2y --call 10min")
        budget = LifetimeBudget(micro("lifetime", self.lifetime) or 0, finite("delta", self.delta or 0.0))
        rhythm = Rhythm(parse_duration(self.call), parse_duration(self.horizon))
        most = micro("limit", self.limit)
        return budget, rhythm, DEFAULT_LIMIT if most is None else most

    @property
    def says_nothing(self) -> bool:
        """Whether no option says what is to be planned."""
        about_files = ("output", "force", "name", "purpose", "owner")
        return all(getattr(self, f.name) == f.default for f in fields(self) if f.name not in about_files)

    def files(self, reading: Reading) -> tuple[Path, ...]:
        """The files to write. Raises UsageError or PlanError where one cannot be."""
        paths = checked(self.output, self.force, EXPERIMENT, *PICTURES)
        number = not reading.yes_no and not reading.labels
        if number and reading.low is None and any(path.suffix.lower() == EXPERIMENT for path in paths):
            raise PlanError(plan_file.NEEDS_RANGE)
        return paths

    def named(self, path: Path) -> Named:
        """What people say of an experiment in the file at path, from today on."""
        today = datetime.datetime.now(datetime.UTC).date()
        return Named(self.name or plan_file.name_from(path), self.purpose, self.owner, today)


def finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise PlanError(f"{name} must be a number, not {value}")
    return value


def micro(name: str, value: float | None) -> int | None:
    return None if value is None else round(finite(name, value * MICRO))


def _indices(text: str, reading: Reading) -> tuple[int, int]:
    """Half-open indices of "low:high": in the reading's unit where its range is known, else in bins."""
    if reading.bins is None:
        raise PlanError("--range needs --bins: leave another of the four open, or take --width")
    low_text, colon, high_text = text.partition(":")
    try:
        ends = [float(low_text) if low_text else None, float(high_text) if high_text else None]
    except ValueError:
        colon = ""
        ends = []
    if not colon or not all(e is None or math.isfinite(e) for e in ends):
        raise PlanError(f"a range reads low:high, for example 20:25 or 8:, not {text}")
    low, high = (0.0, float(reading.bins)) if reading.low is None else (reading.low, reading.high or 0.0)
    places = [
        end if e is None else (e - low) / (high - low) * reading.bins
        for e, end in zip(ends, (0.0, float(reading.bins)), strict=True)
    ]
    first, last = (round(min(max(p, 0), reading.bins)) for p in places)
    if first >= last:
        raise PlanError(
            f"{text} lies within half a bin, outside {low:g} to {high:g}, or is the wrong way round"
        )
    return first, last
