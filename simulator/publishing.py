"""Days of a simulated fleet through a real broker: each report is published when its board would send it.

An aggregator counts by its own clock. One that was started with --simulated-days runs through a day in 10
seconds, and so do these boards; any other counts all of it in today's window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..device.ldp_client import Experiment
from ..server.arrays import Counts, Floats
from ..server.ingest.clock import DAY_S
from ..server.wire import report, topics
from ..server.wire.experiments import parse_experiment
from . import vectorised
from .days import Script, SimulatedFleetError, speaking
from .faithful import Delivery, random_ids
from .gateway import Gateways
from .population import reported_shares

MOST_REPORTS = 1_000_000
_EARLY_S = 0.005  # shorter waits are not worth a call


@dataclass(frozen=True)
class PublishedDay:
    """Reports that a day's boards sent, and the true shares among them, shape (domain,)."""

    reports: int
    truth: Floats


@dataclass(frozen=True)
class PublishedFleet:
    """What was published, day by day; behind_s: how long after the last day's end the broker had it all."""

    days: tuple[PublishedDay, ...]
    behind_s: float

    @property
    def reports(self) -> int:
        """All reports."""
        return sum(day.reports for day in self.days)


class _Sent:
    """Publishes for all boards; what is acknowledged need not be kept, since nothing is sent again."""

    def __init__(self, name: str) -> None:
        self.name = name

    def acknowledge(self, delivery: Delivery) -> None:
        """Nothing has to be done."""


def check_announced(gateways: Gateways, script: Script) -> None:
    """Raise SimulatedFleetError unless the broker has retained the experiment for the fleet, unsigned."""
    name = script.definition.name
    announced = gateways.retained(topics.experiment_topic(script.fleet, name))
    if announced is None:
        raise SimulatedFleetError(
            f"nobody asks fleet {script.fleet} for {name} at this broker: hushmote experiment add FILE "
            f"--fleet {script.fleet} --open, then hushmote serve"
        )
    body, signed, _ = announced.partition(b"\x00")
    if signed:
        raise SimulatedFleetError(
            f"fleet {script.fleet} is keyed: simulated boards without keys report to an open one"
        )
    if body != script.payload:
        raise SimulatedFleetError(
            f"fleet {script.fleet} is asked for another version of {name} than the file's: add the file to it"
        )


def publish(
    gateways: Gateways,
    script: Script,
    rng: np.random.Generator,
    advance: Callable[[float], object] = lambda more: None,
    day_s: float = DAY_S,
) -> PublishedFleet:
    """Publish all reports, each in its time: day_s seconds are a day.

    advance: told how much more is out, in parts of 1.

    Raises SimulatedFleetError for more than 1,000,000 reports, and GatewayError.
    """
    experiment = parse_experiment(script.payload)
    boards, numbers, times = _in_order(experiment, script, rng)
    ids = random_ids(script.course.devices, rng)
    ends = np.searchsorted(times, np.arange(script.course.days + 1))
    days: list[PublishedDay] = []
    sent, began_s = _Sent(script.fleet), time.monotonic()
    for day, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        held = rng.multinomial(end - start, script.chances[day])
        readings = np.repeat(np.append(np.arange(experiment.domain), vectorised.NO_READING), held)
        codes = vectorised.codes(experiment, rng.permutation(readings), rng)
        due = began_s + times[start:end] * day_s

        def deliveries(first: int = start, codes: Counts = codes, due: Floats = due) -> Iterator[Delivery]:
            for i, (code, due_s) in enumerate(zip(codes.tolist(), due.tolist(), strict=True), first):
                if (wait_s := due_s - time.monotonic()) > _EARLY_S:
                    time.sleep(wait_s)
                payload = report.encode(experiment, int(numbers[i]), code)
                yield Delivery(ids[boards[i]], payload, int(boards[i]))

        gateways.deliver(sent, deliveries(), lambda more: advance(more / len(times)))
        days.append(PublishedDay(end - start, reported_shares(held[:-1], int(held[-1]))))
    return PublishedFleet(tuple(days), time.monotonic() - began_s - script.course.days * day_s)


def _in_order(
    experiment: Experiment, script: Script, rng: np.random.Generator
) -> tuple[Counts, Counts, Floats]:
    """Which board makes which report when, in days from the first, by time."""
    parts = [
        (boards, np.full(len(boards), number), times)
        for number, boards, times in speaking(experiment, script.course, script.course.devices, rng)
    ]
    if not parts:
        raise SimulatedFleetError("no board makes a report in these days: take more devices, days or calls")
    boards, numbers, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(times) > MOST_REPORTS:
        raise SimulatedFleetError(
            f"these are {len(times):,} reports, more than the {MOST_REPORTS:,} that are published: take "
            "fewer devices"
        )
    order = np.argsort(times, kind="stable")
    return boards[order], numbers[order], times[order]
