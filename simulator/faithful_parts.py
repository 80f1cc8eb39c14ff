"""A fleet of real clients, divided into parts for workers, each part a fleet with its own seed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..server.arrays import Counts, Floats
from ..server.wire.experiments import parse_experiment, reports_in_budget
from .calls import Reporting
from .faithful import Faults, SimulatedFleet, codes_of
from .population import Population, reported_shares
from .worker_pool import Workers

# Limits of a part: calls for a second or two of work, and devices to fit into memory.
_CALLS, _DEVICES = 100_000, 5_000


@dataclass(frozen=True)
class RealClients:
    """Settings common to all parts.

    Attributes:
        repeatable: Whether reports are also drawn from the part's seed.
    """

    payload: bytes
    people: Population
    faults: Faults
    rounds: int
    repeatable: bool


@dataclass(frozen=True)
class FleetPart:
    """A number of devices, and the seed for everything random about them."""

    devices: int
    seed: np.random.SeedSequence


@dataclass(frozen=True)
class PartOutcome:
    """A part's reports.

    Attributes:
        codes: The reports' codes, in order of arrival.
        indices, times: Indices of readings, as in Population.indices(), and the number of reports with each.
        missing: Number of reports without a reading.
        reporting_devices, spent: See Reporting.
    """

    codes: Counts
    indices: Counts
    times: Counts
    missing: int
    reporting_devices: int
    spent: int


def fleet_parts(devices: int, rounds: int, seed: int | None, max_devices: int = _DEVICES) -> list[FleetPart]:
    """Divide the devices into parts, independently of the workers."""
    size = max(1, min(max_devices, _CALLS // rounds))
    sizes = [min(size, devices - first) for first in range(0, devices, size)]
    seeds = np.random.SeedSequence(seed).spawn(len(sizes))
    return [FleetPart(*part) for part in zip(sizes, seeds, strict=True)]


def run_part(part: FleetPart, clients: RealClients) -> PartOutcome:
    """Run the real client on every device of a part, in this process."""
    experiment = parse_experiment(clients.payload)
    rng = np.random.default_rng(part.seed)
    fleet = SimulatedFleet(
        "simulated",
        [clients.payload],
        size=part.devices,
        rng=rng,
        faults=clients.faults,
        repeatable=clients.repeatable,
    )
    for _ in range(clients.rounds):
        readings = clients.people.sample(experiment, part.devices, rng)
        for delivery in fleet.make_reports({experiment.name: readings}):
            fleet.acknowledge(delivery)
    for delivery in fleet.flush():
        fleet.acknowledge(delivery)
    index_counts, missing = fleet.index_counts(experiment.name, clients.people.indices(experiment))
    indices = np.flatnonzero(index_counts)
    reports_of_device = Counter(report.device for report in fleet.reports)
    max_reports = reports_in_budget(experiment)
    spent = sum(n == max_reports for n in reports_of_device.values())
    return PartOutcome(
        codes_of(experiment, fleet.acknowledged.values()),
        indices,
        index_counts[indices],
        missing,
        len(reports_of_device),
        spent,
    )


def run(
    clients: RealClients,
    devices: int,
    seed: int | None,
    rounds_are_fixed: bool,
    workers: Workers,
    advance: Callable[[float], object],
    part_devices: int = _DEVICES,
) -> tuple[Reporting, Floats, Counts]:
    """Run a fleet on workers; return the totals, the truth among its reports, and their codes in order.

    Args:
        clients: Settings common to all parts.
        devices: Number of devices.
        seed: Repeats a run; None for a random outcome.
        rounds_are_fixed: Whether the number of rounds was requested.
        workers: Run the parts.
        advance: Called with the share of the work done since the last call.
        part_devices: Largest number of devices in a part.
    """
    experiment = parse_experiment(clients.payload)
    reading_indices = clients.people.indices(experiment)
    index_counts = np.zeros(experiment.domain if reading_indices is None else len(reading_indices), np.int64)
    codes: list[Counts] = []
    missing = reporting_devices = spent = 0
    parts = fleet_parts(devices, clients.rounds, seed, part_devices)
    for part_outcome in workers.map(
        run_part, parts, clients, advance=lambda part: advance(part.devices / devices)
    ):
        index_counts[part_outcome.indices] += part_outcome.times
        codes.append(part_outcome.codes)
        missing, reporting_devices, spent = (
            missing + part_outcome.missing,
            reporting_devices + part_outcome.reporting_devices,
            spent + part_outcome.spent,
        )
    arrived = np.concatenate(codes)
    reporting = Reporting(devices, clients.rounds, rounds_are_fixed, len(arrived), reporting_devices, spent)
    return reporting, reported_shares(index_counts, missing), arrived
