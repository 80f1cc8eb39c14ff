"""`hushmote estimate`: what the fleet says, whether it changed, and how it went over the windows."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from ..device.ldp_client import Experiment
from ..server.answers import tables
from ..server.answers.ask import ask
from ..server.answers.pair_tables import PairQuestion
from ..server.answers.query import Facts, Selection
from ..server.answers.question import EstimateQuestion
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
class SelectionOptions:
    """The command's argument, and which reports are asked about."""

    name: Annotated[str, typer.Argument(help="Name of the experiment.")]
    store: StoreUrl = DEFAULT_STORE
    fleet: FleetName = None
    windows: Annotated[
        list[str] | None, typer.Option("--window", help="Such as 2026-11-21; several are added up.")
    ] = None
    version: Annotated[str, typer.Option(help="One version only: its digest, or how that begins.")] = ""

    @property
    def selection(self) -> Selection:
        """The reports that are asked about."""
        return Selection(self.name, self.fleet or "", tuple(self.windows or ()), self.version)


@dataclass(frozen=True)
class EpsilonOptions(SelectionOptions):
    """What the ε of a histogram is worked out with."""

    delta: Annotated[float, typer.Option(help="δ that goes with the ε of a histogram.")] = 1e-6
    honest: Annotated[
        float, typer.Option(help="Part of the reports that hide a board's: forged ones do not.")
    ] = 1.0

    @property
    def shuffling(self) -> Shuffling:
        """The same, checked."""
        return Shuffling(self.delta, self.honest)


@dataclass(frozen=True)
class ValueOptions(EpsilonOptions):
    """What is asked of experiments whose readings have a share each."""

    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, a label, or a text.")
    ] = None
    above: Annotated[list[float] | None, typer.Option(help="Share at or above, in the unit.")] = None
    below: Annotated[list[float] | None, typer.Option(help="Share below, in the unit.")] = None
    together: Annotated[
        bool, typer.Option("--together", help="One share of all these ranges or labels, not each.")
    ] = False
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None
    top: Annotated[int, typer.Option(help="The most common values, and how sure that is.", min=0)] = 0
    cdf: Annotated[bool, typer.Option("--cdf", help="The share below every bin's edge.")] = False
    rows: Annotated[
        int | None, typer.Option(help="Rows of a number's histogram at most; 16 if not said.", min=1)
    ] = None
    post: Annotated[
        str,
        typer.Option(
            help="Processed shares beside the unbiased ones: nonnegative, smooth, package.module:function."
        ),
    ] = "raw"


@dataclass(frozen=True)
class KindOptions(ValueOptions):
    """What is asked of experiments of another kind: see server/experiments/asking.py."""

    candidates: Annotated[
        Path | None, typer.Option(help="Of texts: a file of those asked about, one a line.", metavar="FILE")
    ] = None
    discover: Annotated[
        bool, typer.Option("--discover", help="Of prefixes: which texts there are, without a list.")
    ] = False
    alphabet: Annotated[
        str | None,
        typer.Option(help="What these are made of, such as a-z0-9._-; printable ASCII if not said."),
    ] = None
    of: Annotated[
        str,
        typer.Option(help='Of a pair: "crashed=yes", or a part: of a number its mean.'),
    ] = ""
    given: Annotated[
        str,
        typer.Option(help='Among those of each value of a part, or with "version=1.2".'),
    ] = ""
    versus: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Among those of one condition, less that among others."),
    ] = None
    joint: Annotated[bool, typer.Option("--joint", help="The table of all parts together.")] = False


