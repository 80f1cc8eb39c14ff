"""The door's numbers for Prometheus: none of single devices or clients, and no label but a status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, eq=False)
class DoorNumbers(Collector):
    """What the door has done: answers by (method, status), reports under way, whether the broker is there."""

    answers: Mapping[tuple[str, int], int]
    in_flight: int
    connected: bool

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the numbers."""
        words = "Requests answered since the start, by method and status; POST and 204 are reports taken."
        answers = CounterMetricFamily("hushmote_door_answers", words, labels=["method", "status"])
        for (method, status), count in sorted(self.answers.items()):
            answers.add_metric([method, str(status)], count)
        yield answers
        for name, words, value in (
            ("in_flight", "Reports that wait for the broker's acknowledgement.", self.in_flight),
            ("connected", "1 while the broker has accepted the connection.", self.connected),
        ):
            yield GaugeMetricFamily(f"hushmote_door_{name}", words, value=float(value))
