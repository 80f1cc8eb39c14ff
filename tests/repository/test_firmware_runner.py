"""The runner for boards, over the real mpremote: a MicroPython board on a pty stands for one on USB."""

import subprocess
import sys
from pathlib import Path

import pytest

FIRMWARE_TESTS = Path(__file__).parents[2] / "firmware_tests"
sys.path.insert(0, str(FIRMWARE_TESTS))

import runtimes  # noqa: E402  # pyright: ignore[reportMissingImports]
from pty_board import PtyBoard  # noqa: E402  # pyright: ignore[reportMissingImports]


def test_a_file_of_the_suite_runs_on_a_board_and_leaves_nothing_there(tmp_path: Path):
    found = [r for r in runtimes.find(install=True)[0] if "littlefs" in r.features]
    if not found:
        pytest.skip("no MicroPython with littlefs: python firmware_tests/runtimes.py --install")
    with PtyBoard(
        [*found[0].argv, "-X", "heapsize=1m"], tmp_path / "flash.img", flash_bytes=1 << 20
    ) as board:
        command = [
            sys.executable,
            str(FIRMWARE_TESTS / "run.py"),
            "--port",
            board.port,
            "--file",
            "test_life",
        ]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert run.returncode == 0, run.stdout + run.stderr
        assert run.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
        listing = [
            sys.executable,
            "-m",
            "mpremote",
            "connect",
            board.port,
            "exec",
            "import os; print(os.listdir('/'))",
        ]
        left = subprocess.run(listing, capture_output=True, text=True, timeout=60)
    assert left.returncode == 0, left.stderr
    assert "board" not in left.stdout
