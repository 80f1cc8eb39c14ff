"""Writes the files that `hushmote flash` can copy, as on a board; a release's manifest lists them.

python -m hushmote.fleet.provisioning.release_files FOLDER
"""

import sys
from pathlib import Path

from ...server.errors import refusing
from ...server.wire import board_files
from . import umqtt
from .flash import EXAMPLE, MODULES
from .usb import FlashError, compile_mpy

ANY_BOARD = 6
"""sys.implementation._mpy without an architecture: bytecode that every board can load."""


def release_files(mpy: int = ANY_BOARD) -> dict[str, bytes]:
    """Return content by path on the board: each module as .mpy and as .py, and the example application.

    The output is reproducible for the same sources and mpy-cross. No shipped module contains native code, so
    it is also the same for every board.

    Args:
        mpy: The board's sys.implementation._mpy.

    Raises:
        FlashError: If a module cannot be read or compiled.
    """
    paths = [*(EXAMPLE.with_name(f"{m}.py") for m in MODULES), *board_files.shipped_files().values()]
    with refusing(FlashError, "read the board's modules"):
        sources = {path.stem: path.read_bytes() for path in paths} | {"umqtt/simple": umqtt.bundled()}
        files = {"/main.py": EXAMPLE.read_bytes()}
    files |= {f"/lib/{name}.py": source for name, source in sources.items()}
    return files | {f"/lib/{n}.mpy": compile_mpy(source, mpy, f"{n}.py") for n, source in sources.items()}


def write(folder: Path) -> None:
    """Write the files below a folder; raise FlashError."""
    for name, content in release_files().items():
        path = folder / name.lstrip("/")
        with refusing(FlashError, f"write to {folder}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
