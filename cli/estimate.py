"""`hushmote estimate`: what the fleet says, whether it changed, and how it went over the windows."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ..server.answers import tables
from ..server.answers.ask import EstimateQuestion, ask
from ..server.answers.pair_tables import PairQuestion
from ..server.answers.query import Facts, Selection
from ..server.answers.rows import CONFIDENCE
from ..server.answers.second_epsilon import Shuffling
from ..server.answers.store_reader import StoreReader
from ..server.errors import UsageError
from ..server.experiments.asking import require
from . import output
from .candidates import read_candidates
from .options import DEFAULT_STORE, AsJson, FleetName, StoreUrl, command, print_json
from .output import PICTURES, Results


class Weigh(enum.StrEnum):
    """What weighs versions of an experiment, and codes."""

    reports = "reports"
    variance = "variance"
    fisher = "fisher"


@dataclass(frozen=True)
class ReportOptions:
    """Which reports are asked about, and what the ε of their histogram is worked out with."""

    name: Annotated[str, typer.Argument(help="Name of the experiment.")]
    store: StoreUrl = DEFAULT_STORE
    fleet: FleetName = None
    windows: Annotated[list[str] | None, typer.Option("--window", help="2026-11-21; several add up.")] = None
    version: Annotated[str, typer.Option(help="One version only: its digest, or how that begins.")] = ""
    delta: Annotated[float, typer.Option(help="δ that goes with the ε of a histogram.")] = 1e-6
    honest: Annotated[float, typer.Option(help="Part of the reports that are not forged.")] = 1.0

    @property
    def selection(self) -> Selection:
        """The reports that are asked about."""
        return Selection(self.name, self.fleet or "", tuple(self.windows or ()), self.version)


@dataclass(frozen=True)
class ValueOptions(ReportOptions):
    """What is asked, of values, of texts and of pairs: see server/experiments/asking.py."""

    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="LOW:HIGH in the reading's unit, LOW: or :HIGH, a label, or a text."),
    ] = None
    together: Annotated[bool, typer.Option("--together", help="One share of all these, not each.")] = False
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None
    top: Annotated[int, typer.Option(help="The most common values, and how sure that is.", min=0)] = 0
    cdf: Annotated[bool, typer.Option("--cdf", help="The share below every bin's edge.")] = False
    rows: Annotated[int | None, typer.Option(help="Rows of a number's histogram; else 16.", min=1)] = None
    post: Annotated[
        str, typer.Option(help="Processed shares beside: nonnegative, smooth, package.module:function.")
    ] = "raw"
    candidates: Annotated[
        Path | None, typer.Option(help="Of texts: a file of those asked about, one a line.", metavar="FILE")
    ] = None
    alphabet: Annotated[str | None, "Of prefixes: what texts are made of, as a-z0-9._-; else ASCII."] = None
    of: Annotated[str, typer.Option(help='Of a pair: "crashed=yes", or a part: of a number its mean.')] = ""
    given: Annotated[
        list[str] | None,
        typer.Option(help='Among those of each value of a part, or with "version=1.2"; two: also compared.'),
    ] = None
    joint: Annotated[bool, typer.Option("--joint", help="The table of all parts together.")] = False

    @property
    def pair(self) -> PairQuestion:
        """What is asked of a pair."""
        match self.given or []:
            case [first, second]:
                return PairQuestion(self.of, "", (first, second), self.joint)
            case [_, _, _, *_]:
                raise UsageError("--given is there once, or twice for two conditions and their difference")
            case given:
                return PairQuestion(self.of, "".join(given), None, self.joint)


@dataclass(frozen=True)
class EstimateOptions(ValueOptions):
    """What it is compared with, how, and what comes out."""

    trend: Annotated[bool, typer.Option("--trend", help="One row for each window.")] = False
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="WINDOW",
            help="What changed since this window, or these; or fleet=NAME, or version=DIGEST.",
        ),
    ] = None
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = CONFIDENCE
    weigh: Annotated[Weigh, typer.Option(help="What weighs versions; fisher: codes too.")] = Weigh.reports
    unit: Annotated[str | None, "Written beside readings, such as °C; else what the file said."] = None
    outputs: Results = None
    as_json: AsJson = False

    @property
    def against(self) -> Selection | None:
        """The reports that they are compared with, if they are. Raises UsageError for what names none."""
        if not self.other:
            return None
        named: dict[str, list[str]] = {"window": [], "fleet": [], "version": []}
        for text in self.other:
            what, equals, name = text.partition("=")
            if equals and what not in named:
                raise UsageError(f"--against takes a window, fleet=NAME or version=DIGEST, not {text}")
            named[what if equals else "window"].append(name if equals else text)
        windows, fleets, versions = named.values()
        if max(len(fleets), len(versions)) > 1:
            raise UsageError("--against takes one fleet, and one version")
        fleet, version = "".join(fleets), "".join(versions)
        return Selection(
            self.name,
            fleet or self.fleet or "",
            tuple(windows or self.windows or ()),
            version or ("" if fleet else self.version),
        )

    def check(self) -> None:
        """Raise UsageError for what would be left unanswered."""
        if self.against == self.selection:
            raise UsageError("both sides are the same: name another window, fleet or version to compare with")
        if self.trend and self.against:
            raise UsageError("--trend and --against are two questions: ask one at a time")
        if self.together and not (self.ranges or self.candidates):
            raise UsageError("--together is about ranges: name some, each with --range")
        if not (self.trend or self.against):
            return
        asked, single = "--trend" if self.trend else "--against", "--range LABEL, or --range LOW:HIGH"
        chance = "processed shares have no intervals, and chance cannot be told from change without"
        lacking: tuple[tuple[str, object, str], ...] = (
            ("--top", self.top, f"ask for the shares of single values, {single} of a number"),
            ("--post", self.post != "raw", f"{chance}; leave --post out"),
            ("--together", self.together, "it tells of each range by itself"),
            ("--cdf", self.trend and self.cdf, "ask for --range :HIGH or --quantile"),
        )
        for option, there, instead in lacking:
            if there:
                raise UsageError(f"{asked} has no {option}: {instead}")
        if self.rows and (self.trend or self.ranges):
            raise UsageError("--rows is for histograms, and there is none here: leave it out")

    def question(self, facts: Facts) -> EstimateQuestion:
        """All that is asked of these facts."""
        ranges = list(self.ranges or ())
        if self.candidates is not None:
            asked = [version.experiment for version in facts.selected(self.selection).versions]
            require(asked, "candidates", "leave --candidates out")
            ranges += read_candidates(self.candidates)
        same = ("together", "top", "cdf", "rows", "post", "trend", "confidence", "unit", "alphabet", "pair")
        return EstimateQuestion(
            self.selection,
            self.against,
            ranges=tuple(ranges),
            quantiles=tuple(self.quantiles or ()),
            weigh=self.weigh.value,
            shuffling=Shuffling(self.delta, self.honest),
            **{name: getattr(self, name) for name in same},
        )


def _run(options: EstimateOptions) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    With --trend there is a row for each window; with --against, what changed since then, or differs
    from there. A picture shows what was asked for, all of it; where nothing was, the histogram.
    """
    outputs = output.checked(options.outputs, ".csv", ".json", *PICTURES)
    with StoreReader(options.store) as store:
        options = replace(options, fleet=store.fleet(options.fleet).name)
        options.check()
        facts = Facts(store.store)
        reply = ask(facts, options.question(facts))
    for path in outputs:
        if path.suffix.lower() in PICTURES:
            reply.pictured().plot(path)
        else:
            csv = path.suffix.lower() == ".csv"
            output.write(path, reply.answers.to_csv() if csv else reply.to_json())
    if options.as_json:
        print_json(reply.to_dict())
        return
    estimate, answers = reply.estimate, reply.answers
    versus = f"; against {answers[0].against}" if answers[0].against else ""
    tables.out.print(f"{options.name}: {estimate.reports:,} reports, {estimate.which}{versus}")
    tables.answers(answers)
    tables.out.print(f"\n{reply.epsilons.words(reply.question.seen())}\n\n{reply.guide.words()}")
    for path in outputs:
        tables.out.print(f"written: {path}")


estimate_command = command(EstimateOptions, _run)
