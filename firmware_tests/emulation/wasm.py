"""MicroPython's WebAssembly port for Node.js, from npm, in its own folder.

Its version is that of the browser board, since web/board/package-lock.json pins it for both.
"""

import runpy
import shutil
from pathlib import Path

from .debian import CannotInstall

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(__file__).with_name("run_wasm.mjs")


def install(rig: Path) -> None:
    """Run npm ci in rig/wasm, and add the launcher."""
    pinned = runpy.run_path(str(ROOT / "web" / "board" / "fetch.py"))
    folder = rig / "wasm"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        pinned["packages"](folder)
    except pinned["CannotFetch"] as e:
        raise CannotInstall(str(e), e.command) from None
    shutil.copy(LAUNCHER, folder / LAUNCHER.name)
