"""`hushmote demo`: real readings, real clients, a real broker, the real aggregator in its own process."""

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..server.answers import second_epsilon
from ..server.answers import tables as show
from ..server.answers.answer import Answers
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.answers.rows import coverage
from ..server.answers.second_epsilon import TwoEpsilons
from ..server.answers.store_reader import StoreReader
from ..server.epsilon import MICRO
from ..server.estimate.estimate import estimate
from ..server.experiments import definition as experiment
from ..server.experiments.definition import Definition
from ..server.mechanisms import mechanism_of
from ..server.store.store import Store
from ..server.words.epsilon import belief
from .demo_questions import QUESTIONS
from .population import Reading, reported_shares
from .stage import FLEET, DemoError, Place, Reported, staged

TEMPERATURES = "temperatures"  # what is asked where nobody says what


@dataclass(frozen=True)
class DemoResult:
    """What a demo found: tables with the truth beside them, sizes, times in seconds, where the files are.

    said: of the answers, in plain English; empty where they speak for themselves. files: pictures by their
    names, and the store.
    """

    estimates: FleetEstimate
    answers: Answers
    said: str
    reported: Reported
    files: dict[str, Path]
    epsilons: TwoEpsilons

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        e, reported = self.estimates.experiment, self.reported
        covered, known = coverage(self.answers)
        if self.said:
            answers = {
                "mechanism": mechanism_of(e).words(),
                "answers": [one.to_dict() for one in self.answers],
                "in_words": self.said,
            }
        else:
            histogram, ranges, median = ([row.to_dict() for row in one.rows] for one in self.answers)
            answers = {"histogram": histogram, "ranges": ranges, "median": median[0]}
        return {
            "experiment": e.name,
            "epsilon": e.epsilon / MICRO,
            "epsilons": self.epsilons.to_dict(),
            "reports": self.estimates.reports,
            "came_twice": reported.twice,
            "report_bytes": reported.report_bytes,
            **answers,
            "intervals": known,
            "intervals_that_hold_the_truth": covered,
            "fleet_s": round(reported.fleet_s, 2),
            "count_s": round(reported.count_s, 2),
            **{name: str(path) for name, path in self.files.items()},
        }


def chosen(readings: Sequence[Reading], devices: int | None) -> list[Reading]:
    """Some of the readings, all for None, spread evenly, in random order. Raises DemoError for too many.

    Devices report in any order: the first thousand are a sample of all, not January at one airport.
    """
    if devices is not None:
        if not 100 <= devices <= len(readings):
            raise DemoError(f"--devices must be from 100 to {len(readings)}, the readings there are")
        readings = [readings[i] for i in np.linspace(0, len(readings) - 1, devices).astype(int)]
    return [readings[i] for i in np.random.default_rng().permutation(len(readings))]


def run(place: Place, devices: int | None, word: str = TEMPERATURES) -> DemoResult:
    """Ask one of QUESTIONS of this many devices, None for the usual number.

    Raises DemoError, BrokerError, GatewayError and StoreError with one line.
    """
    question = QUESTIONS[word]
    every = question.readings()
    readings = chosen(every, question.usual if devices is None else devices)
    definition = experiment.parse(question.definition)
    if not place.quiet:
        about = "private telemetry, end to end" if word == TEMPERATURES else definition.purpose
        show.out.print(f"Hushmote demo: {about}\n", style="bold")
    place.say("data", question.data.format(n=len(readings), all=len(every)))
    if word != TEMPERATURES:
        place.say("asked", mechanism_of(definition.experiment()).words())
    reported, estimates = _reported(place, definition, readings, question.thing)
    # The demo is over: every board has made its one report, and nothing counts any more.
    epsilons = second_epsilon.of_histograms([(estimates.experiment, estimates.reports)], own=1)
    answers = question.answers(estimates)
    files = question.pictures(place.folder, estimates, answers, reported)
    files["store"] = place.folder / "demo.sqlite"
    return DemoResult(estimates, answers, question.said(estimates, answers), reported, files, epsilons)


def _reported(
    place: Place, definition: Definition, readings: Sequence[Reading], thing: str
) -> tuple[Reported, FleetEstimate]:
    """Let a device report each of the readings, and estimate; thing: what a reading is."""
    asked = definition.experiment()

    def fill(store: Store) -> None:
        store.add_fleet(FLEET, keyed=True)
        described = definition.description()
        store.add_experiment(FLEET, definition.payload(), definition.expires, description=described)

    with staged(place, "demo", fill) as stage:
        place.say(
            "server",
            f"aggregator, process {stage.process.pid}; it published the experiment, signed and retained",
        )
        epsilon = asked.epsilon / MICRO
        private = f"ε = {epsilon:g}. {belief(epsilon, thing)}"
        place.say(
            "devices", f"take the experiment from the broker; simulated ones are made with a yes. {private}"
        )
        reported = stage.report(asked, readings)
        made = estimate(asked, stage.store.histogram(FLEET, asked.digest))
    if asked.type == "text":
        held = {str(text): n / len(readings) for text, n in Counter(readings).items()}
        return reported, FleetEstimate(made, unit=definition.unit, texts=held)
    truth = reported_shares(*reported.fleet.index_counts(asked.name))
    return reported, FleetEstimate(made, unit=definition.unit, truth=truth)


def show_outcome(outcome: DemoResult) -> None:
    """Print what was found, beside the truth, in 80 columns."""
    covered, known = coverage(outcome.answers)
    for answer in outcome.answers:
        show.out.print()
        show.answers([answer])
    show.out.print(f"\n{covered} of {known} intervals hold the truth (95 % of them should, in the long run)")
    show.out.print(outcome.epsilons.words())
    reported, reports = outcome.reported, outcome.estimates.reports
    code_bytes = outcome.estimates.experiment.code_bytes
    show.out.print(f"{reported.report_bytes} bytes per report: {code_bytes} of code, the rest header and tag")
    times = f"{reports:,} reports in {reported.fleet_s:.1f} s ({reports / reported.fleet_s:,.0f} a second)"
    show.out.print(f"{times}, all counted {reported.count_s:.1f} s later")
    show.out.print()
    *pictures, store = outcome.files.values()
    for path in pictures:
        show.out.print(f"picture: {path}", soft_wrap=True)
    program = "hushmote" if shutil.which("hushmote") else sys.argv[0]  # make demo needs no environment
    asked = f"--store sqlite:///{store}"
    lines = [f"{program} status {asked}"]
    if not outcome.said:
        name = outcome.estimates.experiment.name
        lines = [f"{program} estimate {name} {asked} --range 86:", *lines, f"{program} plan"]
    show.out.print("\nnext\n" + "\n".join(f"  {line}" for line in lines), soft_wrap=True)
    if not outcome.said:
        show.out.print(f"\nsee it live, in a browser: make page, or {program} demo --page", soft_wrap=True)
    with StoreReader(f"sqlite:///{store}") as reader:
        known = reader.fleet().experiment().finding
    show.out.print(f"\n{known.purpose}\n{outcome.said or known.sentence}")
