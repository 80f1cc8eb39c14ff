"""A fleet before it is built: the estimate that its reports would give, beside the truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.answer import CONFIDENCE
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.estimate.estimate import estimate
from ..server.experiments.definition import Definition, load
from . import attack as attacks
from . import population, vectorised
from .attack import AttackError
from .faithful import Faults, SimulatedFleet
from .population import Population, PopulationError


@dataclass(frozen=True, repr=False)
class SimulatedEstimate(FleetEstimate):
    """The estimate of a simulated fleet; its answers have the truth beside each value.

    devices: how many there were, fake ones among them. attack: what those came to, None without any.
    """

    devices: int = 0
    attack: attacks.AttackOutcome | None = None


def simulate(
    file: Path | str,
    *,
    devices: int = 100_000,
    population: str | None = None,
    csv: str | None = None,
    calls: int = 1,
    faults: Faults | None = None,
    attack: str | None = None,
    attackers: float = 0.05,
    seed: int | None = None,
    confidence: float = CONFIDENCE,
) -> SimulatedEstimate:
    """Simulate a fleet of an experiment file and estimate what its reports say.

    devices: 2 or more. population: what they hold, such as "normal:21:3"; or csv: "FILE:COLUMN" of readings,
    drawn from with replacement. calls: calls to report() of each device. faults: run the real client on every
    device with these, Faults() for none; otherwise reports are drawn in NumPy, from the same distribution.
    attack: what a share attackers of the devices sends, such as "promote:30". seed: repeat a run exactly.

    Raises DefinitionError, PopulationError, AttackError or EstimateError with one line.
    """
    definition = load(Path(file))
    payload = definition.payload()
    experiment = Experiment.parse(payload)
    people = _population(definition, population, csv)
    rng = np.random.default_rng(seed)
    forgery, fake, outcome = None, 0, None
    if attack is not None:
        if faults is not None:
            raise AttackError("fake devices do not run the real client: --attack is without --faithful")
        fake = round(devices * attackers) if 0 < attackers < 1 else 0
        if not 0 < fake < devices - 1:
            raise AttackError(
                f"attackers must be a share of {devices} devices from 0 to 1, not {attackers:g}"
            )
        forgery = attacks.parse(experiment, attack)
    if faults is not None:
        truth, counts = _faithful(experiment, payload, people, devices, calls, faults, rng, seed is not None)
    else:
        truth, counts = _vectorised(experiment, people, devices - fake, calls, rng)
    if forgery is not None:
        outcome, counts = attacks.run(experiment, forgery, fake, calls, counts, truth, rng)
    return SimulatedEstimate(
        estimate(experiment, counts),
        f"{devices:,} simulated devices",
        definition.unit,
        confidence,
        truth,
        devices=devices,
        attack=outcome,
    )


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
    fleet = SimulatedFleet(
        "simulated", [payload], size=devices, rng=rng, faults=faults, repeatable=repeatable
    )
    for _ in range(calls):
        readings = people.sample(experiment, devices, rng)
        for delivery in fleet.round({experiment.name: readings}):
            fleet.acknowledge(delivery)
    for delivery in fleet.flush():
        fleet.acknowledge(delivery)
    index_counts, missing = fleet.index_counts(experiment.name)
    return population.reported_shares(index_counts, missing), fleet.histogram(experiment)
