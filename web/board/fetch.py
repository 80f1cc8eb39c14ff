"""Fetch the part of the browser board that is not in the repository: MicroPython for WebAssembly, from npm.

    python web/board/fetch.py

installs it in web/board/static/micropython. package-lock.json beside this file pins it by hash. setup.py runs
this file before anything of Hushmote is installed, so it imports nothing of Hushmote.
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
    """npm is missing or failed; `command` is the remedy."""

    def __init__(self, text: str, command: str) -> None:
        super().__init__(text)
        self.command = command


def pinned() -> str:
    """Return the version of the port in package-lock.json."""
    lock = json.loads((HERE / "package-lock.json").read_text())
    return lock["packages"][f"node_modules/{PACKAGE}"]["version"]


def packages(folder: Path, *, tests: bool = False) -> Path:
    """Return the folder's node_modules with the pinned packages, optionally those for tests too.

    Raises:
        CannotFetch: If npm is missing or fails.
    """
    if not (shutil.which("node") and shutil.which("npm")):
        raise CannotFetch("there is no Node.js with npm", "apt-get install nodejs npm")
    folder.mkdir(parents=True, exist_ok=True)
    for name in PINS:
        shutil.copy(HERE / name, folder / name)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    command += [] if tests else ["--omit=dev"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no output"]
        raise CannotFetch(f"npm failed: {lines[-1]}", " ".join(command))
    return folder / "node_modules"


def is_there() -> bool:
    """Return whether the pinned version is in static/micropython."""
    try:
        return json.loads((PORT / "package.json").read_text())["version"] == pinned()
    except FileNotFoundError:
        return False


def fetch() -> None:
    """Install the port in static/micropython unless it is there; raise CannotFetch if that fails."""
    if is_there():
        return
    with tempfile.TemporaryDirectory(dir=HERE) as scratch:
        fetched, new = packages(Path(scratch) / "npm") / PACKAGE, Path(scratch) / "micropython"
        new.mkdir()
        for name in FILES:
            shutil.copy(fetched / name, new / name)
        if not is_there():  # other processes may read a copy that was fetched in the meantime
            shutil.rmtree(PORT, ignore_errors=True)
            with contextlib.suppress(OSError):  # another process has just fetched it
                new.rename(PORT)


def main() -> None:
    """Fetch MicroPython for the browser, or exit with the reason why not."""
    try:
        fetch()
    except CannotFetch as e:
        sys.exit(f"The board in the browser cannot be fetched: {e}. Try: {e.command}")
    print(f"MicroPython {pinned()} for browsers is in {PORT}")


if __name__ == "__main__":
    main()
