"""docs/questions.md: device/main.py with the changes of the page reads and reports the standard questions.

firmware_tests/test_health.py tests the readers themselves, on MicroPython.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import wake_ups
from enumeration import memory
from wake_ups import Air, install, provisioned

from hushmote.device import health, main
from hushmote.planning import library
from hushmote.server.experiments import definition

PAGE = (Path(__file__).parents[2] / "docs" / "questions.md").read_text("utf-8")
NAMES = ("crashed", "uptime")
pytestmark = pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
EPOCH_S = 800_000_000


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Provide a copy of main.py with the changes of the page, on a board with an RTC."""
    copy = tmp_path / "main.py"
    copy.write_text(Path(main.__file__).read_text("utf-8"), encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
    subprocess.run(["patch", str(copy)], input=diff, text=True, check=True, capture_output=True)
    spec = importlib.util.spec_from_file_location("hushmote.device.main_with_health", copy)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(wake_ups, "main", module)
    monkeypatch.setattr(health.gc, "mem_free", lambda: 80 * 1024, raising=False)
    (tmp_path / "ldp").mkdir()
    monkeypatch.setattr(module, "LEDGER", str(tmp_path / "ldp"))
    return module


class Board:
    """A start of the application, with readings at chosen times."""

    def __init__(self, module: ModuleType, patch: pytest.MonkeyPatch, folder: Path, cause: int) -> None:
        self.module, self.air, self._patch = module, Air(), patch
        readings = {name: module.READINGS[name] for name in NAMES}
        for name in NAMES:
            text = library.customize(name, every=1)
            self.air.experiment(name, definition.parse(text).payload())
        install(patch, self.air, folder / "experiments", memory(provisioned()), dict.fromkeys(NAMES))
        patch.setattr(module, "READINGS", readings)
        patch.setattr(module, "_last", {"rssi": -70})
        chip = SimpleNamespace(PWRON_RESET=1, WDT_RESET=3, reset_cause=lambda: cause)
        patch.setattr(module, "machine", chip)
        self.set_time(EPOCH_S)
        module.health("start", chip)
        self.application = module.Application()

    def set_time(self, seconds: int) -> None:
        self._patch.setattr(health, "time", SimpleNamespace(time=lambda: seconds))

    def wake_up(self, seconds: int) -> dict[str, Any]:
        """Wake up at a time; return the readings that the readers then give."""
        self.set_time(seconds)
        self.application.wake_up()
        return {name: self.module.read(name) for name in NAMES}


@pytest.fixture
def start(application: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Board]:
    return lambda cause: Board(application, monkeypatch, tmp_path, cause)


def test_reports_a_watchdog_reset_for_a_day(start: Callable[[int], Board]):
    board = start(3)
    assert board.wake_up(EPOCH_S + 3_600) == {"crashed": True, "uptime": 1}
    assert len(board.air.reports()) == 2
    assert board.wake_up(EPOCH_S + 86_400) == {"crashed": False, "uptime": 24}


def test_state_survives_a_power_cut(start: Callable[[int], Board], tmp_path: Path):
    start(3)
    stored = json.loads((tmp_path / "ldp" / "health.json").read_text())
    assert stored["cause"] == "watchdog"
    assert start(1).wake_up(EPOCH_S + 7_200)["crashed"]


def test_application_tells_the_rest(start: Callable[[int], Board]):
    board = start(1)
    tell = board.module.health
    tell("updated", "rolled back")
    tell("newer_version")
    tell("battery", 100)
    board.set_time(EPOCH_S + 2 * 86_400)
    tell("battery", 5)
    assert tell("read", "update") == "rolled back"
    assert tell("read", "days_behind") == 2
    assert tell("read", "battery_life") == 48
    assert tell("read", "heap_low") is None
    tell("restarting", "update")
    tell("start", board.module.machine)
    assert tell("read", "restart") == "update"
