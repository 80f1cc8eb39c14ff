"""The test runner for boards, with the real mpremote and a MicroPython board on a pty instead of USB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from micropython import find_runtime
from running_aggregator import HANGS_S

from hushmote.fleet.provisioning.usb import OLDEST_FIRMWARE, OLDEST_READABLE
from hushmote.simulator.board.board import SoftwareBoard

FIRMWARE_TESTS = Path(__file__).parents[2] / "firmware_tests"
sys.path.insert(0, str(FIRMWARE_TESTS))

import run  # noqa: E402  # pyright: ignore[reportMissingImports]
import runtimes  # noqa: E402  # pyright: ignore[reportMissingImports]


def test_runs_file_on_board_and_leaves_nothing(tmp_path: Path):
    argv = find_runtime("littlefs")
    with SoftwareBoard([*argv, "-X", "heapsize=1m"], tmp_path / "flash.img", flash_bytes=1 << 20) as board:
        command = [
            sys.executable,
            str(FIRMWARE_TESTS / "run.py"),
            "--port",
            board.port,
            "--file",
            "test_lifetime",
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S)
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
        listing = [sys.executable, "-m", "mpremote", "connect", board.port]
        listing += ["exec", "import os; print(os.listdir('/'))"]
        left = subprocess.run(listing, capture_output=True, text=True, timeout=HANGS_S)
    assert left.returncode == 0, left.stderr
    assert "board" not in left.stdout


def test_skips_emulated_pico_by_name_if_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runtimes, "RIG", tmp_path)
    missing = {m.name: m for m in runtimes.find(pico=True)[1]}
    assert missing["pico"].command == "make pico"
    hosted = [t for t in map(run.TestFile.read, FIRMWARE_TESTS.glob("test_*.py")) if t.host]
    assert hosted
    other = runtimes.Runtime("unix32f", ("false",), "1.25.0", frozenset(("mpy", "littlefs")))
    for test in hosted:
        outcome = run.run_file(other, test, "armv6m", tmp_path)
        assert (outcome.word, outcome.note) == ("skipped", "needs pico")


def test_host_tests_run_locally_and_count(tmp_path: Path):
    source = "import on_device\nHOST = True\n\ndef test_it():\n    assert %s\n\non_device.run(globals())\n"
    somewhere = runtimes.Runtime("pico", ("false",), "1.25.0", frozenset(("mpy",)))
    staged = tmp_path / "staged"
    staged.mkdir()
    for condition, word in (("True", "passed"), ("1 == 2", "failed")):
        path = staged / "test_here.py"
        path.write_text(source % condition)
        outcome = run.run_file(somewhere, run.TestFile.read(path), "armv6m+xtensawin", staged)
        assert outcome.word == word, outcome


class TestOldestVersion:
    """The on-device tests run on the oldest MicroPython that a board with Hushmote may have."""

    def test_is_the_documented_one(self):
        pins = FIRMWARE_TESTS / "emulation" / "oldest"
        packages = json.loads((pins / "package-lock.json").read_text())["packages"]
        version = packages["node_modules/@micropython/micropython-webassembly-pyscript"]["version"]
        assert tuple(map(int, version.split("."))) == OLDEST_READABLE
        assert f"MicroPython {version.rpartition('.')[0]}," in str(runtimes.__doc__)

    def test_minimum_for_flashing_is_documented(self):
        minimum = "MicroPython {}.{} or later".format(*OLDEST_FIRMWARE)
        assert minimum in (FIRMWARE_TESTS.parent / "docs" / "first-report.md").read_text()

    @pytest.mark.parametrize("file", ["test_vectors", "test_lifetime", "test_kept"])
    def test_runs_the_clients_tests(self, file: str):
        if not any(runtime.name == "oldest" for runtime in runtimes.find()[0]):
            pytest.skip(
                "the oldest MicroPython is not installed: python firmware_tests/runtimes.py --install"
            )
        command = [sys.executable, str(FIRMWARE_TESTS / "run.py"), "--runtime", "oldest", "--file", file]
        local = {name: value for name, value in os.environ.items() if name != "CI"}  # CI needs all runtimes
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, env=local)
        assert result.returncode == 0, result.stdout + result.stderr
        assert f"{file}.py" in result.stdout
