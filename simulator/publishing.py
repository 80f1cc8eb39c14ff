"""Days of a simulated fleet through a real broker: each report is published when its board would send it.

An aggregator counts by its own clock. One that was started with --simulated-days runs through a day in 10
seconds, and so do these boards; any other counts all of it in today's window.
"""

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..server.arrays import Counts, Floats
from ..server.ingest.clock import DAY_S
from ..server.wire import report, topics
from . import vectorised
from .days import Course, SimulatedFleetError, known_truth, speaking
from .faithful import Delivery, random_ids
from .gateway import Gateways
from .population import reported_shares, shares_with_reading

MOST_PUBLISHED = 1_000_000
_EARLY_S = 0.005  # shorter waits are not worth a call


@dataclass(frozen=True)
class PublishedFleet:
    """What was published.

    statistic: what truths are of. days: date, reports and truth of each. behind_s: how long after the last
    day's end the broker had it all.
    """

    course: Course
    statistic: str
    days: tuple[tuple[datetime.date, int, float], ...]
    behind_s: float

    @property
    def reports(self) -> int:
        """All reports."""
        return sum(reports for _, reports, _ in self.days)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        days = [{"day": str(day), "reports": n, "truth": truth} for day, n, truth in self.days]
        return self.course.to_dict() | {"reports": self.reports, "statistic": self.statistic, "days": days}


class _Sent:
    """Publishes for all boards; what is acknowledged need not be kept, since nothing is sent again."""

    def __init__(self, name: str) -> None:
        self.name = name

    def acknowledge(self, delivery: Delivery) -> None:
        """Nothing has to be done."""


def check_announced(gateways: Gateways, course: Course) -> None:
    """Raise SimulatedFleetError unless the broker has retained the experiment for the fleet, unsigned."""
    fleet, name = course.fleet, course.definition.name
    announced = gateways.retained(topics.experiment_topic(fleet, name))
    if announced is None:
        raise SimulatedFleetError(
            f"nobody asks fleet {fleet} for {name} at this broker: hushmote experiment add FILE "
            f"--fleet {fleet} --open, then hushmote serve"
        )
    body, signed, _ = announced.partition(b"\x00")
    if signed:
        raise SimulatedFleetError(
            f"fleet {fleet} is keyed: simulated devices without keys report to an open one"
        )
    if body != course.definition.payload():
        raise SimulatedFleetError(
            f"fleet {fleet} is asked for another version of {name} than the file's: add the file to it"
        )


def publish(
    gateways: Gateways,
    course: Course,
    rng: np.random.Generator,
    advance: Callable[[float], object] = lambda more: None,
    day_s: float = DAY_S,
) -> PublishedFleet:
    """Publish all reports, each in its time: day_s seconds are a day.

    advance: told how much more is out, in parts of 1. Raises SimulatedFleetError for more than 1,000,000
    reports, and GatewayError.
    """
    experiment = course.experiment
    boards, numbers, times = _in_order(course, rng)
    ids = random_ids(course.devices, rng)
    ends = np.searchsorted(times, np.arange(course.days + 1))
    days: list[tuple[datetime.date, int, float]] = []
    statistic, sent, began_s = "", _Sent(course.fleet), time.monotonic()

    def deliveries(first: int, codes: Counts) -> Iterator[Delivery]:
        for i, code in enumerate(codes.tolist(), first):
            if (wait_s := began_s + times[i] * day_s - time.monotonic()) > _EARLY_S:
                time.sleep(wait_s)
            yield Delivery(ids[boards[i]], report.encode(experiment, int(numbers[i]), code), int(boards[i]))

    for day, chances, start, end in zip(
        course.dates, course.chances, ends[:-1].tolist(), ends[1:].tolist(), strict=True
    ):
        held = rng.multinomial(end - start, chances)
        readings = np.repeat(np.append(np.arange(len(held) - 1), vectorised.NO_READING), held)
        codes = vectorised.codes(experiment, rng.permutation(readings), rng, of=course.indices)
        gateways.deliver(sent, deliveries(start, codes), lambda more: advance(more / len(times)))
        shares = shares_with_reading(experiment, reported_shares(held[:-1], int(held[-1])))
        statistic, truth = known_truth(course, shares)
        days.append((day, end - start, truth))
    return PublishedFleet(course, statistic, tuple(days), time.monotonic() - began_s - course.days * day_s)


def _in_order(course: Course, rng: np.random.Generator) -> tuple[Counts, Counts, Floats]:
    """Which board makes which report when, in days from the first, by time."""
    parts = [
        (boards, np.full(len(boards), number), times)
        for number, boards, times in speaking(course, course.devices, rng)
    ]
    if not parts:
        raise SimulatedFleetError("no device makes a report in these days: take more devices, days or calls")
    boards, numbers, times = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(times) > MOST_PUBLISHED:
        raise SimulatedFleetError(
            f"these are {len(times):,} reports, more than the {MOST_PUBLISHED:,} that are published: take "
            "fewer devices"
        )
    order = np.argsort(times, kind="stable")
    return boards[order], numbers[order], times[order]
