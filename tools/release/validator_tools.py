"""Install the programs that check a release, apart from the tests' environment.

    .venv/bin/python tools/release/validator_tools.py

It installs the Python programs of locks/release.txt into .venv/release, the npm packages of locks/release/
into .venv/release/node, Go programs into .venv/release/go, and ESPHome into .rig/esphome. It records why a
program cannot be installed, and tries again the next time.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv" / "release"
# By the program's name: the package to build, and its version.
GO_PROGRAMS = {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"}
NODE_PROGRAMS = ("attw", "publint")
# Run as modules or with a script.
_INTERPRETERS = {
    "esphome": os.environ.get("HUSHMOTE_ESPHOME", ROOT / ".rig" / "esphome" / "bin" / "python"),
    "platformio": FOLDER / "bin" / "python",
}
# Programs that are taken from PATH, and why one is missing.
_ON_PATH = {
    # `go install` refuses its go.mod, which replaces modules, and the Go module proxy does not serve it.
    "arduino-lint": "no registry has it; install it as Arduino's documentation says",
    "promtool": "not installed; run `apt-get install prometheus`",
}


class CannotInstall(Exception):
    """The message is one line."""


def find_program(name: str) -> Path | None:
    """Return the path of a program that install() installed or that is on PATH, or None."""
    if name in _INTERPRETERS:
        python = Path(_INTERPRETERS[name])
        # Without the script, an installation was interrupted.
        return python if python.exists() and python.with_name(name).exists() else None
    for folder in ("bin", "node/node_modules/.bin", "go"):
        if (path := FOLDER / folder / name).exists():
            return path
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def missing_reason(name: str) -> str:
    """Return why a program is missing."""
    hint = _ON_PATH.get(name, "not installed; run `python tools/release/validator_tools.py`")
    return _read_reasons().get(name, hint)


def install() -> dict[str, str]:
    """Install what is missing; return the reason for each program that cannot be installed, by name."""
    steps: dict[tuple[str, ...], Callable[[], None]] = {
        ("Python programs",): _install_python,
        NODE_PROGRAMS: _install_node,
        **{(name,): _go_step(name) for name in GO_PROGRAMS},
        ("esphome",): _install_esphome,
    }
    reasons = {}
    for names, step in steps.items():
        try:
            step()
        except CannotInstall as e:
            reasons |= dict.fromkeys(names, str(e))
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "missing.json").write_text(json.dumps(reasons, indent=2) + "\n")
    return reasons


def _install_python() -> None:
    lock = ROOT / "locks" / "release.txt"
    if _is_current("python", lock):
        return
    if not (FOLDER / "bin" / "python").exists():
        _run(sys.executable, "-m", "venv", FOLDER)
    pip = (FOLDER / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, "--require-hashes", "--requirement", lock)
    _mark_current("python", lock)


def _install_node() -> None:
    pins = ROOT / "locks" / "release"
    lock = pins / "package-lock.json"
    if _is_current("node", lock):
        return
    board = runpy.run_path(str(ROOT / "web" / "board" / "fetch.py"))
    try:
        board["packages"](FOLDER / "node", tests=True, pins=pins)
    except board["CannotFetch"] as e:
        raise CannotInstall(f"{e}; run `{e.command}`") from None
    _mark_current("node", lock)


def _go_step(name: str) -> Callable[[], None]:
    def install_program() -> None:
        if find_program(name):
            return
        if not shutil.which("go"):
            raise CannotInstall("Go is not installed; run `apt-get install golang`")
        _run("go", "install", GO_PROGRAMS[name], GOBIN=str(FOLDER / "go"))

    return install_program


def _install_esphome() -> None:
    if not find_program("esphome"):
        _run("make", "--directory", ROOT, "--silent", "esphome")


def _is_current(part: str, lock: Path) -> bool:
    mark = FOLDER / f".{part}"
    return mark.exists() and mark.read_bytes() == lock.read_bytes()


def _mark_current(part: str, lock: Path) -> None:
    shutil.copy(lock, FOLDER / f".{part}")


def _run(*command: str | Path, **environment: str) -> None:
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        lines = (result.stderr.strip() or result.stdout.strip() or "no output").splitlines()
        line = lines[-1]
        if command[0] == "go":
            # The first line names the package twice, then the proxy, then the reason.
            line = next(
                (line for line in lines if line.startswith("go: ") and "downloading" not in line), line
            )
            line = f"{command[-1]}: {line.rpartition(': ')[2]}"
        raise CannotInstall(f"{Path(command[0]).name} cannot install it: {line.strip()}")


def _read_reasons() -> dict[str, str]:
    path = FOLDER / "missing.json"
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    for program, why in install().items():
        print(f"{program}: {why}", file=sys.stderr)
