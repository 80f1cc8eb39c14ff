"""Build ESPHome host firmware from a YAML file, and control it with a Home Assistant client, if installed.

    make esphome    # installs PyPI's esphome in .rig/esphome; HUSHMOTE_ESPHOME can name another Python

`esphome compile` would download PlatformIO's platform for the host, but its generated sources also build with
plain gcc and g++.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running_aggregator import WAIT_S, until

ROOT = Path(__file__).parents[1]
COMPONENTS = ROOT / "clients" / "esphome" / "components"
_PYTHON = Path(os.environ.get("HUSHMOTE_ESPHOME", ROOT / ".rig" / "esphome" / "bin" / "python"))
_OBJECTS = _PYTHON.parent.parent / "objects"
_LIBRARY = Path("/usr/include/mosquitto.h")
needs_esphome = pytest.mark.skipif(not _PYTHON.exists(), reason="ESPHome is missing; run `make esphome`")
needs_esphome_build = pytest.mark.skipif(
    not (shutil.which("g++") and _LIBRARY.exists()), reason="g++ or libmosquitto-dev is not installed"
)


def esphome(*arguments: str, folder: Path, status: int = 0) -> str:
    """Run an esphome command in a folder; return its output."""
    done = subprocess.run(
        [_PYTHON, "-m", "esphome", *arguments],
        cwd=folder,
        env=os.environ | {"HOME": str(folder), "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    return output


def build(folder: Path, name: str) -> Path:
    """Build the host firmware of folder/name.yaml; return its path. Object files are cached between runs."""
    esphome("compile", "--only-generate", f"{name}.yaml", folder=folder)
    base = folder / ".esphome" / "build" / name
    sources = base / "src"
    match = re.search(
        r"\[env:.*?build_flags =\n((?: +[^\n]*\n)+)", (base / "platformio.ini").read_text(), re.DOTALL
    )
    assert match
    flags = match[1].split()
    libraries = [flag for flag in flags if flag.startswith("-l")]
    headers = hashlib.sha256(" ".join(flags).encode())
    for path in sorted(sources.rglob("*.h")):
        if path.name != "build_info_data.h":  # it contains the build time
            headers.update(path.read_bytes())
    _OBJECTS.mkdir(exist_ok=True)

    def compile_file(path: Path) -> str:
        key = headers.copy()
        key.update(str(path.relative_to(sources)).encode() + path.read_bytes())
        target = _OBJECTS / f"{key.hexdigest()}.o"
        if not target.exists():
            in_c = path.suffix == ".c"
            options = [
                flag for flag in flags if flag not in libraries and not (in_c and flag.startswith("-std"))
            ]
            object_file = base / f"{target.stem}.o"
            command = [
                "gcc" if in_c else "g++",
                *options,
                f"-I{sources}",
                "-c",
                str(path),
                "-o",
                str(object_file),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            shutil.move(object_file, target)
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        objects = list(
            pool.map(compile_file, [p for p in sorted(sources.rglob("*")) if p.suffix in (".c", ".cpp")])
        )
    subprocess.run(["g++", "-o", str(folder / name), *objects, *libraries], check=True)
    return folder / name


_PERSON = """
import asyncio, json, sys
from aioesphomeapi import APIClient, APIConnectionError

async def main(port):
    client = APIClient("127.0.0.1", port, None)
    while True:
        try:
            await client.connect(login=True)
            break
        except APIConnectionError:
            await asyncio.sleep(0.05)
    entities, _ = await client.list_entities_services()
    names = {entity.key: entity.name for entity in entities}
    keys = {name: key for key, name in names.items()}
    def show(state):
        value = getattr(state, "state", None)
        print(json.dumps([names[state.key], None if value != value else value]), flush=True)
    client.subscribe_states(show)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        what, value = json.loads(line)
        if value is None:
            client.button_command(keys[what])
        else:
            client.switch_command(keys[what], value)

asyncio.run(main(int(sys.argv[1])))
"""


class Device:
    """A host firmware as a process, its flash in a folder, and a Home Assistant client.

    The folder may contain a page with the device's identity, as identity.bin.

    Attributes:
        history: Each entity's states so far, by its name.
    """

    def __init__(self, firmware: Path, flash: Path, api_port: int) -> None:
        self._log = flash / "log"
        flash.mkdir(exist_ok=True)
        env = {"HOME": str(flash), "PATH": os.environ["PATH"]}
        env["HUSHMOTE_IDENTITY"] = str(flash / "identity.bin")
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(["stdbuf", "-oL", firmware], env=env, stdout=log, stderr=log)
        self._person = subprocess.Popen(
            [_PYTHON, "-c", _PERSON, str(api_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.history: dict[str, list[Any]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._person.stdout
        for line in self._person.stdout:
            name, state = json.loads(line)
            self.history.setdefault(name, []).append(state)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def press(self, button: str) -> None:
        self._say([button, None])

    def turn(self, switch: str, on: bool) -> None:
        self._say([switch, on])

    def _say(self, command: Sequence[Any]) -> None:
        assert self._person.stdin
        self._person.stdin.write(json.dumps(command) + "\n")
        self._person.stdin.flush()

    def last(self, name: str) -> Any:
        return self.history.get(name, [None])[-1]

    def wait(self, name: str, state: Any) -> None:
        until(
            lambda: self.last(name) == state,
            lambda: f"{name}: {self.history.get(name)}, not {state}\n{self.log()}",
        )

    def wait_for_states(self, name: str, states: int) -> None:
        """Wait for this many further states, one per second of the device's time."""
        before = len(self.history.get(name, ()))
        until(lambda: len(self.history.get(name, ())) >= before + states, self.log)

    def kill(self) -> None:
        self._person.kill()
        self._process.kill()
        self._person.wait(WAIT_S)
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
