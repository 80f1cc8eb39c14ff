"""hushmote-embedded, which serves every build system for microcontrollers, and each registry's part of it."""

import json
import re
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path

from .archives import Tree, write_tar, write_tree, write_zip
from .source import ReleaseError, Source

FOLDER = "hushmote-embedded"
_C = "clients/c"
_COPIED = {  # folders of the C client, by their name here
    "idf": "idf",
    "pico": "examples/pico",
    "psa": "psa",
    "zephyr": "zephyr",
}
_MOVED = {"idf/example/": "examples/esp_idf/", "zephyr/sample/": "examples/zephyr/"}
_ESPHOME_HOST = ("posix/folder.c", "posix/mqtt.c", "posix/posix.h")  # the ESPHome component compiles them
_FOR_ALL = ("LICENSE", "README.md")
_ARDUINO = (*_FOR_ALL, "library.properties", "src/", "examples/Room/")
_PLATFORMIO = (*_FOR_ALL, "library.json", "src/", "examples/Room/")
_ESP_IDF = (
    *(*_FOR_ALL, "idf_component.yml", "CMakeLists.txt", "src/", "idf/", "psa/", "examples/esp_idf/"),
    *("examples/README.md", "CHANGELOG.md"),
)
_ARDUINO_PORT = ("src/hushmote_arduino.cpp", "src/hushmote_arduino.h")


def build(source: Source, dist: Path) -> None:
    """Write the tree, and the archives for Arduino, PlatformIO and ESP-IDF."""
    embedded = tree(source)
    write_tree(dist / FOLDER, embedded)
    version = source.version
    arduino = {f"Hushmote/{name}": data for name, data in _part(embedded, _ARDUINO).items()}
    write_zip(dist / f"hushmote-arduino-{version}.zip", arduino)
    write_tar(dist / f"hushmote-platformio-{version}.tar.gz", _part(embedded, _PLATFORMIO))
    component = _part(embedded, _ESP_IDF)
    for name in _ARDUINO_PORT:
        del component[name]
    write_tar(dist / f"hushmote-esp-idf-{version}.tgz", component)


def tree(source: Source) -> dict[str, bytes]:
    """Return the files of hushmote-embedded."""
    client = source.tree(_C)
    library = runpy.run_path(str(source.folder / _C / "arduino" / "pack.py"))["files"]()
    files = {name: path.read_bytes() for name, path in library.items()}
    for name, content in client.items():
        folder, _, rest = name.partition("/")
        if folder in _COPIED:
            moved = next(
                (to + name.removeprefix(of) for of, to in _MOVED.items() if name.startswith(of)), None
            )
            files[moved or f"{_COPIED[folder]}/{rest}"] = content
    files |= {name: client[name] for name in (*_ESPHOME_HOST, "CMakeLists.txt", "idf_component.yml")}
    files |= {"library.json": _library_json(client["library.json"])}
    for name, content in source.tree("clients/esphome").items():
        if name.startswith("components/"):
            files[name] = content
        elif name.endswith(".yaml"):
            files[f"examples/esphome/{name}"] = content
    files["README.md"] = source.page("tools/release/embedded.md")
    files["examples/README.md"] = source.page("tools/release/examples.md")
    files["components/README.md"] = source.page("clients/esphome/README.md")
    files["CHANGELOG.md"] = source.page("CHANGELOG.md")
    files[".gitignore"] = b"build/\n"
    for name, change in _CHANGES.items():
        files[name] = change(files[name].decode()).encode()
    return files


def _part(embedded: Tree, names: Iterable[str]) -> dict[str, bytes]:
    """Return the named files, and those of the folders that end with "/"."""
    folders = tuple(name for name in names if name.endswith("/"))
    return {name: data for name, data in embedded.items() if name in names or name.startswith(folders)}


def _library_json(content: bytes) -> bytes:
    """Return PlatformIO's manifest for sources in src/."""
    manifest = json.loads(content)
    manifest["examples"] = ["examples/*/*.ino"]
    manifest["export"] = {"include": [name.removesuffix("/") for name in _PLATFORMIO]}
    manifest["build"] = {"srcDir": "src", "includeDir": "src"}
    return (json.dumps(manifest, indent=2) + "\n").encode()


def _replacing(pattern: str, text: str) -> Callable[[str], str]:
    """Return a function that replaces the only line that a pattern matches."""

    def change(content: str) -> str:
        new, count = re.subn(pattern, text, content, flags=re.MULTILINE)
        if count != 1:
            raise ReleaseError(f"{pattern} matches {count} lines, not 1: adapt tools/release/embedded.py")
        return new

    return change


_CHANGES: dict[str, Callable[[str], str]] = {
    "examples/pico/CMakeLists.txt": _replacing(r"/\.\. hushmote\)$", "/../.. hushmote)"),
    "idf_component.yml": _replacing(
        r"^  exclude: \[.*\]$",
        '  exclude: ["src/hushmote_arduino.*", "library.*", "components/**/*", "posix/**/*", "zephyr/**/*", '
        '"examples/Room/**/*", "examples/esphome/**/*", "examples/pico/**/*", "examples/zephyr/**/*"]',
    ),
    "components/hushmote/.gitignore": _replacing(r"clients/c", "../../src"),
}
