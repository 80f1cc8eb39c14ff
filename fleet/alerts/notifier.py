"""Alerts for a running aggregator, sent by a separate process."""

from __future__ import annotations

import contextlib
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..results.publication import Gauge, Publication, Scrape
from ..results.worker_process import WorkerProcess
from .receivers import Receiver

_STOP_S = 4.0


class Notifier(WorkerProcess):
    """Sends a store's alerts from a separate process; a context manager.

    Args:
        store: The store's URL.
        receivers: The receivers.
        client: The name of the aggregator, for messages about its clock.
        certificates: The certificate files, by the setting that names each.
        publication: The settings for Home Assistant, or None.
        weekly: The weekday of the weekly summary, or None.

    Attributes:
        findings: The gauges for a scrape.
        retained: The payload to retain for each topic; a new object after every change.
    """

    def __init__(
        self,
        store: str,
        receivers: Sequence[Receiver],
        client: str = "",
        certificates: Mapping[str, Path] | None = None,
        publication: Publication | None = None,
        weekly: str | None = None,
    ) -> None:
        paths = {option: str(path) for option, path in (certificates or {}).items()}
        request = {
            "store": store,
            "receivers": [astuple(each) for each in receivers],
            "client": client,
            "weekly": weekly,
        }
        names = ("home_assistant", "topic_prefix")
        request |= {name: None if publication is None else getattr(publication, name) for name in names}
        super().__init__("hushmote.fleet.alerts.worker", request | {"certificates": paths}, "sending alerts")
        self.findings = Scrape()
        self.retained: Mapping[str, bytes] = MappingProxyType({})
        self._events = deque[tuple[str, bytes]]()

    def take_events(self) -> list[tuple[str, bytes]]:
        """Return the messages to publish once, each topic with its payload, and forget them."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def stop(self, process: subprocess.Popen[str]) -> None:
        """End the process once it has recorded the message that it is sending."""
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
        process.kill()

    def take(self, update: Mapping[str, Any]) -> None:
        self.findings = Scrape([Gauge(*gauge) for gauge in update["gauges"]], update["at"])
        self._events += [(topic, payload.encode()) for topic, payload in update["events"]]
        retained = {topic: payload.encode() for topic, payload in update["retained"].items()}
        if retained != self.retained:
            self.retained = MappingProxyType(retained)

    def fail(self) -> None:
        self.findings = self.findings._replace(failing=True)
