"""The time for which the C client's esp-mqtt port blocks its calling loop, in a model's virtual time.

The model waits where esp-mqtt's sources do; clients/c/packages.md gives their version.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from c_core import CORE, compile_c, needs_gcc
from power_cuts import CORE_FILES, RIGS

pytestmark = needs_gcc
MODEL = RIGS / "idf_model"
WATCHDOG_MS = 5000  # ESPHome's watchdog


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [MODEL / f"{name}.c" for name in ("freertos", "esp_mqtt", "blocking")]
    headers = [f"-I{MODEL}", f"-I{MODEL / 'freertos'}", f"-I{CORE / 'idf'}"]
    target = tmp_path_factory.mktemp("blocking") / "blocking"
    files = [*CORE_FILES, *sources, CORE / "idf" / "idf_mqtt.c"]
    return compile_c(target, files, "-std=gnu17", "-Wno-pedantic", *headers)


def play(program: Path, scene: str) -> dict[str, int]:
    done = subprocess.run([program, scene], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class TestBlocking:
    @pytest.mark.parametrize("scene", ["refused", "silent", "lost", "withdrawn"])
    def test_does_not_wait_for_connection_to_end(self, program: Path, scene: str):
        counts = play(program, scene)
        assert counts["blocked"] == 0
        assert counts["link"] == 2  # connected again
        assert (counts["goodbyes"], counts["clients"]) == (1, 0)

    def test_torn_packet_blocks_less_than_watchdog(self, program: Path):
        counts = play(program, "torn")
        assert 2000 < counts["blocked"] < WATCHDOG_MS
        assert counts["connects"] > 1
        assert (counts["link"], counts["clients"]) == (2, 0)

    def test_receives_all_retained_messages_during_verification(self, program: Path):
        counts = play(program, "retained")
        assert (counts["heard"], counts["connects"]) == (48, 1)


class TestRefusal:
    def test_reporter_has_code_of_refused_login(self, program: Path):
        counts = play(program, "wrong password")
        assert (counts["connack"], counts["connack_now"], counts["link"]) == (5, 0, 2)

    @pytest.mark.parametrize(("scene", "forbidden"), [("forbidden", 48), ("retained", 0)])
    def test_reporter_marks_forbidden_subscriptions(self, program: Path, scene: str, forbidden: int):
        counts = play(program, scene)
        assert (counts["forbidden"], counts["connects"]) == (forbidden, 1)
