"""The newest results and alerts as gauges for Prometheus; a scrape computes nothing."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .publication import Gauge, Scrape

WORDS = {
    "hushmote_estimate": "A statistic: a reading in its unit, or a share of the fleet, 0 to 1.",
    "hushmote_estimate_low": "The lower end of its 95% interval.",
    "hushmote_estimate_high": "The upper end of its 95% interval.",
    "hushmote_estimate_reports": "Reports behind the estimate.",
    "hushmote_estimate_timestamp_seconds": "When the estimate was computed, unix time.",
    "hushmote_report_epsilon": "Epsilon of one report, nats.",
    "hushmote_histogram_epsilon": "Epsilon of all windows, each published at its end; absent if none.",
    "hushmote_histogram_implausible": "1 if honest devices would not produce this histogram.",
    "hushmote_budget_boards": "Boards that have reported.",
    "hushmote_budget_boards_silent": "Boards that have reported and have no reports left.",
    "hushmote_budget_reports_left": "Reports left on all boards that have reported; absent if unlimited.",
    "hushmote_experiment_expires_timestamp_seconds": "End of the last day it is published, unix time.",
    "hushmote_experiment_info": "1, with the type and the unit of an experiment.",
    "hushmote_alert_active": "1 while an event of this kind lasts, or for a week after it; otherwise 0.",
    "hushmote_alerts_waiting": "Alerts that have not arrived at a receiver yet.",
}
"""Help text of each gauge, in the order of a scrape."""


class Gauges(Collector):
    """The gauges that findings() returns, for a registry; `about` is what they are: results or alerts."""

    def __init__(self, findings: Callable[[], Scrape], about: str = "results") -> None:
        self._findings = findings
        self._about = about

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering the collector does not collect."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the current gauges."""
        findings = self._findings()
        by_name: dict[str, list[Gauge]] = {}
        for gauge in findings.gauges:
            by_name.setdefault(gauge.name, []).append(gauge)
        for name, words in WORDS.items():
            if name in by_name:
                family = GaugeMetricFamily(name, words, labels=list(by_name[name][0].labels))
                for gauge in by_name[name]:
                    family.add_metric(list(gauge.labels.values()), gauge.value)
                yield family
        yield GaugeMetricFamily(
            f"hushmote_{self._about}_failing",
            "1 if the store could not be read the last time.",
            value=float(findings.failing),
        )
        if findings.updated_at is not None:
            words = f"When the store was last read for {self._about}, unix time; absent before that."
            name = f"hushmote_{self._about}_timestamp_seconds"
            yield GaugeMetricFamily(name, words, value=findings.updated_at)
