"""Alerts in Home Assistant: for each fleet, an event entity and a binary sensor, by MQTT discovery.

The event is not retained, so it is triggered once. The sensor is on while any event of the fleet is active,
and its attributes list them.
"""

import datetime
import json
from collections.abc import Sequence
from typing import Any

from ...server.plain_text import shorten
from ...server.wire.topics import alert_topic, check_fleet
from .alert import KINDS
from .outbox import Delivery, RecordedAlert

RECEIVER = "home-assistant"
"""The id under which the store remembers the events that were published."""
_MAX_TEXT = 1_000
_MAX_ACTIVE = 10


def config_topic(prefix: str, component: str, fleet: str) -> str:
    """Return the topic of an entity's configuration."""
    return f"{prefix}/{component}/hushmote_{check_fleet(fleet)}/alerts/config"


def discovery(prefix: str, fleet: str, topic_prefix: str = "") -> dict[str, bytes]:
    """Return the configuration of a fleet's entities by topic.

    Args:
        prefix: Home Assistant's discovery prefix.
        fleet: The fleet's name.
        topic_prefix: The topic prefix in the broker's address.
    """
    common: dict[str, Any] = {
        "qos": 1,
        "device": {
            "identifiers": [f"hushmote/{fleet}"],
            "name": f"Hushmote {fleet}",
            "manufacturer": "Hushmote",
            "model": "fleet",
        },
        "origin": {"name": "Hushmote"},
    }
    event = {
        "name": "alert",
        "unique_id": f"hushmote/{fleet}/alert",
        "state_topic": topic_prefix + alert_topic(fleet, "event"),
        "event_types": list(KINDS),
        "icon": "mdi:bell-ring",
    }
    active = topic_prefix + alert_topic(fleet, "active")
    sensor = {
        "name": "alerts active",
        "unique_id": f"hushmote/{fleet}/alerts_active",
        "state_topic": active,
        "value_template": "{{ 'ON' if value_json.active else 'OFF' }}",
        "json_attributes_topic": active,
        "device_class": "problem",
    }
    entities = {"event": event, "binary_sensor": sensor}
    return {config_topic(prefix, name, fleet): _json(entity | common) for name, entity in entities.items()}


def active_alerts(fleet: str, active: Sequence[RecordedAlert]) -> tuple[str, bytes]:
    """Return the topic and payload of a fleet's active events, of which it lists the newest ten."""
    newest = sorted(active, key=lambda event: event.at)[-_MAX_ACTIVE:]
    listed = [
        {"kind": event.kind, "experiment": event.experiment, "title": event.title, "since": _iso(event.at)}
        for event in newest
    ]
    return alert_topic(fleet, "active"), _json({"v": 1, "active": listed, "count": len(active)})


def event_message(fleet: str, delivery: Delivery) -> tuple[str, bytes]:
    """Return the topic and payload of an event for a fleet."""
    payload = {
        "event_type": delivery.kind,
        "title": delivery.title,
        "text": shorten(delivery.text, _MAX_TEXT),
    }
    return alert_topic(fleet, "event"), _json(payload)


def _iso(at: datetime.datetime) -> str:
    return f"{at.astimezone(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
