"""What is retained at the broker for boards: today's experiments, signed where a fleet has keys; pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from ..wire import keys, report
from .pipeline import Fleet


def announcements(fleets: Iterable[Fleet], day: datetime.date) -> dict[str, bytes]:
    """Return topic -> payload to retain on that day, UTC; empty where an experiment is withdrawn or over."""
    wanted: dict[str, bytes] = {}
    for fleet in fleets:
        for version in fleet.versions.values():
            topic = report.experiment_topic(fleet.name, version.experiment.name)
            if version.published_on(day):
                wanted[topic] = version.payload
                if fleet.master is not None:
                    key = keys.announce_key(fleet.master, fleet.name)
                    wanted[topic] = keys.sign_experiment(key, topic, version.payload)
            else:
                wanted.setdefault(topic, b"")
    return wanted
