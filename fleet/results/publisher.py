"""Results for a running aggregator and for scrapes, computed in a separate process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from .publication import Gauge, Publication, Scrape
from .worker_process import WorkerProcess


class Publisher(WorkerProcess):
    """The results of a store, kept up to date by a separate process; a context manager.

    Attributes:
        retained: The payload to retain for each topic, empty to clear it; a new object after every update.
        findings: The gauges for a scrape.
    """

    def __init__(self, store: str, publication: Publication) -> None:
        request = {"store": store, "publication": asdict(publication)}
        super().__init__("hushmote.fleet.results.worker", request, "computing results")
        self.retained: Mapping[str, bytes] = MappingProxyType({})
        self.findings = Scrape()

    def take(self, update: Mapping[str, Any]) -> None:
        self.retained = MappingProxyType({t: payload.encode() for t, payload in update["retained"].items()})
        self.findings = Scrape([Gauge(*gauge) for gauge in update["gauges"]], update["at"])

    def fail(self) -> None:
        self.findings = self.findings._replace(failing=True)
