"""The size and the number of a device's reports to a question, from the experiment and the policy alone."""

import math
from dataclasses import dataclass

from ...server.wire.experiments import every_by_index, report_size
from ...server.words.epsilon import rounded_up
from ...server.words.numbers import counted, length
from .fleet_facts import FleetFacts, FleetQuestion

YEAR_S = 365 * 86_400


@dataclass(frozen=True)
class Volume:
    """A device's reports to a question.

    Attributes:
        report_bytes: The size of a report, without MQTT's own bytes.
        lifetime_reports: The maximum number of reports in the device's lifetime.
        every: The number of readings of which one is reported on average, the smallest of all groups.
        readings: The readings a year, or None if the firmware does not state their interval.
    """

    report_bytes: int
    lifetime_reports: int
    every: int
    readings: float | None

    @property
    def lifetime_bytes(self) -> int:
        """The maximum number of bytes in the device's lifetime."""
        return self.report_bytes * self.lifetime_reports

    @property
    def reports(self) -> float | None:
        """An upper bound on the mean number of reports in a year, or None if unknown."""
        return None if self.readings is None else min(self.readings / self.every, self.lifetime_reports)

    @property
    def size(self) -> str:
        """The size of a report and of all reports."""
        size = f"{counted(self.report_bytes, 'byte')} a report, at most {self.lifetime_bytes:,} in a lifetime"
        return f"{size}, without MQTT and TLS overhead"

    @property
    def frequency(self) -> str:
        """The number of reports a year and in a lifetime, in words."""
        most = f"never more than {counted(self.lifetime_reports)} in the device's lifetime"
        if self.reports is None or self.readings is None:
            return f"{most}. [For the maker: how often the firmware takes a reading]"
        total = self.reports * self.report_bytes
        reported = "each is reported" if self.every == 1 else f"1 in {self.every:,} is reported"
        return (
            f"on average at most {_up(self.reports)} reports ({_up(total)} bytes) a year; {most}. "
            f"A reading is taken every {length(YEAR_S / self.readings).removeprefix('1 ')}, "
            f"{_up(self.readings)} times a year, and {reported}."
        )


def volume_of(facts: FleetFacts, question: FleetQuestion) -> Volume:
    """Return the volume of a question's reports from a device of this fleet."""
    experiment = question.version.experiment
    return Volume(
        report_size(experiment, authenticated=facts.keyed),
        question.most,
        min(every_by_index(experiment)),
        None if facts.interval_s is None else YEAR_S / facts.interval_s,
    )


def _up(number: float) -> str:
    """Format a number, rounded up: to a whole one from 10 on, otherwise to three digits."""
    return f"{math.ceil(number - 1e-9):,}" if number >= 10 else rounded_up(number)