@dataclass(frozen=True)
class EstimateOptions(KindOptions):
    """What it is compared with, how, and what comes out."""

    trend: Annotated[bool, typer.Option("--trend", help="One row for each window.")] = False
    against_window: Annotated[
        list[str] | None, typer.Option(help="What changed since this window, or these.")
    ] = None
    against_fleet: Annotated[str, typer.Option(help="How it differs from another fleet.")] = ""
    against_version: Annotated[str, typer.Option(help="How it differs from another version.")] = ""
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = CONFIDENCE
    weigh: Annotated[Weigh, typer.Option(help="What weighs versions; fisher: codes too.")] = Weigh.reports
    unit: Annotated[
        str | None,
        typer.Option(
            help="Written beside readings, such as °C; else what the file said.", show_default=False
        ),
    ] = None
    outputs: Results = None
    as_json: AsJson = False

    @property
    def against(self) -> Selection | None:
        """The reports that they are compared with, if they are."""
        if not (self.against_window or self.against_fleet or self.against_version):
            return None
        return Selection(
            self.name,
            self.against_fleet or self.fleet or "",
            tuple(self.against_window or self.windows or ()),
            self.against_version or ("" if self.against_fleet else self.version),
        )

    def check(self) -> None:
        """Raise UsageError for what would be left unanswered."""
        if self.against == self.selection:
            raise UsageError("both sides are the same: name another window, fleet or version to compare with")
        if self.trend and self.against:
            raise UsageError("--trend and --against are two questions: ask one at a time")
        if self.together and not (self.ranges or self.above or self.below or self.candidates):
            raise UsageError("--together is about ranges: name some, each with --range")
        if not (self.trend or self.against):
            return
        asked = "--trend" if self.trend else "--against"
        if self.top:
            single = "--range LABEL, or --range LOW:HIGH of a number"
            raise UsageError(f"{asked} has no --top: ask for the shares of single values, {single}")
        if self.post != "raw":
            raise UsageError(
                f"{asked} has no --post: processed shares have no intervals, and chance cannot be told from "
                "change without; leave --post out"
            )
        if self.together:
            raise UsageError(f"{asked} has no --together: it tells of each range by itself")
        if self.trend and self.cdf:
            raise UsageError("--trend has no --cdf: ask for --below or --quantile")
        if self.rows and (self.trend or self.ranges or self.above or self.below):
            raise UsageError("--rows is for histograms, and there is none here: leave it out")

    def shares(self, asked: Sequence[Experiment]) -> list[str]:
        """Ranges, labels and texts of which shares are asked for; asked: the experiment's versions."""
        kind = asked[-1].type
        if kind != "number" and (self.above or self.below):
            raise UsageError(f"--above and --below are for numbers; {self.name} is a {kind}")
        listed: list[str] = []
        if self.discover:
            require(asked, "discovery", "leave --discover out")
        if self.candidates is not None:
            require(asked, "candidates", "leave --candidates out")
            listed = read_candidates(self.candidates)
        above, below = (f"{x:g}:" for x in self.above or ()), (f":{x:g}" for x in self.below or ())
        return [*(self.ranges or ()), *above, *below, *listed]

    def question(self) -> EstimateQuestion:
        """All that is asked, but for ranges, which need the experiment's type: see shares()."""
        return EstimateQuestion(
            self.selection,
            self.against,
            together=self.together,
            quantiles=tuple(self.quantiles or ()),
            top=self.top,
            cdf=self.cdf,
            rows=self.rows,
            post=self.post,
            trend=self.trend,
            confidence=self.confidence,
            weigh=self.weigh.value,
            shuffling=self.shuffling,
            unit=self.unit,
            alphabet=self.alphabet,
            pair=PairQuestion(self.of, self.given, self.versus, self.joint),
        )


def _run(options: EstimateOptions) -> None:
    """Estimate frequencies, ranges, quantiles, mean, trends and changes, with intervals.

    With --trend there is a row for each window; with an --against option, what changed since then, or differs
    from there. A picture shows what was asked for, all of it; where nothing was, the histogram.
    """
    outputs = output.checked(options.outputs, ".csv", ".json", *PICTURES)
    with StoreReader(options.store) as store:
        options = replace(options, fleet=store.fleet(options.fleet).name)
        options.check()
        question = options.question()
        facts = Facts(store.store)
        asked = [version.experiment for version in facts.selected(options.selection).versions]
        reply = ask(facts, replace(question, ranges=tuple(options.shares(asked))))
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
    tables.out.print(f"\n{reply.epsilons.words(question.seen())}\n\n{reply.guide.words()}")
    for path in outputs:
        tables.out.print(f"written: {path}")


estimate_command = command(EstimateOptions, _run)
