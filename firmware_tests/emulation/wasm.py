"""MicroPython's WebAssembly port for Node.js, from npm, in its own folder.

Its version is that of the browser board, since web/board/package-lock.json pins it for both. The oldest
version that boards may have, which the documents name, is pinned in oldest/.
"""

import runpy
import shutil
from pathlib import Path

from .debian import CannotInstall

ROOT = Path(__file__).parents[2]
LAUNCHER = Path(__file__).with_name("run_wasm.mjs")


def install(rig: Path) -> None:
    """Install the browser board's version in rig/wasm."""
    _install(rig / "wasm", {})


def install_oldest(rig: Path) -> None:
    """Install the oldest version that boards may have in rig/oldest."""
    _install(rig / "oldest", {"pins": Path(__file__).with_name("oldest")})


def _install(folder: Path, options: dict[str, Path]) -> None:
    """Run npm ci in a folder, and add the launcher."""
    pinned = runpy.run_path(str(ROOT / "web" / "board" / "fetch.py"))
    shutil.rmtree(folder, ignore_errors=True)
    try:
        pinned["packages"](folder, **options)
    except pinned["CannotFetch"] as e:
        raise CannotInstall(str(e), e.command) from None
    shutil.copy(LAUNCHER, folder / LAUNCHER.name)
