"""The options of `hushmote estimate`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ...server.answers.rows import CONFIDENCE
from ..options import DEFAULT_STORE, AsJson, FleetName, StoreUrl
from ..output import Results


class Weigh(enum.StrEnum):
    """What weighs versions of an experiment, and codes."""

    reports = "reports"
    variance = "variance"
    fisher = "fisher"


class By(enum.StrEnum):
    """What windows are put together by."""

    day = "day"
    week = "week"
    month = "month"


@dataclass(frozen=True)
class ReportOptions:
    """Which reports are asked about, and what the ε of their histogram is worked out with."""

    name: Annotated[str, typer.Argument(help="Name of the experiment.")]
    store: StoreUrl = DEFAULT_STORE
    fleet: FleetName = None
    windows: Annotated[
        list[str] | None,
        typer.Option("--window", help="2026-11-21, 2026-11 or 2026-11-01..2026-11-07; several add up."),
    ] = None
    last: Annotated[
        str, typer.Option(metavar="LENGTH", help="Of the last 7d, 12h or 2w.", show_default=False)
    ] = ""
    version: Annotated[str, typer.Option(help="One version only: its digest, or how that begins.")] = ""
    delta: Annotated[float, typer.Option(help="δ that goes with the ε of a histogram.")] = 1e-6
    honest: Annotated[float, typer.Option(help="Part of the reports that are not forged.")] = 1.0


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


@dataclass(frozen=True)
class EstimateOptions(ValueOptions):
    """What it is compared with, how, and what comes out."""

    trend: Annotated[
        bool, typer.Option("--trend", help="How it went over the windows; with --rows a row for each.")
    ] = False
    by: Annotated[By | None, typer.Option(help="A trend by the day, week or month.")] = None
    against_last: Annotated[
        str,
        typer.Option(
            metavar="LENGTH", help="The last 7d, 12h or 2w against as long before.", show_default=False
        ),
    ] = ""
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
