"""Mistakes in a board's settings, which every program that reads them refuses by the name of the field."""

import json
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

from hushmote.fleet.provisioning.settings import DeviceSettings

HEX = "0123456789abcdef"
VALID = json.loads(
    DeviceSettings(
        fleet="home",
        device_id="d1",
        key=HEX * 4,
        announce_key=HEX * 8,
        wifi_ssid="garden",
        mqtt_host="broker",
    ).to_json()
)


@dataclass(frozen=True)
class Mistake:
    """Settings with a mistake in one field.

    Attributes:
        field: The field's name.
        changes: The fields that differ from VALID.
        missing: Whether the field is missing.
    """

    field: str
    changes: dict[str, Any] = default(default_factory=dict)
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.field} {'is missing' if self.missing else repr(self.changes[self.field])[:20]}"

    @property
    def settings(self) -> dict[str, Any]:
        """The whole settings."""
        return {n: v for n, v in (VALID | self.changes).items() if not self.missing or n != self.field}

    def assert_explained_by(self, line: str) -> None:
        """Check that an error is one line that begins with the field's name and has no key."""
        assert line.startswith(f"{self.field} ")
        assert "\n" not in line
        assert HEX not in line


MISTAKES = (
    *(Mistake(name, missing=True) for name in ("fleet", "device_id", "wifi_ssid", "mqtt_host")),
    *(Mistake(name, {name: ""}) for name in ("fleet", "device_id", "wifi_ssid", "mqtt_host")),
    *(Mistake("fleet", {"fleet": text}) for text in ("Home", "a/b", "+", "h" * 33)),
    *(Mistake("device_id", {"device_id": text}) for text in ("D1", "a_b", "#", "d" * 33)),
    *(Mistake("key", {"key": value}) for value in ("", HEX * 4 + "0", HEX * 3, HEX * 8, "xyz", 5)),
    *(Mistake("announce_key", {"announce_key": value}) for value in ("", HEX * 7, HEX * 9, "xyz", 5)),
)
