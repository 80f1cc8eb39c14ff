"""A running Home Assistant on a broker, for tests, which are skipped if the rig is not installed."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import get_home_assistant
import pytest
from running_aggregator import until

from hushmote.simulator.broker import MosquittoBroker, free_port


class HomeAssistant:
    """Home Assistant's core and MQTT integration in a separate process; a context manager.

    Args:
        broker: The broker.
        login: The broker's user and password.
    """

    def __init__(self, broker: MosquittoBroker, *login: str) -> None:
        python = get_home_assistant.python()
        if python is None:
            pytest.skip("Home Assistant is not installed; run python rigs/get_home_assistant.py")
        self._folder = tempfile.TemporaryDirectory()
        script = Path(__file__).with_name("home_assistant_run.py")
        self._log = open(Path(self._folder.name) / "log", "w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, script, str(broker.port), str(free_port()), self._folder.name, *login],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> HomeAssistant:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self.log()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()
        self._folder.cleanup()

    def log(self) -> str:
        """Return the warnings logged so far."""
        return Path(self._log.name).read_text(encoding="utf-8")

    def sensors(self) -> dict[str, Mapping[str, Any]]:
        """Return each sensor's and event's entity_id, state, attributes and device, by unique id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return {sensor["unique_id"]: sensor for sensor in json.loads(self._process.stdout.readline())}

    def until(self, unique_id: str, state: str | None) -> Mapping[str, Any]:
        """Wait until a sensor has a state, or if that is None, has disappeared; return it."""

        def has_state() -> bool:
            sensor = self.sensors().get(unique_id)
            return (None if sensor is None else sensor["state"]) == state

        until(has_state, lambda: (unique_id, state, self.sensors(), self.log()))
        return self.sensors().get(unique_id, {})
