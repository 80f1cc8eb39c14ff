"""The door's Prometheus metrics, which reveal nothing about individual devices or clients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(frozen=True, eq=False)
class DoorNumbers(Collector):
    """The door's metrics: answers by (method, status), reports in flight, and whether it is connected."""

    answers: Mapping[tuple[str, int], int]
    in_flight: int
    connected: bool

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        words = (
            "Requests answered since the start, by method and status; POST with 204 is an accepted report."
        )
        answers = CounterMetricFamily("hushmote_door_answers", words, labels=["method", "status"])
        for (method, status), count in sorted(self.answers.items()):
            answers.add_metric([method, str(status)], count)
        yield answers
        for name, words, value in (
            ("in_flight", "Reports waiting for the broker's acknowledgement.", self.in_flight),
            ("connected", "1 while the broker has accepted the connection.", self.connected),
        ):
            yield GaugeMetricFamily(f"hushmote_door_{name}", words, value=float(value))
