"""Writes a folder for `mpremote mip install`: the board's modules, compiled, with a package.json.

python -m hushmote.fleet.provisioning.mip FOLDER
"""

import json
import sys
from importlib.metadata import distribution
from pathlib import Path

from ...server.errors import refusing
from . import umqtt
from .release_files import release_files
from .usb import FlashError


def write_package(folder: Path) -> dict[str, bytes]:
    """Write a package into folder, and return its files by name: package.json, .mpy files and the licence.

    Boards do not get the licence, which would take 11 KB of their flash; it is for those who get the folder.
    The output is reproducible for the same sources and mpy-cross.

    Raises:
        FlashError: If a module cannot be compiled, or a file cannot be written.
    """
    modules = {path.removeprefix("/lib/"): content for path, content in release_files().items()}
    del modules["umqtt/simple.mpy"]  # mpremote gets it from MicroPython's index
    files = {name: content for name, content in modules.items() if name.endswith(".mpy")}
    hushmote = distribution("hushmote")
    package = {
        "version": hushmote.version,
        "deps": [["umqtt.simple", umqtt.VERSION]],
        "urls": [[name, name] for name in files],
    }
    files["LICENSE"] = (hushmote.read_text("licenses/LICENSE") or "").encode()
    files["package.json"] = (json.dumps(package, indent=2) + "\n").encode()
    with refusing(FlashError, f"write to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    return files


if __name__ == "__main__":
    for name, content in write_package(Path(sys.argv[1])).items():
        print(f"{sys.argv[1]}/{name}: {len(content):,} bytes")
