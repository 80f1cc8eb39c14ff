"""`hushmote board`: a software board to use with `hushmote flash` and a broker on this machine."""

import shlex
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from ..server.answers import tables as show
from ..server.errors import UsageError
from ..server.plain_text import visible


def board_command(
    storage: Annotated[
        Path,
        typer.Option(help="Folder for the board's flash; each folder is a separate board.", metavar="FOLDER"),
    ] = Path("board"),
) -> None:
    """Run a software board, to try everything without hardware.

    It runs MicroPython behind a terminal that `hushmote flash` uses like a serial port. DEVICE.settings.json
    is the file from `hushmote provision device`. The board's flash is a persistent file, so Ctrl-C acts
    like a power cut. The board's Wi-Fi accepts any name and password, it shares this machine's network, and
    its thermometer always reads 24.6 °C.
    """
    try:
        from ..fleet.provisioning import interpreters
        from ..simulator.board import storage as folders
        from ..simulator.board.board import ANY_WIFI, SoftwareBoard
    except ImportError:  # Windows has neither pseudo-terminals nor this kind of file lock
        raise UsageError("a software board needs Linux or macOS (on Windows, use WSL)") from None
    interpreter = interpreters.for_board()
    signal.signal(signal.SIGTERM, _stop)
    with (
        folders.open_image(storage) as image,
        SoftwareBoard(interpreter.argv, image, wifi=ANY_WIFI, console=_say) as board,
        folders.link_port(storage, board.port) as port,
    ):
        version = ".".join(map(str, interpreter.version))
        tls = "" if "tls" in interpreter.features else ", without TLS"
        _say(f"MicroPython {version} ({shlex.join(interpreter.argv)}{tls}), flash in {image}")
        _say(f"Next, in another window: hushmote flash {shlex.quote(str(port))} DEVICE.settings.json")
        _say("Ctrl-C switches the board off; its flash is kept. The board's output:")
        try:
            board.wait()
        except KeyboardInterrupt:
            _say("switched off")
            return
    raise UsageError(board.failure or "the board stopped")


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    show.out.print(visible(line), soft_wrap=True, markup=False, highlight=False)
