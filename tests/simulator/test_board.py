"""The software board's hardware-like behaviour."""

import os
import subprocess
import sys
from pathlib import Path

from flashing import Bench, on_board, on_port
from running_aggregator import HANGS_S

from hushmote.simulator.board import storage
from hushmote.simulator.board.board import SoftwareBoard


def run_main(board: SoftwareBoard, program: str) -> None:
    """Install a program as the board's application, and restart the board."""
    on_board(board, f"with open('/main.py', 'w') as f: f.write({program!r})")
    subprocess.run(on_port(board.port, "reset"), capture_output=True, timeout=HANGS_S, check=True)


def press(board: SoftwareBoard, keys: bytes) -> None:
    """Send keys to the board."""
    port = os.open(board.port, os.O_WRONLY | os.O_NOCTTY)
    os.write(port, keys)
    os.close(port)


def test_prints_its_banner_without_a_console(bench: Bench):
    with bench.board() as board:
        assert board.wait_for(b">", HANGS_S)
    assert board.output == b"MicroPython, a board in software\r\n>>> "


def test_wait_stops_once_the_interpreter_has_ended(tmp_path: Path):
    with SoftwareBoard([sys.executable, "-c", "print('up')"], tmp_path / "flash.img") as board:
        assert not board.wait_for(b">>> ", HANGS_S)
        assert board.output.startswith(b"up\r\n")
        assert board.failure == f"MicroPython ended with status 0: see {tmp_path / 'flash.log'}"


def test_unread_output_does_not_block_board(bench: Bench):
    # Half a megabyte, far more than a terminal buffers.
    program = "for i in range(5000): print('%0100d' % i)\nprint('the end')\n"
    with bench.board() as board:
        run_main(board, program)
        assert board.wait_for(b"the end", HANGS_S)
        # A client that opens the port later gets a response rather than earlier output.
        assert on_board(board, "print(6 * 7)") == "42"


def test_mpremote_wakes_a_sleeping_board(bench: Bench):
    with bench.board() as board:
        run_main(board, "import machine\nprint('good night')\nmachine.deepsleep(3_600_000)\n")
        assert board.wait_for(b"good night", HANGS_S)
        assert on_board(board, "import machine; print(machine.reset_cause())") == "1"
        assert board.sleeps_ms == [3_600_000]  # its application did not put it to sleep again


def test_ignored_ctrl_c_still_wakes_the_board(bench: Bench):
    program = "import machine\nprint('up')\ntry:\n    while True: pass\nexcept KeyboardInterrupt: pass\n"
    sleep = "machine.deepsleep(3_600_000)\n"
    with bench.board() as board:
        run_main(board, program + sleep)
        assert board.wait_for(b"up", HANGS_S)
        board.output = b""
        press(board, b"\r\x03\r\x01")  # the application catches Ctrl-C, and the board sleeps
        assert board.wait_for(b"raw REPL", HANGS_S)
        press(board, b"\x02")
        run_main(board, "import machine\n" + sleep)
    board = bench.board()
    press(board, b"\r\x03\r\x01")  # Ctrl-C arrives before anything runs
    with board:
        assert board.wait_for(b"raw REPL", HANGS_S)


def test_console_shows_program_output_but_not_mpremote_traffic(bench: Bench):
    lines: list[str] = []
    banner = "MicroPython, a board in software"
    expected = ["woke up 1", "(asleep for 90 s)", "woke up 4", "up", banner]
    with bench.board(console=lines.append, sleep_scale=1e-6) as board:
        assert board.wait_for(b">>> ", HANGS_S)
        cause = "machine.reset_cause()"
        sleep = f"print('woke up', {cause})\nif {cause} == 1: machine.deepsleep(90_000)\nprint('up')\n"
        run_main(board, "import machine\n" + sleep)
        assert board.wait_for(b"up\r\n%s\r\n" % banner.encode(), HANGS_S)
        assert on_board(board, "print(6 * 7)") == "42"
    assert lines == [banner, *expected]
    board = bench.board(console=lines.append, sleep_scale=1e-6)
    press(board, b"\r\x02")  # mpremote leaves the raw REPL of a board that is already restarting
    with board:
        assert board.wait_for(b"up\r\n%s\r\n>>> " % banner.encode(), HANGS_S)
    assert lines == [banner, *expected, *expected]


def test_terminal_has_a_fixed_path_while_the_board_is_on(tmp_path: Path):
    (tmp_path / "port").symlink_to("/dev/pts/of-an-earlier-run")
    with storage.link_port(tmp_path, "/dev/pts/99") as path:
        assert (path, os.readlink(path)) == (tmp_path / "port", "/dev/pts/99")
    assert not path.is_symlink()
