"""A fleet before it is built: the estimate that its reports would give, beside the truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..device.ldp_client import Experiment
from ..server.answers.answer import CONFIDENCE
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.arrays import Counts, Floats
from ..server.estimate.estimate import estimate
from ..server.experiments.definition import load
from . import attack as attacks
from . import population, vectorised
from .attack import AttackError
from .convergence import Convergence, ConvergenceError, Showing, fewest_reports, follow, growing, sizes
from .drift import chosen
from .faithful import Faults, SimulatedFleet
from .population import Population


@dataclass(frozen=True, repr=False)
class SimulatedEstimate(FleetEstimate):
    """The estimate of a simulated fleet; its answers have the truth beside each value.

    devices: how many there were, fake ones among them. attack: what those came to, None without any.
    convergence: the estimates as the reports came in, where they were asked for.
    """

    devices: int = 0
    attack: attacks.AttackOutcome | None = None
    convergence: Convergence | None = None


def simulate(
    file: Path | str,
    *,
    devices: int = 100_000,
    population: str | None = None,
    input: str | None = None,
    calls: int = 1,
    faults: Faults | None = None,
    attack: str | None = None,
    attackers: float = 0.05,
    seed: int | None = None,
    confidence: float = CONFIDENCE,
    convergence: Showing | None = None,
) -> SimulatedEstimate:
    """Simulate a fleet of an experiment file and estimate what its reports say.

    devices: 2 or more. population: what they hold, such as "normal:21:3"; or input: "FILE:COLUMN" of
    readings, drawn from with replacement; without either what drift.usual() says. calls: calls to report()
    of each device. faults: run the real client on every device with these, Faults() for none; otherwise
    reports are drawn in NumPy, from the same distribution.
    attack: what a share attackers of the devices sends, such as "promote:30". seed: repeat a run exactly.
    convergence: also estimate while the reports come in, Showing() for the largest shares.

    Raises DefinitionError, PopulationError, AttackError, ConvergenceError or EstimateError with one line.
    """
    definition = load(Path(file))
    payload = definition.payload()
    experiment = Experiment.parse(payload)
    people, _ = chosen(definition, population, input)
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
    if convergence is not None and attack is not None:
        raise ConvergenceError("a picture of convergence has no fake devices: it is without --attack")
    steps = convergence is not None
    if faults is not None:
        repeatable = seed is not None
        truth, grown = _faithful(experiment, payload, people, devices, calls, faults, rng, repeatable, steps)
    else:
        truth, grown = _vectorised(experiment, people, devices - fake, calls, rng, steps)
    growth = None
    if convergence is not None:
        growth = follow(
            experiment, grown, truth, unit=definition.unit, confidence=confidence, showing=convergence
        )
        estimates = growth.estimates
    else:
        (counts,) = grown
        if forgery is not None:
            outcome, counts = attacks.run(experiment, forgery, fake, calls, counts, truth, rng)
        estimates = estimate(experiment, counts)
    return SimulatedEstimate(
        estimates,
        f"{devices:,} simulated devices",
        definition.unit,
        confidence,
        truth,
        devices=devices,
        attack=outcome,
        convergence=growth,
    )


def _vectorised(
    experiment: Experiment,
    people: Population,
    devices: int,
    calls: int,
    rng: np.random.Generator,
    steps: bool,
) -> tuple[Floats, Iterable[Counts]]:
    """The truth among all calls to report(), and the growing histogram; budgets are not looked at."""
    total = devices * calls
    ends = sizes(total, fewest_reports(experiment) * experiment.every) if steps else [total]
    held = [people.index_counts(experiment, n, rng) for n in np.diff([0, *ends]).tolist()]
    index_counts = np.sum([counts for counts, _ in held], axis=0)
    missing = sum(none for _, none in held)

    def grown() -> Iterator[Counts]:
        counts = np.zeros(experiment.code_count, np.int64)
        for indices, none in held:
            counts += vectorised.histogram(experiment, indices, rng, no_reading=none, thin=True)
            yield counts

    return population.reported_shares(index_counts, missing), grown()


def _faithful(
    experiment: Experiment,
    payload: bytes,
    people: Population,
    devices: int,
    calls: int,
    faults: Faults,
    rng: np.random.Generator,
    repeatable: bool,
    steps: bool,
) -> tuple[Floats, Iterable[Counts]]:
    """The truth among the reports that were made, and their growing histogram, in process."""
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
    reports = list(fleet.acknowledged.values())
    grown = growing(experiment, reports) if steps else [fleet.histogram(experiment)]
    return population.reported_shares(index_counts, missing), grown
