"""An aggregator's metrics for Prometheus, none of which describes a single device.

The only labels are the reason for a rejection and the option that names a certificate. Counters and gauges
are read from the aggregator at each scrape, so that they are consistent.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..aggregator import Counters
from ..ingest.pipeline import REASONS
from ..ingest.status import Condition
from ..ingest.tls import CertificateError, first_expiry

log = logging.getLogger(__name__)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CERTIFICATES_S = 3600.0  # the longest delay until a renewed certificate is noticed
_REPORTS = (1, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000)


class Metrics(Collector):
    """One aggregator's metrics, in a separate registry.

    watch() sets the aggregator; note_commit() is called after each commit with the number of its messages and
    its duration in seconds; text() returns the response to a scrape.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._seconds = Histogram(
            "hushmote_commit_seconds",
            "Time to check a batch and commit it durably.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._reports = Histogram(
            "hushmote_batch_reports",
            "Messages in a committed batch.",
            buckets=_REPORTS,
            registry=self._registry,
        )

    def watch(self, counters: Callable[[], Counters], condition: Callable[[], Condition]) -> None:
        """Set the functions that return the current values; call it once."""
        self._counters, self._condition = counters, condition
        self._registry.register(self)

    def add(self, collector: Collector) -> None:
        """Also serve another collector's metrics."""
        self._registry.register(collector)

    def note_commit(self, messages: int, seconds: float) -> None:
        """Record a commit."""
        self._seconds.observe(seconds)
        self._reports.observe(messages)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the aggregator's current metrics."""
        counters, condition = self._counters(), self._condition()
        yield CounterMetricFamily(
            "hushmote_reports_accepted", "Reports counted since the start.", value=counters.accepted
        )
        family = CounterMetricFamily(
            "hushmote_reports_rejected", "Reports not counted since the start.", labels=["reason"]
        )
        for reason in {**dict.fromkeys(REASONS, 0), **counters.rejected}:
            family.add_metric([reason], counters.rejected.get(reason, 0))
        yield family
        yield CounterMetricFamily("hushmote_batches", "Batches committed.", value=counters.batches)
        yield CounterMetricFamily(
            "hushmote_commit_failures", "Commits that failed in the store.", value=counters.failures
        )
        for name, help_text, value in (
            ("connected", "1 while the broker has accepted the connection.", condition.connected),
            ("subscribed", "1 while the broker has accepted the subscription.", condition.subscribed),
            ("store_failing", "1 if the store failed at the last attempt.", condition.failing),
            ("uncommitted_messages", "Messages received and not committed yet.", condition.uncommitted),
            ("oldest_uncommitted_seconds", "Age of the oldest uncommitted message.", condition.oldest_s),
            ("since_turn_seconds", "Time since the last turn of the main loop.", condition.since_turn_s),
            ("experiments_published", "Experiments retained at the broker.", condition.published),
            ("experiments_unsigned", "Experiments waiting for a signature.", condition.unsigned),
            (
                "broker_warnings",
                "Ways in which the broker can lose, or may have lost, reports or experiments; see the log.",
                len(condition.warnings),
            ),
            (
                "experiments_unknown",
                "Experiments of the store's fleets at the broker that the store does not have.",
                condition.unknown,
            ),
        ):
            yield GaugeMetricFamily(f"hushmote_{name}", help_text, value=float(value))
        if condition.since_commit_s is not None:
            help_text = "Time since the last commit; absent before the first."
            yield GaugeMetricFamily(
                "hushmote_since_commit_seconds", help_text, value=condition.since_commit_s
            )


class CertificateEnds(Collector):
    """The certificates' expiry dates by option, read once an hour; options without a file are omitted."""

    def __init__(self, files: Mapping[str, Path | None]) -> None:
        self._files = {option: path for option, path in files.items() if path is not None}
        self._ends: dict[str, float] = {}
        self._due_at = float("-inf")

    def describe(self) -> list[Metric]:
        """Return an empty list, so that registering the collector does not read any files."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the expiry dates as last read; an unreadable file keeps its last value."""
        if time.monotonic() >= self._due_at:
            self._due_at = time.monotonic() + _CERTIFICATES_S
            for option, path in self._files.items():
                try:
                    self._ends[option] = first_expiry(path).timestamp()
                except CertificateError as e:
                    log.warning("%s", e)
        if self._ends:
            family = GaugeMetricFamily(
                "hushmote_certificate_expires_timestamp_seconds",
                "When the first certificate in a file expires, unix time.",
                labels=["option"],
            )
            for option, end in self._ends.items():
                family.add_metric([option], end)
            yield family
