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
        str, typer.Option(metavar="LENGTH", help="Only the last 7d, 12h or 2w.", show_default=False)
    ] = ""
    version: Annotated[str, typer.Option(help="One version only: its digest, or the first digits.")] = ""
    delta: Annotated[float, typer.Option(help="δ that goes with the ε of a histogram.")] = 1e-6
    honest: Annotated[float, typer.Option(help="Share of the reports that are not forged.")] = 1.0


@dataclass(frozen=True)
class ValueOptions(ReportOptions):
    """What is asked, of values, of texts and of pairs: see server/experiments/asking.py."""

    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="LOW:HIGH in the reading's unit, LOW: or :HIGH, a label, or a text."),
    ] = None
    together: Annotated[bool, typer.Option("--together", help="One share of them all, not of each.")] = False
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None
    top: Annotated[int, typer.Option(help="The most common values, and how sure that is.", min=0)] = 0
    cdf: Annotated[bool, typer.Option("--cdf", help="The share below every bin's edge.")] = False
    rows: Annotated[int | None, typer.Option(help="Rows of a number's histogram; else 16.", min=1)] = None
    post: Annotated[
        str, typer.Option(help="Also processed shares: nonnegative, smooth, package.module:function.")
    ] = "raw"
    candidates: Annotated[
        Path | None, typer.Option(help="For texts: a file of texts to look for, one a line.", metavar="FILE")
    ] = None
    alphabet: Annotated[str | None, "For prefixes: characters of the texts, as a-z0-9._-; else ASCII."] = None
    of: Annotated[str, typer.Option(help='For a pair: "crashed=yes", or a number part for its mean.')] = ""
    given: Annotated[
        list[str] | None,
        typer.Option(help='Among devices with each value of a part, or "version=1.2"; two are compared.'),
    ] = None
    joint: Annotated[bool, typer.Option("--joint", help="The table of all parts together.")] = False


@dataclass(frozen=True)
class EstimateOptions(ValueOptions):
    """What it is compared with, how, and what comes out."""

    trend: Annotated[
        bool, typer.Option("--trend", help="The change over the windows; with --rows, a row for each.")
    ] = False
    by: Annotated[By | None, typer.Option(help="A trend by the day, week or month.")] = None
    against_last: Annotated[
        str,
        typer.Option(
            metavar="LENGTH", help="Compare the last 7d, 12h or 2w with as long before.", show_default=False
        ),
    ] = ""
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="WINDOW",
            help="Compare with this window, or these; or fleet=NAME, or version=DIGEST.",
        ),
    ] = None
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = CONFIDENCE
    weigh: Annotated[Weigh, typer.Option(help="Weights of versions; fisher: of codes too.")] = Weigh.reports
    unit: Annotated[str | None, "Unit of the readings to print, such as °C; else the file's."] = None
    outputs: Results = None
    as_json: AsJson = False
