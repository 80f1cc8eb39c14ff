"""`hushmote board`: a board in software, for `hushmote flash` and a broker on this machine."""

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
        typer.Option(
            help="Folder that keeps its flash; each folder is a board of its own.", metavar="FOLDER"
        ),
    ] = Path("board"),
) -> None:
    """Run a board in software, to try everything without hardware.

    It is MicroPython behind a terminal that `hushmote flash` takes like a board's. DEVICE.settings.json is
    what `hushmote provision device` wrote. The board's flash is a file that stays, so Ctrl-C is a power cut.
    Its Wi-Fi takes any name and password, its sockets are this machine's, and its thermometer always shows
    24.6 °C.
    """
    try:
        from ..fleet.provisioning import interpreters
        from ..simulator.board import storage as folders
        from ..simulator.board.board import ANY_WIFI, SoftwareBoard
    except ImportError:  # Windows has neither pseudo-terminals nor file locks of this kind
        raise UsageError("a board in software needs Linux or macOS (on Windows: WSL)") from None
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
        _say("Ctrl-C switches the board off; its flash stays. What it prints:")
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
