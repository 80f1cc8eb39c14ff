"""A fleet of real clients, divided into parts for workers, each part a fleet with its own seed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..server.arrays import Counts
from ..server.wire.experiments import group_values, parse_experiment, reports_in_budget
from .calls import Reporting
from .faithful import Faults, SimulatedFleet, codes_of, groups_of
from .population import Population
from .rollout import sample_by_group, values_at
from .worker_pool import Workers

# Limits of a part: calls for a second or two of work, and devices to fit into memory.
_CALLS, _DEVICES = 100_000, 5_000


@dataclass(frozen=True)
class RealClients:
    """Settings common to all parts.

    Attributes:
        repeatable: Whether reports are also drawn from the part's seed.
        shares: Shares of the open group's values, one of 1.0 without a group.
    """

    payload: bytes
    people: Population
    faults: Faults
    rounds: int
    repeatable: bool
    shares: tuple[float, ...] = (1.0,)


@dataclass(frozen=True)
class FleetPart:
    """A number of devices, and the seed for everything random about them."""

    devices: int
    seed: np.random.SeedSequence


@dataclass(frozen=True)
class PartOutcome:
    """A part's reports.

    Attributes:
        codes, groups: The reports' codes and indices of the open group's value, in order of arrival.
        devices: Number of devices by index of the value.
        places, times: Places in a flattened array of shape (values, indices + 1), see GroupReports.readings,
            and the number of reports with each.
        reporting_devices, spent: See Reporting.
    """

    codes: Counts
    groups: Counts
    devices: Counts
    places: Counts
    times: Counts
    reporting_devices: int
    spent: int


@dataclass(frozen=True)
class GroupReports:
    """The devices and reports of a fleet by index of the open group's value; one index without a group.

    Attributes:
        devices: Number of devices, shape (values,).
        readings: Number of reports with each of Population.indices() and, last, without a reading, shape
            (values, indices + 1).
        codes, groups: The reports' codes and indices of the value, in order of arrival.
    """

    devices: Counts
    readings: Counts
    codes: Counts
    groups: Counts


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
    shares = np.array(clients.shares)
    values = values_at(shares, rng.random(part.devices) if experiment.group else np.zeros(part.devices))
    names = group_values(experiment) or ("",)
    fleet = SimulatedFleet(
        "simulated",
        [clients.payload],
        size=part.devices,
        rng=rng,
        faults=clients.faults,
        repeatable=clients.repeatable,
    )
    if experiment.group:
        fleet.groups[experiment.group] = [names[i] for i in values.tolist()]
    for _ in range(clients.rounds):
        readings = sample_by_group(clients.people, experiment, values, rng)
        for delivery in fleet.make_reports({experiment.name: readings}):
            fleet.acknowledge(delivery)
    for delivery in fleet.flush():
        fleet.acknowledge(delivery)
    of = clients.people.indices(experiment)
    places, times = list[Counts](), list[Counts]()
    for group in range(len(shares)):
        index_counts, missing = fleet.index_counts(experiment.name, of, group if experiment.group else None)
        row = np.append(index_counts, missing)
        places.append(np.flatnonzero(row) + group * len(row))
        times.append(row[row > 0])
    reports_of_device = Counter(report.device for report in fleet.reports)
    max_reports = reports_in_budget(experiment)
    spent = sum(n == max_reports for n in reports_of_device.values())
    payloads = fleet.acknowledged.values()
    return PartOutcome(
        codes_of(experiment, payloads),
        groups_of(experiment, payloads),
        np.bincount(values, minlength=len(shares)),
        np.concatenate(places),
        np.concatenate(times),
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
) -> tuple[Reporting, GroupReports]:
    """Run a fleet on workers; return the totals, and its reports.

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
    index_count = experiment.domain if reading_indices is None else len(reading_indices)
    readings = np.zeros((len(clients.shares), index_count + 1), np.int64)
    codes, groups, group_devices = list[Counts](), list[Counts](), np.zeros(len(clients.shares), np.int64)
    reporting_devices = spent = 0
    parts = fleet_parts(devices, clients.rounds, seed, part_devices)
    for part_outcome in workers.map(
        run_part, parts, clients, advance=lambda part: advance(part.devices / devices)
    ):
        readings.reshape(-1)[part_outcome.places] += part_outcome.times
        codes.append(part_outcome.codes)
        groups.append(part_outcome.groups)
        group_devices += part_outcome.devices
        reporting_devices += part_outcome.reporting_devices
        spent += part_outcome.spent
    reports = GroupReports(group_devices, readings, np.concatenate(codes), np.concatenate(groups))
    reporting = Reporting(
        devices, clients.rounds, rounds_are_fixed, len(reports.codes), reporting_devices, spent
    )
    return reporting, reports
