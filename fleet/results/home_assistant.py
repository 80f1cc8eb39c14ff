"""Home Assistant's MQTT discovery: each statistic of a result is a sensor of the fleet's device.

Templates select a statistic by its id, so no text that a person wrote gets into a template.
"""

import json
from typing import Any

from ...server.wire.topics import check_fleet, result_topic
from .result import Result

_AGE = "(now() - as_datetime(value_json.at)).total_seconds()"


def config_topic(prefix: str, fleet: str, experiment: str, statistic: str) -> str:
    """Return the topic of a sensor's configuration; the fleet has its own level, for access lists."""
    node = f"hushmote_{check_fleet(fleet)}"
    return f"{prefix}/sensor/{node}/{check_fleet(experiment)}-{statistic}/config"


def sensor(result: Result, statistic: str, expire_s: int, topic_prefix: str = "") -> bytes:
    """Return a sensor's configuration, JSON.

    Args:
        result: The experiment's result.
        statistic: The statistic's id.
        expire_s: Seconds without a result until the sensor is unavailable.
        topic_prefix: The topic prefix in the broker's address.
    """
    topic = topic_prefix + result_topic(result.fleet, result.experiment)
    share = result.quantity == "share"
    config: dict[str, Any] = {
        "name": f"{result.experiment} {result.statistics[statistic].name}",
        "unique_id": f"hushmote/{result.fleet}/{result.experiment}/{statistic}",
        "state_topic": topic,
        "value_template": _value_template(statistic, share),
        "json_attributes_topic": topic,
        "json_attributes_template": _attributes_template(statistic, share),
        "availability_topic": topic,
        # The broker keeps a result after its aggregator is gone, so check its age, even after a restart.
        "availability_template": (
            f"{{{{ 'online' if value_json is defined and {_AGE} < {expire_s} else 'offline' }}}}"
        ),
        "expire_after": expire_s,
        "state_class": "measurement",
        "qos": 1,
        "icon": "mdi:chart-bell-curve",
        "device": {
            "identifiers": [f"hushmote/{result.fleet}"],
            "name": f"Hushmote {result.fleet}",
            "manufacturer": "Hushmote",
            "model": "fleet",
        },
        "origin": {"name": "Hushmote"},
    }
    unit = "%" if share else result.unit
    if unit:
        config["unit_of_measurement"] = unit
    return json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()


def _select_statistic(statistic: str) -> str:
    """Return the template statement that sets s to the statistic, or leaves it undefined."""
    statistics = "(value_json.statistics if value_json is defined else [])"  # cleared, it is empty
    return f"{{% set s = {statistics} | selectattr('id', 'eq', '{statistic}') | first %}}"


def _value_template(statistic: str, share: bool) -> str:
    value = "(s.value * 100) | round(3)" if share else "s.value"
    return f"{_select_statistic(statistic)}{{{{ {value} if s is defined else none }}}}"


def _attributes_template(statistic: str, share: bool) -> str:
    low, high = (f"(s.{end} * 100) | round(3)" if share else f"s.{end}" for end in ("low", "high"))
    attributes = {
        "low": low,
        "high": high,
        "finding": "value_json.finding",
        "confidence": "value_json.confidence",
        "reports": "value_json.reports",
        "windows": "value_json.windows",
        "window_count": "value_json.window_count",
        "at": "value_json.at",
        "epsilon_of_a_report": "value_json.epsilon.report",
        "epsilon_of_the_histogram": "value_json.epsilon.histogram",
        "delta": "value_json.epsilon.delta",
        "epsilon_holds": "value_json.epsilon.holds",
    }
    items = ", ".join(f"'{name}': {value}" for name, value in attributes.items())
    return f"{_select_statistic(statistic)}{{{{ ({{{items}}} if s is defined else {{}}) | tojson }}}}"
