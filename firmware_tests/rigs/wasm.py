"""MicroPython's WebAssembly port for Node.js, from npm, in a folder of its own."""

import shutil
import subprocess
from pathlib import Path

from .debian import CannotInstall

PACKAGE = "@micropython/micropython-webassembly-pyscript@1.27.0"
LAUNCHER = Path(__file__).with_name("run_wasm.mjs")


def install(rig: Path) -> None:
    """npm install into rig/wasm, with the launcher beside it."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise CannotInstall("there is no Node.js", "apt-get install nodejs npm")
    folder = rig / "wasm"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", PACKAGE]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise CannotInstall(f"npm failed: {lines[-1]}", " ".join(command))
    shutil.copy(LAUNCHER, folder / LAUNCHER.name)
