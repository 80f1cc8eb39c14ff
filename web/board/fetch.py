"""Fetch MicroPython for WebAssembly from npm, the only part of the browser board outside the repository.

    python web/board/fetch.py

This installs MicroPython in web/board/static/micropython; package-lock.json in this folder pins it by hash.
setup.py runs this file before Hushmote is installed, so it must not import anything from Hushmote.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PORT = HERE / "static" / "micropython"
PACKAGE = "@micropython/micropython-webassembly-pyscript"
FILES = ("micropython.mjs", "micropython.wasm", "package.json")
PINS = ("package.json", "package-lock.json", ".npmrc")


class CannotFetch(Exception):
    """npm is missing or failed; `command` fixes the problem or repeats the failed step."""

    def __init__(self, text: str, command: str) -> None:
        super().__init__(text)
        self.command = command


def pinned() -> str:
    """Return the version of the port in package-lock.json."""
    lock = json.loads((HERE / "package-lock.json").read_text())
    return lock["packages"][f"node_modules/{PACKAGE}"]["version"]


def packages(folder: Path, *, tests: bool = False, pins: Path = HERE) -> Path:
    """Install the pinned packages in a folder, optionally with the tests' packages; return its node_modules.

    Args:
        folder: Created if missing.
        tests: Whether to install the tests' packages as well.
        pins: The folder of the files that pin the packages.

    Raises:
        CannotFetch: If npm is missing or fails.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        raise CannotFetch("Node.js with npm is not installed", "apt-get install nodejs npm")
    folder.mkdir(parents=True, exist_ok=True)
    for name in PINS:
        shutil.copy(pins / name, folder / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    command += [] if tests else ["--omit=dev"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise CannotFetch(f"npm failed: {lines[-1]}", " ".join(command))
    return folder / "node_modules"


def is_installed() -> bool:
    """Return whether the pinned version is in static/micropython."""
    try:
        return json.loads((PORT / "package.json").read_text())["version"] == pinned()
    except FileNotFoundError:
        return False


def fetch() -> None:
    """Install the port in static/micropython unless it is already there; raise CannotFetch on failure."""
    if is_installed():
        return
    with tempfile.TemporaryDirectory(dir=HERE) as scratch:
        package, target = packages(Path(scratch) / "npm") / PACKAGE, Path(scratch) / "micropython"
        target.mkdir()
        for name in FILES:
            shutil.copy(package / name, target / name)
        if not is_installed():  # otherwise another process fetched it in the meantime, and may be reading it
            shutil.rmtree(PORT, ignore_errors=True)
            with contextlib.suppress(OSError):  # another process has just fetched it
                target.rename(PORT)


def main() -> None:
    """Fetch MicroPython for browsers, or exit with an error message."""
    try:
        fetch()
    except CannotFetch as e:
        sys.exit(f"The browser board cannot be fetched: {e}. Try: {e.command}")
    print(f"MicroPython {pinned()} for browsers is in {PORT}")


if __name__ == "__main__":
    main()
