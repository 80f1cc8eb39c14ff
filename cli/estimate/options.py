"""The options of `hushmote estimate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from ...server.answers.rows import CONFIDENCE
from ..options import DEFAULT_STORE, AsJson, FleetName, StoreUrl
from ..output import Results


@dataclass(frozen=True)
class ReportOptions:
    """Which reports are asked about, and what the ε of their histogram is worked out with."""

    name: Annotated[str, typer.Argument(help="Name of the experiment.")]
    store: StoreUrl = DEFAULT_STORE
    fleet: FleetName = None
    windows: Annotated[
        list[str] | None, "2026-11-21, 2026-11 or 2026-11-01..2026-11-07; several add up.", "--window"
    ] = None
    last: Annotated[str, "The last 7d, 12h or 2w before today, or all; else 7d.", "LENGTH"] = ""
    version: Annotated[str, "One version only: its digest, or the first digits."] = ""
    delta: Annotated[float, "δ that goes with the ε of a histogram."] = 1e-6
    honest: Annotated[float, "Share of the reports that are not forged."] = 1.0


@dataclass(frozen=True)
class ValueOptions(ReportOptions):
    """What is asked, of values, of texts and of pairs: see server/experiments/asking.py."""

    ranges: Annotated[
        list[str] | None, "LOW:HIGH in the reading's unit, LOW: or :HIGH, a label, or a text.", "--range"
    ] = None
    together: Annotated[bool, "One share of them all, not of each."] = False
    quantiles: Annotated[list[float] | None, "Between 0 and 1.", "--quantile"] = None
    top: Annotated[int, typer.Option(help="The most common values, and how sure that is.", min=0)] = 0
    cdf: Annotated[bool, "The share below every bin's edge."] = False
    rows: Annotated[int | None, typer.Option(help="Rows of a number's histogram; else 16.", min=1)] = None
    post: Annotated[str, "Also processed shares: nonnegative, smooth, package.module:function."] = "raw"
    candidates: Annotated[Path | None, "For texts: a file of texts to look for, one a line.", "FILE"] = None
    alphabet: Annotated[str | None, "For prefixes: characters of the texts, as a-z0-9._-; else ASCII."] = None
    of: Annotated[str, 'For a pair: "crashed=yes", or a number part for its mean.'] = ""
    given: Annotated[
        list[str] | None, 'Among devices with each value of a part, or "version=1.2"; two are compared.'
    ] = None
    joint: Annotated[bool, "The table of all parts together."] = False


@dataclass(frozen=True)
class EstimateOptions(ValueOptions):
    """What it is compared with, how, and what comes out."""

    trend: Annotated[bool, "The change over the windows; with --rows, a row for each."] = False
    by: Annotated[Literal["day", "week", "month"] | None, "A trend by the day, week or month."] = None
    against_last: Annotated[str, "Compare the last 7d, 12h or 2w with as long before.", "LENGTH"] = ""
    other: Annotated[
        list[str] | None,
        "Compare with this window, or these; or fleet=NAME, or version=DIGEST.",
        "--against",
        "WINDOW",
    ] = None
    confidence: Annotated[float, "Confidence of the intervals."] = CONFIDENCE
    weigh: Annotated[Literal["reports", "variance"], "How to weigh versions."] = "reports"
    unit: Annotated[str | None, "Unit of the readings to print, such as °C; else the file's."] = None
    outputs: Results = None
    as_json: AsJson = False
