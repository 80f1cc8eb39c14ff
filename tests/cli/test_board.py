"""`hushmote board` in one window and `hushmote flash` in another, as a user runs them."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import hushmote
from flashing import on_port
from running_aggregator import WAIT_S, until

from hushmote.device import main as application
from hushmote.fleet.provisioning.settings import Network, provision_device


class Window:
    """A `hushmote board` process and its output."""

    def __init__(self, folder: Path, interpreter: list[str]) -> None:
        self._log = Path(f"{folder}.window")  # outside, because refused commands must write nothing inside
        command = [sys.executable, "-m", "hushmote", "board"]
        environment = os.environ | {"HUSHMOTE_MICROPYTHON": shlex.join(interpreter), "COLUMNS": "80"}
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def text(self) -> str:
        return self._log.read_text()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.text() or self.process.poll() is not None, self.text)
        assert text in self.text(), self.text()


def has_tls(interpreter: list[str]) -> bool:
    return subprocess.run([*interpreter, "-c", "import tls"], capture_output=True).returncode == 0


@contextlib.contextmanager
def switched_on(folder: Path, interpreter: list[str]) -> Iterator[Window]:
    window = Window(folder, interpreter)
    try:
        yield window
    finally:
        window.process.kill()
        window.process.wait()


def test_flashed_board_keeps_state_after_power_cut(tmp_path: Path, interpreter: list[str]):
    settings = tmp_path / "desk.settings.json"
    provision_device(None, "home", "desk", Network("any", mqtt_host="127.0.0.1", mqtt_port=9), path=settings)
    port = str(tmp_path / "board" / "port")
    main = Path(application.__file__).read_text()
    (tmp_path / "soon.py").write_text(main.replace("START_SPREAD_S = 60", "START_SPREAD_S = 1"))
    flash = ("flash", "board/port", "desk.settings.json", "--main", "soon.py")
    with switched_on(tmp_path, interpreter) as window:
        window.wait_for("MicroPython, a board in software")
        window.wait_for("Next, in another window: hushmote flash board/port DEVICE.settings.json\n")
        window.wait_for("Ctrl-C switches the board off")
        tls = "" if has_tls(interpreter) else ", without TLS"
        assert f"({shlex.join(interpreter)}{tls}), flash in board/" in window.text()
        flashed = hushmote(*flash, "--yes", cwd=tmp_path)
        assert flashed.startswith("board in software, MicroPython 1.")
        assert "ledger: made, empty" in flashed
        # The application's output, without the exchange between mpremote and the board.
        window.wait_for("hushmote: starts in 10 s")
        window.wait_for("hushmote: nothing listens at the broker's address and port")
        assert "raw REPL" not in window.text()
        other = hushmote("board", cwd=tmp_path, expect=1)
        assert other.startswith("hushmote: the board in board is already running; use --storage for another")
        window.process.send_signal(signal.SIGINT)
        assert window.process.wait(WAIT_S) == 0
        assert window.text().endswith("switched off\n")
    assert not os.path.lexists(port)
    message = hushmote("flash", "board/port", "desk.settings.json", cwd=tmp_path, expect=1)
    assert "no such port: board/port" in message
    assert "start `hushmote board`" in message
    with switched_on(tmp_path, interpreter) as window:
        window.wait_for("hushmote: starts in 10 s")
        output = hushmote(*flash, cwd=tmp_path)
        assert "ledger: kept as it was" in output
        assert "copied" not in output
        window.process.send_signal(signal.SIGTERM)
        assert window.process.wait(WAIT_S) == 0


def test_names_busy_and_missing_port(tmp_path: Path, interpreter: list[str]):
    settings = tmp_path / "desk.settings.json"
    provision_device(None, "home", "desk", Network("any", mqtt_host="127.0.0.1"), path=settings)
    with switched_on(tmp_path, interpreter) as window:
        window.wait_for("Next, in another window")
        port = tmp_path / "board" / "port"
        with subprocess.Popen(
            on_port(str(port), "exec", "import time\nprint('here')\ntime.sleep(60)"), stdout=subprocess.PIPE
        ) as busy:
            assert busy.stdout is not None
            assert busy.stdout.readline().strip() == b"here"
            message = hushmote("flash", "board/port", "desk.settings.json", cwd=tmp_path, expect=1)
            busy.kill()
        assert message.startswith("hushmote: another program has board/port open: close it")
    message = hushmote("flash", "desk.settings.json", "desk.settings.json", cwd=tmp_path, expect=1)
    assert message.startswith("hushmote: desk.settings.json is not a serial port: `mpremote connect list`")


def test_explains_how_to_install_micropython(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("hushmote.fleet.provisioning.interpreters.commands", list)
    message = hushmote("board", cwd=tmp_path, expect=1)
    assert message.startswith(
        "hushmote: no MicroPython to run a board in software (none in HUSHMOTE_MICROPYTHON,"
    )
    assert "`apt install micropython` (Debian 13)" in message
    assert list(tmp_path.iterdir()) == []
