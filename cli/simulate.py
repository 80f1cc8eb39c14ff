"""`hushmote simulate`: a fleet before it is built."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..device.ldp_client import Experiment
from ..server.answers import answer
from ..server.answers import tables as show
from ..server.estimate.estimate import estimate
from ..server.experiments import words
from ..server.experiments.definition import Definition, load
from ..server.experiments.units import parse_range
from ..simulator import attack as attacks
from ..simulator import population, vectorised
from ..simulator.attack import AttackError
from ..simulator.faithful import Fleet
from ..simulator.faults import Faults
from ..simulator.population import Population, PopulationError
from .options import AsJson, print_json


def simulate(
    file: Annotated[Path, typer.Argument(help="TOML file of the experiment.")],
    devices: Annotated[int, typer.Option(help="Number of devices.", min=2)] = 100_000,
    spec: Annotated[
        str | None,
        typer.Option("--population", help="Such as normal:21:3, zipf:1.2, uniform:0:40, weights:1:2:7."),
    ] = None,
    csv: Annotated[
        str | None, typer.Option(help="FILE:COLUMN of readings, drawn from with replacement.")
    ] = None,
    calls: Annotated[int, typer.Option(help="Calls to report() of each device.", min=1)] = 1,
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Run the real client on every device, about 2,000 a second.")
    ] = False,
    offline: Annotated[float, typer.Option(help="Faithful: chance of losing the connection.")] = 0.0,
    duplicate: Annotated[float, typer.Option(help="Faithful: chance of sending a report twice.")] = 0.0,
    late: Annotated[float, typer.Option(help="Faithful: share of devices that send only at the end.")] = 0.0,
    reboot: Annotated[float, typer.Option(help="Faithful: chance of a restart.")] = 0.0,
    attack: Annotated[
        str | None,
        typer.Option(help="Fake devices: random, promote:VALUE, shift:LOW:HIGH or flood:VALUE (one code)."),
    ] = None,
    attackers: Annotated[float, typer.Option(help="Share of the devices that are fake.")] = 0.05,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, or a label.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    seed: Annotated[
        int | None, typer.Option(help="Repeat a run exactly; without it every run differs.", min=0)
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Write the histogram as a PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a fleet before it is built: what would be estimated, beside the truth."""
    definition = load(file)
    payload = definition.payload()
    experiment = Experiment.parse(payload)
    people = _population(definition, spec, csv)
    rng = np.random.default_rng(seed)
    forgery, fake, outcome = None, 0, None
    if attack is not None:
        if faithful:
            raise AttackError("fake devices do not run the real client: --attack is without --faithful")
        fake = round(devices * attackers) if 0 < attackers < 1 else 0
        if not 0 < fake < devices - 1:
            raise AttackError(
                f"attackers must be a share of {devices} devices from 0 to 1, not {attackers:g}"
            )
        forgery = attacks.parse(experiment, attack)
        devices -= fake
    if faithful:
        try:
            faults = Faults(offline=offline, duplicate=duplicate, late=late, reboot=reboot)
        except ValueError as e:
            raise PopulationError(str(e)) from None
        truth, counts = _faithful(experiment, payload, people, devices, calls, faults, rng, seed is not None)
    else:
        if offline or duplicate or late or reboot:
            raise PopulationError(
                "offline, duplicate, late and reboot need --faithful: only real clients have faults"
            )
        truth, counts = _vectorised(experiment, people, devices, calls, rng)
    if forgery is not None:
        outcome, counts = attacks.run(experiment, forgery, fake, calls, counts, truth, rng)
        devices += fake
    found = estimate(experiment, counts)
    unit = definition.unit
    answers = [answer.histogram(found, rows, truth, unit)]
    if ranges:
        wanted = [parse_range(experiment, text) for text in ranges]
        answers.append(answer.ranges(found, wanted, truth, unit))
    if quantiles:
        answers.append(answer.quantiles(found, quantiles, truth, unit))
    if experiment.type == "number":
        answers.append(answer.mean_and_deviation(found, truth, unit))
    covered, known = answer.coverage(answers)
    if plot:
        show.plot(plot, experiment, answers[0])
    if as_json:
        result = {"experiment": experiment.name, "devices": devices, "reports": found.reports, "seed": seed}
        result |= {one.kind: [row.to_dict() for row in one.rows] for one in answers}
        result |= {"intervals": known, "intervals_that_hold_the_truth": covered}
        if outcome:
            result["attack"] = outcome.to_dict()
        print_json(result)
        return
    show.out.print(
        f"{definition.name}: {devices:,} devices, {found.reports:,} reports; {words.mechanism(experiment)}"
    )
    show.answers(answers)
    show.out.print(f"{covered} of {known} intervals hold the truth")
    if outcome:
        _show_attack(outcome)
    if plot:
        show.out.print(f"plot: {plot}")


def _show_attack(outcome: attacks.Outcome) -> None:
    """The gain of an attack in percent of the fleet, and whether anybody would notice."""
    table = show.table(f"attack: {outcome.kind}")
    for heading in ("", "true %", "honest est. %", "est. %", "gain", "in theory"):
        table.add_column(heading, justify="right", no_wrap=True)
    shares = (outcome.truth, outcome.honest, outcome.attacked)
    gains = (outcome.gain, outcome.theory)
    table.add_row(outcome.target, *(f"{x * 100:.2f}" for x in shares), *(f"{x * 100:+.2f}" for x in gains))
    show.out.print()
    show.out.print(table)
    show.out.print(
        f"{outcome.fake_devices:,} fake devices sent {outcome.forged:,} of {outcome.reports:,} reports"
        f" ({outcome.share * 100:.2f} %)"
    )
    if outcome.uncapped != outcome.theory:
        show.out.print(f"without the cap, in theory: {outcome.uncapped * 100:+.2f}")
    seen = outcome.plausibility
    chance = "" if seen.p is None else f" (p {seen.p:.2g})" if seen.p else " (p below 1e-300)"
    show.out.print(f"detection: {seen.words}{chance}")


def _population(definition: Definition, spec: str | None, csv: str | None) -> Population:
    if (spec is None) == (csv is None):
        raise PopulationError("say what devices hold: either --population SPEC or --csv FILE:COLUMN")
    if spec is not None:
        return population.parse(spec)
    path, colon, column = (csv or "").rpartition(":")
    if not colon or not path:
        raise PopulationError(f"--csv reads FILE:COLUMN, for example weather.csv:temp, not {csv}")
    return population.read_csv(path, column, definition.type)


def _vectorised(
    experiment: Experiment, people: Population, devices: int, calls: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The truth among all calls to report(), and the histogram; budgets are not looked at."""
    index_counts, missing = people.index_counts(experiment, devices * calls, rng)
    counts = vectorised.histogram(experiment, index_counts, rng, no_reading=missing, thin=True)
    return population.reported_shares(index_counts, missing), counts


def _faithful(
    experiment: Experiment,
    payload: bytes,
    people: Population,
    devices: int,
    calls: int,
    faults: Faults,
    rng: np.random.Generator,
    repeatable: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The truth among the reports that were made, and their histogram, in process."""
    fleet = Fleet("simulated", [payload], size=devices, rng=rng, faults=faults, repeatable=repeatable)
    for _ in range(calls):
        readings = people.sample(experiment, devices, rng)
        for delivery in fleet.round({experiment.name: readings}):
            fleet.acknowledge(delivery)
    for delivery in fleet.flush():
        fleet.acknowledge(delivery)
    index_counts, missing = fleet.index_counts(experiment.name)
    return population.reported_shares(index_counts, missing), fleet.histogram(experiment)
